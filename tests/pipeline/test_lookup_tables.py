"""Tables are weights of which some rows are read."""

from __future__ import annotations

from graphs_by_hand import draw

from cost_models.op_info import OpInfo, TensorProperties
from placer.graph.op_graph import Op, OpGraph, Variable
from placer.pipeline.formulation import lookup_tables


def test_a_variable_is_a_table_if_rows_of_it_are_read_directly_or_after_a_read():
    graph = draw(
        "users=VarHandleOp -> rows=ResourceGather",
        "ids -> rows",
        "items=VarHandleOp -> read=ReadVariableOp -> same=Identity -> more=GatherV2",
        "ids -> more",
        "dense=VarHandleOp -> value=ReadVariableOp -> mul",
        "ids -> picked=GatherV2",
        variables=[
            Variable(name=name, handle=name, dtype="float32", shape=(9, 9))
            for name in ("users", "items", "dense")
        ],
    )
    assert lookup_tables(graph) == ["users", "items"]


def test_of_constants_those_of_two_axes_are_tables_and_lists_of_numbers_are_not():
    def constant(name: str, shape: tuple[int, ...]) -> Op:
        output = TensorProperties(dtype="float32", shape=shape)
        return Op(name=name, info=OpInfo(op="Const", outputs=(output,)))

    ops = [
        constant("table", (100, 8)),
        constant("list", (100,)),
        *(
            Op(name=name, info=OpInfo(op="GatherV2"), inputs=(source,))
            for name, source in (("rows", "table:0"), ("numbers", "list:0"))
        ),
    ]
    assert lookup_tables(OpGraph(ops={op.name: op for op in ops})) == ["table"]
