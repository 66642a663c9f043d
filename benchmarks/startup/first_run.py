"""Three runs of ``placer place``, the first of which finds nothing compiled.

    python benchmarks/startup/first_run.py GRAPH.pb --devices 2xA100-40GB --batch-size 32 \
        --max-memory GPU:0=2GiB,GPU:1=2GiB --time-limit 30

Seconds from the start until the search begins (with a first placement, which needs nothing
compiled), until it waits for machine code, and until the end; the processor's of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STAGES = {"reads": "reading the model", "searches": "searching a placement", "waits": "compiling"}
"""What the log says when they begin."""


def run_once(words: list[str], folder: Path) -> dict[str, object]:
    """One run with ``folder`` for what is compiled: its plan's figures, and when what began."""
    plan = folder / "plan.json"
    command = [sys.executable, "-m", "placer", "place", *words, "-v", "-o", str(plan), "--force"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    began: dict[str, float] = {}
    start = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            for stage, text in STAGES.items():
                if text in line:
                    began.setdefault(stage, time.perf_counter() - start)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    solver = json.loads(plan.read_text())["solver"] if plan.exists() else {}
    return {
        "exit_code": process.returncode,
        **{name: solver.get(name) for name in ("status", "value", "lower_bound")},
        "search_seconds": round(solver.get("seconds", 0.0), 2),
        **{f"{stage}_at": round(seconds, 2) for stage, seconds in began.items()},
        "wall_seconds": round(time.perf_counter() - start, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    arguments, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.runs):
            print(json.dumps(run_once(words, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
