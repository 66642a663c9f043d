"""In what a program differs from the one that a plan was made for, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placer.extraction.graph_defs.program import FlatProgram
from placer.graph.passes.differentiation import is_update_type
from placer.graph.tensor_names import op_of

_SHOWN = 5


def describe_mismatch(program: FlatProgram, plan: Any) -> str:
    """Returns how ``program`` differs from the plan's program, most significant first."""
    return "; ".join(_differences(program, plan)) + f"; {_advice(program, plan)}"


def _differences(program: FlatProgram, plan: Any) -> Iterator[str]:
    nodes = program.graph_def.node
    # what it is for
    trains = any(is_update_type(node.op) for node in nodes)
    planned_step = any(_names_update(name) for name in plan.placement)
    if planned_step and not trains:
        yield "this is no training step (it updates no variable), the plan is of one"
    elif trains and not planned_step:
        yield "this is a training step, the plan is of none"
    # what it is fed
    keys, known = [item.key for item in program.inputs], plan.model.get("inputs")
    if known is not None and len(known) != len(keys):
        yield f"it has {_counted(keys)}, the planned one {_counted(known)}"
    # what it is made of
    names = {node.name for node in nodes}
    unplanned = [node for node in nodes if node.name not in plan.placement]
    missing = [name for name in plan.placement if name not in names]
    if unplanned:
        first = unplanned[0]
        yield (
            f"{len(unplanned):,} of its {len(nodes):,} ops are not in the plan, the first "
            f"{first.name} ({first.op})"
        )
    if missing:
        yield (
            f"{len(missing):,} of the {len(plan.placement):,} planned ops are not in it, the first "
            f"{missing[0]}"
        )
    if not unplanned and not missing:
        yield (
            f"its {len(nodes):,} ops have the planned names, and differ in what they read or in "
            "attributes such as a size or a dtype"
        )


def _names_update(name: str) -> bool:
    """Whether an op's name is the one that an update gets by default (a plan knows no types)."""
    return is_update_type(op_of(name).rpartition("/")[2].rstrip("0123456789").rstrip("_"))


def _counted(keys: list[str]) -> str:
    shown = ", ".join(keys[:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
    return f"{len(keys)} inputs ({shown})" if len(keys) != 1 else f"1 input ({shown})"


def _advice(program: FlatProgram, plan: Any) -> str:
    from_file = bool(plan.model.get("path"))
    if from_file == bool(program.path):
        return "place this program, or give the model, signature and outputs of the plan"
    made, found = ("a file", "a live program") if from_file else ("a live program", "a file")
    return (
        f"the plan was made from {made} and this is {found}: one model has other op names in the "
        "two (a file adds the calls of its signature), so place what you apply the plan to"
    )
