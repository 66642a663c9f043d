"""TensorFlow accepts every placement that keeps the groups together, whatever hints say."""

import itertools
import random

import pytest

tf = pytest.importorskip("tensorflow")

from placer.application.placing.class_hints import release_hints  # noqa: E402
from placer.application.running.program_runs import assign_value  # noqa: E402
from placer.extraction.analysis import analyse_program  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402

v1 = tf.compat.v1
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:{}"


def random_placement(extraction, seed):
    choose = random.Random(seed).randrange
    device_of = {name: DEVICE.format(choose(2)) for name in extraction.graph.ops}
    for group in extraction.graph.colocation_groups:
        device = DEVICE.format(choose(2))
        device_of.update(dict.fromkeys(group.ops, device))
    return device_of


def run_placed(program, device_of, initialise):
    """The devices that ran, by op, with soft placement off."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(program.graph_def)
    for node in graph_def.node:
        node.device = device_of[node.name]
    release_hints(graph_def)
    graph = tf.Graph()
    with graph.as_default():
        v1.import_graph_def(graph_def, name="")
        setup = initialise(graph)
    config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    metadata = v1.RunMetadata()
    with v1.Session(graph=graph, config=config) as session:
        session.run(setup)
        session.run(
            [[tensor for _, tensor in program.outputs], list(program.targets)],
            options=v1.RunOptions(output_partition_graphs=True),
            run_metadata=metadata,
        )
    return {n.name: n.device for part in metadata.partition_graphs for n in part.node}


def fresh_variables(graph):
    made = []
    for op in [op for op in graph.get_operations() if op.type in ("VariableV2", "VarHandleOp")]:
        with graph.colocate_with(op, ignore_existing=True):
            made.append(assign_value(op, tf.ones(op.get_attr("shape"))))
    return made


def check(graph, seeds=(0, 1, 2)):
    program = load_program(graph)
    extraction = analyse_program(program, {})
    for seed in seeds:
        device_of = random_placement(extraction, seed)
        ran = run_placed(program, device_of, fresh_variables)
        common = ran.keys() & device_of.keys()
        assert len(common) > len(device_of) / 2
        assert {n for n in common if ran[n] != device_of[n]} == set()
    return {reason for group in extraction.graph.colocation_groups for reason in group.reasons}


def test_v1_variables_loops_arrays_and_conditionals():
    """Reference variables, a v1 loop with a TensorArray, a v1 conditional, a queue."""
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            w = v1.get_variable("w", [4], use_resource=False)
            update = v1.assign_add(w, tf.ones([4]))
            with tf.control_dependencies([update]):
                read = tf.identity(w)
            array = tf.TensorArray(tf.float32, 3)
            loop = v1.while_loop(
                lambda i, *_: i < 3,
                lambda i, a, y: (i + 1, a.write(i, y), y * 0.5),
                (0, array, read),
            )
            y = v1.cond(tf.reduce_sum(loop[2]) > 0, lambda: loop[2] + 1.0, lambda: loop[2])
            queue = v1.FIFOQueue(2, [tf.float32], shapes=[[4]])
            with tf.control_dependencies([queue.enqueue(y)]):
                taken = queue.dequeue()
            tf.add_n([taken, tf.reduce_sum(loop[1].stack(), axis=0)], name="out")
    finally:
        v1.enable_control_flow_v2()
    reasons = check(graph)
    assert {"reference", "frame", "tensor_array", "queue", "switch"} <= reasons


def test_groups_name_handles_tables_and_lists():
    """Every op that touches a variable, a table or a TensorList is in its group."""
    w = tf.Variable(tf.ones([3]), name="w")
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def run(word):
        table.insert(word, tf.ones_like(word, tf.int64))
        w.assign_add([1.0, 1.0, 1.0])
        array = tf.TensorArray(tf.float32, 2, element_shape=[3]).write(0, w * 2.0)
        return table.lookup(word), w.read_value(), array.stack()

    program = load_program(run)
    graph = analyse_program(program, {}, batch_size=2).graph
    types = [{graph.ops[name].op_type for name in g.ops} for g in graph.colocation_groups]
    assert any({"AssignAddVariableOp", "ReadVariableOp"} <= found for found in types)
    assert any({"LookupTableInsertV2", "LookupTableFindV2"} <= found for found in types)
    assert any({"TensorListReserve", "TensorListStack"} <= found for found in types)
    names = [name for group in graph.colocation_groups for name in group.ops]
    assert len(names) == len(set(names))


def tf_accepts(program, device_of):
    """Whether TensorFlow, soft placement off, runs every op where it is asked to."""
    try:
        ran = run_placed(program, device_of, fresh_variables)
    except tf.errors.InvalidArgumentError:
        return False
    return all(ran[name] == device for name, device in device_of.items())


def hinted_step(use_resource):
    """A variable, an op that updates it and one that reads it; ``y`` has a hint to it, ``z`` to
    ``y``."""
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", [4], initializer=v1.zeros_initializer, use_resource=use_resource)
        with v1.colocate_with(w):
            y = tf.negative(w, name="y")
        with v1.colocate_with(y.op):
            z = tf.negative(y, name="z")
        v1.assign_add(w, z, name="update")
    return graph


@pytest.mark.parametrize("use_resource", [True, False])
def test_groups_are_exactly_what_tensorflow_demands(use_resource):
    """Of all placements of a few ops on two devices, TensorFlow runs those as asked that keep the
    groups together, and no others: no hint is kept, and no law dropped."""
    update = "AssignAddVariableOp" if use_resource else "update"
    program = load_program(hinted_step(use_resource), outputs=("z", update))
    graph = analyse_program(program, {}).graph
    names = list(graph.ops)
    accepted = 0
    for choice in itertools.product(range(2), repeat=len(names)):
        device_of = {n: DEVICE.format(d) for n, d in zip(names, choice, strict=True)}
        together = all(len({device_of[op] for op in g.ops}) == 1 for g in graph.colocation_groups)
        assert tf_accepts(program, device_of) == together, device_of
        accepted += together
    assert accepted == (8 if use_resource else 16)  # z, y and what touches w; w/read besides
    assert {("w", "y"), ("w", "z")} <= {pair.ops for pair in graph.colocation_hints}


def test_what_one_staging_area_holds_is_on_one_device():
    """Ops of a staging area share no handle, only its name: apart, the one that takes would wait
    for ever for what the other put elsewhere."""
    with tf.Graph().as_default() as graph:
        for kind in ("stage", "map_stage", "ordered_map_stage"):
            name = {"container": "", "shared_name": "area"}
            kinds = {"dtypes": [tf.float32], **name, "name": f"{kind}/take"}
            with tf.control_dependencies([_put(kind, name)]):
                key = {} if kind == "stage" else {"key": tf.constant(1, tf.int64), "indices": [0]}
                getattr(tf.raw_ops, _TAKE[kind])(**key, **kinds)
    found = analyse_program(load_program(graph), {}).graph.colocation_groups
    groups = {group.ops: group.reasons for group in found}
    for kind in _TAKE:
        assert groups[f"{kind}/put", f"{kind}/take"] == ("staging_area",)


_TAKE = {"stage": "Unstage", "map_stage": "MapUnstage", "ordered_map_stage": "OrderedMapUnstage"}


def _put(kind, name):
    values, name = [tf.ones([2])], {**name, "name": f"{kind}/put"}
    if kind == "stage":
        return tf.raw_ops.Stage(values=values, **name)
    put = tf.raw_ops.MapStage if kind == "map_stage" else tf.raw_ops.OrderedMapStage
    key = tf.constant(1, tf.int64)
    return put(key=key, indices=[0], values=values, dtypes=[tf.float32], **name)
