"""The problem of the least bottleneck: units, and what they and their streams take in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from placer.prediction.times.step_time import list_messages
from placer.problem.placement_problem import PlacementProblem
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The data that one unit sends: ``bytes`` in ``messages`` tensors, to every device with a
    consumer."""

    producer: int
    consumers: tuple[int, ...]
    bytes: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProblem:
    """The units with what they cost in seconds.

    ``seconds[unit][device]`` is the unit's part of the device's load; ``latency`` (seconds) and
    ``seconds_per_byte`` go from device by to device; ``occupied`` and ``multicast`` are as in
    :class:`~placer.problem.placement_problem.PlacementProblem`.
    """

    search: ClassVar[str] = "placer.solving.objectives.throughput.search:search_loads"
    alike_share: ClassVar[float] = 0.0

    units: UnitProblem
    seconds: tuple[tuple[float, ...], ...]
    streams: tuple[Stream, ...]
    latency: tuple[tuple[float, ...], ...]
    seconds_per_byte: tuple[tuple[float, ...], ...]
    occupied: tuple[bool, ...]
    multicast: bool

    def send_seconds(self, stream: Stream, source: int, target: int) -> float:
        """Returns what sending the stream from one device to another takes."""
        return (
            stream.messages * self.latency[source][target]
            + stream.bytes * self.seconds_per_byte[source][target]
        )

    def loads(self, device_of_unit: Sequence[int]) -> list[float]:
        """The seconds per sample that each device is busy."""
        load = [0.0] * self.units.device_count
        for times, device in zip(self.seconds, device_of_unit, strict=True):
            load[device] += times[device]
        for stream in self.streams:
            home = device_of_unit[stream.producer]
            targets = {device_of_unit[unit] for unit in stream.consumers} - {home}
            sent = [self.send_seconds(stream, home, target) for target in sorted(targets)]
            for target, seconds in zip(sorted(targets), sent, strict=True):
                load[target] += seconds if self.occupied[target] else 0.0
            if sent and self.occupied[home]:
                load[home] += max(sent) if self.multicast else sum(sent)
        return load

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The largest load in seconds."""
        return max(self.loads(device_of_unit))

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether every unit is where it may be and every row holds on every device."""
        return self.units.is_feasible(device_of_unit)

    def least(self) -> float:
        """A lower bound on the bottleneck without any search.

        The dearest unit on the device that suits it best; and, for weights p[d] that sum to one,
        the sum over units of min p[d] seconds[u][d]: the largest load is at least the weighted
        mean of all loads, and every unit adds at least its minimum to that.  The weights tried are
        equal ones, and the devices' speeds.
        """
        equal = [1.0] * self.units.device_count
        totals = [sum(column) for column in zip(*self.seconds, strict=True)]
        speeds = [1.0 / total if total else 0.0 for total in totals]
        means = [sum(self._least_of_units(w)) / sum(w) for w in (equal, speeds) if sum(w)]
        return max([*self._least_of_units(equal), *means], default=0.0)

    def _least_of_units(self, weights: Sequence[float]) -> list[float]:
        """The least of the weighted seconds of every unit."""
        return [
            min((weights[d] * times[d] for d in devices), default=0.0)
            for times, devices in zip(self.seconds, self.units.allowed, strict=True)
        ]


def to_loads(problem: PlacementProblem) -> LoadProblem:
    """One unit per group.

    A control edge between units is a stream without bytes: TensorFlow sends a signal.
    """
    # what is fetched, and what slower work is worth, is no part of these seconds
    units = reduce_to_units(replace(problem, fetched=(), slower_bytes=()))
    parallel = problem.parallel_ops or (1,) * units.device_count
    seconds = [[0.0] * units.device_count for _ in units.allowed]
    for times, unit in zip(problem.seconds, units.unit_of, strict=True):
        for device, value in enumerate(times):
            seconds[unit][device] += value / parallel[device]
    return LoadProblem(
        units=units,
        seconds=tuple(map(tuple, seconds)),
        streams=_streams(problem, units.unit_of),
        latency=problem.latency,
        seconds_per_byte=tuple(
            tuple(1.0 / speed if speed else 0.0 for speed in row) for row in problem.bandwidth
        ),
        occupied=problem.occupied or (True,) * units.device_count,
        multicast=problem.multicast,
    )


def _streams(problem: PlacementProblem, unit_of: Sequence[int]) -> tuple[Stream, ...]:
    """Tensors and control signals between units, those with the same ends summed."""
    merged: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
    for message in list_messages(problem):
        home = unit_of[message.producer]
        targets = tuple(sorted({unit_of[op] for op in message.consumers} - {home}))
        if targets:
            bytes_, messages = merged.get((home, targets), (0, 0))
            merged[home, targets] = (bytes_ + message.bytes, messages + 1)
    return tuple(
        Stream(producer=home, consumers=targets, bytes=bytes_, messages=messages)
        for (home, targets), (bytes_, messages) in merged.items()
    )
