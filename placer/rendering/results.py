"""Every result in every format, by its type."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

_TEXTS = {
    "AutoResult": "auto_text.auto",
    "Calibration": "costs_text.calibration",
    "Comparison": "comparison_text.comparison",
    "Difference": "difference_text.difference",
    "MeasuredCosts": "costs_text.costs",
    "OpExplanation": "explanation_text.op_explanation",
    "Plan": "plan_text.plan",
    "PlanExplanation": "explanation_text.plan_explanation",
    "Report": "report_text.report",
    "Sweep": "sweep_text.sweep",
    "Verification": "verification_text.verification",
}
"""The module in ``rendering.text`` and a name: it has the functions ``name_blocks(result, width)``
and, if there is a table, ``name_csv(result)``."""


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

    home, _, name = _TEXTS[type(found).__name__].partition(".")
    module = import_module(f"placer.rendering.text.{home}")
    if format_name == "csv":
        return str(getattr(module, f"{name}_csv")(found))
    blocks = getattr(module, f"{name}_blocks")
    return render(partial(blocks, found), format_name, width=width, colour=colour)
