"""Do plans on several devices run where each has its cap as the hard limit of its allocator?

    python benchmarks/allocator/devices.py FOLDER [NAME ...]

builds graphs of ``cases.py`` in ``FOLDER``; places each on two GPUs with caps of 75% of what one
device needs, and on three with 60%, or 75% where no plan is found for that; and rehearses it
(``placer verify --memory``) under the caps, with every cap at the predicted need, and with the
fullest device at 0.97 of the smallest limit that serves, found by bisection.  Rows that were
made are kept in ``FOLDER/devices.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}

import placer
from placer.errors import PlacerError
from placer.plan.plan import Plan

sys.path.insert(0, str(Path(__file__).parents[1]))
from cases import build_apart

DEVICES = {2: (0.75,), 3: (0.60, 0.75)}
"""How many there are, and their caps as shares of what one needs: the first that has a plan."""

BELOW = 0.97
PRECISION = 0.01
"""Of the smallest limit."""

RUNS = "runs"
AS_GIVEN = {"need_bytes": None}
"""What makes a rehearsal keep to a limit, even where the CPU that stands in needs more."""

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
        for count, shares in DEVICES.items():
            name = f"{path.stem} on {count}"
            if name not in rows:
                rows[name] = measure(path, count, shares)
                kept.write_text(json.dumps(rows, indent=1))
            print(f"| {name} | {' | '.join(map(str, rows[name].values()))} |", flush=True)


def measure(path: Path, count: int, shares: Sequence[float]) -> Row:
    """What becomes of the graph on ``count`` devices with a share of one's need each."""
    outputs = [
        name if ":" in name else f"^{name}"
        for name in json.loads(path.with_suffix(".json").read_text())["outputs"]
    ]
    asked = {"outputs": outputs, "spill": "never", "time_limit": SECONDS}
    try:
        alone = placer.place(str(path), "1xGPU:1TiB", **{**asked, "time_limit": 5.0})
    except PlacerError as error:
        return {"status": f"{error}".partition(":")[0][:120]}
    one_bytes = alone.devices[0].need_bytes
    for share in shares:
        cap = int(share * one_bytes)
        plan = placer.place(str(path), f"{count}xGPU", max_memory=f"GPU:*={cap}", **asked)
        row: Row = {"one": mib(one_bytes), "cap": mib(cap), "status": plan.solver.status}
        if plan.fits:
            break
    if not plan.placement:
        return row
    gpus = [device for device in plan.devices if device.type == "GPU"]
    needs = {device.name: device.need_bytes or 0 for device in gpus}
    row["needs"] = [mib(need) for need in needs.values()]
    if not plan.fits:
        return row
    row["under the caps"] = rehearsed(path, plan, outputs)
    at_needs = with_caps(plan, {name: need or cap for name, need in needs.items()})
    row["at the needs"] = rehearsed(path, at_needs, outputs)
    fullest = max(needs, key=needs.__getitem__)

    def under(limit: int) -> str:
        return rehearsed(path, with_caps(plan, {fullest: limit}, **AS_GIVEN), outputs)

    smallest = smallest_limit(lambda limit: under(limit) == RUNS, needs[fullest])
    row["smallest"] = f"{fullest} {mib(smallest)}"
    row[f"at {BELOW} of it"] = under(int(BELOW * smallest))
    return row


def smallest_limit(serves: Callable[[int], bool], near: int) -> int:
    """The limit from which on every larger one that was tried serves, by bisection."""
    step, limit = near // 16, near
    fails, enough = 0, 0
    while not fails or not enough:
        if serves(limit):
            enough, limit = limit, limit - step
        else:
            fails, limit = limit, limit + step
    while enough - fails > PRECISION * enough:
        middle = (fails + enough) // 2
        if serves(middle):
            enough = middle
        else:
            fails = middle
    return enough


def rehearsed(path: Path, plan: Plan, outputs: list[str]) -> str:
    """``runs``, or the device and the op that ran out of memory."""
    found = placer.verify(str(path), plan, memory=True, outputs=outputs).memory
    out = found.out_of_memory
    return RUNS if out is None else f"{out.device} at {out.op}"


def with_caps(plan: Plan, caps: Mapping[str, int], **changes: Any) -> Plan:
    """The plan with other ``caps`` of devices, and other ``changes`` of their rows."""
    return replace(
        plan,
        devices=tuple(
            replace(device, memory_limit_bytes=caps[device.name], **changes)
            if device.name in caps
            else device
            for device in plan.devices
        ),
    )


def mib(size: int) -> float:
    return round(size / MEBIBYTE, 1)


if __name__ == "__main__":
    main()
