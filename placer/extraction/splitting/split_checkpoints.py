"""Checkpoints in which parts of tables have names of their own, and no byte of data is moved.

The index of a checkpoint says where the bytes of a tensor are.  Rows lie one behind another, so
those of a part are some of them: the index is written anew, with an entry for each part beside that
of the whole, and the files of data are links.  (``RestoreV2`` of a slice of a tensor that was saved
whole reads the whole into memory: 98 MiB of 391 took 490.)
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cost_models.tensor_size import element_bytes
from placer.errors import ModelError
from placer.extraction.files.sorted_tables import (
    masked_checksum,
    read_table,
    read_varint,
    to_varint,
    write_table,
)
from placer.extraction.graph_defs.protobufs import copied, dtype_name
from placer.extraction.reading.checkpoint_index import CheckpointIndex
from placer.extraction.splitting.parts import Table
from placer.graph.walks import grouped

OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"
HEADER = b""
SLICE = b"\0"
"""First byte of the keys of slices (``tensorflow/core/util/saved_tensor_slice_util.cc``)."""
CHUNK_BYTES = 4 << 20


def write_partial_checkpoint(
    prefix: Path,
    folder: Path,
    keys: Collection[str],
    objects: bytes | None,
    bring: Callable[[Path, Path], None] | None = None,
    alike: Mapping[str, str] | None = None,
    parts: Mapping[bytes, bytes] | None = None,
) -> None:
    """Writes a checkpoint of those tensors of ``prefix`` that ``keys`` name into the new
    ``folder``, with another object graph (``None``: with none); its files of data are symbolic
    links, or what ``bring`` makes of them.  ``alike`` are further keys, each with the key whose
    bytes it stands for, too, ``parts`` further entries."""
    from tensorflow.core.protobuf import tensor_bundle_pb2

    entries = dict(read_table(prefix.with_name(f"{prefix.name}.index")))
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries[HEADER])
    shards = [
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{header.num_shards:05d}")
        for number in range(header.num_shards)
    ]
    names = {key.encode() for key in keys}
    kept = {key: value for key, value in entries.items() if key in names or key[:1] == SLICE}
    kept |= {new.encode(): entries[old.encode()] for new, old in (alike or {}).items()}
    kept |= parts or {}
    folder.mkdir()
    if objects is not None:
        old = tensor_bundle_pb2.BundleEntryProto.FromString(entries[OBJECT_GRAPH])
        header.num_shards += 1
        own = folder / f"{prefix.name}.data-{len(shards):05d}-of-{header.num_shards:05d}"
        entry = _write_string(own, objects, len(shards), old)
        kept[OBJECT_GRAPH] = entry.SerializeToString()
    for number, shard in enumerate(shards):
        link = folder / f"{prefix.name}.data-{number:05d}-of-{header.num_shards:05d}"
        if bring is None:
            link.symlink_to(shard.resolve())
        else:
            bring(shard, link)
    write_table(folder / f"{prefix.name}.index", {HEADER: header.SerializeToString(), **kept})


def shared_keys(
    restored: Mapping[str, str],
    dropped: Collection[str],
    needed: Collection[str],
    index: CheckpointIndex,
) -> Iterator[tuple[str, str]]:
    """Handles whose key only the restore op needs, with a key of the objects that has the same
    bytes: where each variable was written twice, one copy serves both."""
    alike = grouped(
        (index.entries[key].values, key)
        for key in sorted(needed)
        if key in index.entries and index.entries[key].values is not None
    )
    for handle, key in restored.items():
        entry = index.entries.get(key)
        if handle in dropped or key in needed or entry is None or entry.values is None:
            continue
        for other in alike.get(entry.values, ()):
            twin = index.entries[other]
            here = index.shards[entry.shard], entry.offset
            there = index.shards[twin.shard], twin.offset
            if _same_values(here, there, entry.size):
                yield handle, other
                break


def _same_values(one: tuple[Path, int], other: tuple[Path, int], size: int) -> bool:
    """Whether two places (file, offset) hold the same ``size`` bytes; they are never read whole."""
    pairs = zip(_chunks(*one, size), _chunks(*other, size), strict=True)
    return all(mine == theirs for mine, theirs in pairs)


def split_checkpoint(
    prefix: Path, folder: Path, keys: Mapping[str, Table], *, reads: bool = True
) -> None:
    """Writes a checkpoint that has the tensors of ``prefix`` and the parts of those in ``keys``
    into the new ``folder``, under the same name; its files of data are links.  Unless it ``reads``
    the tables, the checksums of parts only tell apart what differs, and nothing can be restored.

    Raises :class:`ModelError` if a table is not in it as it should be, or it is damaged.
    """
    from google.protobuf.message import DecodeError

    try:
        _split_checkpoint(prefix, folder, keys, reads)
    except (DecodeError, KeyError, IndexError, OSError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ModelError(f"the checkpoint {prefix} cannot be read ({why})") from error


def _split_checkpoint(prefix: Path, folder: Path, keys: Mapping[str, Table], reads: bool) -> None:
    from tensorflow.core.protobuf import tensor_bundle_pb2

    entries = dict(read_table(prefix.with_name(f"{prefix.name}.index")))
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries[HEADER])
    if header.endianness != header.LITTLE or header.num_shards < 1:
        raise ModelError(f"the checkpoint {prefix} is of a machine of another byte order")
    shards = [
        prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{header.num_shards:05d}")
        for number in range(header.num_shards)
    ]
    parts = {}
    for key, table in keys.items():
        whole = _whole(tensor_bundle_pb2, entries, key, table, prefix)
        size = whole.size // table.shape[0]
        for part, first, shape in zip(table.parts(key), table.starts, table.shapes, strict=False):
            entry = tensor_bundle_pb2.BundleEntryProto()
            entry.CopyFrom(whole)
            entry.shape.dim[0].size = shape[0]
            entry.offset, entry.size = whole.offset + first * size, shape[0] * size
            chunks: Iterable[bytes] = [f"{whole.crc32c} {first}".encode()]
            if reads:
                chunks = _chunks(shards[whole.shard_id], entry.offset, entry.size)
            entry.crc32c = masked_checksum(chunks)
            parts[part.encode()] = entry.SerializeToString()
    objects = None
    if OBJECT_GRAPH in entries:
        old = tensor_bundle_pb2.BundleEntryProto.FromString(entries.pop(OBJECT_GRAPH))
        content = b"".join(_chunks(shards[old.shard_id], old.offset, old.size))
        objects = _split_objects(_string(content), keys)
    kept = [key.decode() for key in entries if key[:1] not in (HEADER, SLICE)]
    write_partial_checkpoint(prefix, folder, kept, objects, parts=parts)


def _whole(messages: Any, entries: Mapping[bytes, bytes], key: str, table: Table, at: Path) -> Any:
    if key.encode() not in entries:
        raise ModelError(f"the checkpoint {at} has no {key}, which {table.name} is restored from")
    entry = messages.BundleEntryProto.FromString(entries[key.encode()])
    shape = tuple(dim.size for dim in entry.shape.dim)
    width = element_bytes(dtype_name(entry.dtype))
    wrong = f"with shape {shape}" if shape != table.shape else ""
    wrong = wrong or ("in slices" if entry.slices else "")
    if not wrong and entry.size != math.prod(table.shape) * (width or -1):
        wrong = f"as {entry.size} bytes"
    if wrong:
        raise ModelError(
            f"{table.name} of shape {table.shape} cannot be split by rows: the checkpoint {at} has "
            f"it {wrong}"
        )
    return entry


def _chunks(file: Path, offset: int, size: int) -> Iterator[bytes]:
    """The bytes of a file from ``offset`` on, some at a time."""
    with file.open("rb") as stream:
        stream.seek(offset)
        while size:
            chunk = stream.read(min(size, CHUNK_BYTES))
            if not chunk:
                raise ModelError(f"{file} ends too early: the checkpoint is damaged")
            size -= len(chunk)
            yield chunk


def _split_objects(content: bytes, keys: Mapping[str, Table]) -> bytes:
    """The object graph of a checkpoint, with plain objects of parts in place of tables."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    for node in list(graph.nodes):
        held = [a for a in node.attributes if a.checkpoint_key in keys]
        for attribute in held:
            table = keys[attribute.checkpoint_key]
            for number, key in enumerate(table.parts(attribute.checkpoint_key)):
                node.children.add(node_id=len(graph.nodes), local_name=f"part_{number}")
                added = graph.nodes.add().attributes.add()
                added.CopyFrom(attribute)
                added.checkpoint_key = key
                added.full_name = table.part(attribute.full_name, number)
        if held:
            node.ClearField("attributes")
            node.ClearField("has_checkpoint_values")
    return bytes(graph.SerializeToString())


def _string(content: bytes) -> bytes:
    """The one string of a tensor as a checkpoint holds it: its length, the checksum of that, and
    itself."""
    length, at = read_varint(content)
    if len(content) != at + 4 + length:
        raise ModelError("the checkpoint's object graph is damaged")
    return content[at + 4 :]


def _write_string(file: Path, value: bytes, shard: int, like: Any) -> Any:
    """Writes a tensor of one string into a file of data of its own; its entry in the index."""
    length = len(value)
    # the checksum covers lengths as numbers, not as they are written (tensor_bundle.cc)
    width = 4 if length <= 0xFFFFFFFF else 8
    number = length.to_bytes(width, "little")
    sum_of_lengths = masked_checksum([number]).to_bytes(4, "little")
    file.write_bytes(to_varint(length) + sum_of_lengths + value)
    entry = copied(like)
    entry.shard_id, entry.offset, entry.size = shard, 0, file.stat().st_size
    entry.crc32c = masked_checksum([number, sum_of_lengths, value])
    return entry
