"""How the time for the least transfer is divided, and how far its parts go."""

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSchedule:
    """Shares are of the time that is left."""

    # before the solver process (stage)
    first_fit_share: float = 0.1
    first_fit_seconds: float = 0.3  # at most, where a search in the solver process does better
    least_child_seconds: float = 0.5  # in which it can find anything, whatever is left

    # the first placement in the solver process; with fewer units CP-SAT needs none
    least_planned_units: int = 30
    first_plan_cycles: int = 8  # before anything is proven
    plan_share: float = 0.35  # of the time, after a first attempt to prove
    most_reserved_share: float = 0.1  # for expanding and judging what was found

    # minimum cuts on two devices
    first_cuts_share: float = 0.1  # before the heuristic search
    cuts_share: float = 0.4  # after it
    most_flows: int = 12  # in search of one multiplier
    most_multipliers: int = 3  # of one case

    # bounds from what devices may hold, beside the heuristic search
    set_steps: int = 2  # for one step of the work limit
    most_set_steps: int = 96
    first_devices_share: float = 0.15  # of the time, where a little work comes first

    # the heuristic search: below so many units CP-SAT needs none
    least_searched_units: int = 150
    fresh_share: float = 0.1  # of its steps: a placement from nothing
    redrawn_share: float = 0.65  # some devices of a good one drawn anew; cycles are the rest

    # up to so many variables of CP-SAT, the share of the search, and of what is then left, the
    # share for bounds from simpler problems: where CP-SAT is large, its presolve takes too long
    shares: tuple[tuple[int, float, float], ...] = (
        (4_000, 0.2, 0.6),
        (40_000, 0.4, 0.6),
        (120_000, 0.7, 0.6),
        (sys.maxsize, 0.75, 1.0),
    )

    # simpler problems: what the best placement may lose of its cost in each
    losses: tuple[float, ...] = (0.1, 0.03, 0.003, 0.0)
    # CP-SAT's subsolvers for them: what has few different costs is proven fastest by cores of costs
    # that cannot all be zero, what has many by linear relaxation; plain search helps both
    provers: tuple[str, ...] = ("core", "max_lp_sym", "quick_restart")
    most_sent: int = 10_000  # variables with which a linear relaxation takes seconds


SCHEDULE = TransferSchedule()
