"""What crosses in every placement is never more than the least that crosses in one."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from small_problems import problem_of, random_problem

from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.transfer.solving import forced_bytes


def test_no_placement_transfers_less_than_what_is_forced() -> None:
    """On a thousand random problems with ops that may not run everywhere, caps left aside; often
    nothing else crosses."""
    tight = above_zero = 0
    for seed in range(1000):
        rng, problem = random.Random(seed), random_problem(seed, most_ops=5)
        devices = range(len(problem.device_names))
        allowed = [
            tuple(rng.sample(devices, rng.randint(1, len(devices)))) for _ in problem.allowed
        ]
        units = reduce_to_units(replace(problem, allowed=tuple(allowed)))
        if not all(units.allowed):
            continue
        best = min(units.value(placed) for placed in itertools.product(*units.allowed))
        forced = forced_bytes(units)
        assert forced <= best, seed
        tight += forced == best
        above_zero += forced > 0
    assert tight > 100
    assert above_zero > 100


def test_an_input_on_the_host_crosses_once() -> None:
    """And to both devices if it is pinned there; what may stay together costs nothing."""
    tensors = [(0, [1, 2], 5), (1, [2], 3)]
    free = problem_of(
        resident=[1, 1, 1], tensors=tensors, capacity=[9, 9, 9], allowed=[[2], [0, 1], [0, 1]]
    )
    assert forced_bytes(reduce_to_units(free)) == 5
    pinned = problem_of(
        resident=[1, 1, 1], tensors=tensors, capacity=[9, 9, 9], allowed=[[2], [0], [1]]
    )
    assert forced_bytes(reduce_to_units(pinned)) == 5 + 5 + 3
