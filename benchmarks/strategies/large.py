"""How long does ``placer auto --dry-run`` take on a graph of 20,000 ops?

    python benchmarks/strategies/large.py --out DIR [--ops 20000]

writes the graph, convolutions in blocks of three branches, and times the command.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf


def write_graph(path: Path, ops: int) -> int:
    """The number of ops of the GraphDef that is written to ``path``, ``ops`` or a few more."""
    v1, random = tf.compat.v1, np.random.default_rng(0)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 32, 32, 16), name="x")
        while len(graph.get_operations()) < ops:
            branches = []
            for _ in range(3):
                y = x
                for _ in range(3):
                    kernel = random.normal(size=(3, 3, 16, 16), scale=0.05).astype(np.float32)
                    y = tf.nn.conv2d(y, kernel, 1, "SAME")
                    ones, zeros = tf.ones(16), tf.zeros(16)
                    y = v1.nn.fused_batch_norm(y, ones, zeros, zeros, ones, is_training=False)[0]
                    y = tf.nn.relu(y)
                branches.append(y)
            x = x + branches[0] * 0.1 + branches[1] * 0.1 + branches[2] * 0.1
        tf.identity(tf.reduce_mean(x, [1, 2]), name="y")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return len(graph.get_operations())


def main() -> None:
    """Prints the table of the command and the time it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ops", type=int, default=20_000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.ops}.pb"
    count = write_graph(path, arguments.ops)
    command = ["auto", "--dry-run", str(path), "--devices", "2xT4", "--batch-size", "64"]
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "placer", *command], check=True)
    print(f"\n{count:,} ops: {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
