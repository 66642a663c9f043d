"""What a notebook shows of a plan or a report: the figures, and a frame with the whole page.

The page runs in a frame without the rights of the notebook (``sandbox``): it cannot touch it.
"""

from __future__ import annotations

from html import escape

from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.rendering.html.page import render_page

HEIGHT = 720
"""Pixels of the frame."""

MOST_OPS = 20_000
"""Beyond this the page is megabytes, which a notebook would keep: text is shown instead."""


def in_notebook(result: Plan | Report) -> str:
    """Its page in a frame, its summary as text where the graph is large."""
    name = "plan" if isinstance(result, Plan) else "report"
    count = len(result.placement) if isinstance(result, Plan) else result.model.op_count
    if count > MOST_OPS:
        return _text(result.summary(width=110), f"{name}.to_html('{name}.html')")
    return _frame(render_page(result))


def _frame(page: str) -> str:
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" title="placer" '
        f'style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    )


def _text(text: str, call: str) -> str:
    return f"<pre>{escape(text)}</pre><p><code>{escape(call)}</code> writes the whole page.</p>"
