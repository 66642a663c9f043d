"""``placer diff``: two plans or two models side by side; ``placer compare``: a model placed by
several methods."""

from __future__ import annotations

import argparse
import os

from placer.commands import options
from placer.commands.place import require_placement
from placer.commands.terminal import progress, require_writable, show
from placer.errors import UsageError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands to the parser."""
    _add_diff(commands)
    _add_compare(commands)


def _add_diff(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "diff",
        description="Compare two plans (which ops moved, what is sent, required memory, step time) "
        "or two models (parameters, memory, work, and which ops are new, gone or changed).",
    )
    parser.add_argument("before", metavar="A", help="A plan or a model")
    parser.add_argument("after", metavar="B", help="Another one of the same kind")
    options.add_output_options(
        parser, "Write the difference here instead of to stdout", formats=options.TABLE_FORMATS
    )
    options.add_program_options(parser.add_argument_group("model options"))
    parser.set_defaults(run=run)


def _add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compare",
        description="Place MODEL with every known method: one device, TensorFlow's default, the "
        "device maps of other tools, published heuristics, the graph's own device strings if it "
        "has some, and placer (the solver, or the one that --solver names).  "
        "Shows what each sends, how long a step takes and what every device holds.",
    )
    options.add_device_options(parser)
    options.add_search_options(parser, limited="each method")
    options.add_output_options(
        parser, "Write the comparison here instead of to stdout", formats=options.TABLE_FORMATS
    )
    options.add_model_options(parser)
    parser.set_defaults(run=run_compare)


def run(arguments: argparse.Namespace) -> None:
    """Compares and prints.

    Raises ``UsageError`` for a plan and a model, plans of different models, or an existing file.
    """
    from dataclasses import replace

    require_writable(arguments)
    for path in (arguments.before, arguments.after):
        if not os.path.exists(path) and "://" not in path:
            raise UsageError(f"cannot read {path}: there is no such file")
    plans = [_is_plan(path) for path in (arguments.before, arguments.after)]
    if plans[0] != plans[1]:
        plan, model = arguments.before, arguments.after
        if plans[1]:
            plan, model = model, plan
        raise UsageError(f"{plan} is a plan and {model} is not: compare two plans or two models")
    if plans[0]:
        options.refuse(arguments, options.PROGRAM, "is for models; these are plans: leave it out")
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


def run_compare(arguments: argparse.Namespace) -> None:
    """Compares and prints.

    Raises ``UsageError`` for an existing file, ``InfeasibleError`` or ``NoSolutionError`` after
    the comparison is printed if the solver has no placement, and what the pipeline raises.
    """
    require_writable(arguments)
    from placer.questions.comparison import compare

    with progress(f"comparing methods for {arguments.model}", arguments):
        found = compare(arguments.model, arguments.devices, **options.all_options(arguments))
    show(found, arguments)
    require_placement(found.plan)
