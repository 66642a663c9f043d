"""How the time is divided between searches along the orders, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrySchedule:
    """The searches along the orders, each begun at the nearest that those before found."""

    most_tries: int = 16
    first_share: float = 0.45  # of the time
    next_share: float = 0.3  # of what is left then, near what was found
    near_share: float = 0.15  # of what is left, near what fits
    more_share: float = 0.55  # of what is left once something fits, from nothing
    least_seconds: float = 4.0  # for one of these
    first_seconds: float = 1.0  # for the first, and
    first_judged: float = 1.4  # times that a prediction takes: a placement from nothing takes less
    fewest_seconds: float = 1.0  # with less left, one is not begun
    judged_moves: int = 4  # that there is time for at the end, where they are likely to mend
    judged_mended: int = 3  # predictions: one more move, and what is mended is tidied
    slight: float = 0.005  # of a cap, or less, is likely to be mended
    roomy: float = 0.5  # the same where a device takes so much of its cap, or less
    mending_share: float = 0.85  # of what is left, where something that sends more fits
    judged_last: float = 3.5  # times that a prediction takes: what is found is judged and tidied
    few_judged: int = 24  # predictions in the time: gaps are reserved before the first search


SCHEDULE = TrySchedule()

QUICK_SCHEDULE = TrySchedule(most_tries=60, first_share=0.3, next_share=0.1, least_seconds=2.0)
"""Where a prediction says more than a longer search: of the step time, which is not what makes a
placement fit."""

FITTING_SCHEDULE = TrySchedule(
    most_tries=60,
    first_share=0.3,
    next_share=0.2,
    least_seconds=0.6,
    first_seconds=0.6,
    fewest_seconds=0.3,
    judged_moves=0,
    judged_last=1.5,
)
"""For anything that fits: what a prediction says of one placement is kept free in the next."""

SCHEDULES = {"transfer": SCHEDULE, "step-time": QUICK_SCHEDULE}
"""By objective."""
