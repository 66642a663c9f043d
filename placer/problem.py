"""The placement problem as plain data: what a solver sees, and nothing else.

Ops and devices are numbered; every sequence is indexed by those numbers.  The format is stable
and written as JSON (``placer solve`` reads it), so that solvers can be compared without
TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = "placer.problem/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemTensor:
    """One tensor: ``bytes`` are sent once to every device, other than the producer's, that reads
    it.  ``producer`` and ``consumers`` are op numbers."""

    producer: int
    consumers: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """Where should each op run?

    ``op_names`` and ``device_names`` give the numbers a meaning.

    Per op: ``resident_bytes`` (weights, constants), ``temporary_bytes``, ``seconds`` (one entry
    per device), ``group`` (ops with the same number share a device), ``allowed`` (device numbers
    the op may use, spilling aside) and ``spillable`` (it may go to ``host`` when the accelerators
    cannot hold everything).

    Per device: ``capacity_bytes``.

    ``live_bytes`` are moments of the step: each maps op numbers to the bytes of their outputs
    that are alive at that moment.  At every moment the resident bytes plus the live bytes of the
    ops on a device must stay within its capacity; with no moments, the resident bytes alone.
    ``transient_bytes`` are reserved per device beside them (receive buffers, temporaries), as
    found by the prediction.

    ``control_edges`` are (before, after) pairs of op numbers.  ``bandwidth`` and ``latency`` are
    matrices, source device by target device, in bytes/s and seconds.  ``host`` is the number of
    ``CPU:0``; ``spill`` is ``"auto"`` or ``"never"``.
    """

    op_names: tuple[str, ...]
    device_names: tuple[str, ...]
    host: int
    resident_bytes: tuple[int, ...]
    temporary_bytes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    group: tuple[int, ...]
    allowed: tuple[tuple[int, ...], ...]
    spillable: tuple[bool, ...]
    tensors: tuple[ProblemTensor, ...]
    control_edges: tuple[tuple[int, int], ...]
    capacity_bytes: tuple[int, ...]
    transient_bytes: tuple[int, ...]
    live_bytes: tuple[Mapping[int, int], ...]
    bandwidth: tuple[tuple[float, ...], ...]
    latency: tuple[tuple[float, ...], ...]
    objective: str = "transfer"
    spill: str = "auto"

    def placement(self, device_of: Sequence[int]) -> dict[str, str]:
        """Op name -> device name, from one device number per op."""
        return {
            name: self.device_names[device]
            for name, device in zip(self.op_names, device_of, strict=True)
        }


def to_json(problem: PlacementProblem) -> str:
    """The problem as JSON text with sorted keys."""
    return json.dumps({"schema": SCHEMA, **asdict(problem)}, sort_keys=True)


def from_json(text: str) -> PlacementProblem:
    """The problem written by :func:`to_json`.

    Raises ``ValueError`` if the text is not a problem of this schema.
    """
    data: dict[str, Any] = json.loads(text)
    if data.pop("schema", None) != SCHEMA:
        raise ValueError(f"not a {SCHEMA} document")

    def tuples(value: Any) -> Any:
        return tuple(tuples(item) for item in value) if isinstance(value, list) else value

    tensors = tuple(
        ProblemTensor(
            producer=row["producer"], consumers=tuple(row["consumers"]), bytes=row["bytes"]
        )
        for row in data.pop("tensors")
    )
    live_bytes = tuple(
        {int(op): size for op, size in moment.items()} for moment in data.pop("live_bytes")
    )
    plain = {key: tuples(value) for key, value in data.items()}
    return PlacementProblem(tensors=tensors, live_bytes=live_bytes, **plain)
