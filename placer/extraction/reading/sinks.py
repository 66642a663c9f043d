"""The ops that a graph runs by default: its training step, else its sinks but those of initialisers
and savers; and which of them it only runs."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from placer.extraction.graph_defs.call_scopes import name_nodes
from placer.extraction.graph_defs.node_checks import check_nodes, check_references
from placer.extraction.graph_defs.op_definitions import (
    OpDefinitions,
    argument_length,
    called_function,
)
from placer.extraction.graph_defs.protobufs import NodeDef
from placer.extraction.graph_defs.tensor_types import output_types
from placer.extraction.graph_defs.v1_control_flow import NOWHERE, find_contexts
from placer.graph.op_types import (
    ASSIGNS,
    ENTERS,
    HANDLES,
    ITERATOR_INITIALISERS,
    PLACEHOLDERS,
    READ_VARIABLE,
    SAVERS,
    SWITCHES,
    TABLE_INITIALISERS,
    VARIABLES,
)
from placer.graph.order import order_by_sources
from placer.graph.passes.differentiation import MAYBE_FORWARD, differentiated, is_gradient_type
from placer.graph.tensor_names import op_of, source_of
from placer.graph.walks import grouped, reached

_SAVER, _FED_OR_STATE, _COMPUTED = 1, 2, 4
"""Flags of the ops above one: a saver; what is fed or changes; anything but a variable."""

_STATUS = frozenset({"IsVariableInitialized", "VarIsInitializedOp", READ_VARIABLE})
_FED_FROM_OUTSIDE = PLACEHOLDERS | {"PlaceholderWithDefault"}
_PLAIN = VARIABLES | {"Identity", "Const", READ_VARIABLE}
_FED = _FED_FROM_OUTSIDE | VARIABLES | {READ_VARIABLE, "IteratorGetNext"}

_ASSIGN_SCOPE = re.compile(r"(?:.*/)?Assign(?:Add|Sub|MovingAvg)?(?:_\d+)?(?:/.*)?")


def _kind(op_type: str) -> int:
    """The bits of one op type."""
    found = 0 if op_type in _PLAIN else _COMPUTED
    if op_type in SAVERS:
        found |= _SAVER
    if op_type in _FED:
        found |= _FED_OR_STATE
    return found


def references_of(nodes: Mapping[str, NodeDef]) -> dict[str, Sequence[str]]:
    """Returns the ops that every node reads and waits for."""
    return {name: tuple(node.input) for name, node in nodes.items()}


class Dependencies:
    """The nodes of a graph, and what each depends on, by their references alone; raises
    :class:`ModelError` for a cycle.

    ``references`` are the inputs of the nodes, if they are known.
    ``above`` has the bits of an op and of everything it depends on, loops included.  ``saving`` are
    the functions that save or restore: calls of them are savers.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeDef],
        saving: Collection[str] = (),
        references: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.nodes = nodes
        self.saving = saving
        self.op_types = {name: node.op for name, node in nodes.items()}
        self.present = frozenset(self.op_types.values())
        self.inputs = {
            name: [source if source in nodes else source_of(source) for source in read]
            for name, read in (references or references_of(nodes)).items()
        }
        self.order = order_by_sources(self.op_types, self.inputs)

    @cached_property
    def above(self) -> Mapping[str, int]:
        """See the class."""
        kinds = {op_type: _kind(op_type) for op_type in self.present}
        found = {name: kinds[op_type] for name, op_type in self.op_types.items()}
        for name, node in self.nodes.items() if self.saving else ():
            found[name] |= _SAVER * (called_function(node) in self.saving)
        while self._spread(found):
            pass
        return found

    def _spread(self, found: dict[str, int]) -> bool:
        """One pass; whether it changed anything that an op before its input must learn (loops)."""
        seen: set[str] = set()
        is_late = False
        for name in self.order:
            bits, sources = found[name], self.inputs[name]
            for source in sources:
                bits |= found.get(source, 0)
            if bits != found[name] and name in seen:
                is_late = True
            found[name] = bits
            seen.update(sources)
        return is_late

    def sinks(self) -> list[str]:
        """The ops that nobody reads or waits for."""
        read = {source for sources in self.inputs.values() for source in sources}
        return [name for name in self.nodes if name not in read]

    def is_initialiser(self, name: str) -> bool:
        """Whether an op only sets or inspects state, from values that nothing is fed into."""
        if name not in self.nodes:
            return False
        op = self.nodes[name].op
        if op in TABLE_INITIALISERS or op in ITERATOR_INITIALISERS or op in _STATUS:
            return True
        if op in ASSIGNS:
            bits = self.above.get(self.inputs[name][1], _FED_OR_STATE)
            return bool(bits & _SAVER) or not bits & _FED_OR_STATE
        if op == "NoOp" and self.inputs[name]:
            return all(self.is_initialiser(source) for source in self.inputs[name])
        return False

    def is_plumbing(self, name: str) -> bool:
        """Whether a sink belongs to a saver or an initialiser, or is state that nobody reads."""
        op = self.nodes[name].op
        if op in VARIABLES or op == "Const" or self.is_initialiser(name):
            return True
        if (self.saving or not self.present.isdisjoint(SAVERS)) and self.above[name] & _SAVER:
            return True
        return op == "Identity" and not self.above[name] & _COMPUTED


def state_ops(graph: Dependencies) -> list[str]:
    """The sinks of a graph that set, save or restore its state."""
    saves = bool(graph.saving) or not graph.present.isdisjoint(SAVERS)
    return [
        name
        for name in graph.sinks()
        if graph.is_initialiser(name) or (saves and graph.above[name] & _SAVER)
    ]


def default_ends(
    graph: Dependencies, definitions: OpDefinitions
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The (key, tensor) outputs and the target ops of a graph that names none.

    They are its sinks, without those of a saver or an initialiser and without placeholders, which
    compute nothing.  A sink that changes state or has no value is a target, all values of any
    other are outputs; handles and variants, a value inside a v1 loop, or in one branch of a v1
    conditional, cannot be fetched and are none.
    """
    looked_into = ASSIGNS | SWITCHES
    if not graph.present.isdisjoint(looked_into):
        check_nodes((n for n in graph.nodes.values() if n.op in looked_into), definitions)
    sinks = graph.sinks()
    sinks = [name for name in sinks if graph.op_types[name] not in _FED_FROM_OUTSIDE] or sinks
    chosen = [name for name in sinks if not graph.is_plumbing(name)] or sinks
    if not graph.present.isdisjoint(ENTERS | SWITCHES):
        contexts = find_contexts(graph.nodes[name] for name in graph.order)
        chosen = [name for name in chosen if contexts[name] == NOWHERE] or chosen
    outputs, targets = [], []
    for name in chosen:
        types = output_types(graph.nodes[name], definitions)
        if types is None:  # an op type that nobody knows
            outputs.append((name, f"{name}:0"))
            continue
        values = [index for index, found in enumerate(types) if found.dtype not in HANDLES]
        if not values or any(found.is_ref for found in types):
            targets.append(name)
        elif len(types) == 1:
            outputs.append((name, f"{name}:0"))
        else:
            outputs.extend((f"{name}:{index}",) * 2 for index in values)
    return tuple(outputs), tuple(targets)


def left_over_sinks(
    outputs: Sequence[str], targets: Sequence[str], op_types: Mapping[str, str]
) -> dict[str, str]:
    """The reason by tensor, for those of ``outputs`` that run and are not fetched: gradients,
    summaries and assigns, by the name or the type of their op.

    In a graph of nothing else all are fetched: it is there for them.
    """
    reasons = {tensor: _reason(op_of(tensor), op_types[op_of(tensor)]) for tensor in outputs}
    found = {tensor: reason for tensor, reason in reasons.items() if reason}
    return found if targets or len(found) < len(outputs) else {}


def _reason(name: str, op_type: str) -> str:
    """Why a sink runs and is not fetched, ``""`` if it is fetched."""
    if differentiated(name)[0] is not None:
        return "gradient"
    if is_gradient_type(op_type) and op_type not in MAYBE_FORWARD:
        return "gradient"
    if "Summary" in op_type:
        return "summary"
    return "assign" if _ASSIGN_SCOPE.fullmatch(name) else ""


def saving_functions(library: Any) -> frozenset[str]:
    """The functions of a library that save or restore, themselves or in what they call."""
    own = [f.signature.name for f in library.function if any(n.op in SAVERS for n in f.node_def)]
    callers = grouped(
        (called_function(node), f.signature.name)
        for f in (library.function if own else ())
        for node in f.node_def
    )
    return frozenset(reached(own, lambda name: callers.get(name, ())))


def training_step(meta_graph: Any) -> tuple[str, ...]:
    """The ops (``^name``) and tensors of one training step; none without a ``train_op``.

    TensorFlow 1 keeps what its optimizers return in a collection ``train_op``, and what they
    minimise in ``losses`` (``tf.compat.v1.GraphKeys``).  Losses that cannot be fetched are left
    out.
    """
    nodes = name_nodes(meta_graph.graph_def.node)
    steps = [name for name in _collection(meta_graph, "train_op") if name in nodes]
    if not steps:
        return ()
    references = references_of(nodes)
    check_references(nodes, references)
    graph = Dependencies(nodes, references=references)
    contexts = find_contexts(nodes[name] for name in graph.order)
    losses = _collection(meta_graph, "losses")
    fetched = [name for name in losses if name in nodes and contexts[name] == NOWHERE]
    return (*(f"^{name}" for name in steps), *fetched)


def _collection(meta_graph: Any, collection: str) -> list[str]:
    """The ops in a collection; a loss is the only output of its op."""
    if collection not in meta_graph.collection_def:
        return []
    names = meta_graph.collection_def[collection].node_list.value
    return list(dict.fromkeys(op_of(name) for name in names))


def output_count(node: Any, definitions: OpDefinitions) -> int:
    """How many outputs an op has; 1 for an op type that nobody knows."""
    definition = definitions.find(node.op)
    if definition is None:
        return 1
    return sum(argument_length(argument, node.attr) for argument in definition.output_arg)
