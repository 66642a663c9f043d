"""The features that a graph parses out of serialised ``tf.Example`` messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.protobufs import NodeDef, dtype_name, shape_of
from placer.graph.tensor_names import data_inputs, op_of

PARSERS = frozenset({"ParseExample", "ParseExampleV2", "ParseSingleExample"})
"""Op types that parse them; ``ParseSingleExample`` one message at a time."""

SPARSE, DENSE, RAGGED = "sparse", "dense", "ragged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature: ``dtype`` and, if it is dense, ``shape`` of one example; ``outputs`` are the
    numbers of the parser's outputs (indices, values and shape of a sparse one; values and row
    splits of a ragged one)."""

    key: str
    kind: str
    dtype: str
    outputs: tuple[int, ...]
    shape: Shape = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """An op that parses; ``serialized`` is the tensor of messages that it reads."""

    op: str
    serialized: str
    features: tuple[Feature, ...]

    @property
    def open_features(self) -> Iterator[Feature]:
        """Yields those whose length the graph does not say."""
        return (feature for feature in self.features if feature.kind != DENSE)


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
    keys = _keys(node, constants)
    if keys is None:
        return None
    attributes = node.attr
    sparse, dense, ragged = keys
    features = [
        Feature(
            key=key,
            kind=SPARSE,
            dtype=dtype_name(dtype),
            outputs=(number, len(sparse) + number, 2 * len(sparse) + number),
        )
        for number, (key, dtype) in enumerate(
            zip(sparse, attributes["sparse_types"].list.type, strict=False)
        )
    ]
    start = 3 * len(sparse)
    features += [
        Feature(
            key=key,
            kind=DENSE,
            dtype=dtype_name(dtype),
            outputs=(start + number,),
            shape=shape_of(shape),
        )
        for number, (key, dtype, shape) in enumerate(
            zip(
                dense,
                attributes["Tdense"].list.type,
                attributes["dense_shapes"].list.shape,
                strict=False,
            )
        )
    ]
    start += len(dense)
    features += [
        Feature(
            key=key,
            kind=RAGGED,
            dtype=dtype_name(dtype),
            outputs=(start + number, start + len(ragged) + number),
        )
        for number, (key, dtype) in enumerate(
            zip(ragged, attributes["ragged_value_types"].list.type, strict=False)
        )
    ]
    inputs = data_inputs(node.input)
    return Parser(op=node.name, serialized=inputs[0], features=tuple(features))


def _keys(
    node: NodeDef, constants: Mapping[str, NodeDef]
) -> tuple[list[str], list[str], list[str]] | None:
    """The keys of sparse, dense and ragged features; ``None`` if they are computed."""
    inputs = [op_of(name) for name in data_inputs(node.input)]
    if node.op == "ParseSingleExample":
        sparse, dense = (
            [key.decode() for key in node.attr[name].list.s]
            for name in ("sparse_keys", "dense_keys")
        )
        return sparse, dense, []
    if node.op == "ParseExampleV2":
        vectors = [_strings(constants.get(name)) for name in inputs[2:5]]
        if len(vectors) < 3 or any(found is None for found in vectors):
            return None
        return vectors[0] or [], vectors[1] or [], vectors[2] or []
    count = int(node.attr["Nsparse"].i)
    scalars = [_strings(constants.get(name)) for name in inputs[2 : 2 + count]]
    scalars += [
        _strings(constants.get(name))
        for name in inputs[2 + count : 2 + count + int(node.attr["Ndense"].i)]
    ]
    if any(not found for found in scalars):
        return None
    flat = [found[0] for found in scalars if found]
    return flat[:count], flat[count:], []


def _strings(node: NodeDef | None) -> list[str] | None:
    """The elements of a ``Const`` of strings."""
    from tensorflow.python.framework import tensor_util

    if node is None:
        return None
    values = tensor_util.MakeNdarray(node.attr["value"].tensor).ravel()
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


_PASSING = frozenset({"Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient"})


def parsed_inputs(nodes: Sequence[Any], fed: Iterable[str]) -> dict[str, list[Parser]]:
    """The parsers of every fed op whose messages they parse, as they are fed."""
    parsers = find_parsers(nodes)
    if not parsers:
        return {}
    wanted, by_name = set(fed), {node.name: node for node in nodes}
    found: dict[str, list[Parser]] = {}
    for parser in parsers:
        name = op_of(parser.serialized)
        while name not in wanted and name in by_name and by_name[name].op in _PASSING:
            name = op_of(by_name[name].input[0])
        if name in wanted:
            found.setdefault(name, []).append(parser)
    return found
