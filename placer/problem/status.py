"""How a search for a placement ended, and its stages."""

from dataclasses import dataclass
from enum import Enum

from placer.problem.rows import Row


class Status(str, Enum):
    """Why the solver stopped, in the words of CP-SAT."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Row):
    """A stage of a search that has ended: ``why`` it began and how it ``ended``, how often it
    searched (``searches``), and the best ``value`` and ``lower_bound`` known after it."""

    name: str
    why: str
    ended: str
    seconds: float
    searches: int
    value: float | None = None
    lower_bound: float | None = None
