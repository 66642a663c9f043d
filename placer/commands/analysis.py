"""``placer report``: what is in a model, and with devices where it would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.commands import options
from placer.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from placer.findings import Report


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="what is in a model: memory, work, hotspots; with devices, where it would run",
        description="Show what is in a model, what a step takes, and what stands in the way of "
        "placing it.  With --devices it is placed too.  Weights are never loaded.",
    )
    options.add_model_options(parser)
    options.add_device_options(parser, required=False)
    options.add_search_options(parser)
    options.add_gate_options(parser)
    options.add_output_options(parser, "write the report here instead of to stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Analyses the model and prints the report.

    Raises ``UsageError`` for an existing file or an option that needs devices, ``GateError`` if a
    gate tripped, and what the pipeline raises.
    """
    from placer.commands.placement import all_options, find_limits, require_placement
    from placer.commands.terminal import emit, progress, style
    from placer.files import check_writable

    if arguments.output:
        check_writable(arguments.output, force=arguments.force)
    _require_devices(arguments)
    limits = find_limits(arguments)
    from placer.pipeline import report

    with progress(f"analysing {arguments.model}", arguments):
        found = report(arguments.model, arguments.devices, **all_options(arguments))
    emit(_render(found, arguments.format, **style(to_file=bool(arguments.output))), arguments)
    if found.plan is not None:
        require_placement(found.plan)
    _check_gates(found, arguments.fail_on, limits)


def _require_devices(arguments: argparse.Namespace) -> None:
    """Nothing, or ``UsageError`` if an option means nothing without devices."""
    for flag in ("max_memory", "reserve", "pin", "pin_type", "keep_together", "fail_over"):
        if getattr(arguments, flag) and not arguments.devices:
            raise UsageError(f"--{flag.replace('_', '-')} needs --devices, such as 2xA100-40GB")


def _render(report: Report, format_name: str, *, width: int, colour: bool) -> str:
    if format_name == "json":
        from placer.rendering.json_text import report_json

        return report_json(report)
    from placer.rendering.report_text import render_report

    return render_report(report, width=width, colour=colour)


def _check_gates(report: Report, fail_on: tuple[str, ...], limits: dict[str, int]) -> None:
    from placer.commands import gates

    codes = {} if report.plan is None else gates.count_codes(report.plan)
    codes["unknown_shape"] = len(report.unknown_shapes)
    failures = gates.check_findings(fail_on, report.unmodelled, codes)
    if report.plan is not None:
        failures += gates.check_limits(report.plan, limits)
    gates.require(failures)
