import pytest
import tensorflow as tf
from placements import cut_placement, plan_for

from cost_models.device_names import full_name
from placer import apply, verify
from placer.application.placing.graph_placement import place_graph_def
from placer.errors import UsageError
from placer.extraction.reading.loading import load_program

DEVICES = ["GPU:0", "GPU:1"]


@pytest.fixture(scope="module")
def program():
    """One loop body that loops on two devices run, one inside of a case, and a branch."""
    weight = tf.constant([[0.5, 0.1], [0.2, 0.4]])

    @tf.function
    def loop(x):
        body = lambda i, a: (i + 1, tf.tanh(a @ weight))  # noqa: E731
        return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
    def function(x):
        y = loop(x)
        z = tf.cond(tf.reduce_sum(y) > 100.0, lambda: y * 2.0, lambda: y + 1.0)
        cases = [lambda: z - y, lambda: z * y, lambda: loop(z)]
        return loop(tf.switch_case(tf.cast(z[0, 0] > 0, tf.int32) + 1, cases))

    return load_program(function.get_concrete_function().graph.as_graph_def())


@pytest.fixture(scope="module")
def placement(program):
    return cut_placement(program, DEVICES)


def test_every_op_has_its_full_device_name(program, placement):
    """The placed GraphDef carries the plan on every node, and on every body op its loop's."""
    placed = place_graph_def(program, placement)
    devices = {node.name: node.device for node in placed.node if node.name in placement}
    assert devices == {name: full_name(device) for name, device in placement.items()}
    loops = {n.attr["body"].func.name: n.device for n in placed.node if "While" in n.op}
    assert len(loops) == 2
    (case,) = (node for node in placed.node if "Case" in node.op)
    loops |= {function.name: case.device for function in case.attr["branches"].list.func}
    bodies = {f.signature.name: f for f in placed.library.function}
    for body, device in loops.items():
        nodes = [node for node in bodies[body].node_def if "Call" not in node.op]
        assert {node.device for node in nodes} == {device}


def test_body_ops_without_a_gpu_kernel_go_to_the_host():
    """A loop that is pinned to a GPU formats a string in its body: that op gets the CPU."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="n")])
    def function(n):
        body = lambda i, s: (i + 1, tf.strings.join([s, tf.strings.as_string(i)]))  # noqa: E731
        return tf.while_loop(lambda i, _: i < n, body, [0, ""])[1]

    program = load_program(function)
    placement = {node.name: "GPU:1" for node in program.graph_def.node} | {"n": "CPU:0"}
    placed = place_graph_def(program, placement)
    (loop,) = (node for node in placed.node if "While" in node.op)
    (body,) = (
        f for f in placed.library.function if f.signature.name == loop.attr["body"].func.name
    )
    devices = {node.op: node.device.rpartition("device:")[2] for node in body.node_def}
    assert devices["StringJoin"] == "CPU:0"
    assert devices["AddV2"] == "GPU:1"


def test_it_stays_the_same_program(program, placement):
    """Extraction looks through input anchors and clones: the fingerprint is unchanged."""
    placed = place_graph_def(program, placement)
    assert any("_placer_input" in node.attr for node in placed.node)
    assert load_program(placed).fingerprint == program.fingerprint


def test_control_flow_that_is_not_lowered_stays_the_same_program(program, placement):
    """Placing writes no attributes that were not there."""
    graph_def = program.graph_def
    bare = type(graph_def).FromString(graph_def.SerializeToString())
    for node in bare.node:
        node.attr.pop("_lower_using_switch_merge", None)
    unlowered = load_program(bare)
    placed = load_program(place_graph_def(unlowered, placement))
    assert placed.fingerprint == unlowered.fingerprint != program.fingerprint


def test_loops_and_branches_run_as_planned(program, placement, tmp_path):
    """In a session: every transfer as predicted, no loop state sent to and fro, equal outputs.

    A session prunes the unused limit of each loop, which is no mismatch.
    """
    source, out = tmp_path / "graph.pb", tmp_path / "placed.pb"
    source.write_bytes(program.graph_def.SerializeToString())
    plan = plan_for(program, placement, batch_size=3)
    apply(source, plan, out)
    found = verify(out, plan).raise_for_mismatch()
    pruned = {row.op: row.code for row in found.ops if row.code}
    assert {name.rpartition("/")[2] for name in pruned} == {"maximum_iterations"}
    assert set(pruned.values()) == {"inside_control_flow"}
    assert not [row for row in found.transfers if row.code]
    assert all(row.equal for row in found.outputs)
    assert found.counts["max_absolute_difference"] == 0


def test_with_graph_optimisation_on_every_difference_has_a_code(program, placement):
    """Optimisers remove and merge ops; a GraphDef in memory is verified like a file."""
    plan = plan_for(program, placement, batch_size=3)
    found = verify(program.graph_def, plan, optimised=True).raise_for_mismatch()
    assert found.applied
    assert {row.code for row in found.ops} <= {"", "removed_by_optimiser", "moved_by_optimiser"}
    codes = {row.code for row in found.transfers}
    assert codes <= {"", "removed_by_optimiser", "added_by_optimiser", "inside_control_flow"}


def test_a_text_graph_is_written_for_pbtxt(program, placement, tmp_path):
    """The suffix decides; both forms hold the same program."""
    source = tmp_path / "graph.pb"
    source.write_bytes(program.graph_def.SerializeToString())
    out = apply(source, plan_for(program, placement), tmp_path / "placed.pbtxt")
    assert out.read_text().startswith("node {")
    assert load_program(out).fingerprint == program.fingerprint


def test_what_has_no_effect_on_a_file_or_a_graph_is_refused(program, placement, tmp_path):
    """No device is asked for where a file is written, and no file is written of a GraphDef."""
    source, plan = tmp_path / "graph.pb", plan_for(program, placement)
    source.write_bytes(program.graph_def.SerializeToString())
    with pytest.raises(UsageError, match="missing='error' is for functions and Keras models"):
        apply(source, plan, tmp_path / "placed.pb", missing="error")
    with pytest.raises(UsageError, match="and no file is written"):
        apply(program.graph_def, plan, force=True)


def test_a_placement_that_leaves_ops_out_is_refused(program, placement):
    """Unknown is never an empty device string."""
    with pytest.raises(UsageError, match="lacks 1 of the"):
        place_graph_def(program, dict(list(placement.items())[1:]))
