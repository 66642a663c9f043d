"""Ways to run one program on several devices, side by side, by prediction.

Towers, hybrids and micro-batches are predicted from the placement of one part; where towers have
equal devices, one of them is placed.  (``placer place --strategy`` builds the whole: all rows from
that would take three times as long, see ``benchmarks/strategies``.)  With B examples, N parts, D
accelerators, s(b) the predicted step of b examples, p(b) its peak and h the time in which the host
divides the inputs and joins the outputs:

- *one placement*: s(B), p(B).
- *towers*, one per accelerator: h + the largest s(B/D) of one accelerator, or the time in which it
  receives the variables (beside computing) if that is longer; p(B/D).
- *hybrid*, R towers of D/R accelerators: the same of s(B/R) on those, each of which receives its
  share of the variables.
- *micro-batches*: h + N s(B/N); p(B/N).
- *pipeline*: what is built, and predicted of it.  No formula knows its stages.

The tests hold the formulas against the predictions for what is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

from cost_models.devices import Cluster
from cost_models.roofline import transfer_seconds
from placer.errors import UsageError
from placer.extraction.divisibility.batch_axis import require_apart
from placer.graph.passes.differentiation import is_update_type
from placer.graph.program_source import ModelSource
from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import decide_strategy, prepare, try_placing
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan, over_caps
from placer.plan.request import Keywords, Options, read_options, takes_options
from placer.plan.results import Summarised
from placer.strategies.requests import (
    HYBRID,
    MICRO_BATCHES,
    PIPELINE,
    TOWERS,
    StrategyRequest,
    equal_groups,
    group_alone,
    read_strategy,
    tower_groups,
)

PIECES = (2, 4, 8)
"""The numbers of micro-batches that get a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRow:
    """One way to run the program.

    ``parts`` of ``part_size`` examples at most, ``in_flight`` of them at a time.  All figures are
    of a whole batch, and ``None`` where there is no placement (``note`` says why).
    ``peak_bytes`` are the highest predicted peaks by device, ``over_bytes`` what they exceed the
    caps by.  ``changes`` is what is different for the user, ``call`` the Python that builds it
    (``placer place --strategy`` does as well).
    """

    IN_JSON: ClassVar = ("fits",)
    name: str
    parts: int
    part_size: int
    in_flight: int
    changes: str
    call: str
    note: str = ""
    step_seconds: float | None = None
    samples_per_second: float | None = None
    transfer_bytes: int | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    over_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """There is a placement within all caps."""
        return self.step_seconds is not None and not self.over_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyComparison(Summarised):
    """All of them; ``recommended`` is the name of the one with the most samples per second among
    those that fit, ``None`` if none does.  ``undivided`` says why there is but one placement."""

    SCHEMA: ClassVar = "placer.strategies/1"
    model: ModelSource
    batch_size: int
    caps: Mapping[str, int]
    rows: tuple[StrategyRow, ...]
    recommended: str | None
    undivided: str = ""


@takes_options
def compare_strategies(
    source: Any, devices: str | Path, **options: Unpack[Keywords]
) -> StrategyComparison:
    """Every way to run ``source`` on ``devices`` that :mod:`placer.strategies` can build.

    ``options`` as for :func:`placer.pipeline.pipeline.place`; ``batch_size`` is needed.  Raises
    :class:`UsageError` without one, where it binds nothing, or for a program that updates
    variables (its strategies are built from its loss), and what ``place`` raises.
    """
    wanted = read_options(options)
    size = wanted.batch_size
    if size is None:
        raise UsageError("strategies divide the batch: say how large it is with --batch-size N")
    batch = _Batch(source, devices, wanted, size)
    _require_batch(batch.whole)
    rows, undivided = [_one_placement(batch)], _undivided(batch)
    if not undivided:
        rows += _divided_rows(batch)
    rows = [_told_if_slower(row, rows[0]) for row in rows]
    fitting = [row for row in rows if row.fits]
    best = max(fitting, key=lambda row: row.samples_per_second or 0.0, default=None)
    return StrategyComparison(
        model=batch.whole.extraction.model,
        batch_size=size,
        caps=batch.caps,
        rows=tuple(rows),
        recommended=best.name if best else None,
        undivided=undivided,
    )


class _Batch:
    """The program with the whole batch and with parts of it, prepared once for each size."""

    def __init__(self, source: Any, devices: str | Path, wanted: Options, size: int) -> None:
        self.source, self.devices, self.wanted, self.size = source, devices, wanted, size
        self.known: dict[int, Workload] = {}
        self.whole = self.part(size)
        self.cluster = self.whole.cluster
        self.caps = {device.name: device.usable_bytes for device in self.cluster.devices}

    def part(self, size: int) -> Workload:
        """The workload of so many examples."""
        if size not in self.known:
            wanted = replace(self.wanted, batch_size=size)
            self.known[size] = prepare(self.source, self.devices, wanted)
        return self.known[size]

    def place(self, size: int, objective: str, cluster: Cluster | None = None) -> Plan:
        """The plan for so many examples."""
        part = self.part(size)
        wanted = replace(part.wanted, objective=objective)
        return place_workload(replace(part, cluster=cluster or self.cluster, wanted=wanted))

    def divided(self, asked: StrategyRequest, in_flight: int) -> StrategyRow:
        """The row of a strategy, without figures."""
        parts = asked.parts or 1
        return StrategyRow(
            name=str(asked),
            parts=parts,
            part_size=math.ceil(self.size / parts),
            in_flight=in_flight,
            changes="nothing but rounding",  # what compares examples is refused
            call=f"placer.place(model, devices, batch_size=..., strategy='{asked}')",
        )

    def measured(
        self, row: StrategyRow, step: float, transfer_bytes: int, peaks: Mapping[str, int]
    ) -> StrategyRow:
        """``row`` with its figures."""
        return replace(
            row,
            step_seconds=step,
            samples_per_second=self.size / step if step else None,
            transfer_bytes=transfer_bytes,
            peak_bytes=peaks,
            over_bytes=over_caps(peaks, self.caps),
        )


def _require_batch(workload: Workload) -> None:
    """Raises :class:`UsageError` if the batch binds nothing or variables are updated."""
    unbound = [text for code, text, _ in workload.extraction.warnings if code == "unbound_batch"]
    if unbound:
        raise UsageError(f"{unbound[0]}: there is nothing to divide")
    graphs = (workload.graph, *workload.graph.functions.values())
    updates = [
        op.name for graph in graphs for op in graph.ops.values() if is_update_type(op.op_type)
    ]
    if updates:
        raise UsageError(
            f"the program updates variables ({updates[0]}), and each part of it would; build "
            "strategies from its loss with placer.data_parallel or placer.micro_batches, and place "
            "what they give"
        )


def _undivided(batch: _Batch) -> str:
    """Why the batch cannot be divided, ``""`` if it can."""
    if batch.size < 2:
        return "one example cannot be divided"
    half = math.ceil(batch.size / 2)
    held = [i for i in batch.whole.extraction.inputs if i.shape and i.shape[0] is None]
    inputs = [item.op for item in held]
    try:
        require_apart(batch.part(half).graph, batch.whole.graph, (half, batch.size), inputs)
    except UsageError as error:
        return str(error)
    return ""


def _one_placement(batch: _Batch) -> StrategyRow:
    row = StrategyRow(
        name="one-placement",
        parts=1,
        part_size=batch.size,
        in_flight=1,
        changes="nothing",
        call="placer.place(model, devices, objective='step-time')",
    )
    return _in_turn(batch, row, "step-time")


def _told_if_slower(row: StrategyRow, whole: StrategyRow) -> StrategyRow:
    """``row``, with a note if it takes longer than the ``whole`` batch, which fits."""
    if not whole.fits or (row.step_seconds or 0.0) <= (whole.step_seconds or 0.0):
        return row
    return replace(row, note=f"slower than {whole.name}")


def _divided_rows(batch: _Batch) -> Iterator[StrategyRow]:
    """All that divide the batch, as many as its size and the devices allow."""
    count = len(batch.cluster.workers)
    if count > 1:
        yield _side_by_side(batch, StrategyRequest(kind=TOWERS, parts=count))
    for towers in equal_groups(count):
        yield _side_by_side(batch, StrategyRequest(kind=HYBRID, parts=towers))
    for pieces in PIECES:
        if pieces <= batch.size:
            asked = StrategyRequest(kind=MICRO_BATCHES, parts=pieces)
            yield _in_turn(batch, batch.divided(asked, in_flight=1), "transfer")
    if count > 1:
        yield _pipeline(batch)


def _pipeline(batch: _Batch) -> StrategyRow:
    """What ``placer place --strategy pipeline`` builds."""
    wanted = decide_strategy(batch.devices, replace(batch.wanted, strategy=PIPELINE))
    plan = try_placing(batch.source, batch.devices, wanted)
    asked = read_strategy(wanted.strategy or PIPELINE)
    division = plan.model.get("division")
    row = batch.divided(asked, in_flight=division["in_flight"] if division else 1)
    step, transfer_bytes = plan.metrics.step_seconds, plan.metrics.transfer_bytes
    if step is None or transfer_bytes is None:
        return replace(row, note="no placement was found")
    return batch.measured(row, step, transfer_bytes, plan.peak_bytes)


def _side_by_side(batch: _Batch, asked: StrategyRequest) -> StrategyRow:
    """One tower on each group of accelerators; of groups of equal devices one is placed."""
    row = batch.divided(asked, in_flight=asked.parts or 1)
    if batch.size < row.parts:
        return replace(row, note=f"{batch.size} examples are fewer than {row.parts} towers")
    cluster, host = batch.cluster, batch.cluster.host.name
    groups = tower_groups(asked, cluster)
    variable_bytes = _variable_bytes(batch.part(row.part_size))
    placed: dict[str, tuple[list[str], Plan]] = {}
    steps, peaks, transfer = list[float](), {host: 0}, 0
    for group in groups:
        # one plan for all groups of such devices
        kind = _kind(cluster, group)
        if kind not in placed:
            objective = "transfer" if len(group) == 1 else "step-time"
            plan = batch.place(row.part_size, objective, group_alone(cluster, group))
            placed[kind] = group, plan
        like, plan = placed[kind]
        if not plan.fits:
            missing = f"do not hold a tower of {row.part_size} examples"
            return replace(row, note=f"{', '.join(group)} {missing}")
        # a tower computes while it receives the variables of the first
        received = _receive_seconds(variable_bytes, cluster, groups[0], group)
        steps.append(max(plan.metrics.step_seconds or 0.0, received))
        # its peaks by the names of this group; the host holds its share of every tower
        found = plan.peak_bytes
        peaks |= {name: found[twin] for name, twin in zip(group, like, strict=True)}
        if host not in like:
            peaks[host] += found[host]
        transfer += plan.metrics.transfer_bytes or 0
    transfer += (row.parts - 1) * variable_bytes
    return batch.measured(row, max(steps) + _divide_seconds(batch.whole), transfer, peaks)


def _kind(cluster: Cluster, group: Sequence[str]) -> str:
    """What tells groups of devices apart, besides their names."""
    devices = [replace(cluster.device(name), name="") for name in group]
    return repr((devices, [cluster.link(a, b) for a in group for b in group if a != b]))


def _variable_bytes(workload: Workload) -> int:
    return sum(
        workload.costs[variable.handle].persistent_bytes for variable in workload.graph.variables
    )


def _receive_seconds(
    size: int, cluster: Cluster, holders: Sequence[str], group: Sequence[str]
) -> float:
    """In which the devices of ``group`` get as many bytes of variables from those that hold
    them, each its share."""
    share = size // len(group)
    return max(
        0.0 if holder == device else transfer_seconds(share, cluster.link(holder, device))
        for holder, device in zip(holders, group, strict=True)
    )


def _in_turn(batch: _Batch, row: StrategyRow, objective: str) -> StrategyRow:
    """Parts one after the other through one placement."""
    plan = batch.place(row.part_size, objective)
    step, transfer_bytes = plan.metrics.step_seconds, plan.metrics.transfer_bytes
    if step is None or transfer_bytes is None:
        return replace(row, note=f"no placement of {row.part_size} examples was found")
    step *= row.parts
    if row.parts > 1:
        step += _divide_seconds(batch.whole)
    return batch.measured(row, step, row.parts * transfer_bytes, plan.peak_bytes)


def _divide_seconds(workload: Workload) -> float:
    """In which the host reads and writes all inputs and outputs once."""
    graph, costs = workload.graph, workload.costs
    fed = sum(sum(size or 0 for size in costs[op].output_bytes) for op in graph.feeds)
    fetched = 0
    for name in graph.fetches:
        tensor = graph.tensors[name]
        fetched += costs[tensor.producer].output_bytes[tensor.index] or 0
    return 2 * (fed + fetched) / workload.cluster.host.memory_bandwidth
