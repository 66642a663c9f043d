"""Who may follow its neighbours to the host: groups that nobody asked for anywhere, that keep
nothing from step to step but small constants, and that a CPU runs in a known time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from cost_models import kernels
from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, ask_once
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import REF_VARIABLES
from placer.problem.constraints import Constraints
from placer.problem.grouping import SMALL_CONSTANT_BYTES


def free_ops(
    graph: OpGraph, costs: Mapping[str, OpCost], constraints: Constraints
) -> Iterator[str]:
    """The ops of these groups, group by group.

    Variables, tables, large constants and all that touches a handle are none of them: they move
    only if they must spill, and a training step's updates stay where its weights are.
    """
    anywhere = ask_once(_runs_anywhere, graph.infos)
    able = {
        op.name
        for op, runs_anywhere in zip(graph.ops.values(), anywhere, strict=True)
        if runs_anywhere and _is_light(costs[op.name]) and _bodies_run(op, graph.functions)
    }
    for group, may_spill in zip(constraints.groups, constraints.spillable, strict=True):
        bound = (constraints.restrictions[name].code for name in group.ops)
        if may_spill and able.issuperset(group.ops) and not any(bound):
            yield from group.ops


def _runs_anywhere(info: OpInfo) -> bool:
    """Whether TensorFlow has a CPU kernel for the op, and the op touches no state."""
    dtypes = {end.dtype for end in (*info.inputs, *info.outputs)}
    touches_state = info.op in REF_VARIABLES or "resource" in dtypes
    return not touches_state and kernels.has_cpu_kernel(info)


def _is_light(cost: OpCost) -> bool:
    """Whether the op keeps no more than a small constant, and its time on a CPU is known."""
    has_time = not cost.unmodelled or not cost.measured_seconds.keys().isdisjoint(("", "CPU"))
    return has_time and cost.persistent_bytes <= SMALL_CONSTANT_BYTES


def _bodies_run(op: Op, functions: Mapping[str, OpGraph]) -> bool:
    """Whether a CPU also runs all that runs in the op."""
    return all(
        kernels.has_cpu_kernel(inner.info) and _bodies_run(inner, functions)
        for name in chain.from_iterable(op.bodies.values())
        for inner in functions[name].ops.values()
    )
