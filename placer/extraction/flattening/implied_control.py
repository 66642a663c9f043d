"""Control edges that order nothing: their ends wait for each other all the same.

A SavedModel's function ends in a ``NoOp`` that waits for every read of a variable, and gates the
outputs, which are computed from these reads.  On one device such edges cost nothing; between two
each is a message.  TensorFlow's optimizer takes them out where it runs
(``core/grappler/optimizers/dependency_optimizer.cc``: ``TransitiveReduction``); they are left out
of the flat graph, so that a placement is judged, written and run without them.

An edge is implied if another path leads from its op to all that wait for it: the transitive
reduction of a graph without cycles, which keeps all its paths (Aho, Garey and Ullman,
doi:10.1137/0201008).  ``NoOp`` ops are no more than bundles of edges.  No path leads through a
``Merge``, which waits for one of its inputs only.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_

from placer.graph.op_types import ENTERS, MERGES
from placer.graph.tensor_names import CONTROL, data_inputs

_SOURCES = 2_048
"""Ops that are followed at once; a set of them is the bits of a number."""


def drop_implied_control(
    order: Sequence[str],
    op_types: Mapping[str, str],
    inputs: dict[str, list[str]],
    sources: Mapping[str, Sequence[str]],
    bundles: Collection[str],
) -> None:
    """Takes the implied edges out of ``inputs`` (tensors, then ``^op`` of control edges).

    ``order`` has every op after those it reads or waits for, which ``sources`` names as ``inputs``
    does, ``Merge`` ops aside.  ``bundles`` are the ``NoOp`` ops that nothing runs for their own
    sake.  A graph with loops of TensorFlow 1 keeps all edges: they say in which frame an op is.
    """
    if not ENTERS.isdisjoint(op_types.values()):
        return
    # what an op waits for only, and where that begins among its inputs
    waits = dict[str, tuple[int, Sequence[str]]]()
    for name in order:
        found = inputs[name]
        if found and found[-1][:1] == CONTROL:
            first = len(data_inputs(found))
            waits[name] = first, sources[name][first:]
    followed = dict.fromkeys(op for _, names in waits.values() for op in names if op not in bundles)
    walk = _Walk(order, op_types, sources, waits, bundles)
    implied: dict[str, set[str]] = {}
    several = list(followed)
    for begin in range(0, len(several), _SOURCES):
        walk.mark(several[begin : begin + _SOURCES], implied)
    for name, gone in implied.items():
        inputs[name] = [
            text for text in inputs[name] if text[:1] != CONTROL or text[1:] not in gone
        ]


class _Walk:
    """Walks over one graph, for some ops after the other."""

    def __init__(
        self,
        order: Sequence[str],
        op_types: Mapping[str, str],
        sources: Mapping[str, Sequence[str]],
        waits: Mapping[str, tuple[int, Sequence[str]]],
        bundles: Collection[str],
    ) -> None:
        self.order, self.sources = order, sources
        self.merges = {name for name in order if op_types[name] in MERGES}
        self.waits, self.bundles = waits, bundles
        self.waiting: dict[str, list[str]] = {name: [] for name in bundles}
        for name, (_, names) in waits.items():
            for bundle in self.waiting.keys() & names:
                self.waiting[bundle].append(name)

    def mark(self, followed: Sequence[str], implied: dict[str, set[str]]) -> None:
        """Adds the edges of ``followed`` ops that are implied, by the op that waits."""
        bits = {name: 1 << place for place, name in enumerate(followed)}
        before = self.all_before(bits)
        beside = self.beside_edges(bits, before)
        for name in reversed(self.order):  # a bundle's edge is implied where all that wait for it
            if name in self.bundles:  # are behind its op anyway
                common = (beside[other] for other in self.waiting[name])
                beside[name] = reduce(and_, common) if self.waiting[name] else 0
        for name, (_, names) in self.waits.items():
            gone = {op for op in names if op in bits and bits[op] & beside[name]}
            if gone:
                implied.setdefault(name, set()).update(gone)

    def all_before(self, bits: Mapping[str, int]) -> dict[str, int]:
        """The followed ops that come before each op, or are it."""
        before: dict[str, int] = {}
        for name in self.order:
            found = bits.get(name, 0)
            if name not in self.merges:
                for source in self.sources[name]:
                    found |= before[source]
            before[name] = found
        return before

    def beside_edges(self, bits: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
        """The followed ops that come before each op that waits, by another path than an edge."""
        beside: dict[str, int] = {}
        for name in self.order:
            if name not in self.waits:
                continue
            first, names = self.waits[name]
            found = 0
            if name not in self.merges:
                for source in self.sources[name][:first]:
                    found |= before[source]
                for source in names:
                    known = beside.get(source, 0) if source in self.bundles else before[source]
                    found |= known & ~bits.get(source, 0)
            beside[name] = found
        return beside
