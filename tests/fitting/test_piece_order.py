"""Control edges that make a pipeline of pieces: closed forms, enumeration, and a random search for
cycles."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from graphs_by_hand import draw, draw_cluster, draw_costs
from hypothesis import given
from hypothesis import strategies as st

from placer.fitting.piece_order import order_pieces
from placer.graph.control_edges import add_control_edges
from placer.graph.op_graph import OpGraph
from placer.prediction.prediction import predict

LAYERS_PER_STAGE = 3
FLOPS = 10**9
"""A second on a drawn device."""


def forward(pieces: int, stages: Sequence[int], in_flight: int) -> tuple[OpGraph, dict[str, str]]:
    """Pieces that go through the layers of some stages, one device per entry of ``stages``.

    x ---> piece_0/l0 ---> piece_0/l1 ---> ...      the first op of a piece waits for the last one
      '--> piece_1/l0 ---> ...                      of the piece in_flight before it
    """
    devices = [f"GPU:{stage}" for stage in stages for _ in range(LAYERS_PER_STAGE)]
    lines, placement = ["x=Placeholder"], {"x": "CPU:0"}
    for piece in range(pieces):
        names = [f"piece_{piece}/l{layer}" for layer in range(len(devices))]
        placement |= dict(zip(names, devices, strict=True))
        lines += [" -> ".join(["x", *names])]
        if piece >= in_flight:
            lines.append(f"piece_{piece - in_flight}/l{len(devices) - 1} ..> {names[0]}")
    return draw(*lines, bytes=0, feeds=["x"]), placement


def training(pieces: int, in_flight: int) -> tuple[OpGraph, dict[str, str]]:
    """Two stages with a forward and a backward pass of two ops each, whose gradients are summed up.

    GPU:0   f0 --> f0' ----------------------------------> b0 --> b0' --> sum (of all pieces)
                    '-> (GPU:1)  f1 --> f1' --> b1 --> b1' -'
    """
    lines, placement = ["x=Placeholder"], {"x": "CPU:0"}
    passes = [f"{name}_{half}" for name in ("f0", "f1", "b1", "b0") for half in (0, 1)]
    for piece in range(pieces):
        names = [f"piece_{piece}/{name}" for name in (*passes, "sum")]
        lines.append(" -> ".join(["x", *names]))
        lines.append(f"{names[1]} -> {names[6]}")
        placement |= {n: "GPU:1" if "1_" in n.rpartition("/")[2] else "GPU:0" for n in names}
        if piece:
            lines.append(f"piece_{piece - 1}/sum -> {names[-1]}")
        if piece >= in_flight:
            lines.append(f"piece_{piece - in_flight}/sum ..> {names[0]}")
    return draw(*lines, bytes=0, feeds=["x"]), placement


def seconds_of_passes(graph: OpGraph, forwards: int, backwards: int) -> dict[str, int]:
    """The FLOPs of every op, if a half of a pass takes so many seconds."""
    kinds = {"f": forwards, "b": backwards}
    return {name: FLOPS * kinds.get(name.rpartition("/")[2][0], 0) for name in graph.ops}


def step_seconds(graph: OpGraph, flops: Mapping[str, int], placement: Mapping[str, str]) -> float:
    cluster = draw_cluster(*dict.fromkeys(placement.values()))
    return predict(graph, draw_costs(graph, flops=flops), placement, cluster).schedule.step_seconds


def pipelined(
    graph: OpGraph, flops: Mapping[str, int], placement: Mapping[str, str]
) -> tuple[OpGraph, tuple[tuple[str, str], ...]]:
    """The graph with the control edges of a pipeline, and these."""
    cluster = draw_cluster(*dict.fromkeys(placement.values()))
    edges = order_pieces(graph, draw_costs(graph, flops=flops), placement, cluster)
    return add_control_edges(graph, edges), edges


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("pieces", [2, 5, 8])
def test_equal_stages_take_the_time_to_fill_and_to_drain(stages: int, pieces: int):
    """(pieces + stages - 1) times what one stage does of one piece; as they come, the pieces are
    in lock-step and take longer."""
    graph, placement = forward(pieces, range(stages), in_flight=stages + 1)
    flops = {name: FLOPS if name.startswith("piece") else 0 for name in graph.ops}
    ordered, edges = pipelined(graph, flops, placement)
    expected = (pieces + stages - 1) * LAYERS_PER_STAGE
    assert step_seconds(ordered, flops, placement) == pytest.approx(expected)
    assert step_seconds(graph, flops, placement) > 1.1 * expected
    assert all(placement[before] == placement[after] for before, after in edges)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(2, 6))
def test_unequal_stages_keep_the_slowest_one_busy(seconds: list[int], pieces: int):
    """Equal jobs through machines in a row: the sum of all stages, and the slowest one for each
    further piece.  No order is shorter: that machine has so much to do, the first piece has to
    come there and the last one to go on."""
    graph, placement = forward(pieces, range(len(seconds)), in_flight=pieces)
    flops = dict.fromkeys(graph.ops, 0) | {
        f"piece_{piece}/l{LAYERS_PER_STAGE * stage}": FLOPS * each
        for piece in range(pieces)
        for stage, each in enumerate(seconds)
    }
    ordered, _ = pipelined(graph, flops, placement)
    expected = sum(seconds) + (pieces - 1) * max(seconds)
    assert step_seconds(ordered, flops, placement) == pytest.approx(expected)


@pytest.mark.parametrize(("forwards", "backwards"), [(1, 1), (1, 2), (3, 2)])
def test_a_training_step_is_as_short_as_any_order_of_its_passes(forwards: int, backwards: int):
    """Three pieces, forward and backward: no order in which the two devices could run their passes
    is shorter (all of them are tried)."""
    graph, placement = training(3, in_flight=3)
    flops = seconds_of_passes(graph, forwards, backwards)
    ordered, _ = pipelined(graph, flops, placement)
    least = least_by_enumeration(3, 2 * forwards, 2 * backwards)
    assert step_seconds(ordered, flops, placement) == pytest.approx(least)


def least_by_enumeration(pieces: int, forwards: int, backwards: int) -> int:
    """The shortest step over all orders of the passes on each of two devices."""
    numbers = range(pieces)
    passes = [[("f", d, i) for i in numbers] + [("b", d, i) for i in numbers] for d in (0, 1)]
    orders = [[o for o in itertools.permutations(some) if _forward_first(o)] for some in passes]
    found = [_makespan(a, b, forwards, backwards) for a in orders[0] for b in orders[1]]
    return min(seconds for seconds in found if seconds is not None)


def _forward_first(order: Sequence[tuple[str, int, int]]) -> bool:
    return all(order.index(("f", d, i)) < order.index(("b", d, i)) for _, d, i in order)


def _makespan(
    one: Sequence[tuple[str, int, int]],
    two: Sequence[tuple[str, int, int]],
    forwards: int,
    backwards: int,
) -> int | None:
    """When all is done, each device running its passes in the given order; ``None`` if they wait
    for each other."""
    done: dict[tuple[str, int, int], int] = {}
    queues, free = [list(one), list(two)], [0, 0]
    while any(queues):
        for device, queue in enumerate(queues):
            if not queue:
                continue
            kind, _, piece = queue[0]
            before = [("f", 0, piece)] if device else [("b", 1, piece)]
            needed = before if (kind == "f") == bool(device) else [("f", device, piece)]
            if kind == "f" and not device:
                needed = []
            if all(each in done for each in needed):
                begin = max([free[device], *(done[each] for each in needed)])
                free[device] = begin + (forwards if kind == "f" else backwards)
                done[queue.pop(0)] = free[device]
                break
        else:
            return None
    return max(free)


def test_backward_comes_before_the_next_forward():
    """One forward, one backward: the first stage takes up a fourth piece only when the first one
    has come back, so that three pieces' activations are held and not all six."""
    graph, placement = training(6, in_flight=6)
    _, edges = pipelined(graph, seconds_of_passes(graph, 1, 1), placement)
    order = [after for before, after in edges if placement[after] == "GPU:0"]
    assert order.index("piece_0/b0_0") < order.index("piece_3/f0_0")


def test_what_is_in_no_piece_is_of_the_last_one_that_it_depends_on():
    """A join of both pieces waits for nothing more than they do, and no cycle comes of it."""
    graph = draw(
        "x=Placeholder -> piece_0/a -> piece_0/b -> joined",
        "x -> piece_1/a -> piece_1/b -> joined -> y",
        bytes=0,
        feeds=["x"],
        fetches=["y:0"],
    )
    placement = {
        name: "GPU:1" if name[-1] in "b" or name == "joined" else "GPU:0" for name in graph.ops
    } | {"x": "CPU:0"}
    flops = dict.fromkeys(graph.ops, FLOPS)
    ordered, edges = pipelined(graph, flops, placement)
    assert step_seconds(ordered, flops, placement) <= step_seconds(graph, flops, placement)
    assert not any(after in ("joined", "y") for _, after in edges)


@pytest.mark.parametrize(
    "lines",
    [
        ["x=Placeholder -> a -> b"],  # no pieces
        ["x=Placeholder -> piece_0/a -> piece_0/b"],  # one
        ["x=Placeholder -> piece_1/a -> piece_0/b", "x -> piece_1/c"],  # backwards
    ],
)
def test_no_pipeline_without_pieces_in_their_order(lines: list[str]):
    """Nothing to order, or nothing that is known about the order."""
    graph = draw(*lines, bytes=0, feeds=["x"])
    placement = {n: "GPU:1" if n.endswith("b") else "GPU:0" for n in graph.ops} | {"x": "CPU:0"}
    assert pipelined(graph, dict.fromkeys(graph.ops, FLOPS), placement)[1] == ()


@given(st.data())
def test_there_is_never_a_cycle_and_the_step_is_never_longer(data: st.DataObject):
    """Random graphs of random pieces on random devices, with ops between the pieces."""
    count = data.draw(st.integers(4, 24))
    pieces = sorted(data.draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count)))
    scopes = [f"piece_{piece}/" if piece >= 0 else "" for piece in pieces]
    names = [f"{scope}op{number}" for number, scope in enumerate(scopes)]
    lines = ["x=Placeholder"]
    for number, name in enumerate(names):
        before = data.draw(st.lists(st.sampled_from(["x", *names[:number]]), max_size=3))
        lines += [f"{other} -> {name}" for other in dict.fromkeys(before)]
        lines.append(f"{name} -> end{number}")  # what is in no piece, at any place
    graph = draw(*lines, bytes=0, feeds=["x"])
    device = st.sampled_from(["GPU:0", "GPU:1", "CPU:0"])
    placement = {name: data.draw(device) for name in graph.ops} | {"x": "CPU:0"}
    flops = {name: FLOPS * data.draw(st.integers(0, 3)) for name in graph.ops}
    cluster = draw_cluster("GPU:0", "GPU:1")
    costs = draw_costs(graph, flops=flops)
    edges = order_pieces(graph, costs, placement, cluster)
    ordered = add_control_edges(graph, edges)  # raises for a cycle
    before, after = (
        predict(each, costs, placement, cluster).schedule.step_seconds for each in (graph, ordered)
    )
    assert after <= before
