"""Buffers for compiled code: at all times of a step, or at some moments of it only."""

from __future__ import annotations

import numpy as np

from placer.solving.compiled.arrays import Flags, Floats, Ints
from placer.solving.compiled.held_bytes import Held
from placer.solving.search.peak_problem import Buffers


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


def to_held(buffers: Buffers, own: Floats) -> Held:
    """The buffers of units (:func:`~placer.solving.search.peak_problem.regroup`) beside what each
    unit holds by itself.

    With a column per moment in ``own``, buffers that one unit has to itself are added there.
    """
    count, moments = own.shape
    owner, read_of = buffers.owner, buffers.read_of
    others = np.bincount(read_of, buffers.reader != owner[read_of], minlength=len(owner))
    is_shared = np.ones(len(owner), np.bool_)
    if moments > 1:
        is_alone = (others == 0) & (owner >= 0) | (others == 1) & (owner < 0)
        own = own + _profile(buffers, is_alone, count, moments)
        is_shared = ~is_alone & (others > 0)
    shared = np.flatnonzero(is_shared)
    number = np.full(len(owner), -1, np.int64)
    number[shared] = np.arange(len(shared))
    of_shared = number[read_of] >= 0
    read_of = number[read_of][of_shared]
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
        own,
    )


def _profile(buffers: Buffers, is_alone: Flags, count: int, moments: int) -> Floats:
    """``[unit, moment]`` of the buffers that one unit has to itself."""
    unit, first, size = buffers.owner.copy(), buffers.first.copy(), buffers.size.copy()
    last = buffers.done.copy()
    np.maximum.at(last, buffers.read_of, buffers.read_last)
    reads = np.flatnonzero((buffers.owner < 0)[buffers.read_of] & is_alone[buffers.read_of])
    arrived = buffers.read_of[reads]  # read by one unit, once
    unit[arrived] = buffers.reader[reads]
    first[arrived] = buffers.read_first[reads]
    last[arrived] = buffers.read_last[reads]
    size[arrived] = buffers.read_size[reads]
    kept = np.flatnonzero(is_alone & (first <= last))
    row, width = unit[kept] * (moments + 1), count * (moments + 1)
    change = np.bincount(row + first[kept], size[kept], minlength=width)
    change -= np.bincount(row + last[kept] + 1, size[kept], minlength=width)
    profile = np.cumsum(change.reshape(count, moments + 1), axis=1)[:, :moments]
    return np.asarray(profile, np.float64)


def _starts(keys: Ints, count: int) -> Ints:
    """Where each key from 0 to ``count - 1`` begins in ``keys``, which are sorted."""
    return np.searchsorted(keys, np.arange(count + 1)).astype(np.int64)
