"""The ops that a graph needs before its step, and beside it: tables and iterators that are
initialised, queues that are filled.

A GraphDef names none of it, and in a MetaGraphDef only some is in a collection.  It follows from
the graph: of every table, iterator or queue that the step uses, the ops that fill it.  Those that
need a value which is fed, or a checkpoint, are left out.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from placer.extraction.reading.loaded_variables import leading_to
from placer.graph.op_types import (
    ITERATOR_INITIALISERS,
    PLACEHOLDERS,
    RESTORES,
    TABLE_INITIALISERS,
)
from placer.graph.tensor_names import op_of, source_of
from placer.graph.walks import reached

_ENQUEUES = frozenset({"QueueEnqueue", "QueueEnqueueMany", "QueueEnqueueV2", "QueueEnqueueManyV2"})
_DEQUEUES = frozenset(
    {"QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo"}
    | {"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"}
)
_INITIALISERS = TABLE_INITIALISERS | ITERATOR_INITIALISERS
_NOT_ALONE = PLACEHOLDERS | RESTORES


@dataclass(frozen=True, kw_only=True)
class GraphStart:
    """Ops of the main graph: ``initialisers`` run once, in this order; each of ``enqueues`` again
    and again, from a thread of its own.  ``waits`` are the ops of the step that wait for what
    others give, with their types."""

    initialisers: tuple[str, ...] = ()
    enqueues: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def ops(self) -> tuple[str, ...]:
        """All that runs beside the step."""
        return (*self.initialisers, *self.enqueues)


def find_start(nodes: Iterable[Any], used: Iterable[str]) -> GraphStart:
    """Returns what the ops ``used`` of a graph need, out of its ``nodes``."""
    by_name = {node.name: node for node in nodes}
    fillers: dict[str, list[str]] = {}
    for name, node in by_name.items():
        if node.op in _INITIALISERS or node.op in _ENQUEUES:
            # MakeIterator has its iterator last, the others what they fill first
            end = -1 if node.op == "MakeIterator" else 0
            fillers.setdefault(_owner(node.input[end], by_name), []).append(name)
    alone = {  # those that need nothing which is fed or restored
        name
        for name in (name for names in fillers.values() for name in names)
        if all(by_name[source].op not in _NOT_ALONE for source in leading_to(name, by_name))
    }

    def needed(name: str) -> Iterator[str]:
        yield from (source for source in map(source_of, by_name[name].input) if source in by_name)
        yield from (filler for filler in fillers.get(name, ()) if filler in alone)

    every = reached((name for name in used if name in by_name), needed)
    found = [name for name in every if name in alone]
    return GraphStart(
        initialisers=tuple(n for n in by_name if n in found and by_name[n].op in _INITIALISERS),
        enqueues=tuple(name for name in found if by_name[name].op not in _INITIALISERS),
        waits=tuple(f"{n} ({by_name[n].op})" for n in sorted(every) if by_name[n].op in _DEQUEUES),
    )


def _owner(tensor: str, nodes: Mapping[str, Any]) -> str:
    """The op that a handle comes from."""
    name = op_of(tensor)
    while name in nodes and nodes[name].op == "Identity":
        name = op_of(nodes[name].input[0])
    return name


def invent_tables(session: Any, graph: Any, start: GraphStart) -> None:
    """Fills the tables of a graph that nothing in it fills, such as those of a SavedModel's flat
    graph, with a few keys as inputs are made up."""
    import numpy
    import tensorflow as tf

    filled = {
        tensor.op.name
        for name in start.initialisers
        for tensor in graph.get_operation_by_name(name).inputs
    }
    fillers = []
    for op in graph.get_operations():
        if op.type not in ("HashTable", "HashTableV2") or op.name in filled:
            continue
        arrays = []
        for name in ("key_dtype", "value_dtype"):
            dtype = tf.as_dtype(op.get_attr(name))
            found = [b"abc", b""] if dtype == tf.string else numpy.arange(2)
            arrays.append(numpy.asarray(found, dtype.as_numpy_dtype))
        fill = tf.raw_ops.InitializeTableV2
        if op.type == "HashTable":
            fill = tf.raw_ops.InitializeTable
        with graph.as_default(), graph.colocate_with(op, ignore_existing=True):
            fillers.append(fill(table_handle=op.outputs[0], keys=arrays[0], values=arrays[1]))
    if fillers:
        session.run(fillers)


@contextmanager
def started(session: Any, graph: Any, start: GraphStart) -> Iterator[None]:
    """Initialises tables and iterators, and fills queues for as long as the block lasts.

    An error of a thread that fills a queue is raised once the block has ended in one.
    """
    # tables that other initialisers look things up in come first in the graph
    for name in start.initialisers:
        session.run(graph.get_operation_by_name(name))
    if not start.enqueues:
        yield
        return
    enqueues = [graph.get_operation_by_name(name) for name in start.enqueues]
    with graph.as_default():
        closes = [_close(op.inputs[0], cancel=False) for op in enqueues]
        cancels = [_close(op.inputs[0], cancel=True) for op in enqueues]
    failures: list[Exception] = []
    threads = [
        threading.Thread(target=_fill, args=(session, op, close, failures), daemon=True)
        for op, close in zip(enqueues, closes, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except Exception as error:
        if failures:
            raise failures[0] from error
        raise
    finally:
        for cancel in cancels:
            with suppress(Exception):
                session.run(cancel)
        for thread in threads:
            thread.join(10.0)  # their queues are closed


def _close(queue: Any, *, cancel: bool) -> Any:
    """An op that closes a queue: who waits for elements learns that none come."""
    import tensorflow as tf

    if queue.dtype == tf.resource:
        return tf.raw_ops.QueueCloseV2(handle=queue, cancel_pending_enqueues=cancel)
    return tf.raw_ops.QueueClose(handle=queue, cancel_pending_enqueues=cancel)


def _fill(session: Any, enqueue: Any, close: Any, failures: list[Exception]) -> None:
    """Enqueues until the queue is closed, or there is nothing more."""
    import tensorflow as tf

    try:
        while True:
            session.run(enqueue)
    except tf.errors.OutOfRangeError:
        pass
    except tf.errors.CancelledError:
        return
    except Exception as error:  # told to who waits, as TensorFlow's coordinators do
        failures.append(error)
    with suppress(Exception):
        session.run(close)
