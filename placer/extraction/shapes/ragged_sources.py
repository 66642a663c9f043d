"""Sizes of what a graph makes ragged or sparse itself: parsed features, and texts that are split.

How long the rows are only the data says.  They are bound by name as the lengths of ragged inputs
are: by the key of a feature (``history``), or by the layer or op that splits
(``text_vectorization``).  The rows are those of the op's own input.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from cost_models.op_info import Shape
from placer.errors import UsageError
from placer.extraction.graph_defs.parsing_ops import DENSE, RAGGED, SPARSE, find_parsers
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.extraction.graph_defs.scratch_graphs import Refinement
from placer.extraction.shapes.composite_shapes import OPEN, Sizes
from placer.extraction.shapes.imported_shapes import ImportedGraph
from placer.graph.op_types import SPLITTERS
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import data_inputs

_OWN_SCOPES = frozenset({"StringSplit", "StringSplitV2", "string_split", "StringsSplit"})
_SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedSource:
    """A feature or a split text: its ``name`` for people, the ``op`` and the ``tensor`` whose
    leading dimension is the rows; ``outputs``, ``listed`` and ``step`` (the shape of one) as in
    :class:`Feature`."""

    name: str
    op: str
    kind: str
    tensor: str
    outputs: tuple[int, ...]
    listed: bool = False
    step: Shape = None

    @property
    def unit(self) -> str:
        """The things that a row has so many of."""
        if self.listed:
            return "steps"
        return "words" if self.kind == _SPLIT else "values"

    @property
    def example(self) -> str:
        """The option that says how long rows are, to be filled in."""
        return f"--ragged {self.name}=?x{self.unit.upper()}"

    def is_called(self, name: str) -> bool:
        """Whether ``name`` means this source: its key, its op, or a scope that it is in."""
        if name in (self.name, self.op):
            return True
        return self.kind == _SPLIT and name in self.op.split("/")

    def may_be_called(self, name: str) -> bool:
        """Whether it is in a scope that only a number tells from ``name``: a trace may give a layer
        a scope such as ``text_vectorization_1``."""
        scopes = (part.rstrip("0123456789").removesuffix("_") for part in self.op.split("/"))
        return self.kind == _SPLIT and name in scopes

    def shapes(self, rows: int | None, length: int, inner: int = 1) -> dict[int, tuple[int, ...]]:
        """The shapes of its outputs by number; ``rows`` is ``None`` for a single example, ``inner``
        the values of each step of a listed feature."""
        outer = (length,) if rows is None else (rows, length)
        if self.kind == DENSE:
            found = {self.outputs[0]: (*outer, *(self.step or ()))}
            return {**found, **dict.fromkeys(self.outputs[1:], outer[:-1])}
        outer = (*outer, inner) if self.listed else outer
        count = math.prod(outer)
        if self.kind == RAGGED:
            values, *splits = self.outputs
            counts = [rows or 1, (rows or 1) * length]
            return {values: (count,), **{n: (c + 1,) for n, c in zip(splits, counts, strict=False)}}
        indices, values, shape = self.outputs
        return {indices: (count, len(outer)), values: (count,), shape: (len(outer),)}

    def values(self, rows: int | None, length: int, inner: int = 1) -> dict[int, tuple[int, ...]]:
        """The elements of outputs by number, out of which TensorFlow concludes what is padded or
        counted: indices or row splits, unless they are many, and the shape of a sparse tensor."""
        outer = (length,) if rows is None else (rows, length)
        outer = (*outer, inner) if self.listed else outer
        is_small = math.prod(outer) <= 1 << 16  # values are bytes in the graph analysed
        if self.kind == DENSE:
            return {}
        if self.kind == RAGGED:
            counts = [(rows or 1, length), ((rows or 1) * length, inner)]
            return {
                number: tuple(row * each for row in range(count + 1))
                for number, (count, each) in zip(self.outputs[1:], counts, strict=False)
                if is_small
            }
        found: dict[int, tuple[int, ...]] = {self.outputs[2]: outer}
        if is_small:
            indices = product(*map(range, outer))
            found[self.outputs[0]] = tuple(chain.from_iterable(indices))
        return found


def find_sources(nodes: Sequence[NodeDef]) -> list[RaggedSource]:
    """The sources among the nodes of a flat graph."""
    found = [
        RaggedSource(
            name=feature.key,
            op=parser.op,
            kind=feature.kind,
            tensor=parser.serialized,
            outputs=feature.outputs,
            listed=feature.listed,
            step=feature.shape,
        )
        for parser in find_parsers(nodes)
        for feature in parser.features
        if feature.is_open
    ]
    found += [
        RaggedSource(
            name=_layer(node.name),
            op=node.name,
            kind=_SPLIT,
            tensor=data_inputs(node.input)[0],
            outputs=(0, 1, 2),
        )
        for node in nodes
        if node.op in SPLITTERS
    ]
    return found


def _layer(op: str) -> str:
    """The innermost scope of a splitting op that is not TensorFlow's own."""
    parts = op.split("/")
    own = [part for part in parts[:-1] if part.rstrip("_0123456789") not in _OWN_SCOPES]
    return own[-1] if own else parts[-1]


BoundSources = Mapping[str, Mapping[RaggedSource, tuple[int | None, tuple[int, ...]]]]
"""The rows, if they were given, and the mean lengths of sources, by op: how many values, words or
steps, then how many values a step has, if that was given."""


def bind_sources(
    sources: Sequence[RaggedSource], asked: Sizes, known: Sequence[str]
) -> BoundSources:
    """The rows (``None``: those of the op's input) and the mean lengths of the sources that
    ``asked`` names, by op.

    ``known`` are the ragged and sparse inputs, which are bound elsewhere.  Raises
    :class:`UsageError` for a name that is none of them, or of several, and for sizes that a source
    does not take.
    """
    found: dict[str, dict[RaggedSource, tuple[int | None, tuple[int, ...]]]] = {}
    for name, sizes in asked.items():
        if name in known:
            continue
        called = [source for source in sources if source.is_called(name)]
        called = called or [source for source in sources if source.may_be_called(name)]
        if not called:
            there = ", ".join([*known, *dict.fromkeys(source.name for source in sources)])
            there = f"there are: {there}" if there else "there are none"
            raise UsageError(
                f"{name!r} is not a ragged or sparse input ({there}); to set the sizes of "
                "a dense input, use --shape"
            )
        given = "x".join("?" if size is None else str(size) for size in sizes)
        lengths = tuple(size for size in sizes[1:] if size is not None)
        most = 2 if called[0].listed and called[0].kind != DENSE else 1
        if not 0 < len(lengths) <= most or len(lengths) < len(sizes) - 1:
            raise UsageError(
                f"--ragged {name}={given} is for {called[0].name!r}, which takes two sizes, rows "
                f"and the mean number of {called[0].unit} in one: {called[0].example}"
            )
        for source in called:
            found.setdefault(source.op, {})[source] = sizes[0], lengths
    return found


def source_refinements(bound: BoundSources, imported: ImportedGraph) -> dict[str, Refinement]:
    """The shapes of the bound sources' outputs, and the values of the shapes of sparse ones, where
    the rows are known.

    Raises :class:`UsageError` for rows that the program contradicts.
    """
    found: dict[str, Refinement] = {}
    for op, lengths in bound.items():
        ensured: dict[int, tuple[int, ...]] = {}
        values: dict[int, tuple[int, ...]] = {}
        for source, (asked, sizes) in lengths.items():
            shape = imported.shape(source.tensor)
            if shape is None or None in shape[:1]:
                continue
            rows = shape[0] if shape else None
            if asked is not None and rows not in (None, asked):
                given = "x".join(map(str, (asked, *sizes)))
                raise UsageError(
                    f"--ragged {source.name}={given} gives {asked} rows, there are {rows}"
                )
            ensured |= source.shapes(rows, *sizes)
            values |= source.values(rows, *sizes)
        if ensured:
            found[op] = Refinement(
                ensured=tuple((n, s) for n, s in sorted(ensured.items()) if n not in values),
                values=tuple((n, ensured[n], held) for n, held in sorted(values.items())),
            )
    return found


def open_sources(
    sources: Sequence[RaggedSource], bound: BoundSources, shaped: Iterable[str]
) -> Iterator[Warning_]:
    """Yields a warning of every source whose rows nothing says the length of; the shapes of the
    ops ``shaped`` were given."""
    given = set(shaped)
    for source in sources:
        if source not in bound.get(source.op, {}) and source.op not in given:
            kind = {RAGGED: "a ragged feature", SPARSE: "a sparse feature"}.get(source.kind)
            kind = "a feature of every step" if source.listed else kind
            message = (
                f"{source.name} is {kind or 'text that is split'}: how many {source.unit} a row "
                f"has depends on the data. Set it with {source.example} (the rows are those of "
                "the batch)"
            )
            yield OPEN, message, (source.op,)
