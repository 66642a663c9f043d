"""Reports as JSON: stable, sorted keys, bytes and seconds as plain numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.plan.report import Report
    from placer.questions.batch_sizes import Sweep
    from placer.questions.comparison import Comparison
    from placer.questions.strategies import StrategyComparison

REPORT_SCHEMA = "placer.report/1"
COMPARISON_SCHEMA = "placer.comparison/1"
SWEEP_SCHEMA = "placer.sweep/1"
STRATEGIES_SCHEMA = "placer.strategies/1"


def report_json(report: Report) -> str:
    """The report as JSON text; a plan in it is what ``plan.json`` would hold."""
    data = _plain(report)
    data["compute"]["arithmetic_intensity"] = report.compute.arithmetic_intensity
    if report.plan is not None:
        data["plan"] = json.loads(report.plan.to_json())
    return to_json({"schema": REPORT_SCHEMA, **data})


def comparison_json(comparison: Comparison) -> str:
    """The comparison as JSON text; the plan in it is what ``plan.json`` would hold."""
    data = _plain(comparison)
    for row, placement in zip(data["strategies"], comparison.strategies, strict=True):
        row["fits"] = placement.fits
    data["plan"] = json.loads(comparison.plan.to_json())
    return to_json({"schema": COMPARISON_SCHEMA, **data})


def strategies_json(found: StrategyComparison) -> str:
    """The strategies as JSON text."""
    data = _plain(found)
    for row, strategy in zip(data["rows"], found.rows, strict=True):
        row["fits"] = strategy.fits
    return to_json({"schema": STRATEGIES_SCHEMA, **data})


def sweep_json(sweep: Sweep) -> str:
    """The sweep as JSON text, without the reports behind it."""
    data = _plain(sweep)
    del data["reports"]
    for row, found in zip(data["rows"], sweep.rows, strict=True):
        row["samples_per_second"] = found.samples_per_second
    return to_json({"schema": SWEEP_SCHEMA, **data})


def to_json(value: Any) -> str:
    """Any frozen dataclass, mapping or sequence as JSON text with sorted keys."""
    return json.dumps(_plain(value), sort_keys=True, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Dataclasses and mappings as dicts, sequences as lists, the rest as it is."""
    if is_dataclass(value):
        return {
            item.name: _plain(getattr(value, item.name))
            for item in fields(value)
            if item.metadata.get("in_file", True)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
