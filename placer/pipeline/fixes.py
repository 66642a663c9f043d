"""The smallest changes with which an infeasible request has a placement.

The problem says what it does not rule out (:mod:`placer.solving.conflicts.conflict`); here each
change is asked for, and placed, before anybody reads of it.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cost_models.byte_sizes import (
    format_bytes,
    format_count,
    parse_bytes,
    spell_bytes,
)
from cost_models.clusters import Devices, parse_cluster
from cost_models.devices import presets
from placer.errors import NoSolutionError, PlacerError
from placer.fitting.placed_order import FREE
from placer.graph.passes.roles import find_roles
from placer.pipeline.fitting import fit_workload
from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import decide_splits, prepare, too_large
from placer.pipeline.solved_plan import fitted_plan
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan
from placer.plan.request import AUTO, NEVER, Options
from placer.problem.conflict import Conflict, Fix
from placer.problem.grouping import GRADIENTS, HINTS, together_request
from placer.problem.limits import limits_for, limits_option, spell_limits
from placer.problem.pins import pin_request
from placer.problem.placement_problem import NEVER_SPILL
from placer.solving.process import clock

_LOG = logging.getLogger(__name__)

LEAST_STEP = 1.02
"""Caps and the best of them that is known not to do are this close when the search ends."""

NO_LESS = f"{LEAST_STEP - 1:.0%} less cannot fit"
"""The note of caps that are proven to be the least, to one part in a thousand, and then rounded up
by less than one per cent (:func:`~cost_models.byte_sizes.spell_bytes`)."""

_MOST_TRIAL_SECONDS = 6.0
_LEAST_TRIAL_SECONDS = 3.0
_FIT_SHARE = 0.5
"""Share of the time that is left: rewriting a step takes several predictions."""

_AMPLE = 1024.0
"""Times the least caps that could be enough: what is required where nothing is scarce."""

_DEVICE_STRING = "the device string "

Attempt = Callable[[Devices, Options], Plan]
"""The plan for the same program on some devices with some options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedFix(Fix):
    """A fix with the ``plan`` that shows it."""

    plan: Plan

    @property
    def row(self) -> Fix:
        """The change as a plan keeps it."""
        return Fix(kind=self.kind, change=self.change, note=self.note)


def with_fixes(plan: Plan, workload: Workload, devices: Devices, deadline: float) -> Plan:
    """``plan`` with what would fit, if it is proven that nothing does, or does without ``fit``."""
    if plan.conflict is None or not plan.proof:
        return plan
    _LOG.info("searching what would fit")
    until = min(deadline, clock.monotonic() + 10.0)  # at most
    smaller = list(_without_unused(workload, plan.conflict, until))
    attempt = placements_of(workload)
    trains = bool(find_roles(workload.graph).gradients)
    tables = isinstance(workload.source, str | os.PathLike) and bool(too_large(workload))
    found = placed_fixes(
        attempt, devices, workload.wanted, plan.conflict, until, trains=trains, tables=tables
    )
    fixes = (*smaller, *(fix.row for fix in found))
    return replace(plan, conflict=replace(plan.conflict, fixes=fixes))


def _without_unused(workload: Workload, conflict: Conflict, deadline: float) -> Iterator[Fix]:
    """Yields the model without the variables that nothing uses, which a plan has on the host."""
    host, size = workload.cluster.host.name, workload.extraction.stored.dropped_bytes
    if not size or host not in (conflict.devices or ()):
        return
    left = sum(workload.graph.idle_bytes[host]) - size
    smaller = workload.with_graph(workload.graph.with_idle({host: (left,) if left else ()}))
    seconds = min(workload.wanted.time_limit, _MOST_TRIAL_SECONDS)
    smaller = replace(smaller, wanted=replace(workload.wanted, time_limit=seconds))
    if clock.monotonic() < deadline and place_workload(smaller).fits:
        change = (
            f"placer apply {workload.source} --clear --drop-unused -o SMALLER, then place SMALLER "
            f"instead of {workload.source}"
        )
        yield Fix(kind="unused", change=change, note=f"{format_bytes(size)} that nothing uses")


def placements_of(workload: Workload) -> Attempt:
    """Places ``workload`` on other devices or with other options; for another batch size or other
    tables its source is read again, and its step left as it is."""

    def attempt(devices: Devices, wanted: Options) -> Plan:
        own = workload.wanted
        if wanted.fit and not own.fit:  # with the step as it is, nothing fits
            plan = fitted_plan(fit_workload(workload.on(devices, wanted)))
            if plan is None:
                raise NoSolutionError("does not fit whatever is done to the step")
            return plan
        if (wanted.split_tables, wanted.batch_size) == (own.split_tables, own.batch_size):
            return place_workload(workload.on(devices, wanted))
        wanted = replace(wanted, fit="", max_slowdown=None)
        wanted = decide_splits(workload.source, devices, wanted)
        return place_workload(prepare(workload.source, devices, wanted))

    return attempt


def placed_fixes(
    attempt: Attempt,
    devices: Devices,
    wanted: Options,
    conflict: Conflict | None,
    deadline: float,
    *,
    trains: bool = False,
    tables: bool = False,
) -> list[PlacedFix]:
    """Returns the fixes found until ``deadline`` (``clock.monotonic()``): each single request (to
    spill, a pin less) that is enough to drop, or the fewest; ``tables`` split that are too large;
    the step of a program that ``trains`` rewritten; the least cap of one device, and of all in
    conflict; the next larger devices; the largest batch.

    ``conflict`` is that of the problem, if it is proven infeasible: what cannot help is not tried.
    """
    trials = _Trials(attempt, devices, wanted, deadline)
    conflict = conflict or Conflict()
    steps = (
        trials.requests(conflict),
        trials.split() if tables else (),
        trials.fitted() if trains else (),
        trials.caps(conflict),
        trials.larger_devices(),
    )
    return [*(fix for step in steps for fix in step), *trials.batch()]


class _Trials:
    """Placements of a request with something changed, each in a share of the time."""

    def __init__(
        self, attempt: Attempt, devices: Devices, wanted: Options, deadline: float
    ) -> None:
        self.attempt = attempt
        self.devices = devices
        self.wanted = wanted
        self.deadline = deadline
        share = (deadline - clock.monotonic()) / 8  # of so many trials, each to the end
        self.trial_seconds = min(_MOST_TRIAL_SECONDS, max(_LEAST_TRIAL_SECONDS, share))
        self.cluster = parse_cluster(devices, wanted.max_memory, wanted.reserve)

    @property
    def is_over(self) -> bool:
        return clock.monotonic() > self.deadline

    def place(
        self,
        wanted: Options,
        devices: Devices | None = None,
        seconds: float | None = None,
    ) -> Plan | None:
        """A placement that fits; ``None`` if there was none in a short time."""
        if self.is_over:
            return None
        left = max(self.deadline - clock.monotonic(), 1.0)
        limit = min(wanted.time_limit, seconds or self.trial_seconds, left)
        limited = replace(wanted, time_limit=limit)
        try:
            plan = self.attempt(devices or self.devices, limited)
        except PlacerError:
            return None
        return plan if plan.fits else None

    def fitted(self) -> Iterator[PlacedFix]:
        """The step rewritten: gradients released, ops in order, tensors computed again."""
        wanted = self.wanted
        if wanted.fit or wanted.strategy or wanted.order != FREE or self.is_over:
            return
        seconds = max(self.trial_seconds, _FIT_SHARE * (self.deadline - clock.monotonic()))
        plan = self.place(replace(wanted, fit="auto"), seconds=seconds / 2)  # takes it twice
        if plan is not None:
            yield PlacedFix(kind="fit", change="--fit auto", note=fit_note(plan), plan=plan)

    def split(self) -> Iterator[PlacedFix]:
        """The tables split that no accelerator can hold."""
        if self.wanted.split_tables != NEVER or self.wanted.strategy or self.is_over:
            return
        seconds = max(self.trial_seconds, _FIT_SHARE * (self.deadline - clock.monotonic()))
        plan = self.place(replace(self.wanted, split_tables=AUTO), seconds=seconds)
        if plan is not None:
            splits = plan.model.get("splits", {}).items()
            note = ", ".join(f"{name} in {count} parts" for name, count in splits)
            change = "--split-tables auto"
            yield PlacedFix(kind="split", change=change, note=note, plan=plan)

    def requests(self, conflict: Conflict) -> Iterator[PlacedFix]:
        """Yields changes that could be enough as far as the problem tells; if none is, each request
        in conflict, and at last all of them."""
        rows = (*conflict.pins, *conflict.groups)
        blamed = [row.request for row in rows if row.request] or self._asked()
        likely = [fix.requests for fix in conflict.fixes if fix.requests]
        tried: set[tuple[str, ...]] = set()
        for trials in (likely, [(name,) for name in blamed], [tuple(blamed)]):
            names = [names for names in trials if names and names not in tried]
            tried.update(names)
            found = [fix for fix in map(self._without, names) if fix is not None]
            yield from found
            if found:
                return

    def _asked(self) -> list[str]:
        """Everything that was asked for and can be dropped."""
        wanted = self.wanted
        return [
            *(pin_request("--pin", *pin) for pin in wanted.pins.items()),
            *(pin_request("--pin-type", *pin) for pin in wanted.pin_types.items()),
            *map(together_request, wanted.keep_together),
            *([GRADIENTS] if wanted.colocate_gradients else []),
            *([HINTS] if wanted.keep_colocation else []),
            *([NEVER_SPILL] if wanted.offload == "never" else []),
        ]

    def _without(self, names: Sequence[str]) -> PlacedFix | None:
        """The request without some of what it asks for, if that has a placement."""
        fewer, changes = self.wanted, []
        for name in sorted(names, key=lambda n: (n != NEVER_SPILL, n.startswith(_DEVICE_STRING))):
            fewer, change = self._drop(fewer, name)
            changes.append(change)
        plan = self.place(fewer)
        if plan is None:
            return None
        groups = {GRADIENTS, HINTS, *map(together_request, self.wanted.keep_together)}
        are_groups = groups.issuperset(names)
        kind = "spill" if NEVER_SPILL in names else "group" if are_groups else "pin"
        return PlacedFix(kind=kind, change=" ".join(dict.fromkeys(changes)), note="", plan=plan)

    def _drop(self, wanted: Options, name: str) -> tuple[Options, str]:
        """``wanted`` without one request, and how to ask for that."""
        if name == NEVER_SPILL:
            return replace(wanted, offload="auto"), "--offload auto"
        if name.startswith(_DEVICE_STRING) and self.wanted.device_function is not None:
            return replace(wanted, device_function=None), "without the device function"
        if name.startswith(_DEVICE_STRING):
            return replace(wanted, clear_devices=True), "--clear-devices"
        fewer = replace(
            wanted,
            pins=_less(wanted.pins, "--pin", name),
            pin_types=_less(wanted.pin_types, "--pin-type", name),
            keep_together=tuple(g for g in wanted.keep_together if together_request(g) != name),
            colocate_gradients=wanted.colocate_gradients and name != GRADIENTS,
            keep_colocation=wanted.keep_colocation and name != HINTS,
        )
        return fewer, f"without {name}"

    def caps(self, conflict: Conflict) -> Iterator[PlacedFix]:
        """The least caps, of one device and of several, with a placement: from those on that the
        problem does not rule out."""
        rows = [fix.caps for fix in conflict.fixes if fix.caps]
        accelerators = {d.name: d.usable_bytes for d in self.cluster.devices if d.type != "CPU"}
        host = {self.cluster.host.name: self.cluster.host.usable_bytes}
        for least in rows or [accelerators or host]:
            found = self._least_factor(least)
            if found is not None:
                yield found

    def _least_factor(self, least: Mapping[str, int]) -> PlacedFix | None:
        """The caps ``least`` times a factor as near to one as was found to be enough."""
        factor, low = 1.0, 0.0
        best = self.place(self._with_caps(least, factor))
        if best is not None and self.wanted.fit:  # ``least`` is proven for the step as it is
            usable = {device.name: device.usable_bytes for device in self.cluster.devices}
            low = max(1 / _AMPLE, *(usable[name] / max(size, 1) for name, size in least.items()))
        elif best is None:
            factor, low = _AMPLE, 1.0
            best = self.place(self._with_caps(least, factor))
            if best is None:
                return None
            needed = best.required_bytes
            enough = max(needed[name] / max(size, 1) for name, size in least.items())
            plan = self.place(self._with_caps(least, enough)) if enough > low else None
            if plan is not None:
                factor, best = enough, plan
        while low and factor > low * LEAST_STEP and not self.is_over:
            middle = (low * factor) ** 0.5
            plan = self.place(self._with_caps(least, middle))
            if plan is None:
                low = middle
            else:
                factor, best = middle, plan
        if factor == _AMPLE:
            return None
        given = {device.name: device.memory_limit_bytes for device in self.cluster.devices}
        caps = self._limits(least, factor)
        if all(caps[name] == given[name] for name in least):  # an earlier search missed it
            change = "the same limits: search again, or with a longer --time-limit"
            return PlacedFix(kind="caps", change=change, plan=best)
        spelled = {name: format_bytes(parse_bytes(spell_bytes(caps[name]))) for name in least}
        sizes = [f"{n} from {format_bytes(given[n])} to {size}" for n, size in spelled.items()]
        tried = dict.fromkeys(format_bytes(self._limits(least, low)[name]) for name in least)
        less = f"{' and '.join(tried)} was tried in vain" if low else NO_LESS
        note = f"raises {', '.join(sizes)}; {less}"
        change = limits_option(caps)
        return PlacedFix(kind="caps", change=change, note=note, plan=best)

    def _with_caps(self, usable: Mapping[str, int], factor: float) -> Options:
        return replace(self.wanted, max_memory=spell_limits(self._limits(usable, factor)))

    def _limits(self, usable: Mapping[str, int], factor: float) -> dict[str, int]:
        """Returns the caps to ask for in place of those asked for, so that ``factor`` times
        ``usable`` bytes are usable once reserves are taken off."""
        least = {name: int(size * factor) for name, size in usable.items()}
        wanted = self.wanted
        return limits_for(self.cluster.devices, least, wanted.max_memory, wanted.reserve)

    def larger_devices(self) -> Iterator[PlacedFix]:
        """The accelerators of the next larger model with which there is a placement."""
        models = {d.model: d.memory_limit_bytes for d in self.cluster.devices if d.type != "CPU"}
        spec = str(self.devices)
        if len(models) != 1 or self.wanted.max_memory is not None or spec.endswith(".toml"):
            return
        ((model, memory),) = models.items()
        larger = sorted(
            (preset.card.usable_bytes, preset.model)
            for preset in presets().values()
            if preset.card is not None and preset.card.usable_bytes > memory
        )
        sizes = [larger[0], *(b for a, b in pairwise(larger) if b[0] != a[0])] if larger else []
        for _, other in sizes if model else ():
            item = rf"((?:^|,)\s*(?:\d+[xX])?){re.escape(model)}(?![\w-])"
            devices = re.sub(item, rf"\g<1>{other}", spec)
            plan = None if devices == spec else self.place(self.wanted, devices)
            if plan is not None:
                yield PlacedFix(kind="devices", change=f"--devices {devices}", note="", plan=plan)
                return

    def batch(self) -> Iterator[PlacedFix]:
        """The largest batch size with a placement."""
        given = self.wanted.batch_size
        if given is None or given < 2:
            return
        low, high, best = 0, given, None
        while high - low > 1 and not self.is_over:
            middle = (low + high) // 2
            plan = self.place(replace(self.wanted, batch_size=middle))
            if plan is None:
                high = middle
            else:
                low, best = middle, plan
        if best is not None:
            note = f"no placement was found for {high}" if high < given else f"none for {given}"
            yield PlacedFix(kind="batch", change=f"--batch-size {low}", note=note, plan=best)


def fit_note(plan: Plan) -> str:
    """Returns a note on how the step of ``plan`` was made to fit, with the predicted cost."""
    done = []
    if plan.rewriting.released:
        done.append("releasing gradients after their updates")
    if plan.rewriting.clones:
        done.append(f"computing {format_count(len(plan.rewriting.clones), 'op')} twice")
    if plan.rewriting.swaps:
        done.append(f"{format_count(len(plan.rewriting.swaps), 'tensor')} on the host meanwhile")
    if plan.control_edges:
        done.append(format_count(len(plan.control_edges), "control edge"))
    longer = f"step {plan.metrics.fit_extra_share:.1%} longer (predicted)"
    return f"{longer}: {', '.join(done)}"


def _less(pins: Mapping[str, str], flag: str, dropped: str) -> dict[str, str]:
    return {g: device for g, device in pins.items() if pin_request(flag, g, device) != dropped}
