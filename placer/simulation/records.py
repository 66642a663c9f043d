"""The memory that simulated GPUs held, read from the files that their processes write
(``record.h``)."""

import mmap
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

_MAGIC = 0x31444353
_MOST_LIVE, _MOST_HELD, _NAME_BYTES, _MOST_CARDS = 1 << 18, 1 << 15, 8 << 20, 64

# the structures of record.h, field by field
_HEAD = struct.Struct("<IIII d IIII")
_HOLDING = struct.Struct("<QQQ IIII")
_MOMENT = struct.Struct("<QQ d IIII")
_CARD = struct.Struct("<QQQQ d IIIIII")

_LIVE_AT = _HEAD.size
_NAMES_AT = _LIVE_AT + _MOST_LIVE * _HOLDING.size
_CARDS_AT = _NAMES_AT + _NAME_BYTES
_MOMENT_BYTES = _MOMENT.size + _MOST_HELD * _HOLDING.size
_CARD_BYTES = _CARD.size + 2 * _MOMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Memory that ops of one name held: ``count`` tensors of ``held_bytes`` together."""

    op: str
    held_bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The memory of one GPU at one moment: ``seconds`` since the process began to use the GPUs,
    ``launches`` the kernels that had run there, ``op`` the one that asked for ``asked_bytes``."""

    in_use_bytes: int
    asked_bytes: int
    seconds: float
    launches: int
    op: str
    held: tuple[Held, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRecord:
    """One GPU in one process: the ``peak``, and the last request that was refused, if any was.

    ``taken_bytes`` is the most that TensorFlow took from the driver, ``last_op`` the op whose
    kernel ran last.  ``live_bytes`` are in use now, or when the process ended, for requests of
    ``live_asked_bytes``.
    """

    index: int
    peak: Moment
    refused: Moment | None
    refusals: int
    taken_bytes: int
    launches: int
    last_op: str
    live_bytes: int
    live_asked_bytes: int

    @property
    def is_used(self) -> bool:
        """Whether the process did anything there."""
        return bool(self.taken_bytes or self.refusals)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """The simulated GPUs as one process used them; ``last_read_op`` is the op whose value was
    copied to the host last, ``reads`` the number of such copies."""

    process: int
    started: float
    reads: int
    last_read_op: str
    gpus: tuple[GpuRecord, ...]
    IN_JSON: ClassVar = ()


def read_records(folder: Path) -> tuple[ProcessRecord, ...]:
    """The records of all processes that wrote to ``folder`` and used a GPU, the first one first."""
    found = [record for path in folder.glob("*.record") if (record := _read(path))]
    used = [record for record in found if any(gpu.is_used for gpu in record.gpus)]
    return tuple(sorted(used, key=lambda record: record.started))


def _read(path: Path) -> ProcessRecord | None:
    """The record of one process; ``None`` where none was begun."""
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return None
    with content:
        head = _HEAD.unpack_from(content)
        magic, process, cards, live, started, _, last_read, reads, _ = head
        if magic != _MAGIC:
            return None
        return ProcessRecord(
            process=process,
            started=started,
            reads=reads,
            last_read_op=_name(content, last_read),
            gpus=tuple(_gpu(content, index, live) for index in range(min(cards, _MOST_CARDS))),
        )


def _gpu(content: mmap.mmap, index: int, live: int) -> GpuRecord:
    at = _CARDS_AT + index * _CARD_BYTES
    fields = _CARD.unpack_from(content, at)
    _, peak_bytes, _, taken, seconds, refusals, launches, last, name, then, is_peak = fields
    peak_at, refused_at = at + _CARD.size, at + _CARD.size + _MOMENT_BYTES
    held = _held(content, _LIVE_AT, live, index) if is_peak else _moment_held(content, peak_at)
    now = [sizes for _, *sizes in _holdings(content, _LIVE_AT, live, index)]
    peak = Moment(
        in_use_bytes=peak_bytes,
        asked_bytes=0,
        seconds=seconds,
        launches=then,
        op=_name(content, name),
        held=held,
    )
    return GpuRecord(
        index=index,
        peak=peak,
        refused=_moment(content, refused_at) if refusals else None,
        refusals=refusals,
        taken_bytes=taken,
        launches=launches,
        last_op=_name(content, last),
        live_bytes=sum(size for size, _ in now),
        live_asked_bytes=sum(asked for _, asked in now),
    )


def _moment(content: mmap.mmap, at: int) -> Moment:
    in_use, asked, seconds, name, launches, _, _ = _MOMENT.unpack_from(content, at)
    return Moment(
        in_use_bytes=in_use,
        asked_bytes=asked,
        seconds=seconds,
        launches=launches,
        op=_name(content, name),
        held=_moment_held(content, at),
    )


def _moment_held(content: mmap.mmap, at: int) -> tuple[Held, ...]:
    *_, count, _ = _MOMENT.unpack_from(content, at)
    return _held(content, at + _MOMENT.size, count, None)


def _held(content: mmap.mmap, at: int, count: int, card: int | None) -> tuple[Held, ...]:
    """The holdings from ``at`` on, those of one card only, by op, the largest first."""
    sizes, counts = Counter[int](), Counter[int]()
    for name, size, _ in _holdings(content, at, count, card):
        sizes[name] += size
        counts[name] += 1
    rows: Mapping[int, int] = sizes
    return tuple(
        Held(op=_name(content, name), held_bytes=size, count=counts[name])
        for name, size in sorted(rows.items(), key=lambda row: -row[1])
    )


def _holdings(
    content: mmap.mmap, at: int, count: int, card: int | None
) -> Iterator[tuple[int, int, int]]:
    """Name, bytes in use and bytes that were asked for."""
    end = at + count * _HOLDING.size
    for fields in _HOLDING.iter_unpack(content[at:end]):
        _, size, asked, name, owner, _, _ = fields
        if card is None or owner == card:
            yield name, size, asked


def _name(content: mmap.mmap, place: int) -> str:
    """The name at a place of ``names``; the empty one at 0."""
    if not place:
        return ""
    start = _NAMES_AT + place
    return content[start : content.find(b"\0", start)].decode(errors="replace")
