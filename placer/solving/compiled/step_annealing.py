"""Simulated annealing of the step time, each move judged by a simulated step.

Most moves take a unit off the chain of ops that ends last, each begun by the end or the
message of the one before: only a change there can shorten the step.

What devices hold above their limits costs, more while something is and less while nothing is
(:mod:`placer.solving.compiled.held_annealing`).
"""

import numpy as np

from placer.machine_code.jit import compiled, compiled_part
from placer.solving.compiled.arrays import Floats, Ints, Units
from placer.solving.compiled.held_bytes import (
    PRICES,
    TINY,
    Held,
    excess_of,
    hold,
    is_better,
    next_price,
    shift,
)
from placer.solving.compiled.step_simulation import Program, Timing, step_seconds

_CHAIN_SHARE = 0.6
_NEAR_SHARE = 0.6
_SWAP_SHARE = 0.15

_CROWDED_SHARE = 0.5


@compiled
def anneal_step(
    program: Program,
    units: Units,
    capacity: Floats,
    held: Held,
    limit: Floats,
    moments: int,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperatures: tuple[float, float],
) -> Ints:
    """The placement of the least step time that holds nothing above ``limit[device]`` at any of the
    ``moments``, or the one found that holds the least above.

    ``device_of`` keeps all rows of ``capacity[row, device]``; ``free`` are the units that may move.
    The temperature falls geometrically over the ``steps`` between two values in seconds.  Long, as
    it is the one loop over moves.
    """
    np.random.seed(seed)
    ops = program.unit_of.shape[0]
    state = device_of.copy()
    used = np.zeros_like(capacity)
    for unit in range(state.shape[0]):
        used[:, state[unit]] += units.weights[:, unit]
    in_use, change = hold(held, state, limit.shape[0], moments), np.zeros((2, moments + 1))
    excess = excess_of(in_use, limit)
    timing = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
    tried = Timing(np.zeros(ops), np.full(ops, -1, np.int64))
    value = step_seconds(program, state, timing)
    best, best_value, best_excess = state.copy(), value, excess
    chain = _chain(timing)
    heat = temperatures[0]
    cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, steps))
    # the lowest price of a byte above a limit at one moment, in steps per bytes of the lowest limit
    first_price = 0.01 * value / max(1.0, limit.min())
    price = first_price
    period = max(1, steps // PRICES)
    for step in range(steps):
        heat *= cooling
        if step % period == 0:
            following = next_price(price, first_price, 1000.0 * first_price, excess)
            price = max(first_price, following)
        crowded = _crowded(in_use, limit) if excess > TINY else -1
        unit, target, other = _proposal(program, units, state, free, chain, crowded)
        source = state[unit]
        if target == source:
            continue
        more = _move(units, held, used, in_use, limit, state, unit, target, change)
        if other >= 0:
            more += _move(units, held, used, in_use, limit, state, other, source, change)
        fits = (used[:, target] <= capacity[:, target]).all() and (
            other < 0 or (used[:, source] <= capacity[:, source]).all()
        )
        most = value - price * more - heat * np.log(1.0 - np.random.random())
        changed = np.inf
        if fits and most > 0.7 * value:  # a move that has to save more is not tried
            changed = step_seconds(program, state, tried)
        if changed <= most:
            value = changed
            excess += more
            timing.finish[:] = tried.finish
            timing.cause[:] = tried.cause
            chain = _chain(timing)
            if is_better(excess, value, best_excess, best_value * (1.0 - 1e-12)):
                best_value, best_excess = value, excess
                best[:] = state
        else:
            if other >= 0:
                _move(units, held, used, in_use, limit, state, other, target, change)
            _move(units, held, used, in_use, limit, state, unit, source, change)
    return best


@compiled_part
def _proposal(
    program: Program, units: Units, state: Ints, free: Ints, chain: Ints, crowded: int
) -> tuple[int, int, int]:
    """A unit, often of the ``crowded`` device if there is one, a device for it (its own: no move),
    and a unit there to swap with (or -1)."""
    unit = int(free[np.random.randint(free.shape[0])])
    target = np.random.randint(units.allowed.shape[1])
    if crowded >= 0 and np.random.random() < _CROWDED_SHARE:
        for _ in range(16):  # draws until one is of the crowded device
            if state[unit] == crowded:
                break
            unit = int(free[np.random.randint(free.shape[0])])
    elif np.random.random() < _CHAIN_SHARE:
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
def _crowded(in_use: Floats, limit: Floats) -> int:
    """The device that holds the most above its limit at any moment."""
    crowded, most = -1, 0.0
    for device in range(limit.shape[0]):
        over = in_use[device].max() - limit[device]
        if over > most:
            crowded, most = device, over
    return crowded


@compiled_part
def _move(
    units: Units,
    held: Held,
    used: Floats,
    in_use: Floats,
    limit: Floats,
    state: Ints,
    unit: int,
    target: int,
    change: Floats,
) -> float:
    """Moves a unit; by how much more is then held above the limits, summed over all moments."""
    used[:, state[unit]] -= units.weights[:, unit]
    used[:, target] += units.weights[:, unit]
    return float(shift(held, state, in_use, limit, unit, target, change))


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
