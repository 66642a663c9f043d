"""Predictions for a placement of a workload."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.pipeline.workload import Workload
from placer.prediction.metrics import Metrics
from placer.prediction.predicted_step import PredictedStep, describe_step
from placer.prediction.prediction import predict, predict_step_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPlacement:
    """The device of every op, with the predicted ``metrics`` of a step once the graph is rewritten
    and has the ``control_edges``; ``step`` describes it op by op, for pictures."""

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
    """Predicts transfers, memory (``with_needs`` of allocators or without) and times of
    ``placement``.

    Where that does not say, clones are where their originals are, what is swapped is on the host,
    and a join that is released beside its first gradient.
    """
    known = _as_it_runs(workload, placement, edges, rewriting)
    metrics = predict(*known, with_needs=with_needs, with_parts=with_needs)
    return PredictedPlacement(
        placement=known[2],
        control_edges=tuple(edges),
        rewriting=rewriting,
        metrics=metrics,
        step=partial(describe_step, *known, metrics),
    )


def predict_seconds(
    workload: Workload,
    placement: Mapping[str, str],
    edges: Sequence[ControlEdge] = (),
    rewriting: Rewriting = NO_REWRITING,
) -> float:
    """The time of one step of :func:`predict_placement` alone, in seconds."""
    return predict_step_seconds(*_as_it_runs(workload, placement, edges, rewriting))


def _as_it_runs(
    workload: Workload,
    placement: Mapping[str, str],
    edges: Sequence[ControlEdge],
    rewriting: Rewriting,
) -> tuple[OpGraph, Mapping[str, OpCost], Mapping[str, str], Cluster]:
    """The graph that runs, the costs and the device of every op in it, and the devices."""
    placement = _complete(workload, placement, rewriting)
    workload = workload.rewritten(rewriting)
    graph = add_control_edges(workload.graph, edges)
    return graph, workload.costs, placement, workload.cluster


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
