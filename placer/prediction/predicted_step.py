"""One step of a placed graph, op by op: what pictures and exports are drawn from.

Everything here is prediction, put side by side: no figure is computed that
:mod:`placer.prediction` does not give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.name_scopes import ScopeTree, build_scope_tree
from placer.graph.op_graph import OpGraph
from placer.graph.passes.roles import find_roles
from placer.graph.tensor_names import source_of, split_tensor
from placer.prediction.memory.lifetimes import find_lifetimes
from placer.prediction.memory.timelines import StepMemory
from placer.prediction.metrics import Metrics, Transfer
from placer.prediction.orders.execution_orders import uses_accelerator
from placer.prediction.orders.possible_steps import PossibleSteps, as_it_runs
from placer.prediction.step.routes import Place, Routes, find_routes, is_cpu

KINDS = (
    "weights",
    "optimizer_state",
    "metrics",
    "constant",
    "activation",
    "gradient",
    "temporary",
    "transfer",
    "feed",
)
"""The kinds of buffers, resident ones first; see :class:`~placer.prediction.metrics.LiveBuffer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An op reads output ``index`` of op number ``producer``; -1 is a control edge."""

    producer: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBuffer:
    """``bytes`` of op number ``op`` on device number ``device``, from when op number ``first`` of
    the execution order runs to when ``last`` does; ``kind`` is one of :data:`KINDS`."""

    op: int
    device: int
    bytes: int
    kind: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A transfer of what op number ``op`` wrote, when it takes place, and the ops that read it."""

    transfer: Transfer
    op: int
    start_seconds: float
    finish_seconds: float
    readers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """Columns by op in graph order, ops and devices being numbers.

    ``output_bytes`` are the sized outputs; ``order`` is the execution order that ``buffers`` live
    along (one that peaks as expected), with the bytes in use on every device in ``memory_bytes``.
    ``unused_bytes`` are loaded on every device, and no op has them.  ``groups`` are numbers of
    colocation groups; an op that nothing holds to another has ``None``.
    """

    ops: tuple[str, ...]
    op_types: tuple[str, ...]
    devices: tuple[str, ...]
    device_of: tuple[int, ...]
    edges: tuple[tuple[Edge, ...], ...]
    flops: tuple[int, ...]
    bytes_accessed: tuple[int, ...]
    output_bytes: tuple[tuple[int | None, ...], ...]
    persistent_bytes: tuple[int, ...]
    temporary_bytes: tuple[int, ...]
    start_seconds: tuple[float, ...]
    finish_seconds: tuple[float, ...]
    order: tuple[int, ...]
    buffers: tuple[StepBuffer, ...]
    memory_bytes: Mapping[str, tuple[int, ...]]
    sent: tuple[Sent, ...]
    step_seconds: float
    scopes: ScopeTree
    groups: tuple[int | None, ...] = ()
    unused_bytes: tuple[int, ...]


def describe_step(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    metrics: Metrics,
) -> PredictedStep:
    """The step of ``graph`` under ``placement``; ``metrics`` are what was predicted of it."""
    names = tuple(device.name for device in cluster.devices)
    number = {name: index for index, name in enumerate(graph.ops)}
    any_timeline = next(iter(metrics.timelines.values()))
    steps = PossibleSteps(graph, costs, accelerated=uses_accelerator(names))
    kept = step = steps.memory(placement, names, cluster.host.name)
    if steps.owner:  # a picture has no iterations of a loop
        as_run = as_it_runs(graph, accelerated=steps.accelerated)
        step = StepMemory(as_run, costs, placement, names, cluster.host.name)
    found = tuple(costs[name] for name in graph.ops)
    devices = tuple(dict.fromkeys((*names, *step.device_names)))
    device_number = {name: index for index, name in enumerate(devices)}
    routes = find_routes(graph, placement, cluster.host.name)
    return PredictedStep(
        ops=tuple(graph.ops),
        op_types=tuple(op.op_type for op in graph.ops.values()),
        devices=devices,
        device_of=tuple(device_number[routes.device_of[name]] for name in graph.ops),
        edges=tuple(_edges(graph, number)),
        flops=tuple(cost.flops for cost in found),
        bytes_accessed=tuple(cost.bytes_accessed for cost in found),
        output_bytes=tuple(cost.output_bytes for cost in found),
        persistent_bytes=tuple(cost.persistent_bytes for cost in found),
        temporary_bytes=tuple(step.layout.temporary_bytes),
        start_seconds=tuple(metrics.schedule.start_seconds[name] for name in graph.ops),
        finish_seconds=tuple(metrics.schedule.finish_seconds[name] for name in graph.ops),
        order=tuple(number[name] for name in any_timeline.order),
        buffers=tuple(_buffers(step, kept, any_timeline.order, number, device_number)),
        memory_bytes={name: line.bytes for name, line in metrics.timelines.items()},
        sent=tuple(_sent(graph, metrics, number, routes)),
        step_seconds=metrics.schedule.step_seconds,
        scopes=build_scope_tree(graph.ops),
        groups=_groups(graph),
        unused_bytes=tuple(sum(kept.idle.get(name, ())) for name in devices),
    )


def _groups(graph: OpGraph) -> tuple[int | None, ...]:
    number = {
        name: index for index, group in enumerate(graph.colocation_groups) for name in group.ops
    }
    return tuple(number.get(name) for name in graph.ops)


def _edges(graph: OpGraph, number: Mapping[str, int]) -> list[tuple[Edge, ...]]:
    """Returns the edges by which every op reads and waits."""
    return [
        tuple(
            Edge(producer=number[name], index=index)
            for name, index in (
                *map(split_tensor, op.inputs),
                *((name, -1) for name in op.control_inputs),
            )
        )
        for op in graph.ops.values()
    ]


def _buffers(
    step: StepMemory,
    kept: StepMemory,
    order: Sequence[str],
    number: Mapping[str, int],
    device_number: Mapping[str, int],
) -> list[StepBuffer]:
    """The resident buffers, which ``kept`` has, and those of the ``step`` along ``order``, in which
    a loop is at every op of its iterations: it runs from the first to the last."""
    roles = step.graph.ask_once(find_roles)
    ends = {name: index for index, name in enumerate(order)}
    begins = {name: index for index, name in reversed([*enumerate(order)])}
    once = [*dict.fromkeys(order)]
    resident = [
        StepBuffer(
            op=number[op],
            device=device_number[device],
            bytes=size,
            kind=kind,
            first=0,
            last=max(len(order) - 1, 0),
        )
        for device in kept.resident
        for (op, kind), size in kept.kept(device).items()
    ]
    living = [
        StepBuffer(
            op=number[lifetime.owner],
            device=device_number[lifetime.device],
            bytes=lifetime.bytes,
            kind=roles.of_buffer(lifetime.owner, lifetime.kind),
            first=begins[once[lifetime.first]],
            last=ends[once[lifetime.last]],
        )
        for lifetime in find_lifetimes(step.layout, step.numbers(once))
    ]
    return resident + living


def _sent(
    graph: OpGraph, metrics: Metrics, number: Mapping[str, int], routes: Routes
) -> list[Sent]:
    """Every transfer with its time and its readers in the memory it goes to."""
    waiting: dict[tuple[str, Place], dict[str, None]] = {}
    for op in graph.ops.values():
        device = routes.device_of[op.name]
        place = (device, "host" if is_cpu(device) else "device")
        signals = [(f"^{name}", place) for name in op.control_inputs]
        for end in (*zip(op.inputs, routes.reads[op.name], strict=True), *signals):
            waiting.setdefault(end, {})[op.name] = None
    found = []
    for transfer in metrics.transfers:
        readers = waiting.get((transfer.tensor, (transfer.target, transfer.memory)), ())
        start, finish = metrics.schedule.transfer_seconds[
            transfer.tensor, transfer.target, transfer.memory
        ]
        found.append(
            Sent(
                transfer=transfer,
                op=number[source_of(transfer.tensor)],
                start_seconds=start,
                finish_seconds=finish,
                readers=tuple(number[name] for name in readers),
            )
        )
    return found
