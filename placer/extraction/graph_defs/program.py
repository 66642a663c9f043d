"""Programs: as they are found, and flat, as extraction reads and application writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cost_models.op_info import Shape
from placer.extraction.graph_defs.flat_nodes import Contents
from placer.extraction.graph_defs.op_definitions import OpDefinitions
from placer.extraction.graph_defs.protobufs import Captures, StoredShapes
from placer.graph.op_graph import Variable
from placer.graph.program_source import Warning_
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.graph.stored_variables import StoredVariables
from placer.graph.tensor_names import op_of

if TYPE_CHECKING:
    from placer.extraction.division.division import Division


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositePart:
    """Which part of a ragged or sparse tensor is fed: TensorFlow feeds these part by part.

    ``of`` is the name of the whole, ``shape`` its shape as declared.  ``role`` is ``flat_values``
    or ``row_splits`` (``level`` 0 are the outermost) of a ragged tensor, ``indices``, ``values`` or
    ``dense_shape`` of a sparse one.
    """

    of: str
    role: str
    level: int = 0
    shape: Shape = None

    @property
    def is_ragged(self) -> bool:
        """Whether the whole is ragged; else it is sparse."""
        return self.role in ("flat_values", "row_splits")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramInput:
    """One value fed at every step: ``key`` is the signature's or argument's name, ``tensor`` the
    flat placeholder (``"serving_default_x:0"``), ``shape`` as declared (before binding), ``part``
    what it is of a ragged or sparse tensor."""

    key: str
    tensor: str
    dtype: str
    shape: tuple[int | None, ...] | None
    part: CompositePart | None = None

    @property
    def op(self) -> str:
        """The flat op that is fed."""
        return op_of(self.tensor)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A GraphDef, what is fed to it, what is asked of it, and where it came from.

    ``outputs`` are (key, tensor) pairs, ``targets`` ops that run for their side effects,
    ``chosen_outputs`` the outputs that were asked for by name.  ``source_format`` is
    ``saved_model``, ``graph_def``, ``function``, ``keras`` or ``graph``; ``path``, ``signature``
    and ``tags`` say where it came from.  ``captures`` maps placeholders to live tensors and
    handles (live functions only), ``stripped_ops`` are the op definitions stored in the file, and
    ``warnings`` are (code, message, ops).  ``find_stored`` says of the flat program what loaders of
    the file restore, ``find_unwritten`` which handles of a SavedModel only its restore op writes.
    """

    graph_def: Any
    inputs: tuple[ProgramInput, ...]
    outputs: tuple[tuple[str, str], ...]
    targets: tuple[str, ...] = ()
    source_format: str = "graph_def"
    path: str = ""
    signature: str = ""
    tags: tuple[str, ...] = ()
    chosen_outputs: tuple[str, ...] = ()
    stripped_ops: tuple[Any, ...] = ()
    captures: Captures = field(default_factory=dict)
    warnings: tuple[Warning_, ...] = ()
    find_stored: Callable[[FlatProgram], StoredVariables] | None = None
    find_unwritten: Callable[[], set[str]] | None = None

    @property
    def definitions(self) -> OpDefinitions:
        """The definitions of its op types and functions."""
        return OpDefinitions(self.stripped_ops, self.graph_def.library.function)


@dataclass(frozen=True, kw_only=True)
class RawProgram(Program):
    """A program before its calls are inlined: its GraphDef has a library.

    Tensor and op names are those of ``graph_def``.  ``variable_names`` maps the ``id`` of a live
    handle to the name of its variable, ``declared_shapes`` variable names to the shapes that a file
    declares apart from the graph.  ``captures_constants`` says that calls capture the
    main graph's constants as values, as in SavedModels of TensorFlow 2, ``checks_all_ops`` that
    all ops of the main graph have to be what their definitions say, reached or not.
    """

    captures_constants: bool = False
    checks_all_ops: bool = False
    variable_names: Mapping[int, str] = field(default_factory=dict)
    declared_shapes: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FlatProgram(Program):
    """One GraphDef without function calls that does what the chosen outputs ask for.

    ``graph_def`` holds the flat nodes in topological order, pruned to what ``outputs`` and
    ``targets`` reach, and a library with only what functional control flow and datasets still
    call.  A body op becomes ``callnode/bodynode``; the call becomes a NoOp that carries its
    control edges.  ``origins`` maps a flat name to (function, node), function ``""`` being the
    main graph, and ``call_path`` a flat name to the call nodes above it, outermost first, as
    (function, node) pairs.  ``captured_constants`` are constants of the main graph that
    ``tf.saved_model.load`` captures as values, which the caller holds on the host.
    ``fingerprint`` hashes the flat graph without devices, ``_class``, ``_output_shapes`` and
    function names, so it is the same before and after a placement was applied.  ``contents`` has
    op type, device and attributes of the nodes as bytes, for finding those that are alike; a
    program made out of another one has none.  ``stored_shapes`` keeps the ``_output_shapes`` that
    the file had (TensorShapeProtos by flat name).  ``ops_in_file`` and ``functions_in_file``
    count what is there, reached or not.  ``division`` is how the batch of the program ``original``
    was divided, ``rewriting`` how that was rewritten.
    """

    origins: Mapping[str, tuple[str, str]]
    call_path: Mapping[str, tuple[tuple[str, str], ...]]
    variables: tuple[Variable, ...] = ()
    captured_constants: tuple[str, ...] = ()
    fingerprint: str = ""
    contents: Contents = field(default_factory=Contents)
    stored_shapes: StoredShapes = field(default_factory=dict)
    ops_in_file: int
    functions_in_file: int
    division: Division | None = None
    rewriting: Rewriting = NO_REWRITING
    original: FlatProgram | None = None
    left_over: Mapping[str, str] = field(default_factory=dict)

    @property
    def fed_ops(self) -> frozenset[str]:
        """The flat ops that are fed at every step."""
        return frozenset(item.op for item in self.inputs)

    @property
    def copies(self) -> frozenset[str]:
        """The handles of copies of variables, which the undivided program lacks."""
        known = (self.original or self).variables
        return frozenset({v.handle for v in self.variables} - {v.handle for v in known})

    @property
    def output_ops(self) -> list[str]:
        """The flat op of each output."""
        return [op_of(tensor) for _, tensor in self.outputs]
