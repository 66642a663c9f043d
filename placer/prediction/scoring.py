"""The score of a placement of a :class:`~placer.problem.placement_problem.PlacementProblem`.

Recomputed from the definition alone, so that a solver's own figures can be checked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from placer.prediction.times.step_time import list_messages
from placer.problem.placement_problem import PlacementProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The cost of a placement, and the limits that it breaks.

    ``transfer_bytes``: every tensor once per device, other than its producer's, that reads it.
    ``sent_bytes``: the same with what is fetched; in ``messages`` messages, signals of control
    edges among them.  ``slower_bytes``: what slower work is worth.  ``cost``: ``sent_bytes``,
    ``message_bytes`` of the problem for every message, and ``slower_bytes``.
    ``load_bytes[moment][device]``: resident plus live plus reserved (transient) bytes; one row
    with no live bytes where the problem has no moments.  ``violations``: one sentence per broken
    constraint, empty for a placement that keeps them all.
    ``busy_seconds``: per device, its ops divided by how many it runs at once, and what it sends and
    receives.
    """

    transfer_bytes: int
    sent_bytes: int
    messages: int
    slower_bytes: int
    cost: int
    load_bytes: tuple[tuple[int, ...], ...]
    violations: tuple[str, ...]
    busy_seconds: tuple[float, ...]

    @property
    def bottleneck_seconds(self) -> float:
        """The seconds of the busiest device: what a full pipeline takes per sample."""
        return max(self.busy_seconds)

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """The largest load of every device."""
        return tuple(max(column) for column in zip(*self.load_bytes, strict=True))


def score(problem: PlacementProblem, device_of: Sequence[int]) -> Score:
    """The score of the placement that puts op ``i`` on device ``device_of[i]``.

    Raises ``ValueError`` if ``device_of`` does not give every op a device of the problem.
    """
    _check(problem, device_of)
    load_bytes = tuple(_loads(problem, device_of))
    sent, messages = sends(problem, device_of)
    slower = slower_bytes(problem, device_of)
    return Score(
        transfer_bytes=transfer_bytes(problem, device_of),
        sent_bytes=sent,
        messages=messages,
        slower_bytes=slower,
        cost=sent + messages * problem.message_bytes + slower,
        load_bytes=load_bytes,
        violations=(
            *_misplaced(problem, device_of),
            *_torn_groups(problem, device_of),
            *_overloads(problem, load_bytes),
        ),
        busy_seconds=busy_seconds(problem, device_of),
    )


def busy_seconds(problem: PlacementProblem, device_of: Sequence[int]) -> tuple[float, ...]:
    """Per device, the seconds of a step in which it computes, sends or receives.

    A tensor takes latency plus bytes over bandwidth at both of its ends, once per receiving
    device; so does the signal of a control edge, without bytes.
    """
    count = len(problem.device_names)
    parallel = problem.parallel_ops or (1,) * count
    occupied = problem.occupied or (True,) * count
    busy = [0.0] * count
    for device, times in zip(device_of, problem.seconds, strict=True):
        busy[device] += times[device] / parallel[device]
    for message in list_messages(problem):
        source, costs = device_of[message.producer], []
        for target in {device_of[op] for op in message.consumers} - {source}:
            sending = message.bytes / problem.bandwidth[source][target] if message.bytes else 0.0
            seconds = problem.latency[source][target] + sending
            busy[target] += seconds if occupied[target] else 0.0
            costs.append(seconds)
        if costs and occupied[source]:
            busy[source] += max(costs) if problem.multicast else sum(costs)
    return tuple(busy)


def transfer_bytes(problem: PlacementProblem, device_of: Sequence[int]) -> int:
    """Bytes of all tensors, each times the devices other than its producer's that read it."""
    return sum(
        tensor.bytes
        * len({device_of[op] for op in tensor.consumers} - {device_of[tensor.producer]})
        for tensor in problem.tensors
    )


def cost(problem: PlacementProblem, device_of: Sequence[int]) -> int:
    """Returns what a placement costs in bytes: what it sends, and what slower work is worth."""
    sent, messages = sends(problem, device_of)
    return sent + messages * problem.message_bytes + slower_bytes(problem, device_of)


def sends(problem: PlacementProblem, device_of: Sequence[int]) -> tuple[int, int]:
    """The bytes of all messages and their number: tensors, of which those that are fetched are read
    on the host too, and one signal per op that others wait for and device where they do."""
    fetched = frozenset(problem.fetched)
    sent = messages = 0
    for number, tensor in enumerate(problem.tensors):
        readers = {device_of[op] for op in tensor.consumers}
        if number in fetched:
            readers.add(problem.host)
        receiving = len(readers - {device_of[tensor.producer]})
        sent += tensor.bytes * receiving
        messages += receiving
    waiting: dict[int, set[int]] = {}
    for before, after in problem.control_edges:
        waiting.setdefault(before, set()).add(device_of[after])
    messages += sum(len(devices - {device_of[op]}) for op, devices in waiting.items())
    return sent, messages


def slower_bytes(problem: PlacementProblem, device_of: Sequence[int]) -> int:
    """Returns what the slower work of all ops is worth where they are."""
    return sum(
        costs[device] for costs, device in zip(problem.slower_bytes, device_of, strict=False)
    )


def _check(problem: PlacementProblem, device_of: Sequence[int]) -> None:
    """Raises ``ValueError`` unless the placement is one of this problem."""
    if len(device_of) != len(problem.op_names):
        raise ValueError(f"{len(device_of)} devices given for {len(problem.op_names)} ops")
    for name, device in zip(problem.op_names, device_of, strict=True):
        if not 0 <= device < len(problem.device_names):
            raise ValueError(f"{name} is on device {device} of {len(problem.device_names)}")


def _loads(problem: PlacementProblem, device_of: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Bytes per device, moment by moment."""
    base = list(problem.transient_bytes)
    for device, size in zip(device_of, problem.resident_bytes, strict=True):
        base[device] += size
    for moment in problem.live_bytes or ({},):
        load = list(base)
        for op, size in moment.items():
            load[device_of[op]] += size
        yield tuple(load)


def _misplaced(problem: PlacementProblem, device_of: Sequence[int]) -> Iterator[str]:
    """Ops on a device that they may not use."""
    for op, device in enumerate(device_of):
        if not problem.may_use(op, device):
            allowed = ", ".join(problem.device_names[number] for number in problem.allowed[op])
            yield (
                f"{problem.op_names[op]} is on {problem.device_names[device]}, "
                f"allowed: {allowed or 'none'}"
            )


def _torn_groups(problem: PlacementProblem, device_of: Sequence[int]) -> Iterator[str]:
    """Ops that sit apart from the first op of their group."""
    first: dict[int, int] = {}
    for op, group in enumerate(problem.group):
        other = first.setdefault(group, op)
        if device_of[op] != device_of[other]:
            yield (
                f"{problem.op_names[op]} is on {problem.device_names[device_of[op]]}, "
                f"{problem.op_names[other]} of the same group on "
                f"{problem.device_names[device_of[other]]}"
            )


def _overloads(problem: PlacementProblem, load_bytes: Sequence[Sequence[int]]) -> Iterator[str]:
    """Devices that hold more than their capacity, each at its worst moment."""
    for device, capacity in enumerate(problem.capacity_bytes):
        moment = max(range(len(load_bytes)), key=lambda number: load_bytes[number][device])
        load = load_bytes[moment][device]
        if load > capacity:
            yield (
                f"{problem.device_names[device]} holds {load} bytes at moment {moment}, "
                f"{load - capacity} above its capacity of {capacity}"
            )
