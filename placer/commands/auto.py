"""``placer auto``: the best way to run a program on some devices, built and verified."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from placer.commands import options
from placer.commands.terminal import progress, show
from placer.errors import NoSolutionError
from placer.files import check_writable

if TYPE_CHECKING:
    from placer.questions.auto import AutoResult


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "auto",
        help="decide how to run a model on some devices, and build that",
        description="Try every way to run MODEL on the devices, the simplest first: as it is, one "
        "placement, parts of the batch in turn or side by side.  The fastest that fits is taken "
        "(ways within the margin of it are equal, the simplest of them wins), written to -o, "
        "verified, and explained.",
    )
    options.add_model_options(parser)
    options.add_device_options(parser, required=True)
    group = parser.add_argument_group("the decision")
    options.add(group, "--for", "--inexact")
    options.add(group, "--margin", type=float, default=0.1)
    group = parser.add_argument_group("the placements")
    options.add_placement_options(group, 5.0, "of each search (5), of which there are a few")
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format", choices=options.PAGE_FORMATS, default="text", help="of what is printed (text)"
    )
    help_text = "folder or file of the placed program; its plan goes to OUT.plan.json"
    options.add_output(group, help_text, required=False, name="OUT")
    group.add_argument("--dry-run", action="store_true", help="show the table and write nothing")
    options.add_verbosity(group)
    parser.set_defaults(run=run, objective="transfer")  # each way has an objective of its own


def run(arguments: argparse.Namespace) -> None:
    """Decides, builds, verifies and prints.

    Raises ``UsageError`` for an existing OUT, ``NoSolutionError`` after the answer is printed if
    nothing fits, ``VerificationError`` if what was built does not run as planned, and what the
    pipeline raises.
    """
    plan_file = f"{arguments.output}.plan.json"
    if arguments.dry_run:
        arguments.output = None
    if arguments.output:
        check_writable(arguments.output, force=arguments.force, may_be_folder=True)
        check_writable(plan_file, force=arguments.force)
    from placer.extraction.process.child_process import start_ahead

    start_ahead()
    from placer.questions.auto import auto

    with progress(f"deciding about {arguments.model}", arguments):
        found = auto(
            arguments.model,
            arguments.devices,
            for_=getattr(arguments, "for"),
            margin=arguments.margin,
            exact=not arguments.inexact,
            **options.all_options(arguments),
        )
        if arguments.output and found.row is not None:
            _build(found, arguments, plan_file)
    show(found, argparse.Namespace(format=arguments.format))
    if found.row is None:
        raise NoSolutionError("no way was found to fit the devices; see above")
    if arguments.output and arguments.format == "text":
        sys.stdout.write(
            f"\nPlaced program written to {arguments.output}, its plan to {plan_file}; a step "
            "of it ran as planned\n"
        )


def _build(found: AutoResult, arguments: argparse.Namespace, plan_file: str) -> None:
    """Writes the placed program and its plan, once a step of it ran as planned."""
    from placer.application.placing.placed_programs import apply
    from placer.application.verifying.verification import verify

    access = options.access_options(arguments)
    verify(arguments.model, found.plan, **access).raise_for_mismatch()
    apply(arguments.model, found.plan, arguments.output, force=arguments.force, **access)
    found.plan.save(plan_file, force=arguments.force)
