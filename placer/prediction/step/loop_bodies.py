"""Loops laid out in the graph that they are in, as TensorFlow runs them.

TensorFlow runs loops as ops of the graph (``Merge``, ``Switch``, ``NextIteration``), so that what
does not depend on the iteration before runs ahead of it, up to ``parallel_iterations``.

    argument --> merge 0 --> switch 0 --> body 0 --> next 0 --> merge 1 --> switch 1 --> ... exit
                    '--> cond 0 ...^                               '--> cond 1 ...^

All these become ``Identity`` ops here, and one name per iteration: ``loop/body/3/MatMul``.  What
waited for the loop itself waits for its results, by a ``NoOp``.

``tensorflow/core/common_runtime/{lower_while_op,propagator_state}.cc``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from cost_models.op_cost import OpCost
from cost_models.op_info import OpInfo, TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import LOOPS
from placer.graph.tensor_names import op_of, split_tensor
from placer.prediction.step.control_flow import find_trip_count, loop_invariants

_DEFAULT_PARALLEL_ITERATIONS = 10


class BodyLayout:
    """The laid out graph while it is built: its ``ops`` and the cost of each; ``executed`` has
    the op that stands for each loop where a control edge came from it, ``owner`` the loop of the
    outermost graph that an op came from.  While it is ``repeating`` a body, the constants in it are
    there already."""

    def __init__(
        self,
        functions: Mapping[str, OpGraph],
        costs: Mapping[str, Mapping[str, OpCost]],
        most_ops: int | None = None,
    ) -> None:
        self.functions = functions
        self.costs = costs
        self.most_ops = most_ops
        self.ops: dict[str, Op] = {}
        self.cost_of: dict[str, OpCost] = {}
        self.executed: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.repeating = False

    def laid_out(self, graph: OpGraph, costs: Mapping[str, OpCost]) -> OpGraph:
        """The outermost ``graph`` with its loops as iterations.

        A loop whose trip count does not follow exactly from the graph stays one op; so do those
        whose bodies have no costs, and those that would make it more than ``most_ops``.
        """
        value_of = self.add_ops(graph, costs)
        fetches = tuple(value_of.get(tensor, tensor) for tensor in graph.fetches)
        return replace(graph, ops=self.ops, fetches=fetches)

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
            results = self.results_of(op, copy, graph) if op.bodies else None
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

    def results_of(self, op: Op, copy: Op, graph: OpGraph) -> list[str] | None:
        """The results of a loop, ``None`` for one that has to stay one op, and for a branch."""
        bodies = [name for names in op.bodies.values() for name in names]
        if op.op_type not in LOOPS or any(name not in self.costs for name in bodies):
            return None
        found = find_trip_count(op, replace(graph, functions=self.functions))
        if found is None or not found.exact:
            return None
        # the iterations may make the graph too large, those of loops within them aside
        size = found.count * sum(len(self.functions[name].ops) for name in bodies)
        if self.most_ops is not None and len(self.ops) + size > self.most_ops:
            return None
        return self.executing(copy, self.add_loop(copy, found.count))

    def executing(self, op: Op, results: list[str]) -> list[str]:
        """The ``results``, once what waited for ``op`` waits for them."""
        self.executed[op.name] = f"{op.name}/executed"
        self._add_barrier(self.executed[op.name], results)
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
            self.pass_on(values, changing, f"{op.name}/merge/{trip}", after)
            start = op_of(values[changing[0] if changing else 0])
            met = op_of(self.call(condition, f"{op.name}/cond/{trip}/", values, start)[0])
            if trip == trips:
                self.pass_on(values, range(len(values)), f"{op.name}/exit", (met,))
                break
            switched = list(values)
            self.pass_on(switched, range(len(values)), f"{op.name}/switch/{trip}", (met, start))
            results = self.call(body, f"{op.name}/body/{trip}/", switched, met)
            self.pass_on(results, changing, f"{op.name}/next/{trip}", ())
            for index in changing:
                values[index] = results[index]
            self._add_barrier(f"{op.name}/done/{trip}", [values[index] for index in changing])
            done.append(f"{op.name}/done/{trip}")
        self.repeating = repeating
        return values

    def pass_on(
        self, values: list[str], indices: Iterable[int], name: str, after: Sequence[str]
    ) -> None:
        """Hands on the same values when the ops of ``after`` are done."""
        for index in indices:
            properties = self.properties_of(values[index])
            identity = OpInfo(op="Identity", inputs=(properties,), outputs=(properties,))
            values[index] = self.add(
                Op(
                    name=f"{name}/{index}",
                    info=identity,
                    inputs=(values[index],),
                    control_inputs=tuple(after),
                )
            )

    def call(self, function: str, under: str, arguments: Sequence[str], start: str) -> list[str]:
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

    def properties_of(self, value: str) -> TensorProperties:
        """Dtype and shape of a value."""
        producer, index = split_tensor(value)
        return self.ops[producer].info.outputs[index]
