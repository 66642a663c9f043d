"""Host bytes of lookup tables and of strings.

TensorFlow's static tables are ``absl::flat_hash_map``s, mutable ones ``std::unordered_map``s
(``tensorflow/core/kernels/lookup_table_op.h``); a string is a ``tstring`` of 24 bytes, whose text
lies in a block of its own if it is longer than 22 bytes (``tsl/platform/ctstring_internal.h``).
"""

from __future__ import annotations

STRING_BYTES = 24
_INLINE_TEXT_BYTES = 22
_BLOCK_BYTES = 16
"""Bytes that the allocator of the C library rounds to, and keeps beside a block."""


def text_bytes(length: float) -> int:
    """Returns the bytes that a string of this length takes beside its slot.

    >>> text_bytes(22), text_bytes(40)
    (0, 64)
    """
    if length <= _INLINE_TEXT_BYTES:
        return 0
    blocks = -(-int(length + 1) // _BLOCK_BYTES)
    return (blocks + 1) * _BLOCK_BYTES


def strings_bytes(count: int, total_length: int) -> int:
    """Returns the bytes of ``count`` strings of about equal length.

    >>> strings_bytes(2, 80)
    176
    """
    return count * (STRING_BYTES + text_bytes(total_length / count)) if count else 0


def table_bytes(count: int, slot_bytes: int, text_length: int, *, is_mutable: bool = False) -> int:
    """Returns the bytes of a table of ``count`` entries, whose keys and values take ``slot_bytes``
    each, and texts ``text_length`` bytes in all.

    >>> table_bytes(1000, 32, 0)  # 2,047 slots, each with a byte of its own
    67551
    """
    texts = count * text_bytes(text_length / count) if count else 0
    if is_mutable:  # a node with its hash and the next one, and a bucket
        return count * (slot_bytes + 2 * _BLOCK_BYTES + 8) + texts
    capacity = 1
    while capacity * 7 // 8 < count:
        capacity = 2 * capacity + 1
    return capacity * (slot_bytes + 1) + texts
