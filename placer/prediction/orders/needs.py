"""The memory that all devices need, over the orders that a step may run in.

A GPU's allocator must serve them; a CPU must hold what lives at once.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from placer.graph.walks import grouped
from placer.prediction.memory.allocations import Allocations, find_allocations
from placer.prediction.memory.allocator import rounded_bytes
from placer.prediction.memory.need import (
    MOST_STEPS,
    KeptChunks,
    Need,
    find_need,
    peak_in_use,
    serves,
)
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import ONE_REGION, MemoryNeed, NeedParts, PeakRange
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.step.routes import is_cpu
from placer.prediction.step.thread_pool import ThreadedStep

_UNFOLLOWED_SHARES_OF_LOOPS = (0.15, 0.3)
"""The same where iterations run on the GPU, of one loop at a time or of several: their many
requests are alike, and one of several iterations at once may come first.  LSTM and GRU of that
benchmark had up to 14% more in use than along the orders that are followed, Bidirectional, whose
loops run side by side, 23%.  Up to twice the share beyond the median order is left for the largest
request: a chunk of less than twice what is asked for is not split, and which ones are free
differs."""

_UNKNOWN_IN_USE = 0.01
"""How far peaks in use were beyond those that were followed."""


def requests_along(
    step: StepMemory, orders: Iterable[Sequence[str]]
) -> list[dict[str, Allocations]]:
    """Returns what the allocator of every device is asked for along each order, each a step of its
    own."""
    return [find_allocations(step, order, sample) for sample, order in enumerate(orders)]


def peaks_in(asked: Mapping[str, Allocations]) -> dict[str, int]:
    """The peak of every device along the order in which that is asked for."""
    return {name: allocations.peak_bytes for name, allocations in asked.items()}


def peaks_at_once(step: StepMemory, threaded: Sequence[ThreadedStep]) -> list[dict[str, int]]:
    """The peaks of every device where ops run at once as in ``threaded`` steps."""
    return [
        step.peaks(concurrent.order.names, sample, concurrent.order.lasts)
        for sample, concurrent in enumerate(threaded)
    ]


def needs_along(
    step: StepMemory,
    requests: Sequence[Mapping[str, Allocations]],
    peaks: Sequence[Mapping[str, int]],
    devices: Collection[str] | None = None,
) -> dict[str, MemoryNeed]:
    """Returns what all devices, or those named, need: GPUs for the ``requests`` along each order,
    in one region; CPUs for the ``peaks`` along each."""
    return {
        name: _of_peaks([along[name] for along in peaks], step.resident_bytes(name))
        if is_cpu(name)
        else _of_requests(step, name, [along[name] for along in requests])
        for name in (step.device_names if devices is None else devices)
    }


def _of_peaks(peaks: Sequence[int], resident_bytes: int) -> MemoryNeed:
    """Returns what a CPU needs: what lives at once, in no allocator's chunks."""
    need = range_of(peaks, resident_bytes)
    return MemoryNeed(
        allocator="",
        in_use=need,
        need=need,
        with_workspace_bytes=need.expected_bytes,
        tensor_bytes=need.expected_bytes,
        workspace_bytes=0,
        padding_bytes=0,
        fragmentation_bytes=0,
    )


def _of_requests(step: StepMemory, name: str, requests: Sequence[Allocations]) -> MemoryNeed:
    """Returns what a GPU's allocator needs for those along each order; the range of bytes in use is
    a little wider."""
    kept = KeptChunks(requests[0])
    needs: list[Need] = []
    for asked in requests:
        near = needs[-1].need_bytes if needs else 0
        needs.append(find_need(asked, kept=kept, near=near))
    resident_bytes = _resident_bytes(step, name)
    in_use = range_of([need.in_use_bytes for need in needs], resident_bytes)
    in_use = replace(
        in_use,
        low_bytes=max(int(in_use.low_bytes * (1 - _UNKNOWN_IN_USE)), resident_bytes),
        high_bytes=ceil(in_use.high_bytes * (1 + _UNKNOWN_IN_USE)),
    )
    unfollowed = _unfollowed(step, requests[0])
    need = _range_of_needs([need.need_bytes for need in needs], resident_bytes, unfollowed)
    index = next(i for i, found in enumerate(needs) if found.need_bytes == need.expected_bytes)
    typical, asked = needs[index], requests[index]
    return MemoryNeed(
        allocator=ONE_REGION,
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
        along=tuple([(found.need_bytes, found.peak_asker) for found in needs]),
    )


def _resident_bytes(step: StepMemory, name: str) -> int:
    """Returns what is resident on a GPU, in chunks."""
    held = (*step.resident.get(name, {}).values(), *step.idle.get(name, ()))
    return sum(map(rounded_bytes, held))


def _unfollowed(step: StepMemory, asked: Allocations) -> tuple[float, int]:
    """Returns the share for a device that is asked for these chunks, and where iterations run
    there the bytes of the largest request."""
    names, owner = step.layout.names, step.owner
    asks = grouped(
        (owner[names[asker]], index)
        for index, asker in enumerate(asked.askers)
        if asker >= 0 and names[asker] in owner
    )
    if not asks:
        # more than along the orders that are followed, as a share of what is not resident: which
        # chunk a request gets depends on all of the order, and threads that wait for their turn
        # change that from step to step (``benchmarks/simulated``)
        return 0.05, 0
    # a gradient's loop begins ahead, with what reads nothing of the loop before
    halves = sorted((found[len(found) // 4], found[3 * len(found) // 4]) for found in asks.values())
    at_once = any(after[0] < before[1] for before, after in pairwise(halves))
    largest = max(asked.sizes[chunk] for chunk in asked.events if chunk >= 0)
    return _UNFOLLOWED_SHARES_OF_LOOPS[at_once], largest


def _range_of_needs(
    needs: Sequence[int], resident_bytes: int, unfollowed: tuple[float, int]
) -> PeakRange:
    """Needs jump by whole chunks, so how far they are apart says nothing of what is beyond."""
    share, largest = unfollowed
    found, most = range_of(needs, resident_bytes), max(needs)
    beyond = max(0, int(share * (most - resident_bytes)))
    median = found.expected_bytes
    once_more = min(largest, int(2 * share * max(0, median - resident_bytes)))
    return replace(found, high_bytes=max(most + beyond, median + once_more))


def parts_of_needs(
    step: StepMemory,
    needs: Mapping[str, MemoryNeed],
    peaks: Mapping[str, PeakRange],
    requests: Sequence[Mapping[str, Allocations]],
    caps: Mapping[str, int],
) -> dict[str, MemoryNeed]:
    """The ``needs`` with what loading, the first step and later steps need on each GPU; the largest
    of these is no less than the highest of the ``peaks``.  No order needs less than the lowest of
    them, or than loading."""
    found = dict(needs)
    for name, need in needs.items():
        if not is_cpu(name):
            cap = caps.get(name, need.need.high_bytes)
            asked = [along[name] for along in requests]
            parts = _need_parts(step, name, need, peaks[name].high_bytes, asked, cap)
            floor = max(peaks[name].low_bytes, parts.loading_bytes, need.need.low_bytes)
            low = min(floor, need.need.expected_bytes)
            found[name] = replace(need, parts=parts, need=replace(need.need, low_bytes=low))
    return found


def _need_parts(
    step: StepMemory,
    name: str,
    need: MemoryNeed,
    peak_bytes: int,
    asked: Sequence[Allocations],
    cap: int,
) -> NeedParts:
    """Later steps are followed along the orders that need most in the whole."""
    resident_bytes = _resident_bytes(step, name)
    high, near = max(need.need.high_bytes, peak_bytes), need.need.expected_bytes
    unfollowed = _unfollowed(step, asked[0])
    worst = sorted(range(len(asked)), key=lambda index: -need.along[index][0])[:2]
    built, tuned = any(chunk < 0 for chunk in asked[0].kept), any(a.later for a in asked)

    def highest(found: Iterable[Allocations]) -> int:
        steps = [find_need(a.loaded(), near=near).need_bytes for a in found]
        return min(_range_of_needs(steps, resident_bytes, unfollowed).high_bytes, high)

    later = highest(asked[index].in_step(1) for index in worst) if built or tuned else high
    first = highest(asked[index] for index in worst) if built and tuned else high
    asker = need.along[worst[0]][1]
    op = step.layout.names[asker] if asker >= 0 else ""
    loading = min(find_need(asked[0].loading()).need_bytes, high)
    first = first if tuned else later
    if max(loading, first, later) < high:  # a peak, or how memory is divided when all is loaded
        first, later = high, later if tuned else high
    limit = resident_bytes + int((cap - resident_bytes) / (1 + unfollowed[0]))
    return NeedParts(
        loading_bytes=loading,
        first_step_bytes=first,
        later_steps_bytes=later,
        peak_op=step.owner.get(op, op),
        serves_split=peak_bytes <= cap < high
        and all(serves(a, limit, splits_all=True) for a in asked),
    )


def with_orders_ahead(
    step: StepMemory,
    known: Mapping[str, MemoryNeed],
    ahead: Iterable[Sequence[str]],
    requests: Sequence[Mapping[str, Allocations]] = (),
    limits: Mapping[str, int] | None = None,
) -> dict[str, MemoryNeed]:
    """Returns what was found, and what is needed where devices run ``ahead`` of each other, and
    where every step takes another one of these orders, or of those of the ``requests``.

    These orders are as far apart as they may be: they count where they need more than was found,
    and nothing is thought to be beyond.  With ``limits`` no more are followed once a device needs
    more than its own.
    """
    needs = dict(known)
    every = [*requests]

    def runs() -> Iterator[Mapping[str, Allocations]]:
        for sample, order in enumerate(ahead):
            every.append(find_allocations(step, order, sample))
            yield every[-1]
        yield from _in_other_orders(every, len(requests))

    for each in runs():
        needs = {name: _at_least(need, each[name]) for name, need in needs.items()}
        if limits and any(need.need.high_bytes > limits[name] for name, need in needs.items()):
            break
    return needs


def _in_other_orders(
    requests: Sequence[Mapping[str, Allocations]], count: int
) -> Iterator[dict[str, Allocations]]:
    """So many runs in which every step takes another order, where variables move: memory is then
    divided otherwise for the step that comes next."""
    moves = any(asked.moved for along in requests for asked in along.values())
    for seed in range(count if moves else 0):
        first, *later = random.Random(seed).choices(requests, k=MOST_STEPS)
        yield {
            name: replace(asked, later=tuple([each[name].in_step(1) for each in later]))
            for name, asked in first.items()
        }


def _at_least(known: MemoryNeed, asked: Allocations) -> MemoryNeed:
    """Returns what is needed if ``asked`` may be, too."""
    high = known.need.high_bytes
    if not known.allocator:
        need = replace(known.need, high_bytes=max(high, asked.peak_bytes))
        return replace(known, in_use=need, need=need)
    if serves(asked, high):
        return known
    found = find_need(asked, near=high)
    in_use = max(known.in_use.high_bytes, found.in_use_bytes)
    return replace(
        known,
        in_use=replace(known.in_use, high_bytes=in_use),
        need=replace(known.need, high_bytes=max(high, found.need_bytes)),
    )
