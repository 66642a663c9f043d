"""``placer auto``: the best strategy for a program on some devices, built and verified."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from placer.commands import option_values, options
from placer.commands.terminal import progress, show
from placer.errors import NoSolutionError, UsageError
from placer.files import check_writable

if TYPE_CHECKING:
    from placer.questions.auto_result import AutoResult


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "auto",
        description="Predict every supported strategy for MODEL on the devices: the program "
        "as it is, one placement of it, or the batch in parts that run in turn or side by side.  "
        "The fastest that fits is verified and written to -o.  Strategies within the margin count "
        "as equally fast; the simplest of them is taken.",
    )
    options.add_device_options(parser)
    group = parser.add_argument_group("decision")
    options.add(group, "--for", "--inexact")
    options.add(group, "--margin", type=option_values.share, default=0.1)
    group = parser.add_argument_group("placements")
    options.add_placement_options(group, 5.0, "each search")
    group = parser.add_argument_group("output")
    options.add_format(group, options.PAGE_FORMATS)
    help_text = "Write the placed program here (a folder or a file), and its plan to OUT.plan.json"
    options.add_output(group, help_text, required=False, name="OUT")
    group.add_argument("--dry-run", action="store_true", help="Print the table and write nothing")
    options.add_verbosity(group)
    options.add_model_options(parser)
    parser.set_defaults(run=run, objective="transfer")  # each strategy has its own objective


def run(arguments: argparse.Namespace) -> None:
    """Decides, builds, verifies and prints.

    Raises ``UsageError`` for an existing OUT, ``NoSolutionError`` after the answer is printed if
    nothing fits, ``VerificationError`` if what was built does not run as planned, and what the
    pipeline raises.
    """
    plan_file = f"{arguments.output}.plan.json"
    if arguments.dry_run and arguments.output:
        raise UsageError("--dry-run writes nothing: leave it out, or leave out -o")
    if getattr(arguments, "for") == "memory":
        options.refuse(arguments, ["margin"], "has no effect with --for memory: leave it out")
    if arguments.output:
        check_writable(arguments.output, force=arguments.force, may_be_folder=True)
        check_writable(plan_file, force=arguments.force)
        from placer.extraction.files.model_paths import check_folder_name

        check_folder_name(arguments.output, arguments.model)
    from placer.extraction.process.child_process import start_reader_ahead

    start_reader_ahead()
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
    if found.row is None and arguments.format == "text":  # why stands first in what was shown
        raise NoSolutionError("no strategy fits")
    found.require_row()
    if arguments.output and arguments.format == "text":
        sys.stdout.write(
            f"\nPlaced program written to {arguments.output}, its plan to {plan_file}; a step "
            "of it ran as planned\n"
        )
    elif arguments.format == "text" and not arguments.dry_run and not found.changes_nothing:
        sys.stdout.write("\nNothing is written: -o OUT verifies and writes the placed program\n")


def _build(found: AutoResult, arguments: argparse.Namespace, plan_file: str) -> None:
    """Writes the placed program and its plan, once a step of it ran as planned."""
    from placer.application.placing.placed_programs import apply
    from placer.application.verifying.verification import verify

    access = options.access_options(arguments)
    verify(arguments.model, found.plan, **access).raise_for_mismatch()
    apply(arguments.model, found.plan, arguments.output, force=arguments.force, **access)
    found.plan.save(plan_file, force=arguments.force)
