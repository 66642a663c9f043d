"""Which ops of a step belong together in a picture: a training step folded along its loss.

An op of the forward pass stands for itself, and with it stand the ops that have no place of their
own in the model: constants and variables go to their first reader, the ops of the backward pass to
what they differentiate, the updates of a variable to the op that reads it.

    kernel ..> MatMul <.. gradients/MatMul_grad/MatMul_1 <.. update_kernel/ResourceApplyAdam

Names say what is differentiated where there are any (``tf.gradients``, ``tf.GradientTape``); types
and edges do else.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from placer.graph.op_types import ENTERS, PLACEHOLDERS, READ_VARIABLE, VARIABLES
from placer.graph.passes.differentiation import differentiated, is_gradient_type, is_update_type
from placer.graph.rewriting import RECOMPUTED, SWAPPED
from placer.prediction.predicted_step import PredictedStep

FORWARD, BACKWARD, UPDATE = range(3)

_LATE = re.compile(rf"{RECOMPUTED}|{SWAPPED}(_\d+)?")
_SOURCES = VARIABLES | {"Const"}
_HANDED_ON = ENTERS | {READ_VARIABLE, "Identity", "Cast"}
"""Op types shown with their reader where they read constants and variables alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """By op: its pass, the op that it stands with (itself, if it has a place of its own), and where
    that lies along the longest path of the forward pass, from 0."""

    pass_of: tuple[int, ...]
    anchor: tuple[int, ...]
    depth: tuple[int, ...]


def find_passes(step: PredictedStep) -> Passes:
    """The passes of ``step``; without gradients everything is forward."""
    folding = _Folding(step)
    folding.fold_sources(BACKWARD)
    folding.fold_gradients()
    folding.fold_updates()
    folding.fold_sources(UPDATE)
    anchor = folding.resolved()
    depth = folding.depth
    return Passes(
        pass_of=tuple(folding.pass_of),
        anchor=tuple(anchor),
        depth=tuple(depth[op] for op in anchor),
    )


class _Folding:
    """``source`` are constants, variables and what only hands them on; an op without an anchor has
    ``None``."""

    def __init__(self, step: PredictedStep) -> None:
        self.step = step
        self.order = step.order
        self.reads = [[edge.producer for edge in edges if edge.index >= 0] for edges in step.edges]
        self.readers: list[list[int]] = [[] for _ in step.ops]
        for op, producers in enumerate(self.reads):
            for producer in producers:
                self.readers[producer].append(op)
        for op, edges in enumerate(step.edges):  # what only waits lies behind what it waits for
            if not self.reads[op] and not self.readers[op]:
                self.reads[op] = [edge.producer for edge in edges]
        self.late = self._late()
        self.source = self._sources()
        self.moving = self._moving()
        self.pass_of = self._passes()
        self.depth = self._depths()
        self.anchor: list[int | None] = [
            op if number == FORWARD and not self.source[op] else None
            for op, number in enumerate(self.pass_of)
        ]

    def fold_sources(self, last: int) -> None:
        """Every source goes to its first reader, in passes up to ``last``."""
        for op in reversed(self.order):
            if not self.source[op] or self.anchor[op] is not None:
                continue
            found = [
                (self.pass_of[reader], self.depth[at], at)
                for reader in self.readers[op]
                if (at := self.anchor[reader]) is not None
            ]
            if found:
                _, self.depth[op], self.anchor[op] = min(found)
            elif last == UPDATE:
                self.anchor[op] = op

    def fold_gradients(self) -> None:
        """The ops of the backward pass go to what they differentiate."""
        number = {name: op for op, name in enumerate(self.step.ops) if self.anchor[op] is not None}
        deepest = self._deepest_by_scope()
        for op in reversed(self.order):
            if self.pass_of[op] == BACKWARD and self.anchor[op] is None:
                named = self.late.get(op, self._named(op, number, deepest))
                self.anchor[op] = self._near(op) if named is None else named
        for op in self.order:
            if self.pass_of[op] == BACKWARD and self.anchor[op] is None:
                self.anchor[op] = self._deepest(self.reads[op])

    def fold_updates(self) -> None:
        """Moves what is computed from gradients to the layer of the variable that it updates."""
        for op in reversed(self.order):
            if self.pass_of[op] != UPDATE or self.source[op]:
                continue
            for apart in (
                self._anchors(self.reads[op], self.source) if self._updates(op) else set(),
                self._anchors(r for r in self.reads[op] if self.pass_of[r] == BACKWARD),
                self._anchors(self.readers[op]),
            ):
                if len(apart) == 1 or (apart and self._updates(op)):
                    self.anchor[op] = min(apart)
                    break
            else:
                self.anchor[op] = op

    def resolved(self) -> list[int]:
        """The last of every chain of anchors."""
        found = [op if at is None else at for op, at in enumerate(self.anchor)]
        for op, at in enumerate(found):
            seen = {op}
            while found[at] != at and at not in seen:
                seen.add(at)
                at = found[at]
            found[at] = found[op] = at
        return found

    def _sources(self) -> list[bool]:
        found = [False] * len(self.step.ops)
        for op in self.order:
            kind, reads = self.step.op_types[op], self.reads[op]
            captured = kind in PLACEHOLDERS and self.step.persistent_bytes[op] > 0
            found[op] = bool(self.readers[op]) and (
                kind in _SOURCES
                or captured
                or (
                    bool(reads)
                    and kind in _HANDED_ON
                    and all(found[producer] for producer in reads)
                )
            )
        return found

    def _passes(self) -> list[int]:
        step, ops = self.step, range(len(self.step.ops))
        names = [differentiated(name) if "gradient" in name else (None, "") for name in step.ops]
        gradient = [
            before is not None or is_gradient_type(kind) or op in self.late
            for op, ((before, _), kind) in enumerate(zip(names, step.op_types, strict=True))
        ]
        if not any(gradient):
            return [FORWARD] * len(step.ops)
        behind, before = list(gradient), list(gradient)
        for op in self.order:
            behind[op] = behind[op] or any(behind[producer] for producer in self.reads[op])
        for op in reversed(self.order):
            before[op] = before[op] or any(before[reader] for reader in self.readers[op])
        found = [
            BACKWARD if gradient[op] or (behind[op] and before[op]) else UPDATE * behind[op]
            for op in ops
        ]
        # what only updates read (rates, powers of decay), counters that nothing reads, and what a
        # gradient written by hand computes again
        scopes = {
            name.rpartition("/")[0]
            for outer, path in names
            if outer is not None
            for name in (f"{outer}{path}", path)
        }
        for op in reversed(self.order):
            if found[op] != FORWARD:
                continue
            readers = {found[reader] for reader in self.readers[op]}
            if readers == {UPDATE} or (not readers and self._updates(op) and not self.moving[op]):
                found[op] = UPDATE
            elif scopes and readers and FORWARD not in readers:
                name = step.ops[op]
                if not scopes & {name, name.rpartition("/")[0]} and not self.source[op]:
                    found[op] = BACKWARD
        return found

    def _updates(self, op: int) -> bool:
        return is_update_type(self.step.op_types[op])

    def _late(self) -> dict[int, int]:
        """Maps ops that are computed again or copied back to the op whose value they have."""
        number = {name: op for op, name in enumerate(self.step.ops)}
        split = (name.rpartition("/") for name in self.step.ops)
        return {
            op: number[original]
            for op, (original, _, leaf) in enumerate(split)
            if original in number and _LATE.fullmatch(leaf)
        }

    def _moving(self) -> list[bool]:
        """Marks the ops that depend on what is fed; everything but sources where nothing is."""
        types = self.step.op_types
        fed = [
            not self.source[op] and (kind in PLACEHOLDERS or "Iterator" in kind)
            for op, kind in enumerate(types)
        ]
        if not any(fed):
            return [not source for source in self.source]
        for op in self.order:
            fed[op] = fed[op] or any(fed[producer] for producer in self.reads[op])
        return fed

    def _depths(self) -> list[int]:
        """The longest path from what is fed; what no input reaches is as late as its readers let
        it; what updates share comes last."""
        depth: list[int | None] = [None] * len(self.step.ops)
        for op in self.order:
            if self.moving[op]:
                depth[op] = 1 + max((depth[at] or 0 for at in self.reads[op]), default=-1)
        forward = [depth[op] or 0 for op, number in enumerate(self.pass_of) if number == FORWARD]
        last = max(forward, default=0)
        for op in reversed(self.order):
            if not self.moving[op] and self.pass_of[op] != UPDATE:
                later = [at for reader in self.readers[op] if (at := depth[reader]) is not None]
                depth[op] = max(0, min(later) - 1) if later else None
        found = [0] * len(depth)
        for op in self.order:
            before = max((found[at] for at in self.reads[op]), default=-1)
            own = depth[op]
            if self.pass_of[op] == UPDATE:
                own = max(last, before) + 1
            found[op] = before + 1 if own is None else own
        return found

    def _deepest_by_scope(self) -> dict[str, int]:
        """The last op of the forward pass in every scope."""
        found: dict[str, int] = {}
        for op, name in enumerate(self.step.ops):
            if self.anchor[op] != op:
                continue
            scope = name.rpartition("/")[0]
            while scope:
                if scope not in found or self.depth[found[scope]] < self.depth[op]:
                    found[scope] = op
                scope = scope.rpartition("/")[0]
        return found

    def _named(self, op: int, number: dict[str, int], deepest: dict[str, int]) -> int | None:
        """Returns the op that is differentiated by its name, or one of the scope that it lay in."""
        before, path = differentiated(self.step.ops[op])
        if before is None:
            return None
        scope = path.rpartition("/")[0]
        while scope:
            for name in (before + scope, scope):
                if name in number:
                    return self.anchor[number[name]]
                if name in deepest:
                    return deepest[name]
            scope = scope.rpartition("/")[0]
        return None

    def _near(self, op: int) -> int | None:
        """Returns the op that is differentiated by its edges: the last op of the forward pass that
        is read; a sum of gradients has its reader's."""
        reads = [r for r in self.reads[op] if self.pass_of[r] == FORWARD]
        at = self._deepest(reads)
        if at is None:
            at = self._deepest(r for r in self.readers[op] if self.pass_of[r] == BACKWARD)
        return at

    def _deepest(self, ops: Iterable[int]) -> int | None:
        found = [at for op in ops if (at := self.anchor[op]) is not None]
        return max(found, key=lambda at: self.depth[at], default=None)

    def _anchors(self, ops: Iterable[int], only: Sequence[bool] | None = None) -> set[int]:
        return {
            at for op in ops if (only is None or only[op]) and (at := self.anchor[op]) is not None
        }
