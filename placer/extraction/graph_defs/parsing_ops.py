"""The features that a graph parses out of serialised ``tf.Example`` messages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cost_models.op_info import Shape
from placer.extraction.graph_defs.op_definitions import attribute
from placer.extraction.graph_defs.protobufs import NodeDef, dtype_name, shape_of
from placer.graph.tensor_names import data_inputs, op_of

_AS_SCALARS, _AS_VECTORS, _AS_ATTRIBUTES = "inputs", "vectors", "attributes"
_SEQUENCES: Mapping[str, str] = {
    "ParseSequenceExample": _AS_ATTRIBUTES,
    "ParseSequenceExampleV2": _AS_VECTORS,
    "ParseSingleSequenceExample": _AS_SCALARS,
}
_KEYS: Mapping[str, str] = {
    "ParseExample": _AS_SCALARS,
    "ParseExampleV2": _AS_VECTORS,
    "ParseSingleExample": _AS_ATTRIBUTES,
    **_SEQUENCES,
}
"""Where each op type has its keys: an input for each, one for each group, or attributes."""

PARSERS = frozenset(_KEYS)
"""Op types that parse them (``ParseSingle...`` one message at a time), or ``SequenceExample``."""

SPARSE, DENSE, RAGGED = "sparse", "dense", "ragged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature: ``dtype`` and, if it is dense, ``shape`` of one example; ``outputs`` are the
    numbers of the parser's outputs (indices, values and shape of a sparse one; values and row
    splits of a ragged one, the outer before the inner).  A ``listed`` one has a value, of that
    shape, for every step of a ``SequenceExample``; a dense one may give out how many there are."""

    key: str
    kind: str
    dtype: str
    outputs: tuple[int, ...]
    shape: Shape = None
    listed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the graph does not say how long it is."""
        return self.kind != DENSE or self.listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """An op that parses; ``serialized`` is the tensor of messages that it reads."""

    op: str
    serialized: str
    features: tuple[Feature, ...]
    parses_sequences: bool = False


def find_parsers(nodes: Iterable[NodeDef]) -> list[Parser]:
    """The parsing ops among ``nodes`` whose keys are constants."""
    nodes = list(nodes)
    parsing = [node for node in nodes if node.op in PARSERS]
    if not parsing:
        return []
    constants = {node.name: node for node in nodes if node.op == "Const"}
    found = (_parser(node, constants) for node in parsing)
    return [parser for parser in found if parser is not None]


def _parser(node: NodeDef, constants: Mapping[str, NodeDef]) -> Parser | None:
    groups = [
        (kind, prefix == "feature_list_", f"{prefix}{kind}")
        for prefix in (("context_", "feature_list_") if node.op in _SEQUENCES else ("",))
        for kind in (SPARSE, DENSE, RAGGED)
        if kind != RAGGED or _KEYS[node.op] == _AS_VECTORS
    ]
    keys = _keys(node, [name for _, _, name in groups], constants)
    if keys is None:
        return None
    features: list[Feature] = []
    start = 0
    for (kind, listed, name), found in zip(groups, keys, strict=True):
        width = {SPARSE: 3, DENSE: 1, RAGGED: 2}[kind]
        if listed and kind != SPARSE and node.op != "ParseSingleSequenceExample":
            width += 1
        types = {DENSE: f"{name}_types" if listed else f"T{name}", RAGGED: f"{name}_value_types"}
        dtypes = attribute(node.attr, types.get(kind, f"{name}_types")).list.type
        shapes = attribute(node.attr, f"{name}_shapes").list.shape if kind == DENSE else ()
        features += [
            Feature(
                key=key,
                kind=kind,
                dtype=dtype_name(dtypes[number]),
                outputs=tuple(start + number + len(found) * part for part in range(width)),
                shape=shape_of(shapes[number]) if number < len(shapes) else None,
                listed=listed,
            )
            for number, key in enumerate(found[: len(dtypes)])
        ]
        start += width * len(found)
    return Parser(
        op=node.name,
        serialized=data_inputs(node.input)[0],
        features=tuple(features),
        parses_sequences=node.op in _SEQUENCES,
    )


def _keys(
    node: NodeDef, groups: list[str], constants: Mapping[str, NodeDef]
) -> list[list[str]] | None:
    """The keys of the features of each group; ``None`` if they are computed."""
    if _KEYS[node.op] == _AS_ATTRIBUTES:
        return [
            [key.decode() for key in attribute(node.attr, f"{group}_keys").list.s]
            for group in groups
        ]
    rest = [_strings(constants.get(op_of(name))) for name in data_inputs(node.input)[2:]]
    if _KEYS[node.op] == _AS_VECTORS:
        vectors = [found for found in rest[: len(groups)] if found is not None]
        return vectors if len(vectors) == len(groups) else None
    counts = [int(attribute(node.attr, f"N{group}").i) for group in groups]
    scalars = [found[0] for found in rest[: sum(counts)] if found]
    if len(scalars) < sum(counts):
        return None
    iterator = iter(scalars)
    return [[next(iterator) for _ in range(count)] for count in counts]


def _strings(node: NodeDef | None) -> list[str] | None:
    """The elements of a ``Const`` of strings."""
    from tensorflow.python.framework import tensor_util

    if node is None:
        return None
    values = tensor_util.MakeNdarray(node.attr["value"].tensor).ravel()
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]
