"""The problem of the least step time: all ops, and the units that move together."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from placer.prediction.times.step_time import longest_step_seconds
from placer.problem.placement_problem import PlacementProblem, from_dict, to_dict
from placer.solving.baselines.tasks import Tasks
from placer.solving.objectives.throughput.problem import LoadProblem, to_loads

SCHEMA = "placer.step/1"


class StepProblem:
    """A placement problem with its units.

    ``loads`` has the units with their rows, allowed devices and streams; the groups of the ops
    ``spilled`` may use the host too.
    """

    def __init__(self, problem: PlacementProblem, spilled: Collection[int] = ()) -> None:
        self.problem = problem
        self.spilled = tuple(spilled)
        self.loads: LoadProblem = to_loads(problem, spilled)

    def value(self, device_of_unit: Sequence[int]) -> float:
        """The seconds of one step, the longest of a few orders."""
        return longest_step_seconds(self.problem, self.loads.expand(device_of_unit))

    def is_feasible(self, device_of_unit: Sequence[int]) -> bool:
        """Whether every unit is where it may be and every row holds on every device."""
        return self.loads.is_feasible(device_of_unit)

    def least_step(self) -> float:
        """A lower bound on the step time: the critical path with every op where it is fastest and
        no transfers, and all work shared by all devices (no device can be busy for longer than
        the step, however its ops are ordered)."""
        tasks = Tasks(self.problem)
        finish = [0.0] * len(tasks.order)
        for op in tasks.order:
            unit = self.loads.unit_of[op]
            fastest = min(
                (self.problem.seconds[op][d] for d in self.loads.allowed[unit]), default=0.0
            )
            begin = max(
                (finish[tasks.messages[number].producer] for number in tasks.inputs[op]),
                default=0.0,
            )
            finish[op] = begin + fastest
        return max(max(finish, default=0.0), self.loads.least_load())

    def to_json(self, hint: Sequence[int] | None = None) -> str:
        """The problem and a placement of the units to start from."""
        return json.dumps(
            {
                "schema": SCHEMA,
                "problem": to_dict(self.problem),
                "spilled": self.spilled,
                "hint": hint,
            }
        )


def from_json(text: str) -> tuple[StepProblem, tuple[int, ...] | None]:
    """The problem and the hint written by :meth:`StepProblem.to_json`.

    Raises ``ValueError`` if the text is not of this schema.
    """
    data: dict[str, Any] = json.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(f"not a {SCHEMA} document")
    hint = data["hint"]
    problem = StepProblem(from_dict(data["problem"]), data["spilled"])
    return problem, None if hint is None else tuple(hint)
