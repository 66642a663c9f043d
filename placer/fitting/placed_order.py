"""The control edges that a placement is to have, by what was asked for."""

from collections.abc import Mapping

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.fitting.fitted_step import ORDER, FitRequest
from placer.fitting.piece_order import order_pieces
from placer.fitting.step_fitting import fit_step
from placer.fitting.step_trials import StepTrials
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import NO_REWRITING
from placer.prediction.orders.possible_steps import predict_peak_ranges

FREE, FIT = "free", "fit"
"""Orders without edges for memory, and with those that the caps need (the third, ``"memory"``, has
those for low peaks)."""

_ROOM = 1.005
"""Share of the low order's own peak that may be in use without caps."""


def edges_of_placement(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    searched_with: tuple[ControlEdge, ...],
    order: str,
) -> tuple[ControlEdge, ...]:
    """The control edges that ``placement`` needs: those of a pipeline, where the batch is in
    pieces, and those for memory, by ``order``.

    Those that it was ``searched_with`` are a last resort: they may join ops of two devices, which
    takes a signal between them.
    """
    known = costs, placement, cluster

    def excess(edges: tuple[ControlEdge, ...]) -> int:
        peaks = _high_peaks(add_control_edges(graph, edges), *known)
        return sum(max(peaks[d.name] - d.usable_bytes, 0) for d in cluster.devices)

    pipelined = order_pieces(graph, *known)
    if pipelined and (over := excess(pipelined)) and over > excess(()):
        pipelined = ()
    if order == FREE:
        return pipelined
    ordered = add_control_edges(graph, pipelined)
    if order == FIT:
        request = FitRequest(means=(ORDER,), seconds=0.0)
        edges = (*pipelined, *fit_step(ordered, *known, request).control_edges)
    else:
        edges = (*pipelined, *edges_for_low_peaks(ordered, *known))
    if (over := excess(edges)) and excess(searched_with) < over:
        return searched_with
    return edges


def edges_for_low_peaks(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
) -> tuple[ControlEdge, ...]:
    """The control edges that hold a step to an order with low peaks; none if they lower none.

    Raises :class:`~placer.errors.UsageError` if the placement does not fit the graph.
    """
    request = FitRequest(means=(ORDER,), seconds=0.0, with_needs=False)
    trials = StepTrials(graph, costs, placement, cluster, request)
    step = trials.step(graph, NO_REWRITING)
    trials.caps = _high_peaks(graph, costs, placement, cluster)
    order = [step.layout.names[op] for op in trials.low_order(graph, step)]
    for name, peak in step.peaks(order).items():
        resident = step.resident_bytes(name)
        trials.caps[name] = resident + int(_ROOM * (peak - resident))
    trials.best = trials.free = trials.judge(NO_REWRITING, ())
    trials.hold(NO_REWRITING, order)
    over, free = (sum(each.over_bytes.values()) for each in (trials.best, trials.free))
    return trials.best.control_edges if over < free else ()


def _high_peaks(
    graph: OpGraph, costs: Mapping[str, OpCost], placement: Mapping[str, str], cluster: Cluster
) -> dict[str, int]:
    """The high end of every device's peak."""
    names = [device.name for device in cluster.devices]
    ranges = predict_peak_ranges(graph, costs, placement, names, cluster.host.name)
    return {name: peak.high_bytes for name, peak in ranges.items()}
