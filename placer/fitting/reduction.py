"""A training step as a rematerialisation problem: its large tensors, along an order of its ops.

Few tensors hold nearly all bytes that wait for the backward pass.  Each op that writes some of them
is a node; what lies between them and is read by nobody else (*chains*) is computed again with it,
and what is small is kept.  The rest of the step happens in *stages*, nodes that are computed once
and write nothing: each begins where a large tensor is read.

    ops     a    b    c    d    e    f    g         a, c: large, read in the backward pass
            |    '----.    |    |    |    |         b: large, read by c alone: in the chain of c
    nodes   a         c    s1   s1   s2   s2        s1, s2: stages that read c, then a

All else that is in memory, gradients and old values of variables, say, is what
:class:`~placer.prediction.memory.lifetimes.Simulation` says of that order: held beside the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from placer.fitting.recompute_problem import RematerialisationProblem
from placer.fitting.working_sets import find_roots
from placer.graph.op_graph import OpGraph
from placer.graph.passes.differentiation import is_update_type
from placer.graph.passes.roles import find_roles
from placer.graph.rewriting import recomputable_ops
from placer.prediction.memory.lifetimes import Simulation
from placer.prediction.memory.run import Wanted
from placer.prediction.step.step_layout import Effect, StepLayout

_SHARE = 0.99
"""Share of the bytes that wait for the backward pass, which the nodes have."""

_MOST_NODES = 250
"""That write something: the smallest tensors are kept where there would be more."""

_HILL = 0.01
"""A stage ends where more than this share of the budget more is held beside the nodes."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """A node: ``owner`` is the op that writes large tensors, -1 where none does; ``chain`` are the
    ops that compute them again, ``reads`` the owners that it reads.  It begins at the place
    ``start`` of the order; ``beside`` is the most that is held beside the nodes meanwhile."""

    owner: int
    start: int
    chain: tuple[int, ...] = ()
    reads: set[int] = field(default_factory=set)
    beside: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedStep:
    """The ``problem`` of a step and its ``stages``, by node; ``order`` has op numbers, ``roots``
    the value whose buffer each value is."""

    problem: RematerialisationProblem
    stages: tuple[Stage, ...]
    order: tuple[int, ...]
    roots: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StepReduction:
    """One step along one order; ``device`` is the memory that is full.

    ``seconds`` are those of each op; those that are ``fixed`` are not computed again.
    """

    graph: OpGraph
    layout: StepLayout
    order: tuple[int, ...]
    device: str
    seconds: Sequence[float]
    fixed: frozenset[str] = frozenset()

    def along(self, order: Sequence[int]) -> StepReduction:
        """The same step along another order."""
        return replace(self, order=tuple(order))

    @cached_property
    def place(self) -> dict[int, int]:
        """The place of every op in the order."""
        return {op: place for place, op in enumerate(self.order)}

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The value whose buffer each value is."""
        return find_roots(self.layout)

    @cached_property
    def is_forward(self) -> list[bool]:
        """Whether each op is one of the forward pass."""
        gradients = self.graph.ask_once(find_roles).gradients
        return [
            op.name not in gradients and not is_update_type(op.op_type)
            for op in self.graph.ops.values()
        ]

    @cached_property
    def is_repeatable(self) -> list[bool]:
        """Whether each op can be computed again on the device."""
        layout, allowed = self.layout, recomputable_ops(self.graph) - self.fixed
        return [
            self.is_forward[n]
            and op.name in allowed
            and bool(op.inputs)
            and layout.effects[n] == Effect.PLAIN
            and layout.devices[n] == self.device
            and not any(_is_copy(layout, self.roots[value]) for value in layout.inputs[n])
            for n, op in enumerate(self.graph.ops.values())
        ]

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The ops that read the buffer of each root, through whichever view; views themselves are
        none.  What is fetched has none, as nothing can be done about it."""
        found: dict[int, list[int]] = {root: [] for root in self.roots}
        for op, inputs in enumerate(self.layout.inputs):
            own = {self.roots[value] for value in self.layout.outputs[op]}
            for root in dict.fromkeys(self.roots[value] for value in inputs):
                if own != {root}:
                    found[root].append(op)
        for value in self.layout.fetched:
            found.pop(self.roots[value], None)
        return found

    @cached_property
    def chosen(self) -> _Nodes:
        """The ops whose outputs are decided about."""
        return _Nodes(self)

    def reduce(self, budget_bytes: int) -> ReducedStep | None:
        """The problem; ``None`` if nothing of the step can be computed again.

        ``budget_bytes`` leave resident bytes aside.
        """
        if not any(self.is_repeatable[op] for op in self.chosen.nodes):
            return None
        beside, between = self._held_bytes()
        stages = self._stages(beside, budget_bytes)
        number = {stage.owner: index for index, stage in enumerate(stages) if stage.owner >= 0}
        first = tuple(stage.beside for stage in stages)
        names = self.layout.names
        problem = RematerialisationProblem(
            node_names=tuple(
                names[stage.owner] if stage.owner >= 0 else f"stage {index}"
                for index, stage in enumerate(stages)
            ),
            seconds=tuple(self._seconds(stages)),
            bytes=tuple(
                sum(self.layout.bytes[root] for root in self.chosen.large.get(stage.owner, ()))
                for stage in stages
            ),
            inputs=tuple(tuple(sorted(number[op] for op in stage.reads)) for stage in stages),
            order=tuple(range(len(stages))),
            budget_bytes=max(budget_bytes, 1),
            once=tuple(
                index
                for index, stage in enumerate(stages)
                if stage.owner < 0 or not self.is_repeatable[stage.owner]
            ),
            first_bytes=first,
            between_bytes=tuple(
                min(between[stage.start], first[index - 1]) if index else 0
                for index, stage in enumerate(stages)
            ),
            again_bytes=tuple(self._chain_bytes(stage) for stage in stages),
        )
        return ReducedStep(
            problem=problem, stages=tuple(stages), order=self.order, roots=self.roots
        )

    def _held_bytes(self) -> tuple[list[int], list[int]]:
        """The bytes in the memory of the device beside the outputs of nodes: at every place of the
        order, and before it, when the last op is done."""
        simulation = Simulation(self.layout, self.order, wanted=Wanted(records=True))
        spans = [
            (size, first, last, goes_on)  # that go on are there between the last op and the next
            for _, device, size, _, first, last, _, _, goes_on in simulation.records().tolist()
            if simulation.device_names[device] == self.device
        ]
        for root in self.chosen.roots():
            first = self.place[self.layout.producer[root]]
            last = max((self.place[reader] for reader in self.readers[root]), default=first)
            spans.append((-self.layout.bytes[root], first, last, 0))
        count = len(self.order)
        at, before = [0] * (count + 2), [0] * (count + 2)
        for size, first, last, goes_on in spans:
            at[first] += size
            at[last + 1] -= size
            before[first + 1] += size
            before[last + 1 + goes_on] -= size
        beside, between = ([max(n, 0) for n in accumulate(each[:count])] for each in (at, before))
        return beside, between

    def _stages(self, held: Sequence[int], budget: int) -> list[Stage]:
        """The order in stages."""
        chosen, reads_of = self.chosen, dict[int, set[int]]()
        for owner in chosen.nodes:
            for root in chosen.large[owner]:
                for reader in self.readers[root]:
                    reads_of.setdefault(reader, set()).add(owner)
        last_node = max(self.place[op] for op in chosen.nodes)
        stages = [Stage(owner=-1, start=0)]
        for place, op in enumerate(self.order):
            now, reads, beside = stages[-1], reads_of.get(op, set()), held[place]
            if op in chosen.nodes:
                chain, sources = chosen.chain_of(op) if self.is_repeatable[op] else ((), set())
                stages.append(Stage(owner=op, start=place, chain=chain, reads=reads | sources))
            elif now.owner < 0 and reads <= now.reads:
                if not reads and now.reads and beside > now.beside + _HILL * budget:
                    stages.append(Stage(owner=-1, start=place))
            elif reads and now.owner < 0 and place < last_node:
                now.reads |= reads
            elif reads or beside > now.beside + _HILL * budget:
                stages.append(Stage(owner=-1, start=place, reads=set(reads)))
            stages[-1].beside = max(stages[-1].beside, beside)
        return stages

    def _seconds(self, stages: Sequence[Stage]) -> Iterable[float]:
        """The seconds of every stage: its node once, and all other ops in it."""
        in_chains = {op for stage in stages for op in stage.chain}
        ends = [*(stage.start for stage in stages[1:]), len(self.order)]
        for stage, end in zip(stages, ends, strict=True):
            others = (op for op in self.order[stage.start : end] if op not in in_chains)
            yield sum(self.seconds[op] for op in (*stage.chain, *others))

    def _chain_bytes(self, stage: Stage) -> int:
        """The most that computing again takes beside what it gives out and reads."""
        layout, chain, large = self.layout, stage.chain, self.chosen.large
        if not chain:
            return 0
        inside = {root for op in chain for root in large.get(op, ()) if op != stage.owner}
        last: dict[int, int] = {}
        for step, op in enumerate(chain):
            for value in layout.inputs[op]:
                if self.roots[value] in inside:
                    last[self.roots[value]] = step
        alive, peak = 0, 0
        for step, op in enumerate(chain):
            own = sum(layout.bytes[v] for v in layout.outputs[op] if self.roots[v] == v)
            freed = [root for root, end in last.items() if end == step]
            over = {
                self.roots[source]
                for value in layout.outputs[op]
                for source in layout.overwritten.get(value, ())[:1]
            }
            saved = sum(layout.bytes[root] for root in freed if root in over)
            given = op == stage.owner
            taken = sum(layout.bytes[root] for root in large.get(op, ())) if given else 0
            peak = max(peak, alive + own - taken - saved + layout.temporary_bytes[op])
            alive += own - taken - sum(layout.bytes[root] for root in freed)
        return max(peak, 0)


class _Nodes:
    """The ``nodes`` of a step, the ``large`` values that ops write, of ``least`` bytes or more, and
    the ops that are ``folded`` into the chain of one node."""

    def __init__(self, step: StepReduction) -> None:
        layout = step.layout
        sizes = {
            root: layout.bytes[root]
            for root in step.readers
            if layout.bytes[root]
            and layout.memory[root] == step.device
            and layout.effects[layout.producer[root]] == Effect.PLAIN
            and step.is_forward[layout.producer[root]]
        }
        waiting = {
            root: size
            for root, size in sizes.items()
            if step.is_repeatable[layout.producer[root]]
            and not all(step.is_forward[reader] for reader in step.readers[root])
        }
        self.step, self.least = step, _least_size(list(waiting.values()))
        self.large: dict[int, list[int]] = {}
        for root, size in sizes.items():
            if size >= self.least:
                self.large.setdefault(layout.producer[root], []).append(root)
        self.nodes = {layout.producer[root] for root in waiting if waiting[root] >= self.least}
        self.folded: set[int] = set()
        self._fold()
        self.nodes |= {source for op in self.nodes for source in self.chain_of(op)[1]}

    def roots(self) -> list[int]:
        """The large values of all nodes."""
        return [root for op in self.nodes for root in self.large[op]]

    def _fold(self) -> None:
        """Puts large outputs that one node alone needs into its chain; those that several need are
        nodes, too."""
        needed_by: dict[int, set[int]] = {}
        for op in sorted(self.large, reverse=True):
            if op in self.nodes or not self.step.is_repeatable[op]:
                continue
            users: set[int] = set()
            for root in self.large[op]:
                for reader in self.step.readers[root]:
                    if reader in self.nodes:
                        users.add(reader)
                    elif reader in needed_by:
                        users |= needed_by[reader]
            if len(users) > 1:
                self.nodes.add(op)
            elif users:
                needed_by[op] = users
                self.folded.add(op)

    def chain_of(self, op: int) -> tuple[tuple[int, ...], set[int]]:
        """The ops that compute the outputs of ``op`` again, and the owners that they read."""
        layout, chain, reads, stack = self.step.layout, {op}, set(), [op]
        while stack:
            for value in layout.inputs[stack.pop()]:
                root = self.step.roots[value]
                source = layout.producer[root]
                if source in chain or layout.bytes[root] < self.least:
                    continue
                if source in self.folded:
                    chain.add(source)
                    stack.append(source)
                elif source in self.large and root in self.large[source]:
                    reads.add(source)
        return tuple(sorted(chain, key=self.step.place.__getitem__)), reads


def _is_copy(layout: StepLayout, value: int) -> bool:
    """Whether the value is the copy of a variable that a read makes: who computes from it again
    would hold all of it until then."""
    op = layout.producer[value]
    return layout.effects[op] == Effect.READ_VARIABLE and not layout.copied_on_read.isdisjoint(
        layout.variables[op]
    )


def _least_size(sizes: list[int]) -> int:
    """The smallest of the large ones."""
    sizes.sort(reverse=True)
    total, held = sum(sizes), 0
    for count, size in enumerate(sizes, 1):
        held += size
        if held >= _SHARE * total or count == _MOST_NODES:
            return size
    return 1
