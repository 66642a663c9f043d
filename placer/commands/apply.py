"""``placer apply``: the placed program."""

from __future__ import annotations

import argparse
import sys

from placer.commands import options
from placer.commands.place import require_placement
from placer.commands.terminal import progress
from placer.errors import NoSolutionError, UsageError
from placer.files import check_writable


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "apply",
        description="Write MODEL with every op on the device that PLAN gives it.  The plan must "
        "be of this model; MODEL may be placed already.",
    )
    options.add_model(parser)
    parser.add_argument(
        "plan", metavar="PLAN", nargs="?", help="Plan that placer place wrote (none with --clear)"
    )
    options.add_output(parser, "Write the placed program here (a folder or a file)", name="OUT")
    options.add(parser, "--clear", "--on-cpu-devices", "--drop-unused", "--fallback")
    options.add_old_name(parser, "--rehearse", "on_cpu_devices", action="store_true")
    options.add_verbosity(parser)
    options.add_choice_options(parser.add_argument_group("model options"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Applies the plan and says where the placed program is.

    Raises ``UsageError`` for an existing OUT, a plan that is none or of another model, and neither
    or both of a plan and ``--clear``; ``VerificationError`` with ``--fallback strict`` if
    TensorFlow would move ops.
    """
    from placer.plan.plan import Plan

    if arguments.clear and arguments.on_cpu_devices:
        raise UsageError(
            "--clear removes the devices that --on-cpu-devices names: leave out one of them"
        )
    if arguments.clear:
        names = (*options.CHOICE, "fallback")
        options.refuse(arguments, names, "has no effect with --clear: leave it out")
    if arguments.clear == bool(arguments.plan):
        raise UsageError("give either a PLAN to apply, or --clear to undo a placement")
    check_writable(arguments.output, force=arguments.force, may_be_folder=True)
    plan = None if arguments.clear else Plan.load(arguments.plan)
    if plan is not None:
        plan.raise_for_conflict()
        try:
            require_placement(plan)
        except NoSolutionError as error:
            raise NoSolutionError(f"{arguments.plan} has no placement to apply: {error}") from error
    with progress(f"writing {arguments.output}", arguments):
        from placer.application.placing.placed_programs import apply, clear

        if plan is None:
            access = options.access_options(arguments)
            clear(
                arguments.model,
                arguments.output,
                force=arguments.force,
                drop_unused=arguments.drop_unused,
                **access,
            )
        else:
            apply(
                arguments.model,
                plan,
                arguments.output,
                force=arguments.force,
                rehearse=arguments.on_cpu_devices,
                drop_unused=arguments.drop_unused,
                strict=arguments.fallback == "strict",
                **options.choice_options(arguments),
            )
    if not arguments.quiet:
        what = "Program without devices" if plan is None else "Placed program"
        sys.stdout.write(f"{what} written to {arguments.output}\n")
