"""Model files: what is in them, whatever they are called."""

import hashlib
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from cost_models.device_names import LOCAL
from placer.errors import ModelError
from placer.extraction.files.keras_files import is_keras_file, require_known
from placer.extraction.files.model_paths import saved_model_file
from placer.extraction.graph_defs.rewritten_nodes import INPUTS, remove_rewriting
from placer.extraction.input_formats import FILE_FORMATS, is_live, unreadable

_CHECKPOINT_PART = re.compile(r"\.(index|data-\d{5}-of-\d{5})\Z")
_LATEST = re.compile(r'model_checkpoint_path: *"([^"]*)"')


def read_source(path: Path, *, as_written: bool = False) -> Any:
    """The message in a model file or folder: SavedModel, MetaGraphDef or GraphDef.

    The content decides, not the name: binary is tried before text.  Of a checkpoint the ``.meta``
    with the same prefix is read.  What a plan rewrote is what it was before, unless the file is
    wanted ``as_written``.  Raises :class:`ModelError` if the path does not exist or holds none of
    these.
    """
    path = model_file(path)
    if is_keras_file(path):
        raise ModelError(f"{str(path)!r} is a Keras file: export it first (model.export)")
    content = path.read_bytes()
    message = _parsed(content)
    if message is None:
        require_known(path)
        if not content:
            raise ModelError(f"{str(path)!r} is empty (0 bytes): write or copy the model again")
        *names, last = sorted(known.name.partition(":")[2] for known in FILE_FORMATS)
        raise ModelError(
            f"{str(path)!r} ({len(content):,} bytes) is not a model that can be read (neither a "
            f"{', a '.join(names)}, a {last} nor a Keras file), or it has no ops. "
            "If it is damaged, write it again with model.export() of Keras or tf.saved_model.save"
        )
    if not as_written and INPUTS.encode() in content:
        for graph_def in graph_defs(message):
            remove_rewriting(graph_def)
    return message


def graph_defs(message: Any) -> list[Any]:
    """The GraphDefs in the message of a model file, which are parts of it."""
    kind = message.DESCRIPTOR.name
    if kind == "SavedModel":
        return [meta_graph.graph_def for meta_graph in message.meta_graphs]
    return [message.graph_def if kind == "MetaGraphDef" else message]


def model_file(path: Path) -> Path:
    """The file that holds the graph behind ``path``.

    That is the file itself, ``saved_model.pb`` of a SavedModel folder, or the ``.meta`` of a
    checkpoint, which is given by its prefix, a part of it, its folder or the file ``checkpoint``.
    Raises :class:`ModelError` if there is none.
    """
    if path.is_dir():
        return _main_file(path)
    if path.name == "checkpoint" and path.is_file():
        return _meta_file(_latest_checkpoint(path))
    if _CHECKPOINT_PART.search(path.name):
        return _meta_file(path.with_name(_CHECKPOINT_PART.sub("", path.name)))
    if path.is_file():
        return path
    if path.exists():
        raise ModelError(
            f"{str(path)!r} is neither a file nor a folder: a model is not read from a pipe or a "
            "device; write it to a file first"
        )
    if path.with_name(f"{path.name}.index").exists():
        return _meta_file(path)
    raise ModelError(f"there is no file or folder {str(path)!r}")


def file_hash(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _main_file(folder: Path) -> Path:
    if (file := saved_model_file(folder)) is not None:
        return file
    if (folder / "checkpoint").is_file():
        return _meta_file(_latest_checkpoint(folder / "checkpoint"))
    versions = [child for child in folder.iterdir() if (child / "saved_model.pb").exists()]
    inside = f" (there is one in {min(versions).name!r})" if versions else ""
    raise ModelError(
        f"{str(folder)!r} is a folder without saved_model.pb or saved_model.pbtxt, so it is not "
        f"a SavedModel; give the folder that holds that file{inside}, or a GraphDef file"
    )


def _latest_checkpoint(state: Path) -> Path:
    """The prefix that a file ``checkpoint`` names; it was written where training ran."""
    found = _LATEST.search(state.read_text(errors="replace"))
    if found is None:
        raise ModelError(f"{str(state)!r} names no checkpoint: give a prefix such as model.ckpt-1")
    return state.parent / Path(found.group(1)).name


def _meta_file(prefix: Path) -> Path:
    meta = prefix.with_name(f"{prefix.name}.meta")
    if not meta.exists():
        raise ModelError(
            f"the checkpoint {str(prefix)!r} has no {meta.name} beside it: it holds variables, "
            "but no graph (those of TensorFlow 2 never do); give a SavedModel, a GraphDef or a "
            "MetaGraphDef, or the program itself in Python"
        )
    return meta


def _parsed(content: bytes) -> Any | None:
    """The message in a file, binary or text."""
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    found = _parse(lambda message: message.ParseFromString(content), (DecodeError,))
    if found is not None:
        return found
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None

    def read(message: Any) -> None:
        text_format.Parse(text, message, allow_unknown_field=False)
        message.ParseFromString(message.SerializeToString())  # refuses names that are no UTF-8

    # Braces too deep are a RecursionError, a number beyond its field's range is a ValueError.
    return _parse(read, (text_format.ParseError, DecodeError, RecursionError, ValueError))


def _parse(read: Callable[[Any], object], errors: tuple[type[Exception], ...]) -> Any | None:
    """The first message that can be ``read`` and makes sense."""
    for known in FILE_FORMATS:
        message = resolve_name(known.name)()
        try:
            read(message)
        except errors:
            continue
        if known.recognises(message):
            return message
    return None


def require_source(source: Any, devices: Any = None) -> None:
    """Raises :class:`UsageError` for what is no path and of no kind, before the ``devices`` are
    looked at; :class:`ModelError` for a path of nothing if those are the ones of this machine,
    which may have none."""
    if isinstance(source, str | PathLike):
        if devices == LOCAL and "://" not in str(source) and not Path(source).exists():
            model_file(Path(source))
        return
    is_plain = isinstance(source, int | float | bytes | list | tuple | dict | None)
    if is_plain or not is_live(source):
        raise unreadable(source)
