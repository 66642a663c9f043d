"""``placer strategies``: replicas, pipelines and micro-batches beside one placement."""

from __future__ import annotations

import argparse

from placer.commands import options
from placer.commands.terminal import progress, require_writable, show
from placer.errors import NoSolutionError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "strategies",
        help="the table of placer auto --dry-run",
        description="Build and predict the ways to run MODEL on the devices, as placer auto does, "
        "and write none of them: samples per second, memory against the caps, what changes, and "
        "why each is not the best.",
    )
    options.add_model_options(parser)
    options.add_device_options(parser, required=True)
    group = parser.add_argument_group("the placements")
    options.add_placement_options(group, 5.0, "of each search (5), of which there are a few")
    options.add_output_options(
        parser, "write the table here instead of to stdout", formats=options.TABLE_FORMATS
    )
    parser.set_defaults(run=run, objective="transfer")  # each way has an objective of its own


def run(arguments: argparse.Namespace) -> None:
    """Predicts and prints.

    Raises ``UsageError`` for an existing file, ``NoSolutionError`` after the table is printed if
    nothing fits, and what the pipeline raises.
    """
    require_writable(arguments)
    from placer.questions.auto import compare_strategies

    with progress(f"comparing strategies for {arguments.model}", arguments):
        found = compare_strategies(
            arguments.model, arguments.devices, **options.all_options(arguments)
        )
    show(found, arguments)
    if found.chosen is None:
        raise NoSolutionError("no way was found to fit the devices; see the table")
