"""The terminal: its width and colours, results to stdout, logs and progress to stderr."""

from __future__ import annotations

import codecs
import faulthandler
import io
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

from placer.errors import UsageError
from placer.files import check_apart, check_writable, write_text

if TYPE_CHECKING:
    import argparse

PIPE_WIDTH = 120
"""Columns where the output is no terminal: a file or a CI log has no edge to wrap at."""


_ASCII = {
    "\N{HORIZONTAL ELLIPSIS}": "...",
    "\N{MIDDLE DOT}": "-",
    "\N{EN DASH}": "-",
    "\N{MINUS SIGN}": "-",
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-",
    "\N{RIGHTWARDS ARROW}": "->",
    "\N{MICRO SIGN}": "u",
}


class Style(TypedDict):
    """How a text is rendered."""

    width: int
    colour: bool


def style(*, to_file: bool = False) -> Style:
    """``width`` and ``colour`` for rendering; no colours into files, pipes and dumb terminals, or
    where ``NO_COLOR`` is set (https://no-color.org), unless ``FORCE_COLOR`` is set."""
    if to_file:
        return {"width": PIPE_WIDTH, "colour": False}
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    forced = bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")
    return {"width": columns, "colour": forced or (sys.stdout.isatty() and not plain)}


def wrapped(message: str) -> str:
    """Returns a message for stderr in lines as wide as its terminal; names stay whole.  What goes
    to a file, a log or another program keeps its lines."""
    if not sys.stderr.isatty():
        return message
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stderr.fileno()).columns)
    except (OSError, ValueError):
        width = 0
    if width <= 0:
        return message
    lines = [
        textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        for line in message.split("\n")
    ]
    return "\n".join(chain.from_iterable(lines))


class _Wrapped(logging.Formatter):
    """Records as lines of the terminal's width."""

    def format(self, record: logging.LogRecord) -> str:
        return wrapped(super().format(record))


def set_color(when: str) -> None:
    """Makes ``--color`` known to this process and to those that it starts."""
    for name in ("NO_COLOR", "FORCE_COLOR") if when != "auto" else ():
        os.environ.pop(name, None)
    if when != "auto":
        os.environ["FORCE_COLOR" if when == "always" else "NO_COLOR"] = "1"


def keep_what_is_read(arguments: argparse.Namespace) -> None:
    """Raises ``UsageError`` if the output would replace what the command reads, ``--force`` or
    not, and for ``--force`` without any output."""
    asked = vars(arguments)
    outputs = [*filter(None, (asked.get("output"), asked.get("record")))]
    if "force" in asked.get("typed", ()) and not outputs:
        raise UsageError("--force overwrites a file, and none is written: give -o, or leave it out")
    for out in outputs:
        for name in ("model", "plan", "before", "after", "costs", "problem"):
            found = asked.get(name)
            for source in found if isinstance(found, list) else [found]:
                if source and os.fspath(source) != "-":
                    check_apart(out, source)


def require_writable(arguments: argparse.Namespace) -> None:
    """Raises ``UsageError`` if ``--output`` is given and may not be written."""
    if arguments.output:
        check_writable(arguments.output, force=arguments.force)


def show(found: Any, arguments: argparse.Namespace) -> None:
    """Writes a result, in the format asked for, to ``--output`` where that is given, else to
    stdout."""
    from placer.rendering.results import render_result

    shape = style(to_file=bool(getattr(arguments, "output", None)))
    emit(render_result(found, arguments.format, **shape), arguments)


def show_saved(found: Any, arguments: argparse.Namespace, what: str, following: str = "") -> None:
    """Writes a result to stdout, and under the text where the file is that holds ``what``, with the
    command that may follow."""
    from placer.rendering.results import render_result

    sys.stdout.write(render_result(found, arguments.format, **style()))
    if arguments.output and arguments.format == "text":
        then = f". Next: {following}" if following else ""
        sys.stdout.write(f"\n{what} written to {arguments.output}{then}\n")


def emit(text: str, arguments: argparse.Namespace) -> None:
    """Writes a result to ``--output`` where that is given, else to stdout."""
    if getattr(arguments, "output", None):
        write_text(arguments.output, text, force=arguments.force)
    else:
        sys.stdout.write(text)


@contextmanager
def logs(arguments: argparse.Namespace) -> Iterator[None]:
    """Sends this program's logs to stderr while the block runs: warnings, with ``-v`` progress,
    with ``-vv`` everything, with ``-q`` errors only.

    TensorFlow's own are shown with ``-vv`` (enter this before it is imported).
    """
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    loggers = [logging.getLogger(name) for name in ("placer", "cost_models")]
    handler = logging.StreamHandler(sys.stderr)
    where = "name" if arguments.verbose > 1 else "levelname"
    handler.setFormatter(_Wrapped(f"%({where})s: %(message)s"))
    level = logging.ERROR if arguments.quiet else levels[min(arguments.verbose, 2)]
    handler.setLevel(level)
    for logger in loggers:
        logger.setLevel(min(level, logging.INFO))  # progress shows the stages that are logged
        logger.addHandler(handler)
    if arguments.verbose < 2:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        for name in ("tensorflow", "absl", "keras", "h5py"):
            logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@contextmanager
def native_logs(arguments: argparse.Namespace) -> Iterator[None]:
    """Keeps TensorFlow's C++ libraries quiet while the block runs, unless ``-vv`` is given.

    What they say while they are loaded obeys no setting, so file descriptor 2 goes nowhere and
    Python's stderr gets a copy of its own.  A crash still shows where it happened.
    """
    if arguments.verbose >= 2:
        yield
        return
    sys.stderr.flush()
    kept, python_stderr = os.dup(2), sys.stderr
    faulthandler.enable(kept)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    if python_stderr is sys.__stderr__:
        sys.stderr = os.fdopen(os.dup(kept), "w", 1, encoding=sys.stderr.encoding)
        print_everything()
    try:
        yield
    finally:
        faulthandler.disable()
        if sys.stderr is not python_stderr:
            sys.stderr.close()
            sys.stderr = python_stderr
        os.dup2(kept, 2)
        os.close(kept)


def print_everything() -> None:
    """A character that stdout or stderr has no code for is written in another way from now on."""
    codecs.register_error("placer", _in_other_words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="placer")


def _in_other_words(error: UnicodeError) -> tuple[str | bytes, int]:
    """ASCII for what our own texts are made of, the number of any other character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    return _ASCII.get(character) or ascii(character)[1:-1], error.start + 1


def progress(message: str, arguments: argparse.Namespace) -> AbstractContextManager[object]:
    """Shows ``message``, the stage that was logged last and the time on stderr while the block
    runs: on a terminal, and as lines in a CI job (where ``CI`` is set); not with ``-q``."""
    if arguments.quiet:
        return nullcontext()
    if sys.stderr.isatty():
        return _shown_progress(message)
    from placer.rendering.progress import printed_progress

    return printed_progress(message) if os.environ.get("CI") else nullcontext()


@contextmanager
def _shown_progress(message: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from placer.rendering.progress import Stage
    from placer.rendering.quantities import shorten

    columns = (SpinnerColumn(), TextColumn("{task.fields[stage]}"), TimeElapsedColumn())
    console, logger = Console(stderr=True), logging.getLogger("placer")
    stage = Stage(shorten(message, 40))  # leaves room for the stage and the time
    try:
        with Progress(*columns, console=console, transient=True) as shown:
            shown.add_task("", total=None, stage=stage)
            logger.addHandler(stage)
            try:
                yield
            finally:
                logger.removeHandler(stage)
    finally:
        console.show_cursor()  # an interrupt while the display starts or stops leaves it hidden


_EXAMPLE_WIDTH = 70


def continued(line: str) -> str:
    """Returns a command line that goes on in the next one where it is wider than a terminal."""
    found, width = "", 0
    for word in line.split(" --"):
        wide = bool(found) and width + len(word) > _EXAMPLE_WIDTH
        found += f" \\\n      --{word}" if wide else f"{' --' * bool(found)}{word}"
        width = len(word) if wide else width + len(word) + 3
    return found
