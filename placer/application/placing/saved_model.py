"""A SavedModel that carries its placement.

Three writes make it hold, however the model is loaded: devices in the function bodies (both
loaders), on the variable handles of the main graph (sessions, TensorFlow Serving), and in the
object graph (``tf.saved_model.load`` with ``experimental_variable_policy`` set to
``"save_variable_devices"``).  Only protobufs are read and written; weights are linked, unread.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cost_models.device_names import full_name
from placer.application.devices.device_mapping import HOST
from placer.application.placing.class_hints import release_hints
from placer.application.placing.control_flow_placement import CLONE_MARK, BodyPlacer
from placer.application.placing.dropped_variables import (
    Dropped,
    drop_unused,
    write_checkpoint_without,
)
from placer.application.placing.graph_placement import (
    full_devices,
    map_graph_devices,
    placed_nodes,
    rewritten_alike,
)
from placer.application.placing.replicas import add_replicas, write_replicas
from placer.application.placing.shared_variables import follow_variables
from placer.application.placing.signature_flattening import flatten_function
from placer.errors import UsageError
from placer.extraction.files.sources import model_file, read_source
from placer.extraction.graph_defs.added_control import (
    add_control,
    added_control,
    remove_added_control,
)
from placer.extraction.graph_defs.op_definitions import (
    OpDefinitions,
    called_function,
    called_functions,
)
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import (
    FunctionDef,
    all_nodes,
    file_content,
    functions_by_name,
)
from placer.extraction.graph_defs.rewritten_nodes import adopt_rewriting
from placer.extraction.reading.companions import touched_handles
from placer.extraction.reading.loading import load_program
from placer.extraction.reading.saved_functions import exported_function
from placer.extraction.reading.signatures import choose_meta_graph
from placer.files import check_outside, replaced
from placer.graph.op_types import CALLS, CONTROL_FLOW
from placer.graph.program_source import Warning_
from placer.graph.tensor_names import op_of, source_of, split_tensor
from placer.graph.walks import grouped

META_SUFFIX = ".meta"
"""Suffix of a MetaGraphDef file."""


def write_placed_saved_model(
    program: FlatProgram,
    placement: Mapping[str, str],
    out: str | os.PathLike[str],
    *,
    force: bool,
    translate: Callable[[str], str],
    drops_unused: bool = False,
) -> tuple[Warning_, ...]:
    """Writes the SavedModel behind ``program`` with ``placement``; (code, message, ops) warnings.

    The signature of ``program`` becomes one flat function with a device on every op; other
    signatures keep their bodies, and their ops follow the variables they touch.  ``translate``
    replaces each full device name that is written.  With ``drops_unused`` variables that nothing
    uses are left out.  The output appears whole or not at all.
    Raises :class:`UsageError` if ``out`` exists and ``force`` is not given, and as
    :func:`~placer.application.placing.dropped_variables.drop_unused`.
    """
    source = Path(program.path)
    program, placement = complete_program(program, placement)
    saved_model = read_source(source)
    meta_graph = choose_meta_graph(saved_model, source, ",".join(program.tags))
    warnings = place_meta_graph(meta_graph, program, placement)
    map_devices(meta_graph, translate)
    dropped = drop_unused(saved_model, meta_graph, source) if drops_unused else Dropped()
    with replaced(out, force=force) as folder:
        write_saved_model(source, saved_model, folder)
        write_checkpoint_without(dropped, source, folder, bring=hard_link)
        write_replicas(saved_model, folder, hard_link)
    return warnings


def write_placed_meta_graph(
    program: FlatProgram,
    placement: Mapping[str, str],
    out: str | os.PathLike[str],
    *,
    force: bool,
    translate: Callable[[str], str],
) -> None:
    """Writes the MetaGraphDef behind ``program`` with ``placement``, as a training script of
    TensorFlow 1 imports it: initialisers, saver and collections are kept, and what touches a
    variable follows it.  Raises :class:`UsageError` as :func:`write_placed_saved_model` does, and
    if the program comes from no MetaGraphDef.
    """
    meta_graph = read_source(Path(program.path)) if program.path else None
    if meta_graph is None or meta_graph.DESCRIPTOR.name != "MetaGraphDef":
        raise UsageError(
            f"{os.fspath(out)} would be a MetaGraphDef by its name, and "
            f"{program.path or 'the source'} is not one: give a name that ends in .pb or .pbtxt"
        )
    place_meta_graph(meta_graph, program, placement)
    map_devices(meta_graph, translate)
    with replaced(out, force=force) as file:
        file.write_bytes(meta_graph.SerializeToString())


def complete_program(
    program: FlatProgram, placement: Mapping[str, str]
) -> tuple[FlatProgram, Mapping[str, str]]:
    """The program with all outputs of its signature, and a placement for all of it.

    A signature's function keeps its outputs even if the plan was made for some of them: ops that
    only the others need go where their first input is, or to the host.
    """
    if not program.chosen_outputs or not program.signature:
        return program, placement
    whole = load_program(
        program.path,
        tag_set=",".join(program.tags),
        signature=program.signature,
        division=program.division,
    )
    complete = dict(placement)
    for op, handles in touched_handles(whole.graph_def.node):
        known = [complete[handle] for handle in handles if handle in complete]
        for name in (op, *handles) if known else ():
            complete.setdefault(name, known[0])
    for node in whole.graph_def.node:
        devices = [complete[name] for name in map(source_of, node.input) if name in complete]
        complete.setdefault(node.name, devices[0] if devices else HOST)
    return rewritten_alike(whole, program), complete


def write_saved_model(
    source: Path,
    saved_model: Any,
    folder: Path,
    *,
    bring: Callable[[Path, Path], None] | None = None,
) -> None:
    """Writes ``saved_model`` into the new ``folder``, with everything else that ``source`` holds.

    ``bring`` brings one file or folder over, by default as hard links.  The fingerprint file
    describes the old graph and is left out; loaders do without it.  Raises :class:`UsageError` if
    ``folder`` is inside of ``source``.
    """
    check_outside(folder, source)
    graph_file = model_file(source)
    folder.mkdir()
    for entry in sorted(source.resolve().iterdir()):
        if entry.name not in (graph_file.name, "fingerprint.pb"):
            (bring or hard_link)(entry, folder / entry.name)
    content = file_content(saved_model, text=graph_file.suffix == ".pbtxt")
    (folder / graph_file.name).write_bytes(content)


def hard_link(source: Path, target: Path) -> None:
    """Makes ``target`` the same file or files as ``source``; copies where links are impossible."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link_file)
    else:
        _link_file(source, target)


def soft_link(source: Path, target: Path) -> None:
    """Makes ``target`` a symbolic link to ``source``, wherever that is."""
    target.symlink_to(source.resolve())


def _link_file(source: str | Path, target: str | Path) -> None:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copy2(source, target)


def place_meta_graph(
    meta_graph: Any, program: FlatProgram, placement: Mapping[str, str]
) -> tuple[Warning_, ...]:
    """Writes ``placement`` into a MetaGraphDef, in place; returns warnings.

    Devices of an earlier placement that this one does not use go, and so do its control edges and
    the colocation hints that tie ops on different devices.
    """
    used = {full_name(device) for device in placement.values()} | {full_name(HOST)}
    map_devices(meta_graph, lambda device: device if _is_used(device, used) else "")
    remove_added_control(meta_graph.graph_def)
    with exported_function(meta_graph, program.signature):
        return _place_meta_graph(meta_graph, program, placement)


def _is_used(device: str, used: set[str]) -> bool:
    """Whether a device string names one of ``used`` (full names), or no single device."""
    try:
        return not device or full_name(device) in used
    except ValueError:
        return True


def _place_meta_graph(
    meta_graph: Any, program: FlatProgram, placement: Mapping[str, str]
) -> tuple[Warning_, ...]:
    devices = full_devices(program, placement)
    add_replicas(meta_graph, program)
    library = functions_by_name(meta_graph.graph_def)
    definitions = OpDefinitions(program.stripped_ops, library.values())
    bodies = BodyPlacer(functions_by_name(program.graph_def), set(library))
    calls = grouped(
        (_outermost_call(node, program), node)
        for node in placed_nodes(program, devices, bodies, definitions)
    )
    _place_bodies(library, program, devices)
    for call, nodes in calls.items():
        if call and program.signature:
            _flatten_call(meta_graph, library, call, nodes, program, definitions)
    meta_graph.graph_def.library.function.extend(bodies.clones)
    joined = set(program.output_ops) if program.division else set()
    _place_main_graph(meta_graph.graph_def, calls.get("", []), joined)
    _keep_constants_on_host(meta_graph)
    _drop_stale_clones(meta_graph.graph_def)
    warnings = follow_variables(meta_graph, program, devices)
    release_hints(meta_graph.graph_def, devices)
    return warnings


def _keep_constants_on_host(meta_graph: Any) -> None:
    """Puts constants of the object graph that the plan does not name on the host: the ids of a
    lookup table, which its initializer alone reads, would be held on the first GPU."""
    kept = {
        node.constant.operation
        for node in meta_graph.object_graph_def.nodes
        if node.HasField("constant")
    }
    for node in meta_graph.graph_def.node:
        if node.name in kept and not node.device:
            node.device = full_name(HOST)


def _drop_stale_clones(graph_def: Any) -> None:
    """Removes placed bodies of an earlier placement that nothing refers to any more, in place."""
    nodes = all_nodes(graph_def)
    used = {function.name for node in nodes for _, function in called_functions(node)}
    for function in list(graph_def.library.function):
        if CLONE_MARK in function.signature.name and function.signature.name not in used:
            graph_def.library.function.remove(function)


def _outermost_call(node: Any, program: FlatProgram) -> str:
    """The main graph's call that a flat node (or an input anchor of one) is inside of."""
    name = node.name if node.name in program.call_path else node.name.rpartition("/")[0]
    path = program.call_path[name]
    return path[0][1] if path else ""


def _flatten_call(
    meta_graph: Any,
    library: Mapping[str, FunctionDef],
    call_name: str,
    nodes: list[Any],
    program: FlatProgram,
    definitions: OpDefinitions,
) -> None:
    call = next(node for node in meta_graph.graph_def.node if node.name == call_name)
    function = library[called_function(call)]
    signature = meta_graph.signature_def[program.signature]
    ends = {key: split_tensor(info.name) for key, info in signature.outputs.items()}
    outputs = {
        ends[key][1]: tensor
        for key, tensor in program.outputs
        if key in ends and ends[key][0] == call_name
    }
    read = {source_of(name) for node in nodes for name in node.input}
    read |= set(map(op_of, outputs.values()))
    sinks = [n.name for n in nodes if n.name in set(program.targets) or n.name not in read]
    flatten_function(function, call, nodes, outputs, sinks, definitions)
    call.device = ""


def _place_main_graph(graph_def: Any, placed: list[Any], joined: set[str]) -> None:
    """Replaces main-graph nodes by their placed versions, input anchors before their readers.

    Those ``joined`` from the parts of a divided batch are other ops than they were.
    """
    by_name = {node.name: node for node in placed}
    for node in graph_def.node:
        new = by_name.pop(node.name, None)
        if new is not None:
            node.device = new.device
            adopt_rewriting(node, new)
            add_control(node, added_control(new))
        if new is not None and new.name in joined:
            node.CopyFrom(new)
        elif new is not None and node.op in CONTROL_FLOW:
            node.input[:] = new.input
            node.attr.clear()
            node.attr.MergeFrom(new.attr)
    graph_def.node.extend(by_name.values())


def _place_bodies(
    library: Mapping[str, FunctionDef], program: FlatProgram, devices: Mapping[str, str]
) -> None:
    """Writes devices into the bodies that the program was inlined from, for their other callers.

    Where several paths run through one body the first decides.  Control flow is left to
    TensorFlow: without input anchors a placed loop sends its state to and fro.
    """
    planned: dict[tuple[str, str], str] = {}
    for name, origin in program.origins.items():
        planned.setdefault(origin, devices[name])
    for function in {name for name, _ in planned if name}:
        for node in library[function].node_def:
            if node.op not in CONTROL_FLOW | CALLS | set(library):
                node.device = planned.get((function, node.name), node.device)


def map_devices(meta_graph: Any, translate: Callable[[str], str]) -> None:
    """Replaces every device string of a MetaGraphDef by ``translate`` of it, in place."""
    map_graph_devices(meta_graph.graph_def, translate)
    for node in meta_graph.object_graph_def.nodes:
        if node.WhichOneof("kind") == "variable":
            node.variable.device = translate(node.variable.device)
