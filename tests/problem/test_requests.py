"""Why ops are confined: requests apart from kernels, and both together what the solver sees."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from graphs_by_hand import draw, draw_costs
from small_problems import best_by_enumeration

from cost_models.clusters import parse_cluster
from placer.graph.op_graph import OpGraph
from placer.pipeline.formulation import build_problem
from placer.problem.constraints import ConstraintOptions, find_constraints
from placer.problem.placement_problem import PlacementProblem
from placer.solving.conflicts.conflict import find_conflict
from placer.solving.conflicts.elements import Elements
from placer.solving.process import clock


def problem_of(
    graph: OpGraph, devices: str, *, resident: dict[str, int] | None = None, **options: Any
) -> PlacementProblem:
    spill = options.pop("spill", "auto")
    cluster = parse_cluster(devices)
    constraints = find_constraints(graph, cluster, ConstraintOptions(**options))
    costs = draw_costs(graph, persistent_bytes=resident or {})
    return build_problem(graph, costs, cluster, constraints, spill=spill)


def requests_of(problem: PlacementProblem) -> dict[str, tuple[str, set[str], set[str]]]:
    """Kind, ops and devices by name; of groups, their ops."""
    return {
        request.name: (
            request.kind,
            {
                problem.op_names[op]
                for op in (*request.ops, *(op for group in request.groups for op in group))
            },
            {problem.device_names[device] for device in request.devices},
        )
        for request in problem.requests
    }


def unconfined(problem: PlacementProblem, name: str) -> set[str]:
    op = problem.op_names.index(name)
    devices = problem.unconfined.get(op, problem.allowed[op])
    return {problem.device_names[device] for device in devices}


def test_a_pin_is_a_request_and_a_missing_kernel_is_not():
    """Both confine an op to one device; only the pinned one could be elsewhere."""
    graph = draw("t=HashTableV2", "a -> b", dtypes={"t": "resource"})
    problem = problem_of(graph, "2xGPU:1GiB,CPU:1GiB", pins={"a": "GPU:1", "*": "/gpu:0"})
    assert requests_of(problem) == {"--pin '*=/gpu:0'": ("pin", {"a", "b"}, {"GPU:0"})}
    assert unconfined(problem, "a") == {"GPU:0", "GPU:1"}
    assert unconfined(problem, "t") == {"CPU:0"}


def test_device_strings_and_groups_are_requests_by_how_they_were_asked():
    """Of two device strings in one group the first holds, so the other is nobody's reason."""
    graph = draw(
        "a -> b -> c", devices={"a": "/gpu:0", "b": "/gpu:1", "c": "/gpu:1"}, groups=[["a", "b"]]
    )
    problem = problem_of(graph, "2xGPU:1GiB,CPU:1GiB", keep_together=("[bc]",), pins={"c": "GPU:0"})
    assert requests_of(problem) == {
        "--pin c=GPU:0": ("pin", {"c"}, {"GPU:0"}),
        "the device string '/gpu:0'": ("device_string", {"a"}, {"GPU:0"}),
        "--keep-together '[bc]'": ("together", {"b", "c"}, set()),
    }
    number = dict(zip(problem.op_names, problem.colocation, strict=True))
    assert number["a"] == number["b"] != number["c"]


def test_an_op_may_follow_its_group_to_the_host():
    """A group with a host-only op is on the host with all its members, which alone would not be."""
    graph = draw("t=HashTableV2", "a", groups=[["t", "a"]], dtypes={"t": "resource"})
    problem = problem_of(graph, "2xGPU:1GiB,CPU:1GiB")
    assert unconfined(problem, "a") == {"GPU:0", "GPU:1", "CPU:0"}
    assert unconfined(problem, "t") == {"CPU:0"}


def random_request(seed: int) -> PlacementProblem:
    """Five ops, some without a GPU kernel, with groups, pins, device strings and small caps."""
    rng = random.Random(seed)
    names = list("abcde")
    kinds = {name: rng.choice(["", "", "", "=HashTableV2"]) for name in names}
    lines = [f"{name}{kinds[name]}" for name in names]
    able = [name for name in names if not kinds[name]]
    lines += [f"{one} -> {other}" for one, other in pairwise(able)]
    spots = ["/gpu:0", "/gpu:1", "/cpu:0"]
    graph = draw(
        *lines,
        bytes={name: 4 * rng.randint(1, 3) for name in names if not kinds[name]},
        dtypes={name: "resource" for name in names if kinds[name]},
        devices={name: rng.choice(spots) for name in names if rng.random() < 0.3},
        groups=[rng.sample(names, 2) for _ in range(rng.choice([0, 1, 2]))],
    )
    return problem_of(
        graph,
        f"GPU:0:{rng.randint(8, 60)},GPU:1:{rng.randint(8, 60)},CPU:0:{rng.randint(8, 90)}",
        resident={name: rng.randint(0, 20) for name in names},
        pins={rng.choice(able): rng.choice(["GPU:0", "CPU:0"]) for _ in able[:2]},
        keep_together=tuple(rng.sample(["[ab]", "[cd]", "[ae]"], rng.choice([0, 0, 1]))),
        spill=rng.choice(["auto", "never"]),
    )


def test_everything_together_is_what_the_solver_sees():
    """A request has a conflict if and only if its problem has no placement at all."""
    found = {True: 0, False: 0}
    for seed in range(300):
        problem = random_request(seed)
        conflict = find_conflict(Elements(problem), clock.monotonic() + 10.0)
        is_infeasible = best_by_enumeration(problem) is None
        assert (conflict is not None) == is_infeasible, seed
        found[is_infeasible] += 1
    assert min(found.values()) > 50
