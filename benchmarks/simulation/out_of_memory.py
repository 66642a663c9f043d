"""Five scripts with 60% of the memory that they take: who asked for more, and who held it?

    python benchmarks/simulation/out_of_memory.py [SCRIPT ...]

Each script runs twice on one simulated T4: for what it takes at most, and limited to 60% of that.
What ``placer simulate`` says of the refusal is held against TensorFlow's own records, which it logs
as they happen: every allocation with its address, the kernel that a tensor was allocated for and
its release (``log_memory``), the op that is run eagerly, and the line and the table of chunks at
the end (who asked for how much, what was in use).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = ("fit_text", "fit_transformer", "mirrored", "session_training", "own_loop")
SHARE = 0.6
COPIED = "_EagerConst"
VARIABLE = "variable "
UNNAMED = re.compile("Unknown|__")
"""Tensors that no kernel asked for, and calls of functions, whose scratch memory has no tensor."""

LOGGED = "log_memory=2,bfc_allocator=3,execute=1"


def run(
    script: str, devices: str, folder: Path, *, is_logged: bool
) -> tuple[int, str, dict[str, Any]]:
    """Exit code, stderr and record of a script under ``placer simulate``."""
    record = folder / "run.json"
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "placer", "simulate", "--devices", devices, "--no-xla", "-q"]
    command += ["--format", "json", "-o", str(record), "--force", "--", sys.executable]
    logged = {"TF_CPP_VMODULE": LOGGED if is_logged else "", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(
        [*command, str(HERE / "scripts" / f"{script}.py")],
        env={**os.environ, **logged},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stderr, json.loads(record.read_text())


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Memory in use: as much as was asked for or, where the table of chunks has it, as it takes."""

    size: int
    op: str


class Records:
    """TensorFlow's log up to its last refusal: ``asked_bytes`` and what was ``held`` then, by
    address; ``asker`` is empty where it refused in silence."""

    def __init__(self, log: str) -> None:
        self.asked_bytes, self.asker, self.held = 0, "", dict[int, Chunk]()
        self._in_use: dict[int, Chunk] = {}
        self._running: dict[str, str] = {}  # the op that each thread runs eagerly
        self._tensors: dict[str, int] = {}  # their addresses
        self._unnamed: Chunk | None = None  # the last tensor that no kernel asked for
        self._told: tuple[str, dict[int, Chunk]] = ("", {})
        for line in log.splitlines():
            for pattern, note in LINES:
                if found := pattern.search(line):
                    note(self, found)
                    break

    def execute(self, found: re.Match[str]) -> None:
        thread, op = found.groups()
        if op != COPIED:
            self._running[thread] = op
        elif self._unnamed:  # this op is logged behind the copy itself
            self._unnamed.op = op
            self._unnamed = None

    def take(self, found: re.Match[str]) -> None:
        thread, size, address = found.groups()
        chunk = Chunk(size=-(-int(size) // 256) * 256, op=self._running.get(thread, ""))
        self._in_use[int(address, 16)] = chunk

    def release(self, found: re.Match[str]) -> None:
        self._in_use.pop(self._tensors.pop(found[1], 0), None)

    def name(self, found: re.Match[str]) -> None:
        kernel, number, address = found.groups()
        self._tensors[number] = int(address)
        chunk = self._in_use.get(int(address))
        if kernel == "Unknown":
            self._unnamed = chunk
        elif chunk:
            chunk.op = kernel

    def tell(self, found: re.Match[str]) -> None:
        self._told = (found[1].strip(), {})

    def chunk(self, found: re.Match[str]) -> None:
        known = self._in_use.get(int(found[1], 16), Chunk(size=0, op=""))
        self._told[1][int(found[1], 16)] = Chunk(size=int(found[2]), op=known.op)

    def refuse(self, found: re.Match[str]) -> None:
        self.asked_bytes, (self.asker, table) = int(found[1]), self._told
        self.held = table or deepcopy(self._in_use)
        self._told = ("", {})


LINES = (
    (re.compile(r"(\d+) \S+\] Executing op (\S+) in device"), Records.execute),
    (
        re.compile(r"(\d+) \S+\] AllocateRaw GPU_0_bfc  (\d+) 0x([0-9a-f]+)$"),
        Records.take,
    ),
    (
        re.compile(
            r'MemoryLogTensorDeallocation .*allocation_id: (\d+) allocator_name: "GPU_0_bfc"'
        ),
        Records.release,
    ),
    (
        re.compile(
            r'MemoryLogTensorAllocation .*kernel_name: "([^"]*)".*'
            r'allocator_name: "GPU_0_bfc" allocation_id: (\d+) .*ptr: (\d+)'
        ),
        Records.name,
    ),
    (re.compile(r"\(GPU_0_bfc\) ran out of memory .*requested by op (.*)"), Records.tell),
    (re.compile(r"\] InUse at ([0-9a-f]+) of size (\d+) "), Records.chunk),
    (re.compile(r"\] AllocateRaw GPU_0_bfc  (\d+) 0$"), Records.refuse),
)


def checks(log: str, refused: dict[str, Any]) -> Iterator[str]:
    """The columns of one row."""
    records = Records(log)
    asked = (refused["asked_bytes"], refused["op"])
    yield f"{refused['op']}, {refused['asked_bytes'] / 1e6:.2f} MB"
    if records.asker:
        same = asked == (records.asked_bytes, records.asker)
    else:  # autotuning does without, in silence, until no algorithm is left
        same = asked[0] == records.asked_bytes and f"{{{{node {asked[1]}}}}}" in log
    yield "yes" if same else f"**{records.asker} {records.asked_bytes:,}**"
    in_use = sum(chunk.size for chunk in records.held.values())
    yield "yes" if in_use == refused["in_use_bytes"] else f"{in_use / 1e6:.2f} MB"
    theirs, unnamed = Counter[str](), 0
    for chunk in records.held.values():
        if chunk.op and not UNNAMED.match(chunk.op):
            theirs[chunk.op] += chunk.size
        else:
            unnamed += chunk.size
    held = {row["op"]: row["held_bytes"] for row in refused["held"]}
    variables = sum(size for op, size in held.items() if op.startswith(VARIABLE))
    agreed = sum(min(size, theirs[op]) for op, size in held.items())
    wrong = max(0, in_use - agreed - variables - unnamed)
    parts = (agreed, variables, in_use - agreed - variables - wrong, wrong)
    yield ", ".join(f"{size / 1e6:.2f}" for size in parts)


def main() -> None:
    """Prints a row for every script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT")
    header = ("script", "takes, MB", "limit", "ends with", "asked", "as TensorFlow says")
    header += (
        "in use as it says",
        "MB held by the ops of its log, by variables, unnamed there, against it",
    )
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for script in parser.parse_args().scripts or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            _, _, free = run(script, "T4", Path(folder), is_logged=False)
            takes = free["peak_bytes"]["GPU:0"]
            limit = f"GPU:{int(SHARE * takes) >> 10}KiB"
            code, log, found = run(script, limit, Path(folder), is_logged=True)
        error = re.findall(r"(\w+Error): ", log)[-1:] or ["no error"]
        gpus = [gpu for process in found["processes"] for gpu in process["gpus"]]
        refused = next((gpu["refused"] for gpu in gpus if gpu["refused"]), None)
        columns = checks(log, refused) if refused else ["nothing was refused"]
        row = (script, f"{takes / 1e6:.1f}", f"{SHARE:.0%}", f"{code}, {error[0]}", *columns)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
