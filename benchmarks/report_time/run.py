"""`placer report` against the time TensorFlow itself needs to import and to parse the same file.

    python benchmarks/report_time/run.py GRAPH.pb [--rounds 5] [--batch-size 32]
    python benchmarks/report_time/run.py --ops 40000 --batch-size 32

All are fresh processes, run in turn; the ratios are those of the medians.  Without a graph, one of
`--ops` ops is made.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PARSE = """
import sys
import tensorflow as tf
graph_def = tf.compat.v1.GraphDef()
graph_def.ParseFromString(open(sys.argv[1], "rb").read())
"""
IMPORT = """
with tf.Graph().as_default():
    tf.graph_util.import_graph_def(graph_def, name="")
"""
LAYERED = """
import sys
sys.path.insert(0, sys.argv[2])
from layered_graphs import layered_graph
open(sys.argv[1], "wb").write(layered_graph(int(sys.argv[3])).SerializeToString())
"""
TESTS = Path(__file__).parents[2] / "tests"


class Times(NamedTuple):
    """Seconds on the clock, and of the processor: of all processes, on all cores."""

    wall: float
    processor: float


def time_of(command: list[str]) -> Times:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return Times(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)


def median(times: list[Times]) -> Times:
    return Times(*map(statistics.median, zip(*times, strict=True)))


def compare(graph: str, rounds: int, options: list[str]) -> None:
    python = sys.executable
    peers = {
        "import tensorflow, parse": [python, "-c", PARSE, graph],
        "the same, import_graph_def": [python, "-c", PARSE + IMPORT, graph],
        "placer report": [python, "-m", "placer", "report", graph, *options],
    }
    times: dict[str, list[Times]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, command in peers.items():
            times[name].append(time_of(command))
    first = median(next(iter(times.values())))
    for name, found in times.items():
        wall, processor = median(found)
        print(
            f"{name:28} wall {wall:6.2f} s ({wall / first.wall:.2f}), "
            f"processor {processor:6.2f} s ({processor / first.processor:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", nargs="?")
    parser.add_argument("--ops", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int)
    arguments = parser.parse_args()
    options = ["--batch-size", str(arguments.batch_size)] if arguments.batch_size else []
    with tempfile.TemporaryDirectory() as folder:
        graph = arguments.graph
        if graph is None:
            graph = str(Path(folder) / "layered.pb")
            made = [sys.executable, "-c", LAYERED, graph, str(TESTS), str(arguments.ops)]
            subprocess.run(made, check=True)
        compare(graph, arguments.rounds, options)


if __name__ == "__main__":
    main()
