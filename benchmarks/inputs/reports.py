"""The table of reports: what is in each file, or why it is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from commands import placer
from model_files import Model

GIB = 1024**3
HEADER = (
    "file",
    "exit",
    "format",
    "ops reached of file",
    "resident GiB",
    "peak GiB",
    "unknown bytes",
    "unmodelled time",
    "s",
    "RSS MiB",
    "reason, options",
)


def row(model: Model, _: Path) -> dict[str, Any]:
    """The facts of one report, by name."""
    ended = placer("report", str(model.path), *model.options, "--format", "json")
    found: dict[str, Any] = {
        "file": model.name,
        "code": ended.code,
        "seconds": ended.seconds,
        "peak_bytes": ended.peak_bytes,
        "reason": ended.reason if ended.code else " ".join(model.options),
    }
    if ended.code == 0:
        report = ended.json
        found |= {key: report[key] for key in ("model", "memory", "unknown_share", "unmodelled")}
        found["unmodelled_share"] = report["compute"]["unmodelled_share"]
    return found


def cells(found: dict[str, Any]) -> list[object]:
    """One row of the table."""
    ends = [f"{found['seconds']:.1f}", f"{found['peak_bytes'] / 1024**2:.0f}", found["reason"]]
    if found["code"]:
        return [found["file"], found["code"], *[""] * 6, *ends]
    model, memory = found["model"], found["memory"]
    return [
        found["file"],
        0,
        model["format"],
        f"{model['op_count']:,} of {model['file_op_count']:,}",
        f"{(memory['weight_bytes'] + memory['constant_bytes']) / GIB:.4f}",
        f"{memory['peak_bytes'] / GIB:.4f}",
        f"{found['unknown_share']:.2%}",
        f"{found['unmodelled_share']:.1%}",
        *ends,
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """How many ended with each exit code, and the worst of each measure."""
    codes = Counter(found["code"] for found in rows)
    counted = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    slowest = max(rows, key=lambda found: found["seconds"])
    fattest = max(rows, key=lambda found: found["peak_bytes"])
    return (
        f"{len(rows)} files: {counted}. Slowest {slowest['file']} {slowest['seconds']:.1f} s; most "
        f"memory {fattest['file']} {fattest['peak_bytes'] / 1024**2:.0f} MiB."
    )
