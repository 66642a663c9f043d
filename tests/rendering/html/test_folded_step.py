"""What stands together in a picture of a training step, and the order of the model's depth."""

from __future__ import annotations

import pytest
from graphs_by_hand import draw, draw_cluster, draw_costs

from placer.prediction.predicted_step import describe_step
from placer.prediction.prediction import predict
from placer.rendering.html.folded_step import BACKWARD, FORWARD, UPDATE, find_passes
from placer.rendering.html.layer_tree import MOST_CHILDREN, build_layer_tree


def step_of(*chains, placement=None, resources=(), **drawn):
    """The step of a drawn graph, everything on GPU:0 but what ``placement`` names."""
    graph = draw(*chains, dtypes=dict.fromkeys(resources, "resource"), **drawn)
    cluster = draw_cluster("GPU:0", "GPU:1")
    places = dict.fromkeys(graph.ops, "GPU:0") | (placement or {})
    costs = draw_costs(graph)
    return describe_step(graph, costs, places, cluster, predict(graph, costs, places, cluster))


def stands_with(step):
    """By name: the pass of every op, and the op that it stands with."""
    passes = find_passes(step)
    return {
        name: (passes.pass_of[op], step.ops[passes.anchor[op]]) for op, name in enumerate(step.ops)
    }


@pytest.mark.parametrize(
    ("relu", "matmul", "kernel"),
    [
        ("gradients/net/relu_grad/ReluGrad", "gradients/net/mul_grad/MatMul", "kernel"),
        ("gradient_tape/net/relu/ReluGrad", "gradient_tape/net/mul/MatMul", "net/kernel"),
        ("opt/gradients_1/net/relu_grad/ReluGrad", "opt/gradients_1/net/mul_grad/M", "v"),
        ("a", "b", "c"),
    ],
    ids=["tf.gradients", "GradientTape", "a scope around them", "no names"],
)
def test_gradients_stand_with_what_they_differentiate(relu, matmul, kernel):
    """x, kernel -> mul -> relu -> loss, back again, and the update of the kernel."""
    step = step_of(
        f"x=Placeholder, {kernel}=VarHandleOp",
        f"{kernel} -> net/read=ReadVariableOp",
        "x, net/read -> net/mul=MatMul -> net/relu=Relu -> loss=L2Loss",
        f"loss, net/relu -> {relu}=ReluGrad",
        f"{relu}, x -> {matmul}=MatMul",
        f"{matmul} -> scaled=Mul",
        f"{kernel}, scaled -> update=ResourceApplyGradientDescent",
        feeds=["x"],
        resources=[kernel],
    )
    found = stands_with(step)
    assert found["net/mul"] == (FORWARD, "net/mul")
    assert found["net/read"] == found[kernel] == (FORWARD, "net/mul")
    assert found[relu][0] == BACKWARD
    assert found["update"] == found["scaled"] == (UPDATE, "net/mul")
    if matmul == "b":  # behind the last op that differentiation names, nothing says so
        assert found[relu][1] in ("net/relu", "loss")
    else:
        assert found[relu] == (BACKWARD, "net/relu")
        assert found[matmul] == (BACKWARD, "net/mul")


def test_a_sum_of_gradients_stands_with_its_reader():
    """AddN has no name of its own: what it sums is the gradient of what its reader
    differentiates."""
    step = step_of(
        "x=Placeholder -> a=Relu -> b=Relu, d=Relu -> c=Add",
        "c, b -> gradients/b_grad/ReluGrad=ReluGrad",
        "c, d -> gradients/d_grad/ReluGrad=ReluGrad",
        "gradients/d_grad/ReluGrad, gradients/b_grad/ReluGrad -> gradients/AddN=AddN",
        "gradients/AddN, a -> gradients/a_grad/ReluGrad=ReluGrad",
        feeds=["x"],
    )
    assert stands_with(step)["gradients/AddN"] == (BACKWARD, "a")


def test_what_is_computed_again_stands_with_what_was_computed_first():
    """A clone and a tensor that comes back from the host belong to the backward pass."""
    step = step_of(
        "x=Placeholder -> net/a=Relu -> net/b=Relu -> loss=L2Loss",
        "x -> net/a/recomputed=Relu",
        "net/b -> net/b/swapped_1=Identity",
        "loss, net/b/swapped_1 -> gradients/net/b_grad/ReluGrad=ReluGrad",
        "gradients/net/b_grad/ReluGrad, net/a/recomputed -> gradients/net/a_grad/G=ReluGrad",
        feeds=["x"],
    )
    found = stands_with(step)
    assert found["net/a/recomputed"] == (BACKWARD, "net/a")
    assert found["net/b/swapped_1"] == (BACKWARD, "net/b")


def test_without_gradients_everything_is_forward():
    """Constants go to their first reader all the same; one that is fetched stands for itself."""
    step = step_of(
        "x=Placeholder, one=Const -> a=Add -> b=Add",
        "one -> b",
        "two=Const",
        feeds=["x"],
        fetches=["b:0", "two:0"],
    )
    found = stands_with(step)
    assert {number for number, _ in found.values()} == {FORWARD}
    assert found["one"] == (FORWARD, "a")
    assert found["two"] == (FORWARD, "two")


def test_what_updates_share_is_no_layer():
    """The norm of all gradients has a place of its own behind the model."""
    step = step_of(
        "x=Placeholder, v=VarHandleOp, w=VarHandleOp",
        "x, v -> one/a=MatMul -> two/b=MatMul -> loss=L2Loss",
        "w -> two/b",
        "loss -> gradients/loss_grad/Mul -> gradients/two/b_grad/M=MatMul",
        "gradients/two/b_grad/M -> gradients/one/a_grad/M=MatMul",
        "gradients/two/b_grad/M, gradients/one/a_grad/M -> norm/all=AddN",
        "gradients/two/b_grad/M, norm/all -> clip/two=Mul",
        "gradients/one/a_grad/M, norm/all -> clip/one=Mul",
        "v, clip/one -> up/v=ResourceApplyGradientDescent",
        "w, clip/two -> up/w=ResourceApplyGradientDescent",
        feeds=["x"],
        resources=["v", "w"],
    )
    found = stands_with(step)
    assert found["norm/all"] == (UPDATE, "norm/all")
    assert found["clip/one"] == found["up/v"] == (UPDATE, "one/a")
    assert found["clip/two"] == found["up/w"] == (UPDATE, "two/b")
    tree = build_layer_tree(step, find_passes(step))
    assert [step.ops[op] for op in tree.ops] == ["x", "one/a", "two/b", "loss", "norm/all"]


def tree_of(names, **options):
    """The layers of a chain of ops, whose names are given in another order than the chain's."""
    step = step_of(
        f"x=Placeholder -> {' -> '.join(f'{name}=Relu' for name in names)}", feeds=["x"], **options
    )
    return step, build_layer_tree(step, find_passes(step))


def groups(tree):
    """The names of the groups in the whole."""
    return [name for name, parent in zip(tree.names, tree.parents, strict=True) if parent == 0]


def test_layers_are_in_the_order_of_depth():
    """Not in that of names: block_10 comes after block_9, the stem before all."""
    blocks = [f"net/block_{i}/{op}" for i in range(11) for op in ("conv", "relu")]
    step, tree = tree_of(["net/stem/a", "net/stem/b", *blocks, "net/head/a", "net/head/b"])
    order = [step.ops[op] for op in tree.ops]
    assert order == ["x", "net/stem/a", "net/stem/b", *blocks, "net/head/a", "net/head/b"]
    inner = [name for name in tree.names if name.startswith(("stem", "block", "head"))]
    assert inner == ["stem", *(f"block_{i}" for i in range(11)), "head"]


def test_layers_on_one_device_are_a_run():
    """Forty blocks on two devices: two boxes, and the cut between them; every block within."""
    blocks = [f"block_{i}/{op}" for i in range(40) for op in ("a", "b")]
    there = dict.fromkeys(blocks[50:], "GPU:1")
    _, tree = tree_of(blocks, placement=there)
    assert groups(tree) == ["block_0 … 24", "block_25 … 39"]
    assert len(tree.names) == 1 + 2 + 40 + 2  # 25 blocks are one too many: two stretches of them
    counts = [tree.parents.count(number) for number in range(len(tree.names))]
    assert max(counts) <= MOST_CHILDREN


def test_names_that_begin_alike_are_a_group():
    """As Keras names layers: flat, with the block in front."""
    names = [f"block{i}_{op}/f" for i in range(1, 10) for op in ("conv", "bn", "relu")]
    _, tree = tree_of(names)
    assert groups(tree) == [f"block{i}" for i in range(1, 10)]


def test_a_scope_that_both_feeds_and_reads_another_is_drawn():
    """A circle of scopes has an order, too."""
    step, tree = tree_of(["a/one", "b/one", "a/two", "b/two"])
    assert sorted(tree.ops) == list(range(len(step.ops)))
    assert groups(tree) == ["a", "b"]


def test_odd_names_have_a_place():
    """Slashes without anything between, an op called as a scope, thousands of scopes nested."""
    deep = "/".join("d" * 3000)
    names = ["/", "//x", "a", "a/b", "a//b", f"{deep}/one", f"{deep}/two"]
    step, tree = tree_of(names)
    assert sorted(tree.ops) == list(range(len(step.ops)))
    assert "/".join("d" * 3000) in tree.names
