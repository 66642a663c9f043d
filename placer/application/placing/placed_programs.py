"""``placer.apply``: a plan becomes a program that runs as planned."""

import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from placer.application.devices.device_mapping import (
    HOST,
    forbids_absence,
    rehearsal_mapping,
    running_mapping,
)
from placer.application.placing.dropped_variables import Dropped, write_checkpoint_without
from placer.application.placing.dropped_variables import drop_unused as find_dropped
from placer.application.placing.fallback import Move, foresee_moves, refuse_moves
from placer.application.placing.graph_placement import (
    map_graph_devices,
    place_graph_def,
    rewritten_as_planned,
    write_graph_def,
)
from placer.application.placing.kept_state import with_state
from placer.application.placing.placed_function import place_function
from placer.application.placing.saved_model import (
    META_SUFFIX,
    hard_link,
    map_devices,
    write_placed_meta_graph,
    write_placed_saved_model,
    write_saved_model,
)
from placer.errors import SHOWN, UsageError
from placer.extraction.division.dividing import divided_as_planned
from placer.extraction.extraction import choice_of, of_plan, require_choice
from placer.extraction.files.model_paths import (
    check_folder_name,
    require_own_files,
    require_own_paths,
)
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.added_control import remove_added_control
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.process.local_models import local_model
from placer.extraction.reading.checkpoint_index import ABSENT, require_whole_checkpoint
from placer.extraction.reading.loading import load_program
from placer.files import check_apart, check_outside, replaced
from placer.plan.loading_facts import NOT_AS_PLANNED, OVERFILLED, PLAIN, loader_warning
from placer.plan.plan import Plan

_LOG = logging.getLogger(__name__)

_LIVE = {"function": "function", "keras": "Keras model"}
"""Words for the formats of programs that run in this process."""

_HOLD_NONE = "--drop-unused is for SavedModels: other models hold no variables"


def apply(
    source: Any,
    plan: Plan,
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    strict: bool = False,
    rehearse: bool = False,
    drop_unused: bool = False,
    allow_unsafe: bool = False,
    follow_links: bool = False,
    missing: str = "warn",
    **choice: Any,
) -> Any:
    """The placed program: what ``source`` is, running where ``plan`` says.

    A path (SavedModel folder, GraphDef file) needs ``out``, the folder or file to write, and gives
    it back as a ``Path``.  What is written of a Keras file is a SavedModel; of a MetaGraphDef all
    of it (initialisers, saver, collections) if ``out`` ends in ``.meta``, else a GraphDef.  A
    ``tf.function``, ConcreteFunction or Keras model gives a
    :class:`~placer.application.placing.placed_function.PlacedFunction` whose variables were copied
    to their devices; with ``strict`` TensorFlow may not move its ops elsewhere.  A ``tf.Graph`` or
    GraphDef gives a GraphDef, with the initialisers and savers of its state.  With ``rehearse`` a
    file or GraphDef names logical CPU devices in place of the plan's accelerators, to run where
    those are absent.  With ``drop_unused`` the SavedModel that is written has no variables that
    neither a signature nor a saved function uses.  A function or model that is to run on devices
    which this machine lacks runs on logical CPU devices, with a warning; ``missing="error"`` makes
    it a :class:`UsageError`.  ``choice`` are ``tag_set``, ``signature`` and ``outputs`` where they
    differ from what the plan says.

    Ops that TensorFlow would move off their planned devices are logged as warnings; with
    ``strict`` they raise :class:`VerificationError`, and nothing is written.

    Raises :class:`UsageError` for a plan of another model, a missing ``out``, an existing one
    without ``force``, or a function with ``jit_compile``; :class:`ModelError` for a damaged
    checkpoint, for assets and
    checkpoints outside of the model's folder unless ``allow_unsafe``, and for links that lead out
    of it unless ``follow_links``.
    """
    require_choice(choice, apply)
    # a program of this process is placed as it is, a file is made local and written elsewhere
    how = _How(force, strict, rehearse, drop_unused, missing)
    if not isinstance(source, str | os.PathLike):
        return _apply(source, plan, out, how, **choice)
    if out is None:
        raise UsageError(
            f"the name of the placed model is missing: give the folder or file to write, as in "
            f"placer.apply({str(source)!r}, plan, 'placed')"
        )
    check_apart(out, source)
    check_folder_name(out, source)
    splits = plan.model.get("splits")
    access = {"allow_unsafe": allow_unsafe, "follow_links": follow_links}
    with local_model(source, splits=splits, **access) as model:
        if not allow_unsafe:
            require_own_paths(read_source(model.path, as_written=True), model.path)
        if splits:  # the model that is read is a copy of this one
            check_outside(Path(out).parent, model.original)
        return _apply(model.path, plan, out, how, **choice)


class _How(NamedTuple):
    """The options of :func:`apply` that say how a placed program is written or run."""

    force: bool
    strict: bool
    rehearse: bool
    drop_unused: bool
    missing: str


def _require_effects(kind: str, out: str | os.PathLike[str] | None, how: _How) -> None:
    """Raises :class:`UsageError` for what has no effect on a program of this ``kind``."""
    if how.drop_unused and kind != "saved_model":
        raise UsageError(_HOLD_NONE)
    if how.force and out is None:
        raise UsageError("--force overwrites a file, and no file is written: leave it out")
    if kind not in _LIVE:
        if forbids_absence(how.missing):
            raise UsageError(
                "missing='error' is for functions and Keras models, which run in this process: "
                "leave it out, and give it to placer.load_placed where the placed model runs"
            )
        return
    source = _LIVE[kind]
    if out is not None:
        raise UsageError(
            f"apply places a {source} in this process and writes no file: leave out "
            f"{os.fspath(out)!r}, or save the model and give apply its path"
        )
    if how.rehearse:
        raise UsageError(
            f"--on-cpu-devices is for files and GraphDefs: a {source} runs on CPU devices by "
            "itself where GPUs are absent"
        )


def _apply(
    source: Any, plan: Plan, out: str | os.PathLike[str] | None, how: _How, **choice: Any
) -> Any:
    """As :func:`apply`, of a program of this process or a path on this machine."""
    with of_plan(plan.model):
        whole = load_program(source, **choice_of(plan.model, **choice))
    program = rewritten_as_planned(divided_as_planned(whole, plan), plan)
    _require_effects(program.source_format, out, how)
    _report_moves(foresee_moves(program, plan.placement), strict=how.strict)
    stand_in = rehearsal_mapping(plan.placement.values()).stand_in if how.rehearse else str
    if program.source_format == "saved_model":
        assert out is not None
        require_whole_checkpoint(program)
        warnings = write_placed_saved_model(
            program,
            plan.placement,
            out,
            force=how.force,
            translate=stand_in,
            drops_unused=how.drop_unused,
        )
        told = [message for code, message, _ in program.warnings if code == ABSENT]
        told = told or _loader_warnings(program, plan, drops_unused=how.drop_unused)
        for message in [*(message for _, message, _ in warnings), *told]:
            _LOG.warning(message)
        return Path(out)
    if program.source_format in _LIVE:
        mapping = running_mapping(plan.placement.values(), how.missing)
        return place_function(source, program, plan, mapping=mapping, strict=how.strict)
    if out is not None and Path(out).suffix == META_SUFFIX:
        write_placed_meta_graph(program, plan.placement, out, force=how.force, translate=stand_in)
        return Path(out)
    chosen = choice_of(plan.model, **choice)
    placed = place_graph_def(*with_state(source, chosen, program, plan.placement))
    map_graph_devices(placed, stand_in)
    if out is None:
        return placed
    write_graph_def(placed, out, force=how.force)
    return Path(out)


def _loader_warnings(program: FlatProgram, plan: Plan, *, drops_unused: bool) -> list[str]:
    """Returns the plan's warnings of loaders that leave it, without bytes that are not written."""
    told = [row.message for row in plan.warnings if row.code in (NOT_AS_PLANNED, OVERFILLED)]
    if not (told and drops_unused and program.find_stored and plan.loading):
        return told
    hosts = [row.name for row in plan.devices if row.type == "CPU"]
    default = next((d for d in plan.loading.devices[PLAIN] if d not in hosts), HOST)
    usable = {row.name: row.usable_bytes for row in plan.devices}.get(default, math.inf)
    kept = program.find_stored(program).kept
    return [message for _, message, _ in loader_warning(kept, plan.placement, default, usable)]


def _report_moves(moves: Sequence[Move], *, strict: bool) -> None:
    """Warns of ops that TensorFlow will move; refuses them if ``strict``."""
    if strict:
        refuse_moves(moves, "would move")
    for move in moves[:SHOWN]:
        _LOG.warning("TensorFlow will move %s", move)
    if len(moves) > SHOWN:
        _LOG.warning("and %d more ops", len(moves) - SHOWN)


def clear(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    drop_unused: bool = False,
    allow_unsafe: bool = False,
    follow_links: bool = False,
) -> Path:
    """Writes the SavedModel or GraphDef ``source`` without any device strings, and without
    the control edges of a plan, to ``out``; with ``drop_unused`` as :func:`apply` does.

    Of a MetaGraphDef all of it is written if ``out`` ends in ``.meta``, else its graph.  Raises
    :class:`UsageError` if ``out`` exists and ``force`` is not given, :class:`ModelError` as
    :func:`apply` does.
    """
    path = Path(source)
    check_apart(out, path)
    check_folder_name(out, path)
    require_own_files(path, whole=True, follow_links=follow_links)
    message = read_source(path)
    if not allow_unsafe:
        require_own_paths(message, path)
    if drop_unused and message.DESCRIPTOR.name != "SavedModel":
        raise UsageError(_HOLD_NONE)
    if message.DESCRIPTOR.name == "MetaGraphDef" and Path(out).suffix == META_SUFFIX:
        map_devices(message, lambda _: "")
        remove_added_control(message.graph_def)
        with replaced(out, force=force) as file:
            file.write_bytes(message.SerializeToString())
    elif message.DESCRIPTOR.name == "SavedModel":
        for meta_graph in message.meta_graphs:
            map_devices(meta_graph, lambda _: "")
            remove_added_control(meta_graph.graph_def)
        dropped = find_dropped(message, message.meta_graphs[0], path) if drop_unused else Dropped()
        with replaced(out, force=force) as folder:
            write_saved_model(path, message, folder)
            write_checkpoint_without(dropped, path, folder, bring=hard_link)
    else:
        graph_def = message if message.DESCRIPTOR.name == "GraphDef" else message.graph_def
        map_graph_devices(graph_def, lambda _: "")
        remove_added_control(graph_def)
        write_graph_def(graph_def, out, force=force)
    return Path(out)
