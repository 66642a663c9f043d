"""A placement of units while it is being changed: loads, readers of every net, cost of a move."""

from __future__ import annotations

from collections.abc import Sequence

from placer.solving.reduction.unit_problem import UnitProblem

UNPLACED = -1


class Incidence:
    """What does not change while a placement does: nets and weights of each unit."""

    def __init__(self, problem: UnitProblem) -> None:
        self.problem = problem
        count = problem.unit_count
        self.out_of: list[list[int]] = [[] for _ in range(count)]
        self.into: list[list[int]] = [[] for _ in range(count)]
        for number, net in enumerate(problem.nets):
            self.out_of[net.producer].append(number)
            for unit in net.consumers:
                self.into[unit].append(number)
        self.weights: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        for number, row in enumerate(problem.rows):
            for unit, weight in enumerate(row.weights):
                if weight:
                    self.weights[unit].append((number, weight))

    def neighbours(self, unit: int, most_readers: int) -> set[int]:
        """Units that share a net with ``unit``, nets of more than ``most_readers`` left out."""
        found: set[int] = set()
        for number in self.out_of[unit] + self.into[unit]:
            net = self.problem.nets[number]
            if len(net.consumers) <= most_readers:
                found.update(net.consumers)
                found.add(net.producer)
        found.discard(unit)
        return found


class Occupancy:
    """A (partial) placement of the units with everything needed to change it quickly.

    ``device_of`` has a device or :data:`UNPLACED` per unit; ``value`` is the cost of the nets and
    of the host among the placed units.
    """

    def __init__(self, incidence: Incidence, device_of: Sequence[int]) -> None:
        self.incidence = incidence
        self.problem = incidence.problem
        devices = self.problem.device_count
        self.device_of = [UNPLACED] * self.problem.unit_count
        self.load = [[0] * devices for _ in self.problem.rows]
        self.readers = [[0] * devices for _ in self.problem.nets]
        self.value = 0
        for unit, device in enumerate(device_of):
            if device != UNPLACED:
                self.place(unit, device)

    def place(self, unit: int, device: int) -> None:
        """Put an unplaced unit on a device."""
        self.value += self.placing_cost(unit, device)
        self.device_of[unit] = device
        for number, weight in self.incidence.weights[unit]:
            self.load[number][device] += weight
        for number in self.incidence.into[unit]:
            self.readers[number][device] += 1

    def move(self, unit: int, target: int) -> None:
        """Move a placed unit to another device."""
        self.value += self.moving_cost(unit, target)
        source = self.device_of[unit]
        self.device_of[unit] = target
        for number, weight in self.incidence.weights[unit]:
            self.load[number][source] -= weight
            self.load[number][target] += weight
        for number in self.incidence.into[unit]:
            self.readers[number][source] -= 1
            self.readers[number][target] += 1

    def placing_cost(self, unit: int, device: int) -> int:
        """By how much ``place`` would raise the value."""
        nets = self.problem.nets
        cost = self.problem.host_cost[unit] if device == self.problem.host else 0
        for number in self.incidence.into[unit]:
            producer = self.device_of[nets[number].producer]
            if producer not in (device, UNPLACED) and not self.readers[number][device]:
                cost += nets[number].bytes
        for number in self.incidence.out_of[unit]:
            others = sum(1 for readers in self.readers[number] if readers)
            others -= 1 if self.readers[number][device] else 0
            cost += nets[number].bytes * others
        return cost

    def moving_cost(self, unit: int, target: int) -> int:
        """By how much ``move`` would raise the value (less than zero: it pays)."""
        nets = self.problem.nets
        host = self.problem.host
        source = self.device_of[unit]
        cost = self.problem.host_cost[unit] * ((target == host) - (source == host))
        for number in self.incidence.into[unit]:
            producer = self.device_of[nets[number].producer]
            readers = self.readers[number]
            if source != producer and readers[source] == 1:
                cost -= nets[number].bytes
            if target != producer and not readers[target]:
                cost += nets[number].bytes
        for number in self.incidence.out_of[unit]:
            readers = self.readers[number]
            if readers[source]:
                cost += nets[number].bytes
            if readers[target]:
                cost -= nets[number].bytes
        return cost

    def fits(self, unit: int, device: int) -> bool:
        """Whether the rows of ``device`` hold with ``unit`` added to it."""
        rows = self.problem.rows
        return all(
            self.load[number][device] + weight <= rows[number].capacity[device]
            for number, weight in self.incidence.weights[unit]
        )

    def tightness(self, unit: int, device: int) -> float:
        """The largest share of any row of ``device`` that is in use once ``unit`` is on it."""
        rows = self.problem.rows
        return max(
            (
                (self.load[number][device] + weight) / max(1, rows[number].capacity[device])
                for number, weight in self.incidence.weights[unit]
            ),
            default=0.0,
        )

    def excess(self) -> int:
        """The weight over capacity, summed over rows and devices; 0 if all rows hold."""
        return sum(
            max(0, used - cap)
            for row, load in zip(self.problem.rows, self.load, strict=True)
            for used, cap in zip(load, row.capacity, strict=True)
        )
