"""The tasks of a cluster: where they answer, which do not, and how they reach this process."""

import itertools
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.cluster_files import CLIENT_JOB, read_task_addresses
from placer.errors import PlacerError, UsageError

TIME_LIMIT_SECONDS = 60.0
_PROBE_SECONDS = 1.5

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first bytes of a client of gRPC (RFC 9113, section 3.4).  A server that runs answers at once;
for one that is stopped the system accepts the connection, and nothing comes."""

_LOG = logging.getLogger(__name__)

Addresses = Mapping[str, Mapping[int, str] | Sequence[str]]


class ClusterError(PlacerError):
    """A task of the cluster does not answer, or did not answer in time."""


def read_addresses(cluster: str | os.PathLike[str] | Addresses) -> dict[str, dict[int, str]]:
    """Addresses by job and task, out of a ``cluster.toml`` or what ``tf.train.ClusterSpec`` takes.

    Task 0 of a job ``client`` is no server: it says where the tasks reach this process
    (``10.0.0.5:2300``; port 0 is any).  Raises :class:`UsageError` for a file without tasks.
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


def servers_of(addresses: Addresses) -> dict[str, dict[int, str]]:
    """The addresses without that of the client."""
    return {job: tasks for job, tasks in read_addresses(addresses).items() if job != CLIENT_JOB}


def _parts(address: str) -> tuple[str, int]:
    """Host and port.  Raises :class:`UsageError` for an address without them."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{address!r} is not an address of a task: write it as 10.0.0.1:2222")
    return host.strip("[]"), int(port)


def silent_tasks(addresses: Addresses) -> list[str]:
    """The tasks (with addresses) whose servers do not answer soon."""
    named = {
        f"/job:{job}/task:{task} ({address})": _parts(address)
        for job, tasks in servers_of(addresses).items()
        for task, address in tasks.items()
    }
    with ThreadPoolExecutor(max(1, len(named))) as pool:
        answers = pool.map(_answers, named.values())
        return [name for name, is_there in zip(named, answers, strict=True) if not is_there]


def _answers(place: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(place, timeout=_PROBE_SECONDS) as link:
            link.sendall(_HELLO)
            return bool(link.recv(1))
    except OSError:
        return False


def _do_not_answer(silent: Sequence[str]) -> str:
    return f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"


def require_tasks(addresses: Addresses) -> None:
    """Raises :class:`ClusterError` naming the tasks that do not answer."""
    silent = silent_tasks(addresses)
    if silent:
        raise ClusterError(
            f"{_do_not_answer(silent)}: start the servers of the cluster "
            f"(placer.serve_task, tf.distribute.Server), or correct the addresses"
        )


def require_free(host: str, port: int) -> None:
    """Raises :class:`ClusterError` if a server answers there already: a second one would get some
    of its calls."""
    if port and _answers((host, port)):
        raise ClusterError(
            f"{host}:{port}, where the tasks are to reach this process, is taken: give another "
            f"port to job {CLIENT_JOB} (0 is any)"
        )


def call_in_time(
    call: Callable[[], Any],
    addresses: Addresses,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
    own_address: str = "",
) -> Any:
    """Returns the result of ``call``.

    Raises :class:`ClusterError` if it does not end in time, or fails because a task is gone; the
    message names the tasks that do not answer, else the ``own_address`` that they were given.
    Other exceptions of ``call`` go through.
    """
    import tensorflow as tf

    result: list[Any] = []

    def run() -> None:
        try:
            result.append((call(), None))
        except BaseException as error:  # handed to the caller's thread
            result.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(time_limit_seconds + 0.3)  # for TensorFlow to end the step by itself
    value, error = result[0] if result else (None, None)
    gone = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    if result and not isinstance(error, (*gone, tf.errors.InternalError, tf.errors.CancelledError)):
        if error is not None:
            raise error
        return value
    silent = silent_tasks(addresses)
    if error is not None and not silent and not isinstance(error, gone):
        raise error
    late = error is None or isinstance(error, tf.errors.DeadlineExceededError)
    why = f"did not end within {time_limit_seconds:g} s" if late else "was broken off"
    if silent:
        raise ClusterError(
            f"the run {why}: {_do_not_answer(silent)}; start the servers of the cluster again, "
            f"restore the variables, and run the same plan again"
        ) from error
    if late:
        advice = "it is slow or hangs: give a longer time_limit_seconds"
    else:
        advice = f"one of them was started again meanwhile, or does not reach {own_address}"
    reason = "" if late else f" ({str(error).splitlines()[0]})"
    raise ClusterError(f"the run {why}, and all tasks answer now{reason}: {advice}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A process as a task of the cluster: ``device`` is its host in full, ``address`` where the
    tasks reach it.  ``lock`` keeps its name from others, until it is closed or the process ends."""

    device: str
    address: str
    lock: socket.socket | None = None

    def close(self) -> None:
        """Gives the name free."""
        if self.lock is not None:
            self.lock.close()


def join_as_client(addresses: Addresses) -> Client:
    """A name for this process among the clients of a cluster.

    A server ends all sessions of a client that comes again under its name.  So no two that are at
    work share one, and who comes after one that was killed takes its name: the servers then drop
    what that had there.
    """
    host, port = own_host(addresses)
    for number in itertools.count():
        name, lock = f"{CLIENT_JOB}_{''.join(c if c.isalnum() else '_' for c in host)}", None
        if sys.platform == "linux":
            lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                lock.bind(f"\0placer-client-{number}")  # in no file: it goes with the process
            except OSError:
                lock.close()
                continue
        else:
            number = uuid.uuid4().int  # servers keep what a killed client had
        device = f"/job:{name}_{number}/task:0/device:CPU:0"
        return Client(device=device, address=f"{host}:{port}", lock=lock)
    raise AssertionError("there is always a further number")


def own_host(addresses: Addresses) -> tuple[str, int]:
    """The address by which the tasks reach this process, and the port (0 is any).

    Where the job ``client`` does not give it, it is this end of a way to a task, and logged unless
    all is on one machine.
    """
    known = read_addresses(addresses)
    if CLIENT_JOB in known:
        return _parts(known[CLIENT_JOB][0])
    found = list(dict.fromkeys(_ends(known)))
    outside = [host for host in found if not host.startswith("127.")]
    if not outside:
        return (found or ["127.0.0.1"])[0], 0
    others = f", not at {', '.join(outside[1:])}" if outside[1:] else ""
    _LOG.warning(
        "the tasks reach this process at %s%s (an address of job %s in the cluster gives another)",
        outside[0],
        others,
        CLIENT_JOB,
    )
    return outside[0], 0


def _ends(addresses: Mapping[str, Mapping[int, str]]) -> Iterator[str]:
    """Yields this process's address on the way to each task.  TensorFlow serves on IPv4."""
    for address in (address for tasks in addresses.values() for address in tasks.values()):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            try:
                way.connect(_parts(address))  # of a datagram: nothing is sent
            except OSError:
                continue
            yield way.getsockname()[0]
