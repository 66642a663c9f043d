"""Published rematerialisation instances: extra time within a budget, judged by their evaluator.

    python benchmarks/rematerialisation/published.py FOLDER [NAME...] [--seconds 60]

FOLDER has the instances as JSON and ``evaluator.py``, which judges every sequence.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from placer.solving.rematerialisation.problem import RematerialisationProblem
from placer.solving.rematerialisation.solver import Rematerialisation, solve_rematerialisation
from placer.solving.solution import SolverParameters


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
    evaluator: ModuleType, instance: dict[str, Any], found: Rematerialisation, budget: int
) -> float | None:
    """The extra time in percent by the evaluator; raises ``ValueError`` if it finds a fault."""
    if found.sequence is None:
        return None
    ids = [node["id"] for node in instance["nodes"]]
    told = evaluator.evaluate(instance, [ids[node] for node in found.sequence], budget, 2)
    if told["errors"]:
        raise ValueError(f"{instance['name']}: {told['errors'][0]}")
    return float(told["extra_percent"])


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
    print("| instance | nodes | budget | order | extra % | at least % | status | seconds |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
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
                found = solve_rematerialisation(
                    posed, SolverParameters(time_limit_seconds=given.seconds)
                )
                extra = judge(evaluator, instance, found, row["bytes"])
                bound = found.lower_bound
                least = None if bound is None else 100 * (bound / problem.least_seconds - 1)
                shown = "none found" if extra is None else f"{extra:.3f}"
                print(
                    f"| {path.stem} | {len(problem.order)} | {row['fraction']} | "
                    f"{'kept' if kept else 'any'} | {shown} | "
                    f"{'-' if least is None else f'{least:.3f}'} | {found.status.value} | "
                    f"{found.seconds:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
