"""Limits that end a command with exit code 7, for CI jobs."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cost_models.byte_sizes import format_bytes, parse_bytes
from cost_models.clusters import parse_cluster
from cost_models.device_names import matches
from placer.commands import options
from placer.errors import GateError, UsageError
from placer.plan.plan import Plan

if TYPE_CHECKING:
    from placer.application.verifying.verification_result import Verification

FALLBACK_CODES = ("device_string_ignored",)
"""Warnings of ops that do not run where they ask to."""


class Gates(NamedTuple):
    """What ``--fail-over`` and ``--baseline`` ask for: ``limits`` in bytes by device, and the
    ``share`` by which the figures of the ``baseline`` may be exceeded."""

    limits: Mapping[str, int]
    baseline: Plan | None
    share: float


def read_gates(arguments: argparse.Namespace) -> Gates:
    """The gates of ``place`` and ``report``, checked before any work.

    Raises ``UsageError`` for what cannot be read, a limit of no device, and one of ``--baseline``
    and a percentage without the other.
    """
    entries = [entry.strip() for text in arguments.fail_over for entry in text.split(",")]
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
        return Gates(limits, None, 0.0)
    return Gates(limits, *_read_baseline(arguments.baseline, shares))


def parse_limits(rows: Iterable[str], names: Sequence[str]) -> dict[str, int]:
    """Bytes by device name out of ``["GPU:0=9GiB", ...]``; ``GPU:*`` means every GPU.

    Raises ``UsageError`` if a limit cannot be read or names no device among ``names``.
    """
    limits: dict[str, int] = {}
    for row in rows:
        device, equals, size = row.partition("=")
        if not equals:
            raise UsageError(f"--fail-over {row!r} has no limit: write GPU:0=9GiB")
        try:
            limit, found = parse_bytes(size), [n for n in names if matches(_asked(device), n)]
        except ValueError as error:
            raise UsageError(f"--fail-over {row}: {error}") from error
        if not found:
            raise UsageError(f"--fail-over {row}: there is no such device in {', '.join(names)}")
        limits.update(dict.fromkeys(found, limit))
    return limits


def _asked(device: str) -> str:
    """The device as written, its number 0 if it has none (``cpu`` is ``CPU:0``)."""
    name = device.strip()
    return f"{name}:0" if name.isalpha() else name


def _read_baseline(path: str | None, shares: Sequence[str]) -> tuple[Plan, float]:
    if not path:
        raise UsageError(f"--fail-over {shares[0]} needs a plan to compare with: --baseline PLAN")
    if len(shares) != 1:
        raise UsageError("--baseline needs one --fail-over +5% (the most that figures may grow)")
    try:
        share = float(shares[0].removeprefix("+").removesuffix("%")) / 100
    except ValueError as error:
        raise UsageError(f"--fail-over {shares[0]} is no percentage: write +5%") from error
    if not 0 <= share < float("inf"):
        raise UsageError(f"--fail-over {shares[0]} is below zero: write +5%")
    baseline = Plan.load(path)
    if not baseline.placement:
        raise UsageError(f"--baseline {path} has no placement to compare with")
    return baseline, share


def check_plan(plan: Plan, gates: Gates) -> list[str]:
    """What is above its limit, or above the baseline by more than the share, in sentences."""
    limits, before, share = gates
    over = [
        f"{name} is predicted to peak at {format_bytes(peak)}, "
        f"the limit is {format_bytes(limits[name])}"
        for name, peak in plan.peak_bytes.items()
        if name in limits and peak > limits[name]
    ]
    if before is None or not plan.placement:
        return over
    peaks = before.peak_bytes
    figures: list[tuple[str, float | None, float | None, Callable[..., str]]] = [
        (f"the peak of {name}", peaks[name], peak, _bytes)
        for name, peak in plan.peak_bytes.items()
        if name in peaks
    ]
    then, now = before.metrics, plan.metrics
    figures += [
        ("the transfer", then.transfer_bytes, now.transfer_bytes, _bytes),
        ("the predicted step", then.step_seconds, now.step_seconds, _seconds),
    ]
    return over + [
        f"{name} is {shown(after)}, in the baseline {shown(known)} (more than +{share:.1%})"
        for name, known, after, shown in figures
        if known is not None and after is not None and after > known * (1 + share)
    ]


def _bytes(size: float) -> str:
    return format_bytes(int(size))


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def check_findings(
    gates: Sequence[str], unmodelled: Mapping[str, int], codes: Mapping[str, int]
) -> list[str]:
    """What ``--fail-on`` names and is there, in sentences; ``codes`` counts warnings by code."""
    found = []
    if "unmodelled" in gates and unmodelled:
        found.append(f"{sum(unmodelled.values()):,} ops are unmodelled: {', '.join(unmodelled)}")
    if "unknown-shape" in gates and codes.get("unknown_shape"):
        found.append(f"{codes['unknown_shape']:,} tensors have an unknown shape")
    fallen = sum(codes.get(code, 0) for code in FALLBACK_CODES)
    if "fallback" in gates and fallen:
        found.append(f"{fallen:,} ops do not run on the device that the graph asks for")
    return found


def count_codes(plan: Plan | None) -> Counter[str]:
    """How many ops or tensors each warning of a plan counts."""
    counts: Counter[str] = Counter()
    for row in plan.warnings if plan else ():
        counts[row.code] += row.count
    return counts


def check_moved(gates: Sequence[str], found: Verification) -> list[str]:
    """Ops that TensorFlow moved off the device they ask for, in a sentence."""
    moved = [row for row in found.ops if row.actual and row.actual != row.requested]
    if "fallback" not in gates or not moved:
        return []
    shown = ", ".join(row.op for row in moved[:3])
    return [f"{len(moved):,} ops ran on another device than they ask for, such as {shown}"]


def require(failures: Sequence[str]) -> None:
    """Raises ``GateError`` with every failure, if there is one."""
    if failures:
        raise GateError("a gate tripped: " + "; ".join(failures))
