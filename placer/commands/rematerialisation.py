"""``placer solve`` of a ``placer.rematerialisation/1`` file: what to compute again."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from placer.commands.terminal import progress
from placer.errors import InfeasibleError, NoSolutionError, UsageError
from placer.files import write_text

if TYPE_CHECKING:
    from placer.fitting.recompute_problem import RematerialisationProblem
    from placer.fitting.recompute_sequences import Rematerialisation

_MOST_SHOWN = 12


def run(problem: RematerialisationProblem, arguments: argparse.Namespace) -> None:
    """Solves the problem, writes and prints the sequence.

    Raises ``UsageError`` for options of placements, ``InfeasibleError`` or ``NoSolutionError``
    after the answer is written.
    """
    from placer.fitting.recompute_sequences import solve_rematerialisation
    from placer.rendering.json_text import to_json
    from placer.solving.solution import Status

    if arguments.objective or arguments.solver != "cp-sat":
        raise UsageError(
            f"{arguments.problem} is not a placement; leave out --objective and --solver"
        )
    with progress(f"solving {arguments.problem}", arguments):
        found = solve_rematerialisation(problem)
    content = _describe(problem, found)
    if arguments.output:
        write_text(arguments.output, to_json(content), force=arguments.force)
    sys.stdout.write(to_json(content) if arguments.format == "json" else _summary(problem, found))
    if found.status is Status.INFEASIBLE:
        least, budget = problem.working_set_bytes, f"{problem.budget_bytes:,} bytes"
        why = f": one node alone reads and writes {least:,}" if least > problem.budget_bytes else ""
        raise InfeasibleError(f"no sequence keeps the budget of {budget} (proven){why}")
    if found.sequence is None:
        raise NoSolutionError(
            f"no sequence within the budget of {problem.budget_bytes:,} bytes was found, which "
            "does not prove that there is none; give a larger budget_bytes"
        )


def _describe(problem: RematerialisationProblem, found: Rematerialisation) -> dict[str, object]:
    """The answer as what JSON can hold: seconds in the unit of the problem."""
    names = problem.node_names
    return {
        "schema": "placer.rematerialisation-solution/1",
        "status": found.status.value,
        "value": found.value,
        "lower_bound": found.lower_bound,
        "extra_share": found.extra_share,
        "peak_bytes": found.peak_bytes,
        "budget_bytes": problem.budget_bytes,
        "keep_order": problem.keep_order,
        "seconds": found.seconds,
        "cut_by_time": False,
        "sequence": None if found.sequence is None else [names[node] for node in found.sequence],
        "warnings": [],
    }


def _summary(problem: RematerialisationProblem, found: Rematerialisation) -> str:
    """A few lines for a terminal."""
    from cost_models.byte_sizes import format_count

    order = "in the given order" if problem.keep_order else "in any order"
    lines = [
        f"{len(problem.node_names):,} nodes {order}, budget {problem.budget_bytes:,} bytes",
        f"{found.status.value} in {found.seconds:.1f} s",
    ]
    if found.sequence is not None and found.value is not None:
        bound = "none proven" if found.lower_bound is None else f"{found.lower_bound:,.9g}"
        lines.append(
            f"{found.value:,.9g} seconds, {found.extra_share:.3%} more than every node once, "
            f"lower bound {bound}; peak {found.peak_bytes:,} bytes"
        )
        counts = Counter(found.sequence)
        again = [node for node in problem.order for _ in range(counts[node] - 1)]
        shown = ", ".join(problem.node_names[node] for node in again[:_MOST_SHOWN])
        more = f" and {len(again) - _MOST_SHOWN:,} more" if len(again) > _MOST_SHOWN else ""
        lines.append(
            "computed again: "
            + format_count(len(again), "node")
            + (f": {shown}{more}" if again else "")
        )
    return "\n".join(lines) + "\n"
