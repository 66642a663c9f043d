"""The warnings of a plan, wherever they come from.

TensorFlow 2's ``tf.gradients`` has nearly every backward op ask (``_class``) for the device of its
forward op, and every sum of gradients for that of one of them: along a residual stream, layer after
layer is asked to one device.  Nothing in the ops needs that, so a placement leaves colocation hints
out unless they are asked for, and a warning counts them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from cost_models.byte_sizes import format_bytes, format_count, format_seconds
from cost_models.devices import ASSUMED_NETWORK_LINK, Cluster
from cost_models.tensor_size import is_known, spell_shape, tensor_bytes
from placer.errors import some
from placer.extraction.extraction import Extraction
from placer.graph.op_graph import OpGraph
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import split_tensor
from placer.graph.walks import grouped
from placer.pipeline.costing import ASSUMED_TRIPS
from placer.pipeline.fitting import FittedPlacement, fit_warnings
from placer.pipeline.followed_hints import hints_apart
from placer.pipeline.formulation import Formulation
from placer.pipeline.predicted_placement import PredictedPlacement
from placer.pipeline.stored_bytes import loading_warnings
from placer.pipeline.untried_changes import serve_later_steps
from placer.pipeline.workload import shape_options
from placer.plan.loading_facts import LoadingFacts
from placer.plan.report import LeftOverSinks, left_over_verbs
from placer.plan.request import NEVER
from placer.plan.rows import PlanWarning
from placer.prediction.metrics import Metrics
from placer.prediction.scoring import cost, slower_bytes
from placer.problem.limits import overruns
from placer.problem.placement_costs import cost_link
from placer.solving.caps.predictions import PEAK_OVER_CAP
from placer.solving.conflicts.elements import may_fit
from placer.solving.solution import Solution, Status

_OPS_PER_WARNING = 20


def plan_warnings(
    formulation: Formulation,
    solution: Solution,
    predicted: PredictedPlacement | None,
    fitted: FittedPlacement | None,
    loading: LoadingFacts | None,
) -> Iterator[PlanWarning]:
    """Yields every warning of the plan for ``solution``, ``predicted`` being its placement."""
    extraction, cluster = formulation.workload.extraction, formulation.workload.cluster
    found = [*extraction.warnings, *formulation.constraints.warnings]
    found += left_over_warnings(extraction)
    found += _assumptions(cluster, predicted)
    if predicted is not None:
        found += hint_warnings(formulation.graph, predicted.placement)
        stored = extraction.stored
        found += loading_warnings(loading, stored, cluster, predicted.placement)
        found += _assumed_sizes(formulation)
        if solution.device_of is not None:
            found += _all_on_host(formulation, solution.device_of, solution.status)
    found += _unknown_shapes(extraction.unknown)
    if formulation.workload.wanted.fit:
        found += fit_warnings(formulation.workload, fitted)
    found += _caps_over_cards(cluster)
    found += search_warnings(solution)
    if predicted:
        found += over_cap_warnings(cluster, predicted.metrics)
    for code, message, ops in found:
        first = tuple(ops[:_OPS_PER_WARNING])
        yield PlanWarning(code=code, message=message, count=max(1, len(ops)), ops=first)


def _unknown_shapes(tensors: Sequence[str]) -> Iterator[Warning_]:
    """Yields the warning of tensors without a known shape, if there are any."""
    if tensors:
        count = format_count(len(tensors), "tensor")
        message = f"the bytes of {count} of unknown shape are not counted: {some(tensors)}"
        yield "unknown_shape", message, tuple(tensors)


def search_warnings(solution: Solution) -> Iterator[Warning_]:
    """Yields what befell the searches; next to a proof more time for one of them finds nothing.
    What is over a limit the prediction of the plan says."""
    told = (PEAK_OVER_CAP, *(["solver_stopped"] if solution.status is Status.OPTIMAL else []))
    for code, message in solution.warnings:
        if code not in told:
            yield code, message, ()


def hint_warnings(graph: OpGraph, placement: Mapping[str, str]) -> Iterator[Warning_]:
    """A warning if ``placement`` does not follow all hints: how many there are, and what those tie
    that are left out."""
    apart = hints_apart(graph, placement)
    if not apart:
        return
    tied = dict.fromkeys(chain.from_iterable(apart))
    devices = {placement[name] for name in tied}
    count = f"{len(apart):,} of {len(graph.colocation_hints):,}"
    message = (
        f"{count} colocation hints (_class) are not followed: their {len(tied):,} ops are on "
        f"{len(devices)} devices. Use --keep-colocation to follow them (not tried)"
    )
    yield "colocation_hints", message, tuple(tied)


def _caps_over_cards(cluster: Cluster) -> Iterator[Warning_]:
    """Caps that no card of the named model keeps."""
    for device in cluster.devices:
        card = device.card
        if card is not None and device.usable_bytes > card.usable_bytes:
            message = (
                f"{device.name} has a limit of {format_bytes(device.usable_bytes)}, but TensorFlow "
                f"can use only about {format_bytes(card.usable_bytes)} of a {device.model}"
            )
            yield "cap_over_card", message, ()


def over_cap_warnings(cluster: Cluster, metrics: Metrics) -> Iterator[Warning_]:
    """One warning of all devices whose tensors are over their limits, and one of those that require
    more than they may hand out although their tensors fit."""
    over = metrics.over_caps(cluster.caps)
    full = {
        name: s for name, s in over.items() if metrics.peaks[name].high_bytes > cluster.caps[name]
    }
    if full:
        yield PEAK_OVER_CAP, "; ".join(overruns(cluster.devices, full)), ()
    tight = {name: more for name, more in over.items() if name not in full}
    if not tight:
        return
    needs = [metrics.needs[name] for name in tight]
    causes = dict.fromkeys(
        f"padding and fragmentation (allocator: {found.allocator})"
        if found.allocator
        else "ops that run at once"
        for found in needs
    )
    whose = "its" if len(tight) == 1 else "the"
    message = (
        f"{'; '.join(overruns(cluster.devices, tight))}, although {whose} tensors fit: the rest is "
        f"{' and '.join(causes)}, and it may run out of memory"
    )
    if serve_later_steps(needs, [*map(cluster.caps.__getitem__, tight)]):
        message += (
            ". With TF_DISABLE_RZ_CHECK=1 (--red-zones off) the first step requires no more than "
            "later ones, which fit"
        )
    yield "need_over_cap", message, ()


def assumed_messages(formulation: Formulation) -> list[str]:
    """The tensors that may be sent and have no known size, those taken for the largest first."""
    problem, assumed = formulation.problem, formulation.assumed
    number = {name: op for op, name in enumerate(problem.op_names)}

    def may_be_sent(name: str) -> bool:
        tensor = formulation.graph.tensors[name]
        ops = [number[op] for op in (tensor.producer, *tensor.consumers)]
        devices = range(len(problem.device_names))
        return sum(any(problem.may_use(op, device) for op in ops) for device in devices) > 1

    return sorted(filter(may_be_sent, assumed), key=lambda name: -assumed[name])


def assumed_trips(formulation: Formulation) -> list[str]:
    """The ops in loops of an assumed trip count whose costs differ between their devices."""
    problem = formulation.problem
    warnings = formulation.workload.extraction.warnings
    names = {op for code, _, ops in warnings if code == ASSUMED_TRIPS for op in ops}
    costs = problem.slower_bytes if problem.objective == "transfer" else problem.seconds
    return [
        problem.op_names[op]
        for op, cost in enumerate(costs)
        if problem.op_names[op] in names
        and len({size for device, size in enumerate(cost) if problem.may_use(op, device)}) > 1
    ]


def _assumed_sizes(formulation: Formulation) -> Iterator[Warning_]:
    """Says which sizes were assumed of what may be sent."""
    names = assumed_messages(formulation)
    if names:
        size = format_bytes(formulation.assumed[names[0]])
        count = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
        message = f"{count} of unknown size that may be sent: assumed to be at most {size} each"
        options = shape_options(formulation.workload.extraction)
        options = options or _shape_option(formulation.graph, names)
        yield (
            "assumed_sizes",
            f"{message}. To set them, add {options}" if options else message,
            tuple(names),
        )


def _shape_option(graph: OpGraph, names: Iterable[str]) -> str:
    """The option for the first of ``names`` of unknown shape, not only of unknown bytes."""
    for name, index in map(split_tensor, names):
        shape = graph.ops[name].info.outputs[index].shape
        if not is_known(shape):
            return f"--shape {name}={spell_shape(shape)}"
    return ""


def _all_on_host(
    formulation: Formulation, device_of: Sequence[int], status: Status
) -> Iterator[Warning_]:
    """Says so if no accelerator is used though ops may be there, and of the objective transfer, if
    one would be faster, with both parts of what it costs."""
    problem, cluster = formulation.problem, formulation.workload.cluster
    gpus = {n for n, d in enumerate(cluster.devices) if d.type != "CPU"}
    usable = {device for allowed in problem.allowed for device in allowed if device in gpus}
    if problem.spill == NEVER or not usable or gpus.intersection(device_of):
        return
    names = ", ".join(problem.device_names[device] for device in sorted(set(device_of)))
    found = "fits" if status is Status.OPTIMAL else "that fits was found"
    if problem.objective != "transfer":
        yield "all_on_host", f"everything is on {names}: no faster placement {found}", ()
        return
    speed = cost_link(cluster).bandwidth
    slower = slower_bytes(problem, device_of)
    if not slower:
        return
    first = [
        next((device for device in allowed if device in gpus), problem.host)
        for allowed in problem.allowed
    ]
    away = cost(problem, first) - slower_bytes(problem, first)
    away -= cost(problem, device_of) - slower  # what is fed to a CPU of another task is copied too
    message = (
        f"everything is on {names}: {problem.device_names[min(usable)]} would compute "
        f"{format_seconds(slower / speed)} faster (kernel launches aside), "
    )
    is_kept = any(
        size and device == problem.host
        for size, device in zip(problem.resident_bytes, first, strict=True)
    )
    if away > slower and not is_kept:  # no placement would copy a table
        message += f"but copying its inputs would take {format_seconds(away / speed)}"
        if may_fit(replace(problem, spill="never")):
            message += ". To use it all the same: --offload never"
    else:
        none = "no placement" if status is Status.OPTIMAL else "no placement was found that"
        message += f"but {none} costs less with an accelerator"
    yield "all_on_host", message, ()


def _assumptions(cluster: Cluster, predicted: PredictedPlacement | None) -> Iterator[Warning_]:
    """Yields warnings of assumptions about the devices."""
    ample = [device.name for device in cluster.devices if device.is_ample]
    if ample:
        required = predicted.metrics.taken_bytes(cluster.caps) if predicted else {}
        sizes = [f"{format_bytes(required[name])} on {name}" for name in ample if name in required]
        found = f" (required: {', '.join(sizes)})" if sizes else ""
        message = (
            f"Host memory is not checked{found}. To set a limit, add CPU:64GiB to --devices "
            "or to the cluster file."
        )
        yield "assumed_host", message, ()
    if pairs := cluster.assumed_links:
        link = ASSUMED_NETWORK_LINK
        message = (
            f"the network between the machines is assumed to have {link.bandwidth / 1e9:g} GB/s "
            f"and {format_seconds(link.latency)}, as between {pairs[0][0]} and {pairs[0][1]}. To "
            "set it, add [network_link] to the cluster file"
        )
        yield "assumed_network", message, ()


_EXAMPLES = 3


def summed_bytes(tensors: Iterable[str], graph: OpGraph) -> int | None:
    """The bytes of ``tensors`` together; ``None`` if one has no size, or none that is known."""
    total = 0
    for tensor in tensors:
        name, index = split_tensor(tensor)
        op = graph.ops.get(name)  # none of that name where the batch is divided
        size = tensor_bytes(op.info.outputs[index]) if op else None
        if size is None:
            return None
        total += size
    return total


def count_left_over(extraction: Extraction) -> tuple[LeftOverSinks, ...]:
    """The left-over sinks of a program by reason."""
    by_reason = grouped((reason, tensor) for tensor, reason in extraction.left_over.items())
    return tuple(
        LeftOverSinks(
            reason=reason,
            count=len(tensors),
            bytes=summed_bytes(tensors, extraction.graph),
            examples=tuple(tensors[:_EXAMPLES]),
        )
        for reason, tensors in by_reason.items()
    )


def left_over_warnings(extraction: Extraction) -> Iterator[Warning_]:
    """Yields the warning of sinks that are not fetched: how many, and what fetching would cost."""
    rows = count_left_over(extraction)
    if not rows:
        return
    size = summed_bytes(extraction.left_over, extraction.graph)
    cost = "an unknown number of bytes" if size is None else format_bytes(size)
    kinds = ", ".join(row.words() for row in rows)
    verbs = left_over_verbs(sum(row.count for row in rows))
    taken = ", ".join(key for key, _ in extraction.outputs[:_EXAMPLES]) or "none"
    more = len(extraction.outputs) - _EXAMPLES
    named = f"{taken} and {more} more" if more > 0 else taken
    verb = "is" if len(extraction.outputs) == 1 else "are"
    message = (
        f"the graph doesn't name its outputs, so {named} {verb} fetched. "
        f"{kinds[:1].upper()}{kinds[1:]} ({cost}) {verbs}; list all outputs to fetch with --outputs"
    )
    yield "sinks_not_fetched", message, tuple(extraction.left_over)
