"""Requests to an allocator as arrays, for the compiled loop that hands out chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placer.prediction.memory.chunks import CHUNK_BYTES, Ints
from placer.prediction.step.step_arrays import MOST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationArrays:
    """Allocations as arrays, ``sizes`` by chunk; at the end of a step the chunks ``moved_from`` are
    the chunks ``moved_to``.

    ``events`` have so many ``requests``.  In chunks that are no larger than they must be,
    ``kept_bytes`` are kept, at most ``most_kept_bytes`` are in use until then, and at most
    ``most_step_bytes`` besides in a step.
    """

    sizes: Ints
    kept: Ints
    events: Ints
    moved_from: Ints
    moved_to: Ints
    requests: int
    kept_bytes: int
    most_kept_bytes: int
    most_step_bytes: int


def as_arrays(
    size_of: Mapping[int, int],
    kept_events: Sequence[int],
    step_events: Sequence[int],
    moved: Mapping[int, int],
) -> AllocationArrays:
    """The fields of :class:`~placer.prediction.memory.allocations.Allocations` as arrays."""
    sizes = np.zeros(max(size_of, default=-1) + 1, np.int64)
    sizes[list(size_of)] = [min(size, MOST_BYTES) for size in size_of.values()]
    chunks = -(-sizes // CHUNK_BYTES) * CHUNK_BYTES
    kept, events = np.array(kept_events, np.int64), np.array(step_events, np.int64)
    along = np.cumsum(_changes(kept, chunks))
    return AllocationArrays(
        sizes=sizes,
        kept=kept,
        events=events,
        moved_from=np.array([*moved.values()], np.int64),
        moved_to=np.array([*moved], np.int64),
        requests=int(np.count_nonzero(events >= 0)),
        kept_bytes=int(along[-1]) if len(along) else 0,
        most_kept_bytes=int(along.max(initial=0)),
        most_step_bytes=int(np.cumsum(_changes(events, chunks)).max(initial=0)),
    )


def _changes(events: Ints, chunks: Ints) -> Ints:
    """By how many bytes every event changes what is in use."""
    sign = np.where(events < 0, -1, 1)
    return sign * chunks[np.where(events < 0, ~events, events)]
