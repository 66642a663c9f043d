"""The elements of a placement problem that can be in conflict, and the problem with some of them.

Every op may run on its ``unconfined`` devices (and on the host, if it may spill): kernels say so,
and nobody can change it.  Beyond that a placement keeps or breaks each of the *elements*:

- the cap of a device: at every moment its ops hold at most its capacity, and no op runs there whose
  working set is larger;
- a request: a pin, a device string, ops to be kept together;
- a colocation group: its ops are on one device;
- with ``spill: "never"``, the request that nothing spills.

A placement is feasible for the problem if and only if it keeps all elements.  A set of elements is
in conflict if every placement breaks one of them; elements that are left out can only make room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from placer.problem.placement_problem import (
    DEVICE_STRING,
    NEVER_SPILL,
    PIN,
    TOGETHER,
    PlacementProblem,
    Request,
)

CAP, REQUEST, SPILL, GROUP = "cap", "request", "spill", "group"

_LARGEST_INT = 2**62


@dataclass(frozen=True, slots=True)
class Element:
    """``number`` is that of a device, of a request, or of a colocation group."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Units that have to be packed into devices with caps.

    ``unit_of`` has the unit of each op, ``allowed[unit, device]`` where it may be and is not too
    large for; ``weights[row, unit]`` and ``capacity[device]`` are bytes, the capacity of a device
    without a cap is that of all units together.
    """

    unit_of: Any
    allowed: Any
    weights: Any
    capacity: Any
    capped: Any


class Elements:
    """The elements of ``problem``, numbered: caps first, then requests, then groups, the largest
    first."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.count = len(problem.op_names)
        self.devices = len(problem.device_names)
        names: dict[object, int] = {}
        groups = problem.colocation or problem.group
        numbers = [names.setdefault(name, len(names)) for name in groups]
        self.colocation = np.asarray(numbers, dtype=np.int64)
        self.all = (
            *(Element(CAP, device) for device in range(self.devices)),
            *(Element(REQUEST, number) for number in range(len(problem.requests))),
            *([Element(SPILL, 0)] if self._forbids_spilling() else []),
            *(Element(GROUP, int(number)) for number in self._ranked_groups()),
        )

    def with_capacity(self, capacity_bytes: Sequence[int]) -> Elements:
        """The elements of the same problem with other caps."""
        found = copy(self)
        found.problem = replace(self.problem, capacity_bytes=tuple(capacity_bytes))
        found.__dict__.pop("usable_bytes", None)
        return found

    def _forbids_spilling(self) -> bool:
        return self.problem.spill == "never" and bool(self.spillable.any())

    def _ranked_groups(self) -> Any:
        sizes = np.bincount(self.colocation, minlength=1)
        weight = np.zeros(len(sizes), dtype=self.op_weights.dtype)
        np.add.at(weight, self.colocation, self.op_weights.max(axis=0))
        several = np.flatnonzero(sizes > 1)
        return several[np.argsort(-weight[several].astype(float), kind="stable")]

    def request(self, number: int) -> Request | None:
        """The request that an element is, if it is one of the problem's."""
        element = self.all[number]
        return self.problem.requests[element.number] if element.kind == REQUEST else None

    def name(self, number: int) -> str:
        """How the request that an element is was asked for."""
        request = self.request(number)
        return NEVER_SPILL if request is None else request.name

    @cached_property
    def op_weights(self) -> Any:
        """Bytes of every op at every moment, ``[row, op]``.

        Moments that only say that an op is too wide for its devices are left out: ``working_sets``
        say so too, and do not count what is resident twice where caps are larger.
        """
        problem = self.problem
        live = [row for row in problem.live_bytes if not self._tells_width(row)] or [{}]
        total = sum(problem.resident_bytes) + sum(sum(moment.values()) for moment in live)
        dtype = np.int64 if total < _LARGEST_INT else object
        weights = np.tile(np.asarray(problem.resident_bytes, dtype=dtype), (len(live), 1))
        for row, moment in enumerate(live):
            for op, size in moment.items():
                weights[row, op] += size
        return np.unique(weights, axis=0) if dtype is np.int64 else weights

    def _tells_width(self, moment: Mapping[int, int]) -> bool:
        """Whether the moment is an op that no device of its own can hold, and nothing else."""
        problem = self.problem
        if len(moment) != 1 or not problem.working_set_bytes:
            return False
        ((op, size),) = moment.items()
        capacity = max((problem.capacity_bytes[d] for d in problem.allowed[op]), default=0)
        return size == problem.working_set_bytes[op] and size > capacity

    @cached_property
    def working_sets(self) -> Any:
        """Bytes that the device of an op holds at least while it runs."""
        sizes = self.problem.working_set_bytes or (0,) * self.count
        return np.asarray(sizes, dtype=np.int64 if max(sizes, default=0) < _LARGEST_INT else object)

    @cached_property
    def usable_bytes(self) -> list[int]:
        """What the ops of each device may hold together; below zero if not even none may."""
        problem = self.problem
        pairs = zip(problem.capacity_bytes, problem.transient_bytes, strict=True)
        return [capacity - transient for capacity, transient in pairs]

    @cached_property
    def unconfined(self) -> Any:
        """``[op, device]``: where each op may run, spilling aside."""
        found = np.zeros((self.count, self.devices), dtype=bool)
        for op, allowed in enumerate(self.problem.allowed):
            found[op, list(self.problem.unconfined.get(op, allowed))] = True
        return found

    @cached_property
    def spillable(self) -> Any:
        """Ops that the host may take by spilling, if that is allowed and no pin holds them."""
        problem = self.problem
        pinned_groups = {problem.group[op] for op in np.flatnonzero(self.pinned)}
        may_spill = [
            bool(may) or group in pinned_groups
            for may, group in zip(problem.spillable, problem.group, strict=True)
        ]
        found = np.asarray(may_spill, dtype=bool)
        return found if problem.spill == "auto" else found & ~self.unconfined[:, problem.host]

    @cached_property
    def pinned(self) -> Any:
        """Ops that some pin is about."""
        found = np.zeros(self.count, dtype=bool)
        for request in self.problem.requests:
            if request.kind == PIN:
                found[list(request.ops)] = True
        return found

    def alike(self, device: int) -> tuple[object, ...]:
        """What devices have in common that can swap names without any effect."""
        problem = self.problem
        return (
            problem.capacity_bytes[device],
            problem.transient_bytes[device],
            self.unconfined[:, device].tobytes(),
            tuple(device in request.devices for request in problem.requests),
            device == problem.host,
        )

    def packing(self, kept: Collection[int]) -> Packing:
        """What is left to place if only the elements numbered in ``kept`` hold."""
        elements = [self.all[number] for number in kept]
        requests = [self.problem.requests[e.number] for e in elements if e.kind == REQUEST]
        unit_of = self._units({e.number for e in elements if e.kind == GROUP}, requests)
        count = int(unit_of.max(initial=-1)) + 1
        allowed = np.ones((count, self.devices), dtype=bool)
        np.logical_and.at(allowed, unit_of, self._op_devices(elements, requests))
        weights = np.zeros((len(self.op_weights), count), dtype=self.op_weights.dtype)
        for row, weight in zip(self.op_weights, weights, strict=True):
            np.add.at(weight, unit_of, row)
        widths = np.zeros(count, dtype=self.working_sets.dtype)
        np.maximum.at(widths, unit_of, self.working_sets)
        capped = np.zeros(self.devices, dtype=bool)
        capped[[e.number for e in elements if e.kind == CAP]] = True
        heaviest = weights.max(axis=0, initial=0)
        for device in np.flatnonzero(capped):
            allowed[:, device] &= heaviest <= self.usable_bytes[device]
            allowed[:, device] &= widths <= self.problem.capacity_bytes[device]
        total = int(weights.sum(axis=1).max(initial=0))
        capacity = np.asarray(
            [min(total, self.usable_bytes[d]) if capped[d] else total for d in range(self.devices)],
            dtype=self.op_weights.dtype,
        )
        return Packing(
            unit_of=unit_of, allowed=allowed, weights=weights, capacity=capacity, capped=capped
        )

    def _units(self, groups: set[int], requests: Sequence[Request]) -> Any:
        """The unit of each op: kept groups together, all other ops on their own."""
        is_kept = np.zeros(int(self.colocation.max(initial=-1)) + 1, dtype=bool)
        is_kept[list(groups)] = True
        own = len(is_kept) + np.arange(self.count)
        unit_of = np.where(is_kept[self.colocation], self.colocation, own)
        joined = [group for request in requests for group in request.groups]
        if joined:
            ops = np.concatenate([np.asarray(group, dtype=np.int64) for group in joined])
            of_group = np.repeat(np.arange(len(joined)), [len(group) for group in joined])
            unit_of = _joined(unit_of, ops, of_group)
        return np.unique(unit_of, return_inverse=True)[1].reshape(-1)

    def _op_devices(self, elements: Sequence[Element], requests: Sequence[Request]) -> Any:
        """``[op, device]``: where requests and spilling let each op be."""
        host = self.problem.host
        spills = self.spillable.copy()
        if not self.all_may_spill(elements):
            spills[:] = False
        devices = self.unconfined.copy()
        for request in requests:
            ops = list(request.ops)
            asked = np.zeros(self.devices, dtype=bool)
            asked[list(request.devices)] = True
            if request.kind != TOGETHER:
                devices[ops] &= asked
            if request.kind == PIN:
                spills[ops] = False
            if request.kind == DEVICE_STRING:
                spills[ops] &= ~self.pinned[ops]
        devices[:, host] |= spills
        return devices

    def all_may_spill(self, elements: Sequence[Element]) -> bool:
        """Whether nothing that is kept forbids to spill."""
        return self.problem.spill == "auto" or (
            Element(SPILL, 0) in self.all and Element(SPILL, 0) not in elements
        )

    def broken_by(self, device_of: Sequence[int]) -> frozenset[int]:
        """The numbers of the elements that a placement breaks."""
        at = np.asarray(device_of, dtype=np.int64)
        apart = self._apart(at)
        return frozenset(
            number
            for number, element in enumerate(self.all)
            if (apart[element.number] if element.kind == GROUP else self._breaks(element, at))
        )

    def _breaks(self, element: Element, at: Any) -> bool:
        if element.kind == CAP:
            here = at == element.number
            load = self.op_weights[:, here].sum(axis=1).max(initial=0)
            widest = self.working_sets[here].max(initial=0)
            over = load > self.usable_bytes[element.number]
            return bool(over or widest > self.problem.capacity_bytes[element.number])
        if element.kind == SPILL:
            host = self.problem.host
            return bool(((at == host) & ~self.unconfined[:, host]).any())
        request = self.problem.requests[element.number]
        if request.kind == TOGETHER:
            return any(len(set(at[list(group)].tolist())) > 1 for group in request.groups)
        ops = list(request.ops)
        elsewhere = ~np.isin(at[ops], request.devices)
        if request.kind != PIN:
            spills = self.spillable[ops] & ~self.pinned[ops]
            elsewhere &= (at[ops] != self.problem.host) | ~spills
        return bool(elsewhere.any())

    def _apart(self, at: Any) -> Any:
        """Per colocation group, whether two of its ops are apart."""
        count = int(self.colocation.max(initial=-1)) + 1
        low, high = np.full(count, self.devices), np.full(count, -1)
        np.minimum.at(low, self.colocation, at)
        np.maximum.at(high, self.colocation, at)
        return high > low


def _joined(unit_of: Any, ops: Any, of_group: Any) -> Any:
    """The units with those of ``ops`` of the same ``of_group`` made one, until nothing changes."""
    while True:
        least = np.full(int(of_group.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(least, of_group, unit_of[ops])
        name = np.arange(int(unit_of.max()) + 1)
        np.minimum.at(name, unit_of[ops], least[of_group])
        if (name[unit_of] == unit_of).all():
            return unit_of
        unit_of = name[unit_of]
