"""Every result as text, by its type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.questions.batch_sizes import Sweep
from placer.questions.comparison import Comparison
from placer.questions.difference import Difference
from placer.questions.explanation import OpExplanation
from placer.questions.strategies import StrategyComparison
from placer.rendering.text.comparison_text import comparison_blocks
from placer.rendering.text.difference_text import difference_blocks
from placer.rendering.text.explanation_text import op_blocks
from placer.rendering.text.layout import to_text
from placer.rendering.text.plan_text import whole_plan_blocks
from placer.rendering.text.report_text import report_blocks
from placer.rendering.text.strategies_text import strategies_blocks
from placer.rendering.text.sweep_text import sweep_blocks


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
_blocks.register(StrategyComparison, strategies_blocks)
_blocks.register(OpExplanation, op_blocks)
_blocks.register(Difference, difference_blocks)
