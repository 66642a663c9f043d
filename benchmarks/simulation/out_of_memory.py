"""Five scripts with 60% of the memory that they take: who asked for more, and who held it?

    python benchmarks/simulation/out_of_memory.py [SCRIPT ...]

Each script runs twice on one simulated T4: for what it takes at most, and limited to 60% of that.
What ``placer simulate`` says of the refusal is held against TensorFlow's own records: the line
and the table of chunks of its allocator (who asked for how much, what was in use), and its log of
tensors (``log_memory``), which names the kernels that gave out what lies at an address.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = ("fit_text", "fit_transformer", "mirrored", "session_training", "own_loop")
SHARE = 0.6
ASKED = re.compile(
    r"Allocator \(GPU_0_bfc\) ran out of memory .*?\(rounded to (\d+)\)requested by op (.*)"
)
CHUNK = re.compile(r"\] InUse at ([0-9a-f]+) of size (\d+) ")
VARIABLE = re.compile(r"^variable |/Initializer/")
TENSOR = re.compile(r'kernel_name: "([^"]*)".*allocator_name: "GPU_0_bfc".* ptr: (\d+)')


def run(script: str, devices: str, folder: Path) -> tuple[int, str, dict[str, Any]]:
    """Exit code, stderr and record of a script under ``placer simulate``."""
    record = folder / "run.json"
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "placer", "simulate", "--devices", devices, "--no-xla", "-q"]
    command += ["--format", "json", "-o", str(record), "--force", "--", sys.executable]
    logged = {"TF_CPP_VMODULE": "log_memory=2", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(
        [*command, str(HERE / "scripts" / f"{script}.py")],
        env={**os.environ, **logged},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stderr, json.loads(record.read_text())


def last_refusal(log: str) -> tuple[int, str, dict[int, int], dict[int, set[str]]]:
    """What TensorFlow logs of the last refusal: bytes and op, the size of every chunk in use by
    address, and the kernels that gave out what lies at an address."""
    asked, op, chunks = 0, "", {}
    kernels: dict[int, set[str]] = defaultdict(set)
    for line in log.splitlines():
        if found := ASKED.search(line):
            asked, op, chunks = int(found[1]), found[2].strip(), {}
        elif found := CHUNK.search(line):
            chunks[int(found[1], 16)] = int(found[2])
        elif (found := TENSOR.search(line)) and not op:
            kernels[int(found[2])].add(found[1])
    return asked, op, chunks, kernels


def checks(log: str, refused: dict[str, Any]) -> Iterator[str]:
    """The columns of one row."""
    asked, op, chunks, kernels = last_refusal(log)
    rounded = -(-refused["asked_bytes"] // 256) * 256
    same = "yes" if (rounded, refused["op"]) == (asked, op) else f"**{op} {asked:,}**"
    yield f"{refused['op']}, {refused['asked_bytes'] / 1e6:.2f} MB"
    if not chunks:  # autotuning does without, in silence, until no algorithm is left
        yield "by its error" if f"{{{{node {refused['op']}}}}}" in log else "**not by its error**"
        return
    yield same
    in_use = sum(chunks.values())
    yield "yes" if in_use == refused["in_use_bytes"] else f"**{in_use:,}**"
    held = {row["op"]: row["held_bytes"] for row in refused["held"]}
    variables = sum(size for op, size in held.items() if VARIABLE.search(op))
    read, named, agreed = 0, 0, 0
    for at, size in chunks.items():
        known = {kernel for kernel in kernels.get(at, ()) if not kernel.startswith("Unknown")}
        if any("ReadVariableOp" in kernel for kernel in known):
            read += size
        elif known:
            named += size
            agreed += size if known & set(held) else 0
    yield f"{agreed / 1e6:.2f} of {named / 1e6:.2f} MB"
    yield f"{variables / 1e6:.2f}, {read / 1e6:.2f} MB"


def main() -> None:
    """Prints a row for every script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT")
    header = ("script", "takes, MB", "limit", "ends with", "asked", "as TensorFlow says")
    header += (
        "in use as its chunks",
        "held by the ops of its log",
        "variables, those read in its log",
    )
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for script in parser.parse_args().scripts or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            _, _, free = run(script, "T4", Path(folder))
            takes = free["peak_bytes"]["GPU:0"]
            code, log, found = run(script, f"GPU:{int(SHARE * takes) >> 10}KiB", Path(folder))
        error = re.findall(r"(\w+Error): ", log)[-1:] or ["no error"]
        gpus = [gpu for process in found["processes"] for gpu in process["gpus"]]
        refused = next((gpu["refused"] for gpu in gpus if gpu["refused"]), None)
        columns = checks(log, refused) if refused else ["nothing was refused"]
        row = (script, f"{takes / 1e6:.1f}", f"{SHARE:.0%}", f"{code}, {error[0]}", *columns)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
