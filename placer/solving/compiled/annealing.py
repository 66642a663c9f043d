"""Simulated annealing of the largest load.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by Simulated Annealing, Science 220 (1983),
doi:10.1126/science.220.4598.671.  The energy is a power mean of the loads, so that moves between
devices other than the fullest count too; the placement kept is the one with the least maximum.
"""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Ints
from placer.solving.compiled.jit import compiled, compiled_part
from placer.solving.compiled.loads import State, keeps_rows, move, new_state
from placer.solving.compiled.neighbours import has_nets, neighbour_device

_SWAP_SHARE = 0.15
_NEIGHBOUR_SHARE = 0.7
_LAST_TEMPERATURE = 1e-4


@compiled
def anneal(
    arrays: Arrays,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperature: float,
    power: float,
) -> tuple[float, Ints]:
    """The least maximum load found, and its placement.

    ``device_of`` keeps all rows; ``free`` are the units that may move.  ``temperature`` is a share
    of the first maximum and falls geometrically over the ``steps``.
    """
    np.random.seed(seed)
    state = new_state(arrays, device_of)
    best = state.device_of.copy()
    least = state.load.max()
    scale = max(least, 1e-300)
    energy = _energy(state, scale, power)
    cooling = (_LAST_TEMPERATURE / temperature) ** (1.0 / steps)
    heat = temperature * scale
    for _ in range(steps):
        heat *= cooling
        unit = free[np.random.randint(free.shape[0])]
        source = state.device_of[unit]
        target = _target(arrays, state, unit)
        if target == source or not arrays.units.allowed[unit, target]:
            continue
        other = -1
        if np.random.random() < _SWAP_SHARE:
            other = free[np.random.randint(free.shape[0])]
            if state.device_of[other] != target or not arrays.units.allowed[other, source]:
                other = -1
        move(arrays, state, unit, target)
        if other >= 0:
            move(arrays, state, other, source)
        changed = energy
        accepted = keeps_rows(arrays, state, target) and (
            other < 0 or keeps_rows(arrays, state, source)
        )
        if accepted:
            changed = _energy(state, scale, power)
            accepted = changed <= energy or np.random.random() < np.exp((energy - changed) / heat)
        if accepted:
            energy = changed
            if state.load.max() < least * (1.0 - 1e-12):
                least = state.load.max()
                best[:] = state.device_of
        else:
            if other >= 0:
                move(arrays, state, other, target)
            move(arrays, state, unit, source)
    return least, best


@compiled_part
def _energy(state: State, scale: float, power: float) -> float:
    total = 0.0
    for load in state.load:
        total += max(0.0, load / scale) ** power
    return float(scale * total ** (1.0 / power))


@compiled_part
def _target(arrays: Arrays, state: State, unit: int) -> int:
    """Mostly the device of a unit that shares a net with this one."""
    if has_nets(arrays.units, unit) and np.random.random() <= _NEIGHBOUR_SHARE:
        return neighbour_device(arrays, state.device_of, unit)
    return np.random.randint(state.load.shape[0])
