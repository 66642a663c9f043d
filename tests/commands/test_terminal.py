"""Width and colours follow the terminal; files and pipes get neither."""

from __future__ import annotations

import io
import logging
import sys
import time
from argparse import Namespace

import pytest

from placer.__main__ import main
from placer.commands.terminal import PIPE_WIDTH, logs, progress, style
from placer.rendering.progress import Lines, with_progress


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
    levels = {"E": "ERROR", "W": "WARNING", "I": "INFO"}
    assert told == "".join(f"{levels[letter]}: {letter}\n" for letter in shown)


def test_messages_are_as_wide_as_the_terminal(monkeypatch):
    """Errors and logs; a name stays whole, and a file or a log has each message on one line."""
    name, words = "a/long-name/" * 5, "some words of a message " * 3
    monkeypatch.setenv("COLUMNS", "40")  # which readline sets for all that a program starts
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr("sys.stderr", stream)
        with logs(Namespace(quiet=False, verbose=0)):
            logging.getLogger("placer").warning(words)
        assert main(["explain", f"{name}plan.json"]) == 2
        lines = stream.getvalue().splitlines()
        assert lines[0].startswith("WARNING: some words")
        assert (len(lines) == 2) == (not stream.isatty())
        assert not stream.isatty() or all(len(line) <= 40 for line in lines if name not in line)
        assert any(f"{name}plan.json" in line for line in lines)


def test_progress_shows_the_stage_and_what_is_left_of_its_time(monkeypatch, capsys):
    """On a terminal only: the message, the stage that was logged, a countdown if it has a limit."""
    monkeypatch.setattr("sys.stderr", Terminal())
    told = sys.stderr
    with logs(Namespace(quiet=False, verbose=0)), progress("placing", Namespace(quiet=False)):
        logger = logging.getLogger("placer.somewhere")
        logger.info("searching", extra={"limit_seconds": 30.0})
        time.sleep(0.3)
    assert "placing: searching, at most 30 s left" in told.getvalue()


def test_a_job_of_ci_gets_a_line_for_each_stage(monkeypatch, capsys):
    """Every few seconds, if it is another one; a command that ends sooner prints nothing."""
    monkeypatch.setenv("CI", "true")
    stage = Lines("placing model")
    record = logging.makeLogRecord({"msg": "reading", "levelno": logging.INFO})
    stage.emit(record)
    assert capsys.readouterr().err == ""
    stage.show()
    stage.emit(
        logging.makeLogRecord({"msg": "searching", "levelno": logging.INFO, "limit_seconds": 1e9})
    )
    stage.show()
    stage.show()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "placing model: reading"
    assert second.startswith("placing model: searching, at most ")
    with progress("placing model", Namespace(quiet=False)):
        pass
    assert capsys.readouterr().err == ""


def test_a_long_call_from_python_says_what_it_does_and_keeps_the_logs(monkeypatch, caplog):
    """On a terminal, every few seconds; warnings go where they go without it."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr("placer.rendering.progress.LONG_SECONDS", 0.01)
    told, logger = sys.stderr, logging.getLogger("placer.somewhere")
    logging.getLogger("placer").setLevel(logging.NOTSET)  # commands of other tests change it

    def place(size: int) -> int:
        logger.info("searching")
        logger.warning("small")
        for _ in range(1000):
            if "placer.place: searching" in told.getvalue():
                return size
            time.sleep(0.01)
        return 0

    assert with_progress(place, "placer.place")(7) == 7
    assert caplog.messages == ["small"]


def test_a_long_path_leaves_room_for_the_stage(monkeypatch):
    """The middle of what a command does goes first."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    told, path = sys.stderr, f"placing /{'folder/' * 9}graph.pb"
    with logs(Namespace(quiet=False, verbose=0)), progress(path, Namespace(quiet=False)):
        logging.getLogger("placer.somewhere").info("searching", extra={"limit_seconds": 30.0})
        time.sleep(0.3)
    assert "folder/graph.pb: searching, at most 30 s left" in told.getvalue()


def test_an_interrupt_while_progress_starts_shows_the_cursor_again(monkeypatch):
    """The display hides it before anything else."""
    from rich.progress import Progress

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stderr", Terminal())
    told = sys.stderr
    told.write("\x1b[?25l")
    monkeypatch.setattr(Progress, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), progress("placing", Namespace(quiet=False)):
        pass
    assert told.getvalue().endswith("\x1b[?25h")


def test_no_progress_without_a_terminal_or_when_it_is_unwanted(monkeypatch, capsys):
    """Nothing is written to a pipe, nor with -q."""
    with progress("placing", Namespace(quiet=False)):
        logging.getLogger("placer.somewhere").info("searching")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr", Terminal())
    told = sys.stderr
    with progress("placing", Namespace(quiet=True)):
        pass
    assert told.getvalue() == ""
