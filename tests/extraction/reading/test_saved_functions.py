"""Functions that no signature exports are analysed, placed, applied and verified."""

import json

import pytest

tf = pytest.importorskip("tensorflow")

from placer.__main__ import main  # noqa: E402
from placer.errors import UsageError  # noqa: E402
from placer.extraction.files.sources import read_source  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.reading.signatures import choose_meta_graph  # noqa: E402


class Layer(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.eye(3) * 2.0, name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="v")])
    def call(self, v):
        return v @ self.w


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([3, 2]), name="w")
        self.layers = [Layer(), Layer()]
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1], tf.int64)), -1
        )

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def f(self, x):
        return {"y": self.layers[1].call(x) @ self.w, "twice": 2.0 * x}

    @tf.function
    def g(self, x, training=False):
        return x + 1.0 if training else x @ self.w

    @tf.function(input_signature=[tf.TensorSpec([4], tf.string, name="word")])
    def look_up(self, word):
        return self.table.lookup(word)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = Model()
    for training in (False, True):
        model.g(tf.ones([4, 3]), training=training)
    path = tmp_path_factory.mktemp("functions") / "model"
    tf.saved_model.save(model, str(path))
    return path


def test_what_there_is_is_told(saved):
    """The paths of the functions are named; where one has two traces, both are."""
    with pytest.raises(
        UsageError, match=r"functions are 'f', 'g', 'look_up', 'layers.0.call', 'layers.1.call': ch"
    ):
        load_program(saved)
    with pytest.raises(UsageError) as error:
        load_program(saved, signature="g")
    names = [name for name in str(error.value).split("'") if name.startswith("__inference_g_")]
    assert len(names) == 2
    assert "(x: float32 [4, 3], False)" in str(error.value)
    assert "(x: float32 [4, 3], True)" in str(error.value)
    types = [{n.op for n in load_program(saved, signature=n).graph_def.node} for n in names]
    assert ["MatMul" in found for found in types] == [True, False]


def test_a_function_is_read_with_what_it_captures(saved):
    """Inputs, outputs, variables of one name and tables are those of the function."""
    program = load_program(saved, signature="f")
    assert [(item.key, item.shape) for item in program.inputs] == [("x", (None, 3))]
    assert [key for key, _ in program.outputs] == ["twice", "y"]
    assert [v.name for v in program.variables] == ["w", "w_1"]
    assert {v.shape for v in program.variables} == {(3, 2), (3, 3)}
    inner = load_program(saved, signature="layers.1.call")
    assert [v.shape for v in inner.variables] == [(3, 3)]
    table = load_program(saved, signature="look_up")
    assert [v.dtype for v in table.variables] == ["resource"]
    assert {item.key for item in table.inputs} == {"word"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f", "layers.1.call"])
def test_a_function_is_placed_applied_and_verified(saved, tmp_path, capsys, name):
    """The restored function of the placed model runs as planned, its variables in place."""
    plan, out = str(tmp_path / "plan.json"), tmp_path / "placed"
    last = {"f": "f/matmul", "layers.1.call": "call/matmul"}[name]
    argv = ["place", str(saved), "--signature", name, "--devices", "2xGPU:1GiB", "-o", plan, "-q"]
    pins = ["--pin", f"{last}=GPU:1"]
    if name == "f":
        pins += ["--pin", "f/StatefulPartitionedCall/matmul=GPU:0"]
    assert main([*argv, "--batch-size", "2", *pins]) == 0
    assert main(["apply", str(saved), plan, "-o", str(out), "-q"]) == 0
    before, after = (choose_meta_graph(read_source(path), path, None) for path in (saved, out))
    assert list(after.signature_def) == list(before.signature_def)
    assert [n.name for n in after.graph_def.node] == [n.name for n in before.graph_def.node]
    program = load_program(out, signature=name)
    assert program.fingerprint == load_program(saved, signature=name).fingerprint
    capsys.readouterr()
    assert main(["verify", str(out), plan, "--format", "json", "-q"]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["outputs_equal"] is True
    assert summary["matched_variables"] == len(program.variables)


class Coder(tf.Module):
    """Two functions that could be meant."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def encode(self, x):
        return x * 2.0

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def decode(self, x):
        return x / 2.0


def test_a_lone_signature_or_function_is_taken(tmp_path):
    """Without ``--signature``; of several the message says which there are."""
    module = Coder()
    tf.saved_model.save(module, tmp_path / "one", signatures={"enc": module.encode})
    assert load_program(tmp_path / "one").signature == "enc"
    both = {"enc": module.encode, "dec": module.decode}
    tf.saved_model.save(module, tmp_path / "two", signatures=both)
    with pytest.raises(UsageError, match=r"it has 'dec', 'enc'; its functions are"):
        load_program(tmp_path / "two")
    lone = tf.Module()
    lone.scale = tf.function(lambda x: x * 3.0)
    lone.scale(tf.zeros([2]))
    tf.saved_model.save(lone, tmp_path / "function", signatures={})
    assert load_program(tmp_path / "function").signature == "scale"
