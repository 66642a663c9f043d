"""The least bottleneck as a CP-SAT model.

Data: units u, devices d, streams n as in :mod:`.problem`; t[u,d] seconds of a unit, c[n,a,b]
seconds that sending n from a to b takes, o[d] whether transfers occupy d.

Variables
    x[u,d]      in {0, 1}: unit u is on device d
    z[n,d]      in {0, 1}: stream n is received by device d
    s[n,d]      in {0, 1}: stream n is sent by device d             (multicast, one price)
    y[n,a,b]    in {0, 1}: stream n is sent from a to b             (otherwise)
    T           the bottleneck

Minimise T, subject to
    (1) sum_d x[u,d] = 1                                     for every unit u
    (2) z[n,d] or x[p,d] or not x[c,d]                       for every consumer c of n, device d
        s[n,d] or not x[p,d] or x[c,d]                       for every consumer c of n, device d
        y[n,a,b] or not x[p,a] or not x[c,b]                 for every consumer c of n, a != b
    (3) sum_u w[u] x[u,d] <= q[d]                            for every row and device d
    (4) load of d <= T                                       for every device d
    (5) interchangeable devices numbered by the dearest units, as in
    :mod:`placer.solving.transfer.cp_sat`

The form with z and s is smaller and has the better relaxation; it is used where a stream costs the
same between any two devices and a sender pays once.  Seconds become integers rounded down, so the
bound is one for the problem itself.
"""

import math
from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

from placer.solving.objectives.throughput.problem import LoadProblem, Stream
from placer.solving.reduction.equal_devices import interchangeable_devices
from placer.solving.transfer.cp_sat import Literal, UnitModel, leading_units

_RESOLUTION = 10_000_000
"""The bottleneck of the known placement in integer units of time."""


class LoadModel(UnitModel):
    """The model of one problem, begun at ``hint``, which is also its upper bound."""

    def __init__(self, problem: LoadProblem, hint: Sequence[int]) -> None:
        classes = _interchangeable(problem)
        seconds = [[times[devices[0]] for times in problem.seconds] for devices in classes]
        pairs = zip(classes, seconds, strict=True)
        super().__init__(problem.units, classes, [leading_units(problem.units, *p) for p in pairs])
        self.problem = problem
        self.seconds = max(problem.value(hint), 1e-300) / _RESOLUTION
        self.terms: list[list[Any]] = [[] for _ in range(problem.units.device_count)]
        self.sent: list[tuple[Any, Stream, int, int | None]] = []
        for unit, row in enumerate(self.x):
            for device, x in row.items():
                self.terms[device].append(self._ticks(problem.seconds[unit][device]) * x)
        for stream in problem.streams:
            self._charge(stream)
        self.bottleneck = self.model.new_int_var(0, _RESOLUTION, "bottleneck")
        for terms in self.terms:
            self.model.add(cp_model.LinearExpr.sum([*terms, 0]) <= self.bottleneck)
        self.model.minimize(self.bottleneck)
        self._hint(hint)

    def _ticks(self, seconds: float) -> int:
        return math.floor(seconds / self.seconds)

    def _charge(self, stream: Stream) -> None:
        """(2)."""
        price = self._one_price(stream)
        home = self.x[stream.producer]
        readers = [self.x[unit] for unit in stream.consumers]
        if price is None or not self.problem.multicast:
            self._charge_pairs(stream, home, readers)
            return
        for device in range(self.problem.units.device_count):
            if not self.problem.occupied[device]:
                continue
            received = self.model.new_bool_var("")
            for row in readers:
                if device in row:
                    self._imply([_not(home.get(device, 0)), row[device]], received)
            sends = self.model.new_bool_var("")
            for row in readers:
                self._imply([home.get(device, 0), _not(row.get(device, 0))], sends)
            self.terms[device] += [price * received, price * sends]
            self.sent += [(received, stream, device, None), (sends, stream, -1, device)]

    def _charge_pairs(
        self, stream: Stream, home: dict[int, Literal], readers: list[dict[int, Literal]]
    ) -> None:
        problem = self.problem
        for source in home:
            dearest = None
            if problem.multicast and problem.occupied[source]:
                dearest = self.model.new_int_var(0, _RESOLUTION, "")
                self.terms[source].append(dearest)
            for target in sorted({device for row in readers for device in row} - {source}):
                ticks = self._ticks(problem.send_seconds(stream, source, target))
                if not ticks:
                    continue
                sent = self.model.new_bool_var("")
                for row in readers:
                    if target in row:
                        self._imply([home[source], row[target]], sent)
                self.sent.append((sent, stream, target, source))
                if problem.occupied[target]:
                    self.terms[target].append(ticks * sent)
                if dearest is not None:
                    self.model.add(dearest >= ticks * sent)
                elif problem.occupied[source]:
                    self.terms[source].append(ticks * sent)

    def _imply(self, conditions: Sequence[Literal], result: cp_model.IntVar) -> None:
        """``result`` where all conditions (literals, 0 or 1) hold."""
        if any(isinstance(c, int) and c == 0 for c in conditions):
            return
        clause = [c.Not() for c in conditions if not isinstance(c, int)]
        self.model.add_bool_or([result, *clause])

    def _one_price(self, stream: Stream) -> int | None:
        """Returns the cost of the stream between any two devices, if that is one price."""
        count = self.problem.units.device_count
        prices = {
            self._ticks(self.problem.send_seconds(stream, a, b))
            for a in range(count)
            for b in range(count)
            if a != b
        }
        return prices.pop() if len(prices) == 1 else None

    def _hint(self, device_of: Sequence[int]) -> None:
        device_of = self.hint_units(device_of)
        for sent, stream, target, source in self.sent:
            home = device_of[stream.producer]
            targets = {device_of[unit] for unit in stream.consumers}
            if source is None:
                self.model.add_hint(sent, target in targets and home != target)
            elif target < 0:
                self.model.add_hint(sent, home == source and bool(targets - {source}))
            else:
                self.model.add_hint(sent, home == source and target in targets)

    def lower_bound(self, objective_bound: float) -> float | None:
        """A bound in seconds from the solver's bound on the objective, if that proves anything."""
        if not self.is_exact:
            return None
        return max(0.0, math.ceil(objective_bound - 1e-6) * self.seconds)


def _not(literal: Literal) -> Literal:
    return 1 - literal if isinstance(literal, int) else literal.Not()


def _interchangeable(problem: LoadProblem) -> list[list[int]]:
    """Sets of two or more devices that can swap names without any effect."""
    count = problem.units.device_count
    links = {
        (problem.latency[a][b], problem.seconds_per_byte[a][b])
        for a in range(count)
        for b in range(count)
        if a != b
    }
    if len(links) > 1:
        return []
    return interchangeable_devices(
        problem.units,
        lambda device: (
            tuple(times[device] for times in problem.seconds),
            problem.occupied[device],
        ),
    )
