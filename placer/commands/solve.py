"""``placer solve``: the bare placement problem, without TensorFlow."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placer.commands import option_values, options, rematerialisation
from placer.commands.terminal import progress, require_writable
from placer.errors import InfeasibleError, NoSolutionError, UsageError
from placer.files import write_text
from placer.plan.schemas import broken_json, read_kept
from placer.solving.process import clock

if TYPE_CHECKING:
    from placer.fitting.recompute_problem import RematerialisationProblem
    from placer.problem.placement_problem import PlacementProblem
    from placer.solving.solution import Solution


_SEARCH = ("seed", "time_limit", "workers", "work_limit")
"""Options of this search alone."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "solve",
        description="Solve a placement problem (a placer.problem/1 JSON file, see "
        "docs/formulation.md) or a recomputation problem (placer.rematerialisation/1, see "
        "docs/research.md), and print the solution with its value and bound.",
    )
    parser.add_argument("problem", metavar="PROBLEM", help="Problem file")
    group = parser.add_argument_group("search")
    options.add(group, "--objective", default=None, help="Replace the objective of the file")
    options.add(group, "--solver", default="cp-sat")
    options.add(group, "--seed", type=option_values.count, default=0)
    options.add_time_limit(group, 30.0, "the search")
    options.add(group, "--workers", type=option_values.positive, default=0)
    options.add(group, "--work-limit", type=option_values.positive)
    options.add_output_options(parser, "Write the solution here, as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Solves the problem, writes and prints the solution.

    Raises ``UsageError`` for a file that is no problem, ``InfeasibleError`` or ``NoSolutionError``
    after the solution is written.
    """
    from dataclasses import replace

    from placer.problem.placement_problem import PlacementProblem
    from placer.rendering.json_text import to_json
    from placer.solving.solution import SolverParameters, Status
    from placer.solving.solver import solve

    require_writable(arguments)
    problem = read_problem(Path(arguments.problem))
    parameters = SolverParameters(
        time_limit_seconds=arguments.time_limit,
        seed=arguments.seed,
        workers=arguments.workers,
        work_limit=arguments.work_limit,
    )
    if not isinstance(problem, PlacementProblem):
        options.refuse(arguments, _SEARCH, "is for placements; this is not one: leave it out")
        rematerialisation.run(problem, arguments)
        return
    if arguments.solver != "cp-sat":
        options.refuse(arguments, _SEARCH, f"has no effect on {arguments.solver}: leave it out")
    if arguments.objective:
        problem = replace(problem, objective=arguments.objective)
    deadline = clock.monotonic() + arguments.time_limit
    with progress(f"solving {arguments.problem}", arguments):
        solution = solve(problem, parameters, solver=arguments.solver)
        if solution.unsolvable is not None:
            from placer.solving.conflicts.conflict import conflict_seconds, explain_conflict

            conflict = explain_conflict(solution.unsolvable, conflict_seconds(deadline))
            solution = replace(solution, conflict=conflict)
    content = describe(problem, solution)
    if arguments.output:
        write_text(arguments.output, to_json(content), force=arguments.force)
    if arguments.format == "json":
        sys.stdout.write(to_json(content))
    else:
        sys.stdout.write(_summary(problem, solution, arguments))
    if solution.status is Status.INFEASIBLE:
        raise InfeasibleError(
            "no placement keeps the limits of the problem (proven)", solution.conflict
        )
    if solution.device_of is None:
        reasons = "; ".join(text for _, text in solution.warnings)
        raise NoSolutionError(
            f"no placement was found: {reasons or 'give more time with --time-limit'}"
        )


def read_problem(path: Path) -> PlacementProblem | RematerialisationProblem:
    """The problem in a file.

    Raises :class:`UsageError` if there is none, or if it contradicts itself.
    """
    from placer.fitting import recompute_problem as rematerialised
    from placer.problem.placement_problem import check, from_json

    try:
        text = read_kept(path, "problem")
        if f'"{rematerialised.SCHEMA}"' in text:
            return rematerialised.from_document(json.loads(text))
        problem = from_json(text)
        check(problem)
    except json.JSONDecodeError as error:
        raise broken_json(str(path), error) from error
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not a placement problem: {_reason(error)}") from error
    return problem


def _reason(error: Exception) -> str:
    """Returns what a document lacks or has wrong, without the words of Python.

    >>> _reason(TypeError("P.__init__() missing 2 required keyword-only arguments: 'a' and 'b'"))
    'it lacks a and b'
    """
    told = str(error)
    missing, _, names = told.partition(" required keyword-only argument")
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    if "__init__() missing" in missing:
        return f"it lacks {names.partition(': ')[2].replace(chr(39), '')}"
    if "unexpected keyword argument" in told:
        return f"it has a key that no problem has: {told.rpartition(' ')[2]}"
    if isinstance(error, TypeError | AttributeError):
        return f"a value is of another kind than docs/formulation.md says ({told})"
    return told


def describe(problem: PlacementProblem, solution: Solution) -> dict[str, object]:
    """The solution as what JSON can hold: the unit of ``value`` and ``lower_bound`` is bytes for
    transfer, seconds for the other objectives."""
    return {
        "schema": "placer.solution/1",
        "objective": problem.objective,
        "status": solution.status.value,
        "value": solution.value,
        "lower_bound": solution.lower_bound,
        "relative_gap": solution.relative_gap,
        "seconds": solution.seconds,
        "cut_by_time": solution.is_cut,
        **(cost_parts(problem, solution.device_of) if solution.device_of else {}),
        "placement": problem.placement(solution.device_of) if solution.device_of else {},
        "warnings": [{"code": code, "message": text} for code, text in solution.warnings],
        "conflict": solution.conflict.to_json() if solution.conflict else {},
    }


def cost_parts(problem: PlacementProblem, device_of: Sequence[int]) -> dict[str, int]:
    """Returns what a placement costs, in parts."""
    from placer.prediction.scoring import sends, slower_bytes

    sent, messages = sends(problem, device_of)
    slower = slower_bytes(problem, device_of)
    return {"sent_bytes": sent, "messages": messages, "slower_bytes": slower}


def _summary(problem: PlacementProblem, solution: Solution, limits: argparse.Namespace) -> str:
    """A few lines for a terminal."""
    from placer.rendering.text.plan_text import cut_note

    unit = "bytes" if problem.objective == "transfer" else "s"
    status, note = solution.status.value, ""
    if solution.is_cut and status not in ("OPTIMAL", "INFEASIBLE"):
        note = f"; {cut_note(solution.seconds, limits.time_limit, limits.work_limit)}"
    lines = [
        f"{len(problem.op_names):,} ops on {len(problem.device_names)} devices, "
        f"objective {problem.objective}",
        f"{status} in {solution.seconds:.1f} s{note}",
    ]
    if solution.value is not None:
        bound = "none proven" if solution.lower_bound is None else f"{solution.lower_bound:,.9g}"
        lines.append(f"value {solution.value:,.9g} {unit}, lower bound {bound}")
    if solution.device_of is not None:
        parts = cost_parts(problem, solution.device_of)
        lines.append(
            f"sends {parts['sent_bytes']:,} bytes in {parts['messages']:,} messages; slower work "
            f"is worth {parts['slower_bytes']:,} bytes"
        )
        counts = [solution.device_of.count(d) for d in range(len(problem.device_names))]
        named = zip(problem.device_names, counts, strict=True)
        lines.append("ops: " + ", ".join(f"{name} {count:,}" for name, count in named))
    if solution.conflict:
        from placer.rendering.text.conflict_text import conflict_text

        lines.append(conflict_text(solution.conflict))
    lines += [f"warning: {text}" for _, text in solution.warnings]
    return "\n".join(lines) + "\n"
