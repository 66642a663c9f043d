"""Tensors that wait on the host, and when they are copied there and back.

Along an order of the ops, one tensor after the other is taken off the device where that is fullest,
the one that relieves most for the least extra time.

    place      first ... last early read    out ......... back    first late read
    device     |=============================|             |=======================|
    host             |==================================================|
    link             |---- copy out ----|                  |-- copy back --|

- Data: the order, the seconds of its ops on the device, what that holds at every place; of every
  tensor its bytes, where it is written, and the longest stretch without anybody who reads it.
- Decided: the place before which computation waits until the copy out is done (``out``: it is gone
  from there on), and the one before which the copy back begins (``back``: it is there again).
- Time: a link carries one copy at a time in each direction, in the order in which they begin, while
  the device computes; who reads what is not back yet waits.
- Constraints: what is held is within the budget; what waits on the host is within what is free
  there.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise, repeat

from cost_models.devices import Cluster
from cost_models.roofline import transfer_seconds
from placer.fitting.recompute_sequences import LEAST_SECONDS_SHARE, MOST_CANDIDATES
from placer.fitting.reduction import StepReduction
from placer.graph.control_edges import joinable_ops
from placer.graph.rewriting import recomputable_ops
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.step_layout import Effect

_LEAST_SHARE = 0.002
"""Share of the budget; smaller tensors stay."""

_MOST_TRIES = 4
"""To begin a copy back earlier, until it is there in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A tensor (``value``) with ``bytes``, written at the place ``first`` and read by nobody
    between the places ``last`` and ``next``; a copy takes ``out_seconds`` and ``back_seconds``."""

    value: int
    bytes: int
    first: int
    last: int
    next: int
    out_seconds: float
    back_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSwap:
    """The tensor is gone from the place ``out`` on, and there again from ``back`` on."""

    tensor: Waiting
    out: int
    back: int


_Event = tuple[int, int, int]
"""An event of a swap: its place, its kind (the tensor is written, is gone, begins to come back, is
read) and the number of the swap."""


class SwapPlanner:
    """Swaps along one order: ``seconds`` and ``held`` are by place, the latter in bytes.

    ``may_wait`` says whether computation may wait for copies; ``host_bytes`` are free there.
    """

    def __init__(
        self,
        tensors: Sequence[Waiting],
        seconds: Sequence[float],
        held: Sequence[int],
        budget_bytes: int,
        host_bytes: int,
        *,
        may_wait: bool = True,
    ) -> None:
        self.tensors, self.budget_bytes = tensors, budget_bytes
        self.host_bytes, self.may_wait = host_bytes, may_wait
        self.clock = [*accumulate(seconds, initial=0.0)]
        self.held = list(held)
        self.swaps: dict[int, PlannedSwap] = {}
        self.numbers: dict[int, int] = {}
        self.events: list[_Event] = []
        self.extra_seconds = 0.0

    @property
    def over_bytes(self) -> int:
        """By how much the fullest place is over the budget."""
        return max(max(self.held, default=0) - self.budget_bytes, 0)

    def run(self) -> tuple[PlannedSwap, ...]:
        """Swaps until the budget is kept or nothing helps any more."""
        least = LEAST_SECONDS_SHARE * max(self.clock[-1], 1e-12)
        while self.over_bytes:
            best: tuple[float, PlannedSwap, float] | None = None
            excess = [max(held - self.budget_bytes, 0) for held in self.held]
            for swap, extra in self._candidates():
                added = extra - self.extra_seconds
                if added > least and not self.may_wait:
                    continue
                worth = self._relief(swap, excess) / max(added, least)
                if best is None or worth > best[0]:
                    best = worth, swap, extra
            if best is None:
                break
            _, swap, self.extra_seconds = best
            for place in chain(*self._relieved(swap)):
                self.held[place] -= swap.tensor.bytes
            self.events = self._events_with(swap)
            self.numbers.setdefault(swap.tensor.value, len(self.numbers))
            self.swaps[swap.tensor.value] = swap
        return tuple(self.swaps.values())

    def _candidates(self) -> Iterator[tuple[PlannedSwap, float]]:
        """Swaps that relieve the fullest place, each with the seconds then waited in all."""
        fullest = max(range(len(self.held)), key=self.held.__getitem__)
        left = self.host_bytes - sum(swap.tensor.bytes for swap in self.swaps.values())
        waiting = []
        for tensor in self.tensors:
            known = self.swaps.get(tensor.value)
            is_there = known is None or not known.out <= fullest < known.back
            if is_there and tensor.last < fullest < tensor.next and (known or tensor.bytes <= left):
                waiting.append(tensor)
        waiting.sort(key=lambda tensor: (-tensor.bytes, tensor.last))
        for tensor in waiting[:MOST_CANDIDATES]:
            yield self._around(tensor, fullest)

    def _around(self, tensor: Waiting, fullest: int) -> tuple[PlannedSwap, float]:
        """The swap that is gone for long, in any case at the place that is ``fullest`` and where it
        was before, and makes nobody wait unless that takes it; with what is waited in all."""
        known = self.swaps.get(tensor.value)
        last_out = fullest if known is None else min(known.out, fullest)
        first_back = fullest + 1 if known is None else max(known.back, fullest + 1)
        swap = PlannedSwap(tensor=tensor, out=last_out, back=first_back)
        extra, done, _ = self._times(swap)
        out = min(bisect_left(self.clock, done, tensor.last + 1), last_out)
        target = self.clock[tensor.next] - tensor.back_seconds
        for _ in range(_MOST_TRIES):
            back = max(bisect_right(self.clock, target, 0, tensor.next + 1) - 1, first_back)
            swap = replace(swap, out=out, back=back)
            extra, _, late = self._times(swap)
            if late <= 0 or back == first_back:
                break
            target -= late
        return swap, extra

    def _relieved(self, swap: PlannedSwap) -> tuple[range, ...]:
        """The places at which the tensor is gone that was there before."""
        known = self.swaps.get(swap.tensor.value)
        if known is None:
            return (range(swap.out, swap.back),)
        return range(swap.out, known.out), range(known.back, swap.back)

    def _relief(self, swap: PlannedSwap, excess: Sequence[int]) -> int:
        """Bytes over the budget that the swap takes away, summed over the places."""
        size = swap.tensor.bytes
        parts = (excess[places.start : places.stop] for places in self._relieved(swap))
        return sum(sum(map(min, part, repeat(size))) for part in parts)

    def _times(self, changed: PlannedSwap) -> tuple[float, float, float]:
        """The seconds that computation waits for copies in all with one swap ``changed``; when the
        copy out of that is done, and how late its copy back is, by the clock that does not wait."""
        swaps = list({**self.swaps, changed.tensor.value: changed}.values())
        out_free = back_free = waited = out_done = late = 0.0
        done: dict[int, float] = {}
        ready: dict[int, float] = {}
        for place, kind, number in self._events_with(changed):
            tensor, now = swaps[number].tensor, self.clock[place] + waited
            if kind == 0:
                out_free = done[number] = max(out_free, now) + tensor.out_seconds
                if swaps[number] is changed:
                    out_done = out_free - waited
            elif kind == 1:
                waited += max(done[number] - now, 0.0)
            elif kind == 2:
                back_free = ready[number] = max(back_free, now) + tensor.back_seconds
            else:
                if swaps[number] is changed:
                    late = ready[number] - now
                waited += max(ready[number] - now, 0.0)
        return waited, out_done, late

    def _events_with(self, changed: PlannedSwap) -> list[_Event]:
        """The events in order with one swap ``changed``."""
        number = self.numbers.get(changed.tensor.value, len(self.numbers))
        events = [event for event in self.events if event[2] != number]
        places = changed.tensor.first + 1, changed.out, changed.back, changed.tensor.next
        for kind, place in enumerate(places):
            insort(events, (place, kind, number))
        return events


def hidden_relief(
    step: StepMemory, reduction: StepReduction, cluster: Cluster, budget_bytes: int, host_bytes: int
) -> int:
    """Bytes that it comes nearer to the budget by copies that nothing waits for."""
    planner = swap_planner(step, reduction, cluster, budget_bytes, host_bytes, may_wait=False)
    before = planner.over_bytes
    planner.run()
    return before - planner.over_bytes


def swap_planner(
    step: StepMemory,
    reduction: StepReduction,
    cluster: Cluster,
    budget_bytes: int,
    host_bytes: int,
    *,
    may_wait: bool = True,
) -> SwapPlanner:
    """Plans which tensors wait on the host so that the device of ``reduction`` holds no more than
    the budget, resident bytes aside, along its order."""
    device = reduction.device
    held = step.in_use(reduction.order)[device].tolist()
    seconds = [
        reduction.seconds[op] if step.layout.devices[op] == device else 0.0
        for op in reduction.order
    ]
    least = int(_LEAST_SHARE * budget_bytes)
    tensors = list(_waiting(reduction, cluster, seconds, least))
    return SwapPlanner(tensors, seconds, held, budget_bytes, host_bytes, may_wait=may_wait)


def _waiting(
    reduction: StepReduction, cluster: Cluster, seconds: Sequence[float], least_bytes: int
) -> Iterator[Waiting]:
    """The tensors that may be swapped: each is written once in a step, read on its device alone,
    and whoever reads it late can read the copy instead."""
    layout, device, place = reduction.layout, reduction.device, reduction.place
    out, back = (
        cluster.link(*ends) for ends in ((device, cluster.host.name), (cluster.host.name, device))
    )
    joinable = joinable_ops(reduction.graph) - reduction.fixed
    plain = recomputable_ops(reduction.graph) - reduction.fixed
    # a join would be copied with all its outputs, of which others may not be late
    joins = {layout.names[op] for op, outputs in enumerate(layout.outputs) if len(outputs) > 1}
    clock = [*accumulate(seconds, initial=0.0)]
    handed_on = _handed_on(reduction)
    for root, readers in reduction.readers.items():
        op, size = layout.producer[root], layout.bytes[root]
        if (
            size <= least_bytes
            or root not in layout.outputs[op]  # an image in another order, made of one
            or layout.memory[root] != device
            or layout.effects[op] != Effect.PLAIN
            or layout.names[op] not in joinable
            or any(layout.devices[other] != device for other in (op, *readers))
        ):
            continue
        uses = sorted({place[op], *map(place.__getitem__, readers)})
        if len(uses) < 2:
            continue
        last, following = max(pairwise(uses), key=lambda pair: clock[pair[1]] - clock[pair[0]])
        late = [reader for reader in readers if place[reader] >= following]
        early = {v for reader in late for v in handed_on(root, reader) if place[v] < following}
        if all(layout.names[view] in plain - joins for view in early):
            yield Waiting(
                value=root,
                bytes=size,
                first=place[op],
                last=last,
                next=following,
                out_seconds=transfer_seconds(size, out),
                back_seconds=transfer_seconds(size, back),
            )


def _handed_on(reduction: StepReduction) -> Callable[[int, int], Iterator[int]]:
    """Returns a function from a buffer and its reader to the views in between."""
    layout, roots = reduction.layout, reduction.roots

    def views(root: int, reader: int) -> Iterator[int]:
        for value in layout.inputs[reader]:
            while roots[value] == root and value != root:
                yield layout.producer[value]
                value = layout.shared[value][0]

    return views
