"""The problem of the least transfer under caps on peaks, along orders that are known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placer.prediction.orders.execution_orders import highest_peak
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.problem.placement_problem import PlacementProblem
from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.reduction.unit_problem import UnitProblem


class Buffers(NamedTuple):
    """The buffers of a step as flat arrays, times as in
    :class:`~placer.prediction.orders.possible_lifetimes.PossibleLifetimes`; ``read_of`` is the
    buffer of each read, ``done`` until when its owner holds a buffer that nobody reads there."""

    owner: Ints
    first: Ints
    done: Ints
    size: Floats
    read_of: Ints
    reader: Ints
    read_first: Ints
    read_last: Ints
    read_size: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeakProblem:
    """Units with the buffers that they hold along ``orders`` orders of ``length`` ops each;
    ``resident`` are the bytes of every unit that are there all the time, ``capacity`` what every
    device may peak at; no placement transfers less than ``least_bytes``.  ``positions`` put the
    units in orders that are worth cutting into segments.  Where ``is_near``, the search stays near
    the placements that it is given: nothing is drawn anew.  Those that keep up to ``spread`` of
    every capacity free are of interest, too: what is predicted may be more than is counted.

    With ``rows``, the bytes of every unit at ``length`` moments, there are no buffers: the moments
    of a bare problem are all that is known of its step.
    """

    units: UnitProblem
    buffers: Buffers
    orders: int
    length: int
    resident: Floats
    capacity: tuple[int, ...]
    least_bytes: float = 0.0
    positions: tuple[Floats, ...] = ()
    is_near: bool = False
    spread: float = 0.0
    rows: Floats | None = None

    def steady(self) -> Floats:
        """``[unit, time]`` of what units hold wherever the others are, beside their buffers; one
        column if that is the same at all times."""
        return self.resident[:, None] if self.rows is None else self.rows

    def most_held(self) -> Floats:
        """The bytes that each unit keeps, and those of its largest buffer."""
        held, owner = np.zeros(self.units.unit_count), self.buffers.owner
        is_written = owner >= 0
        np.maximum.at(held, owner[is_written], self.buffers.size[is_written])
        return np.asarray(held + self.resident, np.float64)

    def heavy(self) -> Ints:
        """The units that count where placements are told apart: those that hold less than a
        thousandth of the largest cap of an accelerator are everywhere."""
        caps = [cap for device, cap in enumerate(self.capacity) if device != self.units.host]
        return np.flatnonzero(self.most_held() > 1e-3 * max(caps, default=0))

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The transfer of a placement in bytes."""
        return self.units.value(device_of_unit)

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether every unit is where it may be; peaks are for a prediction to judge, rows for the
        problem."""
        if self.rows is not None:
            return self.units.is_feasible(device_of_unit)
        return all(
            device in allowed
            for device, allowed in zip(device_of_unit, self.units.allowed, strict=True)
        )

    def peaks(self, device_of_unit: Sequence[int]) -> list[float]:
        """Returns what every device peaks at in bytes as the search counts it: the high end over
        the orders."""
        device_of = np.array(device_of_unit, np.int64)
        return [self.peak(device_of == device) for device in range(len(self.capacity))]

    def peak(self, is_here: Flags) -> float:
        """The same of a device with the units that are there."""
        kept = float(self.resident[is_here].sum())
        return float(highest_peak([*(self._along_orders(is_here) + kept)], kept))

    def _along_orders(self, is_here: Flags) -> Floats:
        """The peak along every order of what the units of one device hold beside what stays."""
        buffers, times = self.buffers, self.orders * self.length
        is_home = (buffers.owner >= 0) & is_here[buffers.owner]
        read = np.flatnonzero(is_here[buffers.reader])
        of = buffers.read_of[read]
        first = np.where(is_home, buffers.first, times)
        last = np.where(is_home, buffers.done, -1)
        size = np.where(is_home, buffers.size, 0.0)
        np.maximum.at(last, of, buffers.read_last[read])
        arrives = ~is_home[of]
        np.minimum.at(first, of[arrives], buffers.read_first[read][arrives])
        np.maximum.at(size, of[arrives], buffers.read_size[read][arrives])
        kept = np.flatnonzero(first <= last)
        change = np.bincount(first[kept], size[kept], minlength=times + 1)
        change -= np.bincount(last[kept] + 1, size[kept], minlength=times + 1)
        along = np.cumsum(change)[:times].reshape(self.orders, self.length)
        return np.asarray(np.maximum(0.0, along.max(axis=1)), np.float64)


def to_peak_problem(
    problem: PlacementProblem,
    units: UnitProblem,
    lifetimes: PossibleLifetimes,
    capacity: Sequence[int],
    positions: Sequence[Floats] = (),
) -> PeakProblem:
    """The peak problem of ``units``, which ``problem`` was reduced to."""
    unit_of = np.array(units.unit_of, np.int64)
    reads = np.diff(lifetimes.read_start)
    first = np.array(lifetimes.first, np.int64)
    buffers = Buffers(
        np.array(lifetimes.owner, np.int64),
        first,
        first,
        np.array(lifetimes.bytes, np.float64),
        np.repeat(np.arange(len(reads)), reads),
        np.array(lifetimes.reader, np.int64),
        np.array(lifetimes.read_first, np.int64),
        np.array(lifetimes.read_last, np.int64),
        np.array(lifetimes.read_bytes, np.float64),
    )
    resident = np.bincount(unit_of, problem.resident_bytes, minlength=units.unit_count)
    return PeakProblem(
        units=units,
        buffers=regroup(buffers, unit_of),
        orders=lifetimes.orders,
        length=lifetimes.length,
        resident=np.asarray(resident, np.float64),
        capacity=tuple(capacity),
        positions=tuple(positions),
    )


def to_row_problem(units: UnitProblem) -> PeakProblem:
    """The problem of units of which only rows are known."""
    none, sizes = np.zeros(0, np.int64), np.zeros(0)
    rows = np.zeros((units.unit_count, max(1, len(units.rows))))
    for number, row in enumerate(units.rows):
        rows[:, number] = row.weights
    capacity = [
        max((row.capacity[d] for row in units.rows), default=0) for d in range(units.device_count)
    ]
    return PeakProblem(
        units=units,
        buffers=Buffers(none, none, none, sizes, none, none, none, none, sizes),
        orders=1,
        length=rows.shape[1],
        resident=rows.max(axis=1),
        capacity=tuple(capacity),
        rows=rows,
    )


def regroup(buffers: Buffers, unit_of: Ints) -> Buffers:
    """The buffers for units; each reads a buffer once at most, from the first to the last of its
    reads."""
    owner = np.where(buffers.owner >= 0, unit_of[buffers.owner], -1)
    if not len(buffers.reader):
        return buffers._replace(owner=owner)
    reader = unit_of[buffers.reader]
    order = np.lexsort((reader, buffers.read_of))
    read_of, reader = buffers.read_of[order], reader[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (read_of[1:] != read_of[:-1]) | (reader[1:] != reader[:-1])
    starts = np.flatnonzero(is_new)
    return Buffers(
        owner,
        buffers.first,
        buffers.done,
        buffers.size,
        read_of[starts],
        reader[starts],
        np.minimum.reduceat(buffers.read_first[order], starts),
        np.maximum.reduceat(buffers.read_last[order], starts),
        np.maximum.reduceat(buffers.read_size[order], starts),
    )
