"""Width and colours follow the terminal; files and pipes get neither."""

from __future__ import annotations

import io
import logging
from argparse import Namespace

import pytest

from placer.commands.terminal import PIPE_WIDTH, logs, style


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, terminal, environment, colour):
    """A pipe, NO_COLOR and a dumb terminal each switch colours off."""
    monkeypatch.setattr("sys.stdout", Terminal() if terminal else io.StringIO())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert style()["colour"] is colour
    assert style(to_file=True) == {"width": PIPE_WIDTH, "colour": False}


def test_the_width_is_that_of_the_terminal(monkeypatch):
    """COLUMNS, which shells set, decides; without a terminal lines may be long."""
    monkeypatch.setenv("COLUMNS", "57")
    assert style()["width"] == 57


@pytest.mark.parametrize(
    ("quiet", "verbose", "shown"), [(True, 0, "E"), (False, 0, "EW"), (False, 1, "EWI")]
)
def test_logs_go_to_stderr_as_loud_as_asked_for(capsys, quiet, verbose, shown):
    """-q leaves errors, the default warnings, -v progress; nothing of it reaches stdout."""
    with logs(Namespace(quiet=quiet, verbose=verbose)):
        logger = logging.getLogger("placer.somewhere")
        logger.error("E")
        logger.warning("W")
        logger.info("I")
    out, told = capsys.readouterr()
    assert out == ""
    assert told == "".join(f"placer.somewhere: {letter}\n" for letter in shown)
