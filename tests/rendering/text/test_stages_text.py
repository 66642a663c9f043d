"""The stages of a search as text."""

from __future__ import annotations

from dataclasses import replace

from plans_by_hand import small_plan

from placer.plan.plan import Plan
from placer.problem.status import Stage
from placer.rendering.text.stages_text import stages_text

LAYERS = Stage(
    name="layers",
    why="nothing fits yet",
    ended="a placement fits",
    seconds=0.25,
    searches=2,
    value=2048.0,
)


def test_a_stage_is_a_line() -> None:
    """Why it began, how it ended, and what is best by then; a plan in a file keeps it."""
    plan = small_plan()
    plan = replace(plan, solver=replace(plan.solver, objective="transfer", stages=(LAYERS,)))
    assert stages_text(plan.solver) == (
        "layers: nothing fits yet; a placement fits after 250 ms, 2 searches; 2.00 KiB, lower "
        "bound none\n"
    )
    assert Plan.from_json(plan.to_json()).solver.stages == (LAYERS,)
