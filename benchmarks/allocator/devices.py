"""Do plans on several devices run where each has its cap as the hard limit of its allocator?

    python benchmarks/allocator/devices.py FOLDER [NAME ...]

builds graphs of ``cases.py`` in ``FOLDER``; places each on two and on three GPUs with caps of 75
and 60% of what one device needs; and rehearses it (``placer verify --memory``) under the caps, with
the fullest device at its predicted need, and with that at 0.97 of it.  Rows that were made are kept
in ``FOLDER/devices.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}

import placer
from placer.plan.plan import Plan

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import build_apart

DEVICES = {2: 0.75, 3: 0.60}
"""How many there are, and their caps as a share of what one needs."""

BELOW = 0.97
MEBIBYTE = 2**20
SECONDS = 15.0

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    kept = arguments.folder / "devices.json"
    rows: dict[str, Row] = json.loads(kept.read_text()) if kept.exists() else {}
    for path in build_apart(arguments.folder, arguments.names):
        for count, share in DEVICES.items():
            name = f"{path.stem} on {count}"
            if name not in rows:
                rows[name] = measure(path, count, share)
                kept.write_text(json.dumps(rows, indent=1))
            print(f"| {name} | {' | '.join(map(str, rows[name].values()))} |", flush=True)


def measure(path: Path, count: int, share: float) -> Row:
    """What becomes of the graph on ``count`` devices with ``share`` of one's need each."""
    outputs = [
        name if ":" in name else f"^{name}"
        for name in json.loads(path.with_suffix(".json").read_text())["outputs"]
    ]
    asked = {"outputs": outputs, "spill": "never", "time_limit": SECONDS}
    alone = placer.place(str(path), "1xGPU:1TiB", **{**asked, "time_limit": 5.0})
    one_bytes = alone.devices[0].need_bytes
    cap = int(share * one_bytes)
    plan = placer.place(str(path), f"{count}xGPU", max_memory=f"GPU:*={cap}", **asked)
    row: Row = {"one": mib(one_bytes), "cap": mib(cap), "status": plan.solver.status}
    if not plan.placement:
        return row
    gpus = [device for device in plan.devices if device.type == "GPU"]
    row["needs"] = [mib(device.need_bytes or 0) for device in gpus]
    row["rehearsed"] = rehearsed(path, plan, outputs)
    fullest = max(gpus, key=lambda device: device.need_bytes or 0)
    for word, times in (("at its need", 1.0), (f"at {BELOW}", BELOW)):
        limit = int(times * (fullest.need_bytes or 0))
        row[word] = rehearsed(path, with_cap(plan, fullest.name, limit), outputs)
    return row


def rehearsed(path: Path, plan: Plan, outputs: list[str]) -> str:
    """``runs``, or the device and the op that ran out of memory."""
    found = placer.verify(str(path), plan, memory=True, outputs=outputs).memory
    out = found.out_of_memory
    return "runs" if out is None else f"{out.device} at {out.op}"


def with_cap(plan: Plan, name: str, limit: int) -> Plan:
    """The plan with another cap of one device."""
    return replace(
        plan,
        devices=tuple(
            replace(device, memory_limit_bytes=limit) if device.name == name else device
            for device in plan.devices
        ),
    )


def mib(size: int) -> float:
    return round(size / MEBIBYTE, 1)


if __name__ == "__main__":
    main()
