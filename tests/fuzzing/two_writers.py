"""Two commands that write one output at the same time.

    python -m fuzzing.two_writers [--count 100]

Without ``--force`` one of them writes and the other says that something is there; with it both do.
What stands in the end is the whole result of one, and nothing else is left.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzzing.cases import Outcome, WarmProcess, contents
from fuzzing.commands import COMMANDS, compile_searches, is_whole

WRITERS = ("apply", "solve", "report", "trace", "page")


def run(warm: tuple[WarmProcess, WarmProcess], name: str, force: bool) -> list[str]:
    """The defects after two commands at once; with ``force`` there is a result of before."""
    with tempfile.TemporaryDirectory(prefix="fuzz-two-") as temporary:
        folder = Path(temporary)
        arguments = [*COMMANDS[name](folder), "-o", f"{folder}/result"]
        homes = [folder / "stderr-a", folder / "stderr-b"]  # for what each says
        for home in homes:
            home.mkdir()
        if force:
            arguments += ["--force"]
            old = folder / "result"
            if name == "apply":
                shutil.copytree(arguments[1], old)
            else:
                old.write_text("of before")
        before = contents(folder).keys()
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda w, home: w.run(arguments, home), warm, homes))
        return _defects(name, folder, set(before), outcomes, force)


def _defects(
    name: str, folder: Path, before: set[str], outcomes: list[Outcome], force: bool
) -> list[str]:
    found = [defect for outcome in outcomes for defect in outcome.defects(frozenset({0, 2}))]
    statuses = sorted(str(outcome.status) for outcome in outcomes)
    if statuses != (["0", "0"] if force else ["0", "2"]):
        found.append(f"they end with {' and '.join(statuses)}")
    if not is_whole(name, folder / "result"):
        found.append("the result is not whole")
    new = contents(folder).keys() - before
    left = [path for path in new if path.split("/")[0] not in ("result", "stderr-a", "stderr-b")]
    return [*found, *(f"they leave {path}" for path in left)]


def main() -> int:
    """0 if nothing was lost or left, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="pairs of commands")
    arguments = parser.parse_args()
    compile_searches()
    warm = (WarmProcess(), WarmProcess())
    counts: Counter[str] = Counter()
    failures = 0
    for number in range(arguments.count):
        name, force = WRITERS[number % len(WRITERS)], number // len(WRITERS) % 2 == 1
        counts[name] += 1
        for defect in run(warm, name, force):
            failures += 1
            sys.stdout.write(f"{name}{' --force' if force else ''}: {defect}\n")
    for process in warm:
        process.close()
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    sys.stdout.write(f"{counts.total()} pairs of commands on one output ({told}); ")
    sys.stdout.write(f"{failures} failures\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
