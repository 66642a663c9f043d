"""The problem of a workload: where each op may run, and the numbers that a solver sees."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cost_models.device_names import matches
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost, with_kernels_of
from cost_models.op_info import ask_once
from cost_models.roofline import op_seconds
from placer.errors import UsageError
from placer.fitting.placed_order import FREE, edges_for_low_peaks
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import ENTERS, READ_VARIABLE
from placer.pipeline.moments import find_moments
from placer.pipeline.workload import Workload
from placer.prediction.costs.assumed_sizes import assume_sizes
from placer.prediction.memory.live_moments import WorkingSet, working_sets
from placer.prediction.orders.execution_orders import (
    highest_peak,
    uses_accelerator,
)
from placer.problem.constraints import ConstraintOptions, Constraints, find_constraints, open_cpus
from placer.problem.placement_costs import cost_link, message_bytes, slower_bytes, slower_seconds
from placer.problem.placement_problem import PlacementProblem, ProblemTensor
from placer.problem.requests import confine

_LOG = logging.getLogger(__name__)


_LOOKUPS = frozenset(
    {"Gather", "GatherNd", "GatherV2", "ResourceGather", "ResourceGatherNd"}
    | {"SparseSegmentMean", "SparseSegmentSqrtN", "SparseSegmentSum"}
)
_PASS_ON = ENTERS | {READ_VARIABLE, "Identity"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulation:
    """A workload as a problem; ``graph`` is its graph with the ``control_edges`` that a placement
    is searched with, ``assumed`` what is taken for the bytes of tensors without a known size."""

    workload: Workload
    control_edges: tuple[ControlEdge, ...]
    graph: OpGraph
    constraints: Constraints
    problem: PlacementProblem
    assumed: Mapping[str, int] = field(default_factory=dict)


def formulate(workload: Workload) -> Formulation:
    """Where each op of ``workload`` may run, and the problem of choosing."""
    wanted = workload.wanted
    edges = _low_memory_edges(workload)
    graph = add_control_edges(workload.graph, edges)
    constraints = constraints_of(workload.with_graph(graph))
    batch_size = workload.extraction.bindings.get("batch_size")
    assumed = assume_sizes(graph, workload.costs, batch_size)
    problem = build_problem(
        graph,
        workload.costs,
        workload.cluster,
        constraints,
        objective=wanted.objective,
        spill=wanted.offload,
        assumed=assumed,
    )
    if wanted.objective == "transfer":
        # edges that are there for memory are no messages: a placement gets its own
        problem = replace(problem, control_edges=_control_edges(workload.graph))
    return Formulation(
        workload=workload,
        control_edges=edges,
        graph=graph,
        constraints=constraints,
        problem=problem,
        assumed=assumed,
    )


def constraints_of(workload: Workload) -> Constraints:
    """Where each op may run, by kernels, colocation and what was asked for."""
    graph, wanted = workload.graph, workload.wanted
    asks = wanted.device_function
    if asks is not None:
        names = [device.name for device in workload.cluster.devices]
        ops = {name: _asking(op, asks(op) or "", names) for name, op in graph.ops.items()}
        graph = replace(graph, ops=ops)
    return find_constraints(
        graph,
        workload.cluster,
        ConstraintOptions(
            pins=wanted.pins,
            pin_types=wanted.pin_types,
            keep_together=wanted.keep_together,
            clear_devices=wanted.clear_devices and asks is None,
            colocate_gradients=wanted.colocate_gradients,
            keep_colocation=wanted.keep_colocation,
        ),
    )


def _asking(op: Op, device: str, names: Sequence[str]) -> Op:
    """``op`` with the ``device`` that a device function gives it; raises ``UsageError`` unless that
    is one of ``names`` or what the graph has there."""
    try:
        is_known = device in ("", op.device) or any(matches(device, name) for name in names)
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the device function returned {device!r} for op {op.name}: {error}"
        ) from error
    if not is_known:
        raise UsageError(
            f"the device function returned {device!r} for op {op.name}: it must return one of "
            f"{', '.join(names)}, or '' to leave the op free"
        )
    return replace(op, device=device)


def _low_memory_edges(workload: Workload) -> tuple[ControlEdge, ...]:
    """The control edges for the lowest peaks if every op were on the device it would rather be on;
    none if the order is free."""
    if workload.wanted.order == FREE:
        return ()
    _LOG.info("searching an order with low memory")
    placement = constraints_of(workload).first_choice
    return edges_for_low_peaks(workload.graph, workload.costs, placement, workload.cluster)


def build_problem(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    cluster: Cluster,
    constraints: Constraints,
    *,
    objective: str = "transfer",
    spill: str = "auto",
    assumed: Mapping[str, int] | None = None,
) -> PlacementProblem:
    """The problem with a few moments of the step at which memory is fullest.

    ``assumed`` are the bytes of tensors whose size is not known (none: they weigh nothing).
    Ops and devices are numbered in the order of ``graph.ops`` and ``cluster.devices``.  The
    function is long because every field of the problem is filled in here.
    """
    names = tuple(graph.ops)
    number = {name: index for index, name in enumerate(names)}
    device_names = [device.name for device in cluster.devices]
    costs = with_kernels_of(costs, gpu=uses_accelerator(device_names))
    host = device_names.index(cluster.host.name)
    capacity = tuple(device.usable_bytes for device in cluster.devices)
    device_number = {name: index for index, name in enumerate(device_names)}
    open_devices = [device_number[name] for name in open_cpus(cluster)]
    beside = [device for device in open_devices if device != host] if spill == "auto" else []
    group, allowed, spillable = _group_arrays(
        constraints, number, device_number, beside, is_host_open=host in open_devices
    )
    widths = working_sets(graph, costs)
    loops = any(op.op_type in ENTERS for op in graph.ops.values())
    nothing = WorkingSet(0, 0)
    certain = [nothing if loops else _certain_width(graph.ops[name], widths) for name in names]
    spill_host = host if spill == "auto" else None
    allowed, homeless = _wide_enough(allowed, group, certain, capacity, spill_host, spillable)
    confinement = confine(constraints, number, device_number)
    link = cost_link(cluster)
    slower = slower_seconds(costs, cluster, constraints)
    tensors, fetched = _tensors(graph, costs, number, assumed or {})

    def seconds(cost: OpCost) -> tuple[float, ...]:
        return tuple([op_seconds(cost, device) for device in cluster.devices])

    return PlacementProblem(
        op_names=names,
        device_names=tuple(device_names),
        host=host,
        resident_bytes=tuple(costs[name].persistent_bytes for name in names),
        temporary_bytes=tuple(costs[name].temporary_bytes for name in names),
        seconds=tuple(ask_once(seconds, [costs[name] for name in names])),
        group=group,
        allowed=allowed,
        spillable=spillable,
        tensors=tensors,
        control_edges=_control_edges(graph),
        capacity_bytes=capacity,
        transient_bytes=tuple(sum(graph.idle_bytes.get(name, ())) for name in device_names),
        live_bytes=(
            *homeless,
            *find_moments(
                graph,
                costs,
                cluster,
                {name: found.bytes for name, found in widths.items()},
                number,
            ),
        ),
        bandwidth=tuple(
            tuple(cluster.link(a, b).bandwidth for b in device_names) for a in device_names
        ),
        latency=tuple(
            tuple(cluster.link(a, b).latency for b in device_names) for a in device_names
        ),
        objective=objective,
        spill=spill,
        parallel_ops=tuple(device.parallel_ops for device in cluster.devices),
        requests=confinement.requests,
        unconfined={
            op: devices
            for op, devices in enumerate(_open(confinement.unconfined, constraints, number, beside))
            if devices != allowed[op]
        },
        colocation=confinement.colocation,
        working_set_bytes=tuple(width.bytes for width in certain),
        tables=tuple(number[name] for name in lookup_tables(graph)),
        slower_bytes=slower_bytes([slower[name] for name in names], link),
        message_bytes=message_bytes(link),
        fetched=fetched,
    )


def _control_edges(graph: OpGraph) -> tuple[tuple[int, int], ...]:
    """The control edges in op numbers."""
    number = {name: index for index, name in enumerate(graph.ops)}
    return tuple(
        (number[before], number[op.name])
        for op in graph.ops.values()
        for before in op.control_inputs
    )


def _certain_width(op: Op, widths: Mapping[str, WorkingSet]) -> WorkingSet:
    """Returns the working set that the device of ``op`` holds whatever the order: nothing for
    functional loops and branches, whose bodies are laid out op by op, as v1 loops are."""
    return WorkingSet(0, 0) if op.bodies else widths[op.name]


def _wide_enough(
    allowed: Sequence[tuple[int, ...]],
    group: Sequence[int],
    sets: Sequence[WorkingSet],
    capacity: Sequence[int],
    spill_host: int | None,
    spillable: Sequence[bool],
) -> tuple[tuple[tuple[int, ...], ...], list[dict[int, int]]]:
    """The allowed devices of each op without those that are too small for its group; and moments
    that make the problem infeasible where none is left.

    A device is too small if it cannot hold what the widest op of the group (in ``sets``) needs at
    once, wherever its inputs come from; for a group that may spill, if it is predicted to peak
    higher for that alone.  A group for which that leaves no device has none allowed if it may spill
    to ``spill_host`` and fits there.  Else it keeps its devices, and its widest op becomes a moment
    that none of them can hold: the conflict then names the group.
    """
    widths = [each.bytes for each in sets]
    widest: dict[int, int] = {}
    for op, number in enumerate(group):
        if widths[op] > widths[widest.setdefault(number, op)]:
            widest[number] = op
    found: list[tuple[int, ...]] = []
    homeless: dict[int, dict[int, int]] = {}
    for op, devices in enumerate(allowed):
        most = widest[group[op]]
        least = int(highest_peak([widths[most]], sets[most].lasting_bytes))
        may_spill = spillable[op] and spill_host is not None and capacity[spill_host] >= least
        fitting = tuple(d for d in devices if capacity[d] >= (least if may_spill else widths[most]))
        if not fitting and devices and not may_spill:
            fitting = devices
            homeless[most] = {most: widths[most]}
        found.append(fitting)
    return tuple(found), list(homeless.values())


def _group_arrays(
    constraints: Constraints,
    number: Mapping[str, int],
    device_number: Mapping[str, int],
    beside: Sequence[int],
    *,
    is_host_open: bool,
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[bool, ...]]:
    """Per op its group, where it may be (CPUs ``beside`` the host among that, if it is open to
    them), and whether it may be on the host."""
    group = [0] * len(number)
    allowed: list[tuple[int, ...]] = [()] * len(number)
    spillable = [False] * len(number)
    for index, members in enumerate(constraints.groups):
        devices = tuple(device_number[name] for name in constraints.group_devices[index])
        if beside and constraints.spillable[index]:
            devices = tuple(sorted({*devices, *beside}))
        for name in members.ops:
            op = number[name]
            group[op], allowed[op] = index, devices
            spillable[op] = constraints.spillable[index] and is_host_open
    return tuple(group), tuple(allowed), tuple(spillable)


def _open(
    unconfined: Sequence[tuple[int, ...]],
    constraints: Constraints,
    number: Mapping[str, int],
    beside: Sequence[int],
) -> Sequence[tuple[int, ...]]:
    """Where ops may run if nobody asked for anything, with the open CPUs ``beside`` the host."""
    if not beside:
        return unconfined
    found = list(unconfined)
    for members, on_cpus in zip(constraints.groups, constraints.on_cpus, strict=True):
        for name in members.ops if on_cpus else ():
            found[number[name]] = tuple(sorted({*found[number[name]], *beside}))
    return found


def _tensors(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    number: Mapping[str, int],
    assumed: Mapping[str, int],
) -> tuple[tuple[ProblemTensor, ...], tuple[int, ...]]:
    """Tensors that are read or fetched, and which are fetched; handles weigh nothing."""
    fetches = frozenset(graph.fetches)
    found = {
        name: ProblemTensor(
            producer=number[tensor.producer],
            consumers=tuple(number[name] for name in tensor.consumers),
            bytes=costs[tensor.producer].output_bytes[tensor.index] or assumed.get(name, 0),
        )
        for name, tensor in graph.tensors.items()
        if tensor.consumers or name in fetches
    }
    fetched = tuple(place for place, name in enumerate(found) if name in fetches)
    return tuple(found.values()), fetched


def lookup_tables(graph: OpGraph) -> list[str]:
    """The ops that hold a table (variables, and constants of two axes or more), in graph order."""
    handles = {variable.handle for variable in graph.variables}
    found = set()
    for op in graph.ops.values():
        source = op
        while (source is op and op.op_type in _LOOKUPS) or source.op_type in _PASS_ON:
            if not source.inputs:
                break
            source = graph.ops[source.producers[0]]
        if source is not op and op.op_type in _LOOKUPS:
            outputs = source.info.outputs
            is_matrix = bool(outputs) and len(outputs[0].shape or ()) > 1
            if source.name in handles or (source.op_type == "Const" and is_matrix):
                found.add(source.name)
    return [name for name in graph.ops if name in found]
