"""The transfer of TensorFlow graphs by ``placer solve`` and by Mt-KaHyPar, on the same files.

    python benchmarks/graphs/run.py FOLDER [NAME ...] [--time-limit 60] [--solvers placer,peer]

takes the problems that ``problems.py`` wrote to ``FOLDER`` and puts each on 2, 4 and 8 equal
devices with caps of 105%, 130% and 200% of an equal share.  What has run is kept in
``FOLDER/rows.json`` and is not run again; ``--table`` prints the table of what is there and runs
nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from equal_devices import on_devices

from placer.problem.placement_problem import from_json, to_json

HERE = Path(__file__).parent
DEVICES = (2, 4, 8)
PERCENTS = (105, 130, 200)
COLUMNS = (
    *("graph", "groups", "devices", "caps", "placer, MB", "bound, MB", "gap", "status", "s"),
    *("Mt-KaHyPar, MB", "blocks", "s", "ratio", "all blocks, MB", "ratio"),
)
PLACER_WORSE = 1.001
NO_PLACEMENT = (5, 6)
"""Exit codes: proven infeasible, none found in time; what is known is written all the same."""


class Rows:
    """The results so far, on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, dict[str, Any]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def has(self, key: str, solver: str) -> bool:
        return solver in self.content.get(key, {})

    def put(self, key: str, solver: str, result: Any, **facts: Any) -> None:
        self.content.setdefault(key, facts)[solver] = result
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps(self.content, indent=1))
        draft.replace(self.path)


def solve(solver: str, problem: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What one solver says of a problem file."""
    result = problem.with_suffix(".result.json")
    result.unlink(missing_ok=True)
    if solver == "peer":
        command = [str(HERE / "peer.py"), str(problem), str(result)]
        command += [f"--preset={options.preset}", f"--threads={options.threads}"]
    else:
        command = ["-m", "placer", "solve", str(problem), "-q", "--force", "-o", str(result)]
        command += [f"--time-limit={options.time_limit}"]
    done = subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL)
    if done.returncode not in (0, *NO_PLACEMENT):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    content = json.loads(result.read_text())
    if solver == "peer":
        return content
    kept = ("status", "value", "lower_bound", "seconds", "warnings")
    return {name: content[name] for name in kept}


def run(path: Path, rows: Rows, options: argparse.Namespace) -> None:
    """All cells of one graph that have not run yet."""
    base = from_json(path.read_text())
    facts = {"graph": path.stem, "ops": len(base.op_names), "groups": len(set(base.group))}
    for devices in options.devices:
        for percent in options.percents:
            key = f"{path.stem} {devices} {percent}"
            missing = [name for name in options.solvers if not rows.has(key, name)]
            if not missing:
                continue
            capacity = sum(base.resident_bytes) * percent // (100 * devices)
            with tempfile.TemporaryDirectory() as folder:
                problem = Path(folder, "problem.json")
                problem.write_text(to_json(on_devices(base, devices, capacity)))
                for name in missing:
                    result = solve(name, problem, options)
                    rows.put(key, name, result, **facts, devices=devices, percent=percent)
                    print(key, name, json.dumps(result), flush=True)


def table(rows: Rows) -> Iterator[str]:
    """The table in markdown, and what follows from it."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|" + "---|" * len(COLUMNS)
    best_ratios, full_ratios = [], []
    for row in sorted(
        rows.content.values(), key=lambda r: (r["groups"], r["devices"], r["percent"])
    ):
        ours, peer = row.get("placer"), row.get("peer")
        if not ours or not peer or ours["value"] == 0:
            continue  # not run yet, or the optimum is zero
        blocks = {int(count): value for count, value in peer["blocks"].items() if value is not None}
        count = min(blocks, key=lambda each: blocks[each], default=0)
        full = blocks.get(row["devices"])
        found = ours["value"] is not None
        best_ratios += [_ratio(ours, blocks[count])] if found and count else []
        is_roomy = row["percent"] == PERCENTS[-1]
        full_ratios += [_ratio(ours, full)] if found and full and is_roomy else []
        yield "| " + " | ".join(_cells(row, ours, peer, count, blocks.get(count), full)) + " |"
    yield ""
    worse = [ratio for ratio in best_ratios if ratio > PLACER_WORSE]
    yield (
        f"Against the best number of blocks: {len(worse)} of {len(best_ratios)} rows above "
        f"{PLACER_WORSE}, geometric mean {_mean(best_ratios):.3f}."
    )
    yield (
        f"At {PERCENTS[-1]}%, against as many blocks as devices: geometric mean "
        f"{_mean(full_ratios):.3f} over {len(full_ratios)} rows."
    )


def _cells(
    row: dict[str, Any],
    ours: dict[str, Any],
    peer: dict[str, Any],
    count: int,
    best: int | None,
    full: int | None,
) -> Iterator[str]:
    bound = ours["lower_bound"]
    yield from (row["graph"], f"{row['groups']:,}", str(row["devices"]), f"{row['percent']}%")
    yield _megabytes(ours["value"])
    yield _megabytes(bound)
    yield "" if bound is None or not ours["value"] else f"{1 - bound / ours['value']:.1%}"
    yield from (ours["status"], f"{ours['seconds']:.0f}", _megabytes(best), str(count or ""))
    yield f"{peer['seconds']:.0f}"
    yield f"{_ratio(ours, best):.4f}" if best and ours["value"] else ""
    yield _megabytes(full)
    yield f"{_ratio(ours, full):.4f}" if full and ours["value"] else ""


def _megabytes(value: float | None) -> str:
    return "none" if value is None else f"{value / 1e6:,.3f}"


def _ratio(ours: dict[str, Any], value: float) -> float:
    return float(ours["value"] or "nan") / value


def _mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--devices", type=_numbers, default=DEVICES)
    parser.add_argument("--percents", type=_numbers, default=PERCENTS)
    parser.add_argument("--solvers", type=lambda text: text.split(","), default=["placer", "peer"])
    parser.add_argument("--preset", default="HIGHEST_QUALITY", help="of Mt-KaHyPar")
    parser.add_argument("--threads", type=int, default=2, help="of Mt-KaHyPar")
    parser.add_argument("--rows", type=Path, help="instead of FOLDER/rows.json")
    parser.add_argument("--table", action="store_true", help="print it and run nothing")
    options = parser.parse_intermixed_args()
    rows = Rows(options.rows or options.folder / "rows.json")
    if not options.table:
        for path in sorted(options.folder.glob("*.json"), key=lambda path: path.stat().st_size):
            chosen = not options.names or path.stem in options.names
            if chosen and path != rows.path:
                run(path, rows, options)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
