"""Buffers for compiled code: at all times of a step, or at some moments of it only."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.compiled.held_bytes import Held
from placer.solving.peaks.problem import Buffers


def at_moments(buffers: Buffers, moments: Ints) -> Buffers:
    """The buffers with times counted in ``moments`` (sorted): those that a device may hold at one
    of them."""
    first = np.searchsorted(moments, buffers.first)
    done = np.searchsorted(moments, buffers.done, "right") - 1
    read_first = np.searchsorted(moments, buffers.read_first)
    read_last = np.searchsorted(moments, buffers.read_last, "right") - 1
    begin, end = first.copy(), done.copy()
    np.minimum.at(begin, buffers.read_of, read_first)
    np.maximum.at(end, buffers.read_of, read_last)
    kept = np.flatnonzero(begin <= end)
    number = np.full(len(first), -1, np.int64)
    number[kept] = np.arange(len(kept))
    reads = number[buffers.read_of] >= 0
    return Buffers(
        buffers.owner[kept],
        first[kept].astype(np.int64),
        done[kept].astype(np.int64),
        buffers.size[kept],
        number[buffers.read_of][reads],
        buffers.reader[reads],
        read_first[reads].astype(np.int64),
        read_last[reads].astype(np.int64),
        buffers.read_size[reads],
    )


def to_held(buffers: Buffers, resident: Floats) -> Held:
    """The buffers of units (:func:`~placer.solving.peaks.problem.regroup`), those apart that one
    unit has to itself."""
    count, owner = len(resident), buffers.owner
    others = np.bincount(
        buffers.read_of, buffers.reader != owner[buffers.read_of], minlength=len(owner)
    )
    alone = (others == 0) & (owner >= 0) | (others == 1) & (owner < 0)
    shared = np.flatnonzero(~alone & (others > 0))
    number = np.full(len(owner), -1, np.int64)
    number[shared] = np.arange(len(shared))
    of_shared = number[buffers.read_of] >= 0
    read_of = number[buffers.read_of][of_shared]
    reader = buffers.reader[of_shared]
    unit = np.concatenate((reader, owner[shared]))
    touched = np.concatenate((read_of, np.arange(len(shared))))
    pairs = np.unique((unit * len(shared) + touched)[unit >= 0])
    unit, touched = np.divmod(pairs, max(1, len(shared)))
    return Held(
        owner[shared],
        buffers.first[shared],
        buffers.done[shared],
        buffers.size[shared],
        _starts(read_of, len(shared)),
        reader,
        buffers.read_first[of_shared],
        buffers.read_last[of_shared],
        buffers.read_size[of_shared],
        _starts(unit, count),
        touched,
        *_own(buffers, alone, count),
        resident,
    )


def _own(buffers: Buffers, alone: Flags, count: int) -> tuple[Ints, Ints, Ints, Floats]:
    """``own_start, own_first, own_last, own_size``; what is held from and until the same times is
    summed."""
    unit, first, size = buffers.owner.copy(), buffers.first.copy(), buffers.size.copy()
    last = buffers.done.copy()
    np.maximum.at(last, buffers.read_of, buffers.read_last)
    reads = np.flatnonzero(buffers.owner[buffers.read_of] < 0)
    arrived = buffers.read_of[reads]  # read by one unit, once
    unit[arrived] = buffers.reader[reads]
    first[arrived] = buffers.read_first[reads]
    last[arrived] = buffers.read_last[reads]
    size[arrived] = buffers.read_size[reads]
    kept = np.flatnonzero(alone & (size > 0.0) & (first <= last))
    times = 1 + int(last[kept].max(initial=0))
    key, group = np.unique(
        (unit[kept] * times + first[kept]) * times + last[kept], return_inverse=True
    )
    total = np.bincount(group, size[kept], minlength=len(key))
    unit, first, last = key // times // times, key // times % times, key % times
    return _starts(unit, count), first, last, np.asarray(total, np.float64)


def _starts(keys: Ints, count: int) -> Ints:
    """Where each key from 0 to ``count - 1`` begins in ``keys``, which are sorted."""
    return np.searchsorted(keys, np.arange(count + 1)).astype(np.int64)
