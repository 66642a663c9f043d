"""What a notebook shows of a plan or a report: the figures, and a frame with the whole page.

The page runs in a frame without the rights of the notebook (``sandbox``): it cannot touch it.
"""

from __future__ import annotations

from html import escape

from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.rendering.html.page import render_plan_page, render_report_page

HEIGHT = 720
"""Pixels of the frame."""

MOST_OPS = 20_000
"""Beyond this the page is megabytes, which a notebook would keep: text is shown instead."""


def plan_in_notebook(plan: Plan) -> str:
    """The plan's page in a frame, its summary as text where the graph is large."""
    if len(plan.placement) > MOST_OPS:
        return _text(plan.summary(width=110), "plan.to_html('plan.html')")
    return _frame(render_plan_page(plan))


def report_in_notebook(report: Report) -> str:
    """The report's page in a frame, text where the graph is large."""
    from placer.rendering.text.report_text import render_report

    if report.model.op_count > MOST_OPS:
        text = render_report(report, width=110, colour=False)
        return _text(text, "report.to_html('report.html')")
    return _frame(render_report_page(report))


def _frame(page: str) -> str:
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="placer" '
        f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    )


def _text(text: str, call: str) -> str:
    return f"<pre>{escape(text)}</pre><p><code>{escape(call)}</code> writes the whole page.</p>"
