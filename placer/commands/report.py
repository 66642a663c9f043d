"""``placer report``: what is in a model, and with devices where it would run."""

from __future__ import annotations

import argparse
from functools import partial

from placer.commands import options
from placer.commands.place import require_placement
from placer.commands.terminal import progress, require_writable, show
from placer.errors import UsageError


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "report",
        description="Show the parameters, peak memory and hotspots of a model, and what "
        "restricts its placement.  With --devices it also shows a trial placement.  Weights are "
        "never loaded.",
    )
    options.add_device_options(parser, default=None)
    options.add_search_options(parser, never="several batch sizes")
    options.add_gate_options(parser)
    options.add_output_options(
        parser, "Write the report here instead of to stdout", formats=options.PAGE_FORMATS
    )
    options.add_model_options(parser, sweeps=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Analyses the model and prints the report.

    Raises ``UsageError`` for an existing file or an option that needs devices, ``GateError`` if a
    gate tripped, and what the pipeline raises.
    """
    from placer.extraction.process.child_process import start_reader_ahead

    require_writable(arguments)
    _require_devices(arguments)
    if isinstance(arguments.batch_size, tuple):
        _sweep(arguments)
        return
    start_reader_ahead()
    # what takes a while to load, while the reading process starts
    from placer.commands import gates

    asked = gates.read_gates(arguments)
    from dataclasses import replace

    import cost_models.rules  # noqa: F401
    import placer.rendering.text.report_text  # noqa: F401
    from placer.pipeline.pipeline import report

    with progress(f"analyzing {arguments.model}", arguments):
        wanted = options.all_options(arguments)
        found = report(arguments.model, arguments.devices, **wanted)
        if asked.baseline:
            gates.require_like(asked.baseline, found.plan, arguments.baseline)
        if asked.are_asked:
            codes = gates.count_codes(found.plan)
            codes["unknown_shape"] = len(found.unknown_shapes)
            again = partial(gates.predict_baseline, arguments, wanted)
            verdict = gates.judge(asked, found.plan, found.unmodelled, codes, again)
            found = replace(found, gate=verdict)
    show(found, arguments)
    if found.plan is not None:
        require_placement(found.plan)
    gates.require(found.gate)


def _sweep(arguments: argparse.Namespace) -> None:
    """Several batch sizes side by side.  Raises ``UsageError`` for gates, which need one size."""
    from placer.extraction.process.child_process import start_reader_ahead

    if arguments.format == "html":
        raise UsageError("--format html shows one batch size: give one, or choose another format")
    if arguments.fail_above or arguments.fail_on or arguments.baseline:
        raise UsageError("--fail-above, --fail-on and --baseline require one batch size: give one")
    wanted = options.all_options(arguments)
    sizes = wanted.pop("batch_size")
    start_reader_ahead()
    from placer.questions.batch_sizes import sweep

    with progress(f"analyzing {arguments.model} at {len(sizes)} batch sizes", arguments):
        found = sweep(arguments.model, sizes, arguments.devices, **wanted)
    show(found, arguments)


def _require_devices(arguments: argparse.Namespace) -> None:
    """Raises ``UsageError`` if an option means nothing without devices."""
    flags = ("max_memory", "reserve", "pin", "pin_type", "keep_together", "fail_above", "baseline")
    for flag in flags:
        if getattr(arguments, flag) and not arguments.devices:
            raise UsageError(f"--{flag.replace('_', '-')} requires --devices, such as 2xA100-40GB")
    if not arguments.devices:
        names = ("objective", "offload", "solver", "seed", "time_limit", "work_limit")
        options.refuse(arguments, names, "requires --devices, such as 2xA100-40GB")
    for gate in {"fallback", "offload"}.intersection(arguments.fail_on):
        if not arguments.devices:
            raise UsageError(f"--fail-on {gate} requires --devices, such as 2xA100-40GB")
