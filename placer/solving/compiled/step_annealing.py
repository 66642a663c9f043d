"""Simulated annealing of the step time, each move judged by a simulated step.

Most moves take a unit off the chain of ops that ends last, each begun by the end or the
message of the one before: only a change there can shorten the step.
"""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Floats, Ints, Units
from placer.solving.compiled.jit import compiled, compiled_part
from placer.solving.compiled.step_simulation import Program, Timing, step_seconds

_CHAIN_SHARE = 0.6
_NEAR_SHARE = 0.6
_SWAP_SHARE = 0.15


@compiled
def anneal_step(
    program: Program,
    units: Units,
    capacity: Floats,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperatures: tuple[float, float],
) -> tuple[float, Ints, float, Ints]:
    """The least step time found with its placement, and the last one reached.

    ``device_of`` keeps all rows of ``capacity[row, device]``; ``free`` are the units that may move.
    The temperature falls geometrically over the ``steps`` between two values in seconds.
    """
    np.random.seed(seed)
    ops = program.unit_of.shape[0]
    state = device_of.copy()
    used = np.zeros_like(capacity)
    for unit in range(state.shape[0]):
        used[:, state[unit]] += units.weights[:, unit]
    timing = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
    tried = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
    value = step_seconds(program, state, timing)
    best, least = state.copy(), value
    chain = _chain(timing)
    changed = value
    heat = temperatures[0]
    cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, steps))
    for _ in range(steps):
        heat *= cooling
        unit, target, other = _proposal(program, units, state, free, chain)
        source = state[unit]
        if target == source:
            continue
        _shift(units, used, state, unit, target)
        if other >= 0:
            _shift(units, used, state, other, source)
        accepted = (used[:, target] <= capacity[:, target]).all() and (
            other < 0 or (used[:, source] <= capacity[:, source]).all()
        )
        if accepted:
            changed = step_seconds(program, state, tried)
            accepted = changed <= value or np.random.random() < np.exp((value - changed) / heat)
        if accepted:
            value = changed
            timing.finish[:] = tried.finish
            timing.cause[:] = tried.cause
            chain = _chain(timing)
            if value < least * (1.0 - 1e-12):
                least = value
                best[:] = state
        else:
            if other >= 0:
                _shift(units, used, state, other, target)
            _shift(units, used, state, unit, source)
    return least, best, value, state


@compiled_part
def _proposal(
    program: Program, units: Units, state: Ints, free: Ints, chain: Ints
) -> tuple[int, int, int]:
    """A unit, a device for it (its own: no move), and a unit there to swap with (or -1)."""
    unit = int(free[np.random.randint(free.shape[0])])
    target = np.random.randint(units.allowed.shape[1])
    if np.random.random() < _CHAIN_SHARE:
        place = np.random.randint(chain.shape[0])
        unit = int(program.unit_of[chain[place]])
        if np.random.random() < _NEAR_SHARE:
            near = max(0, min(chain.shape[0] - 1, place + 1 - 2 * np.random.randint(2)))
            target = int(state[program.unit_of[chain[near]]])
    source = int(state[unit])
    if not units.allowed[unit, target]:
        target = source
    other = -1
    if target != source and np.random.random() < _SWAP_SHARE:
        other = int(free[np.random.randint(free.shape[0])])
        if state[other] != target or not units.allowed[other, source]:
            other = -1
    return unit, target, other


@compiled_part
def _shift(units: Units, used: Floats, state: Ints, unit: int, target: int) -> None:
    used[:, state[unit]] -= units.weights[:, unit]
    used[:, target] += units.weights[:, unit]
    state[unit] = target


@compiled_part
def _chain(timing: Timing) -> Ints:
    """The ops from the one that ends last back to where the step began."""
    length = 1
    op = int(timing.finish.argmax())
    while timing.cause[op] >= 0 and length < timing.finish.shape[0]:
        op = timing.cause[op]
        length += 1
    chain = np.zeros(length, np.int64)
    op = int(timing.finish.argmax())
    for place in range(length):
        chain[place] = op
        op = timing.cause[op]
    return chain
