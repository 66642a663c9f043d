"""What would make an infeasible request fit; every answer was placed before it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placer.errors import PlacerError
from placer.explanation import reopen
from placer.pipeline import Workload, place, place_extraction, prepare, read_cluster
from placer.plan import Plan
from placer.request import Options
from placer.strategies.requests import fewest_parts

LEAST_STEP = 1.02
"""Caps and the best of them that is known not to do are this close when the search ends."""

_TRIAL_SECONDS = 6.0
_LARGEST_FACTOR = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change of the request under which there is a placement.

    ``kind`` is ``caps``, ``batch``, ``pin`` or ``spill``; ``change`` is what to ask for instead,
    as an option of the command line; ``note`` says how near to the least it is.  ``plan`` is the
    placement that shows it.
    """

    kind: str
    change: str
    note: str
    plan: Plan


def find_fixes(
    plan: Plan, source: Any = None, *, time_limit: float = 120.0, **changes: Any
) -> list[Fix]:
    """The smallest changes that make the request of an infeasible ``plan`` fit: to spill, one pin
    less, the largest batch, the smallest caps.

    Searches until ``time_limit`` seconds are over, and gives what was found by then.  Errors as
    for :func:`placer.explanation.reopen`.
    """
    search = _Search(plan, source, time_limit, changes)
    return [*search.spill(), *search.pins(), *search.caps(), *search.batch()]


def fewest_pieces(
    build: Callable[[int], Any], devices: str | Path, *, most: int = 64, **options: Any
) -> tuple[int, Plan]:
    """The fewest micro-batches whose predicted peaks fit ``devices``, and the plan for them.

    ``build`` gives the program for a number of pieces, such as ``lambda n: micro_batches(loss, n,
    optimizer=optimizer).get_concrete_function(*specs)``; ``options`` as for
    :func:`placer.pipeline.place`.  More pieces are taken to need no more memory.

    Raises :class:`NoSolutionError` if even ``most`` pieces were not found to fit.
    """
    return fewest_parts(
        lambda pieces: place(build(pieces), devices, **options), most, devices=str(devices)
    )


class _Search:
    def __init__(self, plan: Plan, source: Any, time_limit: float, changes: Any) -> None:
        self.deadline = time.monotonic() + time_limit
        self.source = source if source is not None else plan.model["path"]
        self.workload, wanted = reopen(plan, source, **changes)
        self.devices = plan.request["devices"]
        self.wanted = replace(wanted, time_limit=min(wanted.time_limit, _TRIAL_SECONDS))

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def place(self, workload: Workload, wanted: Options) -> Plan:
        return place_extraction(workload.extraction, workload.costs, workload.cluster, wanted)

    def spill(self) -> Iterator[Fix]:
        if self.wanted.spill != "never":
            return
        plan = self.place(self.workload, replace(self.wanted, spill="auto"))
        if plan.fits:
            yield Fix(kind="spill", change="--spill auto", note="", plan=plan)

    def pins(self) -> Iterator[Fix]:
        """Each pin that is enough to drop; if none is, all of them."""
        names, types = self.wanted.pins, self.wanted.pin_types
        trials = [
            (f"without --pin '{glob}={device}'", replace(self.wanted, pins=_less(names, glob)))
            for glob, device in names.items()
        ]
        trials += [
            (
                f"without --pin-type '{glob}={to}'",
                replace(self.wanted, pin_types=_less(types, glob)),
            )
            for glob, to in types.items()
        ]
        found = [fix for change, wanted in trials for fix in self.unpinned(change, wanted)]
        yield from found
        if not found and len(trials) > 1:
            yield from self.unpinned("without any pin", replace(self.wanted, pins={}, pin_types={}))

    def unpinned(self, change: str, wanted: Options) -> Iterator[Fix]:
        """The request with fewer pins, if it has a placement."""
        if self.is_over:
            return
        plan = self.place(self.workload, wanted)
        if plan.fits:
            yield Fix(kind="pin", change=change, note="", plan=plan)

    def caps(self) -> Iterator[Fix]:
        """The caps of the accelerators times the least factor; those of the host, or both, where
        that is what it takes."""
        devices = self.workload.cluster.devices
        host = self.workload.cluster.host.name
        accelerators = [device.name for device in devices if device.name != host]
        for names in filter(None, (accelerators, [host], [*accelerators, host])):
            if self.with_caps(names, _LARGEST_FACTOR).fits:
                break
        else:
            return
        found = self.least_factor(lambda factor: self.with_caps(names, factor))
        if found is None:
            return
        factor, plan, failing = found
        caps = ",".join(f"{name}={size}" for name, size in self.caps_times(names, factor).items())
        note = f"{factor:.2f} times what was given; no placement was found for {failing:.2f} times"
        yield Fix(kind="caps", change=f"--max-memory {caps}", note=note, plan=plan)

    def with_caps(self, names: Sequence[str], factor: float) -> Plan:
        """The placement with the caps of ``names`` times ``factor``, asked for as a user would."""
        caps: Mapping[int | str, int | str] = dict(self.caps_times(names, factor).items())
        wanted = replace(self.wanted, max_memory=caps)
        cluster = read_cluster(self.devices, wanted)
        return self.place(replace(self.workload, cluster=cluster), wanted)

    def caps_times(self, names: Sequence[str], factor: float) -> dict[str, int]:
        """Caps in bytes: of ``names`` times ``factor``, and that of the host if it was given."""
        given = "cpu" in str(self.wanted.max_memory).lower()
        return {
            device.name: int(device.memory_limit_bytes * (factor if device.name in names else 1))
            for device in self.workload.cluster.devices
            if device.name in names or device.type != "CPU" or given
        }

    def least_factor(self, attempt: Callable[[float], Plan]) -> tuple[float, Plan, float] | None:
        """A factor with a placement, that placement, and the largest smaller one without."""
        low, high, best = 1.0, 1.25, None
        while best is None and high <= _LARGEST_FACTOR and not self.is_over:
            plan = attempt(high)
            if plan.fits:
                best = plan
            else:
                low, high = high, high * (1.25 if high < 2 else 2.0)
        while best is not None and high > low * LEAST_STEP and not self.is_over:
            middle = (low * high) ** 0.5
            plan = attempt(middle)
            if plan.fits:
                high, best = middle, plan
            else:
                low = middle
        return None if best is None else (high, best, low)

    def batch(self) -> Iterator[Fix]:
        """The largest batch size with a placement."""
        given = self.wanted.batch_size
        if given is None or given < 2:
            return
        low, high, best = 0, given, None
        while high - low > 1 and not self.is_over:
            middle = (low + high) // 2
            try:
                wanted = replace(self.wanted, batch_size=middle)
                plan = self.place(prepare(self.source, self.devices, wanted), wanted)
            except PlacerError:
                return
            if plan.fits:
                low, best = middle, plan
            else:
                high = middle
        if best is not None:
            note = f"no placement was found for {high}" if high < given else f"{given} has none"
            yield Fix(kind="batch", change=f"--batch-size {low}", note=note, plan=best)


def _less(pins: Mapping[str, str], glob: str) -> dict[str, str]:
    return {other: device for other, device in pins.items() if other != glob}
