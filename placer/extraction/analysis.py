"""From a flat program to an extraction, in this process."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from cost_models.byte_sizes import format_count
from cost_models.op_info import TensorProperties
from cost_models.tensor_size import is_known
from placer.errors import ShapeError, some
from placer.extraction.building import GraphBuilder
from placer.extraction.extraction import UNBOUND_BATCH, Extraction
from placer.extraction.files.sources import file_hash, model_file
from placer.extraction.graph_defs.fingerprint import fingerprint_of
from placer.extraction.graph_defs.node_checks import check_dtypes, check_tensors
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.graph_defs.tensor_states import TensorState
from placer.extraction.graph_defs.tensor_types import UNSIZED, GraphTypes
from placer.extraction.graph_defs.v1_control_flow import find_contexts
from placer.extraction.shapes.binding import Binding, bind_inputs
from placer.extraction.shapes.shape_fallbacks import settle_reserve_spaces, stated_shapes
from placer.extraction.shapes.shape_inference import GraphShapes, ShapeAnalysis
from placer.graph.op_graph import OpGraph
from placer.graph.order import is_back_edge
from placer.graph.program_source import Bindings, ModelSource, Warning_
from placer.graph.stored_variables import NOTHING_STORED
from placer.graph.tensor_names import op_of


def analyse_program(
    program: FlatProgram,
    captures: Mapping[str, TensorState],
    *,
    infer: bool = True,
    reason: str = "",
    before_inference: Callable[[], None] = lambda: None,
    **bindings: Unpack[Bindings],
) -> Extraction:
    """The extraction of a flat program: inputs bound, shapes inferred, ops grouped.

    ``infer=False`` keeps to the shapes that the file states, for the ``reason`` given.
    ``before_inference`` is called when only shapes are left to infer; a program without a
    fingerprint gets one meanwhile.  Raises :class:`UsageError` and :class:`ShapeError` for bindings
    that do not fit.
    """
    from tensorflow.python.framework import versions

    # inputs as they are bound, ops as they are defined
    batch_size, shapes = bindings.get("batch_size"), bindings.get("shapes")
    ragged = bindings.get("ragged")
    binding = bind_inputs(program, captures, batch_size=batch_size, shapes=shapes, ragged=ragged)
    definitions = program.definitions
    unbound = [] if batch_size is None or binding.has_batch else _unbound_batch(program, batch_size)
    types = GraphTypes(program.graph_def.node, definitions, program.contents)
    check_dtypes(program.graph_def.node, types)
    check_tensors((tensor for _, tensor in program.outputs), types)
    # shapes, and the graph with them
    before_inference()
    with ThreadPoolExecutor(1) as meanwhile:  # importing a graph needs no Python
        fingerprint = meanwhile.submit(fingerprint_of, program) if not program.fingerprint else None
        found, problems = _find_shapes(program, binding, types, None if infer else reason)
    if fingerprint is not None:
        program = replace(program, fingerprint=fingerprint.result())
    found = replace(found, shapes=settle_reserve_spaces(types, found.shapes))
    builder = GraphBuilder(definitions)
    graph = builder.build(program, types, found)
    unknown, roots = _unknown(graph, builder)
    return Extraction(
        graph=graph,
        model=describe(program),
        bindings=_recorded(bindings, has_batch=not unbound),
        inputs=program.inputs,
        outputs=program.outputs,
        left_over=program.left_over,
        stored=program.find_stored(program) if program.find_stored else NOTHING_STORED,
        unknown=unknown,
        unknown_roots=roots,
        warnings=(
            *program.warnings,
            *unbound,
            *binding.warnings,
            *problems,
            *_unknown_ops(program, definitions),
        ),
        ops_in_file=program.ops_in_file,
        functions_in_file=program.functions_in_file,
        tensorflow_version=str(versions.VERSION),
    )


def _recorded(bindings: Bindings, *, has_batch: bool) -> Bindings:
    """The bindings as an extraction keeps them, without a batch size that binds nothing."""
    ragged = bindings.get("ragged") or {}
    return {
        "batch_size": bindings.get("batch_size") if has_batch else None,
        "shapes": {name: list(shape) for name, shape in (bindings.get("shapes") or {}).items()},
        "dims": dict(bindings.get("dims") or {}),
        **({"ragged": {name: list(sizes) for name, sizes in ragged.items()}} if ragged else {}),
    }


def _unknown(graph: OpGraph, builder: GraphBuilder) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tensors without a size, bodies' as ``body/tensor``, and the ops where sizes get lost."""
    written = (tensor for info in builder.infos.values() for tensor in info.outputs)
    if not any(map(_is_lost, written)):  # which needs no ops
        return (), ()
    lost = tuple(prefix + name for prefix, part in _parts(graph) for name in _lost(part))
    return lost, tuple(unknown_roots(graph))


def _unbound_batch(program: FlatProgram, batch_size: int) -> list[Warning_]:
    message = (
        f"--batch-size {batch_size} has no effect: the first dimensions of all inputs (and "
        "elements of datasets) are fixed in the model or set by --shape"
    )
    return [(UNBOUND_BATCH, message, tuple(item.key for item in program.inputs))]


def _find_shapes(
    program: FlatProgram, binding: Binding, types: GraphTypes, reason: str | None
) -> tuple[GraphShapes, list[Warning_]]:
    """Inferred shapes; those that the file states where there is a ``reason`` not to infer any, or
    where inference fails and the bound shapes are not to blame."""
    if reason is None:
        try:
            return _infer(program, binding, types)
        except ShapeError as error:
            if binding.bound and not _cannot_import(program, binding, types):
                raise
            reason = error.message
    shapes = stated_shapes(types, program.stored_shapes, binding.inputs)
    message = f"shapes could not be inferred, those stated in the file are used: {reason}"
    return GraphShapes(shapes=shapes, values={}, types=types), [("no_inference", message, ())]


def _infer(
    program: FlatProgram, binding: Binding, types: GraphTypes
) -> tuple[GraphShapes, list[Warning_]]:
    """The shapes that TensorFlow infers, with warnings of ops that it refuses and of sizes that
    depend on data.

    Raises :class:`ShapeError` if the bound shapes do not fit.
    """
    forced = {
        function: {name: Refinement(ensured=shapes) for name, shapes in ops.items()}
        for function, ops in binding.forced.items()
    }
    analysis = ShapeAnalysis(program.graph_def.library, types.definitions, forced, binding.lengths)
    found, _ = analysis.analyse(program.graph_def, binding.inputs, types, program.stored_shapes)
    if found.refused and binding.bound:
        _require_fitting_shapes(program, binding, found, types)
    warnings: list[Warning_] = []
    if found.refused:
        first, reason = next(iter(found.refused.items()))
        count = format_count(len(found.refused), "op")
        message = f"TensorFlow refuses {count}, such as {first!r}: {reason}"
        warnings.append(("refused_op", message, tuple(found.refused)))
    if found.data_dependent:
        names = found.data_dependent
        has, its, it = "1 op has a size that depends", "its", "it"
        if len(names) > 1:
            has, its, it = f"{len(names):,} ops have sizes that depend", "their", "one"
        message = (
            f"{has} on data, taken at {its} largest: {some(names)}. "
            f"To set {it}, add --shape {names[0]}=SIZES, such as 4x10"
        )
        warnings.append(("data_dependent_shape", message, found.data_dependent))
    return found, warnings


def _infer_unbound(program: FlatProgram, binding: Binding, types: GraphTypes) -> GraphShapes:
    """The shapes of the program with its inputs as they are declared."""
    declared = {item.op: item.shape for item in program.inputs}
    inputs = {
        name: replace(state, shape=declared.get(name, state.shape), value=None)
        for name, state in binding.inputs.items()
    }
    analysis = ShapeAnalysis(program.graph_def.library, types.definitions)
    return analysis.analyse(program.graph_def, inputs, types, program.stored_shapes)[0]


def _require_fitting_shapes(
    program: FlatProgram, binding: Binding, found: GraphShapes, types: GraphTypes
) -> None:
    """Raises :class:`ShapeError` if an op is refused only because of the bound shapes.

    In a branch of a v1 conditional that is no fault: these shapes may never take it.
    """
    contexts = find_contexts(program.graph_def.node)
    before = _infer_unbound(program, binding, types)
    for name, reason in found.refused.items():
        if name not in before.refused and not contexts[name].branches:
            raise ShapeError(
                f"the shapes that were given do not fit the model: {reason} (given: "
                f"{', '.join(binding.bound)})"
            )


def _cannot_import(program: FlatProgram, binding: Binding, types: GraphTypes) -> bool:
    try:
        _infer_unbound(program, binding, types)
    except ShapeError:
        return True
    return False


def _unknown_ops(program: FlatProgram, definitions: OpDefinitions) -> Iterator[Warning_]:
    op_types = {node.op for node in program.graph_def.node}
    unknown = {op_type for op_type in op_types if not definitions.is_registered(op_type)}
    if unknown:
        names = tuple(node.name for node in program.graph_def.node if node.op in unknown)
        count, kinds = format_count(len(names), "op"), ", ".join(sorted(unknown))
        yield "unknown_op_type", f"TensorFlow does not know {count} of type {kinds}", names


def unknown_roots(graph: OpGraph) -> Iterator[str]:
    """Ops at which the shapes of unknown tensors get lost, in graph order; bodies as ``body/op``.

    Their own inputs are known; binding their outputs (or the inputs, where they are placeholders)
    makes everything behind them known too.  What comes into a body unknown is lost outside, and
    where a loop changes a shape it is lost at the ``Merge``.
    """
    for prefix, part in _parts(graph):
        fed = set(part.feeds) if prefix else set()
        yield from (prefix + name for name in _roots(part) if name not in fed)


def _parts(graph: OpGraph) -> list[tuple[str, OpGraph]]:
    """The main graph and the bodies with the prefix of their names."""
    return [("", graph), *((f"{name}/", part) for name, part in graph.functions.items())]


def _lost(graph: OpGraph) -> Iterator[str]:
    """The tensors whose shape is not known although their dtype has a size."""
    for op in graph.ops.values():
        for index, tensor in enumerate(op.info.outputs):
            if _is_lost(tensor):
                yield op.output_name(index)


def _is_lost(tensor: TensorProperties) -> bool:
    return not is_known(tensor.shape) and tensor.dtype not in UNSIZED


def _roots(graph: OpGraph) -> Iterator[str]:
    # the lost tensors, and all of unknown shape that lead to them
    wanted = set(_lost(graph))
    if not wanted:
        return
    for op in reversed(list(graph.ops.values())):
        if any(op.output_name(index) in wanted for index in range(len(op.info.outputs))):
            lost = zip(op.inputs, op.info.inputs, strict=True)
            wanted.update(name for name, tensor in lost if not is_known(tensor.shape))
    # the ops that give such tensors although what arrives there is known
    for op in graph.ops.values():
        named = any(op.output_name(index) in wanted for index in range(len(op.info.outputs)))
        arriving = (
            tensor
            for source, tensor in zip(op.inputs, op.info.inputs, strict=True)
            if not is_back_edge(graph.ops[op_of(source)].op_type, op.op_type)
        )
        if named and all(is_known(tensor.shape) for tensor in arriving):
            yield op.name


def describe(program: FlatProgram) -> ModelSource:
    """Returns the description of the model that a plan keeps."""
    found: ModelSource = {
        "path": program.path,
        "format": program.source_format,
        "signature": program.signature,
        "tags": list(program.tags),
        "outputs": list(program.chosen_outputs),
        "sha256": file_hash(model_file(Path(program.path))) if program.path else "",
        "fingerprint": program.fingerprint,
        "inputs": [item.key for item in program.inputs],
    }
    if program.division is not None:
        found["division"] = program.division.as_json()
    return found
