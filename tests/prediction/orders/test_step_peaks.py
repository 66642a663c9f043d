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


def test_needs_take_the_place_of_peaks_within_caps():
    """Tensors of 400 bytes take chunks of 512: 1,024 where two are alive, which is above a cap of
    900 that their 800 bytes keep.  A peak that is above its cap stays as it is, and a cap that is
    far above all peaks is not looked at."""
    graph = draw("a -> b -> c", bytes=400)
    costs = draw_costs(graph)
    highest = {}
    for caps in ("CPU:0:900", "CPU:0:700", "CPU:0:9000"):
        cluster = parse_cluster(caps)
        constraints = find_constraints(graph, cluster, ConstraintOptions())
        problem = build_problem(graph, costs, cluster, constraints)
        (peak,) = StepPeaks(graph, costs, problem, with_needs=True)((0, 0, 0))
        highest[caps] = peak.peak_bytes, sum(peak.moment.values())
    assert highest == {
        "CPU:0:900": (1024, 800),
        "CPU:0:700": (802, 800),
        "CPU:0:9000": (802, 0),
    }
