"""Which sinks of a graph that names no outputs are results, and which are only left over.

Everything that nobody reads is a sink: the logits of a decoder, and the attention scores that each
layer returns beside.  Left over are, in this order:

1. **gradient**: what lies in a scope of gradients (``gradients/``, ``gradient_tape/``), or hands
   one on;
2. **debug**: summaries, and what prints or checks values;
3. **unfed**: values into which nothing goes that is fed (but its shape may): regularisers,
   constants, sizes, counters;
4. **unreturned**: in the graph of a function of TensorFlow 2, what is not one of its results
   (``Identity``, ``Identity_1``, ...);
5. **further**: results of a loop or branch of which other results are read, handed on and no more;
6. **inside**: a value that the model goes on computing with, or what little is made of such values:
   no matrix product or convolution serves this sink alone, and every computed value that goes into
   it goes into one elsewhere, in the forward pass.

An identity in the outermost scope is a result by its name (but for 1 and 4); where all sinks are
left over and the graph updates nothing, none is.  Left-over sinks run, and are not fetched.

    x ---> scores ---> MatMul ---> logits       logits: a result
             '-------> Identity                 inside: the model goes on with the scores
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from placer.extraction.graph_defs.op_definitions import called_functions
from placer.extraction.graph_defs.protobufs import functions_by_name
from placer.graph.op_types import CONTROL_FLOW, EXITS, PLACEHOLDERS, SWITCHES, VARIABLES
from placer.graph.tensor_names import full_tensor, is_control, op_of, source_of

GRADIENT, DEBUG, UNFED, UNRETURNED, FURTHER, INSIDE = (
    "gradient", "debug", "unfed", "unreturned", "further", "inside",
)  # fmt: skip

_GRADIENT_SCOPE = re.compile(r"(?:^|/)(?:gradients|gradient_tape)(?:_\d+)?/")
_GRADIENT_TYPE = re.compile(r"Grad(?:V\d+)?$|Backprop")
_CONTRACTION = re.compile(r"MatMul|Conv\dD|DepthwiseConv|Einsum|RNN|LSTM|GRU")
_DEBUG_TYPE = re.compile(r"Summary|^Print|^Assert$|^CheckNumerics|^Debug")
_UPDATE = re.compile("(Resource)?(Sparse)?(Apply|Assign|Scatter)")
_RESULT_NAME = re.compile(r"Identity(?:_\d+)?")
_FED = PLACEHOLDERS | {"PlaceholderWithDefault", "IteratorGetNext", "QueueDequeueV2"}
_SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank"})
_HANDING_ON = frozenset({"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "Cast"})
_CONSTANT = VARIABLES | {"Const", "ReadVariableOp"}

_SEVERAL = ""
"""The end of an op that several ends depend on."""


def find_left_over(
    graph_def: Any,
    outputs: Sequence[str],
    targets: Sequence[str],
    origins: Mapping[str, tuple[str, str]],
    call_path: Mapping[str, Sequence[tuple[str, str]]],
) -> dict[str, str]:
    """The reason (see above) by tensor, for those of ``outputs`` that are left over.

    ``graph_def`` is flat, in topological order but for back edges of loops; ``outputs`` are tensors
    and ``targets`` ops of it; ``origins`` and ``call_path`` are those of a
    :class:`~placer.extraction.graph_defs.program.FlatProgram`.
    """
    if len(outputs) + len(targets) < 2:
        return {}
    graph = _Sinks(graph_def, outputs, targets)
    results = {
        op
        for op in map(op_of, outputs)
        if graph.op_types[op] == "Identity" and "/" not in origins[op][1] and len(call_path[op]) < 2
    }
    found = {}
    for tensor in outputs:
        reason = graph.reason(tensor, op_of(tensor) in results)
        if reason:
            found[tensor] = reason
    if len(found) == len(outputs) and not any(map(_UPDATE.match, graph.op_types.values())):
        return {}
    return found


class _Sinks:
    """A flat graph seen from its ends: what is fed into each op, and what depends on it.

    ``end_of`` is the one end (an output's op or a target) that depends on an op, ``_SEVERAL`` if
    there are several; ``goes_on`` the ops of the forward pass on which a contraction depends.
    """

    def __init__(self, graph_def: Any, outputs: Sequence[str], targets: Sequence[str]) -> None:
        nodes = graph_def.node
        self.op_types = {node.name: node.op for node in nodes}
        self.inputs = {node.name: tuple(node.input) for node in nodes}
        self.readers: dict[str, list[str]] = {}
        for node in nodes:
            for name in node.input:
                if not is_control(name):
                    self.readers.setdefault(full_tensor(name), []).append(node.name)
        self.forward = {
            name
            for name, op_type in self.op_types.items()
            if not _GRADIENT_SCOPE.search(name) and not _GRADIENT_TYPE.search(op_type)
        }
        heavy_functions = _contracting_functions(graph_def)
        self.contractions = {
            node.name
            for node in nodes
            if node.name in self.forward
            and (
                _CONTRACTION.search(node.op)
                or (
                    node.op in CONTROL_FLOW
                    and any(f.name in heavy_functions for _, f in called_functions(node))
                )
            )
        }
        self.fed = self._fed()
        self.any_fed = any(op_of(tensor) in self.fed for tensor in outputs)
        self.loop_of = {name: self._loop(name) for name, t in self.op_types.items() if t in EXITS}
        self.end_of, self.goes_on = self._behind([*map(op_of, outputs), *targets])
        self.returns = {
            op_of(tensor) for tensor in outputs if _RESULT_NAME.fullmatch(op_of(tensor))
        }
        if not any("_user_specified_name" in n.attr for n in nodes if n.op in PLACEHOLDERS):
            self.returns = set()

    def _loop(self, leaving: str) -> str:
        """The ``LoopCond`` of the v1 loop that an ``Exit`` leaves."""
        switch = source_of(self.inputs[leaving][0])
        return source_of(self.inputs[switch][1]) if self.op_types[switch] in SWITCHES else ""

    def _fed(self) -> set[str]:
        """The ops into whose values something goes that is fed, other than by its shape."""
        found: set[str] = set()
        size = -1
        while len(found) != size:  # again for loops
            size = len(found)
            for name, op_type in self.op_types.items():
                if op_type in _FED or (
                    op_type not in _SHAPES
                    and any(source_of(source) in found for source in self.inputs[name])
                ):
                    found.add(name)
        return found

    def _behind(self, ends: Sequence[str]) -> tuple[dict[str, str], set[str]]:
        """``end_of`` and ``goes_on``."""
        end_of = {name: name for name in ends}
        goes_on: set[str] = set()
        changed = True
        while changed:  # again for loops
            changed = False
            seen: set[str] = set()
            for name in reversed(self.op_types):
                seen.add(name)
                if name in self.contractions:
                    goes_on.add(name)
                mine, spreads = end_of.get(name), name in goes_on and name in self.forward
                for reference in self.inputs[name]:
                    source = source_of(reference)
                    known = end_of.get(source), source in goes_on
                    if mine is not None and end_of.setdefault(source, mine) != mine:
                        end_of[source] = _SEVERAL
                    if spreads and source in self.forward and not is_control(reference):
                        goes_on.add(source)
                    if source in seen and known != (end_of.get(source), source in goes_on):
                        changed = True
        return end_of, goes_on

    def reason(self, tensor: str, named: bool) -> str:
        """Why ``tensor`` is left over, ``""`` if it is a result; ``named`` says so by its name."""
        op = op_of(tensor)
        if _GRADIENT_SCOPE.search(op):
            return GRADIENT
        if self.returns and op not in self.returns:
            return UNRETURNED
        if named:
            return ""
        if _DEBUG_TYPE.search(self.op_types[op]):
            return DEBUG
        if self.any_fed and (op not in self.fed or self.op_types[op] in _FED):
            return UNFED
        own, arriving = self._own(tensor)
        if not own.isdisjoint(self.contractions):
            return ""
        hands_on = arriving and all(self.op_types[name] in _HANDING_ON for name in own)
        if hands_on and all(_GRADIENT_SCOPE.search(source) for source in arriving):
            return GRADIENT
        if hands_on and all(self._is_further(source) for source in arriving):
            return FURTHER
        if arriving and all(self._is_read_inside(source, op) for source in arriving):
            return INSIDE
        return ""

    def _own(self, tensor: str) -> tuple[set[str], set[str]]:
        """The ops that serve only the end ``tensor``, and the computed tensors that go into
        them: ``tensor`` itself if it serves others too.  What a v1 loop gives is computed in it."""
        end = op_of(tensor)
        serves_others = any(self.end_of[r] != end for r in self.readers.get(tensor, ()))
        if self.end_of[end] != end or serves_others or end in self.loop_of:
            return set(), {tensor}
        own, arriving, stack = {end}, set(), [end]
        while stack:
            for reference in self.inputs[stack.pop()]:
                source = source_of(reference)
                if self.end_of[source] == end and source not in self.loop_of:
                    stack.extend({source} - own)
                    own.add(source)
                elif not is_control(reference) and self.op_types[source] not in _CONSTANT:
                    arriving.add(full_tensor(reference))
        return own, arriving

    def _is_further(self, tensor: str) -> bool:
        """Whether it is a result of a loop or branch of which another result is read elsewhere."""
        op = op_of(tensor)
        if op in self.loop_of:
            siblings = (s for s, loop in self.loop_of.items() if loop == self.loop_of[op] != "")
            return any(self.readers.get(f"{name}:0") for name in siblings if name != op)
        return self.op_types[op] in CONTROL_FLOW and self.end_of[op] == _SEVERAL

    def _is_read_inside(self, tensor: str, end: str) -> bool:
        """Whether the model goes on with ``tensor``, besides what serves ``end`` alone."""
        readers = self.readers.get(tensor, ())
        return any(
            reader in self.goes_on and reader in self.forward and self.end_of[reader] != end
            for reader in readers
        )


def _contracting_functions(graph_def: Any) -> frozenset[str]:
    """The functions of the library that contract, themselves or in what they call."""
    library = functions_by_name(graph_def)
    calls = {
        name: {f.name for node in function.node_def for _, f in called_functions(node)}
        for name, function in library.items()
    }
    found = {
        name
        for name, function in library.items()
        if any(_CONTRACTION.search(node.op) for node in function.node_def)
    }
    size = -1
    while len(found) != size:
        size = len(found)
        found |= {name for name, called in calls.items() if not called.isdisjoint(found)}
    return frozenset(found)
