"""How a search for a placement ended."""

from enum import Enum


class Status(str, Enum):
    """Why the solver stopped, in the words of CP-SAT."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"
