"""Loops and branches laid out in the graph that they are in, as TensorFlow runs them.

TensorFlow runs loops as ops of the graph (``Merge``, ``Switch``, ``NextIteration``), so that what
does not depend on the iteration before runs ahead of it, up to ``parallel_iterations``.

    argument --> merge 0 --> switch 0 --> body 0 --> next 0 --> merge 1 --> switch 1 --> ... exit
                    '--> cond 0 ...^                               '--> cond 1 ...^

A branch gets each of its arguments once the condition is known, and runs piece by piece.  All
these become ``Identity`` ops here, and one name per iteration: ``loop/body/3/MatMul``.

What waited for the loop or branch itself waits for its results, by a ``NoOp``.  Where a session was
asked to run it by its name, an ``IdentityN`` of that name holds all results until it runs: then the
lists that a loop made are not the gradient loop's own, which copies them and frees no element.

``tensorflow/core/common_runtime/{lower_while_op,lower_if_op,propagator_state}.cc``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import LOOPS
from placer.graph.tensor_names import op_of, split_tensor
from placer.prediction.step.control_flow import find_trip_count, loop_invariants

_DEFAULT_PARALLEL_ITERATIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOutGraph:
    """A graph whose loops are iterations, with the costs of its ops; ``owner`` maps the ops that
    came from the loops and branches that it had to them."""

    graph: OpGraph
    costs: Mapping[str, OpCost]
    owner: Mapping[str, str]


def lay_out_control_flow(
    graph: OpGraph,
    costs: Mapping[str, OpCost],
    body_costs: Mapping[str, Mapping[str, OpCost]],
    taken: Mapping[str, str] | None = None,
    session_targets: Collection[str] = (),
    most_ops: int | None = None,
) -> LaidOutGraph:
    """``graph`` with its loops as iterations, and with the branches that are ``taken``.

    ``body_costs`` has the costs of the ops of every function; ``taken`` maps branch ops to
    ``"then"`` or ``"else"``; ``session_targets`` are the ops that a session is asked to run by
    their names (a function has none: there the ``IdentityN`` is left out).  A loop whose trip count
    does not follow exactly from the graph, and a branch that is not in ``taken``, stay one op; so
    do those whose bodies have no costs, and loops that would make it more than ``most_ops``.
    """
    targets = frozenset(session_targets)
    layout = BodyLayout(graph.functions, body_costs, taken, targets, most_ops)
    value_of = layout.add_ops(graph, costs)
    fetches = tuple(value_of.get(tensor, tensor) for tensor in graph.fetches)
    laid_out = replace(graph, ops=layout.ops, fetches=fetches)
    return LaidOutGraph(graph=laid_out, costs=layout.cost_of, owner=layout.owner)


class BodyLayout:
    """The laid out graph while it is built: its ``ops`` and the cost of each; ``executed`` has
    the op that stands for each loop and branch where a control edge came from it, ``owner`` the
    loop or branch of the outermost graph that an op came from.  While it is ``repeating`` a body,
    the constants in it are there already."""

    def __init__(
        self,
        functions: Mapping[str, OpGraph],
        costs: Mapping[str, Mapping[str, OpCost]],
        taken: Mapping[str, str] | None = None,
        session_targets: frozenset[str] = frozenset(),
        most_ops: int | None = None,
    ) -> None:
        self.functions = functions
        self.costs = costs
        self.taken = taken or {}
        self.session_targets = session_targets
        self.most_ops = most_ops
        self.ops: dict[str, Op] = {}
        self.cost_of: dict[str, OpCost] = {}
        self.executed: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.repeating = False

    def add_ops(
        self,
        graph: OpGraph,
        costs: Mapping[str, OpCost],
        arguments: Mapping[str, str] | None = None,
        under: str = "",
        start: str = "",
    ) -> dict[str, str]:
        """The new names of the tensors of ``graph``, whose ops are added with ``under`` in front;
        those left out have theirs with ``under`` in front.

        ``arguments`` are the values of the feeds of a function; its ops that wait for nothing wait
        for the op ``start``.  What a ``Merge`` of a v1 loop reads may be added after it.
        """
        value_of = dict(arguments or {})
        given = frozenset(graph.feeds) if arguments is not None else frozenset()
        for op in graph.ops.values():
            if op.name in given:
                continue
            # the op with the new names of what it reads and waits for
            controls = op.control_inputs and tuple(
                [
                    self.executed.get(under + name, under + name)
                    for name in op.control_inputs
                    if name not in given
                ]
            )
            inputs = tuple([value_of.get(tensor, under + tensor) for tensor in op.inputs])
            if start and not op.inputs and not controls:
                controls = (start,)
            copy = op
            if under or inputs != op.inputs or controls != op.control_inputs:
                copy = replace(op, name=under + op.name, inputs=inputs, control_inputs=controls)
            # its body in its place, or itself
            before = len(self.ops)
            results = self._lay_out(op, copy, graph) if op.bodies else None
            if results is not None and not under:
                self.owner.update(dict.fromkeys(islice(self.ops, before, None), op.name))
            if results is None:
                self.ops[copy.name] = copy
                cost = costs[op.name]
                if self.repeating and cost.persistent_bytes:
                    cost = replace(cost, persistent_bytes=0)
                self.cost_of[copy.name] = cost
            for index, result in enumerate(results or ()):
                value_of[op.output_name(index)] = result
        return value_of

    def _lay_out(self, op: Op, copy: Op, graph: OpGraph) -> list[str] | None:
        """The results of a loop or of a branch, ``None`` if it has to stay one op."""
        bodies = [name for names in op.bodies.values() for name in names]
        if any(name not in self.costs for name in bodies):
            return None
        if op.op_type in LOOPS:
            found = find_trip_count(op, replace(graph, functions=self.functions))
            if found is None or not found.exact:
                return None
            # the iterations may make the graph too large, those of loops within them aside
            size = found.count * sum(len(self.functions[name].ops) for name in bodies)
            if self.most_ops is not None and len(self.ops) + size > self.most_ops:
                return None
            results = self.add_loop(copy, found.count)
        elif copy.name in self.taken:
            results = self._add_branch(copy)
        else:
            return None
        self.executed[copy.name] = f"{copy.name}/executed"
        self._add_barrier(self.executed[copy.name], results)
        if copy.name in self.session_targets:  # all results, under the name that it asks for
            properties = tuple(map(self._properties, results))
            info = OpInfo(op="IdentityN", inputs=properties, outputs=properties)
            self.add(Op(name=copy.name, info=info, inputs=tuple(results)))
        return results

    def add_loop(self, op: Op, trips: int) -> list[str]:
        """The results of ``trips`` iterations of the loop ``op``, which reads what is there."""
        (condition,), (body,) = op.bodies["cond"], op.bodies["body"]
        limit = op.info.attributes.get("parallel_iterations")
        limit = limit if isinstance(limit, int) else _DEFAULT_PARALLEL_ITERATIONS
        invariants = loop_invariants(self.functions[body])
        changing = [index for index in range(len(op.inputs)) if index not in invariants]
        values = list(op.inputs)
        done: list[str] = []
        repeating = self.repeating
        for trip in range(trips + 1):
            self.repeating = repeating or trip > 0
            after = (done[trip - limit],) if trip >= limit else op.control_inputs
            self._pass_on(values, changing, f"{op.name}/merge/{trip}", after)
            start = op_of(values[changing[0] if changing else 0])
            met = op_of(self._call(condition, f"{op.name}/cond/{trip}/", values, start)[0])
            if trip == trips:
                self._pass_on(values, range(len(values)), f"{op.name}/exit", (met,))
                break
            switched = list(values)
            self._pass_on(switched, range(len(values)), f"{op.name}/switch/{trip}", (met, start))
            results = self._call(body, f"{op.name}/body/{trip}/", switched, met)
            self._pass_on(results, changing, f"{op.name}/next/{trip}", ())
            for index in changing:
                values[index] = results[index]
            self._add_barrier(f"{op.name}/done/{trip}", [values[index] for index in changing])
            done.append(f"{op.name}/done/{trip}")
        self.repeating = repeating
        return values

    def _add_branch(self, op: Op) -> list[str]:
        """The results of the branch that is taken."""
        branch = self.taken[op.name]
        (function,) = op.bodies[f"{branch}_branch"]
        predicate, *values = op.inputs
        after = (op_of(predicate), *op.control_inputs)
        self._pass_on(values, range(len(values)), f"{op.name}/switch", after)
        return self._call(function, f"{op.name}/{branch}/", values, op_of(predicate))

    def _pass_on(
        self, values: list[str], indices: Iterable[int], name: str, after: Sequence[str]
    ) -> None:
        """Hands on the same values when the ops of ``after`` are done."""
        for index in indices:
            properties = self._properties(values[index])
            identity = OpInfo(op="Identity", inputs=(properties,), outputs=(properties,))
            values[index] = self.add(
                Op(
                    name=f"{name}/{index}",
                    info=identity,
                    inputs=(values[index],),
                    control_inputs=tuple(after),
                )
            )

    def _call(self, function: str, under: str, arguments: Sequence[str], start: str) -> list[str]:
        """The results of ``function``, called once the op ``start`` is done, its ops added with
        ``under`` in front."""
        body = self.functions[function]
        feeds = {f"{feed}:0": value for feed, value in zip(body.feeds, arguments, strict=True)}
        value_of = self.add_ops(body, self.costs[function], feeds, under, start)
        return [value_of.get(tensor, under + tensor) for tensor in body.fetches]

    def _add_barrier(self, name: str, values: Sequence[str]) -> None:
        """An op that waits for the ``values``."""
        waits = tuple(dict.fromkeys(map(op_of, values)))
        self.ops[name] = Op(name=name, info=OpInfo(op="NoOp"), control_inputs=waits)
        self.cost_of[name] = OpCost()

    def add(self, op: Op) -> str:
        """The output of ``op``, which costs nothing itself."""
        self.ops[op.name] = op
        sizes = tuple(map(tensor_bytes, op.info.outputs))
        self.cost_of[op.name] = OpCost(output_bytes=sizes)
        return op.output_name(0)

    def _properties(self, value: str) -> TensorProperties:
        producer, index = split_tensor(value)
        return self.ops[producer].info.outputs[index]
