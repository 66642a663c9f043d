"""Gradient ops find the op they belong to by the names that TensorFlow gives them."""

from graphs_by_hand import draw

from placer.problem.grouping import gradient_groups


def test_gradients_of_a_tape_and_of_tensorflow_1_find_their_forward_ops():
    """A tape names a scope, whose op or first op it is; TensorFlow 1 names the op itself."""
    graph = draw(
        "x -> net/dense/MatMul -> net/dense/BiasAdd -> net/act/Relu -> loss",
        "loss -> gradient_tape/net/act/ReluGrad -> gradient_tape/net/dense/MatMul/MatMul_1",
        "loss -> train/gradients/loss_grad/Mul -> gradients/gone_grad/Mul",
    )
    found = {group.ops[1]: group.ops[0] for group in gradient_groups(graph)}
    assert found == {
        "gradient_tape/net/act/ReluGrad": "net/act/Relu",
        "gradient_tape/net/dense/MatMul/MatMul_1": "net/dense/MatMul",
        "train/gradients/loss_grad/Mul": "loss",
    }
