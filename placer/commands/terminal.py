"""The terminal: its width and colours, results to stdout, logs and progress to stderr."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from placer.files import write_text

if TYPE_CHECKING:
    import argparse

PIPE_WIDTH = 120
"""Columns where the output is no terminal: a file or a CI log has no edge to wrap at."""


def style(arguments: argparse.Namespace) -> dict[str, Any]:
    """``width`` and ``colour`` for rendering; no colours into files, pipes and dumb terminals,
    or where ``NO_COLOR`` is set (https://no-color.org)."""
    terminal = sys.stdout.isatty() and not getattr(arguments, "output", None)
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    return {"width": columns, "colour": terminal and not plain}


def emit(text: str, arguments: argparse.Namespace) -> None:
    """Writes a result to ``--output`` where that is given, else to stdout."""
    if getattr(arguments, "output", None):
        write_text(arguments.output, text, force=arguments.force)
    else:
        sys.stdout.write(text)


def start_logging(arguments: argparse.Namespace) -> None:
    """Sends logs to stderr, as many as ``-q`` and ``-v`` ask for; TensorFlow's own only with
    ``-vv``, errors aside.  Call it before TensorFlow is imported."""
    level = logging.ERROR if arguments.quiet else logging.WARNING
    level = [level, logging.INFO, logging.DEBUG][min(arguments.verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=level, format="%(name)s: %(message)s", force=True)
    if arguments.verbose < 2:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if arguments.quiet else "2")
        for name in ("tensorflow", "absl", "keras", "h5py"):
            logging.getLogger(name).setLevel(logging.ERROR)


def progress(message: str, arguments: argparse.Namespace) -> AbstractContextManager[object]:
    """Shows ``message`` on stderr while the block runs; only on a terminal, and not with ``-q``."""
    if arguments.quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(message)
