"""Colocation hints are left out, or law where that is asked for; what leaving them out saves."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from graphs_by_hand import draw, draw_costs
from small_problems import best_by_enumeration, placements_of, problem_of

from cost_models.clusters import parse_cluster
from placer.pipeline.formulation import build_problem
from placer.pipeline.plan_warnings import (
    _all_on_host,
    _shape_option,
    _unknown_shapes,
    hint_warnings,
    search_warnings,
)
from placer.pipeline.untried_changes import with_untried
from placer.plan.request import Options
from placer.prediction.scoring import score
from placer.problem.conflict import Conflict
from placer.problem.constraints import ConstraintOptions, find_constraints
from placer.solving.solution import Solution, SolverParameters, Status
from placer.solving.solver import solve

OPS = "abcdef"


def drawn(seed, *, ties=True):
    """Six ops in a row with a few more edges, two laws and three hints; or, without ``ties``, the
    same ops and edges alone."""
    rng = random.Random(seed)
    edges = {(one, other) for one, other in itertools.pairwise(OPS)}
    edges |= {tuple(sorted(rng.sample(OPS, 2))) for _ in range(3)}
    sizes = {name: 4 * rng.choice([1, 2, 5, 9]) for name in OPS}
    resident = {name: rng.choice([0, 8, 16, 40]) for name in OPS}
    pairs = rng.sample(list(itertools.combinations(OPS, 2)), 5)
    graph = draw(
        *(f"{one} -> {other}" for one, other in sorted(edges)),
        bytes=sizes,
        groups=pairs[:2] if ties else (),
        hints=pairs[2:] if ties else (),
    )
    cap = rng.choice([100, 130, 180])
    cluster = parse_cluster(f"GPU:0:{cap},GPU:1:{cap},CPU:0:9999")
    return graph, draw_costs(graph, persistent_bytes=resident), cluster, pairs


def formulation_of(seed, *, ties=True, keep=False):
    graph, costs, cluster, _ = drawn(seed, ties=ties)
    constraints = find_constraints(graph, cluster, ConstraintOptions(keep_colocation=keep))
    problem = build_problem(graph, costs, cluster, constraints, spill="never")
    problem = replace(problem, message_bytes=0, slower_bytes=(), fetched=())
    return SimpleNamespace(graph=graph, constraints=constraints, problem=problem)


def least_transfer(seed, ties):
    """The least transfer of all placements that keep the caps and each of the ``ties`` together;
    ``None`` if there is none."""
    problem = formulation_of(seed, ties=False).problem
    number = {name: op for op, name in enumerate(problem.op_names)}
    pairs = [(number[one], number[other]) for one, other in ties]
    found = [
        score(problem, device_of)
        for device_of in placements_of(problem)
        if all(device_of[one] == device_of[other] for one, other in pairs)
    ]
    return min((one.transfer_bytes for one in found if not one.violations), default=None)


def test_law_holds_and_hints_only_where_they_are_asked_for():
    """Over all placements of small graphs: what the solver sees, and what it finds, is the best
    that keeps the law; with the hints for law, the best that keeps both."""
    differ = 0
    for seed in range(120):
        pairs = drawn(seed)[3]
        best = {}
        for keep, ties in ((False, pairs[:2]), (True, pairs)):
            problem = formulation_of(seed, keep=keep).problem
            best[keep] = least_transfer(seed, ties)
            found = best_by_enumeration(problem)
            assert found == best[keep], seed
            if seed < 4:
                solution = solve(problem, SolverParameters(time_limit_seconds=20.0, workers=1))
                assert solution.value == best[keep]
        differ += best[False] != best[True]
    assert differ > 40


def test_the_warning_says_what_hints_tie():
    """A residual ``a -> .. -> f`` whose two ends a hint ties, and another hint that is followed."""
    graph = draw("a -> b -> c -> d -> f", hints=[("a", "f"), ("c", "d")])
    placement = dict(zip("abcdf", ["GPU:0"] * 2 + ["GPU:1"] * 3, strict=True))
    ((code, message, ops),) = hint_warnings(graph, placement)
    assert code == "colocation_hints"
    assert message == (
        "1 of 2 colocation hints (_class) are not followed: their 2 ops are on 2 "
        "devices. Use --keep-colocation to follow them (not tried)"
    )
    assert ops == ("a", "f")
    assert not list(hint_warnings(graph, dict.fromkeys("abcdf", "GPU:0")))


@pytest.mark.parametrize("keep", [False, True])
def test_hints_are_in_conflict_only_as_law(keep):
    """Two ops that fill a device each, tied by a hint: they fit apart; with the hints for law
    nothing does, the conflict names the option, and leaving it out is the fix."""
    from placer.solving.conflicts.conflict import explain_conflict

    graph = draw("a -> b", hints=[("a", "b")])
    cluster = parse_cluster("GPU:0:100,GPU:1:100,CPU:0:100")
    constraints = find_constraints(graph, cluster, ConstraintOptions(keep_colocation=keep))
    costs = draw_costs(graph, persistent_bytes={"a": 80, "b": 80})
    problem = build_problem(graph, costs, cluster, constraints, spill="never")
    assert (best_by_enumeration(problem) is None) == keep
    if keep:
        conflict = explain_conflict(problem)
        assert [row.request for row in conflict.groups] == ["--keep-colocation"]
        assert "without --keep-colocation" in [fix.change for fix in conflict.fixes]
        assert [group.reasons for group in constraints.groups] == [("colocation_hint",)]


@pytest.mark.parametrize(
    ("later", "is_split", "offered"),
    [(1.5, False, []), (0.9, False, ["TF_DISABLE_RZ_CHECK=1"]), (1.5, True, ["fragmentation"])],
)
def test_settings_are_offered_where_all_devices_then_have_enough(later, is_split, offered):
    """The second GPU has enough anyway."""
    cluster = parse_cluster("2xGPU:1GiB", None, "25%")
    cap = cluster.caps["GPU:0"]
    parts = SimpleNamespace(
        loading_bytes=0, later_steps_bytes=int(later * cap), serves_split=is_split
    )
    metrics = SimpleNamespace(
        over_caps=lambda _: ["GPU:0"],
        needs={"GPU:0": SimpleNamespace(parts=parts)},
        taken_bytes=lambda caps: {name: 2 * cap for name in caps},
    )
    wanted = Options(offload="auto", reserve="25%")
    workload = SimpleNamespace(cluster=cluster, wanted=wanted)
    offered = [*offered, "--max-memory GPU:0=2GiB"]  # of which a quarter is kept free
    fixes = with_untried(Conflict(), workload, metrics).fixes
    assert len(fixes) == len(offered)
    assert all(word in fix.change for word, fix in zip(offered, fixes, strict=True))
    assert with_untried(None, workload, metrics) is None
    workload.wanted = replace(
        wanted, offload="never"
    )  # the first sentence names it: so does the list
    assert with_untried(Conflict(), workload, metrics).fixes[0].change == "--offload auto"


@pytest.mark.parametrize(
    ("status", "codes"),
    [(Status.FEASIBLE, ["solver_stopped", "solver_crashed"]), (Status.OPTIMAL, ["solver_crashed"])],
)
def test_more_time_is_not_advised_next_to_a_proof(status, codes):
    """A search that was late is nothing to a placement that another proved best."""
    told = tuple((code, "told") for code in ("solver_stopped", "solver_crashed"))
    solution = Solution(status=status, warnings=told)
    assert [code for code, _, _ in search_warnings(solution)] == codes


def test_a_shape_is_advised_only_where_one_is_unknown():
    """The bytes of strings follow from no shape; what is known of another one is in the option."""
    shapes = {"text": (), "boxes": (None, 4)}
    ops = {
        name: SimpleNamespace(info=SimpleNamespace(outputs=[SimpleNamespace(shape=shape)]))
        for name, shape in shapes.items()
    }
    graph = SimpleNamespace(ops=ops)
    assert _shape_option(graph, ["text:0"]) == ""
    assert _shape_option(graph, ["text:0", "boxes:0"]) == "--shape boxes=32x4"


@pytest.mark.parametrize(("slower", "count"), [(0, 0), (1 << 20, 1)])
def test_a_host_that_does_everything_is_a_warning_where_that_takes_longer(slower, count):
    """What no accelerator computes faster loses nothing on the host."""
    formulation = formulation_of(1)
    problem = formulation.problem
    host = tuple(slower * (number == problem.host) for number in range(len(problem.device_names)))
    problem = replace(problem, spill="auto", slower_bytes=(host,) * len(problem.op_names))
    workload = SimpleNamespace(cluster=drawn(1)[2])
    formulation = SimpleNamespace(problem=problem, workload=workload)
    device_of = (problem.host,) * len(problem.op_names)
    found = list(_all_on_host(formulation, device_of, Status.FEASIBLE))
    assert len(found) == count


def test_tensors_of_unknown_shape_are_counted_and_named():
    assert not list(_unknown_shapes(()))
    ((code, message, ops),) = _unknown_shapes(("a:0", "b:0"))
    assert (code, ops) == ("unknown_shape", ("a:0", "b:0"))
    assert message == "the bytes of 2 tensors of unknown shape are not counted: a:0, b:0"


def test_next_to_a_proof_nothing_cheaper_is_left_to_be_found():
    """What is proven best is not what was found so far."""
    formulation = formulation_of(1)
    problem = formulation.problem
    host = tuple((1 << 20) * (n == problem.host) for n in range(len(problem.device_names)))
    slower = (host,) * len(problem.op_names)
    problem = replace(problem, spill="auto", slower_bytes=slower, tensors=())
    formulation = SimpleNamespace(problem=problem, workload=SimpleNamespace(cluster=drawn(1)[2]))
    for status, words in (
        (Status.OPTIMAL, "no placement"),
        (Status.FEASIBLE, "no placement was found that"),
    ):
        ((_, message, _),) = _all_on_host(formulation, (problem.host,) * len(slower), status)
        assert message.endswith(f", but {words} costs less with an accelerator")


def test_inputs_that_are_copied_anyway_keep_no_op_on_a_host():
    """What is fed to the CPU of another task is copied there as it would be to its accelerator."""
    cluster = parse_cluster("GPU:0,CPU:1,CPU:0", {"GPU:0": "9MiB"})
    problem = problem_of(
        resident=[0] * 4,
        tensors=[(0, [1], 1 << 30), (1, [2, 3], 8)],
        capacity=[1 << 34] * 3,
        allowed=[[2], *[[0, 1]] * 3],
        host=2,
    )
    slower = ((0, 1 << 20, 1 << 20),) * 4
    problem = replace(problem, spill="auto", slower_bytes=slower)
    formulation = SimpleNamespace(problem=problem, workload=SimpleNamespace(cluster=cluster))
    ((_, message, _),) = _all_on_host(formulation, (2, 1, 1, 1), Status.FEASIBLE)
    assert message.endswith("but no placement was found that costs less with an accelerator")
    ((_, message, _),) = _all_on_host(formulation, (2, 2, 2, 2), Status.FEASIBLE)
    assert "but copying its inputs would take" in message


@pytest.mark.parametrize("objective", ["transfer", "throughput", "step-time"])
def test_hosts_that_do_everything_are_a_warning_whatever_the_objective(objective):
    """On any CPU of a cluster; not where offloading is forbidden, or an accelerator has an op."""
    cluster = parse_cluster("GPU:0,CPU:1,CPU:0", {"GPU:0": "9MiB"})
    names = tuple(cluster.caps)
    problem = formulation_of(1).problem
    count = len(problem.op_names)
    problem = replace(
        problem,
        device_names=names,
        allowed=((0, 1, 2),) * count,
        spill="auto",
        objective=objective,
        slower_bytes=((0, 1 << 20, 1 << 20),) * count,
        host=2,
    )
    formulation = SimpleNamespace(problem=problem, workload=SimpleNamespace(cluster=cluster))
    both = (1, *[2] * (count - 1))
    ((code, message, _),) = _all_on_host(formulation, both, Status.FEASIBLE)
    assert code == "all_on_host"
    assert message.startswith("everything is on CPU:1, CPU:0: ")
    assert not list(_all_on_host(formulation, (0, *both[1:]), Status.FEASIBLE))
    forbidden = SimpleNamespace(**{**vars(formulation), "problem": replace(problem, spill="never")})
    assert not list(_all_on_host(forbidden, both, Status.FEASIBLE))
