"""Solves the published instances of a folder: splits, values and bounds; see README.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from instances import milliseconds, read_instance, split_of

from placer.prediction.scoring import score
from placer.solving.solution import SolverParameters
from placer.solving.solver import solve, solver_names

EVALUATOR_COMMANDS = {"transfer": "cut", "throughput": "maxload"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=Path, required=True, help="folder of *.json")
    parser.add_argument("--objective", choices=["transfer", "throughput"], required=True)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--solver", default="cp-sat", help=f"one of {', '.join(solver_names())}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluator", type=Path, help="independent evaluator of a split")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print("| instance | status | value, ms | bound, ms | s | evaluator |")
    print("|---|---|---|---|---|---|")
    for path in sorted(options.instances.glob("*.json")):
        print(_row(path, options), flush=True)


def _row(path: Path, options: argparse.Namespace) -> str:
    problem = read_instance(path, options.objective)
    parameters = SolverParameters(time_limit_seconds=options.time_limit, seed=options.seed)
    solution = solve(problem, parameters, solver=options.solver)
    result: dict[str, object] = {
        "instance": path.stem,
        "status": solution.status.value,
        "seconds": solution.seconds,
    }
    seen = ""
    if solution.device_of is not None and solution.value is not None:
        assert not score(problem, solution.device_of).violations
        split = options.out / f"{path.stem}.split.json"
        split.write_text(json.dumps(split_of(problem, solution.device_of)))
        result["value_ms"] = milliseconds(problem, solution.value)
        if solution.lower_bound is not None:
            result["bound_ms"] = milliseconds(problem, solution.lower_bound)
        if options.evaluator:
            seen = _evaluate(options.evaluator, options.objective, path, split)
    (options.out / f"{path.stem}.result.json").write_text(json.dumps(result, indent=1))
    value, bound = result.get("value_ms"), result.get("bound_ms")
    numbers = " | ".join("-" if n is None else f"{n:.4f}" for n in (value, bound))
    return f"| {path.stem} | {result['status']} | {numbers} | {solution.seconds:.1f} | {seen} |"


def _evaluate(evaluator: Path, objective: str, instance: Path, split: Path) -> str:
    command = [sys.executable, str(evaluator), EVALUATOR_COMMANDS[objective]]
    done = subprocess.run(
        [*command, str(instance), str(split)], check=True, capture_output=True, text=True
    )
    return "; ".join(line.partition(" {")[0] for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
