"""Graphs without a SavedModel around them: GraphDef, MetaGraphDef, ``tf.Graph``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.errors import UsageError
from placer.extraction.graph_defs.call_scopes import name_nodes
from placer.extraction.graph_defs.node_checks import check_references
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.program import RawProgram
from placer.extraction.graph_defs.tensorflow_core import import_core
from placer.extraction.reading.signatures import choose_outputs, read_meta_graph
from placer.extraction.reading.sinks import Dependencies, default_ends, training_step


def read_graph_file(
    graph_def: Any,
    path: Path,
    *,
    tag_set: str | None,
    signature: str | None,
    outputs: Sequence[str] | None,
) -> RawProgram:
    """The program of a GraphDef out of a file: what ``outputs`` need, by default all sinks."""
    _require_no_choice("GraphDef", path, tag_set, signature)
    return replace(read_graph_def(graph_def, outputs), path=str(path))


def read_meta_graph_file(
    meta_graph: Any,
    path: Path,
    *,
    tag_set: str | None,
    signature: str | None,
    outputs: Sequence[str] | None,
) -> RawProgram:
    """The program of a MetaGraphDef: of its ``signature``, if one is named, else what ``outputs``
    need, else a training step, else all sinks."""
    import_core()
    if signature:
        raw = read_meta_graph(meta_graph, path, signature=signature, outputs=outputs)
        return replace(raw, source_format="graph_def", captures_constants=False)
    _require_no_choice("MetaGraphDef", path, tag_set, signature)
    wanted = outputs or training_step(meta_graph)
    return replace(read_graph_def(meta_graph.graph_def, wanted), path=str(path))


def _require_no_choice(kind: str, path: Path, tag_set: str | None, signature: str | None) -> None:
    """Raises :class:`UsageError` for options that choose in a SavedModel."""
    if tag_set or signature:
        flag, value = ("--signature", signature) if signature else ("--tag-set", tag_set)
        raise UsageError(
            f"{flag} {value} chooses in a SavedModel, and {str(path)!r} is a {kind}: name "
            "what to run with --outputs"
        )


def is_graph_def(source: Any) -> bool:
    """Whether ``source`` is a GraphDef."""
    from tensorflow.core.framework import graph_pb2

    return isinstance(source, graph_pb2.GraphDef)


def read_graph_def(
    graph_def: Any, outputs: Sequence[str] | None, source_format: str = "graph_def"
) -> RawProgram:
    """The program of a GraphDef: what ``outputs`` need, by default all sinks."""
    ops = name_nodes(graph_def.node)
    if outputs:
        import_core()
        wanted, targets = choose_outputs({}, outputs, ops)
    else:
        check_references(ops)
        graph = Dependencies(ops)
        import_core()
        wanted, targets = default_ends(graph, OpDefinitions(functions=graph_def.library.function))
    return RawProgram(
        graph_def=graph_def,
        inputs=(),
        outputs=wanted,
        targets=targets,
        source_format=source_format,
        chosen_outputs=tuple(outputs or ()),
        whole=not outputs,
    )


def is_graph(source: Any) -> bool:
    """Whether ``source`` is a ``tf.Graph``, and not the graph of a function."""
    from tensorflow.python.framework import func_graph, ops

    return isinstance(source, ops.Graph) and not isinstance(source, func_graph.FuncGraph)


def read_graph(graph: Any, outputs: Sequence[str] | None) -> RawProgram:
    """The program of a ``tf.Graph``: what ``outputs`` need, by default all sinks."""
    return read_graph_def(graph.as_graph_def(), outputs, source_format="graph")
