"""Moves of single units: the table knows what they save, refinement never loses, relief makes
placements fit, and bisection finds the cheap cuts of a chain."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
from small_problems import problem_of, random_problem

from placer.solving.compiled.arrays import Arrays, Ints
from placer.solving.compiled.gain_table import (
    apply_move,
    excess,
    gain,
    new_gain_table,
    transfer_of,
)
from placer.solving.compiled.parts import part_of
from placer.solving.compiled.priority_queues import fullest_first, new_queues, put, remove
from placer.solving.compiled.unit_moves import refine_transfer, relieve
from placer.solving.reduction.unit_problem import UnitProblem, reduce_to_units
from placer.solving.search.recursive_bisection import bisect_recursively
from placer.solving.search.unit_arrays import transfer_arrays

SEEDS = range(60)


def problems() -> Iterator[tuple[random.Random, UnitProblem, Arrays]]:
    for seed in SEEDS:
        problem = reduce_to_units(random_problem(seed, most_ops=12))
        yield random.Random(seed), problem, transfer_arrays(problem)


def anywhere(rng: random.Random, problem: UnitProblem) -> Ints:
    """A device for every unit, allowed or not."""
    return np.array([rng.randrange(problem.device_count) for _ in problem.allowed])


def test_the_table_knows_what_every_move_saves() -> None:
    """After any moves, the table is the one of the placement, and a gain what the value loses."""
    for rng, problem, arrays in problems():
        table = new_gain_table(arrays, anywhere(rng, problem))
        for _ in range(12):
            before = problem.value(table.device_of.tolist())
            assert before == transfer_of(arrays, table.device_of)
            unit = rng.randrange(problem.unit_count)
            target = rng.randrange(problem.device_count)
            if target != table.device_of[unit]:
                saved = gain(arrays, table, unit, target)
                apply_move(arrays, table, unit, target)
                assert problem.value(table.device_of.tolist()) == before - saved
            for kept, anew in zip(table, new_gain_table(arrays, table.device_of), strict=True):
                assert np.array_equal(kept, anew)


def test_refinement_never_loses() -> None:
    """A placement that keeps all rows keeps them, costs no more, and pinned units stay."""
    improved = 0
    for rng, problem, arrays in problems():
        placements = itertools.product(*problem.allowed)
        feasible = [each for each in placements if problem.is_feasible(each)]
        free = np.array([u for u, d in enumerate(problem.allowed) if len(d) > 1], np.int64)
        if not feasible or not len(free):
            continue
        start = rng.choice(feasible)
        for overfull in (1.0, 1.5):
            units = refine_transfer(arrays, np.array(start), free, 1, 3, 20, overfull).tolist()
            assert problem.is_feasible(units)
            assert problem.value(units) <= problem.value(start)
            improved += problem.value(units) < problem.value(start)
    assert improved > 30


def test_relief_takes_units_to_where_they_fit() -> None:
    """The excess never grows, and mostly nothing is left of it where there is a placement."""
    fitting = possible = 0
    for rng, problem, arrays in problems():
        if not all(problem.allowed):
            continue
        start = np.array([rng.choice(devices) for devices in problem.allowed])
        units = relieve(arrays, start, np.arange(problem.unit_count))
        assert excess(arrays, units) <= excess(arrays, start)
        assert all(d in devices for d, devices in zip(units, problem.allowed, strict=True))
        if any(problem.is_feasible(each) for each in itertools.product(*problem.allowed)):
            possible += 1
            fitting += problem.is_feasible(units.tolist())
    assert possible > 20
    assert fitting > 0.7 * possible


def test_a_part_counts_what_separates_its_halves() -> None:
    """On two devices the part of all units costs what the whole problem does."""
    for rng, problem, arrays in problems():
        if problem.device_count != 2:
            continue
        halves = np.array([0]), np.array([1])
        part = part_of(arrays, np.arange(problem.unit_count), halves, 1.0)
        units = anywhere(rng, problem)
        assert transfer_of(part, units) == problem.value(units.tolist())
        assert excess(part, units) == excess(arrays, units)


def test_bisection_cuts_a_chain_into_equal_parts() -> None:
    """200 units in a row, shuffled, on 8 devices with room for 26 each: 7 links are cut, give or
    take one."""
    names = random.Random(5).sample(range(200), 200)
    tensors = [(names[i], [names[i + 1]], 8) for i in range(199)]
    problem = reduce_to_units(problem_of(resident=[1] * 200, tensors=tensors, capacity=[26] * 8))
    arrays = transfer_arrays(problem)
    units = bisect_recursively(arrays, np.ones(200), np.random.default_rng(0)).tolist()
    assert problem.is_feasible(units)
    assert problem.value(units) <= 8 * 8


def test_queues_give_the_largest_key_first() -> None:
    """Against a dictionary, after any sequence of puts and removals."""
    rng = random.Random(0)
    queues = new_queues(3, 30)
    known: dict[int, tuple[int, float]] = {}
    for _ in range(3000):
        unit = rng.randrange(30)
        if unit in known and rng.random() < 0.4:
            remove(queues, known.pop(unit)[0], unit)
        else:
            device = known[unit][0] if unit in known else rng.randrange(3)
            known[unit] = device, rng.randrange(12)
            put(queues, device, unit, known[unit][1])
        for device in range(3):
            keys = [key for at, key in known.values() if at == device]
            assert queues.size[device] == len(keys)
            if keys:
                assert queues.key[queues.items[device, 0]] == max(keys)
        if known:
            device = fullest_first(queues)
            top = queues.key[queues.items[device, 0]]
            assert top == max(key for _, key in known.values())
