"""``placer apply``: the placed program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from placer.commands import options

if TYPE_CHECKING:
    import argparse


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "apply",
        help="write the placed SavedModel or GraphDef",
        description="Write MODEL with every op on the device that PLAN gives it.  The plan must "
        "be of this model (their fingerprints must agree).",
    )
    options.add_model(parser)
    parser.add_argument("plan", metavar="PLAN", help="plan.json of placer place")
    parser.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="folder or file of the placed program"
    )
    parser.add_argument("--force", action="store_true", help="overwrite OUT")
    options.add_choice_options(parser)
    options.add_verbosity(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Applies the plan and says where the placed program is.

    Raises ``UsageError`` for an existing OUT or a plan that is none or of another model.
    """
    from placer.commands.placement import require_placement
    from placer.commands.terminal import progress
    from placer.files import check_writable
    from placer.plan import Plan

    check_writable(arguments.output, force=arguments.force)
    plan = Plan.load(arguments.plan)
    require_placement(plan)
    from placer.application import apply

    with progress(f"applying {arguments.plan}", arguments):
        apply(
            arguments.model,
            plan,
            arguments.output,
            force=arguments.force,
            **options.choice_options(arguments),
        )
    if not arguments.quiet:
        sys.stdout.write(f"Placed program written to {arguments.output}\n")
