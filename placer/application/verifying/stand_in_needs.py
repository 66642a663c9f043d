"""What the processes that stand in for accelerators need.

In a rehearsal of memory the ops of a GPU run on a CPU, with its kernels, which unfold images for
the gradient of a convolution where cuDNN does not.  And every device is a process with an executor
and a thread of its own (:mod:`placer.prediction.step.separate_executors`): what is put aside runs
last in, first out, what reads something that was received comes last, and what was sent may be
held until it is there.  So a plan that its card serves may need more there, or less.
"""

from __future__ import annotations

from cost_models.device_names import canonical
from cost_models.op_cost import with_kernels_of
from placer.application.devices.device_mapping import HOST
from placer.application.running.limited_devices import JOB
from placer.extraction.flat_program import analyse_program
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.shapes.binding import capture_states
from placer.plan.plan import Plan
from placer.prediction.costs.op_costs import estimate_costs
from placer.prediction.memory.allocations import find_allocations
from placer.prediction.memory.need import find_need, serves
from placer.prediction.metrics import GROWTH
from placer.prediction.orders.execution_orders import range_of
from placer.prediction.orders.possible_steps import PossibleSteps
from placer.prediction.orders.separate_orders import separate_orders

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
    stand_in = {name: f"/job:{JOB}/task:{n}/device:CPU:0" for n, name in enumerate(accelerators, 1)}
    steps = PossibleSteps(graph, costs, accelerated=False)
    device_of = {name: canonical(plan.placement.get(name) or HOST) for name in graph.ops}
    placement = {name: stand_in.get(device, HOST) for name, device in device_of.items()}
    step = steps.memory(placement, [HOST, *stand_in.values()])
    requests = [
        find_allocations(step, names, sample, lasts, passages)
        for sample, (names, lasts, passages) in enumerate(
            separate_orders(steps.graph, steps.costs, step.routes.device_of)
        )
    ]
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
