"""Does ``placer.auto`` take the best of all ways that can be built?  By prediction alone.

    python benchmarks/auto/regret.py --out DIR [CASE...]

Of every case all ways are built and predicted (``ways.py``), those too that ``auto`` leaves out
because of what they cannot beat, and numbers of pieces and of accelerators that it never tries.
Searches end by their work, so that a busy machine finds the same.  One line of JSON per case is
kept in ``DIR/regret.jsonl``; cases that are there are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import run as strategies
from ways import built_ways

import placer
from placer.plan.request import read_options
from placer.questions.auto import DOUBT_SECONDS, MARGIN
from placer.questions.auto_programs import AutoProgram, Built, TrainingProgram, open_program

WORK = {"work_limit": 4, "time_limit": 60.0}
GOAL = 1.03


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on some devices; ``share`` is the part of its need that the accelerators have."""

    model: str
    batch: int
    devices: str
    share: float | None = None

    def __str__(self) -> str:
        cap = f" ({self.share:.0%} of the need)" if self.share else ""
        return f"{self.model} {self.batch}, {self.devices}{cap}"


INFERENCE = {
    "perceptron": 65_536,
    "convolutions": 4_096,
    "transformer": 1_024,
    "elementwise": 65_536,
}
SHORT = {"perceptron": 4_096, "convolutions": 128, "transformer": 64, "lstm": 2_048}
TRAINING = {"dense": 16_384, "attention": 512, "recommender": 16_384, "normalised": 16_384}
PAIR, UNLIKE, FOUR = "2xT4", "1xA100-40GB,1xT4", "4xT4"
GROUPS: tuple[tuple[dict[str, int], str, float | None], ...] = (
    (INFERENCE, PAIR, None), (INFERENCE, UNLIKE, None), (INFERENCE, PAIR, 0.6),
    (SHORT, PAIR, None), (SHORT, UNLIKE, None), (TRAINING, PAIR, None), (TRAINING, UNLIKE, None),
    (INFERENCE, FOUR, None),
)  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    for models, devices, share in GROUPS:
        for name, batch in models.items():
            yield Case(model=name, batch=batch, devices=devices, share=share)


def dense(keras: Any) -> Any:
    """Dense layers, Adam."""
    inputs = x = keras.Input((512,))
    for _ in range(4):
        x = keras.layers.Dense(1024, activation="relu")(x)
    return compiled(keras, inputs, keras.layers.Dense(10)(x), "adam")


def attention(keras: Any) -> Any:
    """A block of a transformer, AdamW."""
    inputs = x = keras.Input((64, 128))
    x = x + keras.layers.MultiHeadAttention(4, 32)(x, x)
    hidden = keras.layers.Dense(512, activation="gelu")(keras.layers.LayerNormalization()(x))
    return compiled(keras, inputs, x + keras.layers.Dense(128)(hidden), "adamw")


def recommender(keras: Any) -> Any:
    """Two tables of which rows are read, Adagrad."""
    inputs = [keras.Input((), dtype="int32") for _ in range(2)]
    rows = [keras.layers.Embedding(100_000, 64)(ids) for ids in inputs]
    x = keras.layers.Dense(512, activation="relu")(keras.layers.Concatenate()(rows))
    return compiled(keras, inputs, keras.layers.Dense(1)(x), "adagrad")


def normalised(keras: Any) -> Any:
    """Batch normalisation: parts of a batch would not be exact."""
    inputs = x = keras.Input((512,))
    for _ in range(3):
        x = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Dense(1024)(x)))
    return compiled(keras, inputs, keras.layers.Dense(10)(x), "sgd")


def compiled(keras: Any, inputs: Any, outputs: Any, optimizer: str) -> Any:
    """A model that trains with the mean squared error."""
    model = keras.Model(inputs, outputs)
    model.compile(optimizer, "mse")
    return model


KERAS: dict[str, Callable[[Any], Any]] = {
    "dense": dense, "attention": attention, "recommender": recommender, "normalised": normalised,
}  # fmt: skip


def built_once() -> None:
    """What was built for a case is not built again for it: searches that end by their work find
    the same every time."""
    for kind, name in (
        (AutoProgram, "place"),
        (AutoProgram, "divided"),
        (TrainingProgram, "divided"),
    ):
        setattr(kind, name, _remembered(name, getattr(kind, name)))


KNOWN: dict[str, Built] = {}


def _remembered(name: str, build: Callable[..., Built]) -> Callable[..., Built]:
    def remembered(program: AutoProgram, *given: Any, **changes: Any) -> Built:
        key = repr((name, given, changes))
        if key not in KNOWN:
            KNOWN[key] = build(program, *given, **changes)
        return KNOWN[key]

    return remembered


def source_of(case: Case, out: Path) -> Any:
    """A Keras model, or the path of a GraphDef."""
    if case.model not in KERAS:
        return str(out / f"{case.model}.pb")
    import keras

    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    return KERAS[case.model](keras)


def tried(case: Case, out: Path) -> dict[str, Any]:
    """What is best, and what ``auto`` chooses with its margin and without."""
    KNOWN.clear()
    source, options = source_of(case, out), {"batch_size": case.batch, **WORK}
    if case.share:
        whole = open_program(source, "1xT4", read_options(options), None).on_one_device("GPU:0")
        cap = int(case.share * whole.plan.required_bytes["GPU:0"])
        count = int(case.devices[0])
        options |= {"max_memory": dict.fromkeys(range(count), cap)}
    begin = time.process_time()
    program = open_program(source, case.devices, read_options(options), None)
    steps = {name: built.step_seconds for name, built in built_ways(program).items()}
    row: dict[str, Any] = {"case": str(case), "steps": steps, "cpu": time.process_time() - begin}
    for margin in (0.0, MARGIN):
        begin = time.process_time()
        found = placer.auto(source, case.devices, margin=margin, **options)
        row[f"margin {margin}"] = {
            "chosen": found.chosen,
            "step": found.row.step_seconds if found.row else None,
            "built": sum(row.step_seconds is not None for row in found.rows),
            "cpu": time.process_time() - begin,
        }
    return row


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """As the README has it; the best is of all that was built, by ``auto`` too."""
    yield "| case | ways that fit | best | ms | without margin | regret | with it | regret |"
    yield "|---|---|---|---|---|---|---|---|"
    within, equal = {"margin 0.0": 0, "margin 0.1": 0}, 0
    for row in rows:
        found = {row[margin]["chosen"]: row[margin]["step"] for margin in within}
        steps = {name: step for name, step in {**row["steps"], **found}.items() if step}
        best = min(steps, key=steps.__getitem__, default="none")
        least = steps.get(best, math.inf)
        cells = [row["case"], str(len(steps)), best, f"{1e3 * least:.2f}"]
        for margin in within:
            step = row[margin]["step"] or math.inf
            regret = step / least - 1 if steps else 0.0
            within[margin] += regret <= GOAL - 1
            cells += [row[margin]["chosen"] or "none", f"{regret:+.1%}"]
        equal += not steps or step <= max((1 + MARGIN) * least, least + DOUBT_SECONDS)
        yield f"| {' | '.join(cells)} |"
    goal, count = f"within {GOAL - 1:.0%} of the best in", len(rows)
    yield f"\nWithout margin {goal} {within['margin 0.0']} of {count};"
    yield f"with {MARGIN:.0%} {goal} {within['margin 0.1']}, and called equal to it in {equal}."


def main() -> None:
    """Tries the cases whose names contain one of the words, and prints all that are known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="CASE")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not (arguments.out / "lstm.pb").exists():
        strategies.build(arguments.out)
    built_once()
    kept = arguments.out / "regret.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for case in cases():
        asked = not arguments.words or any(word in str(case) for word in arguments.words)
        if asked and str(case) not in {row["case"] for row in rows}:
            rows.append(tried(case, arguments.out))
            with kept.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(f"{case}: {rows[-1]['cpu']:.0f} s", file=sys.stderr)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
