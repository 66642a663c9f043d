"""The formats that are harmed: how a mutation is made, and what is run on it.

A case is named by format, seed and index.  With ``PLACER_TEST_DATA`` the small files there are
harmed too, so the same index names another mutation than without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import graph_mutations, keras_formats, mutations, seeds
from fuzzing.cases import Case
from fuzzing.documents import DEVICES, DOCUMENTS

REPORT = frozenset({0, 3})
PLACE = frozenset({0, 2, 3, 4, 5, 6})
"""``place`` may also find a device string that it cannot follow (and names ``--clear-devices``),
shapes unknown, a problem infeasible, or no solution in time."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """``make`` puts a mutation into a folder and gives what is run on it."""

    name: str
    make: Callable[[Path, int, Random], Case]

    def case(self, seed: int, index: int, folder: Path) -> Case:
        """The case number ``index`` of ``seed``, its files written into the empty ``folder``."""
        return self.make(folder, index, Random(f"{self.name}:{seed}:{index}"))


def _model_case(write: Callable[[Path, Random], Path]) -> Callable[[Path, int, Random], Case]:
    """``report`` on a harmed model, one time in ten ``place``."""

    def make(folder: Path, index: int, random: Random) -> Case:
        model = write(folder, random)
        if index % 10 == 9:
            return Case.of(["place", str(model), *DEVICES, "-o", f"{folder}/result"], PLACE)
        return Case.of(["report", str(model), "-o", f"{folder}/result"], REPORT)

    return make


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
    name: Format(name=name, make=make)
    for name, make in {
        **{
            name: _model_case(write)
            for name, write in {**_SAVED_MODELS, **_FILES, **_KERAS}.items()
        },
        **DOCUMENTS,
    }.items()
}
