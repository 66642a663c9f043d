"""Whether a graph can be divided along the batch: does row i of every result depend on example i
alone, or is a result a mean over the examples?

The graph is seen with two sizes of the batch.  States go from the inputs through all ops
(:mod:`placer.extraction.divisibility.batch_rules`), through loops until nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from placer.errors import ShapeError, UsageError
from placer.extraction.divisibility.batch_op import (
    BatchOp,
    Examples,
    MixesExamples,
    State,
    Total,
    Undecided,
    UnknownSizes,
    join_states,
)
from placer.extraction.divisibility.batch_rules import apply_rule
from placer.extraction.divisibility.batch_totals import apply_total_rule
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import BRANCHES, LOOPS
from placer.graph.tensor_names import op_of
from placer.graph.walks import reached


def require_apart(
    small: OpGraph, large: OpGraph, sizes: tuple[int, int], inputs: Sequence[str]
) -> None:
    """Raises :class:`UsageError` naming the first op of a graph that mixes the examples of a batch,
    :class:`ShapeError` where it takes a missing shape to decide.

    ``small`` and ``large`` are the graph with ``sizes`` examples, ``inputs`` the fed ops that hold
    one example per row.  Every fetched tensor must hold them along its first axis, or not depend
    on them.
    """
    walk = _Walk(small, large, sizes)
    try:
        states = walk.run(small, large, {f"{op}:0": Examples(0) for op in inputs})
        copied = _behind(small, inputs)
        for name in small.fetches:
            producer = op_of(name)
            walk.at, walk.scope = small.ops[producer], ""
            if producer in copied and states.get(name) != Examples(0):
                raise MixesExamples("is an output whose first dimension is not the batch")
    except MixesExamples as reason:
        what = f"{walk.op} {reason}"
        if isinstance(reason, UnknownSizes):
            raise ShapeError(
                f"the batch is to be divided, and {what}: set the dimensions of the inputs with "
                "--shape NAME=8x128"
            ) from reason
        raise UsageError(
            f"the program cannot be divided along its batch: {what}. Place it without --strategy "
            "or with a smaller --batch-size; or, if only some outputs need that op, name the "
            "others with --outputs"
        ) from reason


def require_mean(
    small: OpGraph, large: OpGraph, sizes: tuple[int, int], inputs: Sequence[str]
) -> None:
    """Raises :class:`MixesExamples`, its message a sentence that names an op, unless every fetched
    tensor is a mean over the examples; :class:`Undecided` where no rule says so or otherwise.
    Arguments as for :func:`require_apart`."""
    before = {*reached(map(op_of, small.fetches), lambda name: small.ops[name].producers)}
    walk = _Walk(small, large, sizes, has_totals=True, wanted=before)
    try:
        states = walk.run(small, large, {f"{op}:0": Examples(0) for op in inputs})
        for name in small.fetches:
            walk.at, walk.scope = small.ops[op_of(name)], ""
            if states.get(name) not in (None, Total(0)):
                raise MixesExamples("is a sum over the examples, not their mean")
    except MixesExamples as reason:
        raise type(reason)(f"{walk.op} {reason}") from reason
    if walk.doubt is not None:
        raise walk.doubt


def _behind(graph: OpGraph, inputs: Iterable[str]) -> set[str]:
    """The ops that read or wait for one of ``inputs``, and those behind them."""
    found = set(inputs)
    for op in graph.ops.values():
        if not found.isdisjoint((*op.producers, *op.control_inputs)):
            found.add(op.name)
    return found


@dataclass(slots=True)
class _Walk:
    """``at`` is the op that is looked at, in the body ``scope``; ``wanted`` are the ops to look at
    outside of bodies.  With ``has_totals`` sums over the examples are states too, and the first op
    that no rule decides is a ``doubt``: whether others mix examples is seen all the same."""

    small: OpGraph
    large: OpGraph
    sizes: tuple[int, int]
    has_totals: bool = False
    wanted: Collection[str] | None = None
    doubt: Undecided | None = None
    at: Op | None = None
    scope: str = ""
    bodies: dict[tuple[str, str, tuple[State, ...]], list[State]] = field(default_factory=dict)

    @property
    def op(self) -> str:
        """The op that is looked at, for a message."""
        assert self.at is not None
        return f"op {self.scope}{self.at.name} ({self.at.op_type})"

    def run(self, small: OpGraph, large: OpGraph, known: Mapping[str, State]) -> dict[str, State]:
        """The states of all tensors that depend on the batch."""
        states = dict(known)
        fed = {op_of(name) for name in known}
        for op in small.ops.values():
            inputs = tuple(states.get(name) for name in op.inputs)
            is_apart = self.wanted is not None and not self.scope and op.name not in self.wanted
            if op.name in fed or is_apart or not any(inputs):
                continue
            self.at = op
            found = self.results(op, large.ops[op.name], inputs)
            states.update(zip(small.output_names[op.name], found, strict=True))
        return states

    def results(self, op: Op, twin: Op, inputs: tuple[State, ...]) -> Sequence[State]:
        """The states of the results of one op."""
        if op.op_type in LOOPS:
            return self.loop(op, twin, inputs)
        if op.op_type in BRANCHES:
            if isinstance(inputs[0], Examples | Total):
                raise MixesExamples("takes a branch for the whole batch")
            return self.branches(op, twin, inputs[1:])
        asked = BatchOp(small=op, large=twin, sizes=self.sizes, states=inputs)
        if not self.has_totals:
            return apply_rule(asked)
        try:
            found = apply_total_rule(asked)
            return apply_rule(asked) if found is None else found
        except Undecided as reason:
            self.doubt = self.doubt or type(reason)(f"{self.op} {reason}")
            return [asked.guessed(number) for number in range(len(op.info.outputs))]

    def loop(self, op: Op, twin: Op, inputs: tuple[State, ...]) -> tuple[State, ...]:
        """The states of the loop variables, whatever the iteration."""
        states = inputs
        while True:
            after = self.body(op, twin, "body", 0, states)
            self.at = op
            joined = tuple(join_states(a, b) for a, b in zip(states, after, strict=True))
            if joined == states:
                break
            states = joined
        if isinstance(self.body(op, twin, "cond", 0, states)[0], Examples | Total):
            raise MixesExamples("takes a number of iterations that depends on the examples")
        self.at = op
        return states

    def branches(self, op: Op, twin: Op, inputs: tuple[State, ...]) -> list[State]:
        """Returns the states of the outputs, whichever branch is taken."""
        found: list[State] = [None] * len(op.info.outputs)
        for key, names in op.bodies.items():
            for number in range(len(names)):
                given = self.body(op, twin, key, number, inputs)
                self.at = op
                found = [join_states(a, b) for a, b in zip(found, given, strict=True)]
        return found

    def body(
        self, op: Op, twin: Op, key: str, number: int, inputs: tuple[State, ...]
    ) -> list[State]:
        """The states of the results of a body that is called with ``inputs``."""
        names = op.bodies[key][number], twin.bodies[key][number]
        memory = (*names, inputs)
        if memory not in self.bodies:
            small, large = self.small.functions[names[0]], self.large.functions[names[1]]
            outside, self.scope = self.scope, f"{self.scope}{names[0]}/"
            known = {f"{n}:0": s for n, s in zip(small.feeds, inputs, strict=True) if s is not None}
            states = self.run(small, large, known)
            self.scope = outside
            self.bodies[memory] = [states.get(name) for name in small.fetches]
        return self.bodies[memory]
