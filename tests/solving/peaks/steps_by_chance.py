"""Small steps drawn at random, with the placement problems that they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.pipeline.formulation import build_problem
from placer.prediction.orders.possible_lifetimes import PossibleLifetimes
from placer.prediction.orders.step_peaks import StepPeaks
from placer.problem.constraints import ConstraintOptions, find_constraints
from placer.problem.device_peaks import DevicePeak
from placer.problem.placement_problem import PlacementProblem
from placer.solving.caps.orders import Orders
from placer.solving.caps.predictions import Predictions
from placer.solving.caps.record import PeakRequest, Record
from placer.solving.caps.staged_run import StagedRun
from placer.solving.solution import Solution, SolverParameters


def problem_of(graph, costs, devices: str) -> PlacementProblem:
    cluster = parse_cluster(devices)
    return build_problem(
        graph, costs, cluster, find_constraints(graph, cluster, ConstraintOptions()), spill="never"
    )


def random_step(rng: random.Random, most_ops: int = 9, unit: int = 400):
    """A step of a few ops with variables, and two devices that hold most of it each."""
    count = rng.randint(4, most_ops)
    names = [f"op{number}" for number in range(count)]
    lines = [f"{rng.choice(names[:at])} -> {names[at]}" for at in range(1, count)]
    for _ in range(count // 2):
        at = rng.randint(1, count - 1)
        lines.append(f"{rng.choice(names[:at])} -> {names[at]}")
    graph = draw(*lines, bytes={name: unit * rng.randint(1, 5) for name in names})
    costs = draw_costs(
        graph,
        persistent_bytes={name: unit * rng.randint(0, 2) for name in names},
        temporary_bytes={rng.choice(names): 2 * unit},
    )
    alone = problem_of(graph, costs, "2xGPU:1GiB,CPU:1GiB")
    peak = StepPeaks(graph, costs, alone)([0] * count)[0].peak_bytes
    cap = int(peak * rng.uniform(0.6, 0.9))
    return graph, costs, problem_of(graph, costs, f"GPU:0:{cap},GPU:1:{cap},CPU:1GiB")


def search_orders(
    problem: PlacementProblem,
    lifetimes: PossibleLifetimes,
    find_overruns: Callable[[Sequence[int]], Sequence[int]],
    parameters: SolverParameters,
    *,
    best: Solution | None = None,
    judging_seconds: float = 0.0,
    fits_first: bool = False,
) -> Record:
    """What is found by searches along the orders alone, once ``best`` is known to fit."""

    def find_peaks(device_of: Sequence[int]) -> list[DevicePeak]:
        both = zip(find_overruns(device_of), problem.capacity_bytes, strict=True)
        return [DevicePeak(peak_bytes=over + cap, moment={}) for over, cap in both]

    predict = Predictions(find_peaks, problem.capacity_bytes)
    predict.longest_seconds = judging_seconds
    search = StagedRun(
        PeakRequest(
            problem=problem,
            predict=predict,
            parameters=parameters,
            find_lifetimes=lambda: lifetimes,
        )
    )
    search.found.best = best
    orders = Orders(
        problem,
        search.peaks,
        search.found,
        search.deadline,
        search.tried_caps,
        fits_first=fits_first,
    )
    most = orders.schedule.most_searches
    search.pursue(orders, search.deadline, most, until_fits=fits_first)
    return search.found
