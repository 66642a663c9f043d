"""Where a program came from and what its shapes were bound to, as JSON holds them."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

Warning_ = tuple[str, str, tuple[str, ...]]
"""A code, a message, and the ops it is about."""


class DivisionFacts(TypedDict):
    """How the batch is divided; ``variables`` are absent if the parts share all of them."""

    parts: int
    in_flight: int
    scope: str
    inputs: list[str]
    variables: NotRequired[list[str]]


class TrainingDivisionFacts(TypedDict):
    """How a Keras training step is divided, and whether its parts give what the whole gives."""

    towers: list[list[str]]
    speeds: list[float] | None
    pieces: int
    in_flight: int
    replicated: bool
    is_exact: bool
    is_proved: NotRequired[bool]


class ModelSource(TypedDict, total=False):
    """The file that a program was read from, and which program of it.

    ``path`` is as it was given, empty for a live program; ``fingerprint`` is of the flat graph
    without devices, ``inputs`` are what is fed, by key, ``sha256`` is of the main file.
    ``division`` is absent if the batch is whole, as is ``training_division`` if it is not divided
    where a Keras training step is traced, ``splits`` (variables, into how many parts) if no table
    is split.
    """

    path: str
    format: str
    signature: str
    tags: list[str]
    outputs: list[str]
    sha256: str | None
    fingerprint: str
    inputs: list[str]
    division: DivisionFacts
    training_division: TrainingDivisionFacts
    splits: dict[str, int]


class Access(TypedDict):
    """Permissions of a model out of a file beside being read: run Python and touch files of others,
    and lead out of its folder by links."""

    allow_unsafe: bool
    follow_links: bool


class Bindings(TypedDict, total=False):
    """The sizes that unknown dimensions were bound to; a name in ``dims`` has its ``size``, and the
    axes (``of``) that it was given to; ``ragged`` are rows and mean lengths of ragged and sparse
    inputs."""

    batch_size: int | None
    shapes: Mapping[str, Sequence[int | None]]
    dims: Mapping[str, Mapping[str, object]]
    ragged: Mapping[str, Sequence[int | None]]
