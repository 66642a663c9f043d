"""``placer export``: a plan for other tools."""

from __future__ import annotations

import argparse
import sys

from placer.commands import option_values, options
from placer.commands.terminal import progress
from placer.errors import UsageError
from placer.files import check_writable
from placer.rendering.exports.formats import FORMATS

MOST_NODES = 300
"""Nodes of a graph file that a person can still look at."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    what = "; ".join(f"{name}: {known.what}" for name, known in FORMATS.items())
    folders = ", ".join(name for name, known in FORMATS.items() if known.folder)
    collapsed = " and ".join(name for name, known in FORMATS.items() if known.collapses)
    parser = commands.add_parser(
        "export",
        description="Write what PLAN predicts in a format of another tool.  The model is read "
        f"again and must be the one that the plan was made for.  Formats: {what}.",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=tuple(FORMATS),
        metavar="FORMAT",
        help=f"Format: {', '.join(FORMATS)}",
    )
    options.add_output(parser, f"Write this file ({folders}: folder)")
    options.add_plan(parser)
    parser.add_argument(
        "--nodes",
        type=option_values.positive,
        default=MOST_NODES,
        metavar="N",
        help=f"Draw at most so many nodes in {collapsed} [default: {MOST_NODES}]",
    )
    options.add_verbosity(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Writes the file and says so.

    Raises ``UsageError`` for an existing file, a plan that is none, without a placement or of
    another model.
    """
    from placer.plan.plan import Plan
    from placer.questions.saved_plans import with_step

    known = FORMATS[arguments.to]
    if not known.collapses:
        options.refuse(arguments, ["nodes"], f"has no effect on {arguments.to}: leave it out")
    check_writable(arguments.output, force=arguments.force, may_be_folder=known.folder)
    plan = Plan.load(arguments.plan)
    if not plan.placement and not known.whole_plan:
        plan.raise_for_conflict()
        others = ", ".join(f"--to {name}" for name, other in FORMATS.items() if other.whole_plan)
        raise UsageError(
            f"{arguments.plan} has no placement ({plan.solver.status}): there is nothing to "
            f"draw as {arguments.to}; {others} and placer explain show why"
        )
    with progress(f"exporting {arguments.plan}", arguments):
        if plan.placement:
            plan = with_step(plan, arguments.model, **options.plan_changes(arguments))
        nodes, force = arguments.nodes, arguments.force
        known.write(plan, arguments.output, most_nodes=nodes, force=force)
    if not arguments.quiet:
        sys.stdout.write(f"{arguments.to} written to {arguments.output}\n")
