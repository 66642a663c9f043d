"""Whether a limit serves a step of which several ops run at once and wait for memory.

An op that asks for what is not there waits until another one has given back, and holds meanwhile
what it got before.  Its thread does nothing else, the others go on; memory has run out once all
that could give back wait.  ``AllocatorRetry`` of ``tensorflow/core/common_runtime`` gives up after
ten seconds, in which every kernel is done.

    thread 1   conv_grad_input ------>  conv_grad_input ---->         takes 40 MiB and gives back
    thread 2        asks ~~~~~~~~~~~~~~ conv_grad_filter ------>      where 60 MiB are free

The requests are those of :mod:`placer.prediction.memory.allocations`, made as the threads run:
who waits starts nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from placer.prediction.memory.allocations import Requests, as_written
from placer.prediction.memory.allocator import Allocator, OutOfMemoryError, rounded_bytes
from placer.prediction.memory.need import MOST_STEPS, AllocatorState, larger_limits
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.step.thread_pool import Gate, ThreadedStep

_RESOLUTION = 0.005
"""Limits are tried until so much of the least that serves is open."""


def serves_waiting(
    step: StepMemory,
    steps: Mapping[int, ThreadedStep],
    device: str,
    limit_bytes: int,
    *,
    growth: bool,
) -> bool:
    """Whether an allocator of ``device`` with this limit serves the ``steps``, one after the other;
    if it is only one, over and over.  Their keys are samples as for
    :func:`~placer.prediction.memory.allocations.find_allocations`."""
    state = AllocatorState(Allocator(limit_bytes=limit_bytes, growth=growth))
    in_turn = [*steps.items()]
    for sample, threaded in in_turn if len(in_turn) > 1 else in_turn * MOST_STEPS:
        numbers = step.numbers(threaded.graph.names)
        limited = _LimitedStep(step, sample, device, numbers, state)
        if state.step < 0:
            limited.asked.kept = as_written(step, limited.kept, device, sample)
            if not state.run(limited.asked, steps=0):
                return False
        if not limited.runs(threaded):
            return False
        if state.next_step(limited.finished()[device].moved) and len(in_turn) == 1:
            return True
    return True


def least_limit(
    serves: Callable[[int], bool],
    least_bytes: int,
    enough_bytes: int,
    larger: Sequence[float] = (),
) -> int:
    """The least limit from ``least_bytes`` on that serves, as do those that are ``larger`` by these
    shares (:func:`~placer.prediction.memory.need.larger_limits`); ``enough_bytes``, where nothing
    waits, does.

    >>> least_limit(lambda limit: limit >= 1_500_000, 1_000_000, 2_000_000)
    1500160
    """
    limit = least_bytes
    fails = None if serves(limit) else limit
    while True:
        if fails is not None:
            limit = _bisect(serves, fails, enough_bytes)
        tried = [each for each in larger_limits(limit, larger) if each < enough_bytes]
        fails = next((each for each in tried if not serves(each)), None)
        if fails is None:
            return limit


def _bisect(serves: Callable[[int], bool], fails: int, enough: int) -> int:
    """A limit that serves, hardly above one that does not."""
    while enough - fails > _RESOLUTION * enough:
        limit = rounded_bytes((fails + enough) // 2)
        if not fails < limit < enough:
            break
        if serves(limit):
            enough = limit
        else:
            fails = limit
    return enough


class _LimitedStep(Requests, Gate):
    """A step whose requests on ``device`` are made of the allocator of ``state`` as ops begin and
    end; ``numbers`` are those that the layout has for the ops."""

    def __init__(
        self,
        step: StepMemory,
        sample: int,
        device: str,
        numbers: Sequence[int],
        state: AllocatorState,
    ) -> None:
        layout = step.layout.sampled(sample)
        super().__init__(step, layout, range(len(layout.names)))
        self.asked, self.numbers, self.state = self.found[device], numbers, state
        self.made = 0
        self.waiting: dict[int, deque[int]] = {}

    def runs(self, threaded: ThreadedStep) -> bool:
        """Whether all ops have run."""
        self._begin()
        is_served = self._is_served(self._new_events()) and threaded.run(self) is not None
        self._end()
        return is_served and self._is_served(self._new_events())

    def start(self, op: int) -> bool:
        """Asks for the op's chunks; the op waits for those that it does not get."""
        number = self.numbers[op]
        if not self.layout.idle[number]:
            self._start(number)
        events = self._new_events()
        if not self._is_served(events):
            self.waiting[op] = events
        return not events

    def finish(self, op: int) -> Iterator[int]:
        """Gives the op's chunks back, to those that wait."""
        number = self.numbers[op]
        if not self.layout.idle[number]:
            self._finish(number)
        self._is_served(self._new_events())
        for waiting in [op for op, events in self.waiting.items() if self._is_served(events)]:
            del self.waiting[waiting]
            yield waiting

    def _new_events(self) -> deque[int]:
        events = deque(self.asked.events[self.made :])
        self.made = len(self.asked.events)
        return events

    def _is_served(self, events: deque[int]) -> bool:
        """Makes the requests, up to the first that is not served."""
        allocator, address = self.state.allocator, self.state.address
        while events:
            event = events[0]
            if event < 0:
                allocator.free(address.pop(~event))
            else:
                try:
                    address[event] = allocator.allocate(self.asked.sizes[event])
                except OutOfMemoryError:
                    return False
            events.popleft()
        return True
