"""Memory of the graph that runs: what TensorFlow's optimiser makes of a placed program."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from cost_models.byte_sizes import format_bytes
from cost_models.clusters import HOST
from cost_models.device_names import canonical
from placer.errors import PlacerError
from placer.extraction import extract
from placer.graph.op_graph import OpGraph
from placer.pipeline.predicted_placement import predict_placement
from placer.pipeline.workload import Workload, cost_program
from placer.plan.plan import Plan
from placer.plan.rows import OptimisedFacts, PlanWarning

_LOG = logging.getLogger(__name__)

_MOST_OPS_UNASKED = 5_000
"""Most ops of a rewritten program that is optimised unasked: some ten seconds."""


def with_optimised(plan: Plan, workload: Workload) -> Plan:
    """``plan`` with what its graph becomes where TensorFlow's graph optimiser is on, and the peaks
    of that graph; with a warning where those break a cap, or where its memory optimiser would add
    swaps.

    Raises as :func:`placer.application.measuring.optimised_graphs.optimise`.
    """
    if not plan.placement:
        return plan
    facts = _optimised_facts(plan, workload)
    return replace(plan, optimised=facts, warnings=(*plan.warnings, *_warnings(plan, facts)))


def warn_if_optimised_breaks(plan: Plan, workload: Workload) -> Plan:
    """Adds only the warnings, and only to a plan whose rewritten step fits: the optimiser changes
    the order that keeps the caps.

    Nothing is said of what it cannot look at, and of more than 5,000 ops.
    """
    fits = (plan.rewriting.clones or plan.rewriting.swaps) and plan.fits
    if not fits or len(plan.placement) > _MOST_OPS_UNASKED:
        return plan
    try:
        facts = _optimised_facts(plan, workload)
    except PlacerError as error:
        _LOG.info("what TensorFlow's graph optimisation makes of it is not known: %s", error)
        return plan
    return replace(plan, warnings=(*plan.warnings, *_warnings(plan, facts)))


def _optimised_facts(plan: Plan, workload: Workload) -> OptimisedFacts:
    """Returns the facts of the optimised graph, with its peaks."""
    from placer.application.measuring.optimised_graphs import optimise

    _LOG.info("optimising the placed graph as TensorFlow will")
    wanted = workload.wanted
    found = optimise(
        workload.source,
        workload.extraction,
        workload.cluster,
        plan.placement,
        plan.control_edges,
        plan.rewriting,
        **wanted.access,
    )
    with tempfile.TemporaryDirectory(prefix="placer-optimised-") as folder:
        path = Path(folder) / "optimised.pb"
        path.write_bytes(found.graph)
        extraction = extract(str(path), outputs=found.outputs)
    unmeasured = replace(wanted, costs=None)  # measured times are of the ops of the file
    optimised = cost_program(str(path), extraction, workload.cluster, unmeasured)
    metrics = predict_placement(optimised, _placement(optimised.graph, plan.placement)).metrics
    peaks = {name: asdict(peak) for name, peak in metrics.peaks.items()}
    return replace(found.facts, peaks=peaks)


def _placement(graph: OpGraph, before: Mapping[str, str]) -> dict[str, str]:
    """Returns the devices that the optimised graph asks for; an op without one has that of its
    namesake in the placed graph."""
    return {
        name: canonical(op.device) if op.device else before.get(name, HOST)
        for name, op in graph.ops.items()
    }


def _warnings(plan: Plan, facts: OptimisedFacts) -> list[PlanWarning]:
    found = []
    caps = {device.name: device.usable_bytes for device in plan.devices}
    over = {name: peak["high_bytes"] for name, peak in facts.peaks.items()}
    over = {name: peak for name, peak in over.items() if peak > caps[name]}
    if over:
        sizes = ", ".join(
            f"{name} {format_bytes(peak)} of {format_bytes(caps[name])}"
            for name, peak in over.items()
        )
        message = (
            f"with TensorFlow's graph optimisation on, the step may take more than the caps: "
            f"{sizes}; switch it off (disable_meta_optimizer), or place under lower caps"
        )
        found.append(PlanWarning(code="optimised_over_cap", message=message, count=len(over)))
    if facts.swaps:
        message = (
            f"TensorFlow's memory optimiser, which is on by default, would copy {facts.swaps:,} "
            f"tensors to the host and back: placer.configure_runtime and session_config switch it "
            f"off (NO_MEM_OPT), and the figures are without it"
        )
        found.append(PlanWarning(code="default_swaps", message=message, count=facts.swaps))
    return found
