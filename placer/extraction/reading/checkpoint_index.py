"""The index of a SavedModel's checkpoint: what is stored, and whether the files beside it hold it.

Only the index is read (``tensorflow/core/protobuf/tensor_bundle.proto``); of the weights' files the
sizes are looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from cost_models.tensor_size import element_bytes
from placer.errors import ModelError
from placer.extraction.files.sorted_tables import read_table, read_varint
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import dtype_name, shape_of
from placer.graph.program_source import Warning_

PREFIX = Path("variables") / "variables"
"""Where the checkpoint of a SavedModel is in its folder."""

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The key of the object graph in a checkpoint of TensorFlow 2."""

DAMAGED, ABSENT = "damaged_checkpoint", "no_weights"
"""Codes of a checkpoint that cannot be restored, and of a model that comes without one."""

STRING_BYTES = 24
"""Bytes that each string takes beside its text where that is long (``tsl/platform/ctstring.h``)."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry of an index; ``values`` is equal for entries with the same dtype, shape, size and
    checksum."""

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool = False

    @property
    def bytes(self) -> int:
        """The size of the value in memory."""
        width = element_bytes(self.dtype)
        if width is None:
            return STRING_BYTES * prod(self.shape) + self.size
        return width * prod(self.shape)

    @property
    def values(self) -> tuple[object, ...] | None:
        """``None`` where the entry has no checksum of its own."""
        return None if self.sliced else (self.dtype, self.shape, self.size, self.checksum)


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """The entries of a checkpoint by key, the paths of its files of data, and what is wrong with
    them (``""``: nothing).  ``is_there`` says whether there is an index, ``unreadable`` why it
    cannot be read, ``has_data`` whether there is any file of data."""

    entries: Mapping[str, StoredTensor] = field(default_factory=dict)
    shards: tuple[Path, ...] = ()
    damage: str = ""
    is_there: bool = False
    unreadable: str = ""
    has_data: bool = False

    def content(self, key: str) -> bytes | None:
        """The bytes stored under ``key``; ``None`` where they are not there."""
        entry = self.entries.get(key)
        if entry is None or not self.shards[entry.shard].exists():
            return None
        with self.shards[entry.shard].open("rb") as file:
            file.seek(entry.offset)
            found = file.read(entry.size)
        return found if len(found) == entry.size else None

    def text(self, key: str) -> bytes | None:
        """The one string stored under ``key``; ``None`` where it is not there."""
        content = self.content(key)
        if not content:
            return None
        size, at = read_varint(content)
        return content[at + 4 :][:size]  # behind the checksum

    @property
    def warnings(self) -> tuple[Warning_, ...]:
        """The warnings that a report or a plan has to give."""
        found = (("damaged_index", self.unreadable), (DAMAGED, self.damage))
        return tuple((code, message, ()) for code, message in found if message)


def read_index(folder: Path) -> CheckpointIndex:
    """The index of the SavedModel in ``folder``; one without entries where it has none or that
    cannot be read."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    prefix = folder / PREFIX
    file = prefix.with_name(f"{prefix.name}.index")
    if not file.exists():
        return CheckpointIndex()
    try:
        raw = dict(read_table(file))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(raw.pop(b""))
        message = tensor_bundle_pb2.BundleEntryProto
        entries = {
            key.decode(errors="replace"): _entry(message.FromString(value))
            for key, value in raw.items()
        }
        count = max(header.num_shards, 1)
        if any(not 0 <= entry.shard < count for entry in entries.values()):
            raise ModelError(f"{file} names a file of data beyond its {count}")
    except (ModelError, DecodeError, KeyError, ValueError, IndexError) as error:
        unreadable = (
            f"{file.name} cannot be read ({error}), so the shapes of variables come from the graph "
            "alone and the model will not load its weights"
        )
        return CheckpointIndex(is_there=True, unreadable=unreadable)
    shards = tuple(
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{count:05d}")
        for number in range(count)
    )
    return CheckpointIndex(
        entries=entries,
        shards=shards,
        damage=_damage(entries, shards),
        is_there=True,
        has_data=any(shard.exists() for shard in shards),
    )


def require_whole_checkpoint(program: FlatProgram) -> None:
    """Raises :class:`ModelError` for a checkpoint that no loader can restore."""
    for code, message, _ in program.warnings:
        if code == DAMAGED:
            raise ModelError(f"{program.path!r}: {message}")


def declared_tensor(dtype: int, shape: Any) -> StoredTensor:
    """Returns the stored tensor of a DataType and TensorShapeProto; no bytes where that is open."""
    sizes = shape_of(shape)
    known = (0,) if sizes is None or None in sizes else tuple([size or 0 for size in sizes])
    return StoredTensor(dtype_name(dtype), known, 0, 0, 0, 0, sliced=True)


def _entry(proto: Any) -> StoredTensor:
    return StoredTensor(
        dtype=dtype_name(proto.dtype),
        shape=tuple([dim.size for dim in proto.shape.dim]),
        shard=proto.shard_id,
        offset=proto.offset,
        size=proto.size,
        checksum=proto.crc32c,
        sliced=bool(proto.slices),
    )


def _damage(entries: Mapping[str, StoredTensor], shards: tuple[Path, ...]) -> str:
    """Returns why no loader can restore the checkpoint; ``""`` if one can, or if it has no data."""
    missing = [shard for shard in shards if not shard.exists()]
    if len(missing) == len(shards):
        return ""
    if missing:
        return (
            f"the checkpoint cannot be restored: {missing[0].name} is missing"
            + (f" and {len(missing) - 1:,} more" if missing[1:] else "")
            + f", {len(shards) - len(missing):,} of {len(shards):,} files of data are there"
        )
    ends: dict[int, int] = {}
    for entry in entries.values():
        ends[entry.shard] = max(ends.get(entry.shard, 0), entry.offset + entry.size)
    for number, end in sorted(ends.items()):
        size = shards[number].stat().st_size
        if size < end:
            return (
                f"the checkpoint cannot be restored: {shards[number].name} has {size:,} bytes, its "
                f"index says {end:,}"
            )
    return ""
