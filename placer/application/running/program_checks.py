"""Checks of what a program may do, from where its runs begin: what its loaders run, and the
signature that is called."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from placer.application.running.program_runs import RunRequest
from placer.application.running.unsafe_ops import GIVEN, Names, Start, disarm, require_harmless
from placer.extraction.files.model_paths import assets_of, constant_strings
from placer.extraction.files.sources import model_file, read_source
from placer.extraction.graph_defs.protobufs import file_content, functions_by_name
from placer.extraction.reading.saved_functions import concrete_names, find_function
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.tensor_names import full_tensor, op_of
from placer.graph.walks import reached

_INIT = "__saved_model_init_op"
_SIGNATURES = "signatures"


def check_program(request: RunRequest, which: int) -> None:
    """Raises :class:`ModelError` if program ``which`` of a request, a copy of a model's file, would
    do more than compute; changes what it does not run so that loading it does not either."""
    if request.folder is None or request.kind == "function":
        return
    path = Path(request.programs[which])
    message = read_source(path, as_written=True)
    ends = [*(tensor for _, tensor in request.fetches[which]), *request.targets[which]]
    if request.kind == "graph":
        graph_def, starts = message, [session_start([*ends, *request.start.ops], request.inputs)]
    else:
        meta_graph = choose_meta_graph(message, path, ",".join(request.tags))
        graph_def = meta_graph.graph_def
        if request.kind == "saved_model_session":
            starts = session_starts(meta_graph, ends, request.inputs)
        else:
            starts = loaded_starts(meta_graph, request.signature)
        if request.kind == "saved_model" and len(message.meta_graphs) > 1:
            starts += session_starts(meta_graph, ends, ())  # loaded as one of TensorFlow 1
    if disarm(graph_def, require_harmless(graph_def, starts, request.folder)):
        file = model_file(path)
        file.write_bytes(file_content(message, text=file.suffix == ".pbtxt"))


def session_start(ends: Iterable[str], fed: Iterable[str]) -> Start:
    """Returns the start of a session that runs the tensors or ops ``ends`` with the tensors
    ``fed``."""
    return Start(ends=[op_of(end) for end in ends], fed=frozenset(map(full_tensor, fed)))


def session_starts(meta_graph: Any, ends: Iterable[str], fed: Iterable[str]) -> list[Start]:
    """Returns the starts of ``tf.compat.v1.saved_model.load``, which restores weights and runs an
    initialiser with the assets fed, and of a session that runs ``ends`` with the tensors
    ``fed``."""
    listed = meta_graph.asset_file_def or assets_of(meta_graph)  # as loaders choose
    assets = frozenset(full_tensor(asset.tensor_info.name) for asset in listed)
    signatures = [meta_graph.signature_def[_INIT]] if _INIT in meta_graph.signature_def else []
    initial = [info.name for found in signatures for info in found.outputs.values()]
    for key in ("saved_model_main_op", "legacy_init_op"):
        if key in meta_graph.collection_def:
            initial += meta_graph.collection_def[key].node_list.value
    saver = meta_graph.saver_def
    return [
        session_start(ends, fed),
        Start(ends=[op_of(name.lstrip("^")) for name in initial], fed=assets),
        Start(
            ends=[op_of(saver.restore_op_name)],
            fed=frozenset({full_tensor(saver.filename_tensor_name)}),
        ),
    ]


def loaded_starts(meta_graph: Any, signature: str = "") -> list[Start]:
    """Returns the starts of ``tf.saved_model.load``, which creates and initialises resources and
    restores their state, and of a call of ``signature``, also a function that is none."""
    objects = meta_graph.object_graph_def.nodes
    run: list[tuple[str, Names | None]] = [
        (name, None) for name in _functions_under(objects, _called_by_loaders(objects))
    ]
    if signature:
        run += [(name, GIVEN) for name in _called(meta_graph, signature)]
    library = functions_by_name(meta_graph.graph_def)
    return [
        Start(name=name, arguments=_arguments(meta_graph, library[name], given))
        for name, given in dict.fromkeys(run)
        if name in library
    ]


def _called_by_loaders(objects: Any) -> Iterator[int]:
    """The numbers of objects that loading, or restoring, may call or look into.

    A child becomes an attribute of its object: of one that is not the user's it may take the place
    of TensorFlow's own, such as ``assign`` of a variable.
    """
    for node in objects:
        is_own = node.WhichOneof("kind") != "user_object"
        for child in (*node.children, *node.dependencies):
            name = child.local_name
            # the first two begin like TensorFlow's own, and are the user's to call; the traces of a
            # function are its children
            if name in ("__call__", "_default_save_signature") or (
                is_own and name.startswith("trace_")
            ):
                continue
            # these are called while optimizers are restored
            if is_own or name.startswith("_") or name in ("add_slot", "get_slot", "get_slot_names"):
                yield child.node_id
        for saved in node.saveable_objects.values():
            yield from (saved.save_function, saved.restore_function)


def _functions_under(objects: Any, numbers: Iterable[int]) -> Iterator[str]:
    """The functions that the objects ``numbers`` are, or lead to: an object with a ``__call__`` may
    stand where a function is called."""
    for number in reached(numbers, partial(_children, objects, but=_SIGNATURES)):
        yield from concrete_names(objects, number)


def _children(objects: Any, number: int, *, but: str) -> list[int]:
    """The numbers of an object's children, those of one name aside."""
    children = objects[number].children if number < len(objects) else ()
    return [child.node_id for child in children if child.local_name != but]


def _called(meta_graph: Any, signature: str) -> Iterator[str]:
    """The functions that a call of a loaded signature may run."""
    objects = meta_graph.object_graph_def.nodes
    found = find_function(meta_graph, signature)
    if found is not None:
        yield found.name
    maps = [c.node_id for node in objects for c in node.children if c.local_name == _SIGNATURES]
    for number in reached(maps, partial(_children, objects, but=signature)):
        for child in objects[number].children if number < len(objects) else ():
            if child.local_name == signature:
                yield from _functions_under(objects, [child.node_id])


def _arguments(meta_graph: Any, function: Any, given: Names | None) -> Sequence[Names | None]:
    """Returns the values behind the arguments of a function: ``given``, then what it captured."""
    saved = meta_graph.object_graph_def.concrete_functions
    name = function.signature.name
    numbers = saved[name].bound_inputs if name in saved else ()
    bound = [_captured(meta_graph, number) for number in numbers]
    return [*[given] * (len(function.signature.input_arg) - len(bound)), *bound]


def _captured(meta_graph: Any, number: int) -> Names | None:
    objects = meta_graph.object_graph_def.nodes
    kind = objects[number].WhichOneof("kind") if number < len(objects) else None
    registered = objects[number].registered_name if kind else ""
    if kind == "asset" and not registered:
        return GIVEN
    if kind != "constant" or registered not in ("", "tf.TrackableConstant"):
        return None  # what is loaded is not what its kind says
    name, found = objects[number].constant.operation, None
    for node in meta_graph.graph_def.node:
        if node.name == name:
            found = constant_strings(node)
    return None if found is None else frozenset(found)
