"""What a placement of a workload costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.pipeline.workload import Workload
from placer.prediction.metrics import Metrics
from placer.prediction.predicted_step import PredictedStep, describe_step
from placer.prediction.prediction import predict


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPlacement:
    """The device of every op, and what a step of the graph with the ``control_edges`` takes then;
    ``step`` has it op by op, for pictures."""

    placement: Mapping[str, str]
    control_edges: tuple[ControlEdge, ...]
    metrics: Metrics
    step: Callable[[], PredictedStep]


def predict_placement(
    workload: Workload,
    placement: Mapping[str, str],
    edges: Sequence[ControlEdge] = (),
    *,
    with_needs: bool = True,
) -> PredictedPlacement:
    """Transfers, memory (``with_needs`` of allocators or without) and times of ``placement``."""
    graph = add_control_edges(workload.graph, edges)
    known = graph, workload.costs, placement, workload.cluster
    metrics = predict(*known, with_needs=with_needs)
    return PredictedPlacement(
        placement=placement,
        control_edges=tuple(edges),
        metrics=metrics,
        step=partial(describe_step, *known, metrics),
    )
