"""Graphs without a SavedModel around them: GraphDef, MetaGraphDef, ``tf.Graph``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.errors import UsageError
from placer.extraction.extraction import ProgramChoice
from placer.extraction.graph_defs.call_scopes import name_nodes
from placer.extraction.graph_defs.node_checks import check_references
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.program import RawProgram
from placer.extraction.graph_defs.protobufs import copied, live_graph_def
from placer.extraction.graph_defs.rewritten_nodes import is_rewritten, remove_rewriting
from placer.extraction.graph_defs.tensorflow_core import import_core
from placer.extraction.reading.signatures import choose_outputs, read_meta_graph
from placer.extraction.reading.sinks import (
    Dependencies,
    default_ends,
    references_of,
    saving_functions,
    training_step,
)


def has_ops(graph_def: Any) -> bool:
    """Whether a message that could be read as a GraphDef is one."""
    return len(graph_def.node) > 0 and all(node.name and node.op for node in graph_def.node)


def read_graph_file(graph_def: Any, path: Path, choice: ProgramChoice) -> RawProgram:
    """The program of a GraphDef in a file."""
    _require_outputs_only("GraphDef", path, choice)
    return replace(read_graph_def(graph_def, choice["outputs"]), path=str(path))


def has_graph_with_ops(meta_graph: Any) -> bool:
    """Whether a message that could be read as a MetaGraphDef is one."""
    return has_ops(meta_graph.graph_def)


def read_meta_graph_file(meta_graph: Any, path: Path, choice: ProgramChoice) -> RawProgram:
    """The program of a MetaGraphDef in a file: of the signature that is named, else what the
    outputs need, else a training step, else all sinks."""
    import_core()
    if choice["signature"]:
        raw = read_meta_graph(meta_graph, path, choice)
        return replace(raw, source_format="graph_def", captures_constants=False)
    _require_outputs_only("MetaGraphDef", path, choice)
    wanted = choice["outputs"] or training_step(meta_graph)
    return replace(read_graph_def(meta_graph.graph_def, wanted), path=str(path))


def _require_outputs_only(kind: str, path: Path, choice: ProgramChoice) -> None:
    """Raises :class:`UsageError` for options that choose in a SavedModel."""
    for what, value in (("signature", choice["signature"]), ("tag set", choice["tag_set"])):
        if value:
            raise UsageError(
                f"{str(path)!r} is a {kind}, which has no {what} {value!r}: name what to run with "
                "--outputs, or give a SavedModel"
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
        references = references_of(ops)
        check_references(ops, references)
        graph = Dependencies(ops, saving_functions(graph_def.library), references)
        import_core()
        wanted, targets = default_ends(graph, OpDefinitions(functions=graph_def.library.function))
    return RawProgram(
        graph_def=graph_def,
        inputs=(),
        outputs=wanted,
        targets=targets,
        source_format=source_format,
        chosen_outputs=tuple(outputs or ()),
        checks_all_ops=not outputs,
    )


def is_graph(source: Any) -> bool:
    """Whether ``source`` is a ``tf.Graph``, and not the graph of a function."""
    from tensorflow.python.framework import func_graph, ops

    return isinstance(source, ops.Graph) and not isinstance(source, func_graph.FuncGraph)


def read_live_graph_def(
    graph_def: Any, outputs: Sequence[str] | None, source_format: str = "graph_def"
) -> RawProgram:
    """Reads a GraphDef as :func:`read_graph_def` does, as it was before a plan rewrote it."""
    if is_rewritten(graph_def):
        graph_def = copied(graph_def)
        remove_rewriting(graph_def)
    return read_graph_def(graph_def, outputs, source_format)


def read_graph(graph: Any, outputs: Sequence[str] | None) -> RawProgram:
    """The program of a ``tf.Graph``: what ``outputs`` need, by default all sinks."""
    graph_def = live_graph_def(graph, add_shapes=True)  # what set_shape says is nowhere else
    return read_live_graph_def(graph_def, outputs, source_format="graph")
