"""Name scopes, and the tree that they make."""

from hypothesis import given
from hypothesis import strategies as st

from placer.graph.name_scopes import build_scope_tree, scope_of, sum_by_scope

parts = st.text("ab", max_size=2)
op_names = st.lists(st.lists(parts, min_size=1, max_size=4).map("/".join), max_size=12)


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


def test_scopes_are_numbered_from_the_outside():
    """a/b lies in scope 1 (a), a/c/d in scope 2 (a/c), e in the root."""
    tree = build_scope_tree(["a/b", "a/c/d", "e"])
    assert (tree.names, tree.parents) == (("", "a", "c"), (-1, 0, 1))
    assert (tree.scope_of, tree.leaves) == ((1, 2, 0), ("b", "d", "e"))
    assert tree.sums([1, 10, 100]) == [111, 11, 10]


@given(op_names)
def test_every_name_comes_back(names):
    """Scope and leaf give the name; the root's sum is that of all ops."""
    tree = build_scope_tree(names)
    for name, scope, leaf in zip(names, tree.scope_of, tree.leaves, strict=True):
        assert name == (f"{tree.path(scope)}/{leaf}" if scope else leaf)
    assert tree.sums([1] * len(names))[0] == len(names)
