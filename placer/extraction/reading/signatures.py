"""SavedModels and MetaGraphDefs: the chosen meta graph, signature, inputs and outputs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cost_models.op_info import Shape
from placer.errors import ChoiceError, ModelError
from placer.extraction.extraction import ProgramChoice
from placer.extraction.graph_defs.program import (
    CompositePart,
    ProgramInput,
    RawProgram,
)
from placer.extraction.graph_defs.protobufs import NodeDef, TensorInfo, dtype_name, shape_of
from placer.extraction.graph_defs.tensorflow_core import import_core
from placer.extraction.reading.checkpoint_index import ABSENT, CheckpointIndex, read_index
from placer.extraction.reading.companions import other_signatures
from placer.extraction.reading.composite_inputs import composite_part, label_saved_inputs
from placer.extraction.reading.loaded_variables import find_stored
from placer.extraction.reading.saved_functions import (
    export_function,
    listed_functions,
    saved_functions,
)
from placer.extraction.reading.written_variables import find_unwritten
from placer.graph.op_types import VARIABLES
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import full_tensor, is_control, op_of, source_of

DEFAULT_SIGNATURE = "serving_default"


def has_graphs(saved_model: Any) -> bool:
    """Whether a message that could be read as a SavedModel is one."""
    return len(saved_model.meta_graphs) > 0


def read_saved_model(saved_model: Any, path: Path, choice: ProgramChoice) -> RawProgram:
    """The program behind one signature of a SavedModel, weights unread.

    Unless given, the tag set is ``serve`` (where there is none, that of the only MetaGraph) and the
    signature ``serving_default`` (where there is none, the only signature, or the only function);
    ``tag_set`` is a comma-separated list, empty for a MetaGraph without tags.  ``outputs`` picks
    some outputs of the signature by key, or tensors of the main graph by name.  Raises
    :class:`ChoiceError` listing what exists where there is no such tag set, signature or output.
    """
    import_core()
    meta_graph = choose_meta_graph(saved_model, path, choice["tag_set"])
    return read_meta_graph(meta_graph, path, choice)


def read_meta_graph(meta_graph: Any, path: Path, choice: ProgramChoice) -> RawProgram:
    """The program behind one signature of a MetaGraphDef; see :func:`read_saved_model`."""
    signature, outputs = choice["signature"], choice["outputs"]
    asked = signature or default_signature(meta_graph)
    is_exported = asked in meta_graph.signature_def
    if signature is None and outputs and DEFAULT_SIGNATURE not in meta_graph.signature_def:
        inputs: tuple[ProgramInput, ...] = ()
        found: dict[str, str] = {}
        asked = ""
    else:
        definition = choose_signature(meta_graph, path, asked)
        inputs = label_saved_inputs(
            tuple(_inputs(definition.inputs, meta_graph.graph_def)), meta_graph
        )
        found = dict(_tensors(definition.outputs))
    ops = {node.name: node for node in meta_graph.graph_def.node}
    wanted, targets = choose_outputs(found, outputs, ops)
    index = read_index(path) if path.is_dir() else CheckpointIndex()
    return RawProgram(
        graph_def=meta_graph.graph_def,
        inputs=inputs,
        outputs=wanted,
        targets=targets,
        source_format="saved_model",
        path=str(path),
        signature=asked,
        tags=tuple(meta_graph.meta_info_def.tags),
        chosen_outputs=tuple(outputs or ()),
        captures_constants=len(meta_graph.object_graph_def.nodes) > 0,
        stripped_ops=tuple(meta_graph.meta_info_def.stripped_op_list.op),
        declared_shapes=declared_shapes(meta_graph, index),
        warnings=(*index.warnings, *_absent_weights(meta_graph, path, index)),
        find_stored=partial(find_stored, meta_graph=meta_graph, path=path, index=index)
        if path.is_dir()
        else None,
        find_unwritten=partial(find_unwritten, asked if is_exported else "", meta_graph, index),
    )


def _absent_weights(meta_graph: Any, path: Path, index: CheckpointIndex) -> Iterator[Warning_]:
    """One line about variables whose values are not there."""
    kinds = (item.WhichOneof("kind") for item in meta_graph.object_graph_def.nodes)
    holds = "variable" in kinds or any(node.op in VARIABLES for node in meta_graph.graph_def.node)
    if not path.is_dir() or index.has_data or index.unreadable or not holds:
        return
    what = "only the index of its weights" if index.is_there else "no variables folder"
    message = f"the model has {what}: the placed program cannot be run"
    yield ABSENT, message, ()


def choose_meta_graph(saved_model: Any, path: Path, tag_set: str | None) -> Any:
    """The MetaGraphDef with exactly the given tags (comma-separated, none in an empty string); if
    they are not given (``None``) that for ``serve``, else the only one there is."""
    asked = {tag for tag in ("serve" if tag_set is None else tag_set).split(",") if tag}
    for meta_graph in saved_model.meta_graphs:
        if set(meta_graph.meta_info_def.tags) == asked:
            return meta_graph
    if tag_set is None and len(saved_model.meta_graphs) == 1:  # as tf.saved_model.load does
        return saved_model.meta_graphs[0]
    present = [
        repr(",".join(sorted(meta_graph.meta_info_def.tags)))
        for meta_graph in saved_model.meta_graphs
    ]
    raise ChoiceError(
        f"{str(path)!r} has no tag set {','.join(sorted(asked))!r}; it has {', '.join(present)}: "
        "choose one with --tag-set"
    )


def default_signature(meta_graph: Any) -> str:
    """Returns the signature that runs where none is named: ``serving_default``, else the only
    signature there is, else the only function."""
    signatures = other_signatures(meta_graph, "")
    if DEFAULT_SIGNATURE in signatures or len(signatures) > 1:
        return DEFAULT_SIGNATURE
    functions = [] if signatures else list(saved_functions(meta_graph))
    lone = [*signatures, *functions]
    return lone[0] if len(lone) == 1 else DEFAULT_SIGNATURE


def choose_signature(meta_graph: Any, path: Path, name: str) -> Any:
    """The SignatureDef called ``name``.

    Where there is none, but a function of that name or at that path, a signature is added that
    calls it.  Raises :class:`ChoiceError` saying what there is.
    """
    if name in meta_graph.signature_def or export_function(meta_graph, name):
        return meta_graph.signature_def[name]
    present = other_signatures(meta_graph, "")
    functions = listed_functions(meta_graph)
    known = f"; its functions are {functions}" if functions else ""
    if present:
        raise ChoiceError(
            f"{str(path)!r} has no signature {name!r}; it has {', '.join(map(repr, present))}"
            f"{known}: choose one with --signature"
        )
    advice = "choose one with --signature, or " if functions else ""
    raise ChoiceError(
        f"{str(path)!r} has no signatures{known}: {advice}name tensors of its graph with --outputs"
    )


def choose_outputs(
    found: Mapping[str, str], outputs: Sequence[str] | None, ops: Mapping[str, NodeDef]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The wanted (key, tensor) pairs and the wanted ops without outputs.

    Each of ``outputs`` is a key of ``found``, an op or a tensor name; ``None`` takes all of
    ``found``.  Raises :class:`ChoiceError` for a name that is none of these, :class:`ModelError` if
    ``found`` itself has one.
    """
    if not outputs:
        pairs = [(key, name) for key, name in sorted(found.items())]
    else:
        pairs = [(name, found.get(name, name)) for name in outputs]
    wanted, targets = [], []
    for key, name in pairs:
        op = source_of(name)
        if op not in ops:
            known = ", ".join(sorted(found))
            known = f"the outputs are {known}" if known else "give the name of an op in the graph"
            wrong = ChoiceError if outputs else ModelError
            raise wrong(f"there is no output or op {key!r}; {known}")
        if is_control(name) or (":" not in name and _gives_nothing(ops[op].op)):
            targets.append(op)
        else:
            wanted.append((key, full_tensor(name)))
    return tuple(wanted), tuple(targets)


def _gives_nothing(op_type: str) -> bool:
    """Whether an op type has no outputs, as far as this TensorFlow knows it."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op_type)
    return definition is not None and not definition.output_arg


def _tensors(infos: Mapping[str, TensorInfo]) -> Iterator[tuple[str, str]]:
    """The tensors of a signature by key, those of a sparse or ragged one part by part."""
    for key, info in sorted(infos.items()):
        kind = info.WhichOneof("encoding")
        if kind == "coo_sparse":
            sparse = info.coo_sparse
            yield f"{key}/values", sparse.values_tensor_name
            yield f"{key}/indices", sparse.indices_tensor_name
            yield f"{key}/dense_shape", sparse.dense_shape_tensor_name
        elif kind == "composite_tensor":
            for number, part in enumerate(info.composite_tensor.components):
                yield f"{key}/{number}", part.name
        elif info.name:
            yield key, info.name


def _inputs(infos: Mapping[str, TensorInfo], graph_def: Any) -> Iterator[ProgramInput]:
    nodes = {node.name: node for node in graph_def.node}
    for key, tensor in _tensors(infos):
        whole, _, last = key.rpartition("/")
        info = infos[key] if key in infos else infos[whole]
        attributes = nodes[op_of(tensor)].attr if op_of(tensor) in nodes else {}
        dtype = info.dtype
        shape = shape_of(info.tensor_shape) if info.name else None
        if "dtype" in attributes:
            dtype = attributes["dtype"].type
        if "shape" in attributes and not info.name:
            shape = shape_of(attributes["shape"].shape)
        yield ProgramInput(
            key=key,
            tensor=full_tensor(tensor),
            dtype=dtype_name(dtype),
            shape=shape,
            part=None if info.name else _part(whole, last, info),
        )


def _part(whole: str, last: str, info: TensorInfo) -> CompositePart | None:
    """Which part of the sparse or ragged tensor ``whole`` an entry of it is."""
    if info.WhichOneof("encoding") == "coo_sparse":
        return CompositePart(of=whole, role=last, shape=shape_of(info.tensor_shape))
    return composite_part(whole, int(last), info.composite_tensor.type_spec)


def declared_shapes(meta_graph: Any, index: CheckpointIndex) -> dict[str, Shape]:
    """Shapes by variable name, from the object graph and from the index of the checkpoint; none
    for names that two variables of other shapes have."""
    found: dict[str, Shape] = {}
    repeated = set()
    for node in meta_graph.object_graph_def.nodes:
        if node.WhichOneof("kind") == "variable":
            name, shape = node.variable.name, shape_of(node.variable.shape)
            if found.setdefault(name, shape) != shape:
                repeated.add(name)
    found.update({key: entry.shape for key, entry in index.entries.items()})
    return {name: shape for name, shape in found.items() if name not in repeated}
