"""Changes of an infeasible problem under which it has a placement: what the problem does not rule
out.  For a program each is placed before anybody reads of it (:mod:`placer.pipeline.fixes`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from placer.problem.conflict import Fix
from placer.problem.placement_problem import TOGETHER
from placer.solving.conflicts.elements import CAP, GROUP, SPILL, Elements
from placer.solving.conflicts.packing import fits
from placer.solving.process import clock

_MOST_DROPPED = 3
"""Requests that are dropped together."""

_FINEST = 1000
"""Caps are searched to one part in so many, small ones to the byte."""


def find_fixes(elements: Elements, numbers: Sequence[int], deadline: float) -> Iterator[Fix]:
    """Changes that are enough, until ``deadline`` (of ``clock.monotonic()``), where the elements
    numbered in ``numbers`` are in conflict.

    Each request of the conflict that is enough to drop, or the fewest that are together; the cap of
    one device that has to grow the least, and those of all accelerators of the conflict, or if need
    be of more devices.
    """
    search = _Search(elements, deadline)
    requests = [n for n in numbers if elements.all[n].kind not in (CAP, GROUP)]
    yield from search.fewer_requests(requests)
    capped = [elements.all[n].devices[0] for n in numbers if elements.all[n].kind == CAP]
    yield from search.larger_caps(capped)


@dataclass(frozen=True, slots=True)
class _Search:
    elements: Elements
    deadline: float

    def fits(self, dropped: Collection[int] = (), caps: Sequence[int] = ()) -> bool:
        """Whether it is known that there is a placement without some elements, or with other
        caps."""
        kept = [number for number in range(len(self.elements.all)) if number not in dropped]
        is_over = clock.monotonic() > self.deadline
        return not is_over and fits(self.elements.packing(kept, caps)) is True

    def fewer_requests(self, numbers: Sequence[int]) -> Iterator[Fix]:
        """The requests that are enough to drop: single ones, else pairs, else three."""
        for count in range(1, _MOST_DROPPED + 1):
            found = [dropped for dropped in combinations(numbers, count) if self.fits(dropped)]
            for dropped in found:
                asked = [self.elements.all[number] for number in dropped]
                kinds = {{SPILL: "spill", TOGETHER: "group"}.get(one.kind, "pin") for one in asked}
                names = tuple(one.name for one in asked)
                change = f"without {' '.join(names)}"
                yield Fix(kind=min(kinds), change=change, requests=names)
            if found:
                return

    def larger_caps(self, capped: Sequence[int]) -> Iterator[Fix]:
        """The least cap of one device, and the least of several."""
        problem = self.elements.problem
        caps = problem.capacity_bytes
        # of devices that could swap names the first
        others = [number for number, one in enumerate(self.elements.all) if one.kind != CAP]
        allowed = self.elements.packing(others).allowed
        alike: dict[object, int] = {}
        for device in reversed(capped):
            sizes = caps[device], problem.transient_bytes[device]
            alike[device == problem.host, sizes, allowed[:, device].tobytes()] = device
        single = [raised for device in alike.values() if (raised := self._raised([device]))]
        found = sorted(single, key=sum)[:1]
        accelerators = [device for device in capped if device != problem.host]
        everything = () if found else range(len(caps))
        for devices in (accelerators, capped, everything):
            several = self._raised(devices) if len(devices) > 1 else None
            if several:
                found.append(several)
                break
        for raised in found:
            pairs = zip(problem.device_names, raised, caps, strict=True)
            named = {name: size for name, size, given in pairs if size != given}
            wanted = ",".join(f"{name}={size}" for name, size in named.items())
            yield Fix(kind="caps", change=f"--max-memory {wanted}", caps=named)

    def _raised(self, devices: Sequence[int]) -> tuple[int, ...] | None:
        """The least caps that are enough, those of ``devices`` larger by the same share of what is
        missing to have room for everything; ``None`` if that is not enough."""
        elements, given = self.elements, self.elements.problem.capacity_bytes
        total = int(elements.op_weights.sum(axis=1).max(initial=0))
        enough = max(total, int(elements.working_sets.max(initial=0)))
        most = max(enough + elements.problem.transient_bytes[device] for device in devices)

        def caps(part: int) -> tuple[int, ...]:
            missing = [max(0, most - size) if d in devices else 0 for d, size in enumerate(given)]
            return tuple(g + -(-m * part // most) for g, m in zip(given, missing, strict=True))

        if not most or not self.fits(caps=caps(most)):
            return None
        low, high = 0, most
        while high - low > 1 and any(
            more - less > less // _FINEST for less, more in zip(caps(low), caps(high), strict=True)
        ):
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(caps=caps(middle)) else (middle, high)
        return caps(high)
