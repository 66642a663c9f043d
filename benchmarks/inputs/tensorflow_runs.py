"""Does a model run in this TensorFlow at all?  Plain TensorFlow, nothing of placer.

    python benchmarks/inputs/tensorflow_runs.py PATH [--outputs A,B] [--signature S] [--tag-set T]
        [--batch-size N] [--shape NAME:2x3 ...]

A SavedModel is loaded and its signature called, a Keras file loaded and called.  A graph is
imported, its variables are set (by its own initialisers where it lists them, else to random
values), and its outputs are fetched: those given, else its collections ``train_op`` and
``losses``, else every sink that can be and that is neither state nor a saver's or an
initialiser's.  Inputs are random.  Prints the number of outputs and ends with 0, or TensorFlow's
error and ends with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

v1 = tf.compat.v1
RUN_MILLISECONDS = 100_000
VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
SAVERS = ("SaveV2", "RestoreV2", "MergeV2Checkpoints", "SaveSlices", "RestoreSlice")
SETTERS = ("Assign", "AssignVariableOp", "VarIsInitializedOp", "IsVariableInitialized")
_random = numpy.random.default_rng(0)


class Inputs:
    """Random values of the shapes that were asked for."""

    def __init__(self, batch_size: int, shapes: dict[str, list[int]]) -> None:
        self.batch_size = batch_size
        self.shapes = shapes

    def value(self, name: str, dtype: Any, shape: Any) -> Any:
        sizes = self.shapes.get(name) or self._sizes(tf.TensorShape(shape))
        return random_value(dtype, sizes)

    def _sizes(self, shape: Any) -> list[int]:
        if shape.rank is None:
            return []
        unknown = [self.batch_size] + [8] * shape.rank
        return [unknown[i] if size is None else size for i, size in enumerate(shape)]


def random_value(dtype: Any, sizes: Iterable[int]) -> Any:
    """Floats in [0, 1), integers 0 or 1, strings ``"abc"``."""
    dtype = tf.as_dtype(dtype).base_dtype
    if dtype == tf.string:
        return numpy.full(tuple(sizes), b"abc", object)
    if dtype.is_floating or dtype.is_complex:
        return _random.random(tuple(sizes)).astype(dtype.as_numpy_dtype)
    return _random.integers(0, 2, tuple(sizes)).astype(dtype.as_numpy_dtype)


def session_here() -> Any:
    """A session that runs what asks for absent GPUs on the CPU."""
    return v1.Session(config=v1.ConfigProto(allow_soft_placement=True))


def run_saved_model(path: Path, tags: list[str], signature: str, inputs: Inputs) -> list[Any]:
    """The outputs of a signature, called or, where ``tf.saved_model.load`` cannot revive what the
    model was trained with (Keras 2 optimizers), fetched in a session."""
    from tensorflow.python.saved_model import loader_impl

    found = loader_impl.parse_saved_model(str(path))
    if any(len(meta_graph.object_graph_def.nodes) for meta_graph in found.meta_graphs):
        try:
            return call_signature(path, tags, signature, inputs)
        except AttributeError as error:
            print(f"tf.saved_model.load fails: {error}", file=sys.stderr)
    with tf.Graph().as_default(), session_here() as session:
        definition = v1.saved_model.load(session, tags, str(path)).signature_def[signature]
        feeds = {
            info.name: inputs.value(key, info.dtype, info.tensor_shape)
            for key, info in definition.inputs.items()
        }
        return list(session.run([info.name for info in definition.outputs.values()], feeds))


def call_signature(path: Path, tags: list[str], signature: str, inputs: Inputs) -> list[Any]:
    stored = (path / "variables" / "variables.index").exists()
    options = tf.saved_model.LoadOptions(experimental_skip_checkpoint=not stored)
    loaded = tf.saved_model.load(str(path), tags=tags, options=options)
    function = loaded.signatures[signature]
    for variable in () if stored else function.variables:
        variable.assign(random_value(variable.dtype, variable.shape))
    specs = function.structured_input_signature[1]
    values = {k: tf.constant(inputs.value(k, s.dtype, s.shape)) for k, s in specs.items()}
    return list(function(**values).values())


def run_keras_file(path: Path, inputs: Inputs) -> list[Any]:
    """What a Keras file computes, if Keras loads it in safe mode."""
    import keras

    model = keras.models.load_model(path, compile=False)
    values = [inputs.value(x.name, x.dtype, x.shape) for x in model.inputs]
    return list(keras.tree.flatten(model(values if len(values) > 1 else values[0])))


def run_graph(path: Path, outputs: list[str], inputs: Inputs) -> list[Any]:
    message = parse(path)
    with tf.Graph().as_default() as graph, session_here() as session:
        if isinstance(message, v1.MetaGraphDef):
            v1.train.import_meta_graph(message)
        else:
            tf.graph_util.import_graph_def(message, name="")
        ends = [graph.as_graph_element(name) for name in outputs] or list(default_ends(graph))
        print(f"ends: {', '.join(end.name for end in ends)}", file=sys.stderr)
        initialise(session, graph)
        feeds = {
            op.outputs[0]: inputs.value(op.name, op.outputs[0].dtype, op.outputs[0].shape)
            for op in graph.get_operations()
            if op.type in ("Placeholder", "PlaceholderV2") and is_needed(op, ends)
        }
        return run_ends(session, ends, feeds)


def run_ends(session: Any, ends: list[Any], feeds: dict[Any, Any]) -> list[Any]:
    """The values of the ends, fetched at once or, where that fails, one by one.

    Unread ends of loops and untaken branches cannot be fetched; the rest of a graph can.  Raises
    the last error if no end can be fetched.
    """
    options = v1.RunOptions(timeout_in_ms=RUN_MILLISECONDS)
    fetches = [list(e.outputs) or e if isinstance(e, tf.Operation) else e for e in ends]
    try:
        return list(session.run(fetches, feeds, options))
    except tf.errors.OpError as error:
        failures, values = [error], []
        for end, fetch in zip(ends, fetches, strict=True):
            try:
                values.append(session.run(fetch, feeds, options))
            except tf.errors.OpError as failure:
                failures.append(failure)
                print(f"{end.name} does not run: {failure}", file=sys.stderr)
        if not values:
            raise failures[-1] from error
        return values


def parse(path: Path) -> Any:
    """The GraphDef or MetaGraphDef in a file; its parser's complaint if it is neither."""
    content = path.read_bytes()
    for kind in (v1.GraphDef, v1.MetaGraphDef):
        message = kind()
        try:
            message.ParseFromString(content)
        except DecodeError:
            continue
        nodes = message.graph_def.node if kind is v1.MetaGraphDef else message.node
        if nodes and all(node.name and node.op for node in nodes):
            return message
    try:
        return text_format.Parse(content.decode(), v1.MetaGraphDef())
    except text_format.ParseError:
        return text_format.Parse(content.decode(), v1.GraphDef())


def default_ends(graph: Any) -> Iterator[Any]:
    """The training step that an optimizer left in the collections, else the sinks."""
    if steps := graph.get_collection("train_op"):
        return iter([*steps, *graph.get_collection("losses")])
    return sinks(graph)


def sinks(graph: Any) -> Iterator[Any]:
    """The ops that nothing reads and that are worth running."""
    ops = graph.get_operations()
    read = {tensor.op for op in ops for tensor in op.inputs}
    read |= {control for op in ops for control in op.control_inputs}
    for op in ops:
        if op in read or op.type in ("Const", "Placeholder", *VARIABLES, *SETTERS):
            continue
        types = {above.type for above in ancestors([op])}
        only_sets = not types - {"NoOp", "Const", *VARIABLES, *SETTERS}
        if graph.is_fetchable(op) and not types & set(SAVERS) and not only_sets:
            yield op


def ancestors(ends: Iterable[Any]) -> set[Any]:
    """The ops that ``ends`` need, themselves included."""
    found: set[Any] = set()
    stack = [end if isinstance(end, tf.Operation) else end.op for end in ends]
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            stack.extend([*(tensor.op for tensor in op.inputs), *op.control_inputs])
    return found


def is_needed(op: Any, ends: Iterable[Any]) -> bool:
    """Whether ``ends`` depend on a placeholder that takes plain values."""
    return op.outputs[0].dtype not in (tf.resource, tf.variant) and op in ancestors(ends)


def initialise(session: Any, graph: Any) -> None:
    """Sets every variable, and the tables."""
    if graph.get_collection("variables"):
        try:
            session.run(v1.global_variables_initializer())
            session.run(v1.local_variables_initializer())
            session.run(v1.tables_initializer())
            return
        except tf.errors.OpError as error:
            print(f"its initialisers do not run: {error}", file=sys.stderr)
    assigns, feeds = [], {}
    for op in [op for op in graph.get_operations() if op.type in VARIABLES]:
        shape = tf.TensorShape(op.get_attr("shape"))
        value = random_value(op.get_attr("dtype"), [size or 1 for size in shape])
        with graph.colocate_with(op, ignore_existing=True):
            fed = v1.placeholder(op.get_attr("dtype"), value.shape)
            if op.type == "VarHandleOp":
                assigns.append(tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=fed))
            else:
                assigns.append(tf.raw_ops.Assign(ref=op.outputs[0], value=fed).op)
        feeds[fed] = value
    session.run(assigns, feeds)


def main(argv: list[str] | None = None) -> int:
    """0 if the model runs, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--outputs", default="")
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--tag-set", default="serve")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--shape", action="append", default=[])
    arguments, _ = parser.parse_known_args(argv)
    named = (item.rpartition(":") for item in arguments.shape)
    shapes = {name: [int(size) for size in text.split("x") if size] for name, _, text in named}
    inputs = Inputs(arguments.batch_size, shapes)
    try:
        if arguments.path.is_dir():
            tags = arguments.tag_set.split(",")
            values = run_saved_model(arguments.path, tags, arguments.signature, inputs)
        elif arguments.path.suffix in (".h5", ".keras"):
            values = run_keras_file(arguments.path, inputs)
        else:
            outputs = [name for name in arguments.outputs.split(",") if name]
            values = run_graph(arguments.path, outputs, inputs)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines[:1] == ["Graph execution error:"]:
            lines = [line for line in lines if not line.startswith("Detected at")][1:] or lines
        print(f"{type(error).__name__}: {' '.join(lines)[:400]}")
        return 1
    print(f"{len(values)} outputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
