"""The formats that are harmed: how a mutation is made, and what is run on it.

A case is named by format, seed and index.  With ``PLACER_TEST_DATA`` the small files there are
harmed too, so the same index names another mutation than without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import graph_mutations, keras_formats, mutations, seeds
from fuzzing.cases import ROOT

REPORT = frozenset({0, 3})
PLACE = frozenset({0, 2, 3, 4, 5, 6})
"""``place`` may also find a device string that it cannot follow (and names ``--clear-devices``),
shapes unknown, a problem infeasible, or no solution in time."""

PROFILE = frozenset({0, 2, 3})
"""A harmed trace may have become one of another program."""

APPLY = frozenset({0, 2, 3, 5, 6})
"""A harmed plan is a wrong request, if not a good plan, or one that says it has no placement."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line on a harmed file, and the exit codes it may end with."""

    arguments: list[str]
    allowed: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Format:
    """``write`` puts a mutation into a folder and gives the path of the model in it.

    It is ``None`` for plans and traces (``harms`` another file), where the model is unharmed.
    """

    name: str
    write: Callable[[Path, Random], Path] | None
    harms: Callable[[Path, int, Random], Case] | None = None

    def case(self, seed: int, index: int, folder: Path) -> Case:
        """The case number ``index`` of ``seed``, its file written into the empty ``folder``."""
        random = Random(f"{self.name}:{seed}:{index}")
        if self.write is None:
            return (self.harms or _plan_case)(folder, index, random)
        model = self.write(folder, random)
        if index % 10 == 9:
            options = ["--devices", "2xA100-40GB", "--time-limit", "4", "-o", f"{folder}/result"]
            batch = ["--batch-size", "4"]
            return Case(arguments=["place", str(model), *options, *batch], allowed=PLACE)
        return Case(arguments=["report", str(model), "-o", f"{folder}/result"], allowed=REPORT)


def _test_data() -> Path | None:
    folder = os.environ.get("PLACER_TEST_DATA")
    return Path(folder) if folder else None


# --- seeds as messages


@cache
def graph_seeds() -> tuple[bytes, ...]:
    """GraphDefs, serialised: the small ones by hand, and the readable small files."""
    from google.protobuf import text_format
    from tensorflow.core.framework import graph_pb2

    graphs = [
        seeds.layers_graph(),
        seeds.functions_graph(),
        seeds.state_graph(),
        seeds.loop_graph(),
    ]
    for path in seeds.small_files(_test_data(), "tf-*/*.pbtxt", "openvino-pbtxt/*.pbtxt"):
        try:
            graphs.append(text_format.Parse(path.read_text(), graph_pb2.GraphDef()))
        except text_format.ParseError:
            continue  # a SavedModel, or malformed on purpose
    return tuple(graph.SerializeToString(deterministic=True) for graph in graphs)


@cache
def saved_model_seeds() -> tuple[tuple[bytes, bytes], ...]:
    """(SavedModel, variables.index) pairs."""
    found = [(seeds.saved_model().SerializeToString(deterministic=True), seeds.VARIABLES_INDEX)]
    for path in seeds.small_files(_test_data(), "saved_model.pb"):
        index = path.parent / "variables" / "variables.index"
        found.append((path.read_bytes(), index.read_bytes() if index.exists() else b""))
    return tuple(found)


@cache
def meta_graph_seeds() -> tuple[bytes, ...]:
    """MetaGraphDefs, serialised."""
    files = seeds.small_files(_test_data(), "*.meta")
    return (
        seeds.meta_graph().SerializeToString(deterministic=True),
        *(path.read_bytes() for path in files),
    )


# --- mutations


def _message(kind: str) -> Any:
    """An empty GraphDef, SavedModel or MetaGraphDef."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    types = graph_pb2.GraphDef, saved_model_pb2.SavedModel, meta_graph_pb2.MetaGraphDef
    return {item.DESCRIPTOR.name: item for item in types}[kind]()


def _harmed(kind: str, content: bytes, random: Random) -> Any:
    """The message in ``content``: its graph harmed, in one of three cases anything in it."""
    message = _message(kind)
    message.ParseFromString(content)
    graph_def = message
    if kind == "SavedModel":
        graph_def = message.meta_graphs[0].graph_def
    elif kind == "MetaGraphDef":
        graph_def = message.graph_def
    if random.random() < 0.67:
        graph_mutations.mutate_graph(graph_def, random)
    else:
        mutations.mutate_message(message, random)
    return message


def _binary(kind: str, content: bytes, random: Random) -> bytes:
    """A third of the mutations is of the bytes, the others of what they say."""
    if random.random() < 0.34:
        return mutations.mutate_bytes(content, random)
    return bytes(_harmed(kind, content, random).SerializeToString())


def _text(kind: str, content: bytes, random: Random) -> bytes:
    """Half of the mutations is of the text, half of what it says."""
    from google.protobuf.message import DecodeError

    if random.random() < 0.5:
        return mutations.mutate_text(_as_text(kind, content), random)
    try:
        return _as_text(kind, _harmed(kind, content, random).SerializeToString())
    except DecodeError:  # an Any that cannot be printed any more
        return mutations.mutate_text(_as_text(kind, content), random)


def _as_text(kind: str, content: bytes) -> bytes:
    from google.protobuf import text_format

    message = _message(kind)
    message.ParseFromString(content)
    return text_format.MessageToString(message).encode(errors="replace")


Make = Callable[[str, bytes, Random], bytes]


def _file(
    name: str, kind: str, make: Make, seeds_of: Callable[[], Sequence[bytes]]
) -> Callable[[Path, Random], Path]:
    def write(folder: Path, random: Random) -> Path:
        path = folder / name
        path.write_bytes(make(kind, random.choice(seeds_of()), random))
        return path

    return write


def _saved_model(name: str, make: Make, plain: Make) -> Callable[[Path, Random], Path]:
    """A SavedModel folder; in one of eight cases the index is harmed instead of the graph."""

    def write(folder: Path, random: Random) -> Path:
        content, index = random.choice(saved_model_seeds())
        harms_index = bool(index) and random.random() < 0.125
        path = folder / "model"
        (path / "variables").mkdir(parents=True)
        (path / name).write_bytes((plain if harms_index else make)("SavedModel", content, random))
        if index:
            index = mutations.mutate_bytes(index, random) if harms_index else index
            (path / "variables" / "variables.index").write_bytes(index)
        return path

    return write


# --- plans


@cache
def plan_seed() -> tuple[bytes, bytes]:
    """A graph, and a plan for it that ``placer place`` made."""
    graph = graph_seeds()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb"
        path.write_bytes(graph)
        plan = Path(folder) / "plan.json"
        devices = ["--devices", "2xA100-40GB", "--batch-size", "4"]
        command = [sys.executable, "-m", "placer", "place", str(path), *devices, "-o", str(plan)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        return graph, plan.read_bytes()


def _plan_case(folder: Path, index: int, random: Random) -> Case:
    """``apply`` with a harmed plan, in one of twenty cases ``verify``, which runs the model."""
    graph, plan = plan_seed()
    model, harmed = folder / "graph.pb", folder / "plan.json"
    model.write_bytes(graph)
    harmed.write_bytes(mutations.mutate_json(plan, random))
    if index % 20 == 19:
        return Case(arguments=["verify", str(model), str(harmed)], allowed=APPLY | {8})
    arguments = ["apply", str(model), str(harmed), "-o", f"{folder}/result.pb"]
    return Case(arguments=arguments, allowed=APPLY)


# --- traces


def _trace_case(folder: Path, index: int, random: Random) -> Case:
    """``profile --trace`` with a harmed trace of the drawn layers' ops."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    from traces_by_hand import gpu_steps

    model, harmed = folder / "graph.pb", folder / "harmed.xplane.pb"
    model.write_bytes(_dense_graph())
    trace = gpu_steps()
    if index % 3 == 0:
        harmed.write_bytes(mutations.mutate_bytes(trace, random))
    else:
        space = xplane_pb2.XSpace.FromString(trace)
        mutations.mutate_message(space, random)
        harmed.write_bytes(space.SerializeToString())
    arguments = ["profile", str(model), "--trace", str(harmed), "-o", f"{folder}/result"]
    return Case(arguments=arguments, allowed=PROFILE)


def _dense_graph() -> bytes:
    """The ops of the drawn trace."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (4, 4))
        with tf.name_scope("dense"):
            tf.nn.relu(tf.matmul(x, x, name="MatMul"), name="Relu")
        tf.shape(x, name="Shape")
    return bytes(graph.as_graph_def().SerializeToString())


_SAVED_MODELS = {
    "saved_model": _saved_model("saved_model.pb", _binary, lambda _, content, __: content),
    "saved_model_text": _saved_model(
        "saved_model.pbtxt", _text, lambda kind, content, _: _as_text(kind, content)
    ),
}
_FILES = {
    "graph": _file("graph.pb", "GraphDef", _binary, graph_seeds),
    "graph_text": _file("graph.pbtxt", "GraphDef", _text, graph_seeds),
    "meta_graph": _file("export.meta", "MetaGraphDef", _binary, meta_graph_seeds),
    "meta_graph_text": _file("export.meta", "MetaGraphDef", _text, meta_graph_seeds),
}

_KERAS = {"keras": keras_formats.write_keras, "h5": keras_formats.write_hdf5}

FORMATS = {
    name: Format(name=name, write=write)
    for name, write in {**_SAVED_MODELS, **_FILES, **_KERAS, "plan": None}.items()
}
FORMATS["trace"] = Format(name="trace", write=None, harms=_trace_case)
