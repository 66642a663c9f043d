"""Every result in every format, by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType


class Renderer(NamedTuple):
    """The renderer of results of a ``kind``: ``blocks`` the titles, facts and tables that fit a
    width, ``table`` the CSV, if there is one."""

    kind: type
    blocks: Callable[[Any, int], list[RenderableType]]
    table: Callable[[Any], str] | None = None


def render_result(found: Any, format_name: str, *, width: int, colour: bool = False) -> str:
    """``found`` as ``"text"`` of ``width`` columns, ``"markdown"``, ``"csv"``, ``"json"`` or
    ``"html"``, as far as its type has that."""
    if format_name == "json":
        from placer.rendering.json_text import to_json

        return to_json(found)
    if format_name == "html":
        from placer.rendering.html.page import render_page

        return render_page(found)
    from placer.rendering.text.formats import render

    renderer = next(known for known in _renderers() if isinstance(found, known.kind))
    if format_name == "csv" and renderer.table is not None:
        return renderer.table(found)
    return render(partial(renderer.blocks, found), format_name, width=width, colour=colour)


def _renderers() -> Iterator[Renderer]:
    """The types of results and what writes them, what loads in no time first: only those up to the
    one that is asked for are imported."""
    from placer.plan.plan import Plan
    from placer.rendering.text import plan_text

    yield Renderer(Plan, plan_text.plan_blocks, plan_text.plan_csv)
    from placer.plan.report import Report
    from placer.rendering.text import report_text

    yield Renderer(Report, report_text.report_blocks, report_text.report_csv)
    from placer.rendering.text import simulation_text
    from placer.simulation.runs import SimulatedRun

    yield Renderer(SimulatedRun, simulation_text.simulation_blocks)
    from placer.questions.difference import Difference
    from placer.rendering.text import difference_text

    yield Renderer(Difference, difference_text.difference_blocks, difference_text.difference_csv)
    from placer.questions.explanation import OpExplanation, PlanExplanation
    from placer.rendering.text import explanation_text

    yield Renderer(OpExplanation, explanation_text.op_explanation_blocks)
    yield Renderer(PlanExplanation, explanation_text.plan_explanation_blocks)
    from placer.plan.measured_costs import MeasuredCosts
    from placer.questions.calibration import Calibration
    from placer.rendering.text import costs_text

    yield Renderer(MeasuredCosts, costs_text.costs_blocks)
    yield Renderer(Calibration, costs_text.calibration_blocks)
    from placer.questions.auto_result import AutoResult
    from placer.rendering.text import auto_text

    yield Renderer(AutoResult, auto_text.auto_blocks, auto_text.auto_csv)
    from placer.application.verifying.verification_result import Verification
    from placer.rendering.text import verification_text

    yield Renderer(Verification, verification_text.verification_blocks)
    from placer.questions.batch_sizes import Sweep
    from placer.rendering.text import sweep_text

    yield Renderer(Sweep, sweep_text.sweep_blocks, sweep_text.sweep_csv)
    from placer.questions.comparison import Comparison
    from placer.rendering.text import comparison_text

    yield Renderer(Comparison, comparison_text.comparison_blocks, comparison_text.comparison_csv)
