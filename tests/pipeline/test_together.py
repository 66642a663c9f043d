"""What is found while shapes are inferred is what is found afterwards."""

import pytest
from graph_defs_by_hand import add_constant, add_function, add_node, add_splat
from layered_graphs import layered_graph

pytest.importorskip("tensorflow")

from cost_models.clusters import parse_cluster
from placer.extraction import extract
from placer.graph.passes.roles import find_roles
from placer.pipeline.together import Together, predict_together
from placer.pipeline.workload import cost_program, extract_program
from placer.plan.request import Options
from placer.prediction.orders.execution_orders import executor_orders

CLUSTER = "1xT4"


def _training_step():
    """A matrix that is trained by hand, with small and large constants and ops for the host."""
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    graph.versions.producer = 2000
    node = graph.node
    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, 8))
    add_node(node, "VarHandleOp", "w", dtype="float32", shape=(8, 8), shared_name=b"w")
    add_node(node, "ReadVariableOp", "w/read", ["w"], dtype="float32")
    add_node(node, "MatMul", "dot", ["x", "w/read"], T="float32")
    add_constant(node, "axis", [0])
    add_node(node, "Mean", "mean", ["dot", "axis"], T="float32", Tidx="int32", keep_dims=False)
    add_node(node, "AsString", "told", ["mean"], T="float32")
    add_splat(node, "rate", (), 0.1)
    add_splat(node, "large", (8, 64))
    add_node(node, "MatMul", "wide", ["dot", "large"], T="float32")
    add_node(node, "MatMul", "step", ["x", "dot"], T="float32", transpose_a=True, transpose_b=False)
    add_node(node, "ResourceApplyGradientDescent", "apply", ["w", "rate", "step"], T="float32")
    return graph


def _with_host_body(graph):
    """A loop whose body has an op that no GPU runs."""
    library = graph.library
    counted = [("i", "int32"), ("v", "float32")]
    cond = add_function(library, "on_host", counted, [("go", "bool")])
    add_node(cond.node_def, "AsString", "text", ["v"], T="float32")
    add_node(cond.node_def, "StringLength", "length", ["text:output:0"])
    add_constant(cond.node_def, "most", 4)
    add_constant(cond.node_def, "all", [0, 1])
    add_node(
        cond.node_def, "Max", "longest", ["length:output:0", "all:output:0"],
        T="int32", Tidx="int32", keep_dims=False,
    )  # fmt: skip
    add_node(cond.node_def, "Less", "less", ["longest:output:0", "most:output:0"], T="int32")
    cond.ret["go"] = "less:z:0"
    for node in graph.node:
        if node.op == "StatelessWhile":
            node.attr["cond"].func.name = "on_host"
    return graph


def _foreseen(path, **options):
    """The workload, who foresaw it, and the graph that was told."""
    outlines, wanted = [], Options(**options)
    together = Together(parse_cluster(CLUSTER), Options())

    def meanwhile(outline):
        outlines.append(outline)
        together.foresee(outline)

    extraction = extract_program(path, wanted, meanwhile=meanwhile)
    workload = cost_program(path, extraction, together.cluster, wanted)
    return workload, together, outlines[0]


@pytest.mark.parametrize("make", [_training_step, lambda: layered_graph(300)])
def test_what_is_foreseen_is_what_is_found_without_foresight(tmp_path, make):
    """Placement, roles, orders and the whole prediction of a program are the same either way."""
    path = tmp_path / "graph.pb"
    path.write_bytes(make().SerializeToString())
    workload, together, outline = _foreseen(path, batch_size=4)
    extraction = extract(path, batch_size=4)
    assert extraction.graph == workload.graph
    assert list(outline.ops) == list(workload.graph.ops)
    plain = cost_program(path, extraction, workload.cluster, Options(batch_size=4))
    assert workload.graph.ask_once(together.place) == together.place(plain.graph)
    assert workload.graph.ask_once(find_roles) == find_roles(plain.graph)
    for accelerated in (True, False):
        found = executor_orders(workload.graph, accelerated=accelerated)
        assert found == executor_orders(plain.graph, accelerated=accelerated)
    assert together.predict(workload).metrics == predict_together(plain).metrics


def test_a_placement_is_foreseen(tmp_path):
    """Nothing is asked twice: the answer is there before the shapes are."""
    path = tmp_path / "graph.pb"
    path.write_bytes(_training_step().SerializeToString())
    workload, together, outline = _foreseen(path, batch_size=4)
    told = together.place(outline)
    assert told["told"] == "CPU:0"
    assert told["axis"] == told["mean"] == "GPU:0"
    assert outline.ops["dot"].info.outputs[0].shape is None
    assert outline.ops["large"].info.outputs[0].shape == (8, 64)
    assert any(answer == told for answer in workload.graph._answers.values())


def test_a_body_may_change_what_was_foreseen(tmp_path):
    """Bodies come with the shapes: a loop that runs something on the host is there itself."""
    graph = _with_host_body(layered_graph(300))
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.SerializeToString())
    workload, together, outline = _foreseen(path, batch_size=4)
    assert together.place(outline)["while"] == "GPU:0"
    assert together.predict(workload).placement["while"] == "CPU:0"
