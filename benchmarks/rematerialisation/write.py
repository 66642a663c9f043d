"""Writes a flat GraphDef rewritten.

    python write.py GRAPH.pb PLAN.json TARGET.pb

``PLAN.json`` has a ``rewriting`` and control ``edges``.  A program of its own: it loads TensorFlow.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import tensorflow as tf

from placer.extraction.graph_defs.added_control import add_control
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.rewritten_nodes import rewrite_nodes
from placer.graph.rewriting import Rewriting
from placer.graph.tensor_names import op_of


def main() -> None:
    source, plan, target = map(Path, sys.argv[1:])
    found, given = json.loads(plan.read_text()), tf.compat.v1.GraphDef()
    given.ParseFromString(source.read_bytes())
    kept = [op_of(name) for name in json.loads(source.with_suffix(".json").read_text())["outputs"]]
    definitions = OpDefinitions({}, given.library.function)
    rewriting = Rewriting.from_json(found["rewriting"])
    nodes = rewrite_nodes(given.node, rewriting, kept, definitions)
    written = tf.compat.v1.GraphDef(versions=given.versions, library=given.library)
    written.node.extend(nodes)
    by_name = {node.name: node for node in written.node}
    added: dict[str, list[str]] = {}
    for before, after in found["edges"]:
        added.setdefault(after, []).append(before)
    for after, names in added.items():
        add_control(by_name[after], names)
    target.write_bytes(written.SerializeToString())
    shutil.copy(source.with_suffix(".json"), target.with_suffix(".json"))


if __name__ == "__main__":
    main()
