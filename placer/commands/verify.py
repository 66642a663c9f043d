"""``placer verify``: run once, and compare what ran with what was planned."""

from __future__ import annotations

import argparse

from placer.commands import options
from placer.commands.terminal import emit, progress, require_writable, style
from placer.errors import UsageError
from placer.files import check_writable


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "verify",
        description="Run MODEL once, with and without its placement.  Compare the device that ran "
        "each op with the planned one, the transfers with the predicted ones, and the outputs with "
        "each other.  Where this machine lacks the plan's devices, the "
        "program runs on CPU devices.  With --memory the placed program is also loaded and run "
        "for ten steps on simulated GPUs with the plan's memory limits.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="Placed model, or, if PLAN is given, the model that the plan was made for",
    )
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="Plan that placer place wrote")
    group = parser.add_argument_group("run")
    options.add(group, "--inputs", "--on-hardware", "--optimized", "--fallback")
    options.add_old_name(group, "--optimised", "optimized", action="store_true")
    options.add(group, "--memory", "--cluster", "--record")
    options.add_time_limit(group, 600.0, "both runs together, unplaced and placed")
    options.add_fail_on(parser.add_argument_group("gates (exit code 7)"), ("fallback",))
    options.add_output_options(parser, "Write the result here instead of to stdout")
    options.add_choice_options(parser.add_argument_group("model options"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Verifies and prints what was found.

    Raises ``UsageError`` for an existing file or unreadable inputs, ``VerificationError`` for
    unexplained differences, ``GateError`` if a gate tripped.
    """
    from dataclasses import replace

    from placer.application.running.input_files import read_inputs
    from placer.commands import gates
    from placer.plan.plan import Plan

    require_writable(arguments)
    plan = Plan.load(arguments.plan) if arguments.plan else None
    if arguments.record:
        if plan is None:
            raise UsageError("--record writes a plan with what was found: give PLAN too")
        check_writable(arguments.record, force=arguments.force)
    inputs = read_inputs(arguments.inputs) if arguments.inputs else None
    from placer.application.placing.fallback import record_moves, refuse_moves
    from placer.application.verifying.verification_result import seen_moves
    from placer.rendering.json_text import to_json
    from placer.rendering.text.verification_text import render_verification

    with progress(f"running {arguments.model}", arguments):
        from placer.application.verifying.verification import verify

        found = verify(
            arguments.model,
            plan,
            inputs,
            on_hardware=arguments.on_hardware,
            strict=arguments.fallback == "strict",
            optimised=arguments.optimized,
            time_limit_seconds=arguments.time_limit,
            cluster=arguments.cluster,
            memory=arguments.memory,
            **options.choice_options(arguments),
        )
    found = replace(found, gate=gates.check_moved(arguments.fail_on, found))
    if arguments.format == "json":
        emit(to_json(found), arguments)
    else:
        shape = style(to_file=bool(arguments.output))
        emit(render_verification(found, arguments.model, **shape), arguments)
    if plan is not None and arguments.record:
        record_moves(plan, seen_moves(found)).save(arguments.record, force=arguments.force)
    found.raise_for_mismatch()
    if arguments.fallback == "strict":
        refuse_moves(seen_moves(found), "moved")
    gates.require(found.gate)
