"""Model files: what is in them, whatever they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placer.errors import ModelError

KERAS_SUFFIXES = frozenset({".keras", ".h5", ".hdf5"})


def read_source(path: Path) -> Any:
    """The message in a model file or SavedModel folder: SavedModel, MetaGraphDef or GraphDef.

    The content decides, not the name: binary is tried before text.  Raises
    :class:`ModelError` if the path does not exist or holds none of these.
    """
    if path.is_dir():
        path = main_file(path)
    elif not path.exists():
        raise ModelError(f"there is no file or folder {str(path)!r}")
    if path.suffix in KERAS_SUFFIXES:
        raise ModelError(
            f"{str(path)!r} is a Keras file; load it with keras and pass the model, or export it "
            "with model.export(folder)"
        )
    content = path.read_bytes()
    message = _parse_binary(content)
    if message is None:
        message = _parse_text(content)
    if message is None:
        raise ModelError(
            f"{str(path)!r} ({len(content)} bytes) is neither a GraphDef, a MetaGraphDef nor a "
            "SavedModel, in binary or in text"
        )
    return message


def main_file(folder: Path) -> Path:
    """The ``saved_model.pb`` or ``saved_model.pbtxt`` of a SavedModel folder.

    Raises :class:`ModelError` if the folder has neither.
    """
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        if (folder / name).exists():
            return folder / name
    raise ModelError(
        f"{str(folder)!r} is a folder without saved_model.pb or saved_model.pbtxt, so it is not "
        "a SavedModel; give the folder that holds that file, or a GraphDef file"
    )


def _message_types() -> list[Any]:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

    return [graph_pb2.GraphDef, saved_model_pb2.SavedModel, meta_graph_pb2.MetaGraphDef]


def _parse_binary(content: bytes) -> Any | None:
    from google.protobuf.message import DecodeError

    for message_type in _message_types():
        message = message_type()
        try:
            message.ParseFromString(content)
        except DecodeError:
            continue
        if _makes_sense(message):
            return message
    return None


def _parse_text(content: bytes) -> Any | None:
    from google.protobuf import text_format

    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    for message_type in _message_types():
        message = message_type()
        try:
            text_format.Parse(text, message, allow_unknown_field=False)
        except text_format.ParseError:
            continue
        if _makes_sense(message):
            return message
    return None


def _makes_sense(message: Any) -> bool:
    kind = message.DESCRIPTOR.name
    if kind == "SavedModel":
        return len(message.meta_graphs) > 0
    nodes = message.node if kind == "GraphDef" else message.graph_def.node
    return len(nodes) > 0 and all(node.name and node.op for node in nodes)
