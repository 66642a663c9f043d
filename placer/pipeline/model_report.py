"""The report of a model: size, memory, work, and what stands in the way of placing it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cost_models.clusters import Devices
from cost_models.op_cost import OpCost
from cost_models.op_info import ask_once
from placer.errors import ShapeError
from placer.graph.buffer_sharing import shared_input
from placer.graph.op_graph import Op, OpGraph, Variable
from placer.graph.op_types import READ_VARIABLE
from placer.graph.passes.roles import find_roles
from placer.graph.tensor_names import split_tensor
from placer.graph.walks import grouped
from placer.pipeline.costing import has_red_zones
from placer.pipeline.formulation import constraints_of
from placer.pipeline.hotspots import (
    HOTSPOT_COUNT,
    find_hotspots,
    hotspot_of,
    telling_scopes,
    work_of,
)
from placer.pipeline.placement import place_workload, untried
from placer.pipeline.plan_warnings import count_left_over, summed_bytes
from placer.pipeline.predicted_placement import PredictedPlacement
from placer.pipeline.solved_plan import parts_of
from placer.pipeline.stored_bytes import loading_facts
from placer.pipeline.workload import Workload, require_known_shapes
from placer.plan.report import (
    ComputeFacts,
    IndivisibleGroup,
    InputFacts,
    MemoryFacts,
    ModelFacts,
    Report,
    UnknownShape,
)
from placer.plan.request import describe_request
from placer.prediction.memory.live_moments import widest_op
from placer.prediction.metrics import MemoryNeed, MemoryTimeline, Metrics
from placer.prediction.step.routes import is_cpu
from placer.problem.grouping import OWN_REASONS

if TYPE_CHECKING:
    from placer.extraction.extraction import Extraction
    from placer.extraction.graph_defs.program import ProgramInput

_DEEPEST_SCOPE = 6


def analyse(workload: Workload, together: PredictedPlacement) -> Report:
    """The report on a workload; ``together`` predicts everything on one device."""
    graph, costs, extraction = workload.graph, workload.costs, workload.extraction
    memory = _memory_facts(workload, together.metrics)
    red_zones = has_red_zones(extraction, workload.wanted)
    return Report(
        model=_model_facts(extraction, costs),
        memory=replace(memory, red_zones=red_zones if memory.needs else None),
        loading=loading_facts(extraction.stored, workload.cluster),
        compute=_compute_facts(workload, together.metrics),
        largest_group=_largest_group(workload),
        no_gpu_kernel=_no_gpu_kernel(graph),
        unmodelled=_count_types(op for op in graph.ops.values() if costs[op.name].unmodelled),
        unknown_shapes=tuple(_unknown_shapes(extraction)),
        unknown_share=extraction.unknown_share,
        warnings=tuple((code, message) for code, message, _ in extraction.warnings),
        step=together.step,
    )


def with_placement(found: Report, workload: Workload, devices: Devices) -> Report:
    """The report with the plan for ``devices``, or with why shapes prevent one."""
    try:
        require_known_shapes(workload.extraction)
    except ShapeError as error:
        return replace(
            found, warnings=(*found.warnings, ("not_placed", f"not placed: {error.message}"))
        )
    plan = untried(place_workload(workload, explains=True))
    return replace(found, plan=replace(plan, request=describe_request(devices, workload.wanted)))


def _model_facts(extraction: Extraction, costs: Mapping[str, OpCost]) -> ModelFacts:
    model, graph = extraction.model, extraction.graph
    counts = [_element_count(variable) for variable in _without_tables(graph)]
    return ModelFacts(
        format=model["format"],
        path=model["path"],
        signature=model["signature"],
        tags=tuple(model["tags"]),
        fingerprint=graph.fingerprint,
        op_count=len(graph.ops),
        file_op_count=extraction.ops_in_file,
        op_type_count=len({op.op_type for op in graph.ops.values()}),
        function_count=len(graph.functions),
        inputs=tuple(_input_facts(graph, item) for item in extraction.inputs),
        outputs=tuple(key for key, _ in extraction.outputs),
        batch_size=extraction.bindings["batch_size"],
        variable_count=len(counts),
        unsized_variable_count=counts.count(None),
        parameter_count=sum(count or 0 for count in counts),
        parameter_bytes=_parameter_bytes(extraction, costs),
        output_bytes=summed_bytes((tensor for _, tensor in extraction.outputs), graph),
        left_over=count_left_over(extraction),
    )


def _input_facts(graph: OpGraph, item: ProgramInput) -> InputFacts:
    name, index = split_tensor(item.tensor)
    op = graph.ops.get(name)
    return InputFacts(
        key=item.key,
        dtype=item.dtype,
        declared_shape=item.shape,
        bound_shape=op.info.outputs[index].shape if op else item.shape,
        part=item.part.role if item.part else "",
        of=item.part.of if item.part else "",
    )


def _without_tables(graph: OpGraph) -> list[Variable]:
    return [variable for variable in graph.variables if variable.dtype != "resource"]


def _element_count(variable: Variable) -> int | None:
    """Elements of a variable, ``None`` where a dimension is unknown."""
    if variable.shape is None or None in variable.shape:
        return None
    return math.prod(size for size in variable.shape if size is not None)


def _parameter_bytes(extraction: Extraction, costs: Mapping[str, OpCost]) -> dict[str, int]:
    """Resident bytes of the variables by dtype, largest first, without what follows them."""
    sums: Counter[str] = Counter()
    beside = extraction.stored.following_bytes
    for variable in _without_tables(extraction.graph):
        cost = costs[variable.handle]
        own = cost.persistent_bytes - cost.constant_bytes - beside.get(variable.handle, 0)
        sums[variable.dtype] += own
    return dict(sums.most_common())


def _memory_facts(workload: Workload, metrics: Metrics) -> MemoryFacts:
    extraction, costs = workload.extraction, dict(workload.costs)
    graph, held = extraction.graph, extraction.stored.held_bytes
    for op, size in held.items():
        if op in costs:
            found = costs[op]
            costs[op] = replace(found, persistent_bytes=found.persistent_bytes - size)
    handles = {variable.handle for variable in graph.variables}
    own = {name: cost.persistent_bytes - cost.constant_bytes for name, cost in costs.items()}
    weights = sum(own[handle] for handle in handles)
    roles = graph.ask_once(find_roles)
    optimizer_state, metrics_state = (
        sum(own[handle] for handle in found) for found in (roles.optimizer_state, roles.metrics)
    )
    widest, widest_bytes = widest_op(graph, costs)
    timeline = metrics.timelines[_one_device(workload, metrics)]
    peak = metrics.peaks[timeline.device]
    folded = sum(
        buffer.bytes
        for buffer in timeline.live_at_peak
        if buffer.kind == "constant"
        and not (buffer.until or (buffer.op in costs and costs[buffer.op].persistent_bytes > 0))
    )
    largest = sorted(timeline.live_at_peak, key=lambda buffer: (-buffer.bytes, buffer.op))
    return MemoryFacts(
        weight_bytes=weights - optimizer_state - metrics_state,
        optimizer_state_bytes=optimizer_state,
        metrics_bytes=metrics_state,
        table_bytes=sum(held.values()),
        constant_bytes=sum(cost.persistent_bytes for cost in costs.values()) - weights + folded,
        peak_bytes=timeline.peak_bytes,
        peak_op=timeline.peak_op,
        low_bytes=peak.low_bytes,
        high_bytes=peak.high_bytes,
        validated=is_cpu(timeline.device),
        bytes_at_peak=timeline.peak_by_kind(),
        scopes_at_peak=_telling_bytes(timeline),
        largest_at_peak=tuple(largest[:HOTSPOT_COUNT]),
        widest_op=widest,
        widest_op_bytes=widest_bytes,
        usable_bytes=workload.cluster.device(timeline.device).usable_bytes,
        **_need_facts(metrics.needs.get(timeline.device)),
    )


def _one_device(workload: Workload, metrics: Metrics) -> str:
    """The first accelerator, on which everything is that can be; the host if that is nothing."""
    names = [device.name for device in workload.cluster.devices if device.type != "CPU"]
    found = (name for name in names[:1] if metrics.timelines[name].peak_bytes)
    return next(found, workload.cluster.host.name)


def _need_facts(found: MemoryNeed | None) -> dict[str, Any]:
    """Returns the allocator's need, and the parts of it."""
    if found is None:
        return {}
    return {
        "allocator": found.allocator,
        "need_bytes": found.need.high_bytes,
        "need_expected_bytes": found.need.expected_bytes,
        "need_low_bytes": found.need.low_bytes,
        "need_parts": {
            "tensors": found.tensor_bytes,
            "workspace": found.workspace_bytes,
            "padding": found.padding_bytes,
            "fragmentation": found.fragmentation_bytes,
        },
        "needs": parts_of(found) or {},
        "need_peak_op": found.parts.peak_op if found.parts else "",
        "with_workspace_bytes": found.with_workspace_bytes,
    }


def _telling_bytes(timeline: MemoryTimeline) -> dict[str, int]:
    """Bytes at the peak by name scope, as deep as it takes for no scope to hold most of them."""
    found: dict[str, int] = {}
    for depth in range(1, _DEEPEST_SCOPE + 1):
        found = timeline.peak_by_scope(depth)
        if 2 * max(found.values(), default=0) <= timeline.peak_bytes:
            break
    return dict(list(found.items())[:HOTSPOT_COUNT])


def _compute_facts(workload: Workload, metrics: Metrics) -> ComputeFacts:
    graph, costs = workload.graph, workload.costs
    # the device that everything is reported on
    cluster = workload.cluster
    reference = next((d for d in cluster.devices if d.type != "CPU"), cluster.host)
    op_types = grouped((op.op_type, op.name) for op in graph.ops.values())
    start, finish = metrics.schedule.start_seconds, metrics.schedule.finish_seconds
    seconds = {op: finish[op] - start[op] for op in graph.ops}
    found = [costs[op] for op in graph.ops]
    work = dict(zip(graph.ops, ask_once(work_of, found), strict=True))
    whole = hotspot_of("", graph.ops, work, seconds)
    times = [*zip(found, seconds.values(), strict=True)]
    unmodelled = sum([second for cost, second in times if cost.unmodelled])
    inaccurate = sum([second for cost, second in times if cost.inaccurate])
    share = inaccurate / whole.seconds if whole.seconds else 0.0
    return ComputeFacts(
        flops=whole.flops,
        bytes_accessed=whole.bytes_accessed,
        step_seconds=metrics.schedule.step_seconds,
        busy_seconds=whole.seconds,
        reference=reference.model or reference.name,
        by_op_type=find_hotspots(op_types, work, seconds),
        by_scope=find_hotspots(telling_scopes(seconds), work, seconds),
        unmodelled_share=unmodelled / whole.seconds if whole.seconds else 0.0,
        inaccurate_share=share,
        relative_error=reference.relative_error + share if reference.relative_error else None,
    )


def _largest_group(workload: Workload) -> IndivisibleGroup | None:
    """The colocation group, with what a placement keeps beside it, or the single op with bodies,
    that needs the most memory."""
    graph, costs = workload.graph, workload.costs
    wanted = replace(
        workload.wanted, clear_devices=True, device_function=None, pins={}, pin_types={}
    )  # whatever devices ops ask for, those of a report are no others
    groups = [
        (group.ops, group.reasons)
        for group in constraints_of(replace(workload, wanted=wanted)).groups
        if not OWN_REASONS.issuperset(group.reasons)
    ]
    loops = [((op.name,), (op.op_type,)) for op in graph.ops.values() if op.bodies]
    found = [_indivisible(graph, ops, why, costs) for ops, why in (*groups, *loops)]
    return max(found, key=lambda group: (group.needed_bytes, group.op_count), default=None)


def _indivisible(
    graph: OpGraph, ops: Sequence[str], reasons: tuple[str, ...], costs: Mapping[str, OpCost]
) -> IndivisibleGroup:
    working = {op: _working_bytes(graph.ops[op], costs[op]) for op in ops}
    largest = max(ops, key=lambda op: working[op] + costs[op].persistent_bytes)
    resident = sum(costs[op].persistent_bytes for op in ops)
    return IndivisibleGroup(
        op_count=len(ops),
        resident_bytes=resident,
        needed_bytes=resident + max(working.values()),
        example=largest,
        reasons=reasons,
    )


def _working_bytes(op: Op, cost: OpCost) -> int:
    """Temporaries, and the outputs that have a buffer of their own: not those of variables and
    constants (they are resident), of reads of a variable, and of what hands its input on."""
    if cost.persistent_bytes or op.op_type == READ_VARIABLE:
        return cost.temporary_bytes
    return cost.temporary_bytes + sum(
        size or 0
        for index, size in enumerate(cost.output_bytes)
        if shared_input(op.info, index) is None
    )


def _no_gpu_kernel(graph: OpGraph) -> dict[str, int]:
    parts = (graph, *graph.functions.values())
    return _count_types(
        op for part in parts for op in part.ops.values() if part.gpu_kernels[op.name] is None
    )


def _count_types(ops: Iterable[Op]) -> dict[str, int]:
    """How many ops of each type, most frequent first, ties by name."""
    counts = Counter(op.op_type for op in ops)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _unknown_shapes(extraction: Extraction) -> Iterator[UnknownShape]:
    """The tensors of unknown size with their ops; those of bodies are named ``body/op:0``."""
    graph = extraction.graph
    if not extraction.unknown:
        return
    tensors = {name: (graph, tensor) for name, tensor in graph.tensors.items()}
    for key, body in graph.functions.items():
        for name, tensor in body.tensors.items():
            tensors[f"{key}/{name}"] = (body, tensor)
    origins = set(extraction.unknown_roots)
    for name in extraction.unknown:
        part, tensor = tensors[name]
        yield UnknownShape(
            tensor=name,
            op_type=part.ops[tensor.producer].op_type,
            shape=tensor.properties.shape,
            is_origin=part is graph and tensor.producer in origins,
        )
