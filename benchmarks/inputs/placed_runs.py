"""The table of placed runs: what runs in TensorFlow is placed, applied and verified.

Caps make two GPUs necessary: 60%, or 95%, of the peak that one device has.  Where nothing fits
that, two ops are pinned apart, so that no row is true for want of a transfer.

This process imports TensorFlow, and every command line runs in a fork of it, as the process does
in which placer reads a file: importing takes longer than most of these runs.  What a verification
runs, it runs in a fresh process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_runs
from commands import Ended, forked
from model_files import Model

from placer.__main__ import main
from placer.extraction.process import child_process

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from fuzzing.warm_process import WarmChild

DEVICES = "2xA100-40GB"
CAP_SHARES = (0.6, 0.95)
SEARCH_SECONDS = "10"
HEADER = (
    "file",
    "runs in TensorFlow",
    "place",
    "apply",
    "verify",
    "caps, pins",
    "ops by device",
    "ops off device",
    "transfers seen of predicted",
    "sent",
    "output difference",
    "unexplained",
    "s",
    "reason, options",
)


child_process.Child = WarmChild


def placer(*arguments: str) -> Ended:
    """Runs a command line of placer, quietly."""
    return forked(main, *arguments, "-q")


def row(model: Model, scratch: Path) -> dict[str, Any]:
    """How far a model gets."""
    found: dict[str, Any] = {"file": model.name, "options": " ".join(model.options)}
    found |= {"seconds": 0.0, "caps": "one device"}
    if model.out:
        return found | {"native": "not tried", "reason": model.out}
    ended = forked(tensorflow_runs.main, str(model.path), *model.options)
    found |= {"native": "yes", "reason": model.reason}
    if ended.code:
        complaint = ended.output.strip() or f"TensorFlow ended with {ended.code}"
        reason = " ".join(filter(None, (complaint.replace("|", "\\|"), model.reason)))
        found |= {"native": "no", "reason": reason}
        if not model.anyway:
            return found
    plan, out = scratch / "plan.json", scratch / f"placed{model.path.suffix}"
    placed = _place(model, plan, found)
    _note(found, "place", placed)
    if placed.code:
        return found
    found["devices"] = _devices(plan)
    applied = placer("apply", str(model.path), str(plan), "-o", str(out), "--force")
    _note(found, "apply", applied)
    if applied.code:
        return found
    verified = placer("verify", str(out), str(plan), "--format", "json")
    _note(found, "verify", verified)
    if verified.code in (0, 8) and verified.output:
        found["verification"] = verified.json["summary"]
        found["mismatches"] = verified.json["mismatches"]
    return found


def _note(found: dict[str, Any], command: str, ended: Ended) -> None:
    found[command] = ended.code
    found["seconds"] += ended.seconds
    if ended.code:
        found["reason"] = ended.reason


def _place(model: Model, plan: Path, found: dict[str, Any]) -> Ended:
    """Places the model on two GPUs so that both are used, if that can be."""
    command = ["place", str(model.path), *model.options, "--devices", DEVICES]
    command += ["--time-limit", SEARCH_SECONDS]
    first = placer(*command, "-o", str(plan))
    if first.code:
        return first
    if not any(device.startswith("GPU") for device in _devices(plan)):
        command.append("--clear-devices")
        first = placer(*command, "-o", str(plan), "--force")
    if first.code or _uses_both(plan):
        return first
    trial = plan.with_name("trial.json")
    for caps, options in _ways_apart(plan):
        ended = placer(*command, *options, "-o", str(trial), "--force")
        if ended.code == 0 and _uses_both(trial):
            trial.replace(plan)
            found["caps"] = caps
            return ended
    return first


def _ways_apart(plan: Path) -> Iterator[tuple[str, list[str]]]:
    """What can make a plan use two GPUs, in words and as options."""
    devices = json.loads(plan.read_text())["devices"]
    peak = max(device["peak_memory_bytes"] for device in devices if device["type"] == "GPU")
    for share in CAP_SHARES:
        cap = int(share * peak)
        yield f"{cap:,} B", ["--max-memory", f"GPU:0={cap},GPU:1={cap}"]
    for pair in _pairs(plan):
        pins = [f"{_literal(name)}=GPU:{number}" for number, name in enumerate(pair)]
        yield f"pinned apart: {', '.join(pair)}", ["--pin", pins[0], "--pin", pins[1]]


def _pairs(plan: Path) -> list[tuple[str, str]]:
    """Ops on one GPU that may be pinned to two: the quartiles, else the first and the last."""
    placement = json.loads(plan.read_text())["placement"]
    names = [name for name, device in placement.items() if device.startswith("GPU")]
    count = len(names)
    if count < 2:
        return []
    pairs = [(names[count // 4], names[3 * count // 4]), (names[0], names[-1])]
    return [pair for pair in pairs if pair[0] != pair[1]]


def _literal(name: str) -> str:
    """A glob that matches this very name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _devices(plan: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for device in json.loads(plan.read_text())["placement"].values():
        counts[device] = counts.get(device, 0) + 1
    return dict(sorted(counts.items()))


def _uses_both(plan: Path) -> bool:
    return sum(device.startswith("GPU") for device in _devices(plan)) > 1


def cells(found: dict[str, Any]) -> list[object]:
    """One row of the table."""
    start = [found["file"], found["native"]]
    codes = [found.get(command, "") for command in ("place", "apply", "verify")]
    devices = ", ".join(f"{name} {count}" for name, count in found.get("devices", {}).items())
    end = [f"{found['seconds']:.0f}", " ".join(filter(None, (found["reason"], found["options"])))]
    summary = found.get("verification")
    seen: list[object] = [""] * 5
    if summary:
        seen = [
            f"{summary['ops'] - summary['matched_ops']} of {summary['ops']}",
            f"{summary['matched_transfers']} of {summary['transfers']}",
            summary["actual_transfers"],
            f"{summary['max_absolute_difference']:g}",
            summary["mismatches"],
        ]
    return [*start, *codes, found["caps"] if codes[0] == 0 else "", devices, *seen, *end]


def summary(rows: list[dict[str, Any]]) -> str:
    """How many run, and how many of those go the whole way."""
    running = [found for found in rows if found["native"] == "yes"]
    whole = [found for found in running if found.get("verify") == 0]
    both = [found for found in whole if _gpus(found) > 1]
    return (
        f"{len(rows)} files: {len(running)} run in TensorFlow; of these {len(whole)} end place, "
        f"apply and verify with 0, {len(both)} of them on two GPUs."
    )


def _gpus(found: dict[str, Any]) -> int:
    return sum(name.startswith("GPU") for name in found["devices"])
