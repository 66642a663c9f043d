"""The control edges that a placement is to have, by what was asked for."""

from __future__ import annotations

from collections.abc import Mapping

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.graph.control_edges import ControlEdge, add_control_edges
from placer.graph.op_graph import OpGraph
from placer.prediction.orders.possible_steps import predict_peak_ranges
from placer.solving.orders.memory_order import excess_bytes, order_for_memory
from placer.solving.orders.piece_order import order_pieces

FREE, FIT, LEAST = ORDERS = ("free", "fit", "memory")
"""For memory no edges; as few as the caps need; those for the lowest peaks."""


def edges_of_placement(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    placement: Mapping[str, str],
    cluster: Cluster,
    searched_with: tuple[ControlEdge, ...],
    order: str,
) -> tuple[ControlEdge, ...]:
    """The control edges that ``placement`` needs: those of a pipeline, where the batch is in
    pieces, and those for memory; ``order`` is one of :data:`ORDERS`.

    Those that it was ``searched_with`` are a last resort: they may join ops of two devices, which
    takes a signal between them.
    """
    caps = {device.name: device.usable_bytes for device in cluster.devices}
    names = [device.name for device in cluster.devices]

    def excess(edges: tuple[ControlEdge, ...]) -> int:
        ordered = add_control_edges(graph, edges)
        ranges = predict_peak_ranges(ordered, costs, placement, names, cluster.host.name)
        return excess_bytes(ranges, caps)

    pipelined = order_pieces(graph, costs, placement, cluster)
    if pipelined and (over := excess(pipelined)) and over > excess(()):
        pipelined = ()
    if order == FREE:
        return pipelined
    found = order_for_memory(
        add_control_edges(graph, pipelined),
        costs,
        placement,
        cluster,
        caps if order == FIT else None,
    )
    if not excess_bytes(found.after, caps):
        return (*pipelined, *found.edges)
    return (
        searched_with
        if excess(searched_with) < excess_bytes(found.after, caps)
        else (*pipelined, *found.edges)
    )
