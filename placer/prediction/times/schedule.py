"""When everything runs: list scheduling in the manner of TensorFlow's executor.

An op is ready when its inputs are there; a device takes ready ops first come, first served, a GPU
one at a time, a CPU as many as it runs in parallel.  A tensor is sent once per destination when
its producer is done; a link carries one transfer at a time, while both of its ends compute.

    GPU:0   |--a--|--b--|
    link          |==a==|            a is sent while b runs; c waits for it
    GPU:1               |--c--|

A collective begins when all its devices have what they put in, and computing goes on beside it.

Graham, "Bounds on multiprocessing timing anomalies", doi:10.1137/0117039, on list scheduling.

An all-reduce of n devices is a ring of 2 (n - 1) rounds, in each of which every device sends an
n-th part to the next one: 2 (n - 1) / n times its bytes in all (P. Patarasuk and X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations",
doi:10.1016/j.jpdc.2008.09.002; ``RingReducer`` of TensorFlow's ``ring_reducer.cc``, and NCCL's).
"""

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.roofline import op_seconds, transfer_seconds
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import MERGES
from placer.graph.order import is_back_edge
from placer.graph.tensor_names import source_of
from placer.graph.walks import grouped
from placer.prediction.metrics import Schedule, Transfer
from placer.prediction.step.routes import Routes, host_of, is_cpu

ALL_REDUCES = frozenset({"CollectiveReduce"})

Ring = tuple[object, object]
"""Group and instance of a collective, as its ops name them."""


def ring_of(op: Op) -> Ring | None:
    """The collective that ``op`` takes part in, if it does."""
    if op.op_type not in ALL_REDUCES:
        return None
    return op.info.attributes.get("group_key"), op.info.attributes.get("instance_key")


def find_rings(graph: OpGraph) -> dict[Ring | None, list[str]]:
    """The ops of every collective, in graph order."""
    rings = ((ring_of(op), op.name) for op in graph.ops.values() if op.op_type in ALL_REDUCES)
    return grouped(rings)


def ring_bytes(graph: OpGraph, costs: Mapping[str, OpCost]) -> int:
    """Returns the bytes that all devices send in the collectives of a step: of n devices with b
    bytes each 2 (n - 1) b."""
    return sum(
        2 * (len(members) - 1) * _bytes(members, costs)
        for members in graph.ask_once(find_rings).values()
    )


def ring_seconds(
    members: Sequence[str],
    costs: Mapping[str, OpCost],
    device_of: Mapping[str, str],
    cluster: Cluster,
) -> float:
    """Seconds of all rounds of a collective, each as long as its slowest link takes."""
    count = len(members)
    if count < 2:
        return 0.0
    names = [device_of[name] for name in members]
    part = _bytes(members, costs) / count
    links = [cluster.link(a, b) for a, b in zip(names, [*names[1:], names[0]], strict=True)]
    return 2 * (count - 1) * max(link.latency + part / link.bandwidth for link in links)


def _bytes(members: Sequence[str], costs: Mapping[str, OpCost]) -> int:
    return costs[members[0]].output_bytes[0] or 0


def predict_schedule(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    transfers: Sequence[Transfer],
    cluster: Cluster,
) -> Schedule:
    """The predicted times of one step in seconds.

    The step ends when the last op is done and the last fetched value is back on the host.  The
    critical path takes all ops and transfers at their times and waits for no device or link.
    ``busy_seconds`` adds up the ops of a device; ``bottleneck_seconds`` is the largest sum of a
    device's busy seconds, divided among the ops it runs in parallel, and its transfers in and
    out.  An unsized tensor takes the latency of its link.

    Raises ``KeyError`` if ``cluster`` lacks the device of an op.
    """
    tasks = list_tasks(graph, costs, routes, transfers, cluster)
    times = run_tasks(tasks, *find_capacities(cluster))
    busy, sending = _occupied_seconds(tasks, transfers, cluster)
    spans = zip(times.start[len(graph.ops) :], times.finish[len(graph.ops) :], strict=True)
    return Schedule(
        step_seconds=max(times.finish, default=0.0),
        critical_path_seconds=_critical_path_seconds(tasks, times.order),
        busy_seconds=busy,
        bottleneck_seconds=max(
            busy[device.name] / device.parallel_ops + sending[device.name]
            for device in cluster.devices
        ),
        start_seconds=dict(zip(graph.ops, times.start, strict=False)),
        finish_seconds=dict(zip(graph.ops, times.finish, strict=False)),
        transfer_seconds={
            (transfer.tensor, transfer.target, transfer.memory): span
            for transfer, span in zip(transfers, spans, strict=True)
        },
    )


@dataclass(slots=True, kw_only=True)
class TaskGraph:
    """Ops in graph order, then transfers.  A task occupies ``resource`` (a device, or the pair of
    a link) for ``seconds``; those in ``after`` wait for it."""

    seconds: list[float] = field(default_factory=list)
    resource: list[Hashable] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def add(self, resource: Hashable, seconds: float) -> None:
        """Appends a task that waits for nothing yet."""
        self.resource.append(resource)
        self.seconds.append(seconds)
        self.after.append([])
        self.waiting.append(0)

    def join(self, before: int, after: int) -> None:
        """Makes one task wait for another."""
        self.after[before].append(after)
        self.waiting[after] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """Start and finish of every task, and the order in which they finish."""

    start: list[float]
    finish: list[float]
    order: list[int]


def list_tasks(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    transfers: Sequence[Transfer],
    cluster: Cluster,
) -> TaskGraph:
    """All ops and transfers with what they wait for."""
    devices = {device.name: device for device in cluster.devices}
    number = {name: index for index, name in enumerate(graph.ops)}
    keys = [(id(costs[name]), routes.device_of[name]) for name in graph.ops]
    alike = dict(zip(keys, graph.ops, strict=True))  # those of one OpCost on one device
    known = {key: op_seconds(costs[name], devices[key[1]]) for key, name in alike.items()}
    rings = graph.ask_once(find_rings)
    tasks = TaskGraph(
        seconds=[known[key] for key in keys],
        resource=[device for _, device in keys],
        after=[[] for _ in keys],
        waiting=[0 for _ in keys],
    )
    arrival: dict[tuple[str, str, str], int] = {}
    for index, transfer in enumerate(transfers, start=len(number)):
        arrival[transfer.tensor, transfer.target, transfer.memory] = index
        tasks.add((transfer.source, transfer.target), _transfer_seconds(transfer, routes, cluster))
        tasks.join(number[source_of(transfer.tensor)], index)
    for members in rings.values():
        seconds = ring_seconds(members, costs, routes.device_of, cluster)
        for name in members:
            tasks.seconds[number[name]] += seconds
            # one collective runs at a time
            tasks.resource[number[name]] = (routes.device_of[name], "collectives")
    device_of = [device for _, device in keys]
    for index, op in enumerate(graph.ops.values()):
        found = dict.fromkeys(_dependencies(op, index, graph, routes, device_of, number, arrival))
        for name in rings[ring_of(op)] if op.op_type in ALL_REDUCES else ():
            other = graph.ops[name], number[name]
            found |= dict.fromkeys(_dependencies(*other, graph, routes, device_of, number, arrival))
        tasks.waiting[index] = len(found)
        for before in found:
            tasks.after[before].append(index)
    return tasks


def _dependencies(
    op: Op,
    index: int,
    graph: OpGraph,
    routes: Routes,
    devices: Sequence[str],
    number: Mapping[str, int],
    arrival: Mapping[tuple[str, str, str], int],
) -> list[int]:
    """The tasks that ``op``, number ``index``, waits for: local producers, and arrivals of what is
    sent to it."""
    device = devices[index]
    may_close_loop = op.op_type in MERGES
    found = []
    for slot, producer in enumerate(graph.producer_numbers[index]):
        if may_close_loop and is_back_edge(graph.infos[producer].op, op.op_type):
            continue
        if devices[producer] == device:
            found.append(producer)
        else:
            found.append(arrival[op.inputs[slot], *routes.reads[op.name][slot]])
    for name in op.control_inputs:
        before = number[name]
        signal = "host" if is_cpu(device) else "device"
        local = devices[before] == device
        found.append(before if local else arrival[f"^{name}", device, signal])
    return found


def _transfer_seconds(transfer: Transfer, routes: Routes, cluster: Cluster) -> float:
    """Seconds on the link; what moves from a task's host memory to itself is not copied
    (``SameWorkerRecvDone`` of ``tensorflow/core/common_runtime/rendezvous_mgr.cc``)."""
    link = cluster.link(transfer.source, transfer.target)
    if transfer.kind != "control" and transfer.memory == "host":
        on_host = routes.home[transfer.tensor][1] == "host"
        if on_host and host_of(transfer.source) == host_of(transfer.target):
            return transfer_seconds(0, link)
    return transfer_seconds(transfer.bytes, link)


def find_capacities(
    cluster: Cluster,
) -> tuple[dict[Hashable, int], dict[Hashable, Hashable]]:
    """Returns how many ops run at once in each pool of threads, and the pool of each device."""
    pools: dict[Hashable, Hashable] = {d.name: cluster.pool_of(d) for d in cluster.devices}
    capacity = Counter[Hashable]()
    for device in cluster.devices:
        capacity[pools[device.name]] += device.parallel_ops
    return dict(capacity), pools


def run_tasks(
    tasks: TaskGraph,
    capacity: Mapping[Hashable, int],
    pools: Mapping[Hashable, Hashable] = MappingProxyType({}),
) -> TaskTimes:
    """The times of all tasks; a resource without a ``capacity`` takes one at a time, and those
    of one of the ``pools`` share its capacity."""
    count = len(tasks.seconds)
    start, finish, order = [0.0] * count, [0.0] * count, list[int]()
    waiting = list(tasks.waiting)
    resources = [pools.get(resource, resource) for resource in tasks.resource]
    free = {resource: capacity.get(resource, 1) for resource in resources}
    queues: dict[Hashable, deque[int]] = {resource: deque() for resource in free}
    running: list[tuple[float, int]] = []

    def begin(resource: Hashable, now: float) -> None:
        queue = queues[resource]
        while queue and free[resource]:
            task = queue.popleft()
            free[resource] -= 1
            start[task] = now
            heapq.heappush(running, (now + tasks.seconds[task], task))

    for task in range(count):
        if not waiting[task]:
            queues[resources[task]].append(task)
    for resource in free:
        begin(resource, 0.0)
    while running:
        now, task = heapq.heappop(running)
        finish[task] = now
        order.append(task)
        free[resources[task]] += 1
        touched = {resources[task]: None}
        for after in tasks.after[task]:
            waiting[after] -= 1
            if not waiting[after]:
                queues[resources[after]].append(after)
                touched[resources[after]] = None
        for resource in touched:
            begin(resource, now)
    return TaskTimes(start=start, finish=finish, order=order)


def _critical_path_seconds(tasks: TaskGraph, order: Sequence[int]) -> float:
    """The longest path through the tasks; ``order`` has every task after those it waits for."""
    ready = [0.0] * len(tasks.seconds)
    longest = 0.0
    for task in order:
        finish = ready[task] + tasks.seconds[task]
        longest = max(longest, finish)
        for after in tasks.after[task]:
            ready[after] = max(ready[after], finish)
    return longest


def _occupied_seconds(
    tasks: TaskGraph, transfers: Sequence[Transfer], cluster: Cluster
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of ops per device, and seconds of transfers in and out of it."""
    busy = {device.name: 0.0 for device in cluster.devices}
    sending = dict(busy)
    ops = len(tasks.seconds) - len(transfers)
    for resource, seconds in zip(tasks.resource[:ops], tasks.seconds, strict=False):
        if isinstance(resource, tuple):
            sending[resource[0]] += seconds
        else:
            busy[str(resource)] += seconds
    for transfer, seconds in zip(transfers, tasks.seconds[ops:], strict=True):
        sending[transfer.source] += seconds
        sending[transfer.target] += seconds
    return busy, sending
