"""A flat GraphDef with the planned device on every op."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_models.device_names import full_name
from placer.application.devices.device_mapping import placed_on
from placer.application.placing.class_hints import release_hints
from placer.application.placing.control_flow_placement import BodyPlacer, input_anchors
from placer.errors import UsageError, some
from placer.extraction.graph_defs.added_control import add_control, added_control
from placer.extraction.graph_defs.fingerprint import with_fingerprint
from placer.extraction.graph_defs.flat_nodes import NO_CONTENTS
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import (
    all_nodes,
    copied,
    file_content,
    functions_by_name,
    without_nodes,
)
from placer.extraction.graph_defs.rewritten_nodes import rewrite_nodes
from placer.files import replaced
from placer.graph.op_types import CONTROL_FLOW
from placer.graph.passes.differentiation import is_update_type
from placer.graph.rewriting import Rewriting
from placer.graph.tensor_names import data_inputs, op_of
from placer.graph.walks import grouped


def full_devices(program: FlatProgram, placement: Mapping[str, str]) -> dict[str, str]:
    """The full device string of every op of ``program``.

    Raises :class:`UsageError` if the placement leaves ops out.
    """
    missing = [node.name for node in program.graph_def.node if node.name not in placement]
    if missing:
        raise UsageError(
            f"the placement lacks {len(missing):,} of the "
            f"{len(program.graph_def.node):,} ops of the model, such as "
            f"{some(missing)}; was it made for another model or signature?"
        )
    return {node.name: full_name(placement[node.name]) for node in program.graph_def.node}


def rewritten_as_planned(program: FlatProgram, plan: Any, advice: str = "") -> FlatProgram:
    """``program`` as ``plan`` rewrites it, with its control edges.

    Of a graph that was built under the plan's device function, the ops that stand for devices are
    left out.  Raises :class:`UsageError`, which ends with the ``advice``, unless ``plan`` was made
    for ``program`` and places it.
    """
    if plan.placement and plan.model.get("fingerprint", "") != program.fingerprint:
        program = without_device_groups(program, plan.placement)
    check_fingerprint(program, plan, advice)
    return with_control_edges(rewrite_program(program, plan.rewriting), plan.control_edges)


def without_groups(graph_def: Any, groups: Collection[str]) -> Any:
    """A GraphDef without the ``NoOp`` ops ``groups``: who waits for one waits for what it waits
    for."""
    inputs = {node.name: node.input for node in graph_def.node if node.name in groups}

    def waited(reference: str) -> Iterator[str]:
        name = reference.removeprefix("^")
        if name not in inputs:
            yield reference
            return
        for inner in inputs[name]:
            yield from waited(inner)

    found = without_nodes(graph_def)
    for node in graph_def.node:
        if node.name not in inputs:
            kept = found.node.add()
            kept.CopyFrom(node)
            data = data_inputs(node.input)
            if len(data) < len(node.input):
                waits = (name for text in node.input[len(data) :] for name in waited(text))
                kept.input[:] = [*data, *dict.fromkeys(waits)]
    return found


def without_device_groups(program: FlatProgram, placement: Mapping[str, str]) -> FlatProgram:
    """``program`` without the ``NoOp`` ops that ``placement`` does not know: who waits for one
    waits for what it waits for.

    ``tf.group`` makes one for every device on which its ops are, none where that is one device.
    """
    groups = {
        node.name: node
        for node in program.graph_def.node
        if node.op == "NoOp" and node.name not in placement
    }
    if not groups or not groups.keys().isdisjoint(program.targets):
        return program
    found = replace(
        program,
        graph_def=without_groups(program.graph_def, groups),
        contents=NO_CONTENTS,
        origins={name: o for name, o in program.origins.items() if name not in groups},
        call_path={name: p for name, p in program.call_path.items() if name not in groups},
    )
    return with_fingerprint(found)


def rewritten_alike(whole: FlatProgram, program: FlatProgram) -> FlatProgram:
    """``whole``, of which ``program`` is a part, rewritten as that is, with its control edges."""
    edges = [(before, n.name) for n in program.graph_def.node for before in added_control(n)]
    return with_control_edges(rewrite_program(whole, program.rewriting), edges)


def rewrite_program(program: FlatProgram, rewriting: Rewriting) -> FlatProgram:
    """``program`` rewritten; itself if it is so already.

    Raises :class:`UsageError` as :func:`placer.extraction.graph_defs.rewritten_nodes.rewrite_nodes`
    does, and for a program that is divided.
    """
    if program.rewriting == rewriting:
        return program
    if program.division is not None:
        raise UsageError(
            "the plan rewrites a step whose batch is divided, which is not supported: make it "
            "without --fit or without --strategy"
        )
    graph_def, added = without_nodes(program.graph_def), rewriting.sources
    ends = (*program.output_ops, *program.targets)
    nodes = rewrite_nodes(program.graph_def.node, rewriting, ends, program.definitions)
    graph_def.node.extend(nodes)
    names = {node.name: added.get(node.name, node.name) for node in graph_def.node}
    return replace(
        program,
        graph_def=graph_def,
        contents=NO_CONTENTS,
        origins={name: program.origins[source] for name, source in names.items()},
        call_path={name: program.call_path[source] for name, source in names.items()},
        rewriting=rewriting,
        original=program,
    )


def with_control_edges(program: FlatProgram, edges: Iterable[Sequence[str]]) -> FlatProgram:
    """``program`` with control ``edges``, each from an op to one that waits for it.

    Raises :class:`UsageError` for an op that it lacks.
    """
    added = grouped((after, before) for before, after in edges)
    if not added:
        return program
    graph_def = copied(program.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    for after, names in added.items():
        for name in (after, *names):
            if name not in nodes:
                raise UsageError(
                    f"the plan has a control edge of {name}, which is not among the "
                    f"{len(nodes):,} ops of the model: make the plan again"
                )
        add_control(nodes[after], names)
    return replace(program, graph_def=graph_def, contents=NO_CONTENTS)


def check_fingerprint(program: FlatProgram, plan: Any, advice: str = "") -> None:
    """Raises :class:`UsageError` unless ``plan`` was made for ``program`` and places it,
    :class:`InfeasibleError` if it says that nothing fits."""
    placed_on(plan)
    if plan.model.get("fingerprint", "") != program.fingerprint:
        raise UsageError(
            f"the plan was made for another program: {describe_mismatch(program, plan, advice)}"
        )
    given = program.original if program.rewriting else program
    plan.check_ops([node.name for node in (given or program).graph_def.node])


def place_graph_def(program: FlatProgram, placement: Mapping[str, str]) -> Any:
    """The flat GraphDef of ``program`` with the full device name on every op.

    Bodies of control flow are cloned for each device they run on.  Colocation hints that tie ops
    on different devices are left out.  Raises :class:`UsageError` if the placement leaves ops out.
    """
    bodies = BodyPlacer(functions_by_name(program.graph_def), set())
    devices = full_devices(program, placement)
    placed = without_nodes(program.graph_def)
    placed.node.extend(placed_nodes(program, devices, bodies, program.definitions))
    placed.library.function.extend(bodies.clones)
    prune_library(placed)
    release_hints(placed)
    return placed


def placed_nodes(
    program: FlatProgram,
    devices: Mapping[str, str],
    bodies: BodyPlacer,
    definitions: OpDefinitions,
) -> Iterator[Any]:
    """Copies of the flat nodes with their devices, input anchors before the ops that need them.

    Control flow calls placed clones of its bodies, which are added to ``bodies``.
    """
    for original in program.graph_def.node:
        node = copied(original)
        node.device = devices[node.name]
        if node.op in CONTROL_FLOW:
            bodies.place(node, node.device)
            yield from input_anchors(node, devices, definitions)
        yield node


def prune_library(graph_def: Any) -> None:
    """Drops library functions that no node refers to any more, in place."""
    from placer.extraction.graph_defs.flat_nodes import needed_library, referred_functions

    library = functions_by_name(graph_def)
    referred = (name for node in graph_def.node for name in referred_functions(node, library))
    kept = needed_library(referred, library)
    graph_def.library.ClearField("function")
    graph_def.library.function.extend(kept.function)


def map_graph_devices(graph_def: Any, translate: Callable[[str], str]) -> None:
    """Replaces every device string of a GraphDef and its library, in place."""
    for node in all_nodes(graph_def):
        node.device = translate(node.device)


def write_graph_def(graph_def: Any, out: str | os.PathLike[str], *, force: bool = False) -> None:
    """Writes a GraphDef, as text if ``out`` ends in ``.pbtxt``, whole or not at all.

    Raises :class:`UsageError` if ``out`` exists and ``force`` is not given.
    """
    content = file_content(graph_def, text=Path(out).suffix == ".pbtxt")
    with replaced(out, force=force) as file:
        file.write_bytes(content)


def describe_mismatch(program: FlatProgram, plan: Any, advice: str = "") -> str:
    """Returns the most significant difference of ``program`` from the plan's program, and
    ``advice``, by default for a program that is not bound."""
    trains = any(is_update_type(node.op) for node in program.graph_def.node)
    is_step = any(_names_update(name) for name in plan.placement)
    from_file = bool(plan.model.get("path"))
    if from_file != bool(program.path):
        made, found = ("a file", "a live program") if from_file else ("a live program", "a file")
        advice = advice or (
            f"the plan was made from {made} and this is {found}, where the ops have other names: "
            "make a plan of this program"
        )
    elif is_step and not trains and not from_file:
        advice = advice or "use it with: with plan.bind(model): model.fit(...)"
    advice = (
        advice
        or "make a plan of this program, or give the model, signature and outputs of the plan"
    )
    if is_step != trains:
        words = ("", " not") if is_step else (" not", "")
        return "the plan is{} for training, this one is{}; ".format(*words) + advice
    return f"{_difference(program, plan)}; {advice}"


def _difference(program: FlatProgram, plan: Any) -> str:
    """Returns the first difference in what the two are fed and made of."""
    nodes = program.graph_def.node
    keys, known = [item.key for item in program.inputs], plan.model.get("inputs")
    if known is not None and len(known) != len(keys):
        return f"the program has {_counted(keys)}, the plan's has {_counted(known)}"
    names = {node.name for node in nodes}
    unplanned = [node for node in nodes if node.name not in plan.placement]
    missing = [name for name in plan.placement if name not in names]
    if unplanned:
        first = f"{unplanned[0].name} ({unplanned[0].op})"
        of = f"{len(unplanned):,} of the program's {len(nodes):,} ops"
        return f"the plan lacks {of}, such as {first}"
    if missing:
        of = f"{len(missing):,} of the plan's {len(plan.placement):,} ops"
        return f"the program lacks {of}, such as {missing[0]}"
    return (
        f"the program's {len(nodes):,} ops have the planned names, but other inputs or attributes, "
        "such as a size or a dtype"
    )


def _names_update(name: str) -> bool:
    """Whether an op's name is the one that an update gets by default (a plan knows no types)."""
    return is_update_type(op_of(name).rpartition("/")[2].rstrip("0123456789").rstrip("_"))


def _counted(keys: list[str]) -> str:
    return f"{len(keys)} input{'' if len(keys) == 1 else 's'} ({some(keys)})"
