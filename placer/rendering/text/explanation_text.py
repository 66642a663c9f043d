"""Answers to "why?" as text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.plan.plan import Plan
from placer.prediction.metrics import Transfer
from placer.problem.conflict import Fix
from placer.questions.explanation import Move, OpExplanation, PlanExplanation
from placer.rendering.quantities import format_seconds, shorten, signed
from placer.rendering.text.answers import plan_answer, unrun_note
from placer.rendering.text.conflict_text import fix_line, shared_words
from placer.rendering.text.layout import Facts, Rows, Title, answer_line
from placer.rendering.text.plan_text import (
    cost_label,
    plan_blocks,
    plan_title,
    quality_text,
    reserve_blocks,
    size_text,
)

_WORDS = {
    "fed": "fed",
    "pinned": "pinned",
    "host_only_kernel": "no GPU kernel",
    "device_string": "device string",
    "colocated": "colocated",
    "spilled": "offloaded",
    "swapped": "swapped",
    "chosen": "by search",
    "unused": "unused",
    "host_constant": "host constants",
}
_MOST_NAMES = 6
_MOST_TRANSFERS = 5


def op_explanation_blocks(found: OpExplanation, width: int) -> list[RenderableType]:
    """Why one op sits where it sits, and what its group would cost elsewhere."""
    rows: list[tuple[str, RenderableType]] = [
        ("device", Text(found.device, style="bold")),
        ("allowed", _allowed(found)),
        ("group", Text(_group(found, width))),
        *([("rewritten", Text("\n".join(found.rewritten)))] if found.rewritten else []),
        *([("left out", Text(_left_out(found, width)))] if found.hints_left_out else []),
        *_transfer_rows(found, width),
    ]
    sentence = f"{shorten(found.op, width // 2)} is on {found.device}: {_because(found, width)}."
    blocks: list[RenderableType] = [
        answer_line(sentence),
        Title(shorten(found.op, width), found.op_type),
        Facts("Placement", rows),
    ]
    return [*blocks, _moves(found.moves, len(found.group_ops))]


def plan_explanation_blocks(found: PlanExplanation, width: int) -> list[RenderableType]:
    """Returns the reasons of the ops of every device, and why the largest transfers cross."""
    plan, running = found.plan, sum(sum(counts.values()) for counts in found.ops.values())
    return [
        answer_line(plan_answer(plan)),
        plan_title(plan, width),
        Facts("Placement", [(cost_label(plan.solver), quality_text(plan.solver))]),
        *reserve_blocks(plan),
        _by_reason("Ops by reason", found.ops, "{:,}".format, width),
        *[Text(note) for note in filter(None, [unrun_note(plan, running)])],
        _by_reason("Resident by reason", found.resident_bytes, format_bytes, width),
        _crossings(found, width),
        *([Text(_ELSEWHERE)] if any("chosen" in row for row in found.ops.values()) else []),
        *([Text(_OFFLOADED)] if any("spilled" in row for row in found.ops.values()) else []),
    ]


_ELSEWHERE = "Ops placed by search could be elsewhere; placer explain PLAN OP shows at what cost."
_OFFLOADED = (
    "Offloaded ops are on a CPU since the accelerators have no room for them, or since that costs "
    "less; placer explain PLAN OP shows which, and what it costs."
)


def _by_reason(
    heading: str,
    found: Mapping[str, Mapping[str, int]],
    render: Callable[[int], str],
    width: int,
) -> RenderableType:
    """A row per device, a column per reason that any has."""
    codes = [code for code in _WORDS if any(code in amounts for amounts in found.values())]
    headers = [f"{_WORDS[code][0].upper()}{_WORDS[code][1:]}>" for code in codes]
    rows = [
        (device, *(render(amounts.get(code, 0)) for code in codes))
        for device, amounts in found.items()
    ]
    return Rows([heading, *headers], rows, width=width)


_KINDS = {"caps": "limits", "spill": "offload"}
"""Kinds of changes that have another name on the screen."""


def conflict_blocks(plan: Plan, fixes: Sequence[Fix], width: int) -> list[RenderableType]:
    """Why there is no placement, and what was tried and found to have one."""
    if plan.conflict is None or any(not fix.kind for fix in fixes):
        return plan_blocks(plan, width)  # advice that was not tried
    tried = replace(plan, conflict=replace(plan.conflict, fixes=tuple(fixes)))
    without = replace(plan, conflict=replace(plan.conflict, fixes=()))
    longer = "" if fixes else " A longer search (--time-limit 300) may find one."
    blocks = [answer_line(plan_answer(tried) + longer), *plan_blocks(without, width)[1:]]
    rows = [(_KINDS.get(fix.kind, fix.kind), fix_line(fix)) for fix in fixes]
    told = [Facts("Each of these changes makes it fit (tried)", list(rows))] if rows else []
    return [*blocks, *told]


def _allowed(found: OpExplanation) -> str:
    """The devices of its group, and the CPUs that it may be offloaded to."""
    cpus = [found.device] if found.code == "spilled" else []
    cpus += [move.device for move in found.moves if move.spills]
    offloaded = f"; {', '.join(cpus)} if offloaded" if cpus else ""
    return (", ".join(found.allowed) or "none: its group contradicts itself") + offloaded


def _because(found: OpExplanation, width: int) -> Text:
    if found.code == "colocated":
        return Text(
            f"it must share a device with {shorten(found.binding_op, width // 2)}: {found.reason}"
        )
    return Text(found.reason)


def _group(found: OpExplanation, width: int) -> str:
    if len(found.group_ops) == 1:
        return "none: no other op must be on its device"
    first = found.initial_value_bytes
    shown = [shorten(op, width // 2) for op in found.group_ops[:_MOST_NAMES]]
    left = len(found.group_ops) - len(shown)
    kept = f" ({format_bytes(first)} of it initial values that a session keeps)" if first else ""
    lines = [
        f"{format_count(len(found.group_ops), 'op')}, {format_bytes(found.resident_bytes)} "
        f"resident{kept}, held together by {shared_words(found.group_reasons) or 'nothing'}:",
        *shown,
        *([f"and {left:,} more"] if left else []),
    ]
    return "\n".join(lines)


def _left_out(found: OpExplanation, width: int) -> str:
    others = found.hints_left_out
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (
        f"the colocation hint (_class) that ties it to {shorten(others[0], width // 2)}{more} "
        "elsewhere; --keep-colocation keeps them"
    )


def _transfer_rows(found: OpExplanation, width: int) -> list[tuple[str, RenderableType]]:
    named = (("receives", found.received, "from"), ("sends", found.sent, "to"))
    return [
        (label, Text("\n".join(_sent(row, end, width) for row in rows[:_MOST_TRANSFERS])))
        for label, rows, end in named
        if rows
    ]


def _sent(row: Transfer, end: str, width: int) -> str:
    other = row.source if end == "from" else row.target
    return f"{shorten(row.tensor, width // 2)} {size_text(row.bytes)} {end} {other}"


def _moves(moves: Sequence[Move], group_size: int) -> RenderableType:
    """Returns what changes on each other device, or why it may not be there."""
    if not moves:
        return Text("There is no other device.")
    rows: list[tuple[str, RenderableType]] = [
        (move.device, move.refused or _changes(move)) for move in moves
    ]
    return Facts(f"{'Its group' if group_size > 1 else 'This op'} elsewhere", rows)


def _changes(move: Move) -> str:
    sent, step = signed(move.sent_bytes, format_bytes), signed(move.step_seconds, format_seconds)
    over = "; ".join(move.over).removeprefix(f"{move.device} ")
    return f"{over or 'fits'}; sends {sent}, step {step}"


def _crossings(found: PlanExplanation, width: int) -> RenderableType:
    if not found.transfers:
        return Text("No tensor crosses between devices.")
    headers = ("Largest transfers", "Bytes>", "Memory", "From", "because", "To", "because")
    rows = [
        (
            row.tensor,
            size_text(row.bytes),
            row.memory,
            row.source,
            _WORDS[source],
            row.target,
            "fetched" if row.kind == "fetch" else ", ".join(_WORDS[code] for code in targets),
        )
        for row, source, targets in found.transfers
    ]
    return Rows(headers, rows, width=width)
