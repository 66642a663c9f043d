"""Programs on several machines, on TensorFlow's own distributed runtime.

Every machine runs a ``tf.distribute.Server`` (or ``placer.serve_task``).  This process joins them,
and ``CPU:0`` of a plan is its host, which feeds and fetches, in sessions and in functions alike.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

from cost_models.cluster_files import CLIENT_JOB
from cost_models.device_names import canonical, parse
from placer.application.devices.device_mapping import own_mapping
from placer.application.devices.graph_optimisers import switch_memory_optimiser_off
from placer.application.placing.graph_placement import map_graph_devices
from placer.application.placing.saved_model import map_devices, soft_link, write_saved_model
from placer.application.running.cluster_tasks import (
    TIME_LIMIT_SECONDS,
    Addresses,
    Client,
    ClusterError,
    call_in_time,
    join_as_client,
    own_host,
    read_addresses,
    require_free,
    require_tasks,
    servers_of,
    silent_tasks,
)
from placer.argument_types import checked
from placer.errors import UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.protobufs import copied

v1 = tf.compat.v1

_RECONNECT_SECONDS = 5.0

_LOG = logging.getLogger(__name__)


class ClusterSession:
    """A session of TensorFlow 1 over several machines, which runs a placed graph.

    ``source`` is a GraphDef, MetaGraphDef or ``tf.Graph``, a file of one of these, or the folder of
    a SavedModel (with its ``tags``), which is loaded with its weights.  ``addresses`` name the
    servers (a ``cluster.toml`` with ``[[task]]`` tables, or what ``tf.train.ClusterSpec`` takes).
    Every run ends within ``time_limit_seconds``.  Several sessions may use the same servers, also
    those of other processes: each has variables of its own.

    Raises :class:`ClusterError` if a server does not answer, :class:`UsageError` if the graph asks
    for a device that no server has.
    """

    @checked
    def __init__(
        self,
        source: Any,
        addresses: str | os.PathLike[str] | Addresses,
        *,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
        tags: Iterable[str] = ("serve",),
    ) -> None:
        message = _message(source)
        self.addresses = read_addresses(addresses)
        self.time_limit_seconds = time_limit_seconds
        require_tasks(self.addresses)
        self._client = join_as_client(self.addresses)
        target, config = session_target(
            {**self.addresses, CLIENT_JOB: {0: self._client.address}}, self._client.device
        )
        switch_memory_optimiser_off(config)
        self.own_address = target.partition("//")[2]
        to_host = own_mapping((), host=self._client.device).stand_in
        kind, self.graph, self._saver = message.DESCRIPTOR.name, tf.Graph(), None
        graph_def = message if kind == "GraphDef" else None
        if kind == "MetaGraphDef":
            graph_def, self._saver = message.graph_def, message.saver_def
        if graph_def is not None:
            graph_def = copied(graph_def)
            map_graph_devices(graph_def, to_host)
            with self.graph.as_default():
                tf.graph_util.import_graph_def(graph_def, name="")
        self.session = v1.Session(target, self.graph, config)
        # runs once: at close(), or before the interpreter goes, which no thread may outlive
        self._closing = _Closing(self.session, self._client)
        self._end = weakref.finalize(self, self._closing.end)
        try:
            if graph_def is None:
                self._in_time(lambda: self._load(Path(source), message, to_host, tuple(tags)))
                graph_def = self.graph.as_graph_def()
            self._in_time(lambda: require_devices(graph_def, self.session.list_devices()))
            self._in_time(lambda: _reach_each_other(servers_of(self.addresses), target, config))
        except BaseException:
            self.close()
            raise

    def _load(
        self, folder: Path, saved_model: Any, to_host: Callable[[str], str], tags: tuple[str, ...]
    ) -> None:
        """Loads a SavedModel as TensorFlow 1 does, from a copy that names the devices here."""
        for meta_graph in saved_model.meta_graphs:
            map_devices(meta_graph, to_host)
        with tempfile.TemporaryDirectory(prefix="placer-cluster-") as name:
            copy = Path(name) / "model"
            write_saved_model(folder, saved_model, copy, bring=soft_link)
            with self.graph.as_default():
                loaded = v1.saved_model.load(self.session, list(tags), str(copy))
        self._saver = loaded.saver_def

    def _in_time(self, call: Callable[[], Any]) -> Any:
        limit = self.time_limit_seconds
        try:
            return call_in_time(call, self.addresses, limit, own_address=self.own_address)
        except ClusterError:
            self._closing.is_broken = True
            raise

    @checked
    def run(
        self, fetches: Any, feeds: Any = None, options: Any = None, metadata: Any = None
    ) -> Any:
        """Returns the result of ``tf.compat.v1.Session.run``, within the time limit."""
        limited = v1.RunOptions(timeout_in_ms=int(1000 * self.time_limit_seconds))
        if options is not None:
            limited.MergeFrom(options)
        return self._in_time(
            lambda: self.session.run(fetches, feeds, options=limited, run_metadata=metadata)
        )

    @checked
    def save(self, prefix: str | os.PathLike[str]) -> str:
        """Writes a checkpoint with the graph's saver; returns its prefix.

        The variables are sent to this process, which writes the files.  Raises
        :class:`UsageError` for a graph that came without a saver.
        """
        found = self.run(*self._saving("save_tensor_name", prefix))
        return found.decode() if isinstance(found, bytes) else str(found)

    @checked
    def restore(self, prefix: str | os.PathLike[str]) -> None:
        """Gives the variables the values of a checkpoint that this process reads; errors as for
        :meth:`save`."""
        self.run(*self._saving("restore_op_name", prefix))

    def _saving(self, field: str, prefix: str | os.PathLike[str]) -> tuple[str, dict[str, str]]:
        op = getattr(self._saver, field, "")
        if self._saver is None or not op:
            raise UsageError(
                "the graph came without a saver: give the .meta file or the MetaGraphDef that "
                "tf.compat.v1.train.Saver().export_meta_graph(path) writes"
            )
        return op, {self._saver.filename_tensor_name: os.fspath(prefix)}

    def close(self) -> None:
        """Ends the session; servers that do not answer are not waited for longer than twelve
        seconds."""
        self._end()

    def __enter__(self) -> ClusterSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _message(source: Any) -> Any:
    """The GraphDef, MetaGraphDef or SavedModel (of a folder) that is given or in a file.

    Raises :class:`UsageError` for anything else, :class:`ModelError` for a file of another kind.
    """
    if isinstance(source, str | os.PathLike):
        return read_source(Path(source), as_written=True)
    if isinstance(source, tf.Graph):
        return source.as_graph_def()
    if getattr(source, "DESCRIPTOR", None) is None:
        raise UsageError(
            f"a session runs graphs and files of graphs, not an object of type "
            f"{type(source).__name__!r}: functions and Keras "
            "models run on several machines after placer.connect_cluster"
        )
    return source


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


class _Closing:
    """Closes a session in a thread of its own, as that may not end; ``is_broken``: a step did not
    end.  The thread waits from the beginning: none can be started while the interpreter ends."""

    def __init__(self, session: Any, client: Client) -> None:
        self.client, self.is_broken, self.begin = client, False, threading.Event()
        self.thread = threading.Thread(target=self._close, args=(session,), daemon=True)
        self.thread.start()

    def _close(self, session: Any) -> None:
        self.begin.wait()
        session.close()

    def end(self) -> None:
        """Returns when the session is closed, or is not in time.

        A thread that comes back from TensorFlow while the interpreter ends aborts the process, so
        it is waited for.  Where it does not come back, the servers still hold the session.  The
        next one has its name, and (unless the port is given) another server in this process: so
        they drop it.
        """
        self.begin.set()
        # TensorFlow waits ten seconds for each server to end its part of a session, and for minutes
        # where a step was broken off
        self.thread.join(1.0 if self.is_broken else 12.0)
        if self.thread.is_alive() and self.client.address.endswith(":0"):
            _master.cache_clear()
        self.client.close()


def session_target(addresses: Addresses, device: str) -> tuple[str, Any]:
    """(target, ConfigProto) of a session of this process over the servers of ``addresses``, in
    which ``device`` is this process's host (see :func:`join_as_client`)."""
    target = _master(*own_host(addresses)).target
    own = {str(parse(device).job): {0: target.partition("//")[2]}}
    cluster = tf.train.ClusterSpec({**servers_of(addresses), **own})
    config = v1.ConfigProto(cluster_def=cluster.as_cluster_def(), isolate_session_state=True)
    return target, config


@cache
def _master(host: str, port: int) -> Any:
    """The server of this process, which lives as long as the process."""
    require_free(host, port)
    return tf.distribute.Server({"localhost": [f"{host}:{port}"]}, "localhost", 0)


@cache
def _function_port(host: str, port: int) -> int:
    """The port on which the functions of this process are served: a free one where it is 0."""
    require_free(host, port)
    with socket.socket() as probe:
        if port:
            return port
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def connect_cluster(
    addresses: str | os.PathLike[str] | Addresses, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> None:
    """Joins the servers, so that functions of this process run on their devices
    (``tf.config.experimental_connect_to_cluster``).

    Raises :class:`ClusterError` if a server does not answer in time.
    """
    given = read_addresses(addresses)
    known = servers_of(given)
    require_tasks(known)
    host, port = own_host(given)
    own = f"{host}:{_function_port(host, port)}"
    cluster = tf.train.ClusterSpec({**known, "localhost": [own]})
    connect = tf.config.experimental_connect_to_cluster
    call_in_time(lambda: connect(cluster), known, time_limit_seconds, own_address=own)


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
    known = servers_of(read_addresses(addresses))
    if task not in known.get(job, {}):
        named = ", ".join(f"/job:{j}/task:{t}" for j, tasks in known.items() for t in tasks)
        raise UsageError(f"/job:{job}/task:{task} is not a task of the cluster, which has {named}")
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
