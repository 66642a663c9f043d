"""Ways to run one program on several devices, side by side, by prediction.

Nothing is built here: a strategy that runs the batch in parts is predicted from the placement of
one part; where towers have equal devices, one of them is placed.  With B examples, N parts, D
accelerators, s(b) the predicted step of b examples, w(b) the busiest device's work in it, p(b) its
peak, r the resident bytes of a device and h the time in which the host divides the inputs and joins
the outputs:

- *one placement*: s(B), p(B).
- *towers*, one per accelerator: h + the largest s(B/D) of one accelerator, or the time in which it
  receives the variables (beside computing) if that is longer; p(B/D).
- *hybrid*, R towers of D/R accelerators: the same of s(B/R) on those, each of which receives its
  share of the variables.
- *micro-batches*: h + N s(B/N); p(B/N).
- *pipeline*, D pieces in flight: h + s(B/N) + (N - 1) w(B/N), the time of a pipeline whose slowest
  stage is always busy; r + D (p(B/N) - r), as many pieces' activations as are in flight.

``placer.place(..., strategy=...)`` builds them; the tests hold these formulas against the
predictions for what it builds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cost_models.devices import Cluster
from cost_models.roofline import transfer_seconds
from placer.errors import UsageError
from placer.extraction.divisibility.divisibility import require_apart
from placer.graph.program_source import ModelSource
from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import prepare
from placer.pipeline.workload import Workload
from placer.plan.plan import Plan, over_caps
from placer.plan.request import Options
from placer.plan.results import Summarised
from placer.prediction.memory.roles import is_update
from placer.strategies.requests import (
    PIECES_PER_STAGE,
    StrategyRequest,
    equal_groups,
    group_alone,
    part_devices,
    tower_groups,
)

MICRO_BATCHES = (2, 4, 8)

_SAME = "nothing but rounding"
"""What dividing changes: programs that compare examples or take their statistics are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way to run the program.

    ``parts`` of ``part_size`` examples at most, ``in_flight`` of them at a time.  All figures are
    of a whole batch, and ``None`` where there is no placement (``note`` says why).
    ``peak_bytes`` and ``over_bytes`` as in :class:`placer.questions.comparison.Strategy`.
    ``changes`` is what is different for the user, ``call`` the Python that builds it (``placer
    place --strategy`` does as well).
    """

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
class Alternatives(Summarised):
    """All of them; ``recommended`` is the name of the one with the most samples per second among
    those that fit, ``None`` if none does.  ``undivided`` says why there is but one placement."""

    model: ModelSource
    batch_size: int
    caps: Mapping[str, int]
    rows: tuple[Alternative, ...]
    recommended: str | None
    undivided: str = ""


def compare_strategies(source: Any, devices: str | Path, **options: Any) -> Alternatives:
    """Every way to run ``source`` on ``devices`` that :mod:`placer.strategies` can build.

    ``options`` as for :func:`placer.pipeline.pipeline.place`; ``batch_size`` is needed.  Raises
    :class:`UsageError` without one, where it binds nothing, or for a program that updates
    variables (its strategies are built from its loss), and what ``place`` raises.
    """
    wanted = Options(**options)
    size = wanted.batch_size
    if size is None:
        raise UsageError("strategies divide the batch: say how large it is with --batch-size N")
    parts = _Parts(source, devices, wanted)
    workload = parts.workload(size)
    _require_batch(workload)
    rows, undivided = [_one_placement(parts, size)], parts.undivided(size)
    if not undivided:
        rows += _divided_rows(parts, size)
    fitting = [row for row in rows if row.fits]
    best = max(fitting, key=lambda row: row.samples_per_second or 0.0, default=None)
    return Alternatives(
        model=workload.extraction.model,
        batch_size=size,
        caps=_caps(workload.cluster),
        rows=tuple(rows),
        recommended=best.name if best else None,
        undivided=undivided,
    )


def _divided_rows(parts: _Parts, size: int) -> Iterator[Alternative]:
    """All that divide the batch, as many as its size and the devices allow."""
    cluster = parts.workload(size).cluster
    count = len(part_devices(cluster))
    if count > 1:
        yield _towers(parts, size, StrategyRequest(kind="towers", parts=count))
    for towers in equal_groups(count):
        yield _towers(parts, size, StrategyRequest(kind="hybrid", parts=towers))
    yield from (_micro_batches(parts, size, pieces) for pieces in MICRO_BATCHES if pieces <= size)
    if count > 1 and PIECES_PER_STAGE * count <= size:
        yield _pipeline(parts, size, count)


class _Parts:
    """Workloads by batch size, each prepared once."""

    def __init__(self, source: Any, devices: str | Path, wanted: Options) -> None:
        self.source, self.devices, self.wanted = source, devices, wanted
        self.known: dict[int, Workload] = {}

    def workload(self, size: int) -> Workload:
        if size not in self.known:
            wanted = replace(self.wanted, batch_size=size)
            self.known[size] = prepare(self.source, self.devices, wanted)
        return self.known[size]

    def undivided(self, size: int) -> str:
        """Why the batch cannot be divided, ``""`` if it can."""
        if size < 2:
            return "one example cannot be divided"
        half = math.ceil(size / 2)
        small, large = self.workload(half).extraction, self.workload(size).extraction
        batched = [item for item in large.inputs if item.shape and item.shape[0] is None]
        inputs = [item.tensor.partition(":")[0] for item in batched]
        try:
            require_apart(small.graph, large.graph, (half, size), inputs)
        except UsageError as error:
            return str(error)
        return ""

    def place(self, size: int, objective: str, cluster: Cluster | None = None) -> Plan:
        workload = self.workload(size)
        wanted = replace(self.wanted, batch_size=size, objective=objective)
        return place_workload(replace(workload, cluster=cluster or workload.cluster, wanted=wanted))


def _require_batch(workload: Workload) -> None:
    """Nothing, if the program can be divided along the batch.

    Raises :class:`UsageError` if the batch binds nothing or variables are updated.
    """
    extraction = workload.extraction
    unbound = [message for code, message, _ in extraction.warnings if code == "unbound_batch"]
    if unbound:
        raise UsageError(f"{unbound[0]}: there is nothing to divide")
    graph = extraction.graph
    parts = (graph, *graph.functions.values())
    updates = [op.name for part in parts for op in part.ops.values() if is_update(op)]
    if updates:
        raise UsageError(
            f"the program updates variables ({updates[0]}), and each part of it would; build "
            "strategies from its loss with placer.data_parallel or placer.micro_batches, and place "
            "what they give"
        )


def _one_placement(parts: _Parts, size: int) -> Alternative:
    row = Alternative(
        name="one-placement",
        parts=1,
        part_size=size,
        in_flight=1,
        changes="nothing",
        call="placer.place(model, devices, objective='step-time')",
    )
    plan = parts.place(size, "step-time")
    return _measured(row, plan, plan.metrics["step_seconds"], size)


def _towers(parts: _Parts, size: int, asked: StrategyRequest) -> Alternative:
    """One tower on each group of accelerators; of groups of equal devices one is placed."""
    count = asked.parts or 1
    part = math.ceil(size / count)
    row = Alternative(
        name=str(asked),
        parts=count,
        part_size=part,
        in_flight=count,
        changes=_SAME,
        call=_call(asked),
    )
    if size < count:
        return replace(row, note=f"{size} examples are fewer than {count} towers")
    workload = parts.workload(part)
    cluster, groups = workload.cluster, tower_groups(asked, workload.cluster)
    placed: dict[object, tuple[list[str], Plan]] = {}
    steps, peaks, transfer = [], dict.fromkeys([cluster.host.name], 0), 0
    for group in groups:
        objective = "transfer" if len(group) == 1 else "step-time"
        kind = _kind(cluster, group)
        if kind not in placed:
            placed[kind] = group, parts.place(part, objective, group_alone(cluster, group))
        like, plan = placed[kind]
        if not plan.fits:
            return replace(row, note=f"{', '.join(group)} do not hold a tower of {part} examples")
        received = _receive_seconds(_variable_bytes(workload), cluster, groups[0], group)
        steps.append(max(plan.metrics["step_seconds"], received))
        found = plan.peak_bytes
        peaks |= {name: found[twin] for name, twin in zip(group, like, strict=True)}
        if cluster.host.name not in like:
            peaks[cluster.host.name] += found[cluster.host.name]
        transfer += plan.metrics["transfer_bytes"]
    step = max(steps) + _divide_seconds(parts.workload(size))
    return replace(
        row,
        step_seconds=step,
        samples_per_second=size / step,
        transfer_bytes=transfer + (count - 1) * _variable_bytes(workload),
        peak_bytes=peaks,
        over_bytes=over_caps(peaks, _caps(cluster)),
    )


def _call(asked: StrategyRequest) -> str:
    return f"placer.place(model, devices, batch_size=..., strategy='{asked}')"


def _kind(cluster: Cluster, group: Sequence[str]) -> object:
    """What tells groups of devices apart, besides their names."""
    devices = [replace(cluster.device(name), name="") for name in group]
    return repr((devices, [cluster.link(a, b) for a in group for b in group if a != b]))


def _variable_bytes(workload: Workload) -> int:
    variables = workload.extraction.graph.variables
    return sum(workload.costs[variable.handle].persistent_bytes for variable in variables)


def _receive_seconds(
    size: int, cluster: Cluster, holders: Sequence[str], group: Sequence[str]
) -> float:
    """In which the devices of ``group`` get as many bytes of variables from those that hold
    them, each its share."""
    pairs = zip(holders, group, strict=True)
    share = size // len(group)
    return max(
        0.0 if holder == device else transfer_seconds(share, cluster.link(holder, device))
        for holder, device in pairs
    )


def _micro_batches(parts: _Parts, size: int, count: int) -> Alternative:
    part = math.ceil(size / count)
    row = Alternative(
        name=f"micro-batches:{count}",
        parts=count,
        part_size=part,
        in_flight=1,
        changes=_SAME,
        call=_call(StrategyRequest(kind="micro-batches", parts=count)),
    )
    plan = parts.place(part, "transfer")
    step = plan.metrics["step_seconds"]
    if step is not None:
        step = count * step + _divide_seconds(parts.workload(size))
    return _measured(row, plan, step, size, times=count)


def _pipeline(parts: _Parts, size: int, stages: int) -> Alternative:
    count = PIECES_PER_STAGE * stages
    part = math.ceil(size / count)
    row = Alternative(
        name=f"pipeline:{count}",
        parts=count,
        part_size=part,
        in_flight=stages,
        changes=_SAME,
        call=_call(StrategyRequest(kind="pipeline", parts=count)),
    )
    plan = parts.place(part, "throughput")
    step = None
    if plan.placement:
        metrics = plan.metrics
        step = metrics["step_seconds"] + (count - 1) * metrics["bottleneck_seconds"]
        step += _divide_seconds(parts.workload(size))
    found = _measured(row, plan, step, size, times=count)
    resident = {each["name"]: each["resident_bytes"] or 0 for each in plan.devices}
    peaks = {
        name: resident[name] + stages * max(0, peak - resident[name])
        for name, peak in found.peak_bytes.items()
    }
    caps = _caps(parts.workload(part).cluster)
    return replace(found, peak_bytes=peaks, over_bytes=over_caps(peaks, caps))


def _measured(
    row: Alternative, plan: Plan, step_seconds: float | None, size: int, times: int = 1
) -> Alternative:
    """The row with the figures of ``plan``, which runs ``times`` per batch."""
    if not plan.placement or step_seconds is None:
        return replace(row, note=f"no placement of {row.part_size} examples was found")
    return replace(
        row,
        step_seconds=step_seconds,
        samples_per_second=size / step_seconds if step_seconds else None,
        transfer_bytes=times * plan.metrics["transfer_bytes"],
        peak_bytes=plan.peak_bytes,
        over_bytes=plan.over_bytes,
    )


def _divide_seconds(workload: Workload) -> float:
    """In which the host reads and writes all inputs and outputs once."""
    graph, costs = workload.extraction.graph, workload.costs
    fed = sum(sum(size or 0 for size in costs[op].output_bytes) for op in graph.feeds)
    fetched = 0
    for name in graph.fetches:
        tensor = graph.tensors[name]
        fetched += costs[tensor.producer].output_bytes[tensor.index] or 0
    return 2 * (fed + fetched) / workload.cluster.host.memory_bandwidth


def _caps(cluster: Cluster) -> dict[str, int]:
    return {device.name: device.usable_bytes for device in cluster.devices}
