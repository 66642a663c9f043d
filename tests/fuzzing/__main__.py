"""Harmed files by the thousand: ``make fuzz``.

    python -m fuzzing [--count 640] [--seed 0] [--first 0] [--formats graph,plan] [--keep FOLDER]

Beside what the commands write, one file in four is there already and to be overwritten, which a
command that fails must not do.  Every failure is one line, ``format seed index``, the defects and
the folder with the file; ``--formats FORMAT --seed SEED --first INDEX --count 1`` runs it again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fuzzing.cases import Outcome, WarmProcess, changes, contents, run_cold
from fuzzing.formats import FORMATS

COLD_SHARE = 50
"""One case in so many starts ``placer`` afresh instead of in a fork."""


def main() -> int:
    """0 if every case ended as it may, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=640, help="mutations per format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first index")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    arguments = parser.parse_args()
    warm = WarmProcess()
    failures = 0
    for name in arguments.formats.split(","):
        start = time.monotonic()
        outcomes: list[Outcome] = []
        for index in range(arguments.first, arguments.first + arguments.count):
            outcome, defects = run(warm, name, arguments.seed, index, arguments.keep)
            outcomes.append(outcome)
            if defects:
                failures += 1
                told = outcome.stderr.strip().splitlines()[-1:] or [""]
                _say(f"{name} {arguments.seed} {index}: {'; '.join(defects)}: {told[0][:300]}")
        _say(summary(name, outcomes, time.monotonic() - start))
    warm.close()
    _say(f"{failures} failures" + (f", kept in {arguments.keep}" if failures else ""))
    return 1 if failures else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(
    warm: WarmProcess, name: str, seed: int, index: int, keep: Path | None = None
) -> tuple[Outcome, list[str]]:
    """The outcome of one case and its defects; the file of a defective one goes to ``keep``."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder = Path(temporary)
        case = FORMATS[name].case(seed, index, folder)
        runner = run_cold if index % COLD_SHARE == COLD_SHARE - 1 else warm.run
        defects: list[str] = []
        for arguments in case.commands:
            if index % 4 == 0 and "-o" in arguments:
                with suppress(OSError):  # a name that is too long
                    Path(arguments[arguments.index("-o") + 1]).write_text("of before")
                arguments = [*arguments, "--force"]
            before = contents(folder)
            outcome = runner(arguments, folder)
            defects += outcome.defects(case.allowed)
            defects += changes(before, contents(folder), outcome.status)
            if outcome.status != 0:
                break
        if defects and keep is not None:
            shutil.copytree(folder, keep / f"{name}-{seed}-{index}", dirs_exist_ok=True)
            lines = (" ".join(map(repr, command)) for command in case.commands)
            (keep / f"{name}-{seed}-{index}" / "command").write_text("\n".join(lines))
    return outcome, defects


def summary(name: str, outcomes: list[Outcome], seconds: float) -> str:
    """One line: how many ended how, the longest and the largest."""
    statuses = sorted({str(outcome.status) for outcome in outcomes})
    counts = ", ".join(
        f"exit {status}: {sum(str(outcome.status) == status for outcome in outcomes)}"
        for status in statuses
    )
    longest = max((outcome.seconds for outcome in outcomes), default=0.0)
    largest = max((outcome.peak_bytes for outcome in outcomes), default=0)
    return (
        f"{name:18} {len(outcomes)} cases in {seconds:.0f} s ({counts}); longest {longest:.1f} s, "
        f"largest {largest / 2**20:,.0f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
