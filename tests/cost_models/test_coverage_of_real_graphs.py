import os
from collections import Counter
from pathlib import Path

import pytest

from cost_models.free_ops import free_category
from cost_models.registry import has_rule

pytest.importorskip("tensorflow")
from google.protobuf import message, text_format
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

TESTED_FOR = ("foo", "bar", "MyAdd_", "MyFunc_", "aux_func_", "BiasAddx1_")
"""Functions that are called by their name as an op, in graphs written for tests."""


def _nodes(path):
    """All nodes of a GraphDef, MetaGraphDef or SavedModel, its functions included."""
    for kind in (saved_model_pb2.SavedModel, meta_graph_pb2.MetaGraphDef, graph_pb2.GraphDef):
        document = kind()
        try:
            if path.suffix == ".pbtxt":
                text_format.Parse(path.read_text(), document)
            else:
                document.ParseFromString(path.read_bytes())
        except (message.DecodeError, text_format.ParseError, UnicodeDecodeError):
            continue
        metas = getattr(document, "meta_graphs", [document])
        graphs = [getattr(meta, "graph_def", meta) for meta in metas]
        nodes = [node for graph in graphs for node in graph.node] + [
            node for graph in graphs for f in graph.library.function for node in f.node_def
        ]
        if nodes:
            return nodes
    return []


def test_no_op_type_with_heavy_work_is_unmodelled():
    """Every op type in the real graphs has a rule, but for names that tests made up."""
    data = os.environ.get("PLACER_TEST_DATA")
    if not data:
        pytest.skip("PLACER_TEST_DATA names no folder with real graphs")
    paths = [p for p in Path(data, "graphs").rglob("*") if p.suffix in (".pb", ".pbtxt", ".meta")]
    types = Counter(node.op for path in paths for node in _nodes(path))
    assert types.total() > 50_000
    unmodelled = {
        op_type for op_type in types if not has_rule(op_type) and not free_category(op_type)
    }
    allowed = {t for t in unmodelled if t.startswith(TESTED_FOR)}
    assert sorted(unmodelled - allowed) == []
