"""Sets of names that grow together are those that a search through all pairs finds."""

from hypothesis import given
from hypothesis import strategies as st

from placer.graph.union_find import UnionFind

NAMES = st.sampled_from("abcdefgh")


@given(st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=8))
def test_names_are_together_if_a_chain_of_unions_joins_them(unions):
    """Against the partition that is merged set by set."""
    found, sets = UnionFind[str](), {name: {name} for name in "abcdefgh"}
    for names in unions:
        found.union(*names)
        merged = set().union(*(sets[name] for name in names))
        sets.update(dict.fromkeys(merged, merged))
    for a in sets:
        for b in sets:
            assert (found.root(a) == found.root(b)) == (b in sets[a])


def test_the_first_set_gives_the_root():
    """b joins the set of a, and c does: all three are called a."""
    found = UnionFind[str]()
    assert found.union("a", "b") == "a"
    assert found.union("b", "c") == "a"
    assert [name in found for name in "abcd"] == [True, True, True, False]
