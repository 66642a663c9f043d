"""The state of a step that runs, and what its simulation writes down, as arrays.

Ops, values, buffers, devices, variables and chunks are numbers; -1 is none.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from placer.prediction.step.step_arrays import (
    MOST_BYTES,
    VALUE_BYTES,
    VALUE_MEMORY,
    VALUE_PRODUCER,
    Ints,
    NamedArrays,
)

KINDS = ("activation", "temporary", "transfer", "feed", "weights")
"""The kinds of buffers: ``transfer`` is a receive buffer, ``weights`` are resident, or the old
value of a variable that is still being read."""

# numbers of NumPy: of other constants Numba makes a variant of each function that is given them
ACTIVATION, TEMPORARY, TRANSFER, FEED, WEIGHTS = cast(Sequence[int], np.arange(5))
"""The numbers of the kinds."""

(
    OWNER,
    DEVICE,
    BYTES,
    KIND,
    FIRST,
    HOLDERS,
    RESIDENT,
    CHUNK,
    FIRST_READ,
    LAST_READ,
    ITEMS,
    ITEMS_END,
    ITEMS_ROOM,
    CAPACITY,
    ITEMS_READ,
) = range(15)
"""The columns of ``Run.buffers``."""

HELD, SENT_TO, SENT_BY, SOURCE, NEXT_SENT, NEXT_GIVEN, IS_NEW, GIVEN = range(8)
"""The columns of ``Run.values``."""

FIRST_WORKSPACE, WORKSPACES, POSITION, RUNNING, TUNED_BEFORE = range(5)
"""The columns of ``Run.ops``."""

IS_CPU, LAST_OP, ASKED, FIRST_GIVEN, LAST_GIVEN, FIRST_SENT, LAST_SENT = 0, 1, 2, 3, 4, 5, 7
"""The columns of ``Run.devices``; the last two begin one for each of the two streams."""

VALUE, VARIABLE_CHUNK, KEPT_CHUNK, VARIABLE_DEVICE, CONSTANT_BYTES, COPIED_ON_READ = range(6)
"""The columns of ``Run.variables``."""

ITEM, STACKED = range(2)
"""The columns of ``Run.pool``."""

(
    NOW,
    OP,
    FULL,
    LOGS_RECORDS,
    LOGS_READS,
    LOGS_REQUESTS,
    BUFFERS,
    RECORDS,
    READS,
    EVENTS,
    CHUNKS,
    NOTES,
    ITEMS_IN_POOL,
) = range(13)
"""The places of ``Run.counts``."""

ELASTIC, TUNED, COPIED = cast(Sequence[int], np.arange(3))
"""The kinds of notes."""

NONE, NOTHING = cast(Sequence[int], np.arange(-1, 1))


class Run(NamedTuple):
    """A step that runs, row by row.

    ``buffers``: the op ``OWNER`` that wrote it, ``DEVICE``, ``BYTES``, ``KIND``, the position
    ``FIRST`` in the order from which it lives, the number of ``HOLDERS`` who still need it, whether
    it is ``RESIDENT`` (a variable or constant: its bytes are counted elsewhere), the ``CHUNK`` that
    the allocator gave for it, its reads (linked rows of ``reads``), and the buffers that it holds
    as a tensor list: from ``ITEMS`` to ``ITEMS_END`` in ``pool``, with room until ``ITEMS_ROOM``,
    at most ``CAPACITY``, of which ``ITEMS_READ`` were read one after the other.

    ``values``: the buffer that is ``HELD``.  Of a copy that was sent the stream (0: to a GPU, 1: to
    a host) and device that it was ``SENT_TO`` from (2 x device + stream), the op it was ``SENT_BY``
    and the buffer that is its ``SOURCE``, the next of the same stream, the next whose source is
    given back with it, and whether it ``IS_NEW`` on the GPU where it arrived (1: nobody has asked
    for it, 2: the first who did begins now).

    ``ops``: what its kernel took for itself, its position in the order.  ``devices``: its last op,
    how many events it has, the copies whose sources wait for its next op, and those on their way.
    ``variables``: the buffer with its ``VALUE`` in this step, the chunk that it is in now and was
    in before, where it is, the bytes of a constant that it starts as.

    Written down: ``changes[device, position]`` of the bytes in use; ``records`` (the first five
    columns of a buffer, its last position, its first and last read, whether it is written over);
    ``reads`` (written at, until, read at, bytes, the buffer's next); ``events`` (device, chunk or
    ``~chunk`` where it is freed, op that asks); ``chunks`` (bytes, whether a kernel has it for
    itself); ``notes`` (kind, device, number of the event there before which it is, bytes, op,
    chunk).  ``counts`` says how many there are, and what is to be written down.
    """

    buffers: Ints
    values: Ints
    ops: Ints
    devices: Ints
    variables: Ints
    changes: Ints
    records: Ints
    reads: Ints
    events: Ints
    chunks: Ints
    notes: Ints
    pool: Ints
    counts: Ints


class Wanted(NamedTuple):
    """Says what is to be written down; where requests are, ``variables`` has their columns from
    ``VARIABLE_CHUNK`` on, ``chunks`` the bytes of all chunks by then."""

    records: bool = False
    reads: bool = False
    variables: Ints | None = None
    chunks: Sequence[int] = ()


def begin_run(known: NamedArrays, wanted: Wanted, room: int) -> Run:
    """A run that is about to begin, with ``room`` times what most steps take; what is fed, and what
    lasts, is there."""
    step, requests = known.arrays, wanted.variables is not None
    ops, values, devices = len(step.ops), len(step.values), len(known.is_cpu)
    most = room * (values + 2 * ops + 64)
    run = Run(
        buffers=_table(most, ITEMS_READ),
        values=_table(values, GIVEN, -1),
        ops=_table(ops, TUNED_BEFORE),
        devices=_table(devices, LAST_SENT + 1, -1),
        variables=_table(len(known.variable_names), COPIED_ON_READ, -1),
        changes=np.zeros((devices, ops + 2), np.int64),
        records=_table((most + values) * wanted.records, 8),
        reads=_table(room * (len(step.flat) + values) * wanted.reads, 4),
        events=_table((2 * most + ops) * requests, 2),
        chunks=_table((len(wanted.chunks) + most + ops) * requests, 1),
        notes=_table((2 * ops + len(step.flat)) * requests, 5),
        pool=_table(most, STACKED),
        counts=np.zeros(ITEMS_IN_POOL + 1, np.int64),
    )
    run.values[:, IS_NEW] = 0
    run.devices[:, IS_CPU], run.devices[:, ASKED] = known.is_cpu, 0
    run.variables[:, COPIED_ON_READ] = known.copied_on_read
    if wanted.variables is not None:
        run.variables[:, VARIABLE_CHUNK:COPIED_ON_READ] = wanted.variables
    run.chunks[: len(wanted.chunks), 0] = np.minimum(wanted.chunks, MOST_BYTES)
    run.counts[CHUNKS] = len(wanted.chunks)
    run.counts[LOGS_RECORDS : LOGS_REQUESTS + 1] = wanted.records, wanted.reads, requests
    _add(run, step.values, known.fed, FEED)
    _add(run, step.values, known.lasting, WEIGHTS)
    return run


def _table(rows: int, last_column: int, value: int = 0) -> Ints:
    return np.full((rows, last_column + 1), value, np.int64)


def _add(run: Run, values: Ints, added: Ints, kind: int) -> None:
    """Adds a buffer for each of the values."""
    first = int(run.counts[BUFFERS])
    new = run.buffers[first : first + len(added)]
    new[:, OWNER], new[:, DEVICE] = values[added, VALUE_PRODUCER], values[added, VALUE_MEMORY]
    new[:, BYTES], new[:, KIND] = values[added, VALUE_BYTES], kind
    new[:, HOLDERS], new[:, RESIDENT] = kind == FEED, kind == WEIGHTS
    new[:, [CHUNK, FIRST_READ, LAST_READ, CAPACITY]] = -1
    run.values[added, HELD] = np.arange(first, first + len(added))
    run.counts[BUFFERS] += len(added)
