"""Placed SavedModels, loaded so that their variables are where the file says."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cost_models.device_names import canonical
from placer.application.devices.device_mapping import running_mapping
from placer.application.placing.saved_model import map_devices, soft_link, write_saved_model
from placer.application.running.checkpoints import Progress
from placer.application.running.program_checks import loaded_starts, session_starts
from placer.application.running.restoring import load_one_by_one
from placer.application.running.unsafe_ops import disarm, require_harmless
from placer.errors import ModelError
from placer.extraction.files.model_paths import require_own_files, require_own_paths
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.protobufs import all_nodes

_OBJECTS = "object_graph_def"
"""Where ``tf.saved_model.load`` finds it, in the only graph, it runs no graph of TensorFlow 1."""


def load_placed(
    path: str | os.PathLike[str],
    *,
    tags: Sequence[str] | None = None,
    on_hardware: bool = False,
    missing: str = "warn",
    allow_unsafe: bool = False,
    follow_links: bool = False,
    progress: Progress | None = None,
) -> Any:
    """As :func:`placer.load_placed`, whose ``progress`` may also be a flag."""
    # on the devices that the file names
    source = Path(path)
    require_own_files(source, whole=True, follow_links=follow_links)
    saved_model = read_source(source, as_written=True)
    if saved_model.DESCRIPTOR.name != "SavedModel":
        raise ModelError(f"{str(source)!r} is a {saved_model.DESCRIPTOR.name}, not a SavedModel")
    disarmed = False
    if not allow_unsafe:
        require_own_paths(saved_model, source)
        for meta_graph in saved_model.meta_graphs:
            by_objects = len(saved_model.meta_graphs) == 1 and meta_graph.HasField(_OBJECTS)
            starts = loaded_starts(meta_graph) if by_objects else session_starts(meta_graph, (), ())
            reached = require_harmless(meta_graph.graph_def, starts, source)
            disarmed |= disarm(meta_graph.graph_def, reached)
    mapping = running_mapping(devices_in(saved_model), "error" if on_hardware else missing)
    if not mapping.rehearsed and not disarmed:
        return load_one_by_one(source, saved_model, tags, progress)
    # from a copy that names devices of this process, and reads nothing while it is loaded
    folder = Path(tempfile.mkdtemp(prefix="placer-rehearsal-"))
    try:
        for meta_graph in saved_model.meta_graphs if mapping.rehearsed else ():
            map_devices(meta_graph, mapping.stand_in)
        write_saved_model(source, saved_model, folder / "model", bring=soft_link)
        loaded = load_one_by_one(folder / "model", saved_model, tags, progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(loaded, shutil.rmtree, folder, ignore_errors=True)  # assets are read later
    return loaded


def devices_in(saved_model: Any) -> set[str]:
    """The canonical names of all devices that a SavedModel names in full."""
    names: set[str] = set()
    for meta_graph in saved_model.meta_graphs:
        names.update(node.device for node in all_nodes(meta_graph.graph_def))
    found = set()
    for name in names - {""}:
        try:
            found.add(canonical(name))
        except ValueError:  # a partial name, such as /job:worker
            continue
    return found
