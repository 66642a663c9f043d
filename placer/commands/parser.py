"""The command line: every command with its options.  Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from typing import NoReturn

from placer import __version__
from placer.commands import (
    apply,
    compare,
    devices,
    diff,
    explain,
    export,
    place,
    profile,
    report,
    solve,
    strategies,
    verify,
)
from placer.commands.examples import add_examples
from placer.rendering.quantities import printable

DESCRIPTION = """\
Place TensorFlow programs on devices: find out where each op should run so that memory
fits and as little as possible is transferred, prove how good that is, apply it, and
check what really ran."""

EPILOGUE = """\
MODEL is a SavedModel folder, a GraphDef or MetaGraphDef in binary or text, a Keras
file (.keras, .h5), or a checkpoint with its .meta; also a remote path such as gs://...

exit codes:
  0  ok                                   5  proven infeasible
  1  unexpected error                     6  no solution in time
  2  wrong usage                          7  a gate tripped (--fail-over, --fail-on)
  3  model unreadable or unsupported      8  what ran is not what was planned
  4  a shape is unresolved"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line: the usage of some commands fills a screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)} ({self.prog} --help lists the options)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``placer``; ``run`` of what it parses is the function of the command."""
    parser: argparse.ArgumentParser = _Parser(
        prog="placer",
        description=DESCRIPTION,
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"placer {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (
        report,
        place,
        apply,
        verify,
        compare,
        explain,
        export,
        diff,
        strategies,
        profile,
        solve,
        devices,
    ):
        module.add_command(commands)
    add_examples(commands)
    return parser
