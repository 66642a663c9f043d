"""The shares of the time that the stages of a search have, and how far each goes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSchedule:
    """Shares are of the time that is left when a stage begins."""

    plan_share: float = 0.2  # for a first plan
    plan_share_with_host: float = 0.85  # the same where the host takes the rest
    baseline_share: float = 0.25  # for layers, or for baselines
    baseline_seconds: float = 3.0  # in which one of them is made to fit
    baseline_searches: int = 6  # the same, and
    layered_shares: tuple[float, ...] = (
        1.0,
        0.93,
        0.8,
    )  # of caps: layers on more devices, less full
    fit_share: float = 0.5  # for anything that fits, before another objective
    rows_share: float = 0.4  # for a first search by rows, whose bound is proven
    rows_share_before_orders: float = 0.25  # where a search along the orders comes next
    reserving_share: float = 0.5  # for searches by rows that reserve what the first one missed
    rows_share_of_others: float = 0.6  # of these shares, for another objective
    first_mend_share: float = 0.1  # for mending what the first of these searches found
    others_judged: int = 5  # of what a search found beside what is above a cap,
    others_share: float = 0.2  # of a large program in that share of the time
    orders_share: float = 0.75  # for searches along the orders
    orders_share_of_few: float = 0.45  # the same where rows found what fits and may prove it
    mend_share: float = 0.8  # for mending
    soon_share: float = 0.1  # for mending before more search what costs less than
    soon_below: float = 0.5  # times what fits
    mended_judged: int = 6  # predictions that it has, somewhat late, if that may halve the cost
    late_seconds: float = 2.0  # beyond the limit at most
    next_share: float = 0.5  # for each search by rows once something was above a cap
    least_rows_seconds: float = 2.0  # to start the solver and find anything
    least_first_seconds: float = 1.0  # the same before a search along the orders
    least_layered_ops: int = 1_000  # programs with fewer are no matter of layers
    least_ops_beside: int = 5_000  # those with fewer need the core more for the search
    counted_searches: int = 8  # of each stage where work is counted
    most_loosened: int = 9  # times before giving up
    tidied_judged: float = 3.0  # predictions that tidying has time for
    loosened_fully: int = 3  # each third drops all guesses: that alone can prove


SCHEDULE = StageSchedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSchedule:
    """The searches along the orders of one stage, each begun at what those before found; shares are
    of the time that is left."""

    most_searches: int = 16
    # of each: what is found repeats, and the clock says only how many searches there are
    cycles: int | None = 20
    most_counted_units: int = 5_000  # of more, cycles are so long that the clock ends them
    counted_share: float = 0.3  # such a search has at least
    first_share: float = 0.45
    next_share: float = 0.3  # near what was found above a cap
    near_share: float = 0.15  # near what fits
    anew_share: float = 0.55  # from nothing, once something fits
    least_seconds: float = 4.0  # for one of these
    first_seconds: float = 1.0  # for the first, and
    first_judged: float = 1.4  # times that a prediction takes: a placement from nothing takes less
    fewest_seconds: float = 1.0  # with less left, one is not begun
    judged_last: float = 1.5  # times that a prediction takes: what is found is judged
    few_judged: int = 24  # predictions in the time: gaps are reserved before the first search
    spread: float = 0.0  # of caps: kept free by some, up to that, after what is above a cap
    spread_cycles: int = 8  # fewer find too little of that
    is_patient: bool = False  # the same placement again is searched for longer


ORDERS = OrderSchedule()

QUICK_ORDERS = OrderSchedule(
    most_searches=60, cycles=None, first_share=0.3, next_share=0.1, least_seconds=2.0
)
"""Where a prediction says more than a longer search: of the step time, which is not what makes a
placement fit."""

FITTING_ORDERS = OrderSchedule(
    most_searches=60,
    first_share=0.3,
    next_share=0.2,
    least_seconds=0.6,
    first_seconds=0.6,
    fewest_seconds=0.3,
    spread=0.25,
    is_patient=True,
)
"""For anything that fits: what a prediction says of one placement is kept free in the next."""
