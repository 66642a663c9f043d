"""What a program can be read from: kinds of files, and kinds of objects in this process.

A kind is a function in :mod:`placer.extraction.reading` and one line below.  Functions are written
``"module:function"`` and imported when a program is read.  Messages name the kinds that stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from placer.errors import UsageError

if TYPE_CHECKING:
    from placer.extraction.graph_defs.program import RawProgram


class FileFormat(NamedTuple):
    """A kind of file: a protobuf message, in binary or in text.

    ``message`` is its type as ``"module:Class"``, ``holds_program`` whether one that could be
    parsed is a program, ``reader`` takes (message, path, ``tag_set=``, ``signature=``,
    ``outputs=``) and gives the :class:`RawProgram`.
    """

    message: str
    holds_program: Callable[[Any], bool]
    reader: str

    @property
    def name(self) -> str:
        """What the message is called."""
        return self.message.partition(":")[2]

    def new_message(self) -> Any:
        """An empty message."""
        return resolve_name(self.message)()

    def read(self, message: Any, path: Path, **choice: Any) -> RawProgram:
        """The program in ``message``, which was found in ``path``."""
        found: RawProgram = resolve_name(self.reader)(message, path, **choice)
        return found


class LiveFormat(NamedTuple):
    """A kind of object in this process: ``test`` recognises it, ``reader`` takes (source,
    outputs) and gives the :class:`RawProgram`.  ``name`` is for people."""

    name: str
    test: str
    reader: str

    def recognises(self, source: Any) -> bool:
        """Whether ``source`` is of this kind."""
        return bool(resolve_name(self.test)(source))

    def read(self, source: Any, outputs: Sequence[str] | None) -> RawProgram:
        """The program that ``source`` stands for."""
        found: RawProgram = resolve_name(self.reader)(source, outputs)
        return found


def _has_ops(graph_def: Any) -> bool:
    return len(graph_def.node) > 0 and all(node.name and node.op for node in graph_def.node)


_GRAPHS = "placer.extraction.reading.bare_graphs"
_LIVE = "placer.extraction.reading.live"
_SAVED = "placer.extraction.reading.signatures"

FILE_FORMATS = (
    FileFormat(
        "tensorflow.core.framework.graph_pb2:GraphDef",
        _has_ops,
        f"{_GRAPHS}:read_graph_file",
    ),
    FileFormat(
        "tensorflow.core.protobuf.saved_model_pb2:SavedModel",
        lambda message: len(message.meta_graphs) > 0,
        f"{_SAVED}:read_saved_model",
    ),
    FileFormat(
        "tensorflow.core.protobuf.meta_graph_pb2:MetaGraphDef",
        lambda message: _has_ops(message.graph_def),
        f"{_GRAPHS}:read_meta_graph_file",
    ),
)
"""In the order in which they are tried: a GraphDef may pass for one of the others."""

LIVE_FORMATS = (
    LiveFormat("a GraphDef", f"{_GRAPHS}:is_graph_def", f"{_GRAPHS}:read_graph_def"),
    LiveFormat("a tf.Graph", f"{_GRAPHS}:is_graph", f"{_GRAPHS}:read_graph"),
    LiveFormat("a Keras model", f"{_LIVE}:is_keras_model", f"{_LIVE}:read_keras_model"),
    LiveFormat("a ConcreteFunction", f"{_LIVE}:is_function", f"{_LIVE}:read_function"),
    LiveFormat("a tf.function", f"{_LIVE}:is_traceable", f"{_LIVE}:read_traceable"),
)


def read_live(source: Any, outputs: Sequence[str] | None) -> RawProgram:
    """The program behind an object.  Raises :class:`UsageError` for what is of no kind."""
    for known in LIVE_FORMATS:
        if known.recognises(source):
            return known.read(source, outputs)
    raise unreadable(source)


def unreadable(source: Any) -> UsageError:
    """The error for an object of no kind."""
    *names, last = [known.name for known in LIVE_FORMATS]
    return UsageError(
        f"cannot read a program from a {type(source).__name__}: pass a path, {', '.join(names)} "
        f"or {last}"
    )
