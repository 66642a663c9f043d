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

from fuzzing import mutations, seeds

REPORT = frozenset({0, 3})
PLACE = frozenset({0, 3, 4, 5, 6})
"""``place`` may also find shapes unknown, a problem infeasible, or no solution in time."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line on a harmed file, and the exit codes it may end with.

    ``arguments`` are complete but for the result file, which is named ``result`` in the folder.
    """

    arguments: list[str]
    allowed: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Format:
    """``write`` puts a mutation into a folder and gives the path of the model in it."""

    name: str
    write: Callable[[Path, Random], Path]

    def case(self, seed: int, index: int, folder: Path) -> Case:
        """The case number ``index`` of ``seed``, its file written into the empty ``folder``."""
        random = Random(f"{self.name}:{seed}:{index}")
        if self.name == "plan":
            return _plan_case(folder, random)
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


def _harmed_graph(content: bytes, random: Random) -> Any:
    from tensorflow.core.framework import graph_pb2

    return _harm(graph_pb2.GraphDef.FromString(content), lambda message: message, random)


def _harmed_saved_model(content: bytes, random: Random) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel.FromString(content)
    return _harm(message, lambda m: m.meta_graphs[0].graph_def, random)


def _harmed_meta_graph(content: bytes, random: Random) -> Any:
    from tensorflow.core.protobuf import meta_graph_pb2

    message = meta_graph_pb2.MetaGraphDef.FromString(content)
    return _harm(message, lambda m: m.graph_def, random)


def _harm(message: Any, graph_of: Callable[[Any], Any], random: Random) -> Any:
    if random.random() < 0.7:
        mutations.mutate_graph(graph_of(message), random)
    else:
        mutations.mutate_message(message, random)
    return message


def _binary(harm: Callable[[bytes, Random], Any], content: bytes, random: Random) -> bytes:
    """A third of the mutations is of the bytes, the others of what they say."""
    if random.random() < 0.34:
        return mutations.mutate_bytes(content, random)
    return bytes(harm(content, random).SerializeToString())


def _text(harm: Callable[[bytes, Random], Any], content: bytes, random: Random) -> bytes:
    from google.protobuf import text_format

    if random.random() < 0.5:
        return text_format.MessageToString(harm(content, random)).encode(errors="replace")
    whole = harm(content, Random(0))  # read by its own type; the harm is undone below
    whole.ParseFromString(content)
    return mutations.mutate_text(text_format.MessageToString(whole).encode(), random)


def _file(
    name: str,
    seeds_of: Callable[[], Sequence[bytes]],
    make: Callable[[Callable[[bytes, Random], Any], bytes, Random], bytes],
    harm: Callable[[bytes, Random], Any],
) -> Callable[[Path, Random], Path]:
    def write(folder: Path, random: Random) -> Path:
        path = folder / name
        path.write_bytes(make(harm, random.choice(seeds_of()), random))
        return path

    return write


def _saved_model(
    name: str, make: Callable[[Callable[[bytes, Random], Any], bytes, Random], bytes]
) -> Callable[[Path, Random], Path]:
    """A SavedModel folder; in one of eight cases the index is harmed instead of the graph."""

    def write(folder: Path, random: Random) -> Path:
        content, index = random.choice(saved_model_seeds())
        path = folder / "model"
        (path / "variables").mkdir(parents=True)
        if random.random() < 0.125 and index:
            index = mutations.mutate_bytes(index, random)
            make = _unharmed[name]
        else:
            make = made
        (path / name).write_bytes(make(_harmed_saved_model, content, random))
        if index:
            (path / "variables" / "variables.index").write_bytes(index)
        return path

    made = make
    return write


def _plain(_: Any, content: bytes, __: Random) -> bytes:
    return content


def _plain_text(_: Any, content: bytes, __: Random) -> bytes:
    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel.FromString(content)
    return text_format.MessageToString(message).encode()


_unharmed = {"saved_model.pb": _plain, "saved_model.pbtxt": _plain_text}


# --- plans


@cache
def _plan_seed() -> tuple[bytes, bytes]:
    """A model and a plan for it."""
    raise NotImplementedError


def _plan_case(folder: Path, random: Random) -> Case:
    raise NotImplementedError


FORMATS = {
    item.name: item
    for item in (
        Format(name="saved_model", write=_saved_model("saved_model.pb", _binary)),
        Format(name="saved_model_text", write=_saved_model("saved_model.pbtxt", _text)),
        Format(name="graph", write=_file("graph.pb", graph_seeds, _binary, _harmed_graph)),
        Format(name="graph_text", write=_file("graph.pbtxt", graph_seeds, _text, _harmed_graph)),
        Format(
            name="meta_graph", write=_file("m.meta", meta_graph_seeds, _binary, _harmed_meta_graph)
        ),
        Format(
            name="meta_graph_text",
            write=_file("m.meta", meta_graph_seeds, _text, _harmed_meta_graph),
        ),
    )
}
