"""What a placement of a workload costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.pipeline.workload import Workload
from placer.prediction.metrics import Metrics
from placer.prediction.predicted_step import PredictedStep, describe_step
from placer.prediction.prediction import predict


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPlacement:
    """The device of every op, and what a step of the graph takes then that is rewritten and has the
    ``control_edges``; ``step`` has it op by op, for pictures."""

    placement: Mapping[str, str]
    control_edges: tuple[ControlEdge, ...]
    metrics: Metrics
    step: Callable[[], PredictedStep]
    rewriting: Rewriting = NO_REWRITING


def predict_placement(
    workload: Workload,
    placement: Mapping[str, str],
    edges: Sequence[ControlEdge] = (),
    rewriting: Rewriting = NO_REWRITING,
    *,
    with_needs: bool = True,
) -> PredictedPlacement:
    """Transfers, memory (``with_needs`` of allocators or without) and times of ``placement``.

    Where that does not say, clones are where their originals are, what is swapped is on the host,
    and a join that is released beside its first gradient.
    """
    placement = _complete(workload, placement, rewriting)
    workload = workload.rewritten(rewriting)
    graph = add_control_edges(workload.graph, edges)
    known = graph, workload.costs, placement, workload.cluster
    metrics = predict(*known, with_needs=with_needs)
    return PredictedPlacement(
        placement=placement,
        control_edges=tuple(edges),
        rewriting=rewriting,
        metrics=metrics,
        step=partial(describe_step, *known, metrics),
    )


def _complete(
    workload: Workload, placement: Mapping[str, str], rewriting: Rewriting
) -> Mapping[str, str]:
    """``placement`` with the ops that are added, and those that are there and do not run."""
    if not rewriting:
        return placement
    found = rewriting.extend_placement(placement, workload.cluster.host.name)
    for join in rewriting.released:
        if join in workload.graph.ops:
            found.setdefault(join, found[workload.graph.ops[join].producers[0]])
    return found
