"""A placed GraphDef is started, saved and restored as the graph it was made of."""

import pytest
import tensorflow as tf

from placer import apply, place

v1 = tf.compat.v1


def training_graph(resource, path=None):
    """Two layers, Adam, a table, ``init``, ``tables`` and a saver."""
    with tf.Graph().as_default() as graph:
        hidden = v1.placeholder(tf.float32, [8, 16], name="x")
        for number, size in enumerate((32, 1)):
            shape = [hidden.shape[1], size]
            value = v1.get_variable(f"w{number}", shape, use_resource=resource)
            hidden = tf.tanh(hidden @ value, name=f"layer{number}")
        pairs = tf.lookup.KeyValueTensorInitializer(["a"], [1.0])
        one = tf.lookup.StaticHashTable(pairs, 0.0).lookup(tf.constant("a"))
        loss = tf.add(tf.reduce_mean(tf.square(hidden - 0.5)), one, name="loss")
        v1.train.AdamOptimizer(0.01).minimize(loss, name="train")
        v1.global_variables_initializer()
        v1.tables_initializer(name="tables")
        v1.train.Saver()
        if path:
            v1.train.export_meta_graph(str(path))
    return graph.as_graph_def()


@pytest.mark.parametrize("kind", ["resource", "reference", "meta"])
def test_initialisers_and_savers_are_kept_and_run(tmp_path, kind):
    """init, tables, save and restore run without soft placement; each Assign is at its variable."""
    path = tmp_path / "step.meta" if kind == "meta" else None
    source = training_graph(kind != "reference", path)
    pins = {f"{op}{n}": f"GPU:{n}" for op in ("layer", "w") for n in (0, 1)}
    outputs = ("loss:0", "^train")
    plan = place(path or source, "2xGPU:1GiB", outputs=outputs, pins=pins, time_limit=2)
    if path:
        written = apply(path, plan, tmp_path / "placed.pb", rehearse=True)
        placed = v1.GraphDef.FromString(written.read_bytes())
    else:
        placed = apply(source, plan, rehearse=True)
    devices = {node.name: node.device[-5:] for node in placed.node}
    starting = {n.name for n in source.node if n.name.startswith(("init", "tables", "save/"))}
    assert set(devices) >= starting
    assert [devices[f"w{n}/Assign"] for n in (0, 1)] == [devices[f"w{n}"] for n in (0, 1)]
    assert devices["save/SaveV2"] == devices["save/RestoreV2"] == "CPU:0"
    config = v1.ConfigProto(device_count={"CPU": 3}, allow_soft_placement=False)
    feeds, file = {"x:0": [[1.0] * 16] * 8}, {"save/Const:0": str(tmp_path / "weights")}
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        tf.graph_util.import_graph_def(placed, name="")
        session.run(["init", "tables"])
        session.run("train", feeds)
        session.run("save/control_dependency:0", file)
        loss = session.run("loss:0", feeds)
        session.run("train", feeds)
        assert session.run("loss:0", feeds) != loss
        session.run("save/restore_all", file)
        assert session.run("loss:0", feeds) == loss


def test_a_graph_without_state_is_written_as_it_was():
    """Nothing is added where there is nothing to start."""
    with tf.Graph().as_default() as graph:
        tf.add(v1.placeholder(tf.float32, [4], name="x"), 1.0, name="y")
    placed = apply(graph, place(graph, "1xGPU:1GiB", time_limit=1))
    assert {node.name for node in placed.node} == {"x", "y", "y/y"}
