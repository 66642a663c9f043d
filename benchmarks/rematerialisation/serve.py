"""Whether TensorFlow's BFC allocator serves steps of a graph within a limit, as JSON lines.

    python serve.py GRAPH.pb LIMIT_MIB [GRAPH.pb LIMIT_MIB ...]

A program of its own: oneDNN has to be off before TensorFlow is loaded.  Each graph runs in a
process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "allocator"))

from measure import fed_value, first_value, ops_of, tf, tried, v1


def main() -> None:
    names = sys.argv[1:]
    for name, limit in zip(names[::2], names[1::2], strict=True):
        path, graph = Path(name), tf.Graph()
        with graph.as_default():
            tf.import_graph_def(v1.GraphDef.FromString(path.read_bytes()), name="")
            feeds = {op.outputs[0]: fed_value(op) for op in ops_of(graph, "Placeholder")}
            outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
            fetches = [graph.as_graph_element(output) for output in outputs]
            starts = [first_value(handle) for handle in ops_of(graph, "VarHandleOp")]
        found = tried(int(limit), "one_region", graph, starts, fetches, feeds)
        print(json.dumps({"graph": path.stem, **found}), flush=True)


if __name__ == "__main__":
    main()
