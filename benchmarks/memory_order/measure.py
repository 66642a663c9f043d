"""The recorded peak of one step of each graph, as JSON lines.

    python measure.py GRAPH.pb ...

Of variables that change, TensorFlow's records have the new buffer and not that the old one is
freed: ``AssignVariableOp`` puts another in its place, ``AssignAddVariableOp`` copies one that an op
still reads (``PrepareToUpdateVariable``).  Here the old one is freed when the last op that reads it
is done.  A program of its own: oneDNN has to be off
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

CHANGES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
VIEWS = ("Identity", "Reshape", "ExpandDims", "Squeeze")


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
        for size, micros in allocations(node):
            changes.append((micros, size))
            kept[abs(size)] += 1 if size > 0 else -1
    variables = Variables(graph_def)
    ends = {node.node_name: node.all_start_micros + node.all_end_rel_micros for node in nodes}
    for node in nodes:
        size = variables.changed_bytes(node.node_name)
        copies = node.node_name in variables.assigns or any(s == size for s, _ in allocations(node))
        if size and copies and kept[size] > 0:
            kept[size] -= 1
            readers = variables.readers(node.node_name)
            changes.append((max(ends.get(name, 0) for name in (node.node_name, *readers)), -size))
    return max(accumulate(size for _, size in sorted(changes)))


def allocations(node):
    """(bytes, time) of what an op allocated, and of what of that was freed (negative bytes)."""
    for memory in node.memory:
        for record in memory.allocation_records:
            yield record.alloc_bytes, record.alloc_micros


class Variables:
    """What changes variables in a graph, and who reads their values."""

    def __init__(self, graph_def) -> None:
        self.nodes = {node.name: node for node in graph_def.node}
        self.consumers: dict[str, list[str]] = {}
        for node in graph_def.node:
            for name in node.input:
                self.consumers.setdefault(name.partition(":")[0], []).append(node.name)
        self.assigns = {n.name for n in graph_def.node if n.op == "AssignVariableOp"}

    def handle(self, name: str):
        """The handle of the variable that an op reads or changes."""
        handle = self.nodes[self.nodes[name].input[0].partition(":")[0]]
        while handle.op == "Identity":
            handle = self.nodes[handle.input[0].partition(":")[0]]
        return handle

    def changed_bytes(self, name: str) -> int:
        """Bytes of the variable that an op changes; 0 if it changes none."""
        if name not in self.nodes or self.nodes[name].op not in CHANGES:
            return 0
        import tensorflow as tf

        handle = self.handle(name)
        shape = tf.TensorShape(handle.attr["shape"].shape)
        return shape.num_elements() * tf.as_dtype(handle.attr["dtype"].type).size

    def readers(self, name: str) -> list[str]:
        """The ops that read the value of the variable that an op changes, through views too."""
        handle = self.handle(name).name
        found = []
        stack = [n for n in self.consumers[handle] if self.nodes[n].op == "ReadVariableOp"]
        while stack:
            found.extend(readers := self.consumers.get(stack.pop(), []))
            stack.extend(n for n in readers if self.nodes[n].op in VIEWS)
        return found


if __name__ == "__main__":
    main()
