"""Does what a plan states suffice on TensorFlow's GPU runtime, from loading to the tenth step?

    python benchmarks/simulated/run.py FOLDER [NAME ...] [--json FILE]

makes the plan of each program, runs it on simulated cards without a limit that matters (in use, by
phase), three times limited to its stated needs (served?), and finds the least limit that serves on
each device, the others being as stated or larger.  Simulated cuDNN takes no workspace; what is
stated is compared without.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from programs import FROZEN, PROGRAMS, SAVED, Program, chosen

MEBIBYTE = 1 << 20
PLENTY_MIB = 6000
SHARES = {2: (0.65, 0.8, 1.0), 4: (0.45, 0.7, 1.0)}
"""Caps, as shares of what one device needs, until one can be kept without spilling."""
RUNS = 3
RESOLUTION = 0.02
"""The least limit is found to this share."""
TIMEOUT_SECONDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--held-back", action="store_true", help="those alone")
    parser.add_argument("--tuning", action="store_true", help="the others alone")
    parser.add_argument("--no-limits", action="store_true", help="in use alone")
    parser.add_argument("--no-least", action="store_true", help="in use, and served as stated")
    parser.add_argument("--rows", action="store_true", help="what FILE has, nothing is run")
    parser.add_argument("--held", action="store_true", help="what FILE has is held while bound")
    parser.add_argument("--runs", type=int, default=RUNS, help="limited to what is stated")
    arguments = parser.parse_args()
    for program in chosen(arguments.names):
        if (arguments.held_back and not program.held_back) or (
            arguments.tuning and program.held_back
        ):
            continue
        if arguments.rows or arguments.held:
            known = json.loads(arguments.json.read_text())
            if program.name in known:
                print((held if arguments.held else line)(program, known[program.name]))
            continue
        if find_spec(program.needs_package) is None:
            print(f"{program.name}: {program.needs_package} is not installed", flush=True)
            continue
        runs = 0 if arguments.no_limits else arguments.runs
        is_least = not (arguments.no_limits or arguments.no_least)
        found = measured(program, arguments.folder, runs=runs, is_least=is_least)
        print(line(program, found), flush=True)
        if arguments.json:
            rows = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
            arguments.json.write_text(json.dumps({**rows, program.name: found}, indent=1) + "\n")
    if arguments.json and arguments.json.exists():
        for held_back in (True, False):
            print(summary(json.loads(arguments.json.read_text()), held_back=held_back))


def measured(program: Program, base: Path, *, runs: int, is_least: bool) -> dict[str, Any]:
    """All that is found of one program."""
    folder = base / program.name
    folder.mkdir(parents=True, exist_ok=True)
    if program.runs in (SAVED, FROZEN) and not (folder / "write.json").exists():
        (folder / "write.json").write_text(json.dumps(apart("write", program, folder)))
    for share in SHARES.get(program.devices, (0,)):
        (folder / "plan.json").unlink(missing_ok=True)
        subprocess.run(["rm", "-rf", folder / "placed", folder / "placed.pb"], check=True)
        placed = apart("place", program, folder, str(share))
        if placed["status"] in ("OPTIMAL", "FEASIBLE") and not placed["spilled"]:
            break
    else:
        return {"failed": placed}
    plan = json.loads((folder / "plan.json").read_text())
    gpus = [device for device in plan["devices"] if device["type"] == "GPU"]
    needs = [stated(device) for device in gpus]
    found: dict[str, Any] = {
        "placed": placed,
        "share": share,
        "needs": needs,
        "parts": [device.get("needs") for device in gpus],
        "resident": [device["resident_bytes"] for device in gpus],
        "predicted_in_use": [predicted_in_use(device) for device in gpus],
        "free": run(program, folder, [PLENTY_MIB] * program.devices),
    }
    if not found["free"].get("served"):
        return {"failed": found["free"], **found}
    limit = [max(-(-need // MEBIBYTE), 1) for need in needs]  # constants of Keras are on GPU:0
    found["limits_mib"] = limit
    found["runs"] = [run(program, folder, limit) for _ in range(runs)]
    if is_least:
        found["least_mib"] = [
            least(program, folder, index, limit[index], peak_of(found["free"], index))
            for index in range(program.devices)
        ]
    return found


def stated(device: dict[str, Any]) -> int:
    """The need of a device, without workspaces."""
    return device["need_bytes"] - (device.get("needs") or {}).get("workspace", 0)


def predicted_in_use(device: dict[str, Any]) -> int:
    """The most that is expected to be in use, without a limit."""
    return device.get("in_use_expected_bytes") or device["in_use_peak_bytes"]


def peak_of(run: dict[str, Any], index: int) -> int:
    """The most in use on a device in any phase."""
    return max(rows[index][1] for rows in run["phases"].values())


def least(program: Program, folder: Path, index: int, likely: int, peak: int) -> int:
    """The least limit in MiB under which the device serves, the others having plenty."""

    def serves(limit: int) -> bool:
        limits = [PLENTY_MIB] * program.devices
        limits[index] = limit
        return bool(run(program, folder, limits).get("served"))

    low, high = int(peak / MEBIBYTE * 0.9), None
    step = max(likely, low + 1)
    while high is None:
        if serves(step):
            high = step
        else:
            low, step = step, int(step * 1.15) + 1
    while high - low > max(1, RESOLUTION * high):
        middle = (low + high) // 2
        low, high = (low, middle) if serves(middle) else (middle, high)
    return high


def run(program: Program, folder: Path, limits: list[int]) -> dict[str, Any]:
    return apart("run", program, folder, ",".join(map(str, limits)))


def apart(action: str, program: Program, folder: Path, *arguments: str) -> dict[str, Any]:
    """The JSON that a process of its own prints last."""
    command = [sys.executable, str(Path(__file__).with_name("steps.py")), action, program.name,
               str(folder), *arguments]  # fmt: skip
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    if action != "run":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    else:
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    log = folder / f"{action}.log"
    with log.open("w") as errors:
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
                timeout=TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"served": False, "stage": "timeout", "status": "timeout"}
    lines = [row for row in done.stdout.splitlines() if row.startswith("{")]
    if not lines:
        tail = log.read_text()[-600:]
        return {"served": False, "stage": "crash", "status": "crash", "error": tail}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def line(program: Program, found: dict[str, Any]) -> str:
    """A row of the table: per device, MiB."""
    head = f"| {program.name}{' *' if program.held_back else ''} | {program.runs}"
    head += f" {program.loader}" if program.runs == SAVED else ""
    head += f" | {program.devices} x {program.capability} |"
    if "free" not in found or "failed" in found:
        return f"{head} failed: {str(found['failed'])[-300:]} |"
    seen = [peak_of(found["free"], index) for index in range(program.devices)]
    cells = [" + ".join(f"{size / MEBIBYTE:.0f}" for size in sizes) for sizes in
             (found["predicted_in_use"], seen, found["needs"])]  # fmt: skip
    if "least_mib" in found:
        ratios = [n / MEBIBYTE / m for n, m in zip(found["needs"], found["least_mib"], strict=True)]
        cells.append(" + ".join(map(str, found["least_mib"])))
        cells.append(", ".join(f"{ratio:.2f}" for ratio in ratios))
    if found["runs"]:
        served = sum(bool(run.get("served")) for run in found["runs"])
        cells.append(f"{served} of {len(found['runs'])}")
    return f"{head} {' | '.join(cells)} |"


def held(program: Program, found: dict[str, Any]) -> str:
    """What each device holds when bound, and after the first and the tenth step: bytes requested
    and in use, against what is resident in the plan."""
    cells = []
    for index, planned in enumerate(found["resident"]):
        rows = [found["free"]["phases"][phase][index] for phase in ("loading", "step 1", "step 10")]
        shares = [f"{row[2] / planned - 1:+.1%} {row[0] / planned - 1:+.1%}" for row in rows]
        if planned >= MEBIBYTE:
            cells.append(f"{planned / MEBIBYTE:.1f}: {', '.join(shares)}")
    return f"| {program.name} | {' | '.join(cells)} |"


def summary(rows: dict[str, Any], *, held_back: bool) -> str:
    """Median and worst of the programs that are held back, or of the others; a program's in use is
    that of the device where it is furthest off, devices with less than a MiB aside."""
    off, ratios, served = [], [], []
    for program in PROGRAMS:
        found = rows.get(program.name)
        if found is None or program.held_back != held_back:
            continue
        if not found.get("runs"):
            served.append(False)
            continue
        served.append(all(run.get("served") for run in found["runs"]))
        seen = [peak_of(found["free"], index) for index in range(program.devices)]
        pairs = zip(found["predicted_in_use"], seen, strict=True)
        off.append(max(abs(p / s - 1) for p, s in pairs if s >= MEBIBYTE))
        pairs = zip(found["needs"], found.get("least_mib", ()), strict=False)
        ratios += [need / MEBIBYTE / least for need, least in pairs]
    text = f"{'held back' if held_back else 'others'}: served {sum(served)} of {len(served)}"
    if off:
        text += f", in use off by {median(off):.1%} in the median, {max(off):.1%} at worst"
    if ratios:
        text += (
            f", stated / least {median(ratios):.2f} in the median and {max(ratios):.2f} at worst"
        )
    return text


if __name__ == "__main__":
    main()
