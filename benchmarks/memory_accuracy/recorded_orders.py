"""The order of one step that TensorFlow recorded, for a graph with its loops laid out.

A recording names the ops of a loop's body once per iteration without saying which iteration; a
thread pool that takes what came last runs a later one first.  So the graph is followed along the
recording: of the iterations that an op may run for, an expensive op runs for the last one that
became ready, an inexpensive one for the first.

What a recording says of branches, and of loops that a session ran by their names, is laid out too
(:class:`RecordedLayout`), which no prediction does.

``tensorflow/core/framework/step_stats.proto``, ``core/common_runtime/lower_if_op.cc``,
:mod:`placer.prediction.step.executor`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo
from placer.graph.op_graph import Op, OpGraph
from placer.graph.order import predecessors
from placer.graph.tensor_names import op_of
from placer.prediction.step.executor import INEXPENSIVE
from placer.prediction.step.loop_bodies import BodyLayout

_INLINED = re.compile(r"/(cond|body|then|else)/_\d+/")
_ITERATION = re.compile(r"/(cond|body)/\d+/")
_BRANCH = re.compile(r"(.*?)/(then|else)/_\d+/")
_FED = re.compile(r"_arg_(.*)_\d+_\d+")


def taken_branches(started: Iterable[str]) -> dict[str, str]:
    """``"then"`` or ``"else"`` for each branch op of which ops have ``started``."""
    matches = (_BRANCH.match(name) for name in started if not name.startswith("Func/"))
    return {match[1]: match[2] for match in matches if match}


class RecordedLayout(BodyLayout):
    """A layout with the branches that are ``taken``, ``"then"`` or ``"else"`` by branch op.

    A branch gets each of its arguments once the condition is known, and runs piece by piece.  Where
    a session was asked to run a loop or branch by its name (``session_targets``), an ``IdentityN``
    of that name holds all results until it runs: then the lists that a loop made are not the
    gradient loop's own, which copies them and frees no element.
    """

    def __init__(
        self,
        functions: Mapping[str, OpGraph],
        costs: Mapping[str, Mapping[str, OpCost]],
        taken: Mapping[str, str] | None = None,
        session_targets: Collection[str] = (),
    ) -> None:
        super().__init__(functions, costs)
        self.taken, self.session_targets = taken or {}, frozenset(session_targets)

    def results_of(self, op: Op, copy: Op, graph: OpGraph) -> list[str] | None:
        if copy.name in self.taken:
            results: list[str] | None = self.executing(copy, self._add_branch(copy))
        else:
            results = super().results_of(op, copy, graph)
        if results is not None and copy.name in self.session_targets:
            properties = tuple(map(self.properties_of, results))
            info = OpInfo(op="IdentityN", inputs=properties, outputs=properties)
            self.add(Op(name=copy.name, info=info, inputs=tuple(results)))
        return results

    def _add_branch(self, op: Op) -> list[str]:
        """The results of the branch that is taken."""
        branch = self.taken[op.name]
        (function,) = op.bodies[f"{branch}_branch"]
        predicate, *values = op.inputs
        after = (op_of(predicate), *op.control_inputs)
        self.pass_on(values, range(len(values)), f"{op.name}/switch", after)
        return self.call(function, f"{op.name}/{branch}/", values, op_of(predicate))


def recorded_order(graph: OpGraph, started: Sequence[str]) -> tuple[str, ...]:
    """All ops of ``graph``, which a :class:`RecordedLayout` laid out, in the order in which they
    ``started``: names of RunMetadata, one per execution.

    What the recording does not name runs as soon as it can.
    """
    return _Replay(graph, Counter(map(_key_of_recorded, started))).run(started)


def _key_of_recorded(name: str) -> str:
    fed = _FED.fullmatch(name)
    return fed[1] if fed else _INLINED.sub(r"/\1/", name)


def _key_of(name: str) -> str:
    return _ITERATION.sub(r"/\1/", name)


class _Replay:
    """``ready`` has the ops that may run, by what a recording calls them; ``owed`` counts those
    that the recording has before they are ready."""

    def __init__(self, graph: OpGraph, awaited: Counter[str]) -> None:
        self.graph = graph
        self.awaited = awaited
        self.waiting: dict[str, int] = {}
        self.consumers: dict[str, list[str]] = {name: [] for name in graph.ops}
        for name, op in graph.ops.items():
            before = [] if name in graph.feeds else predecessors(op, graph.ops)
            self.waiting[name] = len(before)
            for producer in before:
                self.consumers[producer].append(name)
        self.ready: dict[str, list[str]] = {}
        self.owed: Counter[str] = Counter()
        self.order: list[str] = []

    def run(self, started: Iterable[str]) -> tuple[str, ...]:
        self._make_ready([name for name, count in self.waiting.items() if not count])
        for name in started:
            key = _key_of_recorded(name)
            self.awaited[key] -= 1
            if self.ready.get(key):
                self._execute(self._next(key))
            else:
                self.owed[key] += 1
        while left := [name for names in self.ready.values() for name in names]:
            self.ready.clear()
            for name in left:
                self._execute(name)
        return tuple(self.order)

    def _next(self, key: str) -> str:
        names = self.ready[key]
        return names.pop(0 if self.graph.ops[names[0]].op_type in INEXPENSIVE else -1)

    def _execute(self, name: str) -> None:
        self.order.append(name)
        freed = []
        for consumer in self.consumers[name]:
            self.waiting[consumer] -= 1
            if not self.waiting[consumer]:
                freed.append(consumer)
        self._make_ready(freed)

    def _make_ready(self, names: Iterable[str]) -> None:
        """Puts the ops aside until the recording names them; runs those it does not."""
        for name in names:
            key = _key_of(name)
            if self.owed[key]:
                self.owed[key] -= 1
                self._execute(name)
            elif self.awaited[key] > 0:
                self.ready.setdefault(key, []).append(name)
            else:
                self._execute(name)
