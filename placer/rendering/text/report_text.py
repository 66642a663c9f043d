"""A report as text: what the model is, what it takes, what stands in the way of placing it."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.plan.report import (
    ComputeFacts,
    Hotspot,
    ModelFacts,
    Report,
    left_over_verbs,
)
from placer.problem.device_peaks import LEAST_LIMIT_BYTES
from placer.rendering.quantities import (
    format_flops,
    format_intensity,
    format_seconds,
    format_shape,
    format_share,
    printable,
    shorten,
)
from placer.rendering.text.answers import at_least, report_answer, report_parts
from placer.rendering.text.conflict_text import shared_words
from placer.rendering.text.formats import to_csv
from placer.rendering.text.input_text import batch_line, input_lines, listed
from placer.rendering.text.layout import Facts, Rows, answer_line, model_title
from placer.rendering.text.loading_text import loading_rows, need_parts_text
from placer.rendering.text.plan_text import counted, gate_block, plan_sections

_KIND_WORDS = {
    "activation": "activations",
    "weights": "weights",
    "constant": "constants",
    "temporary": "temporaries",
    "transfer": "receive buffers",
    "optimizer_state": "optimizer state",
    "metrics": "metrics",
    "gradient": "gradients",
    "feed": "fed values",
    "unused": "loaded and not used",
}
_RESIDENT = ("weights", "optimizer_state", "metrics", "constant", "unused")
_BUFFER_ROWS = 3
_UNKNOWN_ROWS = 5
_SCOPE_ROWS = 6


def report_blocks(report: Report, width: int) -> list[RenderableType]:
    """The report as titles, facts and tables for ``width`` columns."""
    model = report.model
    blocks: list[RenderableType] = [
        answer_line(report_answer(report)),
        model_title(model.path, " · ".join(report_parts(report)), width),
        Facts("Model", _model_rows(model, width)),
        Facts("Memory of a step with everything on one device", _memory_rows(report, width)),
        Facts("Compute", _compute_rows(report)),
    ]
    if report.compute.by_op_type:
        types = report.compute.by_op_type
        header = "Op type" if len(types) == model.op_type_count else "Top op types"
        blocks.append(_hotspot_table(header, [s for s in types if s.seconds], report, width))
        busy = [spot for spot in report.compute.by_scope if spot.seconds > 0]
        header = "Name scope" if len(busy) <= _SCOPE_ROWS else "Top name scopes"
        blocks.append(_hotspot_table(header, busy[:_SCOPE_ROWS], report, width))
    blocks.append(Facts("Placing", _placing_rows(report, width)))
    if report.unknown_shapes:
        blocks.append(_unknown_names(report))
    if report.gate:
        blocks.append(gate_block(report.gate))
    if report.plan is not None:
        blocks += plan_sections(report.plan, width)
    return blocks


def report_csv(report: Report) -> str:
    """The hotspots by op type and by name scope; bytes and seconds are plain numbers."""
    spots = [("op_type", spot) for spot in report.compute.by_op_type]
    spots += [("name_scope", spot) for spot in report.compute.by_scope]
    keys = ("name", "op_count", "seconds", "flops", "bytes_accessed", "output_bytes")
    rows = [[group, *(getattr(spot, key) for key in keys)] for group, spot in spots]
    return to_csv(("group", *keys), rows)


def _model_rows(model: ModelFacts, width: int) -> list[tuple[str, RenderableType]]:
    where = "file" if model.path else "program"
    ops = f"{model.op_count:,} of {model.file_op_count:,} in the {where} are used"
    ops += f"; {format_count(model.op_type_count, 'op type')}"
    if model.function_count:
        ops += f", {format_count(model.function_count, 'body', 'bodies')} of loops and branches"
    return [
        ("ops", ops),
        ("parameters", _parameter_line(model)),
        ("inputs", Text("\n".join(input_lines(model.inputs)))),
        ("outputs", _output_line(model, width)),
        *([("not fetched", _left_over_lines(model, width))] if model.left_over else []),
        ("batch", batch_line(model)),
    ]


def _output_line(model: ModelFacts, width: int) -> str:
    """The outputs, and what fetching them takes."""
    size = f", {format_bytes(model.output_bytes)} to fetch" if model.output_bytes else ""
    if not model.outputs:
        return "none to fetch"
    return listed([shorten(key, width // 3) for key in model.outputs], 3) + size


def _left_over_lines(model: ModelFacts, width: int) -> Text:
    """Unconsumed outputs that are not fetched, by reason, and what fetching them would take."""
    count = sum(row.count for row in model.left_over)
    lines = [
        f"{count:,} of {count + len(model.outputs):,} unconsumed outputs {left_over_verbs(count)}; "
        "choose others with --outputs"
    ]
    for row in model.left_over:
        size = "" if row.bytes is None else f", {format_bytes(row.bytes)}"
        example = shorten(row.examples[0], width // 3)
        lines.append(f"{row.words()}{size}, such as {example}")
    return Text("\n".join(lines), style="yellow")


def _parameter_line(model: ModelFacts) -> str:
    """Elements, variables and bytes by dtype."""
    if not model.variable_count:
        return "none (constants hold the weights, if there are any)"
    sizes = ", ".join(
        f"{dtype} {format_bytes(size)}" for dtype, size in model.parameter_bytes.items()
    )
    unsized = model.unsized_variable_count
    return (
        f"{model.parameter_count:,} in {format_count(model.variable_count, 'variable')}: {sizes}"
        + (f"; {unsized:,} of unknown shape" if unsized else "")
    )


def _memory_rows(report: Report, width: int) -> list[tuple[str, RenderableType]]:
    memory = report.memory
    peak = f"{at_least(report.unknown_shapes)}{format_bytes(memory.peak_bytes)}"
    while_running = f", while {shorten(memory.peak_op, width // 2)} runs" if memory.peak_op else ""
    at_peak = ", ".join(
        f"{_KIND_WORDS.get(kind, kind)} {format_bytes(size)}"
        for kind, size in memory.bytes_at_peak.items()
    )
    largest = [
        f"{format_bytes(buffer.bytes)} {_lifetime(buffer.op, buffer.until, width // 3)}"
        for buffer in memory.largest_at_peak[:_BUFFER_ROWS]
    ]
    scopes = [
        f"{format_bytes(size)} {shorten(scope or '(no scope)', width // 2)}"
        for scope, size in list(memory.scopes_at_peak.items())[:_BUFFER_ROWS]
    ]
    orders = [format_bytes(size) for size in (memory.low_bytes, memory.high_bytes)]
    peaks = [("range", " to ".join(orders) + " by the order of the ops")]
    unsure = "" if memory.validated or report.plan else "; not validated on GPUs"
    held = {
        "weights": memory.weight_bytes,
        "loaded and not used": memory.bytes_at_peak.get("unused"),  # loaded, and there all the time
        "optimizer state": memory.optimizer_state_bytes,
        "metrics": memory.metrics_bytes,
        "tables": memory.table_bytes,
        "constants": memory.constant_bytes,
    }
    always = ("weights", "constants")
    shown = {name: size or 0 for name, size in held.items() if size or name in always}
    resident = ", ".join(f"{name} {format_bytes(size)}" for name, size in shown.items())
    kept = sum(memory.bytes_at_peak.get(kind, 0) for kind in _RESIDENT)
    if (apart := sum(shown.values()) - kept) > 0:
        where = f"on {report.compute.reference}" if memory.validated else "in host memory"
        resident += f"; {format_bytes(apart)} of it {where}"
    return [
        *_required_rows(report),
        ("expected peak", f"{peak}{while_running}{unsure}"),
        *(peaks if orders[0] != orders[1] else []),
        ("at the peak", at_peak or "nothing is alive"),
        ("scopes at peak", Text("\n".join(scopes) or "none")),
        ("largest at peak", Text("\n".join(largest) or "none")),
        ("resident", resident),
        *loading_rows(report.loading, report.model.signature, report.model.format),
    ]


def _lifetime(op: str, until: str | None, width: int) -> str:
    """An op and the last one that reads it, wider where both would read alike."""
    if not until:
        return shorten(op, width)
    if op == until:
        return f"{shorten(op, width)}, while it runs"
    if shorten(op, width) == shorten(until, width):
        return _lifetime(op, until, width + 10)
    return f"{shorten(op, width)}, freed after {shorten(until, width)}"


def _required_rows(report: Report) -> list[tuple[str, RenderableType]]:
    """Returns what a limit has to hold, what it is made of, and when."""
    memory = report.memory
    required = f"{at_least(report.unknown_shapes)}{format_bytes(memory.required_bytes)}"
    if not memory.need_parts or memory.usable_bytes < LEAST_LIMIT_BYTES:
        return [("required", Text(required, style="bold"))]
    parts = [f"{name} {format_bytes(size)}" for name, size in memory.need_parts.items() if size]
    if memory.need_parts["tensors"] > memory.high_bytes:  # more than any moment of a step has
        parts[0] += " while loading"
    made_of = ", ".join(parts) or "nothing"
    if (more := memory.required_bytes - memory.need_expected_bytes) > 0:
        made_of += f"; {format_bytes(more)} more in the worst order of the ops"
    rows: list[tuple[str, RenderableType]] = [
        ("required", Text(required, style="bold")),
        ("made of", made_of),
    ]
    if len(set(memory.needs.values())) > 1:
        rows.append(("by phase", need_parts_text(memory.needs, memory.red_zones)))
    if memory.with_workspace_bytes > memory.need_bytes:
        most = format_bytes(memory.with_workspace_bytes)
        rows.append(("may use", f"{most} where cuDNN finds room for larger workspaces"))
    return rows


def _compute_rows(report: Report) -> list[tuple[str, RenderableType]]:
    compute, least = report.compute, at_least(report.unknown_shapes)
    intensity = compute.arithmetic_intensity
    accessed = format_bytes(compute.bytes_accessed)
    work = f"{least}{format_flops(compute.flops)}, {accessed} accessed"
    if intensity is not None:
        work += f", {format_intensity(intensity)} FLOP per byte"
    where = f" on {compute.reference}" if compute.reference else ""
    step = f"{least}{format_seconds(compute.step_seconds)} predicted{where}{_band(compute)}"
    ops = f"{least}{format_seconds(compute.busy_seconds)} in all, without feeds and fetches"
    if (unsure := compute.inaccurate_share) >= 0.005:  # a smaller part is not worth a word
        ops += f", {format_share(unsure, 1)} of it in ops whose work is not fully known"
    return [("work", work), ("step", step), ("ops", f"{ops}; shares are of this")]


def _band(compute: ComputeFacts) -> str:
    """How far the predicted step may be off, where that is known."""
    if compute.relative_error is None:
        return ""
    low = format_seconds(compute.step_seconds / (1 + compute.relative_error))
    high = format_seconds(compute.step_seconds * (1 + compute.relative_error))
    return f", {low} to {high} by the calibration"


def _hotspot_table(
    header: str, spots: Sequence[Hotspot], report: Report, width: int
) -> RenderableType:
    headers = (header, "Time>", "Share>", "Ops>", "FLOP>", "Accessed>", "Output>")
    rows = [
        (
            spot.name or "(no scope)",
            format_seconds(spot.seconds),
            format_share(spot.seconds, report.compute.busy_seconds),
            f"{spot.op_count:,}",
            format_flops(spot.flops).removesuffix("FLOP").strip(),
            format_bytes(spot.bytes_accessed),
            format_bytes(spot.output_bytes),
        )
        for spot in spots
    ]
    return Rows(headers, rows, width=width)


def _placing_rows(report: Report, width: int) -> list[tuple[str, RenderableType]]:
    bodies = "; in loops and branches too" if report.model.function_count else ""
    rows: list[tuple[str, RenderableType]] = [
        ("largest group", _group_line(report, width)),
        *(
            [("no GPU kernel", counted(report.no_gpu_kernel) + bodies)]
            if report.no_gpu_kernel
            else []
        ),
        *([("no cost model", _unmodelled_line(report))] if report.unmodelled else []),
        *([("unknown shapes", _unknown_line(report))] if report.unknown_shapes else []),
    ]
    rows += [("warning", Text(message, style="yellow")) for _, message in report.warnings]
    return rows


def _group_line(report: Report, width: int) -> str:
    group = report.largest_group
    if group is None:
        return "no ops share a variable or a loop"
    example = shorten(group.example, width // 2)
    count = f"{group.op_count:,} ops such as {example} must share a device"
    is_all = group.resident_bytes == group.needed_bytes
    return (
        f"{format_bytes(group.needed_bytes)} "
        f"({'all' if is_all else format_bytes(group.resident_bytes)} resident): "
        f"{count if group.op_count > 1 else f'{example} cannot be divided'} "
        f"({shared_words(group.reasons)})"
    )


def _unmodelled_line(report: Report) -> RenderableType:
    """Op types without a cost rule, and what part of the predicted time falls to them."""
    share = format_share(report.compute.unmodelled_share, 1)
    return Text(f"{counted(report.unmodelled)}; {share} of the time", style="yellow")


def _unknown_line(report: Report) -> RenderableType:
    """How many there are, and what part of the bytes they are."""
    count = format_count(len(report.unknown_shapes), "tensor")
    share = format_share(report.unknown_share, 1)
    return Text(f"{count} of unknown size, not counted ({share} of bytes)", style="yellow")


def _unknown_names(report: Report) -> RenderableType:
    """The tensors at which shapes get lost (all others follow from them), by the whole names that
    ``--shape`` takes, each on a line of its own however long."""
    unknown = report.unknown_shapes
    shown = [item for item in unknown if item.is_origin] or list(unknown)
    where = "Shapes become unknown at" if shown[0].is_origin else "Unknown shapes"
    lines = [f"{where} (--shape NAME=32x128)"]
    lines += [
        f"  {item.tensor} {item.op_type} {format_shape(item.shape)}"
        for item in shown[:_UNKNOWN_ROWS]
    ]
    if len(shown) > _UNKNOWN_ROWS:
        lines.append(f"  and {len(shown) - _UNKNOWN_ROWS:,} more")
    return Text(
        printable("\n".join(lines), keep="\n"), style="yellow", no_wrap=True, overflow="ignore"
    )
