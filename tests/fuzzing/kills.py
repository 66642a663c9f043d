"""Processes killed at random moments.

    python -m fuzzing.kills [--count 500] [--seed 0]

The solver and the reader of ``place``, ``report``, ``solve`` and ``apply`` die by SIGKILL; the
command itself, one time in five, is ended by SIGTERM or SIGINT.  However that ends, no traceback is
shown, nothing is left over, and where a result stands it is whole: that of before or the new one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from fuzzing.cases import Outcome, WarmProcess, contents
from fuzzing.commands import COMMANDS, compile_searches, is_whole

ALLOWED = {
    "a child": frozenset({0, 3, 4, 6}),
    "the command": frozenset({0, 130, 143}),
}
"""Without its reader a command has no model (3), or the shapes that the file states (4 where these
do not do), without its solver what was found so far, or nothing (6)."""

KILLED = ("place", "place", "solve", "report", "apply")
LONGEST_SECONDS = 20.0


@dataclass(kw_only=True)
class Kill:
    """A process to be killed so long after the command has begun, once there is one."""

    warm: WarmProcess
    victim: str
    seconds: float
    signal: signal.Signals
    hit: bool = False
    ended: bool = False

    def run(self) -> None:
        """Waits, kills, and says whether it did."""
        start = time.monotonic()
        while not self.ended and not self.hit:
            if time.monotonic() - start >= self.seconds:
                for process in self._victims():
                    with suppress(ProcessLookupError):
                        os.kill(process, self.signal)
                        self.hit = True
                        break
            time.sleep(0.001)

    def _victims(self) -> list[int]:
        commands = children(self.warm.process.pid)
        if self.victim == "the command":
            return commands
        return [child for command in commands for child in children(command)]


def children(process: int) -> list[int]:
    """Those of all its threads, the living ones."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                found += [int(word) for word in (thread / "children").read_text().split()]
    return [child for child in found if not _has_ended(child)]


def _has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def usual_seconds(warm: WarmProcess, name: str) -> float:
    """What the command takes if nothing is killed."""
    with tempfile.TemporaryDirectory(prefix="fuzz-kill-") as folder:
        arguments = [*COMMANDS[name](Path(folder)), "-o", f"{folder}/result"]
        outcome = warm.run(arguments, Path(folder))
    return min(outcome.seconds * 1.1, LONGEST_SECONDS)


def run(
    warm: WarmProcess, name: str, random: Random, seconds: float, keep: Path | None = None
) -> tuple[Outcome, Kill, list[str]]:
    """How a command ended of which a process was killed, and the defects."""
    with tempfile.TemporaryDirectory(prefix="fuzz-kill-") as temporary:
        folder = Path(temporary)
        arguments = [*COMMANDS[name](folder), "-o", f"{folder}/result"]
        before = b""
        if random.random() < 0.5:
            arguments += ["--force"]
            if name != "apply":
                before = b"of before"
                (folder / "result").write_bytes(before)
        command = random.random() < 0.2
        kill = Kill(
            warm=warm,
            victim="the command" if command else "a child",
            seconds=random.uniform(0, seconds),
            signal=random.choice((signal.SIGTERM, signal.SIGINT)) if command else signal.SIGKILL,
        )
        files = contents(folder)
        thread = threading.Thread(target=kill.run)
        thread.start()
        outcome = warm.run(arguments, folder)
        kill.ended = True
        thread.join()
        if outcome.status == -kill.signal and kill.victim == "the command":
            # before Python could hear it: then a shell says the same, and the command nothing
            outcome = replace(outcome, status=128 + kill.signal, stderr=kill.signal.name)
        defects = outcome.defects(ALLOWED[kill.victim])
        defects += _losses(name, folder, files, before, outcome)
        if defects and keep is not None:
            target = keep / f"kill-{name}-{time.monotonic_ns()}"
            shutil.copytree(folder, target, dirs_exist_ok=True)
    return outcome, kill, defects


def _losses(
    name: str, folder: Path, files: dict[str, bytes], before: bytes, outcome: Outcome
) -> list[str]:
    now = contents(folder)
    found = [
        f"loses or leaves {path}"
        for path in files.keys() | now.keys()
        if path.split("/")[0] != "result" and files.get(path) != now.get(path)
    ]
    result = folder / "result"
    if not result.exists():
        if before:
            found.append("loses the result of before")
        elif outcome.status == 0:
            found.append("says that all is well and writes nothing")
    elif before and result.read_bytes() == before:
        if outcome.status == 0:
            found.append("says that all is well and leaves the result of before")
    elif not is_whole(name, result):
        found.append("writes half a result")
    return found


def main() -> int:
    """0 if nothing was lost or left, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="processes to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default=",".join(KILLED))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    compile_searches()
    random, warm = Random(arguments.seed), WarmProcess()
    names = arguments.commands.split(",")
    usual = {name: usual_seconds(warm, name) for name in dict.fromkeys(names)}
    hits: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    failures = 0
    while hits.total() < arguments.count:
        name = random.choice(names)
        outcome, kill, defects = run(warm, name, random, usual[name], arguments.keep)
        if not kill.hit:  # it was over sooner
            continue
        hits[f"{name}: {kill.victim}"] += 1
        if hits.total() % 50 == 0:
            sys.stdout.write(f"{hits.total()} kills, {failures} failures so far\n")
            sys.stdout.flush()
        ends[f"exit {outcome.status}"] += 1
        if defects:
            failures += 1
            told = (outcome.stderr.strip().splitlines() or [""])[-1][:300]
            when = f"{kill.signal.name} to {kill.victim} after {kill.seconds:.3f} s"
            sys.stdout.write(f"{name}: {when}: {'; '.join(defects)}: {told}\n")
            sys.stdout.flush()
    warm.close()
    sys.stdout.write(
        f"{hits.total()} kills ({', '.join(f'{key} {n}' for key, n in sorted(hits.items()))}); "
        f"{', '.join(f'{key}: {n}' for key, n in sorted(ends.items()))}; {failures} failures\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
