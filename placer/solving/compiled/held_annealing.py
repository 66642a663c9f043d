"""Annealing of transfer and of what devices hold above their caps.

What is above a cap costs; how much rises while something is above and falls while nothing is, so
that the search crosses the border of what fits again and again (F. Glover, Tabu Search - Part I,
ORSA Journal on Computing 1 (1989), doi:10.1287/ijoc.1.3.190, on strategic oscillation).
"""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Arrays, Floats, Ints
from placer.solving.compiled.gain_table import apply_move, gain, new_gain_table, transfer_of
from placer.solving.compiled.held_bytes import (
    PRICES,
    Held,
    excess_of,
    hold,
    is_better,
    next_price,
    shift,
)
from placer.solving.compiled.jit import compiled, compiled_part
from placer.solving.compiled.neighbours import has_nets, neighbour_device
from placer.solving.compiled.unit_moves import border_units

_NEIGHBOUR_SHARE = 0.9
"""Of moves go to where a neighbour is, the others anywhere."""

_COOLED = 0.01
"""The last temperature, as a share of the first."""

_HIGHEST = 10.0
"""Above this price it begins anew at the first one."""

_LEAST_PERIOD = 1000
"""Steps until the units at the border are looked for again, if those are not more."""

_FREE_SHARE = 0.1
"""Of moves are of any unit, the others of one at the border."""


@compiled
def anneal_held(
    arrays: Arrays,
    held: Held,
    limit: Floats,
    moments: int,
    device_of: Ints,
    free: Ints,
    seed: int,
    steps: int,
    temperature: float,
    price: float,
) -> tuple[Ints, float, float]:
    """The placement of least transfer that holds nothing above ``limit[device]``, or the one found
    that holds the least above; with its transfer and its excess (bytes, summed over moments).

    ``temperature`` in bytes falls geometrically over the ``steps``; ``price`` is what a byte above
    a limit at one moment costs at first, in bytes of transfer.  Long, as it is the one loop over
    moves.
    """
    np.random.seed(seed)
    table = new_gain_table(arrays, device_of)
    state = device_of.copy()
    devices = limit.shape[0]
    in_use = hold(held, state, devices, moments)
    excess = excess_of(in_use, limit)
    transfer = transfer_of(arrays, state)
    best = state.copy()
    best_transfer, best_excess = transfer, excess
    heat = temperature
    cooling = _COOLED ** (1.0 / max(1, steps))
    first_price = price
    period = max(1, steps // PRICES)
    border = free
    since = 0
    for step in range(steps):
        heat *= cooling
        # the units with a neighbour elsewhere, from time to time
        if since == 0:
            border = border_units(arrays, table, free)
            if border.shape[0] == 0:
                border = free
            since = max(_LEAST_PERIOD, border.shape[0])
        since -= 1
        # a higher price while something is above a limit, a lower one while nothing is
        if step % period == 0:
            price = next_price(price, first_price, _HIGHEST, excess)
        # a move, kept by the rule of annealing or taken back
        unit, target = _propose(arrays, state, border, free, devices)
        source = state[unit]
        if target == source or not arrays.units.allowed[unit, target]:
            continue
        saved = gain(arrays, table, unit, target)
        more = shift(held, state, in_use, limit, unit, target)
        change = price * more - saved
        if change <= 0.0 or np.random.random() < np.exp(-change / heat):
            apply_move(arrays, table, unit, target)
            transfer -= saved
            excess += more
            if is_better(excess, transfer, best_excess, best_transfer):
                best[:] = state
                best_transfer, best_excess = transfer, excess
        else:
            shift(held, state, in_use, limit, unit, source)
    return best, best_transfer, best_excess


@compiled_part
def _propose(
    arrays: Arrays, state: Ints, border: Ints, free: Ints, devices: int
) -> tuple[int, int]:
    """A unit, most often one with a neighbour elsewhere, and a device, most often a neighbour's."""
    unit = int(border[np.random.randint(border.shape[0])])
    if np.random.random() < _FREE_SHARE:
        unit = int(free[np.random.randint(free.shape[0])])
    if has_nets(arrays.units, unit) and np.random.random() <= _NEIGHBOUR_SHARE:
        return unit, int(neighbour_device(arrays, state, unit))
    return unit, np.random.randint(devices)
