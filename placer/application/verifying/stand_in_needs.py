"""What the processes that stand in for accelerators need.

In a rehearsal of memory the ops of a GPU run on a CPU: in the orders of its executor, last in,
first out (:mod:`placer.prediction.step.executor`), and with its kernels, which unfold images for
the gradient of a convolution where cuDNN does not.  And every process goes on as soon as it can:
what one has sent waits in the other until that gets there.  So a plan that its card serves may need
more there, or less.
"""

from __future__ import annotations

from collections.abc import Mapping

from cost_models.clusters import parse_cluster
from cost_models.device_names import canonical
from cost_models.op_cost import with_kernels_of
from placer.application.devices.device_mapping import HOST
from placer.extraction.flat_program import analyse_program
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.shapes.binding import capture_states
from placer.plan.plan import Plan
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.need import find_need, serves
from placer.prediction.metrics import GROWTH
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.orders.needs import requests_along
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.orders.running_ahead import orders_running_ahead
from placer.prediction.step.routes import find_routes

_ORDERS = 8
_CLOSE = 0.95
"""Caps are looked into where some order is not served by so much of them."""


def stand_in_needs(program: FlatProgram, plan: Plan) -> dict[str, int]:
    """The bytes that the process of a device needs on a CPU, by device of ``plan``: of those that
    their caps serve as planned, and may not serve so.

    ``program`` is the one that is placed, what the plan rewrites rewritten.
    """
    caps = {
        row.name: row.memory_limit_bytes
        for row in plan.devices
        if row.name != HOST and row.need_bytes is not None
        if row.need_bytes <= row.memory_limit_bytes < 2 * row.need_bytes
    }
    if not caps:
        return {}
    graph = analyse_program(program, capture_states(program), **plan.bindings).graph
    costs = with_kernels_of(estimate_costs(graph), gpu=False)
    accelerators = [row.name for row in plan.devices if row.name != HOST]
    stand_in = {name: f"CPU:{n}" for n, name in enumerate(accelerators, 1)}
    steps = PossibleSteps(graph, costs, accelerated=False)
    device_of = {name: canonical(plan.placement.get(name) or HOST) for name in graph.ops}
    placement = {name: stand_in.get(device, HOST) for name, device in device_of.items()}
    step = steps.memory(placement, [HOST, *stand_in.values()])
    orders = steps.orders[:_ORDERS]
    if len(accelerators) > 1:
        alike = {name: f"GPU:{n}" for n, name in enumerate(accelerators)}
        at_once = {name: alike.get(device, HOST) for name, device in device_of.items()}
        orders += side_by_side(steps, at_once, len(accelerators))
    requests = requests_along(step, orders)
    growth = {row.name: row.allocator == GROWTH for row in plan.devices}
    found = {}
    for name, cap in caps.items():
        asked = [along[stand_in[name]] for along in requests]
        if all(serves(one, int(_CLOSE * cap), growth=growth[name]) for one in asked):
            continue
        needs: list[int] = []
        for one in asked:
            near = needs[-1] if needs else cap
            needs.append(find_need(one, growth=growth[name], near=near).need_bytes)
        resident = step.resident_bytes(stand_in[name])
        found[name] = range_of(needs, resident).high_bytes
    return found


def side_by_side(
    steps: PossibleSteps, placement: Mapping[str, str], count: int
) -> list[tuple[str, ...]]:
    """The ops in the orders in which ``count`` devices begin them, each by itself."""
    graph = steps.graph
    own = {name: placement[steps.owner.get(name, name)] for name in graph.ops}
    routes, cluster = find_routes(graph, own, HOST), parse_cluster(f"{count}xGPU:1TiB")
    return orders_running_ahead(graph, steps.costs, routes, cluster, launched=False)
