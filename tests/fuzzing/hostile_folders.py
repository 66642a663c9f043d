"""SavedModels and Keras files whose paths lead out, or whose loaders do harm, and good ones beside.

A :class:`Trap` says which commands refuse it (exit code 3) and with which words; every other one
goes through, and none touches what is outside.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

v1, raw = tf.compat.v1, tf.raw_ops

SIGNATURE = [tf.TensorSpec([None, 4], tf.float32, name="x")]
ALL = ("report", "place", "apply", "verify", "profile")
RUNS = ("verify", "profile")


@dataclass(frozen=True, kw_only=True)
class Trap:
    """``build(folder, outside)`` writes the model and gives its path; ``words`` are said by the
    commands that ``refuse`` it; ``options`` go to every command."""

    name: str
    build: Callable[[Path, Path], Path]
    words: str = ""
    refuse: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


TRAPS: list[Trap] = []


def trap(words: str = "", *refuse: str, options: tuple[str, ...] = ()) -> Any:
    """Makes a function that writes a model one of :data:`TRAPS`."""

    def add(build: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        TRAPS.append(
            Trap(name=build.__name__, build=build, words=words, refuse=refuse, options=options)
        )
        return build

    return add


class _Words(tf.Module):
    """A table out of a file, and weights."""

    def __init__(self, words: Path) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([4, 4]), name="w")
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(str(words), tf.string, 0, tf.int64, -1), -1
        )

    @tf.function(autograph=False, input_signature=SIGNATURE)
    def call(self, x):
        found = tf.cast(self.table.lookup(tf.constant(["a"])), tf.float32)
        return {"y": x @ self.w + found[:, None]}


def _words(folder: Path, outside: Path) -> Path:
    module = _Words(outside / "words.txt")
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"


def _words_of_before(folder: Path, outside: Path) -> Path:
    """The same as TensorFlow 1 writes it: initialiser, saver, asset collection."""
    path = str(folder / "model")
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        w = v1.get_variable("w", [4, 4], use_resource=True)
        name = tf.constant(str(outside / "words.txt"), name="asset")
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, name)
        table = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="t")
        filled = raw.InitializeTableFromTextFileV2(
            table_handle=table, filename=name, key_index=-2, value_index=-1, vocab_size=2
        )
        default = tf.constant(-1, tf.int64)
        found = raw.LookupTableFindV2(
            table_handle=table, keys=tf.constant(["a"]), default_value=default
        )
        y = tf.identity(x @ w + tf.cast(found, tf.float32)[:, None], name="y")
        raw.WriteFile(filename=str(outside / "written"), contents="x", name="write")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(path)
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.group(filled),
        )
        builder.save()
    return folder / "model"


@contextmanager
def _edited(path: Path) -> Iterator[Any]:
    """The MetaGraphDef of a SavedModel, written back at the end of the block."""
    file = path / "saved_model.pb"
    message = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    yield message.meta_graphs[0]
    file.write_bytes(message.SerializeToString())


@trap()
def good_vocabulary(folder, outside):
    return _words(folder, outside)


@trap()
def good_vocabulary_of_before(folder, outside):
    """Its graph has an op that writes a file, which nothing runs."""
    return _words_of_before(folder, outside)


@trap("leads out of the folder", "apply", "verify")
def asset_that_climbs(folder, outside):
    path = _words(folder, outside)
    with _edited(path) as meta_graph:
        meta_graph.asset_file_def[0].filename = "../../../outside/words.txt"
    return path


@trap("leads out of the folder", "apply", "verify")
def asset_elsewhere(folder, outside):
    path = _words_of_before(folder, outside)
    with _edited(path) as meta_graph:
        packed = meta_graph.collection_def["saved_model_assets"].any_list.value[0]
        asset = meta_graph_pb2.AssetFileDef.FromString(packed.value)
        asset.filename = str(outside / "words.txt")
        meta_graph.asset_file_def.append(asset)
    return path


@trap("leads out of the folder", "apply", "verify")
def asset_of_a_collection(folder, outside):
    path = _words_of_before(folder, outside)
    with _edited(path) as meta_graph:
        packed = meta_graph.collection_def["saved_model_assets"].any_list.value[0]
        asset = meta_graph_pb2.AssetFileDef.FromString(packed.value)
        asset.filename = "../../../outside/words.txt"
        packed.Pack(asset)
    return path


@trap("link that leads out", "apply", "verify", "profile")
def link_of_an_asset(folder, outside):
    path = _words(folder, outside)
    (path / "assets/words.txt").unlink()
    (path / "assets/words.txt").symlink_to(outside / "words.txt")
    return path


@trap("link that leads out", "apply", "verify", "profile")
def link_of_a_folder(folder, outside):
    path = _words(folder, outside)
    shutil.rmtree(path / "assets")
    (path / "assets").symlink_to(outside)
    return path


@trap("link that leads out", *ALL)
def link_of_weights(folder, outside):
    path = _words(folder, outside)
    weights = path / "variables/variables.data-00000-of-00001"
    weights.rename(outside / "data")
    weights.symlink_to("../../../outside/data")
    return path


@trap("link that leads out", *ALL)
def link_of_the_graph(folder, outside):
    path = _words(folder, outside)
    (path / "saved_model.pb").rename(outside / "graph")
    (path / "saved_model.pb").symlink_to(outside / "graph")
    return path


@trap("link that leads out", *ALL)
def link_of_the_index(folder, outside):
    path = _words(folder, outside)
    (path / "variables/variables.index").rename(outside / "index")
    (path / "variables/variables.index").symlink_to(outside / "index")
    return path


@trap("neither a file nor a folder", *ALL)
def pipe_for_the_index(folder, outside):
    """Whoever reads it waits for ever."""
    path = _words(folder, outside)
    (path / "variables/variables.index").unlink()
    os.mkfifo(path / "variables/variables.index")
    return path


@trap(options=("--follow-links",))
def good_cache_of_links(folder, outside):
    """As caches lay models out: every file is a link to a blob."""
    path = _words(folder, outside)
    blobs = folder / "blobs"
    blobs.mkdir()
    for number, file in enumerate(item for item in path.rglob("*") if item.is_file()):
        file.rename(blobs / str(number))
        file.symlink_to(blobs / str(number))
    return path


def _writing(outside: Path) -> Any:
    return raw.WriteFile(filename=str(outside / "written"), contents="x")


@trap("WriteFile", "verify")
def initialiser_that_writes(folder, outside):
    module = _Words(outside / "words.txt")
    initialise = module.table._initialize
    module.table._initialize = lambda: (_writing(outside), initialise())[1]
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"


@trap("WriteFile", "verify")
def creator_that_writes(folder, outside):
    return _writing_creator(folder, outside)


@trap("InitializeTableFromTextFileV2", "verify")
def constant_in_the_place_of_an_asset(folder, outside):
    path = _words(folder, outside)
    with _edited(path) as meta_graph:
        node = meta_graph.graph_def.node.add(name="planted", op="Const")
        node.attr["dtype"].type = tf.string.as_datatype_enum
        value = tf.make_tensor_proto(str(outside / "words.txt"))
        node.attr["value"].tensor.CopyFrom(value)
        for item in meta_graph.object_graph_def.nodes:
            if item.WhichOneof("kind") == "asset":
                item.constant.operation = "planted"
    return path


def _constant(meta_graph: Any, name: str, text: str) -> None:
    node = meta_graph.graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.string.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(text))


@trap("InitializeTableFromTextFileV2", "verify")
def asset_that_no_loader_feeds(folder, outside):
    """Loaders look at one of two lists of assets; the constant is in the other."""
    path = _words_of_before(folder, outside)
    with _edited(path) as meta_graph:
        meta_graph.asset_file_def.add(filename="words.txt").tensor_info.name = "other:0"
        _constant(meta_graph, "other", "")
        for node in meta_graph.graph_def.node:
            if node.name == "asset":
                value = tf.make_tensor_proto(str(outside / "words.txt"))
                node.attr["value"].tensor.CopyFrom(value)
    return path


@trap("InitializeTableFromTextFileV2", "verify")
def asset_loaded_as_a_constant(folder, outside):
    """What is loaded is the constant without a name."""
    path = _words(folder, outside)
    with _edited(path) as meta_graph:
        _constant(meta_graph, "", str(outside / "words.txt"))
        for item in meta_graph.object_graph_def.nodes:
            if item.WhichOneof("kind") == "asset":
                item.registered_name = "tf.TrackableConstant"
    return path


def _writing_creator(folder: Path, outside: Path) -> Path:
    module = _Words(outside / "words.txt")
    create = module.table._create_resource
    module.table._create_resource = lambda: (_writing(outside), create())[1]
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"


@trap("WriteFile", "verify")
def creator_among_dependencies(folder, outside):
    path = _writing_creator(folder, outside)
    with _edited(path) as meta_graph:
        for item in meta_graph.object_graph_def.nodes:
            for child in [c for c in item.children if c.local_name == "_create_resource"]:
                item.dependencies.add().CopyFrom(child)
                item.children.remove(child)
    return path


@trap("WriteFile", "verify")
def creator_that_is_an_object(folder, outside):
    """The object has a ``__call__``, which creates the table."""
    path = _writing_creator(folder, outside)
    with _edited(path) as meta_graph:
        nodes = meta_graph.object_graph_def.nodes
        for child in [c for n in nodes for c in n.children if c.local_name == "_create_resource"]:
            caller = nodes.add()
            caller.user_object.identifier = "_generic_user_object"
            caller.user_object.version.producer = 1
            caller.children.add(local_name="__call__", node_id=child.node_id)
            child.node_id = len(nodes) - 1
    return path


@trap("WriteFile", "verify")
def function_with_attributes(folder, outside):
    """The good function has the bad one where TensorFlow looks for its own."""
    path = _two(folder, outside)
    with _edited(path) as meta_graph:
        nodes = meta_graph.object_graph_def.nodes
        found = next(n for n in nodes if {c.local_name for c in n.children} >= {"other"})
        numbers = {child.local_name: child.node_id for child in found.children}
        holder = nodes.add()
        holder.user_object.identifier = "_generic_user_object"
        holder.user_object.version.producer = 1
        holder.children.add(local_name="call_preflattened", node_id=numbers["other"])
        good = nodes[numbers["serving_default"]]
        good.children.add(local_name="_inference_function", node_id=len(nodes) - 1)
    return path


class _Two(tf.Module):
    """A signature that computes, and one that writes a file."""

    def __init__(self, outside: Path) -> None:
        super().__init__()
        self.w, self.outside = tf.Variable(tf.ones([4, 4]), name="w"), outside

    @tf.function(autograph=False, input_signature=SIGNATURE)
    def good(self, x):
        return {"y": x @ self.w}

    @tf.function(autograph=False, input_signature=SIGNATURE)
    def bad(self, x):
        with tf.control_dependencies([_writing(self.outside)]):
            read = tf.io.read_file(str(self.outside / "secret"))
            size = tf.strings.to_number(read, tf.int32)
            return {"y": x @ self.w + tf.cast(tf.shape(tf.zeros([size]))[0], tf.float32)}


def _two(folder: Path, outside: Path) -> Path:
    module = _Two(outside)
    signatures = {"serving_default": module.good, "other": module.bad}
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    return folder / "model"


@trap()
def good_beside_a_bad_signature(folder, outside):
    return _two(folder, outside)


@trap()
def good_beside_a_debugged_signature(folder, outside):
    """The other signature has a size that TensorFlow computes, and debugs into a file."""
    module = _Two(outside)

    @tf.function(autograph=False, input_signature=SIGNATURE)
    def bad(x):
        size = raw.DebugIdentity(
            input=tf.constant(3), tensor_name="x:0", debug_urls=[f"file://{outside}/debug"]
        )
        return {"y": x @ module.w + tf.cast(tf.shape(tf.zeros([size]))[0], tf.float32)}

    signatures = {"serving_default": module.good, "other": bad}
    module.other = bad
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    return folder / "model"


@trap("WriteFile", "verify")
def other_function_than_the_signature_says(folder, outside):
    """The graph calls the good function, the object graph has the bad one."""
    path = _two(folder, outside)
    with _edited(path) as meta_graph:
        nodes = meta_graph.object_graph_def.nodes
        for node in nodes:
            named = {child.local_name: child for child in node.children}
            if named.keys() >= {"serving_default", "other"}:
                numbers = named["serving_default"].node_id, named["other"].node_id
                named["serving_default"].node_id, named["other"].node_id = numbers[::-1]
    return path


@trap("WriteFile", "verify")
def saver_that_writes(folder, outside):
    path = _words_of_before(folder, outside)
    with _edited(path) as meta_graph:
        meta_graph.saver_def.restore_op_name = "write"
    return path


@trap("WriteFile", "verify")
def main_op_that_writes(folder, outside):
    path = _words_of_before(folder, outside)
    with _edited(path) as meta_graph:
        for node in meta_graph.graph_def.node:
            if node.op == "InitializeTableFromTextFileV2":
                node.input.append("^write")
    return path


@trap("PrintV2", *RUNS)
def file_that_a_caller_names(folder, outside):
    """A function leaves the stream that it prints to open, its caller fills it in."""
    module = tf.Module()

    @tf.function
    def inner(x):
        tf.raw_ops.PrintV2(input="x", output_stream="stdout")
        return x

    @tf.function(autograph=False, input_signature=SIGNATURE)
    def call(x):
        return {"y": inner(x)}

    module.call = call
    path = folder / "model"
    tf.saved_model.save(module, str(path), signatures=call)
    with _edited(path) as meta_graph:
        library = meta_graph.graph_def.library.function
        for function in library:
            for node in function.node_def:
                if node.op == "PrintV2":
                    node.attr["output_stream"].placeholder = "where"
                    function.signature.attr.add(name="where", type="string")
                    name = function.signature.name
        for node in [*meta_graph.graph_def.node, *(n for f in library for n in f.node_def)]:
            if node.attr["f"].func.name == name:
                value = node.attr["f"].func.attr["where"]
                value.s = f"file://{outside / 'printed'}".encode()
    return path


@trap("EagerPyFunc", *RUNS)
def second_output_of_a_fed_op(folder, outside):
    """What is fed is one output of the op that does harm; it runs for the other one."""
    path = folder / "model"
    with tf.Graph().as_default(), v1.Session() as session:
        both = tf.py_function(lambda: (1.0, 2.0), [], [tf.float32, tf.float32])
        for tensor in both:
            tensor.set_shape([2, 4])
        y = tf.identity(both[0] + both[1], name="y")
        v1.saved_model.simple_save(session, str(path), {"x": both[0]}, {"y": y})
    return path


def _keras(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A Keras file whose configuration is changed."""
    import keras

    good, path = folder / "good.keras", folder / "model.keras"
    keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]).save(good)
    with zipfile.ZipFile(good) as archive, zipfile.ZipFile(path, "w") as out:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                config = json.loads(content)
                change(config)
                content = json.dumps(config).encode()
            out.writestr(name, content)
    good.unlink()
    return path


def _layer(**entries: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][1] = {"registered_name": None, **entries}

    return change


@trap()
def good_keras(folder, outside):
    return _keras(folder, lambda config: None)


@trap("comes from module 'os'", *ALL)
def keras_module(folder, outside):
    touch = f"touch {outside / 'module'}"
    return _keras(folder, _layer(module="os", class_name="system", config=touch))


@trap("comes from module 'keras.utils'", *ALL)
def keras_download(folder, outside):
    """A function that is none of a model."""
    activation = {"module": "keras.utils", "class_name": "function", "config": "get_file"}
    activation["registered_name"] = "get_file"
    dense = {"units": 2, "activation": activation}
    return _keras(folder, _layer(module="keras.layers", class_name="Dense", config=dense))


@trap("reads the vocabulary", *ALL)
def keras_vocabulary(folder, outside):
    lookup = {"vocabulary": str(outside / "words.txt")}
    return _keras(folder, _layer(module="keras.layers", class_name="StringLookup", config=lookup))


@trap("is a Lambda", *ALL)
def keras_lambda(folder, outside):
    import keras

    path = folder / "model.keras"
    secret = str(outside / "lambda")
    layers = [keras.Input([4]), keras.layers.Lambda(lambda x: (Path(secret).touch(), x)[1])]
    keras.Sequential(layers).save(path)
    return path


@trap("another file", *ALL)
def keras_weights_elsewhere(folder, outside):
    """The weights are the bytes of another file."""
    import h5py
    import keras

    path = folder / "model.h5"
    keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]).save(path)
    with h5py.File(path, "r+") as file:
        group = next(name for name in _datasets(file) if file[name].shape == (2,))
        del file[group]
        storage = [(str(outside / "words.txt"), 0, 8)]
        file.create_dataset(group, (2,), "float32", external=storage)
    return path


@trap("another file", *ALL)
def keras_link_of_weights(folder, outside):
    """A link within an HDF5 file leads to another one."""
    import h5py

    path = _keras(folder, lambda config: None)
    with zipfile.ZipFile(path, "a") as archive:
        weights = folder / "weights.h5"
        with h5py.File(weights, "w") as file:
            file["layers"] = h5py.ExternalLink(str(outside / "secret"), "/layers")
        archive.write(weights, "model.weights.h5")
        weights.unlink()
    return path


def _datasets(file: Any) -> list[str]:
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    return found
