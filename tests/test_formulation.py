"""From a graph to the bare problem, and from a placement to its peaks."""

from __future__ import annotations

import random

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.constraints import ConstraintOptions, find_constraints
from placer.formulation import formulate, peak_finder
from placer.prediction import predict_peak_ranges
from placer.prediction.scoring import score


def problem_of(graph, costs, devices, **options):
    cluster = parse_cluster(devices)
    constraints = find_constraints(graph, cluster, ConstraintOptions(**options))
    return formulate(graph, costs, cluster, constraints)


def test_the_score_of_a_problem_is_the_transfer_of_the_graph():
    """A tensor with two readers on the other device weighs once, one without a size nothing."""
    graph = draw("x -> a, b", "t -> a", bytes={"x": 400}, dtypes={"t": "string"})
    problem = problem_of(graph, draw_costs(graph), "2xCPU:1GiB")
    device_of = [0 if name in ("x", "t") else 1 for name in problem.op_names]
    assert score(problem, device_of).transfer_bytes == 400


def test_groups_share_what_they_may_use():
    """Both ops of a group get the only device that one of them allows."""
    graph = draw("a -> b -> c", groups=[["a", "b"]])
    problem = problem_of(graph, draw_costs(graph), "2xGPU:1GiB", pins={"a": "GPU:1"})
    allowed = dict(zip(problem.op_names, problem.allowed, strict=True))
    assert (allowed["a"], allowed["b"], allowed["c"]) == ((1,), (1,), (0, 1))


def test_a_moment_at_which_everything_fits_restricts_nothing():
    """With room for all there is no row; with little room the widest op has one.

    big --> wide --> c      wide reads 800 and writes 400 bytes
    """
    graph = draw("big -> wide -> c", bytes={"big": 800, "wide": 400, "c": 4})
    costs = draw_costs(graph)
    assert problem_of(graph, costs, "2xCPU:1GiB").live_bytes == ()
    tight = problem_of(graph, costs, "CPU:0:1300,CPU:1:1000")
    number = tight.op_names.index("wide")
    assert {number: 1200} in tight.live_bytes


def test_peaks_are_those_of_the_prediction():
    """The finder gives the high figures of the placement, and moments where caps are broken."""
    graph = draw("a -> b -> c", bytes=400)
    costs = draw_costs(graph)
    problem = problem_of(graph, costs, "CPU:0:700,CPU:1:900")
    device_of = (0, 0, 1)
    ranges = predict_peak_ranges(graph, costs, problem.placement(device_of), problem.device_names)
    peaks = peak_finder(graph, costs, problem)(device_of)
    assert [peak.peak_bytes for peak in peaks] == [
        ranges[name].high_bytes for name in problem.device_names
    ]
    assert [sum(peak.moment.values()) for peak in peaks] == [800, 0]


def test_no_row_claims_more_than_the_high_peak():
    """Rows are moments of one order; whatever the placement, the high peak of each device is at
    least what a row says it holds.  Else a problem could be proven infeasible that is not."""
    branches = range(10)
    graph = draw(
        "x -> " + ",".join(f"a{i}" for i in branches),
        *(f"a{i} -> b{i} -> y" for i in branches),
        bytes={f"a{i}": 400 * (i + 1) for i in branches},
    )
    costs = draw_costs(graph, persistent_bytes=dict.fromkeys(graph.ops, 8))
    problem = problem_of(graph, costs, "CPU:0:3000,CPU:1:3000")
    find_peaks = peak_finder(graph, costs, problem)
    assert problem.live_bytes
    for seed in range(20):
        rng = random.Random(seed)
        device_of = [rng.randrange(2) for _ in problem.op_names]
        peaks = find_peaks(device_of)
        for row in (*problem.live_bytes, *(peak.moment for peak in peaks)):
            held = [0, 0]
            for op, device in enumerate(device_of):
                held[device] += problem.resident_bytes[op] + row.get(op, 0)
            assert all(h <= peak.peak_bytes for h, peak in zip(held, peaks, strict=True))
