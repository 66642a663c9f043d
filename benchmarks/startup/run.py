"""How long ``placer --help`` takes beside a bare interpreter, alternating, median of N pairs."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "bare interpreter": [sys.executable, "-c", "pass"],
    "import argparse": [sys.executable, "-c", "import argparse"],
    "placer --help": [sys.executable, "-m", "placer", "--help"],
    "placer place --help": [sys.executable, "-m", "placer", "place", "--help"],
}


def seconds_of(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    samples = [
        {name: seconds_of(command) for name, command in COMMANDS.items()} for _ in range(rounds)
    ]
    medians = {name: statistics.median(row[name] for row in samples) for name in COMMANDS}
    bare = medians["bare interpreter"]
    print(
        json.dumps(
            {
                "python": sys.version.split()[0],
                "cores": os.cpu_count(),
                "rounds": rounds,
                "median_milliseconds": {name: round(1e3 * s, 1) for name, s in medians.items()},
                "times_bare": {name: round(s / bare, 2) for name, s in medians.items()},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
