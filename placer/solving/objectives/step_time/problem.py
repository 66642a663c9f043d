"""The problem of the least step time: all ops, and the units that move together."""

from collections.abc import Sequence
from typing import ClassVar

from placer.prediction.times.step_time import longest_step_seconds
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines.tasks import Tasks
from placer.solving.objectives.throughput.problem import LoadProblem, to_loads
from placer.solving.reduction.unit_problem import UnitProblem


class StepProblem:
    """A placement problem with its units.

    ``loads`` has the ``units`` with their streams.
    """

    search: ClassVar[str] = "placer.solving.objectives.step_time.search:search_steps"
    alike_share: ClassVar[float] = 1e-3
    """A gain that is less is lost to what the problem leaves out, such as the way of results
    back to the host."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.loads: LoadProblem = to_loads(problem)

    @property
    def units(self) -> UnitProblem:
        """The units, their rows and allowed devices."""
        return self.loads.units

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The seconds of one step, the longest of a few orders."""
        return longest_step_seconds(self.problem, self.units.expand(device_of_unit))

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether every unit is where it may be and every row holds on every device."""
        return self.units.is_feasible(device_of_unit)

    def least(self) -> float:
        """A lower bound on the step time: the critical path with every op where it is fastest and
        no transfers, and all work shared by all devices (no device can be busy for longer than
        the step, however its ops are ordered)."""
        tasks = Tasks(self.problem)
        finish = [0.0] * len(tasks.order)
        for op in tasks.order:
            unit = self.units.unit_of[op]
            fastest = min(
                (self.problem.seconds[op][d] for d in self.units.allowed[unit]), default=0.0
            )
            begin = max(
                (finish[tasks.messages[number].producer] for number in tasks.inputs[op]),
                default=0.0,
            )
            finish[op] = begin + fastest
        return max(max(finish, default=0.0), self.loads.least())
