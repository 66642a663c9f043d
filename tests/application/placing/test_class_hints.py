"""Which hints a placed graph may keep, so that TensorFlow imports it as it is placed."""

import pytest
import tensorflow as tf

from placer.application.placing.class_hints import release_hints

v1 = tf.compat.v1


@pytest.mark.parametrize("use_resource", [True, False])
def test_what_starts_a_variable_goes_with_it_and_not_with_what_it_names(use_resource):
    """``b``, made to be beside ``a``, is on another device; its initialiser has no device and
    names ``a``: imported, it runs where ``b`` is, with soft placement off."""
    with tf.Graph().as_default() as graph:
        start = v1.zeros_initializer()
        a = v1.get_variable("a", [2], initializer=start, use_resource=use_resource)
        with v1.colocate_with(a):
            v1.get_variable("b", [2], initializer=start, use_resource=use_resource)
        v1.global_variables_initializer()
    graph_def = graph.as_graph_def()
    wanted = {"a": "/device:CPU:0", "b": "/device:CPU:1"}
    for node in graph_def.node:
        node.device = wanted.get(node.name, "")
    release_hints(graph_def, wanted)
    config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False)
    with tf.Graph().as_default() as placed, v1.Session(config=config) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        session.run("init")
        devices = {op.name: op.device for op in placed.get_operations()}
    assert (devices["a"], devices["b"]) == tuple(wanted.values())
    assert devices["b/Assign"] in ("", wanted["b"])  # without one it follows the handle
