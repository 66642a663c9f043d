"""Peaks of placements in the numbers of a problem."""

from __future__ import annotations

from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.pipeline.formulation import build_problem
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.prediction.orders.step_peaks import StepPeaks
from placer.problem.constraints import ConstraintOptions, find_constraints


def test_peaks_are_those_of_the_prediction():
    """The finder gives the high figures of the placement, and moments where caps are broken."""
    graph = draw("a -> b -> c", bytes=400)
    costs = draw_costs(graph)
    cluster = parse_cluster("CPU:0:700,CPU:1:900")
    constraints = find_constraints(graph, cluster, ConstraintOptions())
    problem = build_problem(graph, costs, cluster, constraints)
    device_of = (0, 0, 1)
    ranges = predict_peak_ranges(graph, costs, problem.placement(device_of), problem.device_names)
    peaks = StepPeaks(graph, costs, problem)(device_of)
    assert [peak.peak_bytes for peak in peaks] == [
        ranges[name].high_bytes for name in problem.device_names
    ]
    assert [sum(peak.moment.values()) for peak in peaks] == [800, 0]
