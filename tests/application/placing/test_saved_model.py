import shutil

import numpy as np
import pytest
import tensorflow as tf
from placements import cut_placement, plan_for

from cost_models.device_names import full_name
from placer import apply, verify
from placer.__main__ import main
from placer.application.placing.placed_programs import clear
from placer.errors import UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.reading.loading import load_program


class Model(tf.Module):
    """Two signatures that share a weight; one body called twice; a loop; an optimizer-like slot."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.reshape(tf.range(16.0) / 16, [4, 4]), name="w")
        self.v = tf.Variable(tf.ones([4, 4]) / 8, name="v")
        self.slot = tf.Variable(tf.zeros([4, 4]), name="slot")
        self.steps = tf.Variable(0, name="steps")

    @tf.function
    def twice(self, x):
        return tf.nn.relu(x) * 2.0 + 1.0

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def serve(self, x):
        y = self.twice(x @ self.w)
        z = self.twice(y @ self.v)
        _, total = tf.while_loop(
            lambda i, _: i < 3, lambda i, a: (i + 1, tf.nn.tanh(a @ self.v)), [0, z]
        )
        self.steps.assign_add(1)
        return {"total": total + y, "z": z}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def train(self, x):
        gradient = tf.matmul(x, x @ self.w, transpose_a=True)
        tf.raw_ops.ResourceApplyMomentum(
            var=self.w.handle, accum=self.slot.handle, lr=0.1, grad=gradient, momentum=0.9
        )
        return {"loss": tf.reduce_sum(gradient)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = Model()
    tf.saved_model.save(
        model, folder, signatures={"serving_default": model.serve, "train": model.train}
    )
    return folder


@pytest.fixture(scope="module")
def plan(exported):
    program = load_program(exported)
    placement = cut_placement(program, ["GPU:0", "GPU:1"])
    second = {name: "GPU:1" for name in placement if "PartitionedCall_1/" in name}
    return plan_for(program, placement | second, batch_size=3)


@pytest.fixture(scope="module")
def placed(exported, plan):
    out = exported.parent / "placed"
    assert apply(exported, plan, out) == out
    return out


def test_the_file_carries_the_placement_and_stays_the_same_program(exported, plan, placed):
    """Every flat op has its full device name, the fingerprint is unchanged, call ops are blank."""
    program = load_program(placed)
    assert program.fingerprint == load_program(exported).fingerprint
    assert {n.name: n.device for n in program.graph_def.node} == {
        name: full_name(device) for name, device in plan.placement.items()
    }
    meta_graph = read_source(placed).meta_graphs[0]
    assert {n.device for n in meta_graph.graph_def.node if "Call" in n.op} == {""}
    assert (placed / "variables" / "variables.index").exists()
    assert not (placed / "fingerprint.pb").exists()


@pytest.mark.parametrize("name", ["x.keras", "x.h5", "X.PB"])
def test_a_folder_does_not_get_the_name_of_a_file(exported, plan, tmp_path, name, capsys):
    """Keras takes it for a damaged file; told before a search."""
    out = tmp_path / name
    for write in (lambda: apply(exported, plan, out), lambda: clear(exported, out)):
        with pytest.raises(UsageError, match="is the name of a file, and a SavedModel folder"):
            write()
    assert main(["auto", str(exported), "--devices", "2xT4", "-o", str(out)]) == 2
    assert f"leave out {out.suffix}\n" in " ".join(capsys.readouterr().err.split()) + "\n"


def test_a_model_without_weights_is_written_with_a_warning(exported, plan, tmp_path, caplog):
    """Nothing can load what is written, as nothing could load the model."""
    shutil.copytree(exported, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "variables")
    apply(tmp_path / "bare", plan, tmp_path / "placed")
    assert "the model has no variables folder" in caplog.text
    assert "load_placed" not in caplog.text


def test_one_body_runs_on_two_devices(plan):
    """The placement really asks both calls of one function onto different devices."""
    relus = {device for name, device in plan.placement.items() if name.endswith("Relu")}
    assert relus == {"GPU:0", "GPU:1"}


def test_variables_in_the_object_graph_follow_the_plan_and_slots_follow_their_weight(plan, placed):
    """The three planned variables and the slot, which only the other signature touches."""
    objects = read_source(placed).meta_graphs[0].object_graph_def.nodes
    devices = {n.variable.name: n.variable.device for n in objects if n.HasField("variable")}
    wanted = {name: full_name(device) for name, device in plan.variables.items()}
    assert {name: devices[name] for name in wanted} == wanted
    assert devices["slot"] == devices["w"]


def test_the_placed_model_runs_as_planned_and_computes_the_same(plan, placed):
    """TensorFlow 2: every op, variable and transfer as planned, outputs equal bit by bit."""
    found = verify(placed, plan).raise_for_mismatch()
    assert found.rehearsed
    assert not found.applied
    assert not [row for row in found.ops if row.code]
    assert {row.code for row in found.transfers} <= {"", "returned"}
    assert found.counts["matched_variables"] == 3
    assert all(row.equal and row.max_absolute_difference == 0 for row in found.outputs)
    assert found.to_json()["summary"]["mismatches"] == 0


def test_a_session_has_the_variables_on_their_devices_and_runs_both_signatures(plan, placed):
    """The same file in a session with three CPU devices, by the rehearsal's device strings."""
    from placer.application.devices.device_mapping import rehearsal_mapping
    from placer.application.placing.saved_model import map_devices, write_saved_model

    mapping = rehearsal_mapping(set(plan.placement.values()))
    saved_model = read_source(placed)
    map_devices(saved_model.meta_graphs[0], mapping.stand_in)
    rehearsal = placed.parent / "rehearsal"
    write_saved_model(placed, saved_model, rehearsal)
    v1 = tf.compat.v1
    config = v1.ConfigProto(device_count={"CPU": mapping.cpu_count})
    with tf.Graph().as_default() as graph, v1.Session(config=config) as session:
        meta_graph = v1.saved_model.load(session, ["serve"], str(rehearsal))
        values = np.ones([3, 4], np.float32)
        for signature in meta_graph.signature_def.values():
            if signature.inputs:
                tensors = [info.name for info in signature.outputs.values()]
                session.run(tensors, {signature.inputs["x"].name: values})
        metadata = v1.RunMetadata()
        handles = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
        session.run(
            [tf.raw_ops.VarIsInitializedOp(resource=op.outputs[0]) for op in handles],
            options=v1.RunOptions(output_partition_graphs=True),
            run_metadata=metadata,
        )
    found = {
        node.attr["shared_name"].s.decode(): mapping.planned(node.device)
        for partition in metadata.partition_graphs
        for node in partition.node
        if node.op == "VarHandleOp"
    }
    assert {name: found[name] for name in plan.variables} == plan.variables
    assert found["slot"] == plan.variables["w"]


def test_the_other_signature_still_runs(plan, placed):
    """The training signature, whose ops follow the variables, gives what the original gives."""
    found = verify(placed, signature="train", inputs={"x": np.eye(4, dtype=np.float32)})
    assert all(row.equal for row in found.outputs)
    assert {row.variable: row.actual for row in found.variables} == {
        "w": plan.variables["w"],
        "slot": plan.variables["w"],
    }


def test_a_second_placement_replaces_the_first(exported, plan, placed):
    """Applied to the placed model, another plan leaves no clones of the first one behind."""
    swapped = {"GPU:0": "GPU:1", "GPU:1": "GPU:0", "CPU:0": "CPU:0"}
    program = load_program(placed)
    other = plan_for(program, {name: swapped[device] for name, device in plan.placement.items()})
    again = load_program(apply(placed, other, exported.parent / "second"))
    assert again.fingerprint == program.fingerprint
    assert {n.name: n.device for n in again.graph_def.node} == {
        name: full_name(device) for name, device in other.placement.items()
    }
    clones = [
        [f.signature.name for f in read_source(path).meta_graphs[0].graph_def.library.function]
        for path in (placed, exported.parent / "second")
    ]
    assert len(clones[0]) == len(clones[1])


def test_nothing_is_overwritten_unasked_and_a_plan_of_another_model_is_refused(
    exported, plan, placed
):
    """Both are usage errors; with force the folder is replaced."""
    with pytest.raises(UsageError, match="exists"):
        apply(exported, plan, placed)
    apply(exported, plan, exported.parent / "again")
    apply(exported, plan, exported.parent / "again", force=True)
    with pytest.raises(UsageError, match="made for another program"):
        apply(exported, plan, exported.parent / "other", signature="train")
    assert not (exported.parent / "other").exists()
    with pytest.raises(UsageError, match=r"placer\.Plan\.load"):
        apply(exported, "plan.json", exported.parent / "other")
    before = sorted(exported.iterdir())
    with pytest.raises(UsageError, match="inside of the model"):
        apply(exported, plan, exported / "placed")
    assert sorted(exported.iterdir()) == before
