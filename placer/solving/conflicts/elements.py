"""The elements of a placement problem that can be in conflict, and what is left to pack if only
some of them hold.

Every op may run on its ``unconfined`` devices (and on the host, if it may spill): kernels say so,
and nobody can change it.  Beyond that a placement keeps or breaks each of the *elements*, all of
them written as requests:

- the cap of a device: at every moment its ops hold at most its capacity, and no op runs there whose
  working set is larger;
- what was asked for: a pin, a device string, ops to be kept together;
- with ``spill: "never"``, that nothing spills;
- a colocation group: its ops are on one device.

A placement is feasible for the problem if and only if it keeps all elements.  A set of elements is
in conflict if every placement breaks one of them; elements that are left out can only make room.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from placer.graph.walks import grouped
from placer.problem.placement_problem import (
    DEVICE_STRING,
    NEVER_SPILL,
    PIN,
    PlacementProblem,
    Request,
)
from placer.solving.conflicts.packing import Packing, fits

CAP, SPILL, GROUP = "cap", "spill", "group"
"""Kinds of elements beside those of requests."""


class Elements:
    """The elements of ``problem``: caps first, then requests, then groups, the largest first.

    ``op_weights[row, op]`` are bytes at every moment, ``working_sets`` what the device of each op
    holds at least while it runs, ``unconfined[op, device]`` says where it may run, spilling aside.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        ops, devices = len(problem.op_names), len(problem.device_names)
        self.op_weights = _weights(problem)
        widths = problem.working_set_bytes or (0,) * ops
        self.working_sets = np.asarray(widths, dtype=self.op_weights.dtype)
        self.unconfined = np.zeros((ops, devices), dtype=bool)
        for op, allowed in enumerate(problem.allowed):
            self.unconfined[op, list(problem.unconfined.get(op, allowed))] = True
        self.pinned = np.zeros(ops, dtype=bool)
        for request in problem.requests:
            self.pinned[list(request.ops)] |= request.kind in (PIN, DEVICE_STRING)
        self.spillable = self._spillable()
        forbids_spilling = problem.spill == "never" and self.spillable.any()
        self.all = (
            *(Request(name=n, kind=CAP, devices=(d,)) for d, n in enumerate(problem.device_names)),
            *problem.requests,
            *([Request(name=NEVER_SPILL, kind=SPILL)] if forbids_spilling else []),
            *(Request(name="", kind=GROUP, groups=(group,)) for group in self._groups()),
        )

    def _spillable(self) -> Any:
        """Ops that the host may take by spilling, if that is allowed and no request holds them."""
        problem = self.problem
        pinned_groups = {problem.group[op] for op in np.flatnonzero(self.pinned)}
        is_held = [group in pinned_groups for group in problem.group]
        found = np.asarray(problem.spillable, dtype=bool) | np.asarray(is_held, dtype=bool)
        return found if problem.spill == "auto" else found & ~self.unconfined[:, problem.host]

    def _groups(self) -> list[tuple[int, ...]]:
        """The ops of every colocation group of several, the largest first."""
        members = grouped(
            (group, op) for op, group in enumerate(self.problem.colocation or self.problem.group)
        )
        weight = self.op_weights.max(axis=0)
        several = [tuple(ops) for ops in members.values() if len(ops) > 1]
        return sorted(several, key=lambda ops: -int(weight[list(ops)].sum()))

    def usable_bytes(self, capacity_bytes: Sequence[int] = ()) -> list[int]:
        """Returns what the ops of each device may hold together, maybe with other caps; below zero
        if not even none may."""
        caps = capacity_bytes or self.problem.capacity_bytes
        pairs = zip(caps, self.problem.transient_bytes, strict=True)
        return [capacity - transient for capacity, transient in pairs]

    def packing(self, kept: Collection[int], capacity_bytes: Sequence[int] = ()) -> Packing:
        """Returns what is left to pack if only the elements numbered in ``kept`` hold, maybe with
        other caps."""
        elements = [self.all[number] for number in kept]
        caps = capacity_bytes or self.problem.capacity_bytes
        usable = self.usable_bytes(caps)
        # units: what must share a device
        unit_of = _units(len(self.pinned), [group for e in elements for group in e.groups])
        order = np.argsort(unit_of, kind="stable")
        starts = np.searchsorted(unit_of[order], np.arange(unit_of.max(initial=-1) + 1))
        allowed = np.logical_and.reduceat(self._devices(elements)[order], starts, axis=0)
        weights = np.add.reduceat(self.op_weights[:, order], starts, axis=1)
        widths = np.maximum.reduceat(self.working_sets[order], starts)
        # devices with a cap: no unit is there that is too large alone
        capped = [e.devices[0] for e in elements if e.kind == CAP]
        heaviest, total = weights.max(axis=0), int(weights.sum(axis=1).max(initial=0))
        capacity = [total] * len(caps)
        for device in capped:
            allowed[:, device] &= (heaviest <= usable[device]) & (widths <= caps[device])
            capacity[device] = min(total, usable[device])
        return Packing(
            unit_of=unit_of,
            allowed=allowed,
            weights=weights,
            capacity=np.asarray(capacity, dtype=weights.dtype),
            capped=np.isin(np.arange(len(caps)), capped),
        )

    def _devices(self, elements: Sequence[Request]) -> Any:
        """``[op, device]``: where requests and spilling let each op be."""
        may_spill = self.problem.spill == "auto" or all(e.kind != SPILL for e in elements)
        spills = self.spillable & may_spill
        devices = self.unconfined.copy()
        for request in elements:
            ops = list(request.ops)
            if request.kind in (PIN, DEVICE_STRING):
                devices[ops] &= np.isin(np.arange(devices.shape[1]), request.devices)
                spills[ops] = False
        devices[:, self.problem.host] |= spills
        return devices


def may_fit(problem: PlacementProblem) -> bool:
    """Whether a placement of ``problem`` is known, or at least not ruled out by a short search."""
    elements = Elements(problem)
    return fits(elements.packing(range(len(elements.all)))) is not False


def _weights(problem: PlacementProblem) -> Any:
    """Bytes of every op at every moment, ``[row, op]``.

    Moments that only say that an op is too wide for its devices are left out: working sets say so
    too, and do not count what is resident twice where caps are larger.
    """
    live = [moment for moment in problem.live_bytes if not _tells_width(problem, moment)] or [{}]
    largest = sum(problem.resident_bytes) + sum(sum(moment.values()) for moment in live)
    # larger sums of bytes are summed as Python's integers
    is_small = max(largest, *problem.working_set_bytes, 0) < 2**62
    dtype = np.dtype(np.int64 if is_small else object)
    weights = np.tile(np.asarray(problem.resident_bytes, dtype=dtype), (len(live), 1))
    for row, moment in zip(weights, live, strict=True):
        row[list(moment)] += np.asarray(list(moment.values()), dtype=dtype)
    return np.unique(weights, axis=0) if is_small else weights


def _tells_width(problem: PlacementProblem, moment: Mapping[int, int]) -> bool:
    """Whether the moment is an op that no device of its own can hold, and nothing else."""
    if len(moment) != 1 or not problem.working_set_bytes:
        return False
    ((op, size),) = moment.items()
    capacity = max((problem.capacity_bytes[d] for d in problem.allowed[op]), default=0)
    return size == problem.working_set_bytes[op] and size > capacity


def _units(count: int, groups: Sequence[Sequence[int]]) -> Any:
    """The unit of each op: the ops of each group share one."""
    unit_of = np.arange(count)
    ops = np.fromiter(chain.from_iterable(groups), dtype=np.int64)
    of_group = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    while True:
        least = np.full(len(groups), count)
        np.minimum.at(least, of_group, unit_of[ops])
        name = np.arange(count)
        np.minimum.at(name, unit_of[ops], least[of_group])
        if (name[unit_of] == unit_of).all():
            return np.unique(unit_of, return_inverse=True)[1].reshape(-1)
        unit_of = name[unit_of]
