"""Measured op costs from a file, for ``--costs``."""

from __future__ import annotations

import json
import math
from pathlib import Path

from placer.errors import UsageError


def read_costs(path: str) -> dict[str, float]:
    """Seconds of one execution by op name: a JSON object such as ``{"dense/MatMul": 1.2e-5}``.

    Raises ``UsageError`` if the file cannot be read or a value is no time.
    """
    try:
        costs = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--costs {path}: cannot be read as JSON: {error}") from error
    if not isinstance(costs, dict):
        raise UsageError(f'--costs {path}: not an object such as {{"dense/MatMul": 1.2e-5}}')
    for name, seconds in costs.items():
        if not _is_time(seconds):
            raise UsageError(f"--costs {path}: {name} is {seconds!r}, not seconds of zero or more")
    return {name: float(seconds) for name, seconds in costs.items()}


def _is_time(seconds: object) -> bool:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return is_number and math.isfinite(seconds) and seconds >= 0  # type: ignore[arg-type, operator]
