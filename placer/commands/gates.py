"""Limits that end a command with exit code 7, for CI jobs.

A gate is about the model, not about which of several placements a search came by: it trips only if
neither the new placement nor the baseline's own, predicted again, keeps the limits.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from cost_models.byte_sizes import bytes_with_unit, format_bytes, format_count, format_seconds
from cost_models.clusters import parse_cluster
from cost_models.device_names import matches
from placer.commands import options
from placer.errors import GateError, UsageError
from placer.plan.plan import Plan
from placer.plan.rows import GateVerdict
from placer.problem.device_peaks import LEAST_LIMIT_BYTES

if TYPE_CHECKING:
    from placer.application.verifying.verification_result import Verification


class Gates(NamedTuple):
    """The gates of a command line: ``limits`` in bytes by device, and the ``share`` by which the
    figures of the ``baseline`` may be exceeded, ``findings`` what ``--fail-on`` names."""

    limits: Mapping[str, int]
    baseline: Plan | None
    share: float
    findings: tuple[str, ...] = ()

    @property
    def are_asked(self) -> bool:
        """Whether there is any gate."""
        return bool(self.limits or self.baseline or self.findings)


def read_gates(arguments: argparse.Namespace) -> Gates:
    """The gates of ``place`` and ``report``, checked before any work.

    Raises ``UsageError`` for what cannot be read, a limit of no device, and one of ``--baseline``
    and a percentage without the other.
    """
    entries = [entry.strip() for text in arguments.fail_above for entry in text.split(",")]
    shares = [entry for entry in entries if entry.endswith("%")]
    rows = [entry for entry in entries if not entry.endswith("%")]
    limits: dict[str, int] = {}
    if rows:
        wanted = options.device_options(arguments)
        try:
            cluster = parse_cluster(arguments.devices, wanted["max_memory"], wanted["reserve"])
        except ValueError as error:
            raise UsageError(str(error)) from error
        limits = parse_limits(rows, [device.name for device in cluster.devices])
    if not shares and not arguments.baseline:
        return Gates(limits, None, 0.0, arguments.fail_on)
    baseline, share = _read_baseline(arguments.baseline, shares)
    return Gates(limits, baseline, share, arguments.fail_on)


def parse_limits(rows: Iterable[str], names: Sequence[str]) -> dict[str, int]:
    """Bytes by device name out of ``["GPU:0=9GiB", ...]``; ``GPU:*`` means every GPU.

    Raises ``UsageError`` if a limit cannot be read or names no device among ``names``.
    """
    limits: dict[str, int] = {}
    for row in rows:
        device, equals, size = row.partition("=")
        if not equals:
            growth = ", or +5% for growth over a --baseline" if row.startswith("+") else ""
            raise UsageError(
                f"--fail-above {row}: write a device and its limit, GPU:0=9GiB{growth}"
            )
        try:
            limit, found = bytes_with_unit(size), [n for n in names if matches(_asked(device), n)]
        except ValueError as error:
            raise UsageError(f"--fail-above {row}: {error}") from error
        if not found:
            raise UsageError(f"--fail-above {row}: there is no such device in {', '.join(names)}")
        if twice := [name for name in found if name in limits]:
            raise UsageError(f"--fail-above has two limits for {twice[0]}: give one")
        limits.update(dict.fromkeys(found, limit))
    return limits


def _asked(device: str) -> str:
    """The devices as written: ``CPU`` is ``CPU:0``, ``GPU`` every GPU."""
    name = device.strip()
    return f"{name}:{'0' if name.lower() == 'cpu' else '*'}" if name.isalpha() else name


def _read_baseline(path: str | None, shares: Sequence[str]) -> tuple[Plan, float]:
    if not path:
        raise UsageError(
            f"--fail-above {shares[0]} requires a plan to compare with: --baseline PLAN"
        )
    if len(shares) != 1:
        raise UsageError(
            "--baseline requires one --fail-above +N%, the growth that is allowed, such as +5%"
        )
    try:
        share = float(shares[0].removeprefix("+").removesuffix("%")) / 100
    except ValueError as error:
        raise UsageError(f"--fail-above {shares[0]} is not a percentage: write +5%") from error
    if not 0 <= share < float("inf"):
        raise UsageError(f"--fail-above {shares[0]} is below zero: write +5%")
    baseline = Plan.load(path)
    if not baseline.placement:
        raise UsageError(f"--baseline {path} has no placement to compare with")
    return baseline, share


def require_like(baseline: Plan, plan: Plan | None, path: str) -> None:
    """Raises ``UsageError`` if the ``baseline`` in the file ``path`` is of another model, strategy
    or batch, of other devices or of other limits than ``plan``: its figures say nothing about this
    one."""
    from placer.questions.difference import unlike_models, unlike_requests

    if plan is None:
        return
    unlike = (*unlike_models(baseline, plan), *unlike_requests(baseline, plan))
    if unlike:
        differing = "; ".join(f"{what} {then}, here {now}" for what, then, now in unlike)
        raise UsageError(
            f"--baseline {path} was made for another request: {differing}. Ask for the same, or "
            "make the baseline again"
        )


def predict_baseline(
    arguments: argparse.Namespace, wanted: Mapping[str, Any], baseline: Plan
) -> Plan | None:
    """The baseline with what its own placement takes now, if the model is still the same."""
    from placer.questions.saved_plans import predict_now

    return predict_now(baseline, arguments.model, arguments.devices, **wanted)


def judge(
    gates: Gates,
    plan: Plan | None,
    unmodelled: Mapping[str, int],
    codes: Mapping[str, int],
    predicted_now: Callable[[Plan], Plan | None],
) -> GateVerdict:
    """The verdict on a plan and on what was found on the way; ``codes`` counts warnings by code,
    ``predicted_now`` gives the baseline with what its placement takes now, if there is that."""
    failures = check_findings(gates.findings, unmodelled, codes, plan)
    notes = _limits_of_tensors(plan, gates.limits) if plan and plan.fits else []
    if plan is not None and not plan.fits:
        failures.append("no placement keeps the memory limits")
    elif plan is not None:
        over = check_plan(plan, gates)
        known = predicted_now(gates.baseline) if over and gates.baseline else None
        if known is not None and not check_plan(known, gates):
            notes += ["the placement of the baseline still keeps the limits", *over]
        else:
            failures += over
    return GateVerdict(passed=not failures, failures=tuple(failures), notes=tuple(notes))


def _limits_of_tensors(plan: Plan, limits: Mapping[str, int]) -> list[str]:
    """Returns a sentence for each limit that holds for less than the required memory."""
    return [
        f"{row.name} requires {format_bytes(row.required_bytes)}; a limit below "
        f"{format_bytes(LEAST_LIMIT_BYTES)} is compared with its peak, {format_bytes(peak)}"
        for row in plan.devices
        if (peak := row.required_under(limits.get(row.name, row.usable_bytes)) or 0)
        < (row.required_bytes or 0)
    ]


def check_plan(plan: Plan, gates: Gates) -> list[str]:
    """Returns a sentence for each figure above its limit, or too far above the baseline."""
    limits, before, share = gates.limits, gates.baseline, gates.share
    over = [
        f"{row.name} {'peaks at' if required < (row.required_bytes or 0) else 'requires'} "
        f"{format_bytes(required)}, {format_bytes(required - limit)} more than its --fail-above "
        f"limit of {format_bytes(limit)}"
        for row in plan.devices
        if (limit := limits.get(row.name)) is not None
        and (required := row.required_under(limit) or 0) > limit
    ]
    if before is None or not plan.placement:
        return over
    then, now = before.metrics, plan.metrics
    figures: list[tuple[str, float | None, float | None, Callable[..., str]]] = [
        *((name, known, size, _bytes) for name, known, size in _ranked_sizes(before, plan)),
        ("what a step sends", then.sent_bytes, now.sent_bytes, _bytes),
        ("the predicted step", then.step_seconds, now.step_seconds, format_seconds),
    ]
    return over + [
        f"{name} is {shown(after)}, in the baseline {shown(known)} (more than +{share:.1%})"
        for name, known, after, shown in figures
        if known is not None and after is not None and after > known * (1 + share)
    ]


def _ranked_sizes(before: Plan, after: Plan) -> Iterator[tuple[str, int, int]]:
    """Yields the required memory of two plans on the fullest device of each kind, on the two
    fullest, and so on: names do not count, and the more even division is not the worse one."""
    known, found = _sizes_by_kind(before), _sizes_by_kind(after)
    for (kind, model), (names, sizes) in found.items():
        _, then = known.get((kind, model), ((), ()))
        sums = zip(names, accumulate(then), accumulate(sizes), strict=False)
        for count, (name, one, other) in enumerate(sums, start=1):
            several = f"the {count} fullest {model or kind} devices together"
            yield f"the required memory of {name if count == 1 else several}", one, other


def _sizes_by_kind(plan: Plan) -> dict[tuple[str, str], tuple[Sequence[str], Sequence[int]]]:
    """Names and required memory of the devices of each type and model, the fullest first."""
    kinds: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in plan.devices:
        if row.required_bytes is not None:
            kinds.setdefault((row.type, row.model), []).append((row.required_bytes, row.name))
    ranked = {kind: sorted(rows, key=lambda row: -row[0]) for kind, rows in kinds.items()}
    return {kind: ([n for _, n in rows], [p for p, _ in rows]) for kind, rows in ranked.items()}


def _bytes(size: float) -> str:
    return format_bytes(int(size))


def check_findings(
    gates: Sequence[str],
    unmodelled: Mapping[str, int],
    codes: Mapping[str, int],
    plan: Plan | None = None,
) -> list[str]:
    """Returns a sentence for each finding of ``--fail-on``; ``codes`` counts warnings by code."""
    found = []
    for row in plan.devices if plan and "offload" in gates else ():
        if row.offloaded:
            what = f"{row.offloaded} of ops" if row.spilled_bytes else row.offloaded
            found.append(f"{what} with a GPU kernel are offloaded to {row.name}")
    if "offload" in gates and not found and codes.get("all_on_host"):
        found.append("everything is offloaded to the host")
    if "unmodelled" in gates and unmodelled:
        found.append(
            f"{sum(unmodelled.values()):,} ops have no cost model: {', '.join(unmodelled)}"
        )
    if "unknown-shape" in gates and codes.get("unknown_shape"):
        found.append(f"{codes['unknown_shape']:,} tensors have an unknown shape")
    if "unknown-shape" in gates and codes.get("assumed_sizes"):
        found.append(f"{codes['assumed_sizes']:,} tensors that may be sent have an unknown size")
    fallen = codes.get("device_string_ignored", 0)
    if "fallback" in gates and fallen:
        found.append(f"{fallen:,} ops do not run on the device that the graph asks for")
    return found


def count_codes(plan: Plan | None) -> Counter[str]:
    """How many ops or tensors each warning of a plan counts."""
    counts: Counter[str] = Counter()
    for row in plan.warnings if plan else ():
        counts[row.code] += row.count
    return counts


def check_moved(gates: Sequence[str], found: Verification) -> GateVerdict | None:
    """The verdict on ops that TensorFlow moved off the device they ask for; ``None`` if that is no
    gate."""
    if "fallback" not in gates:
        return None
    moved = [row for row in found.ops if row.actual and row.actual != row.requested]
    if not moved:
        return GateVerdict(passed=True)
    shown = ", ".join(row.op for row in moved[:3])
    count = format_count(len(moved), "op")
    sentence = f"{count} ran on another device than was asked for, such as {shown}"
    return GateVerdict(passed=False, failures=(sentence,))


def require(verdict: GateVerdict | None) -> None:
    """Raises ``GateError`` with every failure, if there is one."""
    if verdict is not None and not verdict.passed:
        raise GateError("a gate tripped: " + "; ".join(verdict.failures))
