"""What buffers are for: weights or optimizer state, activations or gradients.

Nothing in a graph says so.  What the fetched values depend on is the forward pass; what is
computed apart from it, from the inputs, only to update variables is gradients; a variable that
takes no part in the forward pass but in the update of another one is optimizer state.

    x ---> h ---> loss (fetched)            h: activation
      '--> dw ---> update w                 dw: gradient
    m ---------'   (m is not read by loss)  m: optimizer state
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from placer.graph.op_graph import Op, OpGraph
from placer.graph.op_types import REF_VARIABLES
from placer.graph.tensor_names import op_of
from placer.prediction.step.step_layout import find_variables

_APPLY = re.compile("(Resource)?(Sparse)?Apply")
_UPDATE = re.compile("(Resource)?(Sparse)?(Apply|Assign|Scatter|StridedSliceAssign)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The ops whose outputs are ``gradients``, the handles of ``variables``, and those of them
    that are ``optimizer_state``."""

    variables: frozenset[str]
    gradients: frozenset[str] = frozenset()
    optimizer_state: frozenset[str] = frozenset()

    def of_state(self, op: str) -> str:
        """The kind of what ``op`` keeps from step to step."""
        if op in self.optimizer_state:
            return "optimizer_state"
        return "weights" if op in self.variables else "constant"

    def of_buffer(self, op: str, kind: str) -> str:
        """The kind of a buffer that ``op`` wrote in the step."""
        return "gradient" if kind == "activation" and op in self.gradients else kind


@cache
def is_update_type(op_type: str) -> bool:
    """Whether ops of this type write a variable.

    >>> is_update_type("ResourceApplyAdam"), is_update_type("MatMul")
    (True, False)
    """
    return _UPDATE.match(op_type) is not None


def find_roles(graph: OpGraph) -> Roles:
    """The roles of the ops of ``graph``; none where nothing is fetched or nothing is updated."""
    updates = [op for op in graph.ops.values() if is_update_type(op.op_type)]
    variables = frozenset(variable.handle for variable in graph.variables)
    if not updates:
        return Roles(variables=variables)
    forward = _before(map(op_of, graph.fetches), graph)
    forward -= {op.name for op in updates}
    if not forward:
        return Roles(variables=variables)
    variable_of = find_variables(graph) | {
        op.output_name(0): op.name for op in graph.ops.values() if op.op_type in REF_VARIABLES
    }
    backward = _before((op.name for op in updates), graph) - forward
    return Roles(
        variables=variables,
        gradients=frozenset(backward.intersection(_reached(graph.feeds, graph))),
        optimizer_state=frozenset(_optimizer_state(graph, updates, forward, variable_of)),
    )


def _optimizer_state(
    graph: OpGraph,
    updates: Iterable[Op],
    forward: set[str],
    variable_of: Mapping[str, str],
) -> set[str]:
    """Variables that the forward pass does not read, but the update of another variable does."""
    readers: dict[str, list[str]] = {}
    for op in graph.ops.values():
        for tensor in op.inputs:
            if tensor in variable_of:
                readers.setdefault(variable_of[tensor], []).append(op.name)
    slots = {
        variable_of[tensor]
        for op in updates
        if _APPLY.match(op.op_type)
        for tensor in op.inputs[1:]
        if tensor in variable_of
    }
    updated = {op.name: variable_of.get(op.inputs[0], "") for op in updates if op.inputs}
    found = set()
    for variable, names in readers.items():
        if not forward.isdisjoint(names):
            continue
        # what is read of it goes into the update of another one
        behind = _reached((name for name in names if name not in updated), graph)
        if variable in slots or any(updated.get(name, variable) != variable for name in behind):
            found.add(variable)
    return found


def _before(names: Iterable[str], graph: OpGraph) -> set[str]:
    """``names`` and everything whose value they depend on."""
    seen = set(names)
    stack = list(seen)
    while stack:
        for tensor in graph.ops[stack.pop()].inputs:
            producer = tensor.partition(":")[0]  # no call: this is asked of every tensor, twice
            if producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return seen


def _reached(names: Iterable[str], graph: OpGraph) -> Iterator[str]:
    """``names`` and everything that depends on their values, each once."""
    seen = set(names)
    stack = list(seen)
    while stack:
        name = stack.pop()
        yield name
        for tensor in graph.output_names[name]:
            for other in graph.consumers.get(tensor, ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
