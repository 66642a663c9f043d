"""The peaks of placements along the orders that a step may run in, in the numbers of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.memory.live_moments import moment_finder
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.orders.execution_orders import (
    executor_orders,
    peaks_along,
    ranges_of_peaks,
    uses_accelerator,
)
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes, find_possible_lifetimes
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem


class StepPeaks:
    """The peaks of placements along the orders that a step may run in."""

    def __init__(
        self, graph: OpGraph, costs: Mapping[str, OpCost], problem: PlacementProblem
    ) -> None:
        self.graph, self.costs, self.problem = graph, costs, problem
        self.number = {name: index for index, name in enumerate(problem.op_names)}
        self.host = problem.device_names[problem.host]
        accelerated = uses_accelerator(problem.device_names)
        self.steps = PossibleSteps(graph, costs, accelerated=accelerated)
        # A moment is one of the ops that are placed: of a loop as a whole.
        laid_out = bool(self.steps.owner)
        self.orders = (
            executor_orders(graph, accelerated=accelerated) if laid_out else self.steps.orders
        )
        self.moments_along: dict[int, Callable[[str], dict[str, int]]] = {}

    def __call__(self, device_of: Sequence[int]) -> tuple[DevicePeak, ...]:
        """The highest predicted peak of every device, given one device number per op, with the
        moment of the peak where that exceeds the device's cap."""
        names, placement = self.problem.device_names, self.problem.placement(device_of)
        step = self.steps.memory(placement, names, self.host)
        along = peaks_along(step, self.steps.orders)
        ranges = ranges_of_peaks(step, along)
        if self.steps.owner:
            step = StepMemory(self.graph, self.costs, placement, names, self.host)
            along = peaks_along(step, self.orders)
        return tuple(
            DevicePeak(
                peak_bytes=ranges[name].high_bytes,
                moment=self._moment(name, step, along) if ranges[name].high_bytes > cap else {},
            )
            for name, cap in zip(names, self.problem.capacity_bytes, strict=True)
        )

    def possible_lifetimes(self) -> PossibleLifetimes:
        """The buffers of the step along the same orders, for placements that are not known yet."""
        names = self.problem.device_names
        allowed = {
            name: [names[device] for device in devices]
            for name, devices in zip(self.problem.op_names, self.problem.allowed, strict=True)
        }
        return find_possible_lifetimes(self.steps, allowed, self.host)

    def _moment(
        self, name: str, step: StepMemory, along: Sequence[Mapping[str, int]]
    ) -> dict[int, int]:
        """What is needed when the device called ``name`` peaks, along the worst order for it."""
        worst = max(range(len(self.orders)), key=lambda index: along[index][name])
        if worst not in self.moments_along:
            self.moments_along[worst] = moment_finder(self.graph, self.costs, self.orders[worst])
        at_op = step.timelines(self.orders[worst])[name].peak_op
        moment = self.moments_along[worst](at_op)
        return {self.number[op]: size for op, size in moment.items() if size}
