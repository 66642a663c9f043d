"""The layers of a model as groups within groups, in the order of its depth.

Groups are the name scopes of the forward pass.  A scope with very many children is divided into
stretches that follow one another: by the beginnings of names (``block1a_conv``, ``block1a_bn``), by
the devices they are on, or where least crosses.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate, groupby, pairwise
from typing import cast

from placer.prediction.predicted_step import PredictedStep
from placer.rendering.html.folded_step import FORWARD, Passes

MOST_CHILDREN = 24
"""A group shows at most about so many at once."""

_MOST_OF_ALL, _LEAST_OF_ALL = 0.9, 0.01
_LEAST_STRETCHES = 3
_WORD = re.compile(r"[^_]+_?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTree:
    """Groups by number, outer ones first; number 0 is the whole, its parent -1.

    ``ops`` are those that have a place of their own, in the order of the model's depth, and
    ``group_of`` the group of each.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    ops: tuple[int, ...]
    group_of: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Part:
    """An op of the forward pass or a group of parts; ``depth`` is the mean of the ops in it, and
    ``device`` that of nearly all.  ``before`` are parts beside it that it reads; a ``stretch`` is
    in order already."""

    name: str
    op: int | None = None
    outer: _Part | None = None
    level: int = 0
    inner: list[_Part] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)
    before: set[_Part] = field(default_factory=set)
    depth: float = 0.0
    device: int | None = None
    stretch: bool = False


def build_layer_tree(step: PredictedStep, passes: Passes) -> LayerTree:
    """The layers of ``step``: every op that has a place of its own is in one."""
    root = _by_scope(step, passes)
    parts = _measure(root, step, passes)
    _connect(parts, step, passes)
    _note_crossings(parts, step, passes)
    dividing = _Dividing(step, passes)
    names, parents, ops, group_of = [""], [-1], [], []
    pending = [(root, 0)]
    while pending:
        part, number = pending.pop()
        if part.op is not None:
            ops.append(part.op)
            group_of.append(number)
            continue
        if part is not root:
            names.append(part.name)
            parents.append(number)
            number = len(names) - 1
        pending.extend((inner, number) for inner in reversed(dividing.children(part)))
    return LayerTree(
        names=tuple(names), parents=tuple(parents), ops=tuple(ops), group_of=tuple(group_of)
    )


def _by_scope(step: PredictedStep, passes: Passes) -> _Part:
    """The whole, its parts being those of the name scopes of what has a place of its own.  An op
    called as a scope lies in it; a scope that holds one part alone is that part."""
    root = _Part(name="")
    parts = {"": root}
    anchors = sorted(set(passes.anchor))
    for op in anchors:
        inner = None
        scope = step.ops[op].rpartition("/")[0]
        while inner is not root:
            outer, _, name = scope.rpartition("/")
            known = scope in parts
            part = parts.setdefault(scope, _Part(name=name))
            if inner is not None:
                part.inner.append(inner)
            if known:
                break
            inner, scope = part, outer
    for op in anchors:
        outer, _, name = step.ops[op].rpartition("/")
        parts.get(step.ops[op], parts[outer]).inner.append(_Part(name=name, op=op))
    for path in sorted(parts, key=len, reverse=True):
        part = parts[path]
        for index, inner in enumerate(part.inner):
            if len(inner.inner) == 1:
                only = inner.inner[0]
                only.name = f"{inner.name}/{only.name}"
                part.inner[index] = only
    while len(root.inner) == 1 and root.inner[0].op is None:
        root = root.inner[0]
    return root


def _measure(root: _Part, step: PredictedStep, passes: Passes) -> dict[int, _Part]:
    """Fills in what parts are of; the parts of single ops by op."""
    parts, found = [root], {}
    for part in parts:
        for inner in part.inner:
            inner.outer, inner.level = part, part.level + 1
        parts.extend(part.inner)
    for part in reversed(parts):
        part.ops = [op for inner in part.inner for op in inner.ops]
        if part.op is not None:
            part.ops.append(part.op)
            found[part.op] = part
        own = [op for op in part.ops if passes.pass_of[op] == FORWARD] or part.ops
        if own:
            part.depth = sum(passes.depth[op] for op in own) / len(own)
            (device, count), *_ = Counter(step.device_of[op] for op in own).most_common(1)
            part.device = device if count > _MOST_OF_ALL * len(own) else None
    return found


def _connect(parts: dict[int, _Part], step: PredictedStep, passes: Passes) -> None:
    """Notes which parts of one group read which, in the forward pass."""
    for op, edges in enumerate(step.edges):
        if passes.pass_of[op] != FORWARD:
            continue
        reader = parts[passes.anchor[op]]
        for edge in edges:
            if edge.index < 0 or passes.pass_of[edge.producer] != FORWARD:
                continue
            one, other = _beside(parts[passes.anchor[edge.producer]], reader)
            if one is not other:
                other.before.add(one)


def _note_crossings(parts: dict[int, _Part], step: PredictedStep, passes: Passes) -> None:
    """Notes that parts which hold both ends of a large transfer are on several devices."""
    sizes = [row.transfer.bytes or 0 for row in step.sent]
    least = _LEAST_OF_ALL * sum(sizes)
    for row, size in zip(step.sent, sizes, strict=True):
        if size < least or not size:
            continue
        for reader in row.readers:
            one, other = _beside(parts[passes.anchor[row.op]], parts[passes.anchor[reader]])
            part = one if one is other else one.outer
            while part is not None:
                part.device = None
                part = part.outer


def _beside(one: _Part, other: _Part) -> tuple[_Part, _Part]:
    """Returns the two parts of their innermost common group that hold one and the other."""
    while one.level > other.level:
        one = cast(_Part, one.outer)
    while other.level > one.level:
        other = cast(_Part, other.outer)
    while one.outer is not other.outer:
        one, other = cast(_Part, one.outer), cast(_Part, other.outer)
    return one, other


def _in_order(parts: list[_Part]) -> list[_Part]:
    """Every part after those it reads, the least deep first; a circle begins with its least
    deep."""
    by_depth = sorted(parts, key=lambda part: (part.depth, part.ops[0]))
    place = {part: index for index, part in enumerate(by_depth)}
    waits = {part: len(part.before) for part in parts}
    readers: dict[_Part, list[_Part]] = {part: [] for part in parts}
    for part in parts:
        for read in part.before:
            readers[read].append(part)
    ready = [place[part] for part in parts if not waits[part]]
    heapify(ready)
    left = 0
    found: list[_Part] = []
    done = set()
    while len(found) < len(parts):
        while not ready and by_depth[left] in done:
            left += 1
        part = by_depth[heappop(ready) if ready else left]
        if part in done:
            continue
        done.add(part)
        found.append(part)
        for reader in readers[part]:
            waits[reader] -= 1
            if not waits[reader]:
                heappush(ready, place[reader])
    return found


class _Dividing:
    """Divides what is too long to be shown at once."""

    def __init__(self, step: PredictedStep, passes: Passes) -> None:
        self.step = step
        self.passes = passes

    def children(self, part: _Part) -> list[_Part]:
        """The parts in ``part`` in the order of their depth, or stretches of them."""
        parts = part.inner if part.stretch else _in_order(part.inner)
        if len(parts) > MOST_CHILDREN:
            parts = _stretches(self._by_words(parts), words=True) or parts
        if len(parts) > 12:  # then runs on one device are shown as one
            parts = _stretches(_by_device(parts)) or parts
        if len(parts) > MOST_CHILDREN:
            parts = _stretches(self._by_width(parts))
        return parts

    @staticmethod
    def _by_words(parts: list[_Part]) -> list[list[_Part]]:
        """Runs of names that begin alike, with the fewest words that tell them apart."""
        for words in range(1, 6):
            alike = groupby(parts, key=lambda part: "".join(_WORD.findall(part.name)[:words]))
            runs = [list(run) for _, run in alike]
            if len(runs) > MOST_CHILDREN:
                break
            if len(runs) >= _LEAST_STRETCHES:
                return runs
        return []

    def _by_width(self, parts: list[_Part]) -> list[list[_Part]]:
        """Stretches of about equal length, cut where the fewest tensors cross."""
        widths = self._widths(parts)
        count = min(MOST_CHILDREN, max(2, -(-len(parts) // MOST_CHILDREN)))
        length = len(parts) / count
        cuts = [0]
        for i in range(1, count):
            near = range(
                max(cuts[-1] + 1, round((i - 0.5) * length)),
                min(len(parts), round((i + 0.5) * length)),
            )
            ideal = i * length
            if near:
                cuts.append(min(near, key=lambda at: (widths[at], abs(at - ideal))))
        cuts.append(len(parts))
        return [parts[start:end] for start, end in pairwise(cuts)]

    def _widths(self, parts: list[_Part]) -> list[int]:
        """How many tensors of the forward pass cross from before each part to it or behind."""
        at = {op: index for index, part in enumerate(parts) for op in part.ops}
        last = dict.fromkeys(at, 0)
        anchor, pass_of = self.passes.anchor, self.passes.pass_of
        for op, edges in enumerate(self.step.edges):
            if pass_of[op] != FORWARD or anchor[op] not in at:
                continue
            for edge in edges:
                if edge.producer in at:
                    last[edge.producer] = max(last[edge.producer], at[anchor[op]])
        steps = [0] * (len(parts) + 1)
        for op, end in last.items():
            if end > at[op]:
                steps[at[op] + 1] += 1
                steps[end + 1] -= 1
        return list(accumulate(steps))


def _by_device(parts: list[_Part]) -> list[list[_Part]]:
    """Runs on one device, if they are few; what is on several stands alone."""
    runs: list[list[_Part]] = []
    for part in parts:
        if runs and part.device is not None and part.device == runs[-1][-1].device:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs if 2 <= len(runs) <= min(MOST_CHILDREN, len(parts) / 2) else []


def _stretches(runs: list[list[_Part]], words: bool = False) -> list[_Part]:
    """A group for every run of several parts."""
    return [
        run[0]
        if len(run) == 1
        else _Part(
            name=_run_name([part.name.partition("/")[0] for part in run], words),
            inner=run,
            ops=[op for part in run for op in part.ops],
            device=run[0].device if len({part.device for part in run}) == 1 else None,
            stretch=True,
        )
        for run in runs
    ]


def _run_name(names: list[str], words: bool) -> str:
    """Returns the name of a run of parts: by how the names begin, or by the first and the last.

    >>> _run_name(["block1a_conv", "block1a_bn"], words=True)
    'block1a'
    >>> _run_name(["layer_3", "layer_4"], words=False)
    'layer_3 … 4'
    """
    shared = 0
    split = [_WORD.findall(name) for name in names]
    while all(len(parts) > shared + 1 and parts[shared] == split[0][shared] for parts in split):
        shared += 1
    begins = "".join(split[0][:shared])
    return begins.rstrip("_") if words and begins else f"{names[0]} … {names[-1][len(begins) :]}"
