"""Ops that TensorFlow would run elsewhere than they ask for, known before the run.

Soft placement is on by default in TensorFlow 2, and silent.  What it moves follows from the
kernels and from the graph (``core/common_runtime/colocation_graph.cc``): an op without a kernel
for its dtypes on the device it asks for goes to the host of that device's task, and an op that
touches a resource or a reference goes to where that lives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cost_models.byte_sizes import format_count
from cost_models.device_names import canonical, merge
from placer.application.devices.device_mapping import HOST
from placer.application.devices.node_kernels import gpu_dtypes, has_kernel
from placer.errors import VerificationError, some
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.tensor_types import input_types
from placer.extraction.reading.companions import touched_handles
from placer.graph.op_types import REF_VARIABLES
from placer.graph.tensor_names import data_inputs, op_of
from placer.graph.walks import grouped
from placer.plan.plan import Plan
from placer.plan.rows import PlanWarning

HARMLESS = frozenset(
    {"", "fed", "inside_control_flow", "fused", "replicated", "removed_by_optimiser"}
)
"""Codes of ops that were not moved by soft placement: their values come from the caller, or they
did not run as ops of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One op that runs on ``actual`` although it asks for ``requested``.  ``code`` is
    ``no_kernel_for_dtype``, ``host_only_kernel`` or ``colocated_with:HANDLE`` (of a run, also the
    codes of a verification); ``reason`` says it in words."""

    op: str
    requested: str
    actual: str
    code: str
    reason: str

    def __str__(self) -> str:
        """``op: GPU:0 -> CPU:0 (reason)``."""
        return f"{self.op}: {self.requested} -> {self.actual} ({self.reason})"


def foresee_moves(program: FlatProgram, placement: Mapping[str, str]) -> tuple[Move, ...]:
    """The ops of ``program`` that TensorFlow would move off the devices of ``placement`` (canonical
    names; ops without a device are where TensorFlow likes), in graph order.

    Fed values are left out: they arrive on the host whatever their placeholder asks for.
    """
    fed = program.fed_ops | program.captures.keys()
    handles = _bound_handles(program)
    moves: dict[str, Move] = {}
    for node in program.graph_def.node:
        requested = placement.get(node.name, "")
        if not requested or node.name in fed:
            continue
        actual, code, reason = requested, "", ""
        if not has_kernel(node, requested):
            actual = canonical(merge(requested, HOST))
            code, reason = _without_kernel(node)
        for handle in handles.get(node.name, ()):
            there = moves[handle].actual if handle in moves else placement.get(handle, requested)
            if there and there != requested:
                actual, code = there, f"colocated_with:{handle}"
                reason = f"it uses {handle}, which lives there"
                break
        if actual != requested:
            moves[node.name] = Move(
                op=node.name, requested=requested, actual=actual, code=code, reason=reason
            )
    return tuple(moves.values())


def _bound_handles(program: FlatProgram) -> dict[str, list[str]]:
    """The handles whose device an op must share: resources that it touches, and variables of
    TensorFlow 1 that it takes by reference (a read by value may be anywhere)."""
    nodes = {node.name: node for node in program.graph_def.node}
    found = {
        op: [name for name in handles if nodes[name].op not in REF_VARIABLES]
        for op, handles in touched_handles(nodes.values())
    }
    for node in nodes.values():
        data = [op_of(name) for name in data_inputs(node.input)]
        if any(nodes[name].op in REF_VARIABLES for name in data):
            expected = input_types(node, program.definitions) or ()
            found[node.name] = found.get(node.name, []) + [
                name
                for name, wanted in zip(data, expected, strict=False)
                if wanted.is_ref and nodes[name].op in REF_VARIABLES
            ]
    return found


def _without_kernel(node: Any) -> tuple[str, str]:
    """(code, reason) of an op that an accelerator has no kernel for."""
    known = gpu_dtypes(node.op)
    if known:
        return "no_kernel_for_dtype", f"{node.op} has kernels there only for {', '.join(known)}"
    return "host_only_kernel", f"{node.op} has a kernel on CPUs only"


def refuse_moves(moves: Iterable[Move], when: str) -> None:
    """Raises :class:`VerificationError` naming the first of ``moves``, if there are any."""
    moves = tuple(moves)
    if moves:
        raise VerificationError(
            f"TensorFlow {when} {format_count(len(moves), 'op')} off the device asked for: "
            f"{some(moves, '; ')}. Pin them where they can run, or allow it with --fallback soft"
        )


def record_moves(plan: Plan, moves: Iterable[Move]) -> Plan:
    """``plan`` with a warning ``fallback`` for every reason and pair of devices."""
    groups = grouped(((m.requested, m.actual, m.code.partition(":")[0]), m.op) for m in moves)
    added = [
        PlanWarning(
            code="fallback",
            message=f"TensorFlow moves these ops from {requested} to {actual}: {code}",
            count=len(ops),
            ops=tuple(ops),
        )
        for (requested, actual, code), ops in groups.items()
    ]
    kept = [warning for warning in plan.warnings if warning.code != "fallback"]
    return replace(plan, warnings=(*kept, *added))
