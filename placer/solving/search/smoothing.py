"""Positions of units made smooth: between the units that they share nets with."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Floats, Nets
from placer.solving.compiled.neighbours import MOST_PINS

_LEAST_BYTES = 1e-9


def smooth(nets: Nets, position: Floats, rounds: int) -> Floats:
    """Every unit moved to the mean of the nets that it shares with few others, the more bytes the
    more, again and again (damped Jacobi iterations on the Laplacian)."""
    sizes = np.diff(nets.pin_start)
    numbers = np.arange(len(sizes))
    net = np.concatenate((np.repeat(numbers, sizes), numbers))
    pins = np.concatenate((nets.pins, nets.producer))
    small = sizes[net] < MOST_PINS
    net, pins = net[small], pins[small]
    bytes_ = nets.bytes[net] + _LEAST_BYTES
    degree = np.bincount(pins, bytes_, minlength=len(position))
    for _ in range(rounds):
        mean = np.bincount(net, position[pins], minlength=len(sizes)) / (sizes + 1)
        total = np.bincount(pins, bytes_ * mean[net], minlength=len(position))
        position = np.where(degree > 0.0, total / np.maximum(degree, _LEAST_BYTES), position)
    return position
