"""The result of reading a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import getfullargspec
from typing import TYPE_CHECKING, Any, TypedDict

from cost_models.op_info import OpInfo, Shape, TensorProperties
from cost_models.tensor_size import spell_shape, tensor_bytes
from placer.errors import ChoiceError, UsageError, unknown_option
from placer.extraction.graph_defs.program import ProgramInput
from placer.graph.op_graph import OpGraph
from placer.graph.program_source import Bindings, ModelSource, Warning_
from placer.graph.stored_variables import NOTHING_STORED, StoredVariables

if TYPE_CHECKING:
    import networkx

UNBOUND_BATCH = "unbound_batch"
"""The code of the warning of a batch size that binds nothing."""


class ProgramChoice(TypedDict):
    """Which program of a file is meant, as keyword arguments of :func:`placer.extract`."""

    tag_set: str | None
    signature: str | None
    outputs: Sequence[str] | None


def choice_of(model: ModelSource, **given: Any) -> ProgramChoice:
    """Which program of its file ``model`` is, unless ``given`` says otherwise.

    >>> choice_of({"tags": ["serve"], "signature": "f"}, outputs=["y"])
    {'tag_set': 'serve', 'signature': 'f', 'outputs': ['y']}
    """
    return ProgramChoice(
        tag_set=tag_set_of(model) if given.get("tag_set") is None else given["tag_set"],
        signature=given.get("signature") or model.get("signature") or None,
        outputs=given.get("outputs") or model.get("outputs") or None,
    )


def require_choice(given: Iterable[str], function: Callable[..., Any]) -> None:
    """Raises :class:`UsageError` for a keyword argument that is no choice of a program, with the
    nearest of those that ``function`` takes."""
    own = getfullargspec(function)
    known = [*ProgramChoice.__annotations__, *own.args, *own.kwonlyargs]
    for name in given:
        if name not in ProgramChoice.__annotations__:
            raise unknown_option(name, known)


@contextmanager
def of_plan(model: ModelSource | None) -> Iterator[None]:
    """Has the error of a choice that a source lacks say that the ``model`` of the plan, if there is
    a plan, is another one."""
    try:
        yield
    except ChoiceError as error:
        if model is None:
            raise
        own = model["path"] or "another program"
        raise UsageError(f"the plan is of {own}, and not of this model: {error}") from error


def tag_set_of(model: ModelSource) -> str | None:
    """The tags of the MetaGraph that ``model`` is, comma-separated; ``None`` if it has none because
    it is no MetaGraph of a SavedModel.

    >>> tag_set_of({"format": "saved_model", "tags": []}), tag_set_of({"tags": []})
    ('', None)
    """
    tags = model.get("tags")
    return ",".join(tags or ()) if tags or model.get("format") == "saved_model" else None


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """A model as it was read: the flat graph, and what was found beside it.

    ``model`` says where it came from (path, format, signature, tags, sha256 of the main file,
    fingerprint), ``bindings`` what its unknown dimensions were bound to, ``inputs`` and ``outputs``
    (key, tensor) what it is fed and gives.  ``left_over`` are the sinks that are not fetched, where
    nobody said which are outputs, and why (:mod:`placer.extraction.reading.sinks`).
    ``unknown`` are the tensors whose bytes stay unknown although their dtype has a size (those of
    bodies as ``body/op:0``), ``unknown_roots`` the ops at which shapes get lost.  ``stored`` is
    what loaders of the file restore.  ``ops_in_file`` counts the ops of the whole file, functions
    included.
    """

    graph: OpGraph
    model: ModelSource
    bindings: Bindings
    inputs: tuple[ProgramInput, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    left_over: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    unknown_roots: tuple[str, ...] = ()
    warnings: tuple[Warning_, ...] = ()
    stored: StoredVariables = NOTHING_STORED
    ops_in_file: int
    functions_in_file: int
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
    def has_fixed_batch(self) -> bool:
        """Whether a batch size was given, and the program has none to set."""
        return any(code == UNBOUND_BATCH for code, *_ in self.warnings)

    @property
    def open_shapes(self) -> dict[str, str]:
        """The shape to give for every input that the batch size alone does not bind, by its key;
        ragged and sparse inputs aside."""
        return {
            item.key: spell_shape(shape, "?")
            for item in self.inputs
            if item.part is None and (shape := self.bound_shape(item)) and None in shape[1:]
        }

    def bound_shape(self, item: ProgramInput) -> Shape:
        """The shape of an input with what was set for it."""
        op = self.graph.ops.get(item.op)
        return op.info.outputs[0].shape if op else item.shape

    @property
    def networkx(self) -> networkx.MultiDiGraph[str]:
        """The flat graph for researchers; see :attr:`OpGraph.networkx`."""
        return self.graph.networkx


def _least_bytes(info: OpInfo, output: TensorProperties) -> int:
    """Returns the least bytes of an output of unknown shape; 0 for dtypes without a size."""
    item = tensor_bytes(replace(output, shape=()))
    if item is None:
        return 0
    counts = [math.prod(size or 1 for size in p.shape or ()) for p in (output, *info.inputs)]
    return item * max(counts)
