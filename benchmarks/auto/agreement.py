"""Do ``auto``, ``auto --dry-run`` and ``place --strategy`` say the same of a program?

    python benchmarks/auto/agreement.py --out DIR [PROGRAM ...]

Fifteen programs for any batch, five of them training steps, on three sets of devices.  ``auto`` in
Python and ``placer auto --dry-run`` are asked for the table; each way of it that ``place
--strategy`` makes is made so; and the placement of the whole program by ``place`` with the
objective that ``auto`` has for it.  Steps and required memory have to be the same figures, and the
plan of the chosen way the same placement.  Searches end by their work; a row names those that the
clock ended.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import graphs

from placer.extraction.process.child_process import one_reading_process
from placer.solving.process.child_search import one_search_process
from placer.strategies.requests import KINDS

PROGRAMS = {
    "perceptron": 8_192,
    "mlp_mixer": 256,
    "recommender": 4_096,
    "transformer_encoder": 64,
    "vision_transformer": 128,
    "lstm": 512,
    "gru": 512,
    "mobilenet_v2": 64,
    "vgg16": 32,
    "dilated_convolutions": 64,
    "perceptron_adam": 4_096,
    "small_resnet_adam": 256,
    "transformer_adam": 512,
    "recommender_adagrad": 4_096,
    "gru_momentum": 512,
}
PAIR = "2xT4"
DEVICES = (PAIR, "1xA100-40GB,1xT4", f"{PAIR} at 60%")
WORK = {"work_limit": 3, "time_limit": 600.0}


def build(name: str, out: Path) -> tuple[Path, tuple[str, ...]]:
    """The GraphDef of a program for any batch, and its outputs."""
    path = out / f"{name}.pb"
    known = path.with_suffix(".json")
    if not known.exists():
        import keras

        keras.utils.set_random_seed(0)
        graph = next(graph for graph in graphs.GRAPHS if graph.name == name)
        model = graph.build()  # kept here: functions hold their variables weakly
        program, outputs = graphs.flat_program(graphs._step(graph, model, None))
        path.write_bytes(program.SerializeToString())
        known.write_text(json.dumps(outputs))
    return path, tuple(json.loads(known.read_text()))


def dry_run(words: list[str]) -> dict[str, Any]:
    """What ``placer auto --dry-run`` prints as JSON; of no way that fits, too."""
    from placer.__main__ import main as command

    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
        command(["auto", *words, "--dry-run", "--format", "json"])
    found: dict[str, Any] = json.loads(told.getvalue())
    return found


def differences(name: str, devices: str, out: Path) -> Iterator[str]:
    """Yields a line for each figure that is another one elsewhere; at last how many were held."""
    import placer

    path, outputs = build(name, out)
    batch, (cards, _, share) = PROGRAMS[name], devices.partition(" at ")
    options: dict[str, Any] = {"batch_size": batch, "outputs": outputs, **WORK}
    words = [str(path), "--devices", cards, "--batch-size", str(batch), "--outputs"]
    words += [",".join(outputs), "--work-limit", "3", "--time-limit", "600"]
    if share:
        whole = placer.place(path, "1xT4", offload="never", **options)
        cap = int(0.6 * whole.required_bytes["GPU:0"])
        options["max_memory"] = dict.fromkeys(("GPU:0", "GPU:1"), cap)
        words += ["--max-memory", f"GPU:*={cap}"]
    found = placer.auto(path, cards, **options)
    shown = dry_run(words)
    pairs = [("chosen", found.chosen, shown["chosen"])]
    rows = {row["name"]: row for row in shown["rows"]}
    for row in found.rows:
        other = rows.get(row.name, {})
        for key in ("step_seconds", "required_bytes", "note"):
            pairs.append((f"{row.name} {key} of --dry-run", getattr(row, key), other.get(key)))
        asked = as_asked(row.name, found)
        if row.step_seconds is None or not asked:
            continue
        plans = [placer.place(path, cards, **options, **changes) for changes in asked]
        alike = (p for p in plans if p.required_bytes == row.required_bytes)
        plan = next((p for p in alike if p.metrics.step_seconds == row.step_seconds), plans[0])
        pairs.append((f"{row.name} step of place", row.step_seconds, plan.metrics.step_seconds))
        pairs.append((f"{row.name} memory of place", row.required_bytes, plan.required_bytes))
        if row.name == found.chosen:
            pairs.append((f"{row.name} placement", found.plan.placement, plan.placement))
    yield from (f"{what}: {one} and {two}" for what, one, two in pairs if one != two)
    yield from (f"{n}: ended by the clock" for n, p in found.plans.items() if p.solver.cut_by_time)
    yield f"{len(pairs)} figures"


def as_asked(way: str, found: Any) -> list[dict[str, Any]]:
    """The options by which ``place`` makes a way; none for those that are no placement.  Where not
    all fits one accelerator one placement is that of the least transfer or the shortest step."""
    if way != "one-placement":
        return [{"strategy": way}] if way.partition(":")[0] in KINDS else []
    fits = any(row.name == "as-it-is" and row.fits for row in found.rows)
    if fits:
        return [{"objective": "step-time", "offload": "never"}]
    return [{"objective": objective} for objective in ("step-time", "transfer")]


def main() -> None:
    """Prints a row per program and set of devices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with one_reading_process(), one_search_process():  # each begins once, as auto has it
        for name in arguments.names:
            for devices in DEVICES:
                *unlike, held = differences(name, devices, arguments.out)
                told = "; ".join(unlike) or "all equal"
                print(f"| {name} | {devices} | {held} | {told} |", flush=True)


if __name__ == "__main__":
    main()
