"""Units, nets and devices as flat arrays for compiled code."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Units(NamedTuple):
    """``cost[unit, device]`` (in seconds, or in bytes where the least transfer is
    searched), ``weights[row, unit]`` in bytes, ``allowed[unit, device]``.

    The nets that unit u produces are ``outs[out_start[u]:out_start[u + 1]]``, those that it reads
    ``ins[in_start[u]:in_start[u + 1]]``.
    """

    cost: Floats
    weights: Floats
    allowed: Flags
    out_start: Ints
    outs: Ints
    in_start: Ints
    ins: Ints


class Nets(NamedTuple):
    """Net n goes from ``producer[n]`` to ``pins[pin_start[n]:pin_start[n + 1]]`` (no unit twice,
    the producer not among them): ``bytes[n]`` in all, in ``messages[n]`` tensors."""

    producer: Ints
    pin_start: Ints
    pins: Ints
    bytes: Floats
    messages: Floats


class Devices(NamedTuple):
    """``capacity[row, device]`` in bytes; ``latency`` in seconds per message and
    ``seconds_per_byte``, both from device by to device (0 and 1 where the least transfer is
    searched: a byte costs one).

    ``occupied[device]`` is whether transfers keep it busy.  With ``multicast`` a sender pays for
    the dearest of its receivers only.
    """

    capacity: Floats
    latency: Floats
    seconds_per_byte: Floats
    occupied: Flags
    multicast: bool


class Arrays(NamedTuple):
    """A whole problem."""

    units: Units
    nets: Nets
    devices: Devices


def ragged(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """The starts and the concatenation of ``lists``."""
    start = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(items) for items in lists], out=start[1:])
    return start, np.fromiter((item for items in lists for item in items), np.int64, start[-1])


def incidence(unit_count: int, nets: Nets) -> tuple[Ints, Ints, Ints, Ints]:
    """``out_start, outs, in_start, ins`` of :class:`Units`."""
    numbers = np.repeat(np.arange(len(nets.producer)), np.diff(nets.pin_start))
    return (
        *_grouped(unit_count, nets.producer, np.arange(len(nets.producer))),
        *_grouped(unit_count, nets.pins, numbers),
    )


def _grouped(count: int, keys: Ints, values: Any) -> tuple[Ints, Ints]:
    """``values`` sorted by ``keys``, and where each key from 0 to ``count - 1`` begins."""
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=start[1:])
    return start, values[np.argsort(keys, kind="stable")].astype(np.int64)
