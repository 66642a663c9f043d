"""The sources of a program: kinds of files, and kinds of objects in this process.

A kind is two functions in a module of :mod:`placer.extraction.reading` and one line below: whether
it is a program of this kind, and the :class:`~placer.extraction.graph_defs.program.RawProgram` in
it.  They are imported when they are called, and messages name the kinds that stand here.
"""

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, NamedTuple

from placer.errors import UsageError

_HERE = "placer.extraction.reading"


class InputFormat(NamedTuple):
    """A kind, its two functions as ``"module:function"``.

    ``name`` is for people; of a file it is the type of its protobuf as ``"module:Class"``.
    ``reader`` takes (message, path, choice) or (object, outputs).
    """

    name: str
    test: str
    reader: str

    def recognises(self, source: Any) -> bool:
        """Whether an object, or a message of this type, is such a program."""
        return bool(resolve_name(f"{_HERE}.{self.test}")(source))

    def read(self, *source: Any) -> Any:
        """The program as it was found."""
        return resolve_name(f"{_HERE}.{self.reader}")(*source)


FILE_FORMATS = (
    InputFormat(
        "tensorflow.core.framework.graph_pb2:GraphDef",
        "bare_graphs:has_ops",
        "bare_graphs:read_graph_file",
    ),
    InputFormat(
        "tensorflow.core.protobuf.saved_model_pb2:SavedModel",
        "signatures:has_graphs",
        "signatures:read_saved_model",
    ),
    InputFormat(
        "tensorflow.core.protobuf.meta_graph_pb2:MetaGraphDef",
        "bare_graphs:has_graph_with_ops",
        "bare_graphs:read_meta_graph_file",
    ),
)
"""In the order in which they are tried: a GraphDef may pass for one of the others."""

LIVE_FORMATS = (
    InputFormat("a GraphDef", "bare_graphs:is_graph_def", "bare_graphs:read_live_graph_def"),
    InputFormat("a tf.Graph", "bare_graphs:is_graph", "bare_graphs:read_graph"),
    InputFormat("a Keras model", "live:is_keras_model", "live:read_keras_model"),
    InputFormat("a ConcreteFunction", "live:is_function", "live:read_function"),
    InputFormat("a tf.function", "live:is_traceable", "live:read_function"),
)


def read_live(source: Any, outputs: Sequence[str] | None) -> Any:
    """The program behind an object.  Raises :class:`UsageError` for what is of no kind."""
    for known in LIVE_FORMATS:
        if known.recognises(source):
            return known.read(source, outputs)
    raise unreadable(source)


def is_live(source: Any) -> bool:
    """Whether an object is of a kind that can be read."""
    return any(known.recognises(source) for known in LIVE_FORMATS)


def unreadable(source: Any) -> UsageError:
    """The error for an object of no kind."""
    *names, last = [known.name for known in LIVE_FORMATS]
    return UsageError(
        f"cannot read a program from an object of type {type(source).__name__!r}: pass a path, "
        f"{', '.join(names)} or {last}"
    )
