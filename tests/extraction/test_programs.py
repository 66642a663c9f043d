"""Programs that are legal and odd: names, orders, calls, constants and device strings."""

import json

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from google.protobuf import text_format  # noqa: E402
from tensorflow.core.framework import graph_pb2  # noqa: E402

from cost_models.clusters import parse_cluster  # noqa: E402
from placer.__main__ import main  # noqa: E402
from placer.errors import UsageError  # noqa: E402
from placer.extraction import extract  # noqa: E402
from placer.extraction.analysis import analyse_program  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.problem.constraints import ConstraintOptions, find_constraints  # noqa: E402

FLOAT = "attr { key: 'T' value { type: DT_FLOAT } }"
FED = """attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'shape' value { shape { dim { size: 4 } dim { size: 4 } } } }"""
TWICE = f"""
function {{
    signature {{ name: 'Twice' input_arg {{ name: 'v' type: DT_FLOAT }}
                 output_arg {{ name: 'r' type: DT_FLOAT }} }}
    node_def {{ name: 'sum' op: 'AddV2' input: 'v' input: 'v' {FLOAT} }}
    ret {{ key: 'r' value: 'sum:z:0' }} }}"""


def graph_of(text):
    return text_format.Parse(text, graph_pb2.GraphDef())


def analyse(text):
    return analyse_program(load_program(graph_of(text)), {})


def node(name, op, *inputs, more=FLOAT, device=""):
    data = " ".join(f"input: '{reference}'" for reference in inputs)
    return f"node {{ name: '{name}' op: '{op}' {data} device: '{device}' {more} }}\n"


def devices_of(found, devices="2xGPU:1GiB", **options):
    constraints = find_constraints(
        found.graph, parse_cluster(devices), ConstraintOptions(**options)
    )
    return {name: item.devices for name, item in constraints.restrictions.items()}, constraints


def test_any_order_and_a_call_by_the_functions_name(tmp_path):
    """Readers before producers and an op whose type is a function are placed, and run."""
    text = node("y", "MatMul", "twice", "x") + node("twice", "Twice", "x", more="")
    text += node("x", "Placeholder", more=FED) + f"library {{ {TWICE} }}"
    path, plan = tmp_path / "model.pbtxt", str(tmp_path / "plan.json")
    path.write_text(text)
    argv = ["place", str(path), "--devices", "2xGPU:1GiB", "--pin", "y=GPU:1", "-o", plan, "-q"]
    assert main([*argv, "--pin", "twice/sum=GPU:0"]) == 0
    assert json.loads((tmp_path / "plan.json").read_text())["placement"]["twice/sum"] == "GPU:0"
    assert main(["apply", str(path), plan, "-o", str(tmp_path / "placed.pb"), "-q"]) == 0
    placed = graph_pb2.GraphDef.FromString((tmp_path / "placed.pb").read_bytes())
    assert {n.name: n.device[-5:] for n in placed.node if n.op != "Placeholder"} == {
        "twice/sum": "GPU:0",
        "y": "GPU:1",
    }
    here = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(config=here) as session:
        tf.graph_util.import_graph_def(placed, name="")
        fed = np.arange(16.0).reshape(4, 4)
        found = session.run("y:0", {graph.get_tensor_by_name("x:0"): fed})
    np.testing.assert_allclose(found, 2 * fed @ fed)


def test_names_that_begin_with_an_underscore():
    """import_graph_def refuses such names; the analysis does not."""
    text = node("_x", "Placeholder", more=FED) + node("_scope/_y", "Neg", "_x")
    found = analyse(text)
    assert found.unknown == ()
    assert found.graph.tensors["_scope/_y:0"].properties.shape == (4, 4)


def test_a_splat_constant_is_never_expanded(tmp_path):
    """A constant of 64 GiB in a file of some bytes is sized, and takes no memory to read."""
    value = """attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'value' value { tensor {
               dtype: DT_FLOAT float_val: 1 tensor_shape { dim { size: 131072 }
               dim { size: 131072 } } } } }"""
    (tmp_path / "splat.pbtxt").write_text(
        node("big", "Const", more=value) + node("y", "Neg", "big")
    )
    found = extract(tmp_path / "splat.pbtxt")
    assert found.graph.tensors["y:0"].properties.shape == (131_072, 131_072)
    assert found.unknown == ()


def test_alternatives_of_api_implements_are_not_reached():
    """What a call could be swapped for is in the file, not in the program; the call is inlined."""
    mark = "attr { key: 'api_implements' value { s: 'lstm_1' } }"
    other = TWICE.replace("'Twice'", "'OnGpu'").replace("'AddV2'", "'Mul'")
    library = (TWICE + other).replace("ret {", f"{mark} ret {{")
    text = node("x", "Placeholder", more=FED) + node("y", "Twice", "x", more="")
    found = analyse(f"{text} library {{ {library} }}")
    assert {op.op_type for op in found.graph.ops.values()} == {"Placeholder", "AddV2"}


def test_device_strings_of_every_kind():
    """Partial, legacy, wildcard and job strings bind; one of a TPU is refused by name."""
    strings = {
        "/gpu:1": ("GPU:1",),
        "/device:GPU:*": ("GPU:0", "GPU:1"),
        "/job:localhost/replica:0/task:0/device:GPU:0": ("GPU:0",),
        "/job:localhost": ("GPU:0", "GPU:1"),
        "/device:CPU:0": ("CPU:0",),
    }
    text = node("x", "Placeholder", more=FED)
    text += "".join(node(f"n{i}", "Neg", "x", device=d) for i, d in enumerate(strings))
    asked, _ = devices_of(analyse(text))
    assert [asked[f"n{i}"] for i in range(len(strings))] == list(strings.values())
    free, _ = devices_of(analyse(text), clear_devices=True)
    assert {free[f"n{i}"] for i in range(len(strings))} == {("GPU:0", "GPU:1")}
    tpu = analyse(
        node("x", "Placeholder", more=FED) + node("y", "Neg", "x", device="/device:TPU:0")
    )
    with pytest.raises(UsageError, match=r"asks for device '/device:TPU:0'.*clear_devices=True"):
        devices_of(tpu)
    assert devices_of(tpu, clear_devices=True)[0]["y"] == ("GPU:0", "GPU:1")


def test_ops_of_the_host():
    """PyFunc, and ops that this TensorFlow does not know, stay on the host; the latter are told."""
    types = "attr { key: 'token' value { s: 't' } }" + "".join(
        f"attr {{ key: '{key}' value {{ list {{ type: DT_FLOAT }} }} }}" for key in ("Tin", "Tout")
    )
    text = node("x", "Placeholder", more=FED) + node("p", "PyFunc", "x", more=types)
    found = analyse(text + node("odd", "NobodyKnowsThis", "x"))
    devices, _ = devices_of(found)
    assert devices["p"] == devices["odd"] == ("CPU:0",)
    assert [(code, ops) for code, _, ops in found.warnings] == [("unknown_op_type", ("odd",))]


def test_stored_shapes_are_used_where_they_say_more_and_distrusted_where_they_contradict():
    """``_output_shapes`` fills in what inference leaves open, and loses against what it finds."""

    def stored(*sizes):
        dims = " ".join(f"dim {{ size: {size} }}" for size in sizes)
        return f"""attr {{ key: '_output_shapes' value {{ list {{ shape {{ {dims} }} }} }} }}"""

    text = node("x", "Placeholder", more=FED + stored(9, 9))
    text += node("wrong", "Neg", "x", more=FLOAT + stored(5))
    text += node("custom", "NobodyKnowsThis", "x", more=FLOAT + stored(3, 4))
    text += node("y", "Neg", "custom")
    tensors = analyse(text).graph.tensors
    shapes = {name: tensors[f"{name}:0"].properties.shape for name in ("wrong", "custom", "y")}
    assert shapes == {"wrong": (4, 4), "custom": (3, 4), "y": (3, 4)}


@pytest.mark.slow
def test_a_sequential_keras_model_is_a_program():
    """Keras 3's Sequential has no attribute ``input``; its one input is bound by batch size."""
    import keras

    from placer.extraction import extract

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    found = extract(model, batch_size=5)
    assert [item.shape for item in found.inputs] == [(None, 4)]
    assert sorted(variable.shape for variable in found.graph.variables) == [
        (2,),
        (3,),
        (3, 2),
        (4, 3),
    ]
