"""Collectives of a placed graph: each of their ops on a device of its own, by the means it has."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import tensorflow as tf

from placer.errors import PlacerError, UsageError

_a_step_failed = Event()
"""Set once a step with collectives ended with an error; of the process, as TensorFlow's are."""


def place_collectives(graph_def: Any) -> None:
    """Lets GPUs reduce with NCCL, as ``tf.distribute.MirroredStrategy`` does; CPUs have the ring of
    TensorFlow itself.

    Raises :class:`UsageError` if two ops of one collective are on one device: they would wait for
    each other until the collective times out.
    """
    taken: dict[tuple[int, int, str], str] = {}
    for node in graph_def.node:
        if node.op != "CollectiveReduce":
            continue
        key = node.attr["group_key"].i, node.attr["instance_key"].i, node.device
        if key in taken:
            raise UsageError(
                f"{taken[key]} and {node.name} join the gradients of two replicas and are both on "
                f"{node.device}: every replica requires a device of its own; place it without "
                "--clear-devices and pins of their ops"
            )
        taken[key] = node.name
        if "device:GPU:" in node.device:
            node.attr["communication_hint"].s = b"nccl"


@contextmanager
def collectives_open() -> Iterator[None]:
    """Steps with collectives run in it; :class:`PlacerError` once TensorFlow has closed them.

    A device that fails while another one waits for it in a collective closes those of the whole
    process (``BaseCollectiveExecutor::StartAbort`` of
    ``tensorflow/core/common_runtime/base_collective_executor.cc``), and nothing opens them again.
    The step that failed ends with its own error.  A later one ends with that of its collectives
    or, now and then, of an op that they cancelled.
    """
    try:
        yield
    except tf.errors.OpError as error:
        cancelled = isinstance(error, tf.errors.CancelledError) and _a_step_failed.is_set()
        _a_step_failed.set()
        if not cancelled and "Collective ops is aborted" not in error.message:
            raise
        raise PlacerError(
            "a device failed in an earlier step while others waited for it in an all-reduce, and "
            "TensorFlow runs no all-reduce in this process after that; start again from the last "
            "checkpoint, or use replicas, which go on after a failed step"
        ) from error
