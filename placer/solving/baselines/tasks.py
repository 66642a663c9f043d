"""A placement problem as the baselines see it: ops in an order, what they wait for, what fits."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from cost_models.byte_sizes import format_bytes
from placer.prediction.times.step_time import forward_messages
from placer.problem.placement_problem import PlacementProblem
from placer.solving.process import clock
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units

Placement = tuple[int, ...]
"""One device number per op."""

_until = ContextVar("until", default=math.inf)


class TooLateError(Exception):
    """A baseline has not ended in time."""


@contextmanager
def ending_by(until: float) -> Iterator[None]:
    """In the block a baseline raises :class:`TooLateError` from ``until`` on (of
    ``clock.monotonic()``)."""
    token = _until.set(until)
    try:
        yield
    finally:
        _until.reset(token)


def require_time() -> None:
    """Raises :class:`TooLateError` if nothing is left of it."""
    if _until.get() < clock.monotonic():
        raise TooLateError


class DoesNotFitError(Exception):
    """A baseline has no placement: some group fits on none of the devices it asked for."""


class Tasks:
    """The ops of a problem with what they send and wait for.

    ``order`` is topological; where the graph has cycles (loops), consumers that come before the
    producer are left out of its ``messages``.  ``inputs`` and ``outputs`` are their numbers per op.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.messages, self.order = forward_messages(problem)
        self.inputs: list[list[int]] = [[] for _ in self.order]
        self.outputs: list[list[int]] = [[] for _ in self.order]
        for number, message in enumerate(self.messages):
            self.outputs[message.producer].append(number)
            for op in message.consumers:
                self.inputs[op].append(number)

    def send_seconds(self, number: int, source: int, target: int) -> float:
        """Returns what it takes to bring a message from one device to another."""
        if source == target:
            return 0.0
        size = self.messages[number].bytes
        seconds = self.problem.latency[source][target]
        return seconds + (size / self.problem.bandwidth[source][target] if size else 0.0)


def mean_seconds(problem: PlacementProblem, op: int) -> float:
    """The mean of what an op takes over the devices that it may use."""
    allowed = problem.allowed[op]
    return sum(problem.seconds[op][device] for device in allowed) / max(1, len(allowed))


class Room:
    """The room that is left while groups are placed one after the other.

    A group takes its whole room (resident bytes, and what it needs at every known moment) at once.
    One that fits on no device it is allowed on goes to the host if that is open to it.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.units: UnitProblem = reduce_to_units(problem)
        strict = self.units
        if problem.spill == "auto":
            strict = reduce_to_units(replace(problem, spill="never"))
        self.preferred = strict.allowed
        self.used = [[0] * self.units.device_count for _ in self.units.rows]
        self.device_of: list[int | None] = [None] * self.units.unit_count
        kept = zip(
            problem.device_names, problem.transient_bytes, problem.capacity_bytes, strict=True
        )
        for name, size, capacity in kept:
            if size > capacity:
                raise DoesNotFitError(
                    f"{name} holds {format_bytes(size)} beside the placed ops (such as variables "
                    f"that the loader restores there), and its limit is {format_bytes(capacity)}"
                )

    def of(self, op: int) -> int | None:
        """The device of an op's group, if it has one already."""
        return self.device_of[self.units.unit_of[op]]

    def fits(self, op: int, device: int) -> bool:
        """Whether the group of ``op`` is on ``device``, or could be."""
        unit = self.units.unit_of[op]
        if self.device_of[unit] is not None:
            return self.device_of[unit] == device
        return device in self.units.allowed[unit] and all(
            used[device] + row.weights[unit] <= row.capacity[device]
            for used, row in zip(self.used, self.units.rows, strict=True)
        )

    def choices(self, op: int) -> list[int]:
        """The devices for the group of ``op``: where it is, where it fits, else the host.

        Raises :class:`DoesNotFitError` if there are none, :class:`TooLateError` after the time.
        """
        require_time()
        unit = self.units.unit_of[op]
        placed = self.device_of[unit]
        if placed is not None:
            return [placed]
        found = [device for device in self.preferred[unit] if self.fits(op, device)]
        if not found and self.fits(op, self.problem.host):
            found = [self.problem.host]
        if not found:
            raise DoesNotFitError(f"{self.problem.op_names[op]} fits on no device that is left")
        return found

    def put(self, op: int, device: int) -> None:
        """Place the group of ``op``."""
        unit = self.units.unit_of[op]
        if self.device_of[unit] is None:
            self.device_of[unit] = device
            for used, row in zip(self.used, self.units.rows, strict=True):
                used[device] += row.weights[unit]

    def placement(self) -> Placement:
        """One device number per op, once all are placed."""
        return tuple(
            device for unit in self.units.unit_of if (device := self.device_of[unit]) is not None
        )


def accelerators(problem: PlacementProblem) -> list[int]:
    """All devices but CPUs; all devices if there are only CPUs."""
    found = [d for d, name in enumerate(problem.device_names) if "CPU" not in name.upper()]
    return found or list(range(len(problem.device_names)))
