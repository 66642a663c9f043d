"""From a program, its costs and a request to the problem that a solver sees."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from placer.extraction import Extraction
from placer.graph.control_edges import ControlEdge
from placer.pipeline.formulation import formulate
from placer.plan.request import Options
from placer.problem.constraints import ConstraintOptions, Constraints, find_constraints
from placer.problem.placement_problem import PlacementProblem
from placer.solving.orders.memory_order import order_for_memory
from placer.solving.orders.placed_order import FREE

_LOG = logging.getLogger(__name__)


def low_memory_edges(
    extraction: Extraction, costs: Mapping[str, OpCost], cluster: Cluster, wanted: Options
) -> tuple[ControlEdge, ...]:
    """The control edges that a placement is searched with: those for the lowest peaks if every op
    were on the device it would rather be on; none if the order is free."""
    if wanted.order == FREE:
        return ()
    _LOG.info("searching an order with low memory")
    placement = constraints_of(extraction, cluster, wanted).first_choice
    return order_for_memory(extraction.graph, costs, placement, cluster).edges


def pose(
    extraction: Extraction, costs: Mapping[str, OpCost], cluster: Cluster, wanted: Options
) -> tuple[Constraints, PlacementProblem]:
    """Where each op may run, and the problem of choosing."""
    constraints = constraints_of(extraction, cluster, wanted)
    problem = formulate(
        extraction.graph,
        costs,
        cluster,
        constraints,
        objective=wanted.objective,
        spill=wanted.spill,
    )
    return constraints, problem


def constraints_of(extraction: Extraction, cluster: Cluster, wanted: Options) -> Constraints:
    """Where each op may run on ``cluster``."""
    graph, asks = extraction.graph, wanted.device_function
    if asks is not None:
        ops = {name: replace(op, device=asks(op) or "") for name, op in graph.ops.items()}
        graph = replace(graph, ops=ops)
    return find_constraints(
        graph,
        cluster,
        ConstraintOptions(
            pins=wanted.pins,
            pin_types=wanted.pin_types,
            keep_together=wanted.keep_together,
            clear_devices=wanted.clear_devices and asks is None,
            colocate_gradients=wanted.colocate_gradients,
        ),
    )
