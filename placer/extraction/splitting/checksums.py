"""CRC-32C, the checksum of checkpoints, of bytes that come some at a time.

The standard library has CRC-32 with another polynomial only.  A chunk is cut into lanes, which
numpy takes through a table side by side, four bytes a step; then the lanes are joined two by two.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_LANES = 1 << 12
_WORD = 4


def masked(checksum: int) -> int:
    """A checksum as files hold it (``tensorflow/core/lib/hash/crc32c.h``)."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _ONES


def crc32c(chunks: Iterable[bytes]) -> int:
    """The checksum of ``chunks`` one behind the other.

    >>> hex(crc32c([b"1234", b"56789"]))
    '0xe3069283'
    """
    state = _ONES
    for chunk in chunks:
        words = len(chunk) // (_LANES * _WORD)
        whole = words * _LANES * _WORD
        if words:
            state = _advance(state, whole) ^ _lanes(chunk[:whole], words)
        for byte in chunk[whole:]:
            state = _bytes()[(state ^ byte) & 255] ^ state >> 8
    return state ^ _ONES


def _lanes(chunk: bytes, words: int) -> int:
    """The state after ``chunk`` if it was zero before."""
    import numpy as np

    low, high = _pairs()
    columns = np.frombuffer(chunk, "<u4").reshape(_LANES, words).T.copy()
    state = np.zeros(_LANES, np.uint32)
    for column in columns:
        state ^= column
        state = low[state & 0xFFFF] ^ high[state >> 16]
    size = words * _WORD
    while len(state) > 1:
        shift = _shift(size)
        first, second = state[::2], state[1::2]
        moved = np.zeros_like(first)
        for bit in range(32):
            moved ^= np.where(first >> bit & 1, np.uint32(shift[bit]), np.uint32(0))
        state, size = moved ^ second, 2 * size
    return int(state[0])


def _advance(state: int, size: int) -> int:
    """The state after so many bytes of zero."""
    return _apply(_shift(size), state)


def _apply(matrix: tuple[int, ...], state: int) -> int:
    found = 0
    for column in matrix:
        if state & 1:
            found ^= column
        state >>= 1
    return found


@cache
def _shift(size: int) -> tuple[int, ...]:
    """What ``size`` bytes of zero make of each bit of the state."""
    if size == 1:
        return tuple([_bytes()[1 << bit & 255] ^ (1 << bit) >> 8 for bit in range(32)])
    half = _shift(size // 2)
    twice = tuple([_apply(half, column) for column in half])
    return tuple([_apply(_shift(1), column) for column in twice]) if size % 2 else twice


@cache
def _bytes() -> tuple[int, ...]:
    """What each byte makes of a state of zero."""
    found = []
    for state in range(256):
        for _ in range(8):
            state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
        found.append(state)
    return tuple(found)


@cache
def _pairs() -> tuple[Any, Any]:
    """The same of the lower and of the upper two bytes of a state, four bytes later."""
    import numpy as np

    numbers = np.arange(1 << 16, dtype=np.uint32)
    table = np.array(_bytes(), np.uint32)
    found = []
    for state in (numbers, numbers << 16):
        for _ in range(_WORD):
            state = table[state & 255] ^ state >> 8
        found.append(state.astype(np.uint32))
    return found[0], found[1]
