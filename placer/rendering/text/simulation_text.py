"""A run on simulated GPUs as text: what each GPU held, and where there was no room."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from cost_models.byte_sizes import format_bytes, format_count
from placer.rendering.quantities import format_seconds, format_share, printable
from placer.rendering.text.layout import Facts, Rows, Title, answer_line
from placer.simulation.cards import SimulatedGpu
from placer.simulation.records import GpuRecord, Moment
from placer.simulation.runs import SimulatedRun

_MOST_ROWS = 8

_MUCH = 0.3
"""Share of what was in use from which a kind of memory is worth a word."""

_MEMORY_ONLY = (
    "; memory is that of these GPUs, without workspaces of cuDNN and cuBLAS; values and times mean "
    "nothing"
)

_DATA = ("_EagerConst",)
"""Ops that put what NumPy holds on a GPU."""


def simulation_blocks(found: SimulatedRun, width: int) -> list[RenderableType]:
    """A table of the GPUs, then what each held at its peak, then every refusal with advice."""
    command = " ".join(found.command)
    used = [
        (gpu, record) for index, gpu in enumerate(found.gpus) for record in found.records_of(index)
    ]
    ended = f"exit code {found.exit_code}, {format_seconds(found.seconds)}"
    if found.is_late:  # it had a moment more than the limit, to say where it was
        ended = "ended by the time limit"
    blocks: list[RenderableType] = [
        answer_line(_answer(found, used)),
        Title(
            f"Simulated: {printable(command)}",
            ended + (_MEMORY_ONLY if used else ""),
        ),
    ]
    if not used:
        return blocks
    blocks.append(_table(found, used, width))
    if found.exit_code and not any(record.refusals for _, record in used):
        blocks += _values_read(found)
    for gpu, record in used:
        blocks += _holders(f"{gpu.name} at its peak", record.peak, width)
        blocks += _refusal(gpu, record, failed=bool(found.exit_code), width=width)
    return blocks


def _answer(found: SimulatedRun, used: list[tuple[SimulatedGpu, GpuRecord]]) -> str:
    """Whether it ran to its end with the memory that there is, and how much of that it took."""
    if not used:
        return "No process used a GPU, so nothing is known of memory."
    shares = [
        (record.peak.in_use_bytes / gpu.memory.usable_bytes, gpu, record) for gpu, record in used
    ]
    _, gpu, record = max(shares, key=lambda row: row[0])
    held = format_bytes(record.peak.in_use_bytes)
    most = f"{gpu.name} held at most {held} of {format_bytes(gpu.memory.usable_bytes)}"
    if found.is_late:
        return f"Ended by the time limit; until then {most}."
    if not found.exit_code:
        return f"Ran to its end: {most}."
    refused = [(gpu, moment) for gpu, record in used if (moment := record.refused)]
    if refused:
        names = ", ".join(gpu.name for gpu, _ in refused)
        return f"Out of memory on {names}: {_asked(*refused[0])}."
    return f"Failed, not for lack of memory: {most}."


def _asked(gpu: SimulatedGpu, moment: Moment) -> str:
    """The request that was refused, and what there was."""
    limit = format_bytes(gpu.memory.usable_bytes)
    return (
        f"{printable(moment.op) or 'an op'} asked for {format_bytes(moment.asked_bytes)} with "
        f"{format_bytes(moment.in_use_bytes)} of {limit} in use"
    )


def _values_read(found: SimulatedRun) -> Iterator[RenderableType]:
    """Why a command that failed with room for all of it may have failed."""
    reads = sum(process.reads for process in found.processes)
    if not reads:
        return
    last = next(row.last_read_op for row in reversed(found.processes) if row.reads)
    of = f", the last of {printable(last)}" if last else ""
    yield Text(
        f"There was room for everything. The command read {format_count(reads, 'value')} from "
        f"the GPUs{of}: values are not simulated, those of products and convolutions are zeros, "
        f"and a program that compares them can fail for this reason alone.",
        style="yellow",
    )


def _table(
    found: SimulatedRun, used: list[tuple[SimulatedGpu, GpuRecord]], width: int
) -> RenderableType:
    headers = ("GPU", "Model", "Limit>", "Most in use>", "Of it>", "When>", "While", "Kernels>")
    rows = [
        (
            gpu.name,
            gpu.model,
            format_bytes(gpu.memory.usable_bytes),
            format_bytes(record.peak.in_use_bytes),
            format_share(record.peak.in_use_bytes, gpu.memory.usable_bytes),
            format_seconds(record.peak.seconds),
            record.peak.op or "-",
            f"{record.launches:,}",
        )
        for gpu, record in used
    ]
    idle = [gpu for index, gpu in enumerate(found.gpus) if not found.records_of(index)]
    rows += [
        (gpu.name, gpu.model, format_bytes(gpu.memory.usable_bytes), "0 B", "0.0%", "-", "-", "0")
        for gpu in idle
    ]
    return Rows(headers, rows, width=width)


def _holders(heading: str, moment: Moment, width: int) -> Iterator[RenderableType]:
    """The ops and variables that held most at one moment."""
    if not moment.held:
        return
    rows = [
        (row.op or "(no op: XLA)", format_bytes(row.held_bytes), f"{row.count:,}")
        for row in moment.held[:_MOST_ROWS]
    ]
    others = moment.held[_MOST_ROWS:]
    if others:
        size = sum(row.held_bytes for row in others)
        count = sum(row.count for row in others)
        rows.append((f"{len(others):,} others", format_bytes(size), f"{count:,}"))
    yield Text(heading, style="bold")
    yield Rows(("Held by", "In use>", "Allocations>"), rows, width=width)


def _refusal(
    gpu: SimulatedGpu, record: GpuRecord, *, failed: bool, width: int
) -> Iterator[RenderableType]:
    """The last request that had no room; where the command ended well, that TensorFlow did
    without."""
    moment = record.refused
    if moment is None:
        return
    if not failed:
        count = format_count(record.refusals, "request")
        yield Text(
            f"{gpu.name} refused {count}, and TensorFlow went on without them", style="yellow"
        )
        return
    asked = f"{_asked(gpu, moment)}, {format_seconds(moment.seconds)} after the start"
    tries = [("advice", line) for line in _advice_for(record, gpu.memory.usable_bytes)]
    yield Facts(f"{gpu.name} had no room", [("asked", asked), *tries])
    if moment.held != record.peak.held:
        yield from _holders(f"What held the memory of {gpu.name} then", moment, width)


def _advice_for(record: GpuRecord, usable_bytes: int) -> list[str]:
    """Sentences on the last refused request, the most promising first; none without one."""
    moment = record.refused
    if moment is None:
        return []
    found = []
    if moment.in_use_bytes + moment.asked_bytes <= usable_bytes:
        found.append(
            "the free memory is fragmented: try TF_GPU_ALLOCATOR=cuda_malloc_async, or a slightly "
            "smaller batch"
        )
    if _share(moment, *_DATA) > _MUCH:
        found.append(
            "data made from NumPy arrays lies on the GPU as a whole: build the dataset under "
            "tf.device('CPU:0')"
        )
    variables = sum(row.held_bytes for row in moment.held if row.op.startswith("variable "))
    if variables > _MUCH * moment.in_use_bytes:
        found.append(
            "variables fill it (an Adam optimizer holds two more of each): try an optimizer "
            "without slots, a lower precision, or placer place over several GPUs"
        )
    if moment.asked_bytes > moment.in_use_bytes:
        found.append(
            "this request is larger than all that was in use: a smaller batch helps, unless the "
            "tensor is a weight: that requires a larger GPU, or several with placer place"
        )
    elif not found or variables <= (1 - _MUCH) * moment.in_use_bytes:
        found.append("activations and gradients fill it: try a smaller batch, or recomputation")
    return found


def _share(moment: Moment, *ops: str) -> float:
    """The share of what was in use that ops of these names held."""
    held = sum(row.held_bytes for row in moment.held if row.op.rpartition("/")[2] in ops)
    return held / moment.in_use_bytes if moment.in_use_bytes else 0.0
