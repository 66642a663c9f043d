"""Measured costs, and what was fitted to them, as text."""

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from cost_models.device_fit import UNLIMITED
from cost_models.devices import KERAS_SECONDS
from placer.plan.measured_costs import MeasuredCosts
from placer.questions.calibration import Calibration
from placer.rendering.quantities import format_rate, format_seconds, format_share
from placer.rendering.text.layout import ROWS, Facts, Rows


def costs_blocks(costs: MeasuredCosts, width: int) -> list[RenderableType]:
    """The step and the ops that took the most time; of a trace also the memory that it shows."""
    seconds = costs.op_seconds
    total = sum(seconds.values())
    slowest = sorted((name for name in seconds if seconds[name]), key=lambda name: -seconds[name])
    listed = [
        [name, format_seconds(seconds[name]), format_share(seconds[name], total)]
        for name in slowest
    ]
    shown = Rows(("Op", "Time>", "Share>"), listed, width=width, limit=ROWS)
    rows = [
        ("model", Text(str(costs.model.get("path")))),
        *(_traced if costs.trace else _run)(costs),
        ("ops", Text(f"{format_seconds(total)} in all; shares are of this")),
    ]
    return [Facts("Profile", rows), shown, *_memory(costs, width)]


def _run(costs: MeasuredCosts) -> list[tuple[str, RenderableType]]:
    """How the model was run here, and what a step took."""
    settings = costs.configuration
    keys = ("median_seconds", "least_seconds", "median_processor_seconds")
    median, least, processor = (format_seconds(costs.step[key]) for key in keys)
    size = costs.bindings.get("batch_size")
    batch = f"batch {size:,}" if size else "batch as in the model"
    run = (
        f"{format_count(settings['steps'], 'step')}, {batch}, on "
        f"{costs.machine.get('processor') or 'this machine'}, "
        f"{format_count(settings['intra_op_threads'], 'thread')}, one op at a time, "
        f"oneDNN {'on' if settings['onednn'] else 'off'}, graph optimization off"
    )
    step = f"{median} median, {least} at the least, {processor} of processor time"
    return [("run", Text(run)), ("step", Text(step))]


def _traced(costs: MeasuredCosts) -> list[tuple[str, RenderableType]]:
    """Returns rows on the steps in the trace, and on how much of it is of this model."""
    facts = costs.trace
    whole, cut = facts["whole_steps"], facts["cut_steps"]
    window = f"{format_count(whole, 'whole step')}, {format_count(cut, 'other run')}"
    if costs.step:
        median, least = (
            format_seconds(costs.step[f"{key}_seconds"]) for key in ("median", "least")
        )
        step = f"{median} median, {least} at the least"
    else:
        step = "unknown: the trace has no whole step, so the times are of the ops that it shows"
    busy = ", ".join(f"{name} {format_seconds(s)}" for name, s in facts["busy_seconds"].items())
    matched = f"{facts['matched_share']:.1%} of the traced time is of ops of this model"
    lines = (("trace", window), ("step", step), ("busy", busy), ("matched", matched))
    return [(key, Text(line)) for key, line in lines]


def _memory(costs: MeasuredCosts, width: int) -> list[RenderableType]:
    """Returns the bytes that the allocators gave out, beside the prediction for one device."""
    if not costs.memory:
        return []
    keys = ("before_bytes", "peak_bytes", "peak_requested_bytes", "peak_temporary_bytes")
    listed = [
        [device, *(format_bytes(peaks[key]) for key in (*keys, "limit_bytes"))]
        for device, peaks in costs.memory.items()
    ]
    headers = ("Device", "Before>", "Peak>", "Asked for>", "Temporary>", "Limit>")
    blocks: list[RenderableType] = [Rows(headers, listed, width=width)]
    predicted = costs.predicted_memory
    if predicted:
        low, high = (format_bytes(predicted[f"{key}_bytes"]) for key in ("low", "high"))
        held, expected = (format_bytes(predicted[f"{k}_bytes"]) for k in ("resident", "expected"))
        note = (
            f"Predicted for everything on one device: {expected} at the peak ({low} to {high}), "
            f"{held} of it between steps. Before: in use when the trace began."
        )
        blocks.append(Text(note, style="dim"))
    return blocks


def calibration_blocks(found: Calibration, width: int) -> list[RenderableType]:
    """Returns the rates that the device reaches by kind of op, and how far the fit is off."""
    fitted_to = f"{format_count(found.op_count, 'op')} of {format_count(found.files, 'file')}"
    errors = f"{found.median_error:.0%} median of an op, {found.step_error:.0%} median of a step"
    keras = found.device.keras_seconds
    assumed = " (assumed; --keras measures it)" if keras == KERAS_SECONDS else ""
    rows = [
        ("fitted to", Text(fitted_to)),
        ("launch", Text(f"{format_seconds(found.device.launch_seconds)} per op")),
        ("dispatch", Text(f"{format_seconds(found.device.dispatch_seconds)} per op without work")),
        ("Keras", Text(f"{format_seconds(keras)} per step beside its ops{assumed}")),
        ("error", Text(errors)),
    ]
    listed = [
        [
            fit.kind,
            f"{fit.op_count:,}",
            format_share(fit.seconds, found.seconds),
            _reached(fit.efficiency.compute),
            _reached(fit.efficiency.memory),
            format_seconds(fit.efficiency.launch_seconds),
            f"{fit.median_error:.0%}",
        ]
        for fit in sorted(found.fits, key=lambda fit: -fit.seconds)
    ]
    headers = ("Kind", "Ops>", "Share>", "Compute>", "Memory>", "Launch>", "Error>")
    shown = Rows(headers, listed, width=width)
    flops = format_rate(found.device.peak_flops, "FLOP/s")
    bandwidth = format_rate(found.device.memory_bandwidth, "B/s")
    note = Text(
        f"Compute, Memory: the share of {flops} and {bandwidth} that these ops reach (-: the rate "
        "limits no op of this kind). The table is for ops alone. A step takes "
        f"{found.between_ops:.3g} times as long as its ops; the written description includes that.",
        style="dim",
    )
    return [Facts("Calibration", rows), shown, note]


def _reached(fraction: float) -> str:
    """The fraction of a peak that is reached, ``"-"`` where the peak limits nothing."""
    return "-" if fraction >= UNLIMITED else f"{fraction:.3g}"
