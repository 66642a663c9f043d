"""Names in a trace become names of the flat graph.

A trace names an op as the executor had it, ``while/body/_1/mul:Mul``.  What it calls the program
may differ from what the file does by the call that the program is behind (a SavedModel's
``StatefulPartitionedCall/``), by a scope around it, and by the replica it ran in (``replica_4/``,
of ``tf.distribute``).  A call or scope is found by vote: most names agree on it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

_EVENT = re.compile(r"(?P<name>.+):(?P<type>_?[A-Z]\w*)")
_REPLICA = re.compile(r"(?:^|(?<=/))replica_\d+/")
_FUSED = re.compile(r"_(Mkl)?(Native)?Fused")

_VOTERS = 2000
"""Names that are looked at for the vote, at most."""


def split_event(text: str) -> tuple[str, str] | None:
    """The op and its type behind ``name:Type`` (what may follow a ``#`` are its shapes)."""
    found = _EVENT.fullmatch(text.partition("#")[0])
    return (found["name"], found["type"]) if found else None


def is_fused(op_type: str) -> bool:
    """Whether a kernel does the work of several ops of the file (Grappler's remapper and oneDNN
    make them, and give them the last one's name)."""
    return _FUSED.match(op_type) is not None


class FlatNames:
    """The ops of a flat graph, found by their names at run time."""

    def __init__(self, ops: Iterable[str], traced: Iterable[str]) -> None:
        self.ops = frozenset(ops)
        self._found: dict[str, str | None] = {}
        self.away, self.added = self._vote(traced)

    def flat(self, traced: str) -> str | None:
        """The op that ``traced`` is, or the loop or branch that it was lowered from."""
        if traced not in self._found:
            self._found[traced] = self._look_up(traced)
        return self._found[traced]

    def _look_up(self, traced: str) -> str | None:
        whole = [form for form in self._forms(traced) if form in self.ops]
        if whole:
            return whole[0]
        for form in self._forms(traced):
            # a lowered loop's or branch's machinery has a number of its own in the name
            for owner in _owners(form):
                if owner in self.ops and re.search(r"/_\d+(/|$)", form[len(owner) :]):
                    return owner
        return None

    def _forms(self, traced: str) -> Iterator[str]:
        for name in dict.fromkeys((traced, _REPLICA.sub("", traced))):
            yield name
            if name.startswith(self.away):
                yield self.added + name[len(self.away) :]

    def _vote(self, traced: Iterable[str]) -> tuple[str, str]:
        """Returns the prefix to take off names and the one to put there, as most names have it."""
        by_end: dict[str, list[str]] = defaultdict(list)
        for name in self.ops:
            by_end[name.rpartition("/")[2]].append(name)
        votes: Counter[tuple[str, str]] = Counter()
        for name in sorted({_REPLICA.sub("", name) for name in traced} - self.ops)[:_VOTERS]:
            for flat in by_end.get(name.rpartition("/")[2], ()):
                if flat.endswith(f"/{name}"):
                    votes["", flat[: -len(name)]] += 1
                elif name.endswith(f"/{flat}"):
                    votes[name[: -len(flat)], ""] += 1
        return min(votes, key=lambda pair: (-votes[pair], pair), default=("", ""))


def _owners(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name
