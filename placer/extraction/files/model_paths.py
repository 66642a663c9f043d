"""Where the paths in a model lead: a model may read what lies in its folder, and nothing else."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placer.errors import ModelError, UsageError
from placer.extraction.files.keras_files import is_keras_file
from placer.extraction.graph_defs.protobufs import dtype_number
from placer.graph.op_types import RESTORES
from placer.graph.tensor_names import op_of

READ_FILES = (
    *("saved_model.pb", "saved_model.pbtxt", "variables", "variables/variables.index"),
    *("checkpoint", "config.json", "metadata.json", "model.weights.h5"),
)
"""Files of a model's folder that are read even where its weights are not."""

_WILDCARD = re.compile(r"[*?\[\\]")

ASSETS = "assets"
_ASSET_COLLECTION = "saved_model_assets"
ALLOW_UNSAFE = "if you trust the file, allow it with --allow-unsafe"


def without_copies(message: str, folder: str | os.PathLike[str], name: str) -> str:
    """Returns ``message`` with the model's ``name`` in place of the copy that was made of it in
    ``folder``.

    >>> without_copies("'/tmp/x/exported' has no signature 'f'", "/tmp/x", "m.keras")
    "'m.keras' has no signature 'f'"
    """
    copies = rf"{re.escape(os.fspath(folder))}/[^/'\"\s]+"
    return re.sub(copies, lambda _: name, message)


def is_inside(path: str, folder: str | os.PathLike[str]) -> bool:
    """Whether ``path``, if it is relative from the current directory on, is in ``folder``, links
    followed.

    Linux follows a link before it climbs by ``..``, TensorFlow takes ``..`` out of the name first
    (``core/platform/path.cc``, CleanPath): both must lead there.
    """
    if "://" in path or "\0" in path:
        return False
    own = os.path.realpath(folder)
    found = (os.path.realpath(path), os.path.realpath(os.path.normpath(path)))
    return all(Path(one).is_relative_to(own) for one in found)


def are_inside(name: str, folder: str | os.PathLike[str]) -> bool:
    """As :func:`is_inside`, of all files that ``name`` may stand for: as the prefix of a
    checkpoint, as a pattern, or as a folder."""
    if not is_inside(name, folder):
        return False
    parent, beginning = os.path.split(_WILDCARD.split(os.path.normpath(name), maxsplit=1)[0])
    pending = [path for path in _children(parent or ".") if path.name.startswith(beginning)]
    seen: set[str] = set()
    while pending:
        path = pending.pop()
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        if path.is_symlink() and not is_inside(str(path), folder):
            return False
        pending += _children(real)
    return True


def _children(folder: str) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder)]
    except OSError:  # not a folder, or not one that this user may list
        return []


_FILE_SUFFIXES = (".keras", ".h5", ".hdf5", ".pb", ".pbtxt", ".meta", ".json", ".txt")
"""Suffixes that no folder has by intention."""


def check_folder_name(out: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Raises :class:`UsageError` if ``out`` has the name of a file, and a SavedModel is written of
    ``source``."""
    model, suffix = Path(source), Path(out).suffix
    if suffix.lower() in _FILE_SUFFIXES and (saved_model_file(model) or is_keras_file(model)):
        raise UsageError(
            f"{os.fspath(out)} is the name of a file, and a SavedModel folder is written: leave "
            f"out {suffix}"
        )


def saved_model_file(folder: Path) -> Path | None:
    """The file with the graphs of a SavedModel; ``None`` if ``folder`` is not that of one."""
    files = (folder / name for name in ("saved_model.pb", "saved_model.pbtxt"))
    return next((file for file in files if file.is_file()), None)


def require_own_files(folder: Path, *, whole: bool, follow_links: bool) -> None:
    """Raises :class:`ModelError` for a link in a model's ``folder`` that leads out of it, unless
    ``follow_links``, and for a pipe or device there, whose reader may wait for ever.

    Looks at the ``whole`` folder, or only at what analysis reads.  The folder itself may be
    reached through links.
    """
    if folder.is_dir():
        paths = _all_paths(folder) if whole else _read_paths(folder)
    elif _stands_for_another(folder):
        folder = folder.parent
        paths = iter(sorted(folder.glob("*.meta")))
    else:
        return
    for path in paths:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ModelError(
                f"{str(path.relative_to(folder))!r} in {str(folder)!r} is neither a file nor a "
                "folder: a model is not read from a pipe or a device; write it to a file first"
            )
        if not follow_links and path.is_symlink() and not is_inside(str(path), folder):
            raise ModelError(
                f"{str(path.relative_to(folder))!r} in {str(folder)!r} is a link that leads out of "
                f"the model's folder, to {os.path.realpath(path)!r}: if you trust it, add "
                "--follow-links"
            )


def _read_paths(folder: Path) -> Iterator[Path]:
    """Returns what analysis may read: of the weights only which object has which, and of a
    checkpoint the graph beside it."""
    yield from (folder / name for name in READ_FILES)
    yield from sorted((*folder.glob("variables/variables.data-*"), *folder.glob("*.meta")))


def _stands_for_another(path: Path) -> bool:
    """Whether a path is a part, or the prefix, of a checkpoint whose ``.meta`` is read instead."""
    is_part = path.name == "checkpoint" or path.suffix == ".index" or ".data-" in path.name
    return is_part or not path.exists()


def _all_paths(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in sorted((*folders, *files)))


def require_own_paths(message: Any, path: Path) -> None:
    """Raises :class:`ModelError` if the message of the model in ``path`` names an asset, or the
    prefix of a checkpoint to restore, that is outside of the model's folder."""
    kind = message.DESCRIPTOR.name
    folder = path if path.is_dir() else path.parent
    if kind == "GraphDef":
        _require_own_prefixes(message, folder)
        return
    for meta_graph in message.meta_graphs if kind == "SavedModel" else (message,):
        for name in (asset.filename for asset in assets_of(meta_graph)):
            target = os.path.normpath(os.path.join(ASSETS, name))
            if "://" in name or "\0" in name or not Path(target).is_relative_to(ASSETS):
                raise ModelError(f"the asset {name!r} leads out of the folder of the model: {_HOW}")
        _require_own_prefixes(meta_graph.graph_def, folder)


_HOW = "a model brings its files along, by names in its folder; correct or leave out this one"


def assets_of(meta_graph: Any) -> list[Any]:
    """The AssetFileDefs of a MetaGraphDef, wherever loaders look for them."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import meta_graph_pb2

    found = [*meta_graph.asset_file_def]
    if _ASSET_COLLECTION in meta_graph.collection_def:
        for packed in meta_graph.collection_def[_ASSET_COLLECTION].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            try:
                packed.Unpack(asset)
            except DecodeError as error:
                raise ModelError("the collection of assets of the model is damaged") from error
            found.append(asset)
    return found


def _require_own_prefixes(graph_def: Any, folder: Path) -> None:
    """As :func:`require_own_paths`, of the constants that restoring ops read."""
    for nodes in (graph_def.node, *(body.node_def for body in graph_def.library.function)):
        readers = {op_of(n.input[0]): n for n in nodes if n.op in RESTORES and n.input}
        for node in nodes if readers else ():
            for value in constant_strings(node) or () if node.name in readers else ():
                if leads_out(value, folder):
                    reader = readers[node.name]
                    raise ModelError(
                        f"op {reader.name!r} ({reader.op}) restores the checkpoint {value!r}, "
                        f"which is outside of the folder of the model; {ALLOW_UNSAFE}"
                    )


def constant_strings(node: Any) -> list[str] | None:
    """The elements of a ``Const`` of strings; ``None`` for what is not one, or not readable."""
    if node.op != "Const" or "value" not in node.attr:
        return None
    tensor = node.attr["value"].tensor
    if tensor.tensor_content or tensor.dtype != dtype_number("string"):
        return None
    return [os.fsdecode(value) for value in tensor.string_val]


def leads_out(value: str, folder: Path) -> bool:
    """Whether a path that a model names is absolute, or climbs, to where the model is not."""
    if "://" in value or "\0" in value:
        return True
    if os.path.isabs(value):
        return not is_inside(value, folder)
    return os.path.normpath(value).split(os.sep)[0] == os.pardir
