"""`placer report` against the time TensorFlow itself needs to import and to parse the same file.

    python benchmarks/report_time/run.py GRAPH.pb [--rounds 5]

Both are fresh processes, run in turn; the ratio of the medians is printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

PARSE = """
import sys
import tensorflow as tf
graph_def = tf.compat.v1.GraphDef()
graph_def.ParseFromString(open(sys.argv[1], "rb").read())
"""


def seconds_of(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    peers = {
        "import tensorflow and parse": [sys.executable, "-c", PARSE, arguments.graph],
        "placer report": [sys.executable, "-m", "placer", "report", arguments.graph],
    }
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(arguments.rounds):
        for name, command in peers.items():
            seconds[name].append(seconds_of(command))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        values = ", ".join(f"{value:.2f}" for value in seconds[name])
        print(f"{name:30} median {median:6.2f} s   ({values})")
    baseline, ours = medians.values()
    print(f"ratio {ours / baseline:.2f}")


if __name__ == "__main__":
    main()
