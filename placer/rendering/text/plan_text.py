"""A plan as text: how good it is, where the ops are, what crosses, and how it was searched."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.graph.rewriting import Rewriting
from placer.plan.loading_facts import NOT_AS_PLANNED
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.plan.rows import GateVerdict, PlanMetrics, PlanWarning, SolverAnswer
from placer.plan.status_words import status_words
from placer.problem.status import Stage
from placer.rendering.quantities import (
    format_cap,
    format_seconds,
    format_share,
    known,
    limit_lines,
    limits_text,
    share_of_cap,
)
from placer.rendering.text.answers import (
    idle_note,
    model_line,
    plan_answer,
    required_note,
)
from placer.rendering.text.conflict_text import render_conflict
from placer.rendering.text.cost_parts import cost_text
from placer.rendering.text.formats import to_csv
from placer.rendering.text.layout import ROWS, Facts, Rows, Title, answer_line, model_title
from placer.rendering.text.loading_text import loaded_line, need_lines

CUT = (
    "time limit reached; a longer search may find a better placement. For repeatable results use "
    "--work-limit"
)
"""Note on an answer that the time limit ended."""

_CUT_FIRST = (
    "--time-limit ended the search before --work-limit did, so results may differ between runs: "
    "raise it"
)

_OWN_LIMITS = "results may differ between runs; --work-limit makes them repeatable"
"""Note on an answer that the clock had a say in before the time limit."""

_REQUIRED = (
    "Required: a memory limit that is enough in any execution order, padding and fragmentation "
    "included. Peak: most bytes of tensors live at once"
)

NOTES = ("assumed_host", "whole_instead", NOT_AS_PLANNED)
"""Warnings that every plan has for devices of another machine, for a strategy that is asked for, or
for a SavedModel on several devices (``apply`` warns of it): they are notes on the table."""


def plan_blocks(plan: Plan, width: int) -> list[RenderableType]:
    """The plan as titles, facts and tables for ``width`` columns."""
    return [answer_line(plan_answer(plan)), plan_title(plan, width), *plan_sections(plan, width)]


def plan_csv(plan: Plan) -> str:
    """One row per op."""
    return to_csv(("op", "device"), plan.placement.items())


def plan_sections(plan: Plan, width: int) -> list[RenderableType]:
    """The parts of a plan that a report shows too."""
    blocks: list[RenderableType] = [_quality(plan)]
    blocks += [_devices(plan, width)] if plan.placement else []
    blocks += reserve_blocks(plan) if plan.placement else []
    if plan.gate:
        blocks.append(gate_block(plan.gate))
    if plan.placement:
        blocks += [
            *need_lines(plan, width),
            *[Text(note, style="dim") for note in filter(None, [idle_note(plan)])],
            *[Text(row.message, style="dim") for row in plan.warnings if row.code in NOTES],
            _peaks(plan),
            _transfers(plan, width),
        ]
    if plan.conflict:
        blocks.append(render_conflict(plan.conflict, is_proven=bool(plan.proof)))
    if plan.unmodelled:
        heading = "Without a cost model (only their bytes count)"
        blocks.append(Facts(heading, [("op types", counted(plan.unmodelled))]))
    told = ("peak_over_cap", "need_over_cap") if plan.conflict else ()  # that is why
    blocks += warning_blocks([row for row in plan.warnings if row.code not in told])
    return blocks


def reserve_blocks(plan: Plan) -> list[RenderableType]:
    """A line for each reserve, which the limits of a screen are without."""
    return [Text(line, style="dim") for line in limit_lines(plan.devices)]


def gate_block(gate: GateVerdict) -> RenderableType:
    """Whether the gates let it pass, and why not."""
    word, style = ("passed", "green") if gate.passed else ("failed", "red")
    rows: list[tuple[str, RenderableType]] = [("verdict", Text(word, style=style))]
    rows += [("why", text) for text in gate.failures] + [("note", text) for text in gate.notes]
    return Facts("Gate", rows)


def plan_title(plan: Plan, width: int) -> Title:
    """The model with its format, signature and batch."""
    return model_title(plan.model["path"], model_line(plan), width)


def _quality(plan: Plan) -> RenderableType:
    solver, metrics = plan.solver, plan.metrics
    status = solver.status
    style = {"OPTIMAL": "green", "FEASIBLE": "cyan", "INFEASIBLE": "red"}.get(status, "yellow")
    rows: list[tuple[str, RenderableType]] = [
        ("status", Text(f"{status} ({status_words(plan)})", style)),
    ]
    rows += [("warning", Text(row.message, "yellow")) for row in _beside_status(plan.warnings)]
    if plan.placement:
        rows += [
            (cost_label(solver), quality_text(solver)),
            *([("made of", parts)] if (parts := cost_text(plan)) else []),
            ("transfers", _transfer_totals(plan)),
            ("step", _step_line(metrics)),
        ]
    else:
        rows.append(("limits", limits_text(plan.devices)))
    if plan.loading is not None and plan.loading.used_count < plan.loading.variable_count:
        rows.append(
            ("loading", loaded_line(plan.loading, plan.model["signature"], plan.model["format"]))
        )
    if plan.rewriting:
        rows.append(("rewritten", rewriting_text(plan.rewriting)))
    if metrics.fit_extra_seconds is not None:
        rows.append(("made to fit", _fit_line(metrics)))
    if plan.control_edges:
        rows.append(("order", format_count(len(plan.control_edges), "control edge")))
    rows.append(("search", _search_line(plan)))
    return Facts("Placement", rows)


def _beside_status(warnings: Sequence[PlanWarning]) -> list[PlanWarning]:
    """Warnings that say how much the answer is worth, and stand beside its status."""
    return [row for row in warnings if row.code in ("solver_crashed", "all_on_host")]


def _search_line(plan: Plan) -> str:
    """How long it took, and whether another run may find something else."""
    solver = plan.solver
    line = f"{format_seconds(solver.seconds)}, seed {solver.seed}"
    if not solver.cut_by_time or plan.proof or solver.status == "OPTIMAL":
        return line  # that is so however long
    limits = plan.request.get("time_limit"), plan.request.get("work_limit")
    return f"{line}; {cut_note(solver.seconds, *limits)}"


def cut_note(seconds: float, limit_seconds: float | None, work_limit: float | None) -> str:
    """Returns what an answer that the clock had a say in is worth."""
    if work_limit:
        return _CUT_FIRST
    limit = Options().time_limit if limit_seconds is None else limit_seconds
    return CUT if seconds >= 0.9 * limit else _OWN_LIMITS  # nearly all of it was used


def _fit_line(metrics: PlanMetrics) -> str:
    """How much longer a step takes that was made to fit."""
    extra = max(metrics.fit_extra_seconds or 0.0, 0.0)
    longer = f"{format_seconds(extra)} ({format_share(metrics.fit_extra_share, 1)}) longer"
    return f"the step is {longer} than before --fit, predicted"


def rewriting_text(rewriting: Rewriting) -> str:
    """Returns the changes to a step: ``"60 ops computed twice, 1 tensor swapped"``."""
    parts = []
    if rewriting.clones:
        parts.append(f"{format_count(len(rewriting.clones), 'op')} computed twice")
    if rewriting.swaps:
        count = format_count(len(rewriting.swaps), "tensor")
        parts.append(f"{count} swapped to the host and back")
    if rewriting.released:
        count = format_count(len(rewriting.released), "join")
        parts.append(f"gradients released early ({count} read through)")
    return ", ".join(parts)


def cost_label(solver: SolverAnswer) -> str:
    """Returns the name of what was minimized."""
    return "cost" if solver.objective == "transfer" else "objective"


def quality_text(solver: SolverAnswer) -> str:
    """Value, proven lower bound and gap: ``"125 MiB, lower bound 120 MiB, gap 4.0%"``."""
    amount = format_bytes if solver.objective == "transfer" else format_seconds
    bound, gap = solver.lower_bound, solver.relative_gap
    value = amount(solver.value)
    if solver.objective != "transfer":
        what = "step" if solver.objective == "step-time" else "busiest device"
        value = f"{what} {value}, by the search's own estimate"
    if solver.status == "UNKNOWN":  # bounds are of placements that fit
        return value
    if bound is None:
        return f"{value}, no lower bound proven"
    if solver.status == "OPTIMAL" and gap == 0:
        return value
    if gap is None:
        return f"{value}, lower bound {amount(bound)}"
    is_near = solver.status == "FEASIBLE" and 0 < gap < 0.0005  # no proof, though it reads 0.0%
    return f"{value}, lower bound {amount(bound)}, gap {'below 0.1%' if is_near else f'{gap:.1%}'}"


def _transfer_totals(plan: Plan) -> str:
    """Count and bytes of all transfers by kind."""
    if not plan.transfers:
        return "none"
    counts = Counter(row.kind for row in plan.transfers)
    sizes: Counter[str] = Counter()
    for row in plan.transfers:
        sizes[row.kind] += row.bytes or 0
    unsized = sum(row.bytes is None for row in plan.transfers)
    parts = [
        f"{counts[kind]:,} {kind}"
        + (f" {format_bytes(sizes[kind])}" if sizes[kind] and kind != "control" else "")
        for kind in ("data", "feed", "fetch", "control")
        if counts[kind]
    ]
    if plan.metrics.collective_bytes:
        parts.append(f"all-reduces {format_bytes(plan.metrics.collective_bytes)}")
    return ", ".join(parts) + (f"; {unsized:,} without a size" if unsized else "")


def _step_line(metrics: PlanMetrics) -> str:
    return (
        f"{format_seconds(metrics.step_seconds)} predicted; critical path "
        f"{format_seconds(metrics.critical_path_seconds)}; busiest device "
        f"{format_seconds(metrics.bottleneck_seconds)} (work + transfers, which overlap)"
    )


def _devices(plan: Plan, width: int) -> RenderableType:
    """One row per device: ops, memory against the limit, busy time."""
    ops = Counter(plan.placement.values())
    spills = any(device.spilled_bytes for device in plan.devices)
    headers = ["Device", "Ops>", "Required>", "Limit>", "Used>", "Resident>"]
    headers += [*(["Offloaded>"] if spills else []), "Busy>", "Peak>", "Model"]
    rows = [
        (
            device.name,
            f"{ops[device.name]:,}",
            known(device.required_bytes, format_bytes),
            format_cap(device.usable_bytes),
            share_of_cap(device.required_bytes, device.usable_bytes),
            known(device.resident_bytes, format_bytes),
            *([known(device.spilled_bytes, format_bytes)] if spills else []),
            known(device.busy_seconds, format_seconds),
            known(device.peak_memory_bytes, format_bytes),
            device.model or device.type,
        )
        for device in plan.devices
    ]
    over = plan.over_bytes
    full = [(row, 4) for row, device in enumerate(plan.devices) if device.name in over]
    return Rows(headers, rows, width=width, over=full)


def _peaks(plan: Plan) -> Text:
    on_gpu = any(device.type != "CPU" for device in plan.devices)
    text = _REQUIRED + (". Not validated on GPUs." if on_gpu else ".")
    return Text(" ".join(filter(None, [text, required_note(plan)])), style="dim")


def _transfers(plan: Plan, width: int) -> RenderableType:
    if not plan.sent:
        return Text("No tensor crosses between devices.")
    headers = ("Transfers", "Bytes>", "From", "To", "Kind", "Memory")
    rows = [
        (row.tensor, size_text(row.bytes), row.source, row.target, row.kind, row.memory)
        for row in plan.sent
    ]
    return Rows(headers, rows, width=width, limit=ROWS)


def size_text(size: int | None) -> str:
    """The bytes of a tensor; ``"unsized"`` if it has none."""
    return "unsized" if size is None else format_bytes(size)


def counted(counts: Mapping[str, int], limit: int = 8) -> str:
    """``"3 Foo, 1 Bar"``: the most frequent names first, the rest as a number."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count:,} {name}" for name, count in ordered[:limit]]
    if len(ordered) > limit:
        parts.append(f"and {len(ordered) - limit} more types")
    return ", ".join(parts)


def _adds_count(row: PlanWarning) -> bool:
    """Whether a warning counts more than one thing, and its sentence has no such number."""
    return row.count > 1 and f"{row.count:,}" not in row.message


def warning_blocks(warnings: Sequence[PlanWarning]) -> list[RenderableType]:
    """Returns what is worth a warning and stands nowhere else, if there is anything."""
    elsewhere = _beside_status(warnings)
    rows: list[tuple[str, RenderableType]] = [
        (row.code, Text(row.message + (f" ({row.count:,})" if _adds_count(row) else "")))
        for row in warnings
        if row not in elsewhere and row.code not in NOTES
    ]
    return [Facts("Warnings", rows)] if rows else []


def stages_text(solver: SolverAnswer) -> str:
    """A line per stage: why it began, how it ended, and the best known by then."""
    return "".join(_stage_line(stage, solver.objective) for stage in solver.stages)


def _stage_line(stage: Stage, objective: str) -> str:
    amount = format_bytes if objective == "transfer" else format_seconds
    best = "nothing fits yet" if stage.value is None else amount(stage.value)
    bound = "none" if stage.lower_bound is None else amount(stage.lower_bound)
    searches = format_count(stage.searches, "search", "searches")
    return (
        f"{stage.name}: {stage.why}; {stage.ended} after {format_seconds(stage.seconds)}, "
        f"{searches}; {best}, lower bound {bound}\n"
    )
