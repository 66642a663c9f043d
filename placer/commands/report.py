"""``placer report``: what is in a model, and with devices where it would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.commands import options
from placer.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from placer.plan.plan import Plan
    from placer.plan.report import Report


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="what is in a model: memory, work, hotspots; with devices, where it would run",
        description="Show what is in a model, what a step takes, and what stands in the way of "
        "placing it.  With --devices it is placed too.  Weights are never loaded.",
    )
    options.add_model_options(parser, sweeps=True)
    options.add_device_options(parser, required=False)
    options.add_search_options(parser)
    options.add_gate_options(parser)
    options.add_output_options(
        parser, "write the report here instead of to stdout", formats=options.PAGE_FORMATS
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Analyses the model and prints the report.

    Raises ``UsageError`` for an existing file or an option that needs devices, ``GateError`` if a
    gate tripped, and what the pipeline raises.
    """
    from placer.commands import gates
    from placer.commands.place import all_options, find_limits, require_placement
    from placer.commands.terminal import progress, require_writable, show
    from placer.extraction.process.child_process import start_ahead

    require_writable(arguments)
    _require_devices(arguments)
    limits = find_limits(arguments)
    start_ahead()
    if isinstance(arguments.batch_size, tuple):
        _sweep(arguments)
        return
    baseline = gates.read_baseline(arguments)
    # what takes a while to load, while the reading process starts
    import cost_models.rules  # noqa: F401
    import placer.rendering.text.report_text  # noqa: F401
    from placer.pipeline.pipeline import report

    with progress(f"analysing {arguments.model}", arguments):
        found = report(arguments.model, arguments.devices, **all_options(arguments))
    show(found, arguments)
    if found.plan is not None:
        require_placement(found.plan)
    _check_gates(found, arguments.fail_on, limits, baseline)


def _sweep(arguments: argparse.Namespace) -> None:
    """Several batch sizes side by side.  Raises ``UsageError`` for gates, which need one size."""
    from placer.commands.place import all_options
    from placer.commands.terminal import progress, show
    from placer.questions.batch_sizes import sweep

    if arguments.format == "html":
        raise UsageError("--format html shows one batch size; give one, or another format")
    if arguments.fail_over or arguments.fail_on or arguments.baseline:
        raise UsageError("gates need one batch size; give one --batch-size, or no gate")
    wanted = all_options(arguments)
    sizes = wanted.pop("batch_size")
    with progress(f"analysing {arguments.model} at {len(sizes)} batch sizes", arguments):
        found = sweep(arguments.model, sizes, arguments.devices, **wanted)
    show(found, arguments)


def _require_devices(arguments: argparse.Namespace) -> None:
    """Nothing, or ``UsageError`` if an option means nothing without devices."""
    for flag in (
        "max_memory",
        "reserve",
        "pin",
        "pin_type",
        "keep_together",
        "fail_over",
        "baseline",
    ):
        if getattr(arguments, flag) and not arguments.devices:
            raise UsageError(f"--{flag.replace('_', '-')} needs --devices, such as 2xA100-40GB")


def _check_gates(
    report: Report,
    fail_on: tuple[str, ...],
    limits: dict[str, int],
    baseline: tuple[Plan, float] | None,
) -> None:
    """Raises ``GateError`` if a gate tripped: of findings, and with a plan of its peaks."""
    from placer.commands import gates

    codes = {} if report.plan is None else gates.count_codes(report.plan)
    codes["unknown_shape"] = len(report.unknown_shapes)
    failures = gates.check_findings(fail_on, report.unmodelled, codes)
    if report.plan is not None:
        failures += gates.check_limits(report.plan, limits)
        failures += gates.check_baseline(report.plan, baseline)
    gates.require(failures)
