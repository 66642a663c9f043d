"""The costs of a program's ops: by the cost rules, or measured."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cost_models.devices import Cluster
from cost_models.gpu_convolutions import UNKNOWN_CAPABILITY, costs_on_gpus
from cost_models.op_cost import OpCost, with_measured
from placer.errors import UsageError, some
from placer.extraction import Extraction
from placer.graph.buffer_sharing import find_variables
from placer.graph.op_graph import OpGraph
from placer.graph.op_types import ENTERS
from placer.graph.passes.constant_folding import MOST_FOLDED_BYTES
from placer.graph.passes.roles import find_roles
from placer.plan.measured_costs import MeasuredCosts
from placer.plan.request import Options
from placer.prediction.costs.op_costs import estimate_costs

_BUILT = ("function", "keras")
ASSUMED_TRIPS = "assumed_trip_count"
"""The code of the warning that has the ops of loops whose trip count is not known."""

_ASSUMED_TRIPS = (
    "the iteration count of some loops is unknown: assumed to be 1, or the loop's maximum if it "
    "has one. To set it, add --trip-count N"
)


def cost_ops(
    extraction: Extraction, cluster: Cluster, wanted: Options
) -> tuple[dict[str, OpCost], Extraction]:
    """Returns the cost of every op, and the extraction with warnings about costs.

    Bytes are always those of the cost rules; so are the seconds of ops that were not measured.
    Raises :class:`UsageError` for costs of another graph, or that name no op of this one.
    """
    graph, costs = extraction.graph, wanted.costs
    calibrated = any(device.efficiency for device in cluster.devices)
    found = estimate_costs(graph, wanted.trip_count, in_place=calibrated)
    if wanted.trip_count is not None and found == estimate_costs(graph, in_place=calibrated):
        message = (
            f"trip count {wanted.trip_count} changes nothing: the graph has no loop whose "
            "iteration count is unknown"
        )
        unused = "unused_trip_count", message, ()
        extraction = replace(extraction, warnings=(*extraction.warnings, unused))
    has_loops = any(op.bodies or op.op_type in ENTERS for op in graph.ops.values())
    if wanted.trip_count is None and has_loops and any(c.inaccurate for c in found.values()):
        given = estimate_costs(graph, 2, in_place=calibrated)
        if ops := tuple([name for name, cost in found.items() if cost != given[name]]):
            assumed = ASSUMED_TRIPS, _ASSUMED_TRIPS, ops
            extraction = replace(extraction, warnings=(*extraction.warnings, assumed))
    found = _in_environment(found, extraction, cluster, wanted)
    if costs is None:
        return found, extraction
    by_type = _measured_seconds(extraction, costs)
    for device_type, seconds in by_type.items():
        found = with_measured(found, seconds, device_type)
    if not any(found[name].measured_seconds for name in graph.ops):
        raise UsageError(f"the costs name no op of this model; its ops are {some(graph.ops)}")
    warnings = (*extraction.warnings, *_warnings(found, by_type, cluster))
    return found, replace(extraction, warnings=warnings)


def _in_environment(
    costs: dict[str, OpCost], extraction: Extraction, cluster: Cluster, wanted: Options
) -> dict[str, OpCost]:
    """The costs on these GPUs, from the first step on, where the program is built or loaded."""
    gpus = [device for device in cluster.devices if device.type == "GPU"]
    if not gpus:
        return costs
    capability = min((gpu.compute_capability or UNKNOWN_CAPABILITY for gpu in gpus), key=float)
    infos = {op.name: op.info for op in extraction.graph.ops.values()}
    red_zones = has_red_zones(extraction, wanted)
    found = costs_on_gpus(costs, infos, capability, red_zones=red_zones)
    if extraction.model["format"] in ("graph", "graph_def", "meta_graph"):
        return with_kept_constants(found, extraction.graph)
    return with_initial_bytes(found, extraction)


def has_red_zones(extraction: Extraction, wanted: Options) -> bool:
    """Whether autotuning looks for kernels that write out of bounds: as was asked for, or else as
    TensorFlow comes for a file; off for a live program, for which ``TF_DISABLE_RZ_CHECK`` is set
    where it is bound."""
    return not is_built(extraction) if wanted.red_zones is None else wanted.red_zones


def is_built(extraction: Extraction) -> bool:
    """Whether the program is a live one, whose variables are made where the plan has them."""
    return not extraction.model.get("path") and extraction.model["format"] in _BUILT


def with_initial_bytes(costs: dict[str, OpCost], extraction: Extraction) -> dict[str, OpCost]:
    """The costs of the variables of a program that is built: random first values are made of two
    tensors more of the same size (``random * range + least``)."""
    if not is_built(extraction):
        return costs
    roles = extraction.graph.ask_once(find_roles)
    made = roles.variables - roles.optimizer_state - roles.metrics
    return costs | {
        name: replace(costs[name], initial_bytes=costs[name].persistent_bytes)
        for name in made
        if costs[name].persistent_bytes
    }


def with_kept_constants(costs: dict[str, OpCost], graph: OpGraph) -> dict[str, OpCost]:
    """The costs of the variables of a program that a session builds: the first value of a slot is a
    constant that the session keeps, and that the first update copies; the slots of one variable
    share it (``PrepareToUpdateVariable`` of ``core/kernels/training_op_helpers.h``)."""
    variable_of = graph.ask_once(find_variables)
    found = dict(costs)
    for op in graph.ops.values():
        if not op.op_type.startswith(("ResourceApply", "ResourceSparseApply")):
            continue
        variables = [variable_of[tensor] for tensor in op.inputs if tensor in variable_of]
        for slot in variables[1:2]:
            size = costs[slot].persistent_bytes
            if size <= MOST_FOLDED_BYTES:
                found[slot] = replace(costs[slot], persistent_bytes=2 * size, constant_bytes=size)
    return found


def _warnings(
    costs: Mapping[str, OpCost], by_type: Collection[str], cluster: Cluster
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Warnings of ops that keep the cost model's times beside measured ones (by device type)."""
    others = sorted({device.type for device in cluster.devices} - set(by_type))
    if others and "" not in by_type:
        message = (
            f"the times were measured on a {' and a '.join(by_type)}; for every {others[0]} those "
            "of the cost model are used"
        )
        yield "measured_elsewhere", message, ()
    rest = tuple(
        name
        for name, cost in costs.items()
        if not cost.measured_seconds and (cost.flops or cost.bytes_accessed)
    )
    if rest:
        message = (
            f"{len(rest):,} of {len(costs):,} ops have no measured time: the cost model's is used"
        )
        yield "unmeasured", message, rest


def _measured_seconds(
    extraction: Extraction, costs: MeasuredCosts | Mapping[str, float] | str | os.PathLike[str]
) -> Mapping[str, Mapping[str, float]]:
    """Seconds of one execution by device type (``""``: any) and op name."""
    if isinstance(costs, Mapping):
        return {"": costs}
    name = "the costs file" if isinstance(costs, MeasuredCosts) else f"the costs file {costs}"
    measured = costs if isinstance(costs, MeasuredCosts) else MeasuredCosts.load(costs)
    measured.check_graph(extraction.graph.fingerprint, name)
    _check_bindings(measured, extraction, name)
    return measured.seconds_by_type


def _check_bindings(measured: MeasuredCosts, extraction: Extraction, source: str) -> None:
    """Raises ``UsageError`` if unknown dimensions were bound to other sizes."""
    for key in ("batch_size", "shapes", "ragged")[extraction.has_fixed_batch :]:
        then, now = measured.bindings.get(key), extraction.bindings.get(key)
        if measured.bindings and _plain(then) != _plain(now):
            raise UsageError(
                f"{source} was measured {_with(key, then)}, and not {_with(key, now)}: give the "
                "same here, or measure again with placer profile"
            )


def _with(key: str, value: Any) -> str:
    return f"without {key}" if value is None else f"with {key} {value}"


def _plain(value: Any) -> Any:
    """Mappings and sequences as JSON gives them back."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()} or None
    return list(value) if isinstance(value, tuple | list) else value
