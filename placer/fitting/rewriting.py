"""From what is decided to what is cloned and swapped, who reads it, and what it waits for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placer.fitting.list_scheduling import SMALL_BYTES
from placer.fitting.reduction import ReducedStep
from placer.fitting.swapping import PlannedSwap
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING, Clone, Rewriting, Swap, recomputable_ops
from placer.graph.tensor_names import op_of
from placer.prediction.step.step_layout import StepLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """The ``rewriting`` that sequences stand for, and the ``order`` of the rewritten ops."""

    rewriting: Rewriting
    order: tuple[str, ...]


class RewritingPlanner:
    """Turns sequences of nodes into clones, in the order in which they run, one sequence per
    device, and what waits on the host into swaps; all of one ``order`` of the ops of ``graph``
    (numbers).

    ``is_forward`` tells which ops are of the forward pass; those that are ``fixed`` are not cloned.
    ``late`` has the ops with a late value
    and the place from which on it is read; ``before`` the added ops that run before a place.
    """

    def __init__(
        self,
        graph: OpGraph,
        layout: StepLayout,
        order: Sequence[int],
        is_forward: Sequence[bool],
        fixed: frozenset[str] = frozenset(),
    ) -> None:
        self.graph, self.layout, self.order = graph, layout, tuple(order)
        self.is_forward = is_forward
        self.names = layout.names
        self.number = {name: index for index, name in enumerate(self.names)}
        self.place = [0] * len(self.names)
        for place, op in enumerate(self.order):
            self.place[op] = place
        self.allowed = recomputable_ops(graph) - fixed
        self.late: dict[int, int] = {}
        self.clones: dict[int, Clone] = {}
        self.swaps: list[Swap] = []
        self.before: dict[int, list[str]] = {}

    def add(self, reduced: ReducedStep, sequence: Sequence[int]) -> None:
        """Computes again what ``sequence`` has twice, before the stage that comes next there."""
        done: set[int] = set()
        for node in sequence:
            if node in done:
                start = reduced.stages[len(done)].start
                self._compute_again(reduced.stages[node].chain, start, reduced.roots)
            done.add(node)

    def swap(self, planned: Sequence[PlannedSwap]) -> None:
        """Has tensors on the host meanwhile."""
        for swap in planned:
            op = self.layout.producer[swap.tensor.value]
            index = swap.tensor.value - self.layout.outputs[op].start
            trigger = next(self._ran_before(swap.back, self.layout.devices[op]), "")
            found = Swap(tensor=f"{self.names[op]}:{index}", after=(trigger,) if trigger else ())
            self.swaps.append(found)
            self.late[op] = swap.back
            self.before.setdefault(swap.out, []).insert(0, found.arrival)
            self.before.setdefault(swap.back, []).append(found.name)

    def add_clones(self, planned: PlannedStep, roots: Sequence[int]) -> None:
        """Computes again what ``planned`` does, where that has it; its other ops are in the order
        of this planner."""
        names = {clone.name: self.number[clone.op] for clone in planned.rewriting.clones}
        place = 0
        for name in planned.order:
            if name in names:
                self._compute_again((names[name],), place, roots)
            elif name in self.number:
                place += 1

    def _compute_again(self, chain: Sequence[int], start: int, roots: Sequence[int]) -> None:
        trigger = self._trigger(chain[-1], start, roots)
        device = self.layout.devices[chain[-1]]
        for op in chain:
            reads = self._read_late(op, start, {**self.late, **dict.fromkeys(chain, start)}, device)
            self._add(op, start, reads, trigger)
        self.late.update(dict.fromkeys(chain, start))

    def _add(self, op: int, start: int, reads: tuple[str, ...], trigger: str) -> None:
        after = () if reads or not trigger else (trigger,)
        self.clones[op] = Clone(op=self.names[op], reads=reads, after=after)
        self.before.setdefault(start, []).append(self.clones[op].name)

    def _read_late(
        self, op: int, start: int, late: Mapping[int, int], device: str
    ) -> tuple[str, ...]:
        """The producers on ``device`` whose late values ``op`` reads at the place ``start``; views
        on what is late are cloned."""
        producers = dict.fromkeys(map(op_of, self.graph.ops[self.names[op]].inputs))
        return tuple(
            name
            for name in producers
            if self.layout.devices[self.number[name]] == device
            and self._is_late(self.number[name], start, late)
        )

    def _is_late(self, op: int, start: int, late: Mapping[int, int]) -> bool:
        """Whether who runs at ``start`` reads a late value of ``op``: a view is cloned for that."""
        if op in late:
            return late[op] <= start
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

    def _trigger(self, owner: int, start: int, roots: Sequence[int]) -> str:
        """The op that a recomputation waits for: the latest input, of the backward pass, of the
        first op from ``start`` on that reads what ``owner`` writes; else the op before that."""
        layout = self.layout
        written = set(layout.outputs[owner])
        readers = (
            op
            for op in self.order[start:]
            if any(roots[value] in written for value in layout.inputs[op])
        )
        first = next(readers, None)
        inputs = () if first is None else {layout.producer[value] for value in layout.inputs[first]}
        known = [op for op in inputs if self.place[op] < start and not self.is_forward[op]]
        known.sort(key=self.place.__getitem__, reverse=True)
        device = layout.devices[owner]
        for op in known:
            if self.names[op] in self.allowed and layout.devices[op] == device:
                return self.names[op]
        return next(self._ran_before(start, device), "")

    def _ran_before(self, start: int, device: str) -> Iterator[str]:
        """The ops before the place ``start`` that write something that is not small, the last one
        first: they say how far the step is."""
        layout = self.layout
        for op in reversed(self.order[:start]):
            if (
                self.names[op] in self.allowed
                and layout.devices[op] == device
                and any(layout.bytes[value] > SMALL_BYTES for value in layout.outputs[op])
            ):
                yield self.names[op]

    def finish(self, given: Rewriting = NO_REWRITING) -> PlannedStep:
        """The rewriting, once all is decided: from then on each op reads what is late.  ``given``
        is what the graph was rewritten by before."""
        readers: dict[str, tuple[str, ...]] = {}
        for place, op in enumerate(self.order):
            if reads := self._read_late(op, place, self.late, self.layout.devices[op]):
                readers[self.names[op]] = reads
        before = [
            replace(clone, reads=(*clone.reads, *readers.pop(clone.name, ())))
            for clone in given.clones
        ]
        for name, reads in given.late_readers.items():
            readers[name] = (*reads, *readers.get(name, ()))
        order: list[str] = []
        for place, op in enumerate(self.order):
            order += self.before.get(place, ())
            order.append(self.names[op])
        rewriting = Rewriting(
            clones=(*before, *self.clones.values()),
            swaps=(*given.swaps, *self.swaps),
            late_readers=readers,
            released=given.released,
        )
        return PlannedStep(rewriting=rewriting, order=tuple(order))


def reads_what_ran(layout: StepLayout, order: Sequence[int]) -> bool:
    """Whether every op comes after those that it reads from.

    An order of a rewritten graph need not be one of the graph itself: who reads a clone may come
    before its original.
    """
    ran: set[int] = set()
    for op in order:
        if not ran.issuperset(layout.producer[value] for value in layout.inputs[op]):
            return False
        ran.add(op)
    return True
