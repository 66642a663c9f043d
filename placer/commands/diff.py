"""``placer diff``: what differs between two plans or two models."""

from __future__ import annotations

import argparse
import os

from placer.commands import options
from placer.commands.terminal import progress, require_writable, show
from placer.errors import UsageError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "diff",
        help="what differs between two plans or two models",
        description="Compare two plans (which ops moved, what is sent, peaks, step time) or two "
        "models (which ops are new, gone or changed, parameters, memory, work).",
    )
    parser.add_argument("before", metavar="A", help="a plan.json, or a model")
    parser.add_argument("after", metavar="B", help="another one")
    group = parser.add_argument_group("what is analysed of models")
    options.add_program_options(group)
    options.add_output_options(
        parser, "write the difference here instead of to stdout", formats=options.TABLE_FORMATS
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Compares and prints.

    Raises ``UsageError`` for a plan and a model, plans of different models, or an existing file.
    """
    from dataclasses import replace

    require_writable(arguments)
    plans = [_is_plan(path) for path in (arguments.before, arguments.after)]
    if plans[0] != plans[1]:
        plan, model = arguments.before, arguments.after
        if plans[1]:
            plan, model = model, plan
        raise UsageError(f"{plan} is a plan and {model} is none: compare two plans or two models")
    from placer.plan.plan import Plan
    from placer.questions.difference import diff_models, diff_plans

    with progress(f"comparing {arguments.before} and {arguments.after}", arguments):
        if plans[0]:
            found = diff_plans(Plan.load(arguments.before), Plan.load(arguments.after))
        else:
            wanted = options.program_options(arguments)
            found = diff_models(arguments.before, arguments.after, **wanted)
    show(replace(found, before=arguments.before, after=arguments.after), arguments)


def _is_plan(path: str) -> bool:
    """Whether a file is called a plan, or begins as one does, and as no model can."""
    if path.endswith(".json") or not os.path.isfile(path):
        return path.endswith(".json") and not os.path.isdir(path)
    try:
        with open(path, "rb") as file:
            return file.read(64).lstrip().startswith(b"{")
    except OSError:  # the reader of models says why
        return False
