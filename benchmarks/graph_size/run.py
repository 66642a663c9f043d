"""Time and memory of `placer report` on 1,000, 10,000 and 100,000 ops, beside TensorFlow's own.

    python benchmarks/graph_size/run.py [--sizes 1000,10000,100000] [--rounds 3]
    python benchmarks/graph_size/run.py --place --sizes 100000     # `placer place` on two GPUs

The graphs are written by `tests/layered_graphs.py`.  Every figure is of a fresh process and those
it starts: CPU seconds and wall seconds, the least of the rounds, and the largest resident set of
any one of them.  CPU seconds tell more on a busy machine; the exponent is theirs.
The peer imports TensorFlow, parses the file and imports the graph, as any tool must that asks
TensorFlow for its shapes.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIB = 1024**2

TENSORFLOW = """
import sys
import tensorflow as tf
graph_def = tf.compat.v1.GraphDef()
graph_def.ParseFromString(open(sys.argv[1], "rb").read())
with tf.Graph().as_default():
    tf.graph_util.import_graph_def(graph_def, name="")
"""
EXTRACT = "import sys, placer; placer.extract(sys.argv[1], batch_size=32)"
PEERS = {
    "import tensorflow, import graph": ["-c", TENSORFLOW, "MODEL"],
    "placer.extract": ["-c", EXTRACT, "MODEL"],
    "placer report": ["-m", "placer", "report", "MODEL", "--batch-size", "32"],
}
PLACE = ["-m", "placer", "place", "MODEL", "--devices", "2xA100-40GB", "--batch-size", "32"]


WRITE = """
import sys
from layered_graphs import layered_graph
open(sys.argv[2], "wb").write(layered_graph(int(sys.argv[1])).SerializeToString())
"""
"""In a process of its own: TensorFlow here would count as memory of every process started here."""


def measure(arguments: list[str], model: Path) -> tuple[float, float, int, int]:
    """CPU seconds, wall seconds, largest resident bytes and exit status of one fresh process."""
    command = [sys.executable, *(str(model) if word == "MODEL" else word for word in arguments)]
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu, wall = usage.ru_utime + usage.ru_stime, time.perf_counter() - start
    return cpu, wall, usage.ru_maxrss * 1024, process.returncode


def write_graphs(folder: Path, sizes: list[int]) -> dict[int, Path]:
    """The files, by the number of ops."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    paths = {size: folder / f"{size}.pb" for size in sizes}
    for size, path in paths.items():
        command = [sys.executable, "-c", WRITE, str(size), str(path)]
        subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    return paths


def exponent(values: dict[int, float]) -> float:
    """How the largest size compares with the next: 1 is linear."""
    small, large = sorted(values)[-2:]
    return math.log(values[large] / values[small]) / math.log(large / small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", action="store_true", help="measure `placer place` instead")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    peers = {"placer place": PLACE} if arguments.place else PEERS
    seconds: dict[str, dict[int, float]] = {name: {} for name in peers}
    walls: dict[str, dict[int, float]] = {name: {} for name in peers}
    memory: dict[str, dict[int, int]] = {name: {} for name in peers}
    with tempfile.TemporaryDirectory() as folder:
        for size, path in write_graphs(Path(folder), sizes).items():
            for _ in range(arguments.rounds):
                for name, words in peers.items():
                    cpu, wall, peak, status = measure(words, path)
                    if status not in (0, 6):
                        sys.exit(f"{name} ended with status {status} at {size:,} ops")
                    seconds[name][size] = min(cpu, seconds[name].get(size, math.inf))
                    walls[name][size] = min(wall, walls[name].get(size, math.inf))
                    memory[name][size] = max(peak, memory[name].get(size, 0))
    print("| process |", " | ".join(f"{size:,} ops" for size in sizes), "| exponent |")
    print("|---|" + "---|" * (len(sizes) + 1))
    for name in peers:
        cells = [
            f"{seconds[name][n]:.1f} s ({walls[name][n]:.1f} s), {memory[name][n] / MIB:,.0f} MiB"
            for n in sizes
        ]
        slope = f"{exponent(seconds[name]):.2f}" if len(sizes) > 1 else ""
        print(f"| {name} |", " | ".join(cells), f"| {slope} |")
    if not arguments.place:
        base, ours = (seconds[name][sizes[-1]] for name in (*list(peers)[:1], *list(peers)[-1:]))
        print(f"\nratio at {sizes[-1]:,} ops: {ours / base:.2f}; {ours - base:.1f} CPU s more")


if __name__ == "__main__":
    main()
