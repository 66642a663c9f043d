"""What a rewriting makes of a flat graph."""

import json
from dataclasses import replace

import pytest
from graphs_by_hand import draw

from placer.errors import UsageError
from placer.graph.rewriting import Clone, Rewriting, Swap, find_arrivals, recomputable_ops
from placer.graph.rewritten_graphs import rewrite_graph


def step(**changes):
    """Two layers and their gradients; the gradient of each reads what its layer gave.

    x --> a --> b --> loss --> db --> da --> join:0 --> update
          :     :..............^     ^ :               (join:1 is db)
          :..........................: '
    """
    return draw(
        "x=Placeholder -> a -> b -> loss -> db -> da",
        "b -> db",
        "a -> da",
        "da, db -> join=IdentityN",
        "join:0 -> update",
        "join:1 -> update",
        bytes={"a": 4096, "b": 4096, "join": 4},
        feeds=["x"],
        fetches=["loss:0"],
        targets=["update"],
        **changes,
    )


BOTH = Rewriting(
    clones=(Clone(op="a", after=("loss",)), Clone(op="b", reads=("a",))),
    late_readers={"db": ("b",), "da": ("a",)},
)


def test_late_readers_read_the_clones():
    """The second layer's clone reads the first's; the forward pass stays as it was."""
    ops = rewrite_graph(step(), BOTH).ops
    assert ops["a/recomputed"].inputs == ("x:0",)
    assert ops["a/recomputed"].control_inputs == ("loss",)
    assert ops["b/recomputed"].inputs == ("a/recomputed:0",)
    assert ops["db"].inputs == ("loss:0", "b/recomputed:0")
    assert ops["da"].inputs == ("db:0", "a/recomputed:0")
    assert ops["loss"].inputs == ("b:0",)
    assert ops["a/recomputed"].info == ops["a"].info


def test_clones_come_right_before_their_first_reader():
    """The order is topological, and nothing else moved."""
    order = list(rewrite_graph(step(), BOTH).ops)
    assert order.index("a/recomputed") + 2 == order.index("b/recomputed") + 1 == order.index("db")
    assert [name for name in order if "/" not in name] == list(step().ops)


def test_an_op_that_a_clone_waits_for_comes_before_it():
    """A trigger that stands behind the first late reader moves in front of it."""
    graph = draw("x=Placeholder -> a -> loss -> da", "a -> da", "x -> t", feeds=["x"])
    rewriting = Rewriting(clones=(Clone(op="a", after=("t",)),), late_readers={"da": ("a",)})
    order = list(rewrite_graph(graph, rewriting).ops)
    assert order.index("t") < order.index("a/recomputed") < order.index("da")


def test_a_swap_is_two_identities():
    """One has the tensor at once, the other one waits and is sent back.  The second output of a
    split comes back through the host, the first is read as before."""
    graph = draw(
        "x=Placeholder -> split",
        "split:0 -> loss",
        "split:1 -> loss -> dx",
        "split:0 -> dx",
        "split:1 -> dx",
        feeds=["x"],
    )
    rewriting = Rewriting(
        swaps=(Swap(tensor="split:1", after=("loss",)),), late_readers={"dx": ("split",)}
    )
    rewritten = rewrite_graph(graph, rewriting)
    assert find_arrivals(rewritten) == {"split/arrived_1"}
    ops = rewritten.ops
    arrived, swapped = ops["split/arrived_1"], ops["split/swapped_1"]
    assert (arrived.op_type, arrived.inputs, arrived.control_inputs) == (
        "Identity",
        ("split:1",),
        (),
    )
    assert (swapped.op_type, swapped.inputs, swapped.control_inputs) == (
        "Identity",
        ("split/arrived_1:0",),
        ("loss",),
    )
    for op in (arrived, swapped):
        assert op.info.outputs == (graph.ops["split"].info.outputs[1],)
    assert ops["dx"].inputs == ("loss:0", "split:0", "split/swapped_1:0")


def test_a_released_join_is_read_through_and_goes():
    """Its readers read the gradients; where it is fetched it stays."""
    rewriting = Rewriting(released=("join",))
    ops = rewrite_graph(step(), rewriting).ops
    assert ops["update"].inputs == ("da:0", "db:0")
    assert "join" not in ops
    fetched = replace(step(), fetches=("join:0",))
    assert "join" in rewrite_graph(fetched, rewriting).ops


def test_a_released_join_that_a_clone_waits_for_stays():
    """It runs, although nothing reads it."""
    graph = draw(
        "x=Placeholder -> a -> loss -> join=IdentityN", "join -> update -> tail", "a -> tail"
    )
    clone = Clone(op="a", after=("join",))
    found = rewrite_graph(
        graph, Rewriting(clones=(clone,), late_readers={"tail": ("a",)}, released=("join",))
    )
    assert found.ops["update"].inputs == ("loss:0",)
    assert "join" in found.ops


def test_nothing_is_nothing():
    """An empty rewriting is false and gives the graph back."""
    graph = step()
    assert not Rewriting()
    assert rewrite_graph(graph, Rewriting()) is graph


def test_the_record_survives_json():
    """What is read is what was written."""
    rewriting = replace(BOTH, swaps=(Swap(tensor="loss:0", after=("db",)),), released=("join",))
    assert Rewriting.from_json(json.loads(json.dumps(rewriting.to_json()))) == rewriting
    assert Rewriting().to_json() == {}


def test_added_ops_have_devices():
    """Clones go where their originals are, swaps to the host, and a choice of one's own stays."""
    rewriting = replace(
        BOTH, swaps=(Swap(tensor="loss:0"),), late_readers={**BOTH.late_readers, "db": ("b",)}
    )
    placement = dict.fromkeys(step().ops, "GPU:0") | {"b/recomputed": "GPU:1"}
    found = rewriting.extend_placement(placement, "CPU:0")
    assert found["a/recomputed"] == "GPU:0"
    assert found["b/recomputed"] == "GPU:1"
    assert found["loss/swapped"] == found["loss/arrived"] == "CPU:0"


@pytest.mark.parametrize(
    ("rewriting", "message"),
    [
        (Rewriting(clones=(Clone(op="z"),)), "rewrites z, which the model lacks"),
        (replace(BOTH, late_readers={"z": ("a",)}), "rewrites z, which the model lacks"),
        (Rewriting(released=("z",)), "rewrites z, which the model lacks"),
        (Rewriting(released=("da",)), "releases da, a MatMul and no IdentityN"),
        (
            replace(BOTH, late_readers={**BOTH.late_readers, "join": ("a",)}, released=("join",)),
            "releases join, and lets it be read or read others late",
        ),
        (Rewriting(clones=(Clone(op="a"),)), "adds a/recomputed, which nothing would read"),
        (replace(BOTH, late_readers={"db": ("a",)}), "read a late, which it does not read"),
        (replace(BOTH, late_readers={"db": ("loss",)}), "read loss late, which has no late value"),
        (
            Rewriting(clones=(Clone(op="a", after=("z",)),), late_readers={"da": ("a",)}),
            "wait for z, which the model lacks",
        ),
        (
            Rewriting(clones=(Clone(op="a", after=("update",)),), late_readers={"da": ("a",)}),
            "cannot run: the graph has a cycle",
        ),
        (
            replace(BOTH, swaps=(Swap(tensor="a:0"),)),
            "gives a two late values",
        ),
        (
            Rewriting(clones=(Clone(op="x"),), late_readers={"a": ("x",)}),
            r"computes x \(Placeholder\) twice, which would change the step",
        ),
    ],
)
def test_what_cannot_be(rewriting, message):
    """Each is refused with the op it is about."""
    with pytest.raises(UsageError, match=message):
        rewrite_graph(step(), rewriting)


def test_what_must_run_once():
    """State, handles, reads of references and what does not run in every step are left out."""
    graph = draw(
        "h=VarHandleOp -> r=ReadVariableOp -> m -> u=AssignVariableOp",
        "v=VariableV2 -> i=Identity -> n",
        "d=RandomUniform -> n",
        "k=StatelessRandomUniformV2 -> n",
        "x=Placeholder -> s=Switch -> c -> e=Merge",
        dtypes={"h": "resource"},
        feeds=["x"],
    )
    stateful = {"VarHandleOp", "ReadVariableOp", "AssignVariableOp", "VariableV2", "RandomUniform"}
    graph = replace(graph, stateful_types=frozenset(stateful))
    assert recomputable_ops(graph) == {"m", "n", "k"}


def test_a_clone_reads_what_its_original_read_first():
    """``b`` itself reads ``a`` late, and is computed again from the late ``a``, too."""
    late = {"b": ("a",), "db": ("b",), "da": ("a",)}
    found = rewrite_graph(
        step(),
        Rewriting(clones=(Clone(op="a"), Clone(op="b", reads=("a",))), late_readers=late),
    )
    assert found.ops["b"].inputs == ("a/recomputed:0",)
    assert found.ops["b/recomputed"].inputs == ("a/recomputed:0",)
