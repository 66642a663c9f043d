"""How the time is divided between the rounds that solve, predict and tighten."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSchedule:
    """Shares are of the time that is left."""

    first_plan_share: float = 0.2  # for a first placement along the orders
    first_share_with_host: float = 0.6  # the same, until one fits, where the host takes the rest
    first_share: float = 0.4  # for the first round, whose bound is proven
    first_share_of_orders: float = 0.25  # where a search along the orders comes next
    first_share_beside: float = 0.08  # the same, where a bound is sought beside
    most_searches: int = 2  # along the orders
    orders_share: float = 0.9  # for each of them
    tidying_share: float = 0.1  # for tidying layers as they were dealt out, at most
    next_share: float = 0.5  # for each other round
    first_fitting_share: float = 0.5  # for something that fits, before any other objective
    fitting_share: float = 0.5  # the same, after each round
    baseline_share: float = 0.25  # for baselines, made to fit
    # of that, and of the first round, where another objective is searched along the orders
    beside_orders: float = 0.6
    baseline_rounds: int = 6  # for each of them
    layered_shares: tuple[float, ...] = (0.93, 0.8)  # of caps: layers on more devices, less full
    least_layered_ops: int = 1_000  # programs with fewer are no matter of layers
    least_ops_beside: int = 5_000  # those with fewer need the core more for the search
    counted_rounds: int = 8  # where work is counted, until something fits
    least_round_seconds: float = 2.0  # to start the solver and find anything
    least_first_seconds: float = 1.0  # before a search along the orders
    most_loosened: int = 9  # times before giving up
    loosened_fully: int = 3  # each third drops all guesses: that alone can prove


SCHEDULE = RoundSchedule()
