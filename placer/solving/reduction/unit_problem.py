"""The placement problem as every search sees it: units, nets and rows.

A unit is a set of ops that share a device, a net a tensor between units, a row one memory limit
per device (a moment of the step).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from placer.graph.walks import grouped
from placer.problem.placement_problem import PlacementProblem, ProblemTensor

OUTSIDE = -1
"""The anchor of the outside world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A limit: the ``weights`` of the units on device d sum to at most ``capacity[d]``."""

    weights: tuple[int, ...]
    capacity: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitProblem:
    """Units instead of ops; whatever is optimal here is optimal for the problem it came from.

    ``allowed`` has the device numbers of each unit (empty: it fits nowhere), ``unit_of`` the unit
    of each op, ``anchor`` the op of each unit that the others of it follow.  Where something is
    fetched, the outside world is a unit on the host without ops, whose anchor is :data:`OUTSIDE`.

    A net's ``bytes`` are paid once per device, other than its producer's, that holds a consumer.
    ``cost[unit][device]`` is paid by the unit on that device.
    """

    device_count: int
    host: int
    allowed: tuple[tuple[int, ...], ...]
    nets: tuple[ProblemTensor, ...]
    rows: tuple[Row, ...]
    cost: tuple[tuple[int, ...], ...]
    unit_of: tuple[int, ...]
    anchor: tuple[int, ...]

    @property
    def unit_count(self) -> int:
        """The number of units."""
        return len(self.allowed)

    def expand(self, device_of_unit: Sequence[int]) -> tuple[int, ...]:
        """One device number per op."""
        return tuple(device_of_unit[unit] for unit in self.unit_of)

    def project(self, device_of: Sequence[int]) -> tuple[int, ...]:
        """One device number per unit: its anchor's.

        If ``device_of`` is feasible for the problem this one was reduced from, so is the result,
        and it costs no more.
        """
        return tuple(self.host if op == OUTSIDE else device_of[op] for op in self.anchor)

    def alone(self) -> UnitProblem:
        """The problem of the units for themselves, each of which is then its own op."""
        units = tuple(range(self.unit_count))
        return replace(self, unit_of=units, anchor=units)

    def value(self, device_of_unit: Sequence[int]) -> int:
        """The cost of a placement of the units in bytes."""
        total = sum(costs[device] for costs, device in zip(self.cost, device_of_unit, strict=True))
        for net in self.nets:
            readers = {device_of_unit[unit] for unit in net.consumers}
            total += net.bytes * len(readers - {device_of_unit[net.producer]})
        return total

    def tie_rank(self, device_of_unit: Sequence[int]) -> tuple[int, float]:
        """Returns what decides between placements of one value, the least first: the devices in
        use, then the largest share of a row that one of them takes."""
        shares = [used / max(1, cap) for used, cap in self._loads(device_of_unit)]
        return len(set(device_of_unit)), max(shares, default=0.0)

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether every unit is where it may be and every row holds on every device."""
        places = zip(device_of_unit, self.allowed, strict=True)
        return all(device in allowed for device, allowed in places) and all(
            used <= cap for used, cap in self._loads(device_of_unit)
        )

    def _loads(self, device_of_unit: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The bytes on each device and its capacity, row by row."""
        for row in self.rows:
            load = _sums(row.weights, device_of_unit, self.device_count)
            yield from zip(load, row.capacity, strict=True)


def reduce_to_units(problem: PlacementProblem) -> UnitProblem:
    """One unit per group."""
    unit_of = numbered(problem.group)
    count = max(unit_of, default=-1) + 1
    rows = _memory_rows(problem, unit_of, count)
    slower = problem.slower_bytes or ((0,) * len(problem.device_names),) * len(unit_of)
    units = UnitProblem(
        device_count=len(problem.device_names),
        host=problem.host,
        allowed=with_room(rows, _allowed(problem, unit_of, count)),
        nets=(),
        rows=rows,
        cost=_sums_by_device(slower, unit_of, count),
        unit_of=unit_of,
        anchor=_first_ops(unit_of),
    )
    if problem.fetched:
        units, unit_of = _with_outside(units), (*unit_of, count)
    return replace(units, nets=merge_nets(_messages(problem), unit_of))


def _with_outside(units: UnitProblem) -> UnitProblem:
    """The units, without nets yet, and the outside world as the last of them."""
    return replace(
        units,
        allowed=(*units.allowed, (units.host,)),
        rows=tuple(replace(row, weights=(*row.weights, 0)) for row in units.rows),
        cost=(*units.cost, (0,) * units.device_count),
        anchor=(*units.anchor, OUTSIDE),
    )


def _messages(problem: PlacementProblem) -> list[ProblemTensor]:
    """All that may be sent with what it costs to send; the outside world is the last op."""
    outside, fetched = (len(problem.op_names),), frozenset(problem.fetched)
    found = [
        ProblemTensor(
            producer=tensor.producer,
            consumers=tensor.consumers + outside if number in fetched else tensor.consumers,
            bytes=tensor.bytes + problem.message_bytes,
        )
        for number, tensor in enumerate(problem.tensors)
    ]
    if problem.message_bytes:
        signals = grouped((before, after) for before, after in problem.control_edges)
        found += [
            ProblemTensor(producer=op, consumers=tuple(after), bytes=problem.message_bytes)
            for op, after in signals.items()
        ]
    return found


def numbered(names: Sequence[Hashable]) -> tuple[int, ...]:
    """The names replaced by numbers, which count from zero in the order of first appearance.

    >>> numbered([7, 3, 7, 9])
    (0, 1, 0, 2)
    """
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def _first_ops(unit_of: Sequence[int]) -> tuple[int, ...]:
    """The first op of each unit."""
    first: dict[int, int] = {}
    for op, unit in enumerate(unit_of):
        first.setdefault(unit, op)
    return tuple(first.values())


def _allowed(problem: PlacementProblem, unit_of: Sequence[int], count: int) -> list[set[int]]:
    """Where all ops of each unit may be."""
    allowed = [set(range(len(problem.device_names))) for _ in range(count)]
    for op, (unit, devices) in enumerate(zip(unit_of, problem.allowed, strict=True)):
        is_open = problem.may_use(op, problem.host)
        allowed[unit] &= {*devices, problem.host} if is_open else set(devices)
    return allowed


def _memory_rows(problem: PlacementProblem, unit_of: Sequence[int], count: int) -> tuple[Row, ...]:
    """The limits of all moments, with capacities no larger than everything together."""
    usable = tuple(
        capacity - transient
        for capacity, transient in zip(problem.capacity_bytes, problem.transient_bytes, strict=True)
    )
    resident = _sums(problem.resident_bytes, unit_of, count)
    rows = []
    for moment in problem.live_bytes or ({},):
        weights = list(resident)
        for op, size in moment.items():
            weights[unit_of[op]] += size
        total = sum(weights)
        capacity = tuple(min(total, cap) for cap in usable)
        rows.append(Row(weights=tuple(weights), capacity=capacity))
    return tuple(dict.fromkeys(rows))


def with_room(
    rows: Sequence[Row], allowed: Sequence[Collection[int]]
) -> tuple[tuple[int, ...], ...]:
    """The devices ``allowed`` for each unit, in order, that have room for it if they hold nothing
    else."""
    narrow: set[int] = set()  # units for which some device has none
    for row in rows:
        least = min(row.capacity)
        narrow.update(unit for unit, weight in enumerate(row.weights) if weight > least)

    def fits(unit: int, device: int) -> bool:
        return unit not in narrow or all(r.weights[unit] <= r.capacity[device] for r in rows)

    return tuple(
        tuple([device for device in sorted(devices) if fits(unit, device)])
        for unit, devices in enumerate(allowed)
    )


def merge_nets(
    tensors: Sequence[ProblemTensor], unit_of: Sequence[int]
) -> tuple[ProblemTensor, ...]:
    """The tensors between units: parallel ones summed, those within one unit or empty dropped."""
    merged: dict[tuple[int, tuple[int, ...]], int] = {}
    for tensor in tensors:
        if tensor.bytes == 0:
            continue
        producer = unit_of[tensor.producer]
        consumers = {unit_of[op] for op in tensor.consumers} - {producer}
        if consumers:
            key = (producer, tuple(sorted(consumers)))
            merged[key] = merged.get(key, 0) + tensor.bytes
    return tuple(
        ProblemTensor(producer=producer, consumers=consumers, bytes=size)
        for (producer, consumers), size in merged.items()
    )


def merge_units(problem: UnitProblem, root_of: Sequence[int]) -> UnitProblem:
    """The problem in which units with the same root are one unit, numbered by first appearance.

    It may use the devices that all of them may use and that have room for all of them.
    """
    new_of = numbered(root_of)
    count = max(new_of, default=-1) + 1
    allowed: list[set[int]] = [set(range(problem.device_count)) for _ in range(count)]
    anchor = [0] * count
    for unit, number in enumerate(new_of):
        allowed[number] &= set(problem.allowed[unit])
        if root_of[unit] == unit:
            anchor[number] = problem.anchor[unit]
    rows = tuple(
        Row(weights=_sums(row.weights, new_of, count), capacity=row.capacity)
        for row in problem.rows
    )
    return replace(
        problem,
        allowed=with_room(rows, allowed),
        nets=merge_nets(problem.nets, new_of),
        rows=rows,
        cost=_sums_by_device(problem.cost, new_of, count),
        unit_of=tuple(new_of[unit] for unit in problem.unit_of),
        anchor=tuple(anchor),
    )


def _sums_by_device(
    costs: Sequence[Sequence[int]], new_of: Sequence[int], count: int
) -> tuple[tuple[int, ...], ...]:
    columns = [_sums(column, new_of, count) for column in zip(*costs, strict=True)]
    return tuple(zip(*columns, strict=True))


def _sums(values: Sequence[int], new_of: Sequence[int], count: int) -> tuple[int, ...]:
    sums = [0] * count
    for value, number in zip(values, new_of, strict=True):
        sums[number] += value
    return tuple(sums)
