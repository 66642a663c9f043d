"""Programs on several machines, on TensorFlow's own distributed runtime.

Every machine runs a ``tf.distribute.Server`` (or ``placer.serve_task``).  This process joins them,
and ``CPU:0`` of a plan is its host, which feeds and fetches, in sessions and in functions alike.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from cost_models.cluster_files import read_task_addresses
from cost_models.device_names import canonical
from placer.application.devices.device_mapping import own_mapping
from placer.application.devices.graph_optimisers import switch_memory_optimiser_off
from placer.application.placing.graph_placement import map_graph_devices
from placer.errors import PlacerError, UsageError
from placer.extraction.graph_defs.protobufs import copied

CLIENT_JOB = "client"
"""This process in a session.  TensorFlow refuses the name ``localhost`` there."""
SESSION_HOST = f"/job:{CLIENT_JOB}/task:0/device:CPU:0"
"""The canonical name that a session over several machines has for the host of this process."""

TIME_LIMIT_SECONDS = 60.0
_PROBE_SECONDS = 2.0
_RECONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 10.0

_LOG = logging.getLogger(__name__)

Addresses = Mapping[str, Mapping[int, str] | Sequence[str]]


class ClusterError(PlacerError):
    """A task of the cluster does not answer, or did not answer in time."""


def read_addresses(cluster: str | os.PathLike[str] | Addresses) -> dict[str, dict[int, str]]:
    """Addresses by job and task, out of a ``cluster.toml`` or what ``tf.train.ClusterSpec`` takes.

    Raises :class:`UsageError` for a file without tasks.
    """
    if isinstance(cluster, str | os.PathLike):
        try:
            return read_task_addresses(Path(cluster))
        except ValueError as error:
            raise UsageError(str(error)) from error
    return {
        job: dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))
        for job, tasks in cluster.items()
    }


def silent_tasks(addresses: Addresses, seconds: float = _PROBE_SECONDS) -> list[str]:
    """The tasks (with addresses) that accept no connection within ``seconds``."""
    silent = []
    for job, tasks in read_addresses(addresses).items():
        for task, address in tasks.items():
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=seconds).close()
            except OSError:
                silent.append(f"/job:{job}/task:{task} ({address})")
    return silent


def require_tasks(addresses: Addresses) -> None:
    """Raises :class:`ClusterError` naming the tasks that do not answer."""
    silent = silent_tasks(addresses)
    if silent:
        raise ClusterError(
            f"{', '.join(silent)} of the cluster do not answer: start their servers "
            f"(tf.distribute.Server), or correct the addresses"
        )


def call_in_time(
    call: Callable[[], Any], addresses: Addresses, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> Any:
    """Returns the result of ``call``.

    Raises :class:`ClusterError` if it does not end in time, or fails because a task is gone; the
    message names the tasks that do not answer.  Other exceptions of ``call`` go through.
    """
    result: list[Any] = []

    def run() -> None:
        try:
            result.append((call(), None))
        except BaseException as error:  # handed to the caller's thread
            result.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(time_limit_seconds)
    value, error = result[0] if result else (None, None)
    gone = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    if result and not isinstance(error, (*gone, tf.errors.InternalError, tf.errors.CancelledError)):
        if error is not None:
            raise error
        return value
    silent = silent_tasks(addresses)
    if error is not None and not silent and not isinstance(error, gone):
        raise error
    why = f"did not end within {time_limit_seconds:g} s" if error is None else "was broken off"
    who = f"{', '.join(silent)} do not answer" if silent else f"all tasks answer now ({error})"
    raise ClusterError(
        f"the run {why}: {who}; start the servers of the cluster again, restore the variables, and "
        f"run the same plan again"
    ) from error


class ClusterSession:
    """A session of TensorFlow 1 over several machines, which runs a placed GraphDef.

    ``addresses`` name the servers (a ``cluster.toml`` with ``[[task]]`` tables, or what
    ``tf.train.ClusterSpec`` takes).  Every run ends within ``time_limit_seconds``.  Raises
    :class:`ClusterError` if a server does not answer, :class:`UsageError` if the graph asks for a
    device that no server has.
    """

    def __init__(
        self,
        graph_def: Any,
        addresses: str | os.PathLike[str] | Addresses,
        *,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
    ) -> None:
        self.addresses = read_addresses(addresses)
        self.time_limit_seconds = time_limit_seconds
        require_tasks(self.addresses)
        target, cluster = local_master(self.addresses)
        config = tf.compat.v1.ConfigProto(cluster_def=cluster)
        switch_memory_optimiser_off(config)
        config.isolate_session_state = True
        mine = copied(graph_def)
        map_graph_devices(mine, own_mapping((), host=SESSION_HOST).stand_in)
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.graph_util.import_graph_def(mine, name="")
        self.session = tf.compat.v1.Session(target, self.graph, config)
        # runs once: at close(), or before the interpreter goes, which no thread may outlive
        self._end = weakref.finalize(self, _end_session, self.session, self.addresses)
        self._in_time(lambda: require_devices(mine, self.session.list_devices()))
        self._in_time(lambda: _reach_each_other(self.addresses, target, config))

    def _in_time(self, call: Callable[[], Any]) -> Any:
        return call_in_time(call, self.addresses, self.time_limit_seconds)

    def run(
        self, fetches: Any, feeds: Any = None, options: Any = None, metadata: Any = None
    ) -> Any:
        """Returns the result of ``tf.compat.v1.Session.run``, within the time limit."""
        return self._in_time(
            lambda: self.session.run(fetches, feeds, options=options, run_metadata=metadata)
        )

    def close(self) -> None:
        """Ends the session; servers that do not answer are not waited for."""
        self._end()

    def __enter__(self) -> ClusterSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reach_each_other(addresses: Addresses, target: str, config: Any) -> None:
    """Returns when a value of every task reached every other.

    For up to a second after a server is back those that looked for it meanwhile still fail with
    ``UnavailableError`` (TensorFlow's channels try again once a second).
    """
    with tf.Graph().as_default() as graph:
        tasks = [f"/job:{job}/task:{task}" for job in addresses for task in addresses[job]]
        values, sums = [], []
        for task in tasks:
            with tf.device(f"{task}/device:CPU:0"):
                values.append(tf.random.uniform([]))
        for task in tasks:
            with tf.device(f"{task}/device:CPU:0"):
                sums.append(tf.add_n(values).op)
    end = time.monotonic() + _RECONNECT_SECONDS
    with tf.compat.v1.Session(target, graph, config) as session:
        while True:
            try:
                session.run(sums)
                return
            except tf.errors.UnavailableError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def _end_session(session: Any, addresses: Addresses) -> None:
    """Closes ``session``; returns when it is closed, or cannot be in time.

    A thread that comes back from TensorFlow while the interpreter ends aborts the process, so it is
    waited for here.  Where a task is gone it does not come back, for minutes.
    """
    thread = threading.Thread(target=session.close, daemon=True)
    thread.start()
    if not silent_tasks(addresses):
        thread.join(_CLOSE_SECONDS)


_masters: list[Any] = []


def local_master(addresses: Addresses) -> tuple[str, Any]:
    """(target, ClusterDef) of this process as the task of a job ``client`` added to ``addresses``.

    The server is started once, and lives as long as the process.
    """
    known = read_addresses(addresses)
    if not _masters:
        host = "localhost" if _is_loopback(known) else socket.gethostname()
        _masters.append(tf.distribute.Server({"localhost": [f"{host}:0"]}, "localhost", 0))
    target = _masters[0].target
    own = {0: target.partition("//")[2]}
    return target, tf.train.ClusterSpec({**known, CLIENT_JOB: own}).as_cluster_def()


def _is_loopback(addresses: Mapping[str, Mapping[int, str]]) -> bool:
    hosts = {a.rpartition(":")[0] for tasks in addresses.values() for a in tasks.values()}
    return hosts <= {"127.0.0.1", "localhost"}


def connect_cluster(
    addresses: str | os.PathLike[str] | Addresses, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> None:
    """Joins the servers, so that functions of this process run on their devices
    (``tf.config.experimental_connect_to_cluster``).

    Raises :class:`ClusterError` if a server does not answer in time.
    """
    known = read_addresses(addresses)
    require_tasks(known)
    cluster = tf.train.ClusterSpec(known)
    connect = tf.config.experimental_connect_to_cluster
    call_in_time(lambda: connect(cluster), known, time_limit_seconds)


def require_devices(graph_def: Any, present: Iterable[Any]) -> None:
    """Raises :class:`UsageError` if ops of ``graph_def`` ask for devices that are not there."""
    there = {canonical(device.name) for device in present}
    asked = {canonical(node.device) for node in graph_def.node if node.device}
    if absent := sorted(asked - there):
        raise UsageError(
            f"the graph asks for {', '.join(absent)}, the cluster has {', '.join(sorted(there))}: "
            f"place it for those, or start servers that have the devices"
        )


def serve_task(
    addresses: str | os.PathLike[str] | Addresses, job: str, task: int, *, cpu_count: int = 1
) -> None:
    """Runs the server of one task until the process is ended; logs where it serves.

    Raises :class:`UsageError` for a task that ``addresses`` do not name, :class:`ClusterError` if
    its address is taken or cannot be had.
    """
    known = read_addresses(addresses)
    if task not in known.get(job, {}):
        named = ", ".join(f"/job:{j}/task:{t}" for j, tasks in known.items() for t in tasks)
        raise UsageError(f"/job:{job}/task:{task} is no task of the cluster, which has {named}")
    where = f"/job:{job}/task:{task} at {known[job][task]}"
    if not silent_tasks({job: {task: known[job][task]}}):  # a second server would share its port
        raise ClusterError(f"{where} cannot be served: a server answers there already")
    config = tf.compat.v1.ConfigProto(device_count={"CPU": cpu_count})
    switch_memory_optimiser_off(config)
    cluster = tf.train.ClusterSpec(known)
    try:
        server = tf.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    except tf.errors.OpError as error:
        raise ClusterError(
            f"{where} cannot be served: {error.message}; the port may be taken"
        ) from error
    _LOG.warning("serving %s, until this process is ended", where)  # shown unless configured away
    server.join()
