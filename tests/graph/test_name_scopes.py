"""Name scopes."""

from placer.graph.name_scopes import scope_of, sum_by_scope


def test_the_scope_of_an_op_is_its_name_without_the_last_part():
    """An op at the root has the empty scope."""
    assert scope_of("encoder/layer_0/MatMul") == "encoder/layer_0"
    assert scope_of("encoder/layer_0/MatMul", depth=1) == "encoder"
    assert scope_of("MatMul") == ""


def test_sums_by_scope_keep_the_total():
    """Nothing is lost or counted twice, and the largest scope comes first."""
    amounts = {"a/x": 1, "a/b/y": 2, "c/z": 5, "root": 4}
    assert list(sum_by_scope(amounts).items()) == [("c", 5), ("", 4), ("a", 3)]
    assert sum_by_scope(amounts, depth=2)["a/b"] == 2
