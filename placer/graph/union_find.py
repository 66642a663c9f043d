"""Sets of names that grow together."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class UnionFind(Generic[Name]):
    """Disjoint sets of names or numbers; one that was never joined is a set of its own.

    Tarjan, "Efficiency of a good but not linear set union algorithm", doi:10.1145/321879.321884.

    >>> sets = UnionFind[str]()
    >>> sets.union("a", "b"), sets.root("b"), sets.root("c")
    ('a', 'a', 'c')
    """

    def __init__(self) -> None:
        self.parent: dict[Name, Name] = {}

    def __contains__(self, name: Name) -> bool:
        """Was ``name`` joined to another?"""
        return name in self.parent

    def root(self, name: Name) -> Name:
        """The name that stands for the set of ``name``."""
        above = self.parent.get(name, name)
        while above != name:
            higher = self.parent.get(above, above)
            self.parent[name] = higher
            name, above = above, higher
        return name

    def union(self, first: Name, *others: Name) -> Name:
        """Makes one set of those of all names, and gives its root, which is that of ``first``."""
        root = self.root(first)
        for other in others:
            self.parent[self.root(other)] = root
        self.parent.setdefault(root, root)
        return root
