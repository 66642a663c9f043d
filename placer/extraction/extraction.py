"""A model in, its flat graph with shapes and constraints out."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cost_models.op_info import OpInfo, TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.extraction.program import ProgramInput
from placer.graph.op_graph import OpGraph

if TYPE_CHECKING:
    import networkx

    from placer.extraction.dimensions import NamedShape
    from placer.extraction.division import Division

Warning_ = tuple[str, str, tuple[str, ...]]
"""A code, a message, and the ops it is about."""

TIME_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """What was found in a model.

    ``model`` says where it came from (path, format, signature, tags, sha256 of the main file,
    fingerprint), ``bindings`` what its unknown dimensions were bound to, ``inputs`` and ``outputs``
    (key, tensor) what it is fed and gives.  ``unknown`` are the
    tensors whose bytes stay unknown although their dtype has a size (those of bodies as
    ``body/op:0``), ``unknown_roots`` the ops at which shapes get lost.  ``ops_in_file`` counts
    the ops of the whole file, functions included.
    """

    graph: OpGraph
    model: Mapping[str, Any]
    bindings: Mapping[str, Any]
    inputs: tuple[ProgramInput, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    unknown_roots: tuple[str, ...] = ()
    warnings: tuple[Warning_, ...] = ()
    ops_in_file: int = 0
    functions_in_file: int = 0
    tensorflow_version: str = ""

    @property
    def unknown_share(self) -> float:
        """The unknown part of the bytes of all tensors, at the least it can be.

        An unknown tensor is taken to have as many elements as the largest input of its op, and
        one along each unknown dimension.
        """
        known, unknown = 0, 0
        for graph in (self.graph, *self.graph.functions.values()):
            for op in graph.ops.values():
                for tensor in op.info.outputs:
                    size = tensor_bytes(tensor)
                    if size is not None:
                        known += size
                    else:
                        unknown += _least_bytes(op.info, tensor)
        return unknown / max(known + unknown, 1)

    @property
    def networkx(self) -> networkx.MultiDiGraph[str]:
        """The flat graph for researchers; see :attr:`OpGraph.networkx`."""
        return self.graph.networkx


def _least_bytes(info: OpInfo, output: TensorProperties) -> int:
    """What an output of unknown shape takes at least; 0 for dtypes without a size."""
    item = tensor_bytes(replace(output, shape=()))
    if item is None:
        return 0
    counts = [math.prod(size or 1 for size in p.shape or ()) for p in (output, *info.inputs)]
    return item * max(counts)


def extract(
    source: Any,
    *,
    tag_set: str | None = None,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    batch_size: int | None = None,
    shapes: Mapping[str, NamedShape] | None = None,
    dims: Mapping[str, int] | None = None,
    allow_unsafe_keras: bool = False,
    division: Division | None = None,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
) -> Extraction:
    """The flat graph of a model, with shapes, variables, colocation groups and bodies.

    ``source`` is a path (SavedModel folder, GraphDef, MetaGraphDef, checkpoint with its ``.meta``,
    Keras file, also remote), a ConcreteFunction, a ``tf.function``, a Keras model, a GraphDef or a
    ``tf.Graph``.  ``batch_size`` binds unknown
    leading dimensions of the inputs, ``shapes`` maps an input's key (or any op of the flat graph)
    to its shape, in which a dimension may be ``None`` (as declared) or a name out of ``dims``.

    A file is read by a child process with a time limit, so that this process imports no
    TensorFlow and no file can bring it down.  Live sources are flattened here, and analysed by a
    child only if dimensions are unknown.  A Keras file that would run code of its own is refused
    unless ``allow_unsafe_keras``.  With ``division`` the graph is that of the program in parts.

    Raises :class:`ModelError` for a model that cannot be read, :class:`UsageError` for a request
    that does not fit it, :class:`ShapeError` for bindings that do not fit it.
    """
    from placer.extraction.child_process import run_child
    from placer.extraction.dimensions import resolve_shapes

    sizes, named = resolve_shapes(shapes, dims)
    binding: dict[str, Any] = {"batch_size": batch_size, "shapes": sizes, "dims": named}
    task = {"division": division, **binding}
    if isinstance(source, str | os.PathLike):
        from placer.extraction.local_models import local_model

        chosen = {"tag_set": tag_set, "signature": signature, "outputs": outputs}
        with local_model(source, allow_unsafe_keras=allow_unsafe_keras, weights=False) as model:
            request = {"path": str(model.path), **chosen, **task}
            return model.describe(run_child(request, time_limit_seconds))

    from placer.extraction.analysis import analyse_program
    from placer.extraction.binding import capture_states, needs_binding
    from placer.extraction.dividing import divided
    from placer.extraction.divisibility import with_inputs
    from placer.extraction.loading import load_program
    from placer.extraction.portable_programs import pack_program

    program = load_program(source, tag_set=tag_set, signature=signature, outputs=outputs)
    captures = capture_states(program)
    if division is not None:
        division = with_inputs(division, program, sizes)
        parts = pack_program(divided(program, division), captures)
        request = {"program": parts, "whole": pack_program(program, captures), **task}
        return run_child({**request, "division": division}, time_limit_seconds)
    if not needs_binding(program) and not sizes:
        return analyse_program(program, captures, **binding)
    return run_child({"program": pack_program(program, captures), **task}, time_limit_seconds)
