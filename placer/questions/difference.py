"""The differences between two plans, or between two models."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Unpack

from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from cost_models.device_names import parse
from placer.errors import UsageError
from placer.graph.op_graph import OpGraph
from placer.pipeline.model_report import analyse
from placer.pipeline.pipeline import REFERENCE_DEVICE
from placer.pipeline.placement import predict_on_one_device
from placer.pipeline.workload import read_workload
from placer.plan.plan import Plan
from placer.plan.request import NEVER, Keywords, read_options, takes_options
from placer.plan.results import Summarised
from placer.plan.rows import PlannedDevice, device_words
from placer.strategies.requests import PIPELINE

_COUNTED = re.compile(r"_\d+(?=[/:]|$)")
"""Numbers at the end of names."""

_COMPARED = (
    "strategy",
    "batch_size",
    "devices",
    "max_memory",
    "reserve",
    "time_limit",
    "work_limit",
)
"""Options that are compared by what they come to, and those that only end a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure before and after; ``unit`` is ``bytes``, ``seconds``, ``flops`` or ``count``."""

    name: str
    unit: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        """After less before, 0 where only rounding differs; ``None`` if one is unknown."""
        if self.before is None or self.after is None:
            return None
        is_same = math.isclose(self.before, self.after, rel_tol=1e-9)
        return 0 if is_same and self.unit == "seconds" else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Difference(Summarised):
    """Figures, and names that are only in one of two plans or models.

    ``moved`` are (op or variable, device before, device after) of plans; ``only_before`` and
    ``only_after`` what one of the two lacks: transfers ("tensor from -> to") of plans, ops of
    models; ``changed`` are ops of models that are in both with other attributes, types or inputs.
    ``same_graph`` says whether the fingerprints agree, ``asked`` what two plans were asked for if
    it differs: (what, before, after).
    Tensors of unknown size, so many in one of two models, are in no figure.
    """

    before: str = field(default="before", metadata={"in_file": False})
    after: str = field(default="after", metadata={"in_file": False})
    kind: str
    same_graph: bool
    figures: tuple[Change, ...]
    moved: tuple[tuple[str, str, str], ...] = ()
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    asked: tuple[tuple[str, str, str], ...] = ()
    unknown_tensors: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no difference."""
        lists = (self.asked, self.moved, self.only_before, self.only_after, self.changed)
        return not any(lists) and all(not change.difference for change in self.figures)


def diff_plans(before: Plan, after: Plan) -> Difference:
    """Returns the differences of ``after`` from ``before``: ops that moved, and figures.

    Raises :class:`UsageError` for plans that share no op: there is nothing to compare.
    """
    if before.placement and after.placement and not set(before.placement) & set(after.placement):
        raise UsageError("the two plans share no op: they are of different models")
    rows_before, rows_after = _transfers(before), _transfers(after)
    return Difference(
        kind="plans",
        same_graph=before.model["fingerprint"] == after.model["fingerprint"],
        figures=tuple(_plan_figures(before, after)),
        moved=tuple(_moved(before.placement, after.placement)),
        only_before=tuple(row for row in rows_before if row not in rows_after),
        only_after=tuple(row for row in rows_after if row not in rows_before),
        asked=(
            *unlike_models(before, after),
            *unlike_requests(before, after),
            *_unlike_options(before, after),
        ),
    )


def unlike_models(before: Plan, after: Plan) -> tuple[tuple[str, str, str], ...]:
    """The models of two plans, as (what, before, after), where one is not a later state of the
    other: fewer than half of the ops of the smaller one are in both.  Only the last two parts of a
    name count, since the first may be the model's own (``mobilenetv2_1.40``), and no numbers that
    Keras counts up (``dense_3``)."""
    one, other = (
        Counter("/".join(_COUNTED.sub("", name).split("/")[-2:]) for name in plan.placement)
        for plan in (before, after)
    )
    if 2 * (one & other).total() >= min(one.total(), other.total()):
        return ()
    then, now = (
        f"{plan.model['path'] or 'a live program'} ({len(plan.placement):,} ops)"
        for plan in (before, after)
    )
    return (("model", then, f"{now}, which have few ops in common"),)


def unlike_requests(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    """Yields strategy, batch, devices and limits where two plans were asked for others: (what,
    before, after).  Names of devices do not count; neither does the memory of a host that nobody
    said."""
    asked = (_asked(plan) for plan in (before, after))
    for what, first, last in zip(("strategy", "batch", "devices"), *asked, strict=True):
        if first != last:
            yield what, first, last
    one, other = (_limits(plan, str) for plan in (before, after))
    if one != other:
        words = [_limits(plan, format_bytes) for plan in (before, after)]
        first, last = (one, other) if words[0] == words[1] else words
        yield "limits", first or "none", last or "none"


def _unlike_options(before: Plan, after: Plan) -> Iterator[tuple[str, str, str]]:
    """Yields the other options that two plans were asked for if they differ: what a strategy alone
    implies was not."""
    requests = [
        {k: value for k, value in plan.request.items() if value != _implied(plan).get(k)}
        for plan in (before, after)
    ]
    for key in dict.fromkeys(chain(*requests)):
        one, other = (_in_words(request.get(key, "default")) for request in requests)
        if one != other and key not in _COMPARED:
            yield key.replace("_", " "), one, other


def _implied(plan: Plan) -> Mapping[str, str]:
    """Returns the options that its strategy alone gives a plan."""
    strategy = plan.request.get("strategy") or ""
    objective = {"objective": "throughput"} if strategy.startswith(PIPELINE) else {}
    return {"offload": NEVER, **objective} if strategy else {}


def _in_words(value: Any, between: str = ", ") -> str:
    """An option of a request as it is given: ``"ids=32x20"``, ``"users*, layers*"``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_in_words(each, 'x')}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return between.join("?" if each is None else str(each) for each in value)
    return str(value)


def _asked(plan: Plan) -> tuple[str, str, str]:
    batch = plan.bindings.get("batch_size")
    told = "as in the model" if batch is None else f"{batch:,}"
    names = [row.name for row in plan.devices if row.type != "CPU"]
    hosts = len({(name.job, name.task) for name in map(parse, names)})
    on_hosts = f" on {hosts} hosts" if hosts > 1 else ""
    return plan.request.get("strategy") or "none", told, device_words(_limited(plan)) + on_hosts


def _limits(plan: Plan, render: Callable[[int], str]) -> str:
    rows = [row for row in _limited(plan) if row.memory_limit_bytes != AMPLE_BYTES]
    counts = Counter(
        sorted((row.model or row.type, row.memory_limit_bytes, row.usable_bytes) for row in rows)
    )
    return ", ".join(
        f"{count}x {kind} of {render(limit)}"
        + (f" less a reserve of {render(limit - usable)}" if usable < limit else "")
        for (kind, limit, usable), count in counts.items()
    )


def _limited(plan: Plan) -> Sequence[PlannedDevice]:
    """The devices whose limits somebody said, or the card has, but for a host as large as needed;
    all devices where there are no others."""
    said = f"{plan.request.get('devices', '')},{plan.request.get('max_memory', '')}".upper()
    is_said = "CPU" in said or ".TOML" in said
    return [
        row
        for row in plan.devices
        if row.type != "CPU" or (is_said and row.memory_limit_bytes != AMPLE_BYTES)
    ] or plan.devices


@takes_options
def diff_models(before: Any, after: Any, **options: Unpack[Keywords]) -> Difference:
    """Returns the differences of model ``after`` from ``before``, each analysed with ``options`` as
    for :func:`placer.pipeline.pipeline.report`."""
    wanted = read_options(options)
    works = [read_workload(source, REFERENCE_DEVICE, wanted) for source in (before, after)]
    reports = [analyse(work, predict_on_one_device(work)) for work in works]
    first, second = (work.graph for work in works)
    return Difference(
        kind="models",
        same_graph=first.fingerprint == second.fingerprint,
        figures=tuple(_model_figures(*reports)),
        only_before=tuple(op for op in first.ops if op not in second.ops),
        only_after=tuple(op for op in second.ops if op not in first.ops),
        changed=tuple(_changed(first, second)),
        unknown_tensors=max(len(report.unknown_shapes) for report in reports),
    )


def _plan_figures(before: Plan, after: Plan) -> Iterator[Change]:
    for key, first in before.metrics.to_json().items():
        last = getattr(after.metrics, key)
        if first is not None or last is not None:
            unit = key.rpartition("_")[2]
            unit = unit if unit in ("bytes", "seconds") else "count"
            yield Change(name=key, unit=unit, before=first, after=last)
    sizes = [("required", before.required_bytes, after.required_bytes)]
    sizes += [("peak", before.peak_bytes, after.peak_bytes)]
    devices = dict.fromkeys(row.name for plan in (before, after) for row in plan.devices)
    over = [
        {name: plan.over_bytes.get(name, 0) for name in plan.required_bytes}
        for plan in (before, after)
    ]
    for name in devices:
        if any(side.get(name) for side in over):
            first, last = (side.get(name) for side in over)
            yield Change(name=f"over limit {name}", unit="bytes", before=first, after=last)
    for what, first, last in sizes:
        for name in devices:
            yield Change(
                name=f"{what} {name}",
                unit="bytes",
                before=first.get(name),
                after=last.get(name),
            )


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for op, device in before.items():
        if after.get(op, device) != device:
            yield op, device, after[op]


def _transfers(plan: Plan) -> dict[str, None]:
    """Transfers largest first, as text, which says of a copy for kernels on the host that it is."""
    rows = sorted(plan.transfers, key=lambda row: (-(row.bytes or 0), row.memory))
    found: dict[str, None] = {}
    for row in rows:
        text = f"{row.tensor} {row.source} -> {row.target}"
        found[f"{text} ({row.memory} memory)" if text in found else text] = None
    return found


def _model_figures(before: Any, after: Any) -> Iterator[Change]:
    memory = (
        "weight_bytes optimizer_state_bytes metrics_bytes constant_bytes required_bytes "
        "peak_bytes high_bytes"
    )
    for section, unit, names in (
        ("model", "count", "op_count parameter_count"),
        ("memory", "bytes", memory),
        ("compute", "flops", "flops"),
        ("compute", "bytes", "bytes_accessed"),
        ("compute", "seconds", "step_seconds"),
    ):
        for name in names.split():
            values = [getattr(getattr(report, section), name) for report in (before, after)]
            yield Change(name=name, unit=unit, before=values[0], after=values[1])


def _changed(before: OpGraph, after: OpGraph) -> Iterator[str]:
    """Ops of both graphs that differ in type, attributes, shapes or inputs."""
    for name, op in before.ops.items():
        other = after.ops.get(name)
        if other is not None and (
            op.info != other.info
            or op.inputs != other.inputs
            or set(op.control_inputs) != set(other.control_inputs)
        ):
            yield name
