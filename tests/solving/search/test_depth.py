"""Where ops stand along the depth of a model, and the layers that are dealt out by it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from small_problems import problem_of

from placer.graph.passes.levels import Message, forward_levels
from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem
from placer.solving.baselines import BASELINES, DoesNotFitError
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.depth import find_depths
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve

LAYERS = 12
ACTIVATION, SAVED, WEIGHT = 10, 30, 100


def levels_of(problem: PlacementProblem) -> tuple[np.ndarray, int]:
    """The level of every op, and that of the turn."""
    messages = [Message(t.producer, t.consumers, t.bytes) for t in problem.tensors]
    levels, turn = forward_levels(len(problem.op_names), messages)
    return np.array(levels), turn


def hairpin(capacity: list[int], *, named: bool = True, layers: int = LAYERS) -> PlacementProblem:
    """A training step: weight w, forward op f and backward op b of every layer.

    x -> f0 -> f1 -> ... -> f11
         |     |             |      saved
    .. <-b0 <- b1 <- ... <- b11     w is read by f and b
    """
    tensors, names = [], []
    for layer in range(layers):
        w, f, b = 3 * layer, 3 * layer + 1, 3 * layer + 2
        names += [f"layer_{layer}/w", f"layer_{layer}/MatMul", f"g/layer_{layer}/MatMul"]
        tensors += [(w, [f, b], WEIGHT), (f, [b], SAVED)]
        if layer + 1 < layers:
            tensors += [(f, [f + 3], ACTIVATION), (b + 3, [b], ACTIVATION)]
        else:
            tensors.append((f, [b], ACTIVATION))
    start = 3 * layers  # what is fed
    tensors.append((start, [1], ACTIVATION))
    problem = problem_of(
        resident=[WEIGHT, 0, 0] * layers + [0],
        tensors=tensors,
        capacity=[*capacity, 0],
        allowed=[list(range(len(capacity)))] * (3 * layers + 1),
    )
    return replace(problem, op_names=(*names, "x")) if named else problem


@pytest.mark.parametrize("named", [True, False])
def test_backward_ops_are_where_their_forward_ops_are(named: bool) -> None:
    """Along the depth the three ops of a layer come together, layers in their order."""
    problem = hairpin([1000, 1000], named=named)
    depths = find_depths(problem, reduce_to_units(problem))
    assert bool(depths.blocks) == named
    for position in depths.orders():
        by_layer = np.array(position[: 3 * LAYERS]).reshape(LAYERS, 3)
        assert (by_layer[1:].min(axis=1) > by_layer[:-1].max(axis=1)).all()


def test_the_turn_is_where_most_is_saved() -> None:
    levels, turn = levels_of(hairpin([1000, 1000]))
    assert turn == LAYERS
    assert levels[1 : 3 * LAYERS : 3].tolist() == list(range(1, LAYERS + 1))
    assert (levels[2 : 3 * LAYERS : 3] == -1).all()


def trained(layers: int, *, clipped: bool) -> tuple[PlacementProblem, int]:
    """A :func:`hairpin` with an optimizer that reads its slots op by op, and the last forward op.

    handle -> read ----------> scaled    slots, more of them than activations are saved
    t -> power -> rate -> .. -> scaled
    b -> gradient -> update              all of these after their common norm where ``clipped``
    """
    step = hairpin([10**6, 10**6], layers=layers)
    tensors = [(each.producer, list(each.consumers), each.bytes) for each in step.tensors]
    begun = len(step.op_names)
    norm, rates, count = begun, range(begun + 1, begun + 4), begun + 4
    tensors += [(rates[0], [rates[1]], 1), (rates[1], [rates[2]], 1)]
    for layer in range(layers):
        gradient, update = count, count + 1
        tensors += [(3 * layer + 2, [gradient], WEIGHT)]
        tensors += [(gradient, [update, *([norm] if clipped else [])], WEIGHT)]
        tensors += [(norm, [update], 1)] if clipped else []
        count += 2
        for _ in range(12):
            handle, read, scaled = range(count, count + 3)
            tensors += [(handle, [read], 1), (read, [scaled], WEIGHT), (rates[2], [scaled], 1)]
            count += 3
    problem = problem_of(
        resident=[*step.resident_bytes, *[0] * (count - begun)],
        tensors=tensors,
        capacity=[10**6, 10**6, 0],
        allowed=[[0, 1]] * count,
    )
    return problem, 3 * (layers - 1) + 1


@pytest.mark.parametrize("clipped", [False, True])
def test_the_turn_is_not_where_an_optimizer_reads_or_waits(clipped: bool) -> None:
    """Slots are read at the beginning, and more of them than there are activations; clipped
    gradients are all there at the end."""
    problem, last_forward = trained(LAYERS, clipped=clipped)
    levels, turn = levels_of(problem)
    assert turn == LAYERS == levels[last_forward]
    assert levels[1 : 3 * LAYERS : 3].tolist() == list(range(1, LAYERS + 1))
    assert (levels[2 : 3 * LAYERS : 3] == -1).all()


def test_a_chain_has_no_turn() -> None:
    """Without anything saved all ops are forward ops."""
    chain = problem_of(
        resident=[1] * 9, tensors=[(op, [op + 1], 5) for op in range(8)], capacity=[9, 9]
    )
    levels, turn = levels_of(chain)
    assert turn == 8
    assert levels.tolist() == [1, *range(1, 9)]  # what is given is where it is read


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("devices", "room", "stages"), [(4, 3, 4), (4, 6, 2), (3, 12, 1)])
def test_layers_are_dealt_out_on_as_few_devices_as_hold_them(
    named: bool, devices: int, room: int, stages: int
) -> None:
    """Each cut costs an activation and its gradient; the stages are equal."""
    problem = hairpin([room * WEIGHT] * devices, named=named)
    device_of = BASELINES["layers"](problem)
    assert score(problem, device_of).transfer_bytes == (stages - 1) * 2 * ACTIVATION
    sizes = np.bincount([device_of[3 * layer] for layer in range(LAYERS)])
    assert sorted(sizes[sizes > 0]) == [LAYERS // stages] * stages


def test_the_search_begins_at_layers() -> None:
    """On a step whose ops are numbered in any order, with no time to search."""
    ordered = hairpin([16 * WEIGHT] * 4, layers=60)
    number = list(range(len(ordered.op_names)))
    random.Random(0).shuffle(number)
    new = {old: index for index, old in enumerate(number)}
    shuffled = problem_of(
        resident=[ordered.resident_bytes[old] for old in number],
        tensors=[
            (new[each.producer], [new[op] for op in each.consumers], each.bytes)
            for each in ordered.tensors
        ],
        capacity=list(ordered.capacity_bytes),
        allowed=[list(range(4))] * len(number),
    )
    found = solve(shuffled, SolverParameters(time_limit_seconds=0.0))
    assert found.value == score(shuffled, BASELINES["layers"](shuffled)).transfer_bytes
    assert found.value == 3 * 2 * ACTIVATION


def test_layers_say_that_they_do_not_fit() -> None:
    with pytest.raises(DoesNotFitError):
        BASELINES["layers"](hairpin([2 * WEIGHT] * 4))


def test_layers_that_go_on_side_by_side_are_dealt_out_too() -> None:
    """An unrolled recurrent network: layer i runs its step j at depth i + j, and has a weight that
    all its steps read.  Cut between layers each step sends one activation; cut between steps the
    weights would go along."""
    steps, layers, weight = 20, 4, 200
    names = [f"layer_{i}/kernel" for i in range(layers)]
    names += [f"layer_{i}/step_{j}/MatMul" for i in range(layers) for j in range(steps)]
    number = {name: index for index, name in enumerate(names)}
    tensors = []
    for i in range(layers):
        cells = [number[f"layer_{i}/step_{j}/MatMul"] for j in range(steps)]
        tensors.append((i, cells, weight))
        for j, cell in enumerate(cells):
            after = [cells[j + 1]] if j + 1 < steps else []
            above = [cell + steps] if i + 1 < layers else []
            tensors += [(cell, [*after, *above], 1)] if after or above else []
    problem = problem_of(
        resident=[weight] * layers + [0] * (layers * steps),
        tensors=tensors,
        capacity=[2 * weight, 2 * weight, 0],
        allowed=[[0, 1]] * len(names),
    )
    device_of = BASELINES["layers"](replace(problem, op_names=tuple(names)))
    assert score(problem, device_of).transfer_bytes == steps
