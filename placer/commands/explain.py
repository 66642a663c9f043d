"""``placer explain``: why an op sits where it sits, or why nothing fits."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from placer.commands import options
from placer.commands.terminal import progress, show, style
from placer.errors import UsageError

if TYPE_CHECKING:
    from placer.plan.plan import Plan


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "explain",
        description="With OP: show its device and why, what it must share a device with, and what "
        "moving it would cost.  Without OP: show, for each device, why its ops are there.  For a "
        "plan without a placement: show why nothing fits, and the smallest changes that make it "
        "fit.",
    )
    options.add_plan(parser)
    parser.add_argument("op", metavar="OP", nargs="?", help="Name of an op in the plan")
    options.add_time_limit(
        parser,
        None,
        "a new search for changes that make it fit",
        "no new search if the plan already names such changes, else 120",
    )
    options.add_output_options(parser, formats=("text", "json", "markdown"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Explains and prints.

    Raises ``UsageError`` for a plan that is none or of another model, or an op that is not in it.
    """
    from placer.plan.plan import Plan
    from placer.questions.explanation import explain

    plan = Plan.load(arguments.plan)
    if not plan.fits and not (arguments.op and plan.placement):
        if arguments.op:
            raise UsageError(
                f"{arguments.plan} has no placement ({plan.solver.status}), so {arguments.op} has "
                "no device: leave it out to see why nothing fits"
            )
        _explain_conflict(plan, arguments)
        return
    why = "is for a plan without a placement, and this one has a placement: leave it out"
    options.refuse(arguments, ["time_limit"], why)
    changes = options.plan_changes(arguments)
    with progress(f"explaining {arguments.plan}", arguments):
        found = explain(plan, arguments.op, arguments.model, **changes)
    show(found, arguments)


def _explain_conflict(plan: Plan, arguments: argparse.Namespace) -> None:
    """Prints why nothing fits, and what would: by the plan, or by a new search."""
    rows = () if plan.conflict is None else plan.conflict.fixes
    if not rows or arguments.time_limit is not None or arguments.costs is not None:
        from placer.questions.fixes import find_fixes

        limit, changes = arguments.time_limit or 120.0, options.plan_changes(arguments)
        with progress(f"explaining {arguments.plan}", arguments):
            found = find_fixes(plan, arguments.model, time_limit=limit, **changes)
        rows = tuple(fix.row for fix in found)
    if arguments.format == "json":
        from dataclasses import replace

        from placer.problem.conflict import fix_to_json
        from placer.rendering.json_text import to_json

        conflict = None if plan.conflict is None else replace(plan.conflict, fixes=rows).to_json()
        told = [fix_to_json(row) for row in rows]
        data = {"status": plan.solver.status, "conflict": conflict, "fixes": told}
        sys.stdout.write(to_json(data))
        return
    from placer.rendering.text.explanation_text import conflict_blocks
    from placer.rendering.text.formats import render

    document = partial(conflict_blocks, plan, rows)
    sys.stdout.write(render(document, arguments.format, **style()))
