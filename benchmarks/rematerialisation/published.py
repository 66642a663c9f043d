"""Published rematerialisation instances: extra time within a budget, judged by their evaluator.

    python benchmarks/rematerialisation/published.py FOLDER [NAME...] [--seconds 60]

FOLDER has the instances as JSON and ``evaluator.py``, which judges every sequence.  Beside what
``placer solve`` finds is the best that annealing and CP-SAT find in so many seconds, and what that
proves (``reference/``); ``--seconds 0`` leaves it out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from placer.fitting.recompute_problem import RematerialisationProblem
from placer.fitting.recompute_sequences import solve_rematerialisation
from placer.solving.process.search_run import Answer, BestSoFar, Effort


def read_instance(path: Path) -> tuple[dict[str, Any], RematerialisationProblem]:
    """An instance as it is and as a problem without a budget of its own."""
    instance = json.loads(path.read_text())
    number = {node["id"]: index for index, node in enumerate(instance["nodes"])}
    inputs: list[list[int]] = [[] for _ in number]
    for before, after in instance["edges"]:
        inputs[number[after]].append(number[before])
    problem = RematerialisationProblem(
        node_names=tuple(str(node["id"]) for node in instance["nodes"]),
        seconds=tuple(node["seconds"] for node in instance["nodes"]),
        bytes=tuple(node["bytes"] for node in instance["nodes"]),
        inputs=tuple(map(tuple, inputs)),
        order=tuple(number[node] for node in instance["input_topological_order"]),
        budget_bytes=instance["input_order_peak"],
    )
    return instance, problem


def judge(
    evaluator: ModuleType,
    instance: dict[str, Any],
    sequence: Sequence[int] | None,
    budget: int,
) -> str:
    """The extra time in percent by the evaluator; raises ``ValueError`` if it finds a fault."""
    if sequence is None:
        return "none found"
    ids = [node["id"] for node in instance["nodes"]]
    told = evaluator.evaluate(instance, [ids[node] for node in sequence], budget, 2)
    if told["errors"]:
        raise ValueError(f"{instance['name']}: {told['errors'][0]}")
    return f"{told['extra_percent']:.3f}"


def search(problem: RematerialisationProblem, seconds: float) -> Answer:
    """What the reference finds and proves."""
    from reference.annealing import search_sequences

    best = BestSoFar(lambda _: None)
    search_sequences(problem, (), best, Effort(deadline=time.time() + seconds))
    return best.answer


def main() -> None:
    """Prints a row per instance, budget and kind of order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--order", choices=("kept", "any", "both"), default="both")
    parser.add_argument("--budgets", default="0.9,0.8,0.7,0.6,0.5")
    given = parser.parse_args()
    spec = importlib.util.spec_from_file_location("evaluator", given.folder / "evaluator.py")
    assert spec is not None
    assert spec.loader is not None
    evaluator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(evaluator)
    paths = sorted(given.folder.glob("*.json"))
    wanted = {float(share) for share in given.budgets.split(",")}
    columns = ("instance", "nodes", "budget", "order", "extra %", "seconds", "reference, extra %")
    columns += ("at least %", "status", "seconds")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for path in paths:
        if given.names and path.stem not in given.names:
            continue
        instance, problem = read_instance(path)
        for row in instance["budgets"]:
            for kept in (True, False):
                skipped = given.order == ("any" if kept else "kept")
                if skipped or row["fraction"] not in wanted:
                    continue
                posed = replace(problem, budget_bytes=row["bytes"], keep_order=kept)
                found = solve_rematerialisation(posed)
                cells = [path.stem, len(problem.order), row["fraction"], "kept" if kept else "any"]
                cells += [judge(evaluator, instance, found.sequence, row["bytes"])]
                cells += [f"{found.seconds:.1f}"]
                if given.seconds:
                    begun, answer = time.monotonic(), search(posed, given.seconds)
                    least = (answer.lower_bound or 0.0) / problem.least_seconds - 1
                    cells += [judge(evaluator, instance, answer.device_of, row["bytes"])]
                    cells += [f"{100 * least:.3f}" if answer.lower_bound else "-"]
                    cells += [answer.status.value, f"{time.monotonic() - begun:.1f}"]
                cells += [""] * (len(columns) - len(cells))
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
