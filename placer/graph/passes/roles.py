"""The roles of buffers: weights, optimizer state or metrics; activations or gradients.

Nothing in a graph says so; what its ops do does.  Automatic differentiation gives its ops types and
names of their own.  What these depend on is the forward pass, and a variable that it reads is a
weight; what depends on them is gradients.  A variable that the updates of weights need, or that
only follows weights, gradients or the number of steps, is optimizer state; one that only adds up
what the forward pass gives is a metric.

    x, w ---> h ---> dw ---> update w        h: activation        w: weight
              |      m --'-> update m        dw: gradient         m: optimizer state
              '----> total + h (fetched)                          total: metric

A program whose gradients are written out by hand has no such ops.  There the forward pass is what
the fetched values depend on, through variables too: a metric is fetched after its update.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from placer.graph.buffer_sharing import find_variables
from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import BRANCHES, HANDLES, MERGES, REF_VARIABLES
from placer.graph.passes.differentiation import (
    MAYBE_FORWARD,
    is_gradient_name,
    is_gradient_type,
    is_update_type,
)
from placer.graph.tensor_names import op_of

_APPLY = re.compile("(Resource)?(Sparse)?Apply")
_ADDS = re.compile("(Resource)?(Assign|Scatter|ScatterNd)Add")
_SUMS = frozenset({"Add", "AddV2"})
_SHAPES_ONLY = frozenset({"VarIsInitializedOp", "VariableShape", "IsVariableInitialized"})
_CONSTANTS = frozenset({"Const", "NoOp"})
_WAITS = MERGES | {"NoOp", "Identity"}


UNUSED = "unused"
UNUSED_VARIABLES = "(loaded and not used)"
"""The kind of what is loaded although no op uses it, and the name of all of it together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The ops whose outputs are ``gradients``, the handles of ``variables``, and those of them
    that are ``optimizer_state`` or ``metrics``."""

    variables: frozenset[str]
    gradients: frozenset[str] = frozenset()
    optimizer_state: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()

    def of_state(self, op: str) -> str:
        """The kind of what ``op`` keeps from step to step."""
        if op in self.optimizer_state:
            return "optimizer_state"
        if op in self.metrics:
            return "metrics"
        return "weights" if op in self.variables else "constant"

    def of_buffer(self, op: str, kind: str) -> str:
        """The kind of a buffer that ``op`` wrote in the step; the value that an update replaced,
        while it is still read, is one like any other."""
        kind = "activation" if kind == "weights" else kind
        return "gradient" if kind == "activation" and op in self.gradients else kind


def find_roles(graph: OpGraph) -> Roles:
    """The roles of the ops of ``graph``; all variables are weights where nothing is updated, or
    where neither gradients nor fetched values tell what is the forward pass."""
    accesses = _Accesses(graph)
    plain = Roles(variables=frozenset(accesses.name_of))
    if not accesses.written:
        return plain
    updates = accesses.written.keys()
    differentiated = _gradients(graph)
    # the forward pass, and what is computed from gradients
    forward = ops_before(differentiated, graph) if differentiated else accesses.before_fetches()
    if not forward:
        return plain
    if differentiated:
        behind = set(ops_behind(differentiated, graph))
    else:
        forward -= updates
        behind = ops_before(updates, graph) - forward
        behind.intersection_update(ops_behind(graph.feeds, graph))
    # the variables, by who reads and who updates them
    state = _State(accesses, forward, behind if differentiated else set())
    metrics = {v for v in accesses.updaters if state.is_metric(v)}
    optimizer_state = {v for v in accesses.names - metrics if state.is_optimizer_state(v)}
    readers = (name for v in optimizer_state for name in accesses.readers.get(v, ()))
    behind.update(set(ops_behind(readers, graph)) - forward)
    return Roles(
        variables=frozenset(accesses.name_of),
        gradients=frozenset(behind - updates),
        optimizer_state=accesses.handles(optimizer_state),
        metrics=accesses.handles(metrics),
    )


def _gradients(graph: OpGraph) -> set[str]:
    """The ops that compute gradients: by name where automatic differentiation gave some, and by
    type; a transposed convolution of the forward pass has the type of a gradient.  What is added
    to a forward loop, lists and stacks that keep values for the backward one, does not."""
    ops = [op for op in graph.ops.values() if op.inputs]
    named = {op.name for op in ops if is_gradient_name(op.name)}
    typed = (
        op
        for op in ops
        if is_gradient_type(op.op_type) and not (named and op.op_type in MAYBE_FORWARD)
    )
    return {
        name
        for name in (*named, *(op.name for op in typed))
        if all(output.dtype not in HANDLES for output in graph.ops[name].info.outputs)
    }


class _Accesses:
    """Who reads and who updates the variables of a graph, by the names of these.

    ``written`` are the variables that an update writes; ``sizes`` their elements, if known.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.name_of = {variable.handle: variable.name for variable in graph.variables}
        self.names = frozenset(self.name_of.values())
        self.variable_of = _variable_tensors(graph, self.name_of)
        self.readers: dict[str, list[str]] = {}
        self.written: dict[str, list[str]] = {}
        self.updaters: dict[str, list[str]] = {}
        for op in graph.ops.values():
            if op.inputs and not self.variable_of.keys().isdisjoint(op.inputs):
                self._add(op)

    def _add(self, op: Op) -> None:
        """Notes what ``op`` does; one that only hands a handle on does nothing."""
        if op.op_type in _SHAPES_ONLY or (not op.bodies and op.output_name(0) in self.variable_of):
            return
        found = [self.variable_of.get(tensor) for tensor in op.inputs]
        if is_update_type(op.op_type):
            written = found if _APPLY.match(op.op_type) else found[:1]
            read = found[1:]
        else:
            written = [found[index] for index in _written_inputs(op, self.graph)]
            read = found
        for name in filter(None, written):
            self.written.setdefault(op.name, []).append(name)
            self.updaters.setdefault(name, []).append(op.name)
        for name in filter(None, read):
            self.readers.setdefault(name, []).append(op.name)

    def handles(self, names: set[str]) -> frozenset[str]:
        """All handles of the variables called ``names``."""
        return frozenset(handle for handle, name in self.name_of.items() if name in names)

    def before_fetches(self) -> set[str]:
        """The ops that fetched values depend on, updates of the variables that they read
        included."""
        seen: set[str] = set()
        reads = {name: v for v, names in self.readers.items() for name in names}
        pending = [*map(op_of, self.graph.fetches)]
        while pending:
            new = ops_before(pending, self.graph, seen) - seen
            seen |= new
            pending = [
                update
                for name in new.intersection(reads)
                for update in self.updates_before(name, reads[name])
            ]
        return seen

    def updates_before(self, read: str, variable: str) -> list[str]:
        """The updates of ``variable`` that the op ``read`` waits for."""
        found, seen = [], {read}
        stack = list(self.graph.ops[read].control_inputs)
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            op = self.graph.ops[name]
            if variable in self.written.get(name, ()):
                found.append(name)
            elif op.op_type in _WAITS:
                stack.extend((*op.producers, *op.control_inputs))
        return found


def _variable_tensors(graph: OpGraph, name_of: Mapping[str, str]) -> dict[str, str]:
    """The variable behind every handle and reference, by tensor."""
    references = {
        op.output_name(0): op.name for op in graph.ops.values() if op.op_type in REF_VARIABLES
    }
    handles = graph.ask_once(find_variables) | references
    return {tensor: name_of[op] for tensor, op in handles.items() if op in name_of}


def _written_inputs(op: Op, graph: OpGraph) -> set[int]:
    """The numbers of the inputs of a loop or branch that its bodies update."""
    found = set()
    first = int(op.op_type in BRANCHES)
    for name in (name for names in op.bodies.values() for name in names):
        body = graph.functions[name]
        variable_of = body.ask_once(find_variables)
        for inner in body.ops.values():
            if is_update_type(inner.op_type):
                written = {0}
            else:
                written = _written_inputs(inner, graph) if inner.bodies else set()
            handles = {variable_of.get(inner.inputs[index], "") for index in written}
            found |= {first + body.feeds.index(h) for h in handles if h in body.feeds}
    return found


class _State:
    """The role of every variable; ``driven`` are the ops that depend on gradients, where those are
    known apart from the rest."""

    def __init__(self, accesses: _Accesses, forward: set[str], driven: set[str]) -> None:
        graph = accesses.graph
        self.accesses = accesses
        self.graph = graph
        self.forward = forward
        self.driven = driven
        self.scalars = {variable.name for variable in graph.variables if variable.shape == ()}
        sources = (
            op.name
            for op in graph.ops.values()
            if not op.inputs and op.op_type not in _CONSTANTS and op.name not in accesses.name_of
        )
        self.computed = set(ops_behind((*graph.feeds, *sources), graph))
        self.fetched = ops_before(map(op_of, graph.fetches), graph)
        self.weights = {
            v for v in accesses.names if not forward.isdisjoint(accesses.readers.get(v, ()))
        }
        self.trained = {
            v for v in accesses.updaters if v in self.weights or self._follows(v, driven)
        }

    def is_metric(self, variable: str) -> bool:
        """Whether it only adds up something that is no gradient, for whoever fetches it."""
        accesses = self.accesses
        own = set(accesses.updaters[variable])
        if self._follows(variable, self.driven) or not all(self._adds(u, variable) for u in own):
            return False
        readers = accesses.readers.get(variable, ())
        later = {name for name in readers if accesses.updates_before(name, variable)}
        if later.isdisjoint(self.fetched) and not self._follows(variable, self.computed):
            return False
        before = [name for name in readers if name not in later]
        behind = set(ops_behind(before, self.graph))
        return behind.isdisjoint(map(op_of, self.graph.fetches)) and all(
            accesses.written[name] == [variable] for name in behind.intersection(accesses.written)
        )

    def is_optimizer_state(self, variable: str) -> bool:
        """Whether updates of weights need it, or it only follows weights, gradients or steps."""
        accesses = self.accesses
        readers = accesses.readers.get(variable, ())
        if variable in self.weights:  # a number that scales the loss divides all gradients too
            apart = [name for name in readers if name not in self.forward]
            return variable in self.scalars and self._reaches(apart, self.trained - self.scalars)
        if self._reaches(readers, self.trained, but=variable):
            return True
        if not self.driven or variable not in accesses.updaters:
            return False
        return self._follows(variable, self.driven) or not self._follows(variable, self.computed)

    def _follows(self, variable: str, ops: set[str]) -> bool:
        """Whether a new value of ``variable`` is computed from ``ops``."""
        return any(
            op_of(tensor) in ops
            for name in self.accesses.updaters[variable]
            for tensor in self.graph.ops[name].inputs[1:]
        )

    def _adds(self, update: str, variable: str) -> bool:
        """Whether an update adds something to the value that the variable has."""
        op = self.graph.ops[update]
        if _ADDS.match(op.op_type):
            return True
        if len(op.inputs) < 2:
            return False
        value = self.graph.ops[op_of(op.inputs[1])]
        readers = self.accesses.readers.get(variable, ())
        return value.op_type in _SUMS and any(name in readers for name in value.producers)

    def _reaches(self, readers: Iterable[str], variables: set[str], but: str = "") -> bool:
        """Whether what is read by ``readers`` goes into an update of another of ``variables``."""
        written = self.accesses.written
        return any(
            variable in variables and variable != but
            for name in ops_behind(readers, self.graph)
            for variable in written.get(name, ())
        )


def ops_before(names: Iterable[str], graph: OpGraph, known: Iterable[str] = ()) -> set[str]:
    """``names`` and everything whose value they depend on, ``known`` looked at no further."""
    seen = set(names)
    stack = list(seen)
    seen.update(known)
    while stack:
        for tensor in graph.ops[stack.pop()].inputs:
            producer = tensor.partition(":")[0]  # no call: this is asked of every tensor, twice
            if producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return seen


def ops_behind(names: Iterable[str], graph: OpGraph) -> Iterator[str]:
    """``names`` and everything that depends on their values, each once."""
    seen = set(names)
    stack = list(seen)
    outputs, consumers = graph.output_names, graph.consumers
    while stack:
        name = stack.pop()
        yield name
        for tensor in outputs[name]:
            for other in consumers.get(tensor, ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
