"""The command ``placer``, also as ``python -m placer``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and "-m" in sys.orig_argv and not sys.flags.safe_path:
    # the current directory stands first where modules are looked for: only this package is there
    if sys.path[0] == os.path.dirname(os.path.dirname(__file__)):
        import cost_models  # noqa: F401 (found there, and no longer looked for)
    del sys.path[0]

import atexit
import gc
import io
import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from placer.errors import PlacerError, missing_tensorflow
from placer.files import NO_SPACE
from placer.front_words import command_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from typing import Any

SIGNALLED = 128
"""A shell's exit code for what a signal ended, less the number of the signal."""

TERMINATED = SIGNALLED + signal.SIGTERM


@command_line()
def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of one command line: here alone an error becomes a message and a code.

    0 ok, 1 unexpected, 2 usage, 3 model unreadable or unsupported, 4 shape unresolved, 5 proven
    infeasible, 6 no solution in time, 7 a gate tripped, 8 verification mismatch; 130 interrupted,
    141 nobody reads on, 143 terminated.
    """
    arguments = None
    try:
        from placer.commands.parser import parse
        from placer.commands.terminal import (
            keep_what_is_read,
            logs,
            native_logs,
            print_everything,
            set_color,
        )

        # objects between two looks for garbage, in place of 700: the graph of a model is millions
        # of objects that stay, and looking through them takes a fifth of the time of a report
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)  # the end of the process looks for no garbage
        _open_streams()
        print_everything()
        arguments = parse(sys.argv[1:] if argv is None else [*argv])
        set_color(arguments.color)
        keep_what_is_read(arguments)
        with terminable(), native_logs(arguments), logs(arguments):
            arguments.run(arguments)
            sys.stdout.flush()
        if _Output.is_unread:
            return SIGNALLED + signal.SIGPIPE
    except SystemExit as stop:  # argparse has printed the help or the error
        return stop.code if isinstance(stop.code, int) else 0
    except PlacerError as error:
        return _fail(str(error), error.exit_code)
    except Terminated:
        return _fail("terminated", TERMINATED)
    except KeyboardInterrupt:
        return _fail("interrupted", SIGNALLED + signal.SIGINT)
    except OSError as error:
        if error.errno not in NO_SPACE:
            return _fail_unexpectedly(error, arguments)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = error.filename or "the output"
        return _fail(f"cannot write {where}: {error.strerror}; free space, or write elsewhere", 1)
    except Exception as error:  # the last resort: one line, and the traceback when asked for
        if missing := missing_tensorflow(error):
            return _fail(str(missing), missing.exit_code)
        return _fail_unexpectedly(error, arguments)
    return 0


class _Output(io.FileIO):
    """Takes what nobody reads any more (``| head``): the exit code is still that of the result."""

    is_unread = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            _Output.is_unread = True
            return len(data)


def _open_streams() -> None:
    """Has stdout outlive its reader, and ``/dev/null`` where the caller closed stdout or stderr
    (``>&-``)."""
    own = sys.__stdout__
    if own is not None and sys.stdout is own:
        out = io.BufferedWriter(_Output(own.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(
            out, own.encoding, own.errors, line_buffering=own.line_buffering
        )
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 (until the process ends)


class Terminated(KeyboardInterrupt):
    """SIGTERM came; as an exception, so that files and processes are cleared away."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated` while the block runs; a second one changes nothing.

    Where Python ignores exceptions, as it does before a fork and in finalizers, that signal and
    Ctrl-C's are sent again a moment later.
    """
    running = True

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    def send(number: signal.Signals, left: threading.Event) -> None:
        left.wait()
        time.sleep(0.02)
        if running:
            os.kill(os.getpid(), number)

    def repeat(ignored: sys.UnraisableHookArgs) -> None:
        if not isinstance(ignored.exc_value, KeyboardInterrupt):
            show(ignored)
            return
        number = signal.SIGINT
        if isinstance(ignored.exc_value, Terminated):
            number = signal.SIGTERM
            signal.signal(number, stop)
        left = threading.Event()
        threading.Thread(target=send, args=(number, left), daemon=True).start()
        left.set()  # within this function a signal would be ignored, too

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, show = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = repeat
    try:
        yield
    finally:
        running = False
        sys.unraisablehook = show
        signal.signal(signal.SIGTERM, before)


def _fail(message: str, exit_code: int) -> int:
    """``exit_code``, after the results so far and the message are written."""
    from placer.commands.terminal import wrapped
    from placer.rendering.quantities import printable

    sys.stdout.flush()
    text = printable(message, keep="\n")
    with suppress(BrokenPipeError):
        sys.stderr.write(wrapped(f"placer: {text}") + "\n")
    return exit_code


def _fail_unexpectedly(error: Exception, arguments: argparse.Namespace | None) -> int:
    """1, after the traceback (with ``-v``) or a line that says how to see it."""
    verbose = arguments is None or arguments.verbose
    if verbose:
        import traceback

        traceback.print_exception(error)
    advice = "" if verbose else "; run with -v for the traceback"
    return _fail(f"unexpected error: {type(error).__name__}: {error}{advice}", 1)


if __name__ == "__main__":
    sys.exit(main())
