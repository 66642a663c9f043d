"""``placer doctor``: versions, devices and what will not work here, for bug reports; ``placer
completion``: what makes a shell complete commands and options."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placer.commands import options
from placer.commands.terminal import progress, style
from placer.errors import TENSORFLOW_MISSING, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from placer.application.devices.local_devices import LocalDevices

_FILES = {"MODEL", "PLAN", "FILE", "COSTS", "PROBLEM", "A", "B", "OUT", "DIR", "cluster.toml"}
"""Metavars of options and arguments whose value is a file or folder."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds both commands to the parser."""
    parser = commands.add_parser(
        "doctor",
        description="Show what a bug report needs: versions, devices, compiler and caches; and "
        "what will not work on this machine, and how to change that.",
    )
    options.add_verbosity(parser)
    parser.set_defaults(run=run)
    parser = commands.add_parser(
        "completion",
        description="Print a completion script.  bash: source <(placer completion bash).  "
        "zsh: save it as _placer in a folder of $fpath.",
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh"), help="Shell: bash or zsh"
    )
    options.add_verbosity(parser)
    parser.set_defaults(run=run_completion)


def run(arguments: argparse.Namespace) -> None:
    """Looks around and prints what there is."""
    from placer.application.devices.local_devices import LocalDevices, find_local_devices
    from placer.rendering.text.layout import Facts, Title, to_text

    with progress("asking TensorFlow", arguments):
        try:
            local = find_local_devices()
        except ModuleNotFoundError:
            local = LocalDevices(tensorflow_version="not installed")
    missing = list(_missing(local)) or [("-", "everything works here")]
    blocks: list[RenderableType] = [
        Title("placer doctor", ""),
        Facts("Versions", list(_versions(local))),
        Facts("Machine", list(_machine(local))),
        Facts("Will not work here", missing),
    ]
    sys.stdout.write(to_text(blocks, **style()))


def _versions(local: LocalDevices) -> Iterator[tuple[str, str]]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from placer import __version__

    yield "placer", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    yield "tensorflow", local.tensorflow_version
    for name in ("keras", "ortools", "numpy", "numba", "networkx", "nvidia-ml-py"):
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"


def _machine(local: LocalDevices) -> Iterator[tuple[str, str]]:
    import os

    from cost_models.byte_sizes import format_bytes
    from placer.files import cache_folder
    from placer.simulation.building import find_compiler
    from placer.solving.process.compiling import TRANSFER, is_compiled

    yield "cores", str(len(os.sched_getaffinity(0)))
    yield "memory", format_bytes(local.host_memory_bytes)
    gpus = [f"{device.name} {device.model}" for device in local.physical if device.type != "CPU"]
    yield "GPUs", ", ".join(gpus) or "none found by TensorFlow"
    try:
        yield "C compiler", " ".join(find_compiler())
    except UsageError:
        yield "C compiler", "none"
    yield "cache", str(cache_folder("doctor", None).parent)
    compiled = (
        "compiled" if is_compiled(TRANSFER) else "not compiled: the first search waits for it"
    )
    yield "solver", compiled


def _missing(local: LocalDevices) -> Iterator[tuple[str, str]]:
    """Yields what will not work, and why and how it would."""
    from placer.simulation.building import build_libraries

    if not local.physical:
        yield "models", TENSORFLOW_MISSING
        return
    gpus = [device for device in local.physical if device.type != "CPU"]
    if not gpus:
        yield (
            "run on GPUs",
            (
                "TensorFlow finds none: placed programs run on CPU devices. If this machine has "
                "one (nvidia-smi lists it), run pip install 'tensorflow[and-cuda]'; if not, use "
                "placer simulate"
            ),
        )
    elif any(device.memory is None for device in gpus):
        yield "free memory", "their driver does not tell it (NVML)"
    try:
        build_libraries()
    except UsageError as error:
        yield "simulate", str(error)


def run_completion(arguments: argparse.Namespace) -> None:
    """Prints the script."""
    import shtab

    from placer.commands.parser import HELP, build_parser

    parser: Any = build_parser()
    (commands,) = parser._subparsers._group_actions
    lines = dict(re.findall(r"^  (\w+)  +(.*)$", HELP, re.MULTILINE))
    for name in filter(commands.choices.__contains__, lines):
        command = commands.choices[name]
        commands._choices_actions.append(commands._ChoicesPseudoAction(name, (), lines[name]))
        command.description = lines[name]  # that is what zsh shows
        for each in command._actions:
            if each.metavar in _FILES:
                each.complete = shtab.FILE
    sys.stdout.write(shtab.complete(parser, shell=arguments.shell))
