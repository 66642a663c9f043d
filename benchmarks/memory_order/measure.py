"""The recorded peak of one step of each graph, as JSON lines.

    python measure.py GRAPH.pb ...

Of variables that are assigned, TensorFlow's records have the new buffer and not that the old one
is freed; here that counts, when the assignment is done.  A program of its own: oneDNN has to be off
before TensorFlow is loaded, and the order of a step differs from process to process.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "memory_accuracy"))

from record import run, v1  # first: it switches oneDNN off


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        graph_def = v1.GraphDef.FromString(path.read_bytes())
        outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
        metadata, _ = run(graph_def, outputs)
        print(json.dumps({"graph": path.stem, "peak_bytes": peak_bytes(graph_def, metadata)}))
        sys.stdout.flush()


def peak_bytes(graph_def, metadata) -> int:
    """The most bytes in use at once, variables at their usual size."""
    nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    changes = []
    kept: Counter[int] = Counter()
    for node in nodes:
        for memory in node.memory:
            records = [(r.alloc_micros, r.alloc_bytes) for r in memory.allocation_records]
            changes += records
            kept.update(size for _, size in records if size > 0)
            kept.subtract(-size for _, size in records if size < 0)
    size_of = variable_sizes(graph_def)
    for node in nodes:
        size = size_of.get(node.node_name, 0)
        if size and kept[size] > 0:
            kept[size] -= 1
            changes.append((node.all_start_micros + node.all_end_rel_micros, -size))
    return max(accumulate(size for _, size in sorted(changes)))


def variable_sizes(graph_def) -> dict[str, int]:
    """Bytes of the variable that each ``AssignVariableOp`` assigns."""
    import tensorflow as tf

    nodes = {node.name: node for node in graph_def.node}
    found = {}
    for node in graph_def.node:
        if node.op == "AssignVariableOp":
            handle = nodes[node.input[0].partition(":")[0]]
            while handle.op == "Identity":
                handle = nodes[handle.input[0].partition(":")[0]]
            shape = tf.TensorShape(handle.attr["shape"].shape)
            found[node.name] = shape.num_elements() * tf.as_dtype(handle.attr["dtype"].type).size
    return found


if __name__ == "__main__":
    main()
