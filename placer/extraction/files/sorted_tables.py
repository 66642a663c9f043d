"""The files in which TensorFlow keeps the index of a checkpoint: sorted tables of LevelDB.

Blocks of entries, each a key without what it shares with the one before, are followed by a block
that says where they are and by a footer (``tensorflow/core/lib/io/table_format.txt``).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from placer.errors import ModelError

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_BLOCK_BYTES = 64 << 10


def read_table(file: Path) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a table, sorted by their keys.

    Raises :class:`ModelError` for a file that is none, or damaged.
    """
    try:
        content = file.read_bytes()
        if struct.unpack("<Q", content[-8:])[0] != _MAGIC:
            raise ModelError(f"{file} is not an index of a checkpoint")
        footer = content[-_FOOTER_BYTES:]
        _, at = _handle(footer, 0)
        (offset, size), _ = _handle(footer, at)
        for _, handle in _entries(_block(content, offset, size, file)):
            (offset, size), _ = _handle(handle, 0)
            yield from _entries(_block(content, offset, size, file))
    except (OSError, IndexError, struct.error) as error:
        raise ModelError(f"the index of a checkpoint {file} cannot be read: {error}") from error


def write_table(file: Path, entries: Mapping[bytes, bytes]) -> None:
    """Writes a table, uncompressed."""
    content = bytearray()
    index = []
    block: list[tuple[bytes, bytes]] = []
    for key in sorted(entries):
        block.append((key, entries[key]))
        if sum(len(k) + len(v) for k, v in block) >= _BLOCK_BYTES:
            index.append((key, _write_block(content, block)))
            block = []
    if block:
        index.append((block[-1][0], _write_block(content, block)))
    meta = _write_block(content, [])
    handles = meta + _write_block(content, index)
    content += handles.ljust(_FOOTER_BYTES - 8, b"\0") + struct.pack("<Q", _MAGIC)
    file.write_bytes(content)


def _block(content: bytes, offset: int, size: int, file: Path) -> bytes:
    (checksum,) = struct.unpack("<I", content[offset + size + 1 : offset + size + 5])
    if masked_checksum([content[offset : offset + size + 1]]) != checksum:
        raise ModelError(f"the index of a checkpoint {file} is damaged")
    block = content[offset : offset + size]
    return unsnapped(block) if content[offset + size] else block


def unsnapped(data: bytes) -> bytes:
    """Returns what Snappy compressed (``format_description.txt`` of google/snappy): some indices
    are.

    >>> unsnapped(bytes([7, 4]) + b"ab" + bytes([1 | 1 << 2, 2]))
    b'abababa'
    """
    _, at = read_varint(data)
    found = bytearray()
    while at < len(data):
        kind, length, at = data[at] & 3, data[at] >> 2, at + 1
        if kind == 0:  # bytes as they are
            if (extra := length - 59) > 0:
                length, at = int.from_bytes(data[at : at + extra], "little"), at + extra
            found += data[at : at + length + 1]
            at += length + 1
            continue
        if kind == 1:  # a copy of what came before: 11 bits say how far, else 2 or 4 bytes
            back, length, at = (length >> 3) << 8 | data[at], (length & 7) + 3, at + 1
        else:
            width = 2 * (kind - 1)
            back, at = int.from_bytes(data[at : at + width], "little"), at + width
        for _ in range(length + 1):
            found.append(found[-back])
    return bytes(found)


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 - 4 * restarts
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        length, at = read_varint(block, at)
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _write_block(content: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
    """Appends a block in which every key is whole; its handle."""
    block, restarts = bytearray(), []
    for key, value in entries:
        restarts.append(len(block))
        block += b"\0" + to_varint(len(key)) + to_varint(len(value)) + key + value
    restarts = restarts or [0]
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    offset = len(content)
    content += block + b"\0" + struct.pack("<I", masked_checksum([bytes(block), b"\0"]))
    return to_varint(offset) + to_varint(len(block))


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = read_varint(content, at)
    size, at = read_varint(content, at)
    return (offset, size), at


def masked_checksum(chunks: Iterable[bytes]) -> int:
    """The CRC-32C of ``chunks`` one behind the other, as files hold it
    (``tensorflow/core/lib/hash/crc32c.h``).

    >>> hex(masked_checksum([b"1234", b"56789"]))
    '0xc78ab0e5'
    """
    from google_crc32c import extend

    checksum = 0
    for chunk in chunks:
        checksum = extend(checksum, chunk)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_varint(content: bytes, at: int = 0) -> tuple[int, int]:
    """A number of which each byte holds seven bits, and where it ends.

    >>> read_varint(bytes([0xAC, 0x02]))
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def to_varint(value: int) -> bytes:
    """A number as :func:`read_varint` reads it.

    >>> list(to_varint(300))
    [172, 2]
    """
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
