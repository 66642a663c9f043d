"""A plan or a report as one HTML file that needs nothing else.

Op names come from files of strangers.  They reach the page as JSON in a script element that the
browser does not run, with every character escaped that could end it, and from there the scripts
write them as text only; what the template writes is escaped by Jinja.  A content security policy
with the hashes of our own script and style lets the browser run nothing else and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from placer.front_words import in_front_words
from placer.plan.plan import Plan
from placer.plan.report import Report
from placer.plan.rows import GateVerdict
from placer.plan.status_words import status_words
from placer.prediction.predicted_step import PredictedStep
from placer.problem.conflict import Conflict
from placer.questions.auto_result import AutoResult
from placer.rendering import quantities
from placer.rendering.html.columns import placement_columns, step_columns
from placer.rendering.json_text import to_json
from placer.rendering.text import conflict_text
from placer.rendering.text.answers import (
    at_least,
    gate_words,
    idle_note,
    model_parts,
    plan_answer,
    report_answer,
    report_parts,
    required_note,
    unrun_note,
)
from placer.rendering.text.auto_text import equal_words, kind_of_program, verdict
from placer.rendering.text.plan_text import NOTES

_FOLDER = Path(__file__).parent
_SCRIPTS = (
    "format",
    "model",
    "canvas",
    "memory",
    "treemap",
    "layers",
    "viewport",
    "placement",
    "schedule",
    "tables",
    "page",
)
"""In ``static/``, in the order in which they are joined: later ones use earlier ones."""

MOST_OPS = 20_000
"""Beyond this the page is megabytes, which a notebook would keep: text is shown instead."""

_NEAR = 0.95
"""Share of its limit from which a device is shown as nearly full."""

_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def render_page(result: Plan | Report | AutoResult) -> str:
    """A report as HTML: of the placement where it has one, else of the reference device; or a plan:
    without the step that it predicts, what the plan's file holds; or the plan of the best way, with
    what else was tried."""
    document = json.loads(to_json(result))
    if isinstance(result, AutoResult):
        step = result.plan.step() if result.plan.step else None
        both = {"plan": json.loads(to_json(result.plan)), "auto": document}
        parts = [kind_of_program(result), *model_parts(result.plan)[1:]]
        return _render(both, step, result.plan, verdict(result), parts, equal=equal_words(result))
    plan = result if isinstance(result, Plan) else result.plan
    source = result if plan is None or plan.step is None else plan
    step = source.step() if source.step else None
    if isinstance(result, Plan):
        document, answer = {"plan": document}, plan_answer(result)
        return _render(document, step, plan, answer, model_parts(result), result.gate)
    return _render(document, step, plan, report_answer(result), report_parts(result), result.gate)


def in_notebook(result: Plan | Report) -> str:
    """Returns the page for a notebook: the page in a frame without the rights of the notebook
    (``sandbox``), or, where the graph is large, the summary."""
    name = "plan" if isinstance(result, Plan) else "report"
    count = len(result.placement) if isinstance(result, Plan) else result.model.op_count
    if count > MOST_OPS:
        text, call = result.summary(width=110), f"{name}.to_html('{name}.html')"
        return f"<pre>{escape(text)}</pre><p><code>{escape(call)}</code> writes the whole page.</p>"
    return (
        f'<iframe srcdoc="{escape(render_page(result))}" sandbox="allow-scripts" title="placer" '
        f'style="width:100%;height:720px;border:0"></iframe>'
    )


def _render(
    document: dict[str, Any],
    step: PredictedStep | None,
    placed: Plan | None = None,
    answer: str = "",
    parts: Sequence[str] = (),
    gate: GateVerdict | None = None,
    equal: str = "",
) -> str:
    """``document`` is a report as JSON has it, or has a ``plan`` alone; ``parts`` name it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=lambda value: in_front_words(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_filters())
    script = _library() + "".join(_read(f"static/{name}.js") for name in _SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    style = _read("static/page.css")
    plan = document.get("plan")
    data = {
        "step": None if step is None else step_columns(step),
        "plan": None if plan is None else {k: v for k, v in plan.items() if k != "placement"},
        "placement": placement_columns(plan["placement"]) if plan and step is None else None,
        "functions": document.get("model", {}).get("function_count", 0),
    }
    return environment.get_template("page.html.jinja").render(
        report=document if "compute" in document else None,
        plan=plan,
        auto=document.get("auto"),
        equal=equal,
        answer=answer,
        least=at_least(document.get("unknown_shapes")),
        placed_notes=_placed_notes(placed, step, "auto" in document),
        gate=gate_words(gate) if gate else "",
        fits=placed is not None and placed.fits,
        words="" if placed is None else status_words(placed),
        parts=parts,
        name=document.get("auto", {}).get("name", ""),
        model=document.get("model") or (plan or {})["model"],
        step=step,
        notes=NOTES,
        op_counts=_op_counts(plan, step),
        ample_bytes=AMPLE_BYTES,
        data=json_in_script(data),
        script=script,
        script_hash=_hash(script),
        style=style,
        style_hash=_hash(style),
    )


def _filters() -> dict[str, Any]:
    """Functions of the template."""
    return {
        "amount_of_bytes": format_bytes,
        "conflict": Conflict.from_json,
        "conflict_sentences": conflict_text.conflict_sentences,
        "fix_line": conflict_text.fix_line,
        "memory_parts": _memory_parts,
        "seconds": quantities.format_seconds,
        "flops": quantities.format_flops,
        "intensity": quantities.format_intensity,
        "shape": quantities.format_shape,
    }


def _placed_notes(placed: Plan | None, step: PredictedStep | None, is_automatic: bool) -> list[str]:
    """Notes on a placement: reserves, idle accelerators (``auto`` says more of them), ops that do
    not run."""
    if placed is None:
        return []
    idle = "" if is_automatic else idle_note(placed)
    unrun = "" if step is None else unrun_note(placed, len(step.ops))
    return [*quantities.limit_lines(placed.devices), required_note(placed), idle, unrun]


def json_in_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def _memory_parts(device: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of what a device requires, and its bars in hundredths of the limit."""
    peak, usable = device["peak_memory_bytes"], device["usable_bytes"]
    required, resident = device["required_bytes"], min(device.get("resident_bytes") or 0, peak or 0)
    found: dict[str, Any] = {"beyond": (required or 0) - (peak or 0)}
    known = required is not None and usable and usable != AMPLE_BYTES
    found["share"] = required / usable if known else None
    found["share_text"] = quantities.share_of_cap(required, usable)
    over = known and required > usable
    found["level"] = "over" if over else "near" if known and required > _NEAR * usable else ""
    ends = [0, resident, peak or 0, required or 0]
    shares = [min(100.0, 100 * end / usable) if known else 0.0 for end in ends]
    kinds = ("resident", "step", "padding")
    found["bars"] = [
        {"kind": kind, "x": start, "width": end - start}
        for kind, (start, end) in zip(kinds, pairwise(shares), strict=True)
    ]
    return found


def _op_counts(plan: Mapping[str, Any] | None, step: PredictedStep | None) -> dict[str, int]:
    if plan:
        return Counter(plan["placement"].values())
    return Counter(step.devices[number] for number in step.device_of) if step else {}


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _library() -> str:
    """The script that lays out graphs, with its licence, without the address of its source map."""
    text = _read("static/dagre/dagre.min.js").partition("//# sourceMappingURL")[0]
    version, licence = _read("static/dagre/VERSION").strip(), _read("static/dagre/LICENSE")
    return f"/*! dagre {version}\n{licence}*/\n{text}\n"


def _hash(text: str) -> str:
    """The hash of an inline script or style, as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
