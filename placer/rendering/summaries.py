"""Every result as text, by its type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from placer.alternatives import Alternatives
from placer.comparison import Comparison
from placer.difference import Difference
from placer.explanation import OpExplanation
from placer.findings import Report
from placer.plan import Plan
from placer.rendering.alternatives_text import alternatives_blocks
from placer.rendering.comparison_text import comparison_blocks
from placer.rendering.difference_text import difference_blocks
from placer.rendering.explanation_text import op_blocks
from placer.rendering.layout import to_text
from placer.rendering.plan_text import whole_plan_blocks
from placer.rendering.report_text import report_blocks
from placer.rendering.sweep_text import sweep_blocks
from placer.sweep import Sweep


def summary_text(found: Any, width: int) -> str:
    """``found`` as text of ``width`` columns, without colours."""
    return to_text(_blocks(found, width), width=width, colour=False)


@singledispatch
def _blocks(found: Any, _width: int) -> list[RenderableType]:
    raise TypeError(f"there is no text for a {type(found).__name__}")


_blocks.register(Plan, whole_plan_blocks)
_blocks.register(Report, report_blocks)
_blocks.register(Comparison, comparison_blocks)
_blocks.register(Sweep, sweep_blocks)
_blocks.register(Alternatives, alternatives_blocks)
_blocks.register(OpExplanation, op_blocks)
_blocks.register(
    Difference, lambda found, width: difference_blocks(found, "before", "after", width)
)
