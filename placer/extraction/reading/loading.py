"""The way from a model to a flat program."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cost_models.byte_sizes import format_count
from cost_models.op_info import Shape
from placer.errors import SHOWN, ModelError, UsageError
from placer.extraction.division.dividing import divided
from placer.extraction.division.division import Division
from placer.extraction.extraction import ProgramChoice
from placer.extraction.files.sources import read_source
from placer.extraction.flattening.inlining import InlinedGraph, inline_calls
from placer.extraction.graph_defs.fingerprint import with_fingerprint
from placer.extraction.graph_defs.loop_reads import with_reads_before_loops
from placer.extraction.graph_defs.node_checks import check_nodes
from placer.extraction.graph_defs.op_definitions import DEVICES_ATTRIBUTE, OpDefinitions, attribute
from placer.extraction.graph_defs.program import FlatProgram, ProgramInput, RawProgram
from placer.extraction.graph_defs.protobufs import (
    PRODUCER_WITH_SCALAR_PLACEHOLDERS,
    NodeDef,
    copied,
    dtype_name,
    dtype_number,
    fill_shape,
    shape_of,
)
from placer.extraction.graph_defs.state import find_variables
from placer.extraction.input_formats import FILE_FORMATS, read_live
from placer.extraction.reading.composite_inputs import label_by_graph
from placer.extraction.reading.sinks import left_over_sinks, output_count
from placer.graph.op_types import CALLS, PLACEHOLDERS
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import op_of, split_tensor


def load_program(
    source: Any,
    *,
    tag_set: str | None = None,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    division: Division | None = None,
    fingerprinted: bool = True,
) -> FlatProgram:
    """The flat program of a model: calls inlined, only what the outputs need, weights unread.

    ``source`` is the path of a SavedModel folder or a GraphDef file, a GraphDef, a
    ConcreteFunction, a ``tf.function`` with one trace, a Keras model, a ``tf.Graph``, or a flat
    program that was loaded before.
    ``tag_set`` and ``signature`` choose in a SavedModel (``serve`` and ``serving_default`` if not
    given); ``outputs`` are keys of the signature, ops or tensors.  Without them a MetaGraphDef
    runs what its collections ``train_op`` and ``losses`` hold, if it has a ``train_op``; any other
    graph its sinks.  With ``division`` its batch is divided.  It is ``fingerprinted`` unless
    :func:`~placer.extraction.analysis.analyse_program` shall do that meanwhile.  Raises
    :class:`ModelError` or :class:`UsageError` saying what exists.
    """
    if isinstance(source, FlatProgram):
        return divided(source, division)
    choice = ProgramChoice(tag_set=tag_set, signature=signature, outputs=outputs)
    raw = read_program(source, choice)
    return divided(flatten(raw, fingerprinted=fingerprinted), division)


def read_program(source: Any, choice: ProgramChoice, *, as_written: bool = False) -> RawProgram:
    """The program as it was found; see :func:`load_program`.

    Unless a file is wanted ``as_written``, what a plan rewrote in it is what it was before.
    """
    if not isinstance(source, str | os.PathLike):
        live: RawProgram = read_live(source, choice["outputs"])
        return live
    path = Path(source)
    message = read_source(path, as_written=as_written)
    reader = next(f for f in FILE_FORMATS if f.name.endswith(f":{message.DESCRIPTOR.name}"))
    raw: RawProgram = reader.read(message, path, choice)
    return raw


def flatten(raw: RawProgram, *, fingerprinted: bool = True) -> FlatProgram:
    """The flat program of what was found: inlined, pruned, ordered, ``fingerprinted`` unless that
    is done later.  Loops that ask for devices of their own read variables before
    they start.

    Raises :class:`ModelError` if no op is left.
    """
    inlined, producers = _inlined(raw)
    library = raw.graph_def.library.function
    captures = {name: raw.captures[name] for name in inlined.origins if name in raw.captures}
    outputs = [  # without the inputs, which come behind them
        (key, tensor) for (key, _), tensor in zip(raw.outputs, inlined.outputs, strict=False)
    ]
    tensors = [tensor for _, tensor in outputs]
    left_over = left_over_sinks(tensors, inlined.targets, producers) if raw.checks_all_ops else {}
    found = FlatProgram(
        graph_def=inlined.graph_def,
        origins=inlined.origins,
        call_path=inlined.call_path,
        inputs=label_by_graph(
            raw.inputs or tuple(_placeholders(inlined.graph_def, captures)), inlined.graph_def.node
        ),
        outputs=tuple((key, tensor) for key, tensor in outputs if tensor not in left_over),
        targets=(*inlined.targets, *dict.fromkeys(map(op_of, left_over))),
        left_over=left_over,
        variables=find_variables(inlined.graph_def, raw, captures),
        captures=captures,
        captured_constants=tuple(
            node.name
            for node in inlined.graph_def.node
            if raw.captures_constants and node.op == "Const" and not inlined.call_path[node.name]
        ),
        chosen_outputs=raw.chosen_outputs,
        source_format=raw.source_format,
        path=raw.path,
        signature=raw.signature,
        tags=raw.tags,
        contents=inlined.contents,
        stored_shapes=inlined.stored_shapes,
        stripped_ops=raw.stripped_ops,
        warnings=(*raw.warnings, *_warnings(inlined)),
        find_stored=raw.find_stored,
        find_unwritten=raw.find_unwritten,
        ops_in_file=len(raw.graph_def.node) + sum(len(f.node_def) for f in library),
        functions_in_file=len(library),
    )
    found = with_reads_before_loops(found, lambda loop: DEVICES_ATTRIBUTE in loop.attr)
    return with_fingerprint(found) if fingerprinted and not found.fingerprint else found


def _inlined(raw: RawProgram) -> tuple[InlinedGraph, dict[str, str]]:
    """The graph with its calls inlined, every op as its definition says, and the types of the ops
    that give outputs."""
    definitions = raw.definitions
    inlined = inline_calls(
        cut_at_inputs(raw.graph_def, raw.inputs, definitions),
        outputs=[tensor for _, tensor in raw.outputs] + [item.tensor for item in raw.inputs],
        targets=raw.targets,
        definitions=definitions,
        lowers_main=raw.source_format in ("function", "keras"),
    )
    check_nodes(inlined.graph_def.node, definitions, inlined.contents)
    if raw.checks_all_ops:
        check_nodes(_left_behind(raw, inlined), definitions)
    if not inlined.graph_def.node:
        if not raw.graph_def.node:
            raise ModelError("the graph has no ops: there is nothing to place")
        raise ModelError(
            f"nothing is left of the {len(raw.graph_def.node):,} ops of the graph once the "
            f"functions they call are inlined, which are empty: there is nothing to place"
        )
    return inlined, _check_outputs(inlined, raw, definitions)


def _left_behind(raw: RawProgram, inlined: InlinedGraph) -> Iterator[NodeDef]:
    """The nodes of the main graph that are not in the flat one, calls included."""
    called = CALLS | {function.signature.name for function in raw.graph_def.library.function}
    for node in raw.graph_def.node:
        name = node.name
        if inlined.origins.get(name) != ("", name) or node.op in called:
            yield node


def _check_outputs(
    inlined: InlinedGraph, raw: RawProgram, definitions: OpDefinitions
) -> dict[str, str]:
    """The types of the ops that give outputs; raises :class:`UsageError` for one that is none."""
    producers = set(map(op_of, inlined.outputs))
    named = inlined.contents.named(inlined.graph_def.node)
    nodes = {name: node for name, node in named if name in producers}
    for (key, _), tensor in zip(raw.outputs, inlined.outputs, strict=False):
        name, number = split_tensor(tensor)
        count = output_count(nodes[name], definitions)
        if number >= count and definitions.find(nodes[name].op) is not None:
            known = ", ".join(f"{name}:{each}" for each in range(min(count, SHOWN))) or "none"
            raise UsageError(f"there is no output {key!r}; the outputs of {name!r} are {known}")
    return {name: node.op for name, node in nodes.items()}


def cut_at_inputs(
    graph_def: Any, inputs: Sequence[ProgramInput], definitions: OpDefinitions
) -> Any:
    """``graph_def`` with a placeholder for every fed op that is none.

    A fed tensor hides the op that computes it, and all that only this op needs, as where a
    signature of TensorFlow 1 feeds the parsed features instead of the serialised examples.
    """
    fed = {item.tensor.removesuffix(":0"): item for item in inputs}
    cut = {
        node.name: fed[node.name]
        for node in graph_def.node
        if node.name in fed and node.op not in PLACEHOLDERS and output_count(node, definitions) == 1
    }
    if not cut:
        return graph_def
    copy = copied(graph_def)
    for node in copy.node:
        if node.name in cut:
            item = cut[node.name]
            node.CopyFrom(type(node)(name=node.name, op="Placeholder", device=node.device))
            node.attr["dtype"].type = dtype_number(item.dtype)
            fill_shape(node.attr["shape"].shape, item.shape)
    return copy


def _placeholders(graph_def: Any, captures: Any) -> list[ProgramInput]:
    return [
        ProgramInput(
            key=node.name,
            tensor=f"{node.name}:0",
            dtype=dtype_name(attribute(node.attr, "dtype").type),
            shape=_placeholder_shape(node, graph_def.versions.producer),
        )
        for node in graph_def.node
        if node.op in PLACEHOLDERS and node.name not in captures
    ]


def _placeholder_shape(node: Any, producer: int) -> Shape:
    """The declared shape; files of old producers write an unknown one as they write a scalar."""
    if "shape" not in node.attr:
        return None
    shape = shape_of(node.attr["shape"].shape)
    is_open = node.op == "Placeholder" and producer < PRODUCER_WITH_SCALAR_PLACEHOLDERS
    return None if shape == () and is_open else shape


def _warnings(inlined: InlinedGraph) -> list[Warning_]:
    if not inlined.compiled_calls:
        return []
    message = (
        f"XLA (jit_compile=True) compiles {format_count(len(inlined.compiled_calls), 'call')}, and "
        "ignores the placement of single ops there"
    )
    return [("jit_compile", message, inlined.compiled_calls)]
