"""The ordinary way to a placement: search one that keeps the limits, and predict it."""

import logging

from placer.fitting.placed_order import edges_of_placement
from placer.pipeline.followed_hints import follow_hints
from placer.pipeline.formulation import Formulation
from placer.pipeline.predicted_placement import PredictedPlacement, predict_placement
from placer.prediction.orders.step_peaks import StepPeaks
from placer.solving.solution import Solution, SolverParameters

_LOG = logging.getLogger(__name__)


def find_placement(formulation: Formulation) -> Solution:
    """The best placement found in time whose predicted peaks keep to the caps."""
    # numpy: a bare report needs none
    from placer.solving.caps.stages import solve_under_peaks

    wanted, costs = formulation.workload.wanted, formulation.workload.costs
    searching = f"searching a placement of {len(formulation.graph.ops):,} ops"
    _LOG.info(searching, extra={"limit_seconds": wanted.time_limit})
    peaks = StepPeaks(
        formulation.graph, costs, formulation.problem, needs_on=formulation.workload.cluster
    )
    found = solve_under_peaks(
        formulation.problem,
        peaks,
        SolverParameters(
            time_limit_seconds=wanted.time_limit, seed=wanted.seed, work_limit=wanted.work_limit
        ),
        solver=wanted.solver,
        find_lifetimes=peaks.possible_lifetimes,
    )
    return follow_hints(formulation, found, peaks)


def predict_solution(formulation: Formulation, solution: Solution) -> PredictedPlacement | None:
    """Predicts the placement with the control edges that it needs; ``None`` if there is none."""
    if solution.device_of is None:
        return None
    _LOG.info("predicting memory and times")
    workload, placement = formulation.workload, formulation.problem.placement(solution.device_of)
    edges = edges_of_placement(
        workload.graph,
        workload.costs,
        placement,
        workload.cluster,
        formulation.control_edges,
        workload.wanted.order,
    )
    return predict_placement(workload, placement, edges)
