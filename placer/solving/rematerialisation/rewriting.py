"""From a sequence of computations to what is cloned, who reads it, and what it waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import Clone, Rewriting, recomputable_ops
from placer.graph.tensor_names import op_of
from placer.prediction.step.step_layout import StepLayout
from placer.solving.rematerialisation.reduction import ReducedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """The ``rewriting`` that a sequence stands for, and the ``order`` of the rewritten ops."""

    rewriting: Rewriting
    order: tuple[str, ...]


def plan_step(
    graph: OpGraph,
    layout: StepLayout,
    reduced: ReducedStep,
    sequence: Sequence[int],
    is_forward: Sequence[bool],
) -> PlannedStep:
    """What computes as ``sequence`` says, nodes of ``reduced``; ``is_forward`` tells which ops are
    of the forward pass."""
    planner = _Planner(graph, layout, reduced, is_forward)
    done: set[int] = set()
    for node in sequence:
        if node in done:
            planner.compute_again(node, len(done))
        done.add(node)
    return planner.finish()


class _Planner:
    """Clones in the order in which they run.

    ``late`` has the ops with a late value, ``start`` the place from which on it is read.
    """

    def __init__(
        self,
        graph: OpGraph,
        layout: StepLayout,
        reduced: ReducedStep,
        is_forward: Sequence[bool],
    ) -> None:
        self.graph, self.layout, self.reduced = graph, layout, reduced
        self.is_forward = is_forward
        self.names = layout.names
        self.number = {name: index for index, name in enumerate(self.names)}
        self.place = [0] * len(self.names)
        for place, op in enumerate(reduced.order):
            self.place[op] = place
        self.allowed = recomputable_ops(graph)
        self.late: dict[int, int] = {}
        self.clones: dict[int, Clone] = {}
        self.before: dict[int, list[int]] = {}

    def compute_again(self, node: int, stage: int) -> None:
        """Clones what computes ``node``, to run before the stage number ``stage``."""
        start = self.reduced.stages[stage].start
        chain = self.reduced.stages[node].chain
        trigger = self._trigger(chain[-1], start)
        for op in chain:
            reads = self._read_late(op, start, set(self.late) | set(chain))
            self._add(op, start, reads, trigger)
        self.late.update(dict.fromkeys(chain, start))

    def _add(self, op: int, start: int, reads: tuple[str, ...], trigger: str) -> None:
        after = () if reads or not trigger else (trigger,)
        self.clones[op] = Clone(op=self.names[op], reads=reads, after=after)
        self.before.setdefault(start, []).append(op)

    def _read_late(self, op: int, start: int, late: Collection[int]) -> tuple[str, ...]:
        """The producers whose late values ``op`` reads at the place ``start``; views on what is
        late are cloned."""
        found = []
        for tensor in dict.fromkeys(map(op_of, self.graph.ops[self.names[op]].inputs)):
            if self._is_late(self.number[tensor], start, late):
                found.append(tensor)
        return tuple(found)

    def _is_late(self, op: int, start: int, late: Collection[int]) -> bool:
        """Whether who runs at ``start`` reads a late value of ``op``: a view is cloned for that."""
        if op in late:
            return True
        if self.place[op] >= start or self.names[op] not in self.allowed:
            return False
        shared = [self.layout.shared.get(value, ()) for value in self.layout.outputs[op]]
        if not shared or not all(shared):
            return False
        source = self.layout.producer[shared[0][0]]
        if not self._is_late(source, start, late):
            return False
        if op not in self.clones:
            self._add(op, start, (self.names[source],), "")
        return True

    def _trigger(self, owner: int, start: int) -> str:
        """What runs late enough: the latest input, of the backward pass, of the op that reads what
        ``owner`` writes first from ``start`` on; else what ran last before that."""
        layout, joinable = self.layout, self.allowed
        roots = {value for value in layout.outputs[owner]}
        readers = [
            op
            for op in self.reduced.order[start:]
            if any(self.reduced.roots[value] in roots for value in layout.inputs[op])
        ]
        inputs = {layout.producer[value] for value in layout.inputs[readers[0]]} if readers else ()
        known = [op for op in inputs if self.place[op] < start and not self.is_forward[op]]
        for op in sorted(known, key=self.place.__getitem__, reverse=True):
            if self.names[op] in joinable:
                return self.names[op]
        for op in reversed(self.reduced.order[:start]):
            if self.names[op] in joinable and any(layout.bytes[v] > 1024 for v in layout.outputs[op]):
                return self.names[op]
        return ""

    def finish(self) -> PlannedStep:
        """The rewriting, once all is computed again; each op from then on reads what is late."""
        readers: dict[str, tuple[str, ...]] = {}
        for place, op in enumerate(self.reduced.order):
            late = [other for other, start in self.late.items() if start <= place]
            if late and (reads := self._read_late(op, place, late)):
                readers[self.names[op]] = reads
        order: list[str] = []
        for place, op in enumerate(self.reduced.order):
            order += [self.clones[clone].name for clone in self.before.get(place, ())]
            order.append(self.names[op])
        rewriting = Rewriting(clones=tuple(self.clones.values()), late_readers=readers)
        return PlannedStep(rewriting=rewriting, order=tuple(order))
