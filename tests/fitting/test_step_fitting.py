"""Drawn steps made to fit."""

from __future__ import annotations

import pytest
from graphs_by_hand import draw, draw_costs

from cost_models.clusters import parse_cluster
from placer.fitting import step_trials
from placer.fitting.fitted_step import FitRequest, FittedStep
from placer.fitting.rewriting import reads_what_ran
from placer.fitting.step_fitting import fit_step
from placer.graph.op_graph import Variable
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.prediction import predict

KILO = 1000


def small_buffers_and_a_large_one():
    """One large value waits for the end of a chain that reads 300 small ones; with the costs."""
    count = 300
    graph = draw(
        "x=Placeholder -> large, s0",
        *(f"s{n}, m{n}=RandomUniform -> s{n + 1}" for n in range(count)),
        f"large, s{count} -> end",
        bytes={"large": 1000 * KILO, **{f"m{n}": 3 * KILO for n in range(count)}},
        feeds=["x"],
        fetches=["end:0"],
    )
    return graph, draw_costs(graph), dict.fromkeys(graph.ops, "CPU:0")


def test_many_small_buffers_are_held_to_their_order():
    """Each is below the share of what is large: edges between large ones alone leave those to the
    executor, which makes many of them first."""
    graph, costs, placement = small_buffers_and_a_large_one()
    free = parse_cluster("CPU:64GiB", None, None)
    peak = predict(graph, costs, placement, free, with_needs=False).peaks["CPU:0"].high_bytes
    assert peak > 1500 * KILO
    cluster = parse_cluster(f"CPU:{1100 * KILO}B", None, None)
    request = FitRequest(means=("order",), seconds=0.0, with_needs=False)
    assert fit_step(graph, costs, placement, cluster, request).fits


def test_what_waits_for_memory_alone_cannot_hold_is_held_in_line(monkeypatch):
    graph, costs, placement = small_buffers_and_a_large_one()
    cluster = parse_cluster(f"CPU:{1100 * KILO}B", None, None)
    request = FitRequest(means=("order",), seconds=0.0, with_needs=False)
    monkeypatch.setattr(step_trials, "edges_along", lambda *_: [])
    found = fit_step(graph, costs, placement, cluster, request)
    assert found.fits
    assert len(found.control_edges) > 300
    monkeypatch.setattr(step_trials, "edges_in_line", lambda *_: [])
    assert not fit_step(graph, costs, placement, cluster, request).fits


def test_of_steps_that_take_as_long_the_one_with_fewer_edges_is_better():
    """A sum of the same times in another order differs in the last digit, which is not a time."""
    edges = [("a", "b"), ("c", "d")]
    sums = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert sums[0] > sums[1]
    more, fewer = (
        FittedStep(control_edges=tuple(some), free_seconds=0.5, step_seconds=seconds)
        for some, seconds in ((edges, sums[1]), (edges[:1], sums[0]))
    )
    assert fewer.rank < more.rank
    slower = FittedStep(free_seconds=0.5, step_seconds=0.6001)
    assert fewer.rank < slower.rank


def test_an_order_with_a_reader_before_what_it_reads_is_none():
    """x -> a -> early, a' -> late: without the clone a', `late` reads `a`, and comes after it."""
    graph = draw("x=Placeholder -> a -> early", "a -> late", feeds=["x"])
    placement = dict.fromkeys(graph.ops, "CPU:0")
    step = StepMemory(graph, draw_costs(graph), placement, ("CPU:0",), "CPU:0")

    def is_order(*names):
        return reads_what_ran(step.layout, [step.number[name] for name in names])

    assert is_order("x", "a", "late", "early")
    assert is_order("x", "a", "early", "late")
    assert not is_order("x", "late", "a", "early")


def chain_with_joined_gradients(sizes, gradient_bytes):
    """Every layer keeps a value of so many bytes for the backward pass; all gradients of variables
    go through one join.

    x -> f0 -> f1 -> f2;  f2 -> g2 -> g1 -> g0;  gi, fi -> wi -> join -> ni -> assigned to vi
    """
    layers = range(len(sizes))
    g, w = ([f"gradient_tape/f{n}/{kind}" for n in layers] for kind in "gw")
    large = {name: size for n, size in enumerate(sizes) for name in (f"f{n}", g[n])}
    small = [*w, *(f"{kind}{n}" for n in layers for kind in ("r", "n", "join:"))]
    graph = draw(
        "x=Placeholder -> f0",
        *(f"f{n} -> f{n + 1}" for n in layers[:-1]),
        f"f{layers[-1]} -> {g[-1]}=ReluGrad",
        *(f"{g[n + 1]}, f{n} -> {g[n]}=ReluGrad" for n in layers[:-1]),
        *(f"{g[n]}, f{n} -> {w[n]}=ReluGrad -> join=IdentityN" for n in layers),
        *(f"v{n}=VarHandleOp -> r{n}=ReadVariableOp -> n{n}" for n in layers),
        *(f"join:{n} -> n{n}" for n in layers),
        *(f"v{n}, n{n} -> u{n}=AssignVariableOp" for n in layers),
        dtypes={f"v{n}": "resource" for n in layers},
        bytes={**large, **dict.fromkeys(small, gradient_bytes)},
        feeds=["x"],
        targets=[f"u{n}" for n in layers],
        variables=[
            Variable(name=f"v{n}", handle=f"v{n}", dtype="float32", shape=(gradient_bytes // 4,))
            for n in layers
        ],
    )
    resident = {f"v{n}": gradient_bytes for n in layers}
    costs = draw_costs(graph, persistent_bytes=resident, flops=dict.fromkeys(graph.ops, 10**9))
    return graph, costs, {name: "CPU:0" if name == "x" else "GPU:0" for name in graph.ops}


@pytest.mark.parametrize(
    ("sizes", "gradient_bytes", "keeps_join"),
    [((2, 2, 1, 1, 4, 1), 64 << 10, True), ((4, 4, 1, 2, 4, 2), 256 << 10, False)],
)
def test_a_join_of_gradients_is_released_or_kept_whichever_fits(sizes, gradient_bytes, keeps_join):
    """Kept, all gradients are there at once; released, new values of variables lie between large
    buffers."""
    graph, costs, placement = chain_with_joined_gradients([n << 20 for n in sizes], gradient_bytes)
    free = parse_cluster("1xT4,CPU:1GiB", None, "0")
    need = predict(graph, costs, placement, free).needs["GPU:0"].need.high_bytes
    cluster = parse_cluster("1xT4,CPU:1GiB", {"GPU:0": f"{int(0.6 * need)}B"}, "0")

    def fitted(*means):
        request = FitRequest(means=("order", "recompute", *means), seconds=0.0)
        return fit_step(graph, costs, placement, cluster, request)

    found = fitted("release")
    assert found.fits
    assert found.rewriting.released == (() if keeps_join else ("join",))
    assert fitted().fits == keeps_join
