"""A verification as text: what ran where, what was sent, and whether that is what was planned."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.application.verifying.verification_result import (
    PROGRAMS,
    UNEXPLAINED,
    Counts,
    MemoryRehearsal,
    OpRow,
    TransferRow,
    Verification,
)
from placer.graph.rewriting import RECOMPUTED, SWAPPED
from placer.rendering.quantities import format_cap, known, reserve_lines, share_of_cap, shorten
from placer.rendering.text.layout import ROWS, Facts, Rows, Title, answer_line, to_text
from placer.rendering.text.plan_text import gate_block

_MORE_IN_USE = (
    "Where the limit leaves room, more may be in use than is required: TensorFlow's allocator "
    "hands out whole chunks of up to twice the request, and frees late what another device reads."
)


def render_verification(
    found: Verification, name: str, *, width: int = 80, colour: bool = False
) -> str:
    """The verification of the model called ``name`` as text of ``width`` columns."""
    return to_text(verification_blocks(found, width, name), width=width, colour=colour)


def verification_blocks(
    found: Verification, width: int, name: str = "Placed program"
) -> list[RenderableType]:
    """The verification as titles, facts and tables for ``width`` columns."""
    blocks: list[RenderableType] = [
        answer_line(_answer(found)),
        Title(shorten(name, width), _circumstances(found)),
        Facts("Verification", _fact_rows(found)),
    ]
    off_device = [row for row in found.ops if row.code]
    if off_device:
        blocks.append(_op_table(off_device, width))
    differing = [row for row in found.transfers if row.code == UNEXPLAINED]
    if differing:
        blocks.append(_transfer_table(differing, width))
    if found.memory is not None:
        blocks.append(_memory_table(found.memory, width))
    if found.gate:
        blocks.append(gate_block(found.gate))
    if found.notes:
        blocks.append(Facts("Notes", [("note", note) for note in found.notes]))
    return blocks


def _circumstances(found: Verification) -> str:
    """How it was run: on the hardware or rehearsed, with or without graph optimisation."""
    if found.rehearsed:
        pairs = [f"{a} as {b}" for a, b in sorted(found.stand_ins.items()) if a != b]
        where = f"Ran on CPU devices ({', '.join(pairs)})"
    else:
        asked = "the devices asked for" if _asks(found) else "this machine"
        where = "Ran on " + ("simulated GPUs" if found.simulated else asked)
    applied = "; the plan was applied to a temporary copy" if found.applied else ""
    optimised = "on" if found.optimised else "off"
    return f"{where}{applied}; graph optimization {optimised}."


def _asks(found: Verification) -> bool:
    """Whether a plan or the model gives a device to any op."""
    return found.planned or any(row.requested for row in found.ops)


def _fact_rows(found: Verification) -> list[tuple[str, RenderableType]]:
    summary = found.counts
    return [
        ("ops", _ops_line(found, summary)),
        *_added_rows(found.ops),
        ("transfers", _transfer_line(found, summary)),
        ("variables", _variable_line(found, summary)),
        ("outputs", _output_line(found, summary)),
        ("checked on", _judges(found)),
        *([("result", _result(found))] if found.mismatches else []),
    ]


def _ops_line(found: Verification, summary: Counts) -> str:
    if not _asks(found):
        return f"{summary['ops']:,}, none of which names a device"
    line = f"{summary['matched_ops']:,} of {summary['ops']:,} ran where they were asked to"
    codes = ", ".join(f"{count:,} {_words(code)}" for code, count in summary["off_device"].items())
    return f"{line}; {codes}" if codes else line


def _added_rows(ops: Sequence[OpRow]) -> list[tuple[str, RenderableType]]:
    """How many of the ops that the plan added ran: what is computed twice, what is swapped."""
    found: list[tuple[str, RenderableType]] = []
    for kind, what in ((RECOMPUTED, "clone"), (SWAPPED, "tensor")):
        rows = [row for row in ops if row.added == kind]
        if rows:
            ran = sum(bool(row.actual) for row in rows)
            line = f"{ran:,} of {format_count(len(rows), what)}"
            if kind == RECOMPUTED:
                found.append(("recomputed", f"{line} ran"))
            else:
                found.append(("swapped", f"{line} held on {rows[0].requested} and sent back"))
    return found


def _transfer_line(found: Verification, summary: Counts) -> str:
    if not found.planned:
        return f"{summary['actual_transfers']:,} made (no plan to compare with)"
    extra = summary["actual_transfers"] - summary["matched_transfers"]
    line = f"{summary['matched_transfers']:,} of {summary['transfers']:,} predicted were made"
    line = line if summary["transfers"] else "none, as predicted"
    if extra or summary["transfers"]:
        line += f", {extra:,} others" if extra else ", no others"
    differing = dict(summary["differing_transfers"])
    left = differing.pop("returned", 0)
    codes = [f"{count:,} {_words(code)}" for code, count in differing.items()]
    if left:
        fetches = "1 fetch" if left == 1 else f"{left:,} fetches"
        codes.append(f"{fetches} not checked (the run leaves outputs on their device)")
    return f"{line}; {', '.join(codes)}" if codes else line


def _answer(found: Verification) -> str:
    """Whether it ran as planned."""
    counts, wish = found.counts, "planned" if found.planned else "the model says"
    if count := len(found.mismatches):
        return f"Did not run as {wish}: {format_count(count, 'unexplained difference')}."
    memory = found.memory
    steps = f", {format_count(memory.steps, 'step')} within the limits" if memory else ""
    outputs = "outputs equal" if found.outputs else "no outputs to compare"
    outputs = "outputs not compared" if found.simulated else outputs
    if not _asks(found):
        return f"Ran, {outputs}; the model has no devices to check: give a PLAN."
    return (
        f"Ran as {wish}: {counts['matched_ops']:,} of {format_count(counts['ops'], 'op')} on their "
        f"devices{', the others explained' if counts['off_device'] else ''}, {outputs}{steps}."
    )


def _variable_line(found: Verification, summary: Counts) -> str:
    if not summary["variables"]:
        return "none"
    if not _asks(found):
        return f"{summary['variables']:,}, none of which names a device"
    return f"{summary['matched_variables']:,} of {summary['variables']:,} where they should be"


def _output_line(found: Verification, summary: Counts) -> str:
    if found.simulated:
        return "not compared: simulated GPUs compute no values"
    if not found.outputs:
        return "none"
    count = format_count(len(found.outputs), "output")
    verb = "equal" if summary["outputs_equal"] else "NOT equal"
    most = summary["max_absolute_difference"]
    differing = f" (largest difference {most:.3g})" if most else ""
    return f"{count} {verb} to the unplaced program's{differing}"


def _judges(found: Verification) -> str:
    """Who gave which line."""
    by_judge: dict[str, list[str]] = {}
    for line, judge in found.judges.items():
        by_judge.setdefault(judge, []).append(line)
    return "; ".join(f"{_JUDGES[judge]}: {', '.join(x)}" for judge, x in by_judge.items())


_JUDGES = {"gpu": "GPUs", "cpu": "CPU devices", "simulated": "simulated GPUs"}


def _result(found: Verification) -> Text:
    count = len(found.mismatches)
    shown = "\n".join(found.mismatches[:ROWS])
    more = f"\nand {count - ROWS:,} more" if count > ROWS else ""
    heading = format_count(count, "unexplained difference")
    return Text(f"{heading}:\n{shown}{more}", style="red")


def _memory_table(found: MemoryRehearsal, width: int) -> RenderableType:
    """Returns a row per GPU: the memory it took, beside what the plan requires and its limit."""
    failed = found.out_of_memory
    headers = ("Memory", "Held>", "In use, most>", "Required>", "Limit>", "Used>", "Answer")
    cells = [
        (
            row.device,
            format_bytes(row.held_bytes),
            format_bytes(row.peak_bytes),
            known(row.required_bytes, format_bytes),
            format_cap(row.cap_bytes),
            share_of_cap(row.required_bytes, row.cap_bytes),
            ("stopped" if row.device != failed.device else "OUT OF MEMORY") if failed else "runs",
        )
        for row in found.devices
    ]
    ran = PROGRAMS[found.program].format(steps=format_count(found.steps, "step"))
    notes = reserve_lines((row.device, row.limit_bytes, row.cap_bytes) for row in found.devices)
    if any(row.peak_bytes > (row.required_bytes or 0) for row in found.devices):
        notes.append(_MORE_IN_USE)
    return Group(Rows(headers, cells, width=width), Text("\n".join((ran, *notes))))


def _op_table(rows: Sequence[OpRow], width: int) -> RenderableType:
    headers = ("Ops elsewhere", "Asked for", "Ran on", "Why")
    cells = [
        (row.op, row.requested or "-", row.actual or "not seen", _words(row.code)) for row in rows
    ]
    return Rows(headers, cells, width=width, limit=ROWS)


def _transfer_table(rows: Sequence[TransferRow], width: int) -> RenderableType:
    headers = ("Transfers that differ", "From", "To", "Was", "Why")
    cells = [
        (
            row.tensor,
            row.source,
            row.target,
            "predicted, not made" if row.predicted else "made, not predicted",
            _words(row.code),
        )
        for row in rows
    ]
    return Rows(headers, cells, width=width, limit=ROWS)


def _words(code: str) -> str:
    """A code as words; what follows its colon is an op."""
    name, _, op = code.partition(":")
    return f"{name.replace('_', ' ')} {op}" if op else _CODES.get(name, name.replace("_", " "))


_CODES = {
    "colocated_with": "colocated with another op",
    "off_device": "of ops that ran elsewhere",
}
"""Words for codes that a count leaves without their object."""
