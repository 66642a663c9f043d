"""From a graph to the bare problem, and from a placement to its peaks."""

from __future__ import annotations

import random

from graphs_by_hand import draw, draw_costs
from hypothesis import given
from hypothesis import strategies as st

from cost_models.clusters import parse_cluster
from placer.pipeline.formulation import build_problem
from placer.prediction.memory.live_moments import working_sets
from placer.prediction.memory.timelines import predict_memory
from placer.prediction.orders.step_peaks import StepPeaks
from placer.prediction.scoring import score
from placer.problem.constraints import ConstraintOptions, find_constraints
from placer.solving.conflicts.conflict import explain_conflict
from placer.solving.solution import SolverParameters, Status
from placer.solving.solver import solve


def problem_of(graph, costs, devices, **options):
    cluster = parse_cluster(devices)
    constraints = find_constraints(graph, cluster, ConstraintOptions(**options))
    return build_problem(graph, costs, cluster, constraints)


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
    find_peaks = StepPeaks(graph, costs, problem)
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


def test_an_op_needs_all_its_inputs_wherever_they_come_from():
    """c reads a and b and writes, 1200 bytes in all: it cannot run on the device of 1100, although
    neither of its producers need be there.

        a --.
            |---> c      400 bytes each
        b --'
    """
    graph = draw("a, b -> c", bytes=400)
    problem = problem_of(graph, draw_costs(graph), "CPU:0:1200,CPU:1:1100")
    allowed = dict(zip(problem.op_names, problem.allowed, strict=True))
    assert (allowed["a"], allowed["c"]) == ((0, 1), (0,))


def test_an_op_too_wide_for_every_device_is_proven_infeasible():
    """And the conflict names it, with what it needs."""
    graph = draw("a, b -> c", bytes=400)
    problem = problem_of(graph, draw_costs(graph), "CPU:0:1100,CPU:1:1000")
    solution = solve(problem, SolverParameters(time_limit_seconds=5.0))
    assert solution.status is Status.INFEASIBLE
    conflict = explain_conflict(problem)
    assert [row.device for row in conflict.caps] == ["CPU:0", "CPU:1"]
    assert (conflict.reason, conflict.ops) == ("too_large", ("c",))
    assert (conflict.needed_bytes, conflict.usable_bytes) == (1200, 1100)


def test_what_fits_does_not_count_resident_bytes_twice():
    """b reads the weight w (800 bytes) and writes 100: 900 on one device are enough, and proposed,
    although a device of 500 holds neither w nor b."""
    graph = draw("w=Const -> b", bytes={"w": 800, "b": 100})
    costs = draw_costs(graph, persistent_bytes={"w": 800})
    problem = problem_of(graph, costs, "CPU:0:500,CPU:1:500")
    fixes = [row.caps for row in explain_conflict(problem).fixes]
    assert {"CPU:1": 900} in fixes
    assert solve(problem_of(graph, costs, "CPU:0:500,CPU:1:900")).status is Status.OPTIMAL


def test_an_op_that_alone_is_predicted_above_the_cap_goes_to_the_host():
    """c needs 1200 bytes at once, and for what no rule sees the prediction adds three: a cap of
    1200 is none that it keeps."""
    graph = draw("a, b -> c", bytes=400)
    costs = draw_costs(graph)
    on_gpu = []
    for cap in (1200, 1203):
        problem = problem_of(graph, costs, f"GPU:0:{cap},CPU:0:9000")
        on_gpu.append(problem.allowed[problem.op_names.index("c")])
        peak = StepPeaks(graph, costs, problem)([0, 0, 0])[0].peak_bytes
        assert (peak <= cap) == (cap == 1203)
    assert on_gpu == [(), (0,)]


def test_an_op_too_wide_for_the_accelerator_goes_to_the_host():
    """Unless it may not spill."""
    graph = draw("a, b -> c", bytes=400)
    costs, devices = draw_costs(graph), "GPU:0:1000,CPU:0:2000"
    problem = problem_of(graph, costs, devices)
    assert problem.allowed[problem.op_names.index("c")] == ()  # it spills
    cluster = parse_cluster(devices)
    constraints = find_constraints(graph, cluster, ConstraintOptions())
    never = build_problem(graph, costs, cluster, constraints, spill="never")
    assert solve(never).status is Status.INFEASIBLE


@given(seed=st.integers(0, 10_000))
def test_no_device_runs_an_op_with_less_than_its_width(seed):
    """Wherever the ops are, the prediction for a device is at least the width of each op on it."""
    rng = random.Random(seed)
    names = [f"o{i}" for i in range(rng.randint(2, 9))]
    lines = [f"{rng.choice(names[:i])} -> {name}" for i, name in enumerate(names) if i]
    lines += [f"{a} -> {b}" for a, b in zip(names, names[2:], strict=False) if rng.random() < 0.5]
    kinds = rng.choices(["MatMul", "Relu", "Identity", "AddV2"], k=len(names))
    lines[0] = lines[0].replace("o0", f"o0={kinds[0]}", 1)
    graph = draw(*lines, bytes={name: 4 * rng.randint(1, 50) for name in names})
    costs = draw_costs(graph, temporary_bytes={name: rng.choice([0, 64]) for name in names})
    devices = ("CPU:0", "CPU:1")
    placement = {name: rng.choice(devices) for name in names}
    timelines = predict_memory(graph, costs, placement, devices, "CPU:0")
    widths = working_sets(graph, costs)
    for device in devices:
        in_use = dict(zip(timelines[device].order, timelines[device].bytes, strict=True))
        for name in names:
            if placement[name] == device:
                assert in_use[name] >= widths[name].bytes
