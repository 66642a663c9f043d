"""``placer compare``: strategies side by side."""

from __future__ import annotations

import argparse

from placer.commands import options
from placer.commands.place import require_placement
from placer.commands.terminal import progress, require_writable, show


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "compare",
        help="strategies side by side",
        description="Place MODEL with every strategy known: one device, TensorFlow's default, the "
        "device maps of other tools, the heuristics of the literature, the graph's own device "
        "strings if it has some, and this solver; show what each transfers, how long a step "
        "takes and what every device holds.",
    )
    options.add_model_options(parser)
    options.add_device_options(parser, required=True)
    options.add_search_options(parser)
    options.add_output_options(
        parser, "write the comparison here instead of to stdout", formats=options.TABLE_FORMATS
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Compares and prints.

    Raises ``UsageError`` for an existing file, ``InfeasibleError`` or ``NoSolutionError`` after
    the comparison is printed if the solver has no placement, and what the pipeline raises.
    """
    require_writable(arguments)
    from placer.questions.comparison import compare

    with progress(f"comparing strategies for {arguments.model}", arguments):
        found = compare(arguments.model, arguments.devices, **options.all_options(arguments))
    show(found, arguments)
    require_placement(found.plan)
