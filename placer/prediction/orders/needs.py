"""What the allocators of all devices need, over the orders that a step may run in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from statistics import median_low

from placer.prediction.memory.allocations import Allocations, find_allocations
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.need import LARGER, KeptChunks, Need, find_need, peak_in_use, serves
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.memory.waiting import least_limit, serves_waiting
from placer.prediction.metrics import MemoryNeed, NeedParts
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.step.routes import is_cpu
from placer.prediction.step.thread_pool import ThreadedStep

_TYPICAL = 3
"""So many of the orders in which ops overlap are followed under limits in large graphs: all with
two threads."""

_MOST_OPS_WAITING = 10_000
"""It is followed how ops wait in graphs of so many: that takes seconds."""

_WORST_ORDERS = 2
"""Along so many orders it is followed what parts of a program need."""

_STEPS = 3
"""So many steps of different orders follow each other where memory grows: what regions one adds
stay, and the next one may not fit into them as well."""

_UNKNOWN_IN_GROWTH = 0.05
_UNKNOWN_IN_ONE_REGION = 0.01
"""How far peaks in use were beyond those that were followed (``benchmarks/allocator``): a region
that is added is not split for what fills more than half of it."""


def requests_along(
    step: StepMemory, orders: Iterable[Sequence[str]]
) -> list[dict[str, Allocations]]:
    """What the allocator of every device is asked for along each order, each a step of its own."""
    return [find_allocations(step, order, sample) for sample, order in enumerate(orders)]


def needs_along(
    step: StepMemory,
    requests: Sequence[Mapping[str, Allocations]],
    threaded: Sequence[ThreadedStep] = (),
    devices: Collection[str] | None = None,
) -> dict[str, MemoryNeed]:
    """What the allocators of all devices, or of those named, need for the ``requests`` along each
    order.

    That of a CPU grows, that of a GPU takes one region: what TensorFlow does unless told otherwise.
    More is in use where ops run at once, as in ``threaded`` steps.  Not all of it is needed, since
    an op waits until another has given back (:mod:`placer.prediction.memory.waiting`).  Where that
    takes long to follow, a typical one of these orders counts, without waiting.  The ops of
    iterations that run at once are small and do not wait, but what they keep lies strewn over all
    regions: where loops are laid out, what is needed along each of these orders may be."""
    devices = requests[0] if devices is None else devices
    kept = {name: KeptChunks(requests[0][name], growth=is_cpu(name)) for name in devices}

    def kept_as(name: str, asked: Allocations) -> KeptChunks:
        """In growth, where first values lie depends on the order in which they are written."""
        return KeptChunks(asked, growth=True) if is_cpu(name) and asked.kept else kept[name]

    found: dict[str, list[Need]] = {name: [] for name in devices}
    in_use: dict[str, list[int]] = {name: [] for name in devices}

    def find(name: str, asked: Sequence[Allocations]) -> list[Need]:
        """What is needed for those along each order, followed by the next ones where it grows."""
        needs: list[Need] = []
        for number, allocations in enumerate(_in_turn(asked) if is_cpu(name) else asked):
            near = needs[-1].need_bytes if needs else 0
            there = kept_as(name, allocations)
            need = find_need(allocations, growth=is_cpu(name), kept=there, near=near)
            if is_cpu(name) and allocations.later:
                need = replace(need, in_use_bytes=peak_in_use(asked[number], there))
            needs.append(need)
        return needs

    at_once = [
        find_allocations(step, concurrent.order.names, sample, concurrent.order.lasts)
        for sample, concurrent in enumerate(threaded)
    ]
    for name in devices:
        found[name] = find(name, [along[name] for along in requests])
        ways = [along[name] for along in at_once]
        needs = find(name, ways[: followed_under_limits(step)])
        in_use[name] = [need.in_use_bytes for need in needs]
        in_use[name] += [peak_in_use(way, kept_as(name, way)) for way in ways[len(needs) :]]
        if step.owner:
            found[name] += needs
        elif _is_followed_waiting(step):
            found[name] += _waiting(step, threaded, name, needs, found[name])
        else:
            found[name] += sorted(needs, key=lambda need: need.need_bytes)[len(needs) // 2 :][:1]
    return {
        name: _over_orders(
            needs,
            in_use[name],
            [along[name] for along in requests],
            growth=is_cpu(name),
            kept=kept[name],
            resident_bytes=sum(map(rounded_bytes, step.resident.get(name, {}).values()))
            + sum(map(rounded_bytes, step.idle.get(name, ()))),
        )
        for name, needs in found.items()
    }


def _in_turn(asked: Sequence[Allocations]) -> list[Allocations]:
    """Each followed by the next ones."""
    return [
        replace(asked[first], later=tuple([asked[turn] for turn in later]))
        for first, *later in (_turns(sample, len(asked)) for sample in range(len(asked)))
    ]


def _turns(first: int, count: int) -> list[int]:
    """The numbers of the orders of steps that follow each other."""
    return [turn % count for turn in range(first, first + min(_STEPS, count))]


def _waiting(
    step: StepMemory,
    threaded: Sequence[ThreadedStep],
    name: str,
    needs: Sequence[Need],
    known: Sequence[Need],
) -> list[Need]:
    """The ``needs`` of a device where ops wait: those that are above what is ``known``.

    The largest comes first; what it needs is enough for most others.  Larger limits that have to
    serve in growth, too, are tried along all orders in turns."""
    high, growth = max(need.need_bytes for need in known), is_cpu(name)
    found = list(needs)
    above = [sample for sample, need in enumerate(needs) if need.need_bytes > high]
    above.sort(key=lambda sample: -needs[sample].need_bytes)
    for turn, sample in enumerate(above):
        if needs[sample].need_bytes <= high:
            break
        steps = {turn: threaded[turn] for turn in _turns(sample, len(threaded))}
        serves = partial(serves_waiting, step, steps, name, growth=growth)
        larger = LARGER[turn % len(LARGER) :][:1] if turn else LARGER
        high = least_limit(serves, high, needs[sample].need_bytes, larger if growth else ())
        found[sample] = replace(needs[sample], need_bytes=high)
    return found


def parts_of_needs(
    step: StepMemory,
    needs: Mapping[str, MemoryNeed],
    requests: Sequence[Mapping[str, Allocations]],
) -> dict[str, MemoryNeed]:
    """The ``needs`` with what loading, the first step and later steps need on each GPU."""
    found = dict(needs)
    for name, need in needs.items():
        if not is_cpu(name):
            parts = _need_parts(step, need, [along[name] for along in requests])
            found[name] = replace(need, parts=parts)
    return found


def _need_parts(step: StepMemory, need: MemoryNeed, asked: Sequence[Allocations]) -> NeedParts:
    """Later steps are followed along the orders that need most in the whole."""
    high, near = need.need.high_bytes, need.need.expected_bytes
    found = [find_need(a, growth=False, near=near) for a in asked]
    worst = sorted(range(len(found)), key=lambda index: -found[index].need_bytes)[:_WORST_ORDERS]
    built, tuned = any(chunk < 0 for chunk in asked[0].kept), any(a.later for a in asked)

    def highest(found: Iterable[Allocations]) -> int:
        steps = [find_need(a.loaded(), growth=False, near=near).need_bytes for a in found]
        return min(range_of(steps, 0).high_bytes, high)

    later = highest(asked[index].in_step(1) for index in worst) if built or tuned else high
    first = highest(asked[index] for index in worst) if built and tuned else high
    asker = found[worst[0]].peak_asker
    name = step.layout.names[asker] if asker >= 0 else ""
    return NeedParts(
        loading_bytes=find_need(asked[0].loading(), growth=False).need_bytes,
        first_step_bytes=first if tuned else later,
        later_steps_bytes=later,
        peak_op=step.owner.get(name, name),
    )


def with_orders_ahead(
    step: StepMemory, known: Mapping[str, MemoryNeed], ahead: Iterable[Sequence[str]]
) -> dict[str, MemoryNeed]:
    """What was found, and what is needed where devices run ``ahead`` of each other.

    These orders are as far apart as they may be: they count where they need more than was found,
    and nothing is thought to be beyond.
    """
    needs = dict(known)
    for asked in requests_along(step, ahead):
        needs = {name: _at_least(need, asked[name]) for name, need in needs.items()}
    return needs


def followed_under_limits(step: StepMemory) -> int | None:
    """How many of the orders in which ops overlap, ``None`` for all: where loops are laid out, or
    it is followed how ops wait."""
    return None if step.owner or _is_followed_waiting(step) else _TYPICAL


def _is_followed_waiting(step: StepMemory) -> bool:
    return len(step.graph.ops) <= _MOST_OPS_WAITING


def _at_least(known: MemoryNeed, asked: Allocations) -> MemoryNeed:
    """What is needed if ``asked`` may be, too."""
    high = known.need.high_bytes
    if serves(asked, high, growth=known.growth):
        return known
    found = find_need(asked, growth=known.growth, near=high)
    in_use = max(known.in_use.high_bytes, found.in_use_bytes)
    return replace(
        known,
        in_use=replace(known.in_use, high_bytes=in_use),
        need=replace(known.need, high_bytes=max(high, found.need_bytes)),
    )


def _over_orders(
    needs: Sequence[Need],
    at_once: Sequence[int],
    requests: Sequence[Allocations],
    *,
    growth: bool,
    kept: KeptChunks,
    resident_bytes: int,
) -> MemoryNeed:
    """The ranges; of ``at_once``, bytes in use where ops overlap, one is expected if there is any.

    Where lasting chunks lie, and how well others fit between them, depends on who wrote variables
    first, in a program that is not known here: the range of bytes in use is wider by that.
    """
    in_use = range_of([*at_once, *(need.in_use_bytes for need in needs)], resident_bytes)
    unknown = _UNKNOWN_IN_GROWTH if growth else _UNKNOWN_IN_ONE_REGION
    in_use = replace(
        in_use,
        low_bytes=max(int(in_use.low_bytes * (1 - unknown)), resident_bytes),
        high_bytes=ceil(in_use.high_bytes * (1 + unknown)),
    )
    if at_once:
        in_use = replace(in_use, expected_bytes=median_low(at_once))
    need = range_of([need.need_bytes for need in needs], resident_bytes)
    index = next(i for i, found in enumerate(needs) if found.need_bytes == need.expected_bytes)
    typical = needs[index]
    asked = requests[min(index, len(requests) - 1)]  # of ops at once, on a CPU, there is no more
    return MemoryNeed(
        growth=growth,
        in_use=in_use,
        need=need,
        with_workspace_bytes=max(
            in_use.expected_bytes,
            peak_in_use(asked.with_elastic(), kept) if asked.elastic else 0,
        ),
        tensor_bytes=typical.tensor_bytes,
        workspace_bytes=typical.workspace_bytes,
        padding_bytes=typical.padding_bytes,
        fragmentation_bytes=typical.fragmentation_bytes,
    )
