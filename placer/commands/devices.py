"""``placer devices``: what this machine has, and the models that ``--devices`` knows."""

from __future__ import annotations

import argparse

from placer.commands import options
from placer.commands.terminal import emit, progress, require_writable, style


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "devices",
        help="physical, visible and logical devices of this machine; known device models",
        description="Show the devices that TensorFlow finds here, and the models that --devices "
        "knows with their memory and rates.",
    )
    options.add_output_options(parser, "write this here instead of to stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Asks TensorFlow and prints both tables.  Raises ``UsageError`` for an existing file."""
    require_writable(arguments)
    from cost_models.devices import presets
    from placer.application.devices.local_devices import find_local_devices

    with progress("asking TensorFlow", arguments):
        local = find_local_devices()
    if arguments.format == "json":
        from placer.rendering.json_text import to_json

        text = to_json({"schema": "placer.devices/1", "local": local, "presets": presets()})
    else:
        from placer.rendering.text.devices_text import render_devices

        text = render_devices(local, presets(), **style(to_file=bool(arguments.output)))
    emit(text, arguments)
