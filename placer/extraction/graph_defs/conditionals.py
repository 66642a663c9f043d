"""``If`` ops as TensorFlow runs them: a ``Switch`` for each input, a ``Merge`` for each output.

TensorFlow lowers an ``If`` with ``_lower_using_switch_merge`` before it places the graph, so that
the ops of its branches may run anywhere::

    pred, x --> switch --true---> then (a call, inlined) --> merge --> whoever reads the output
                   '----false---> else (a call, inlined) ------^
    pred --> switch_pred --> pivot_t, pivot_f --> executed --> whoever waits for the If
                                '..then, else wait'  ^..then, else.

A branch that is not taken passes dead tensors on, and ``executed`` runs after either.  This mirrors
``core/common_runtime/lower_if_op.cc``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from placer.extraction.graph_defs.op_definitions import attribute
from placer.graph.name_scopes import free_name
from placer.graph.tensor_names import CONTROL, data_inputs, is_control

LOWERED = "_lower_using_switch_merge"
"""Set by ``tf.cond``: TensorFlow runs the op as ``Switch`` and ``Merge``."""

RESULTS = "_placer_conditional"
"""Marks the op that stands for an ``If`` that was lowered, under its name: its inputs are the
results, its control input is what waits for either branch.  ``True`` if a branch changes state."""

BRANCH = "_placer_branch"
"""Marks the call of a branch with the name of what waits for either branch."""


def lower_conditionals(nodes: Iterable[Any]) -> list[Any]:
    """``nodes`` (of a graph or a function) with every ``If`` that asks for it lowered."""
    nodes = list(nodes)
    if not any(map(_is_lowered, nodes)):
        return nodes
    taken = {node.name for node in nodes}
    lowered: list[Any] = []
    for node in nodes:
        lowered.extend(_lower(node, taken) if _is_lowered(node) else (node,))
    return lowered


def _is_lowered(node: Any) -> bool:
    return node.op in ("If", "StatelessIf") and attribute(node.attr, LOWERED).b


def _lower(conditional: Any, taken: set[str]) -> Iterator[Any]:
    """The ops of one ``If``; the last one is marked and bears its name."""
    from tensorflow.core.framework import node_def_pb2

    def make(role: str, op: str, inputs: Iterable[str], **types: Iterable[int]) -> Any:
        taken.add(name := free_name(f"{conditional.name}/{role}", taken))
        node = node_def_pb2.NodeDef(name=name, op=op, input=inputs, device=conditional.device)
        for key, value in types.items():
            node.attr[key].list.type.extend(value)
        return node

    def make_plain(role: str, op: str, inputs: Iterable[str], dtype: int) -> Any:
        node = make(role, op, inputs)
        node.attr["T"].type = dtype
        if op == "Merge":
            node.attr["N"].i = 2
        return node

    input_types, output_types = (conditional.attr[key].list.type for key in ("Tin", "Tout"))
    bool_type = conditional.attr["Tcond"].type
    predicate, *arguments = data_inputs(conditional.input)
    # the predicate, and what runs where it is true or false
    both = [predicate, predicate, *filter(is_control, conditional.input)]
    switch = make_plain("switch_pred", "Switch", both, bool_type)
    pivots = [
        make_plain(f"pivot_{key}", "Identity", [f"{switch.name}:{number}"], bool_type)
        for number, key in enumerate("ft")
    ]
    yield from (switch, *pivots)
    # the inputs, each on the device of what gives it
    switches = [
        make_plain(f"switch_{number}", "Switch", [argument, predicate], dtype)
        for number, (argument, dtype) in enumerate(zip(arguments, input_types, strict=True))
    ]
    for node in switches:
        node.device = ""
    yield from switches
    # the branches
    executed = free_name(f"{conditional.name}/executed", taken)
    calls = []
    for number, key in enumerate(("else", "then")):
        inputs = [*(f"{node.name}:{number}" for node in switches), f"^{pivots[number].name}"]
        call = make(key, "StatefulPartitionedCall", inputs, Tin=input_types, Tout=output_types)
        call.attr["f"].CopyFrom(conditional.attr[f"{key}_branch"])
        call.attr[BRANCH].s = executed.encode()
        calls.append(call)
    yield from calls
    # the results, and what waits for either branch
    merges = [
        make_plain(f"merge_{number}", "Merge", [f"{c.name}:{number}" for c in calls[::-1]], dtype)
        for number, dtype in enumerate(output_types)
    ]
    inputs = [p.name for p in pivots[::-1]] + [CONTROL + call.name for call in calls]
    merges.append(make_plain("executed", "Merge", inputs, bool_type))
    yield from merges
    results = [f"{node.name}:0" for node in merges[:-1]]
    marked = make("results", "IdentityN", [*results, f"^{executed}"], T=output_types)
    marked.name = conditional.name
    marked.attr[RESULTS].b = conditional.op == "If"
    yield marked
