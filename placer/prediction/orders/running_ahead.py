"""The orders in which several devices begin their ops, each by itself.

Every device has an executor of its own, which goes on as soon as it can: what one has sent waits in
the other until that gets there (TensorFlow's rendezvous takes the memory where a tensor is received
when it is sent: ``SameWorkerRecvDone`` of ``core/common_runtime/rendezvous_mgr.cc``).  So how much
waits depends on how fast the devices are, one beside the other.

    GPU:0   |-a0-|-a1-|-a2-|               a1 and a2 wait on GPU:1 while b0 runs
    GPU:1        |---b0---|---b1---|---b2---|
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.op_graph import OpGraph
from placer.prediction.metrics import Transfer
from placer.prediction.orders.execution_orders import FEWEST_ORDERS, OPS_IN_ALL
from placer.prediction.step.executor import prepare, run_reversed
from placer.prediction.step.routes import Routes, is_cpu
from placer.prediction.times.schedule import TaskGraph, find_capacities, list_tasks, run_tasks
from placer.prediction.transfers import list_transfers

SLOWER = 2.0
"""How much slower than predicted one device may be beside the others."""


def orders_running_ahead(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    routes: Routes,
    cluster: Cluster,
    transfers: Sequence[Transfer] | None = None,
) -> list[tuple[str, ...]]:
    """The ops of ``graph`` in the orders in which the devices of ``cluster`` begin them; none where
    no device computes what another one reads.

    They are as fast as predicted, then one after the other half as fast.  First come the orders in
    which ops of accelerators are launched: their memory is taken then, which runs ahead of what
    they compute.  Large graphs are run in the first of these orders alone.  ``transfers`` are those
    along ``routes``, where they are known.
    """
    if len({*routes.device_of.values()}) == 1:
        return []
    if transfers is None:
        transfers = list(list_transfers(graph, costs, routes, cluster.host.name))
    ends = {end for t in transfers if t.kind == "data" for end in (t.source, t.target)}
    if not ends:
        return []
    tasks = list_tasks(graph, costs, routes, transfers, cluster)
    capacity, pools = find_capacities(cluster)
    names, most = tuple(graph.ops), max(OPS_IN_ALL // len(graph.ops), FEWEST_ORDERS)
    tried = [tasks, *(_with_slower(tasks, name) for name in sorted(ends))]
    if not all(map(is_cpu, ends)):
        launch = {d.name: d.launch_seconds for d in cluster.devices if not is_cpu(d.name)}
        tried.insert(0, _launched(tasks, len(names), launch))
    orders = []
    for drawn in tried[:most]:
        begins = run_tasks(drawn, capacity, pools).start
        order = sorted(range(len(names)), key=begins.__getitem__)  # if at once as in the graph
        orders.append(tuple([names[op] for op in order]))
    return orders


def order_of_late_readers(graph: OpGraph, routes: Routes) -> tuple[str, ...]:
    """The order in which only one of the ops that a received tensor makes ready goes on, the one
    that most comes after, and the others run when nothing else can; empty if there are none.

    Each of them is given to a thread of its own, and on a machine with few threads there may be
    none for it (``ExecutorState::ScheduleReady`` without ``inline_ready``)::

        GPU:0   received ──┬── gradient of the image ── ...     goes on
                           └── gradient of the filter           holds its inputs until the end
    """
    prepared = prepare(graph, accelerated=True)
    position = {name: index for index, name in enumerate(run_reversed(prepared))}
    height = dict.fromkeys(graph.ops, 0)
    ready: dict[tuple[str, str], list[str]] = {}
    for name in sorted(position, key=position.__getitem__, reverse=True):
        for producer in graph.ops[name].producers:
            height[producer] = max(height[producer], height[name] + 1)
        last = max(graph.ops[name].producers, key=position.__getitem__, default=name)
        source, target = routes.device_of[last], routes.device_of[name]
        if source != target and not (is_cpu(source) or is_cpu(target)):
            ready.setdefault((last, target), []).append(name)
    late = {
        name for readers in ready.values() for name in sorted(readers, key=height.__getitem__)[:-1]
    }
    if not late:
        return ()
    numbers = {number for number, name in enumerate(prepared.names) if name in late}
    return run_reversed(replace(prepared, arrivals=prepared.arrivals | numbers))


def _with_slower(tasks: TaskGraph, device: str) -> TaskGraph:
    """The tasks where ``device`` takes longer for its own."""
    seconds = [
        SLOWER * second if resource == device else second
        for second, resource in zip(tasks.seconds, tasks.resource, strict=True)
    ]
    return replace(tasks, seconds=seconds)


def _launched(tasks: TaskGraph, ops: int, launch_seconds: Mapping[str, float]) -> TaskGraph:
    """The tasks where each of the first ``ops`` is the launch of its kernel, on devices that have
    ``launch_seconds``: a task of its own computes, and those elsewhere alone wait for that."""
    found = TaskGraph(
        seconds=list(tasks.seconds),
        resource=list(tasks.resource),
        after=[list(after) for after in tasks.after],
        waiting=list(tasks.waiting),
    )
    for op, device in enumerate(tasks.resource[:ops]):
        launch = launch_seconds.get(str(device))
        if launch is None:
            continue
        computing = len(found.seconds)
        found.add(device, tasks.seconds[op])
        sent = [after for after in tasks.after[op] if after >= ops]
        found.after[op] = [after for after in tasks.after[op] if after < ops]
        found.after[computing] = sent
        found.join(op, computing)
        found.seconds[op] = min(launch, tasks.seconds[op])
        found.resource[op] = ("launch", device)
    return found
