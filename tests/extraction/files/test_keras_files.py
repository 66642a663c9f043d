"""Keras files are models too, as long as they bring no code of their own."""

import hashlib
import json
import zipfile

import numpy as np
import pytest

from placer.errors import ModelError
from placer.extraction import extract
from placer.extraction.files.keras_files import foreign_code, is_keras_file, modernised, read_config
from placer.extraction.files.sources import read_source
from placer.extraction.process.reading_tasks import export_keras_file
from placer.plan.plan import Plan


def test_code_that_does_not_come_with_keras_is_found():
    """Lambdas, custom classes and functions are named; Keras's own layers are not."""
    dense = {"module": "keras.layers", "class_name": "Dense", "config": {"name": "d"}}
    relu = {"module": "builtins", "class_name": "function", "config": "relu"}
    bytecode = {"class_name": "__lambda__", "config": {"code": "4wEAAAAA"}}
    foreign = {
        "layer 'l' is a Lambda": {"class_name": "Lambda", "config": {"name": "l"}},
        "a function is stored as Python bytecode": bytecode,
        "layer 't' runs the SavedModel of another path": {
            "class_name": "TFSMLayer",
            "config": {"name": "t", "filepath": "/elsewhere"},
        },
        "class 'Mine' comes from module 'mine.layers'": {
            "module": "mine.layers",
            "class_name": "Mine",
            "config": {},
        },
        "function 'f' comes from module 'os'": {
            "module": "os",
            "class_name": "function",
            "config": "f",
        },
        "class 'Custom>Mine' is not a class of Keras": {
            "module": None,
            "class_name": "Mine",
            "registered_name": "Custom>Mine",
        },
    }
    layers = [dense, {"class_name": "Activation", "config": {"activation": relu}}]
    model = {"class_name": "Functional", "config": {"layers": layers}}
    assert foreign_code(model) == []
    assert foreign_code(model | {"compile_config": {"loss": bytecode}}) == []
    nested = {"class_name": "Sequential", "config": {"layers": list(foreign.values())}}
    assert foreign_code({"class_name": "Functional", "config": [dense, nested]}) == list(foreign)


@pytest.mark.parametrize(
    ("module", "name", "word"),
    [
        ("keras", "layers.TFSMLayer", "SavedModel of another path"),
        ("keras", "layers.Lambda", "is a Lambda"),
        ("keras", "layers.TorchModuleWrapper", "pickled PyTorch"),
        ("keras", "utils.get_file", "from module 'keras.utils'"),
        ("builtins", "exec", "runs Python code"),
    ],
)
@pytest.mark.parametrize("is_function", [False, True])
def test_a_part_of_the_module_may_stand_in_the_name(module, name, word, is_function):
    """Keras looks up ``keras.layers.Lambda`` for a class ``layers.Lambda`` of ``keras``; functions
    are named by their configuration."""
    value = {"module": module, "class_name": name, "config": {"name": "l"}}
    if is_function:
        value |= {"class_name": "function", "config": name}
        word = "function" if "layers." in name else word
    assert any(word in found for found in foreign_code({"class_name": "S", "config": [value]}))


def test_functions_of_keras_are_no_others():
    """Old files name them as Python's builtins are named."""
    relu = {"module": "builtins", "class_name": "function", "config": "relu"}
    assert foreign_code({"class_name": "Dense", "config": {"activation": relu}}) == []


def test_old_configurations_become_what_keras_3_reads():
    """A bare list of layers gets its input layer, and initialisers lose their dtype."""
    kernel = {"class_name": "Zeros", "config": {"dtype": "float32", "seed": 1}}
    layer = {"name": "d", "batch_input_shape": [4, 3], "kernel_initializer": kernel}
    old = {"class_name": "Sequential", "config": [{"class_name": "Dense", "config": layer}]}
    first, second = modernised(old)["config"]["layers"]
    assert first["class_name"] == "InputLayer"
    assert first["config"]["batch_input_shape"] == [4, 3]
    assert second["config"] == {
        "name": "d",
        "kernel_initializer": {"class_name": "Zeros", "config": {"seed": 1}},
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 40, "cannot be read"),
        (b"PK\x03\x04 and no more", "may be incomplete \\(File is not a zip file"),
    ],
)
def test_broken_files_are_refused(tmp_path, content, reason):
    """The first bytes say what a file should be; what follows may be broken."""
    path = tmp_path / "model.keras"
    path.write_bytes(content)
    assert is_keras_file(path)
    with pytest.raises(ModelError, match=reason):
        read_config(path)


def test_an_archive_without_a_model_is_refused(tmp_path):
    """Weights alone, and zip archives of other things, say what they lack."""
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("saved_model.pb", b"")
    with pytest.raises(ModelError, match=r"zip archive without config\.json"):
        read_config(tmp_path / "other.zip")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["kernel"] = [1.0]
    with pytest.raises(ModelError, match="holds weights but no model"):
        read_config(tmp_path / "weights.h5")


@pytest.fixture(scope="module")
def keras_files(tmp_path_factory):
    """A small model as .keras, one with a Lambda as .h5, and the former with a foreign class."""
    keras = pytest.importorskip("keras")

    folder = tmp_path_factory.mktemp("keras")
    x = keras.Input((8,), name="x")
    hidden = keras.layers.Dense(64, activation="relu")(x)
    keras.Model(x, keras.layers.Dense(4)(hidden)).save(folder / "plain.keras")
    doubled = keras.layers.Lambda(lambda v: v * 2.0, output_shape=(8,))(x)
    keras.Model(x, doubled).save(folder / "lambda.h5")
    with zipfile.ZipFile(folder / "plain.keras") as archive:
        config = json.loads(archive.read("config.json"))
    config["config"]["layers"][1] |= {"module": "none", "registered_name": "none>Mine"}
    with zipfile.ZipFile(folder / "custom.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    return folder


@pytest.mark.slow
def test_code_runs_only_when_it_is_allowed(keras_files):
    """A model with code of its own is refused with the flag that allows it."""
    with pytest.raises(ModelError, match="class 'Dense' comes from module 'none'"):
        extract(keras_files / "custom.keras")
    with pytest.raises(ModelError, match=r"is a Lambda.*allow_unsafe=True"):
        extract(keras_files / "lambda.h5")
    found = extract(keras_files / "lambda.h5", batch_size=2, allow_unsafe=True)
    assert "Mul" in {op.op_type for op in found.graph.ops.values()}
    assert [(item.key, item.shape) for item in found.inputs] == [("x", (None, 8))]


def test_a_file_is_exported_again_in_the_same_folder(keras_files, tmp_path):
    """As ``auto`` does, which reads a model again to divide its batch."""
    pytest.importorskip("keras")
    for name in ("one", "two"):
        target = tmp_path / name
        export_keras_file(keras_files / "plain.keras", target, tmp_path, allow_code=False)
        assert (target / "saved_model.pb").is_file()


def test_a_keras_file_is_placed_and_applied(keras_files, tmp_path, warm_process):
    """What is written of a Keras file is a placed SavedModel that computes what Keras does."""
    import keras
    import tensorflow as tf

    def run(*arguments):
        folder = tmp_path / arguments[0]
        folder.mkdir()
        outcome = warm_process.run(list(arguments), folder)
        assert (outcome.status, outcome.left) == (0, ()), outcome.stderr

    model, plan_path = keras_files / "plain.keras", str(tmp_path / "plan.json")
    caps = ["--devices", "2xGPU", "--max-memory", "GPU:*=3000B", "--offload", "never"]
    run("place", str(model), "--batch-size", "2", *caps, "-o", plan_path, "-q")
    plan = Plan.load(plan_path)
    assert (plan.model["format"], plan.model["path"]) == ("keras", str(model))
    assert plan.model["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert len(plan.variables) == 4
    run("apply", str(model), plan_path, "-o", str(tmp_path / "placed"))
    placed = read_source(tmp_path / "placed").meta_graphs[0]
    variables = [item.variable for item in placed.object_graph_def.nodes if item.variable.name]
    full_names = {f"/job:localhost/replica:0/task:0/device:{d}" for d in plan.variables.values()}
    host = "/job:localhost/replica:0/task:0/device:CPU:0"  # where Keras's second copies are
    assert {variable.device for variable in variables} - {""} == {*full_names, host}
    assert len(full_names) == 2
    values = np.linspace(-1, 1, 16, dtype="float32").reshape(2, 8)
    found = tf.saved_model.load(str(tmp_path / "placed")).signatures["serving_default"](x=values)
    wanted = keras.saving.load_model(model)(values)
    np.testing.assert_allclose(*found.values(), wanted, rtol=1e-5)


@pytest.mark.slow
def test_keras_2_files_that_others_wrote(test_data):
    """An old Sequential loads; what carries bytecode of a Python that is gone is refused."""
    folder = test_data / "graphs" / "dl4j-keras" / "examples"
    found = extract(folder / "simple_lstm" / "simple_lstm_tf_keras_2_model.h5", batch_size=2)
    assert (1, 200) in {v.shape for v in found.graph.variables}
    for name in ("lambda/model_lambda.h5", "deepfm/deepfm.h5"):
        with pytest.raises(ModelError, match="is a Lambda"):
            extract(folder / name)


@pytest.mark.slow
def test_a_file_that_keras_cannot_load_is_refused_with_its_reason(tmp_path):
    """Keras ends with the reason, after all of the layer's configuration; who wrote the file is
    said, too."""
    h5py, keras = pytest.importorskip("h5py"), pytest.importorskip("keras")
    path = tmp_path / "depthwise.h5"
    keras.Sequential([keras.Input([8, 8, 3]), keras.layers.DepthwiseConv2D(3)]).save(path)
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        layer = next(x for x in config["config"]["layers"] if x["class_name"] == "DepthwiseConv2D")
        layer["config"]["groups"] = 1  # as Keras 2 writes it
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = "2.11.0"
    with pytest.raises(ModelError, match=r"which Keras 2\.11\.0 wrote: .*\{'groups': 1\}"):
        extract(path)
