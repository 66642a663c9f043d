"""``placer devices``: what this machine has; ``placer simulate``: what it does not have."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from placer.commands import option_values, options
from placer.commands.terminal import emit, progress, require_writable, show, style, wrapped
from placer.errors import GateError, NoSolutionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placer.simulation.runs import SimulatedRun


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands to the parser."""
    _add_devices(commands)
    _add_simulate(commands)


def _add_devices(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "devices",
        description="Show the devices that TensorFlow finds here, and the device and machine "
        "models that --devices takes, with their memory and rates.",
    )
    options.add_output_options(parser, "Write the tables here instead of to stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Asks TensorFlow and prints both tables.  Raises ``UsageError`` for an existing file."""
    require_writable(arguments)
    from cost_models.clusters import machines
    from cost_models.devices import presets
    from placer.application.devices.local_devices import find_local_devices

    with progress("asking TensorFlow", arguments):
        local = find_local_devices()
    if arguments.format == "json":
        from placer.rendering.json_text import to_json

        text = to_json({"schema": "placer.devices/1", "local": local, "presets": presets()})
    else:
        from placer.rendering.text.devices_text import render_devices

        text = render_devices(local, presets(), machines(), **style(to_file=bool(arguments.output)))
    emit(text, arguments)


def _add_simulate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "simulate",
        description="Run a command on GPUs that this machine does not have: TensorFlow places, "
        "optimizes and allocates as it would there, but values and times mean nothing. Prints the "
        "most memory that each GPU held; if a GPU ran out of memory, also the ops that held it.",
    )
    parser.usage = "placer simulate [OPTIONS] --devices SPEC -- COMMAND..."
    parser.set_defaults(after_dashes=())  # the command, which has options of its own
    group = parser.add_argument_group("machine")
    options.add(
        group,
        "--devices",
        required=True,
        help="GPUs to simulate: 2xA100-40GB, GPU:8GiB, or a cluster.toml (required)",
    )
    group.add_argument(
        "--no-xla", action="store_true", help='Make Keras take jit_compile="auto" as False'
    )
    group.add_argument(
        "--time-limit",
        type=option_values.seconds,
        metavar="SECONDS",
        help="End the command after so many seconds and print where it was [default: no limit]",
    )
    gates = parser.add_argument_group("gates: limits that end the command with exit code 7")
    options.add_fail_above(
        gates,
        metavar="GPU:0=9GiB,...",
        help="Fail if more memory than this is ever in use on a GPU",
    )
    options.add_output_options(parser, "Write the result here instead of to stdout")
    parser.set_defaults(run=run_simulate)


def run_simulate(arguments: argparse.Namespace) -> None:
    """Runs the command and shows what it held; ends with its exit code.

    Raises ``UsageError`` where GPUs cannot be simulated, ``GateError`` for a gate,
    ``NoSolutionError`` when the time limit ended it.
    """
    from placer.commands.gates import parse_limits
    from placer.simulation.cards import read_cards
    from placer.simulation.environment import growth_note
    from placer.simulation.runs import descriptor_of, run_simulated

    require_writable(arguments)
    if not arguments.after_dashes:
        raise UsageError("a command is missing: placer simulate --devices 2xT4 -- python train.py")
    gpus = read_cards(arguments.devices)
    rows = [row.strip() for text in arguments.fail_above for row in text.split(",")]
    limits = parse_limits(filter(None, rows), [gpu.name for gpu in gpus])
    notes = [growth_note(gpus, os.environ)]
    for note in filter(None, [] if arguments.quiet else notes):
        sys.stderr.write(wrapped(f"placer: {note}") + "\n")
    apart = arguments.format == "json" and not arguments.output
    found = run_simulated(
        arguments.after_dashes,
        gpus,
        time_limit_seconds=arguments.time_limit,
        without_xla=arguments.no_xla,
        stdout=(descriptor_of(sys.stderr) or 2) if apart else None,
    )
    show(found, arguments)
    if found.is_late:
        raise NoSolutionError(_late(found, arguments.time_limit))
    if found.exit_code:
        sys.stdout.flush()
        if limits:
            failed = f"the command failed (exit code {found.exit_code})"
            sys.stderr.write(wrapped(f"placer: {failed}: --fail-above was not checked") + "\n")
        raise SystemExit(found.exit_code)
    _check(found.peak_bytes, limits)


def _late(found: SimulatedRun, limit_seconds: float) -> str:
    """Returns the activity at the time limit, in words."""
    from cost_models.byte_sizes import format_count

    ended = f"the time limit of {limit_seconds:g} s ended the command"
    known = [process for process in found.processes if process.last_read_op]
    if not known:
        return ended
    last = known[-1]
    return (
        f"{ended}. The host read {format_count(last.reads, 'value')}, the last that of "
        f"{last.last_read_op}: simulated GPUs compute no values, and a loop that waits for one "
        "does not end"
    )


def _check(peak_bytes: Mapping[str, int], limits: Mapping[str, int]) -> None:
    """Raises ``GateError`` for every GPU that held more than its limit."""
    from cost_models.byte_sizes import format_bytes

    over = [
        f"{name} held {format_bytes(peak)}, the limit is {format_bytes(limits[name])}"
        for name, peak in peak_bytes.items()
        if name in limits and peak > limits[name]
    ]
    if over:
        raise GateError("a gate tripped: " + "; ".join(over))
