"""Measured op costs: what ``placer profile`` writes and ``--costs`` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from placer.errors import UsageError
from placer.files import write_text
from placer.graph.program_source import Bindings, ModelSource
from placer.plan.results import Summarised
from placer.plan.schemas import parse_json, read_kept, require_fit

SCHEMA = "placer.costs/1"


@dataclass(frozen=True, kw_only=True, repr=False)
class MeasuredCosts(Summarised):
    """The content of ``costs.json`` (see the JSON Schema): the times of one graph on one machine.

    ``ops`` has, for every op of the flat graph that ran, seconds of one execution: the
    ``median_seconds`` of the steps and the ``least_seconds``; a loop has those of all that it ran.
    ``step`` has the wall-clock time of whole steps that were not traced, and the processor time
    that they took.  ``device_type`` is what the times are for; an op that ran on another type has
    its own.  A file written by hand may leave out all but ``schema``, ``ops`` and ``device_type``.

    Times out of a profiler's trace (``trace`` says of what) come with ``memory``, what the
    allocator of each device gave out, and ``predicted_memory``, the peak of the whole program on
    one device.
    """

    ops: Mapping[str, Mapping[str, Any]]
    device_type: str = "CPU"
    model: ModelSource = field(default_factory=ModelSource)
    bindings: Bindings = field(default_factory=Bindings)
    step: Mapping[str, float] = field(default_factory=dict)
    configuration: Mapping[str, int] = field(default_factory=dict)
    machine: Mapping[str, str | int] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    predicted_memory: Mapping[str, int] = field(default_factory=dict)
    tensorflow_version: str = ""
    tool_version: str = ""

    @property
    def op_seconds(self) -> dict[str, float]:
        """The median time of one execution by op name."""
        return {name: float(times["median_seconds"]) for name, times in self.ops.items()}

    @property
    def seconds_by_type(self) -> dict[str, dict[str, float]]:
        """The median time of one execution by type of device and op name."""
        found: dict[str, dict[str, float]] = {self.device_type: {}}
        for name, times in self.ops.items():
            kind = times.get("device_type", self.device_type)
            found.setdefault(kind, {})[name] = float(times["median_seconds"])
        return found

    def check_graph(self, fingerprint: str, source: str) -> None:
        """Raises ``UsageError`` if the times are of a graph with another fingerprint; a file
        without one fits any."""
        own = self.model.get("fingerprint") or fingerprint
        if own != fingerprint:
            raise UsageError(
                f"{source} was measured on another graph: {self.model.get('path') or 'a model'} "
                f"with fingerprint {own[:12]}, and this one has {fingerprint[:12]}; measure this "
                f"model with placer profile (the signature, outputs and shapes matter too)"
            )

    def to_json(self) -> str:
        """The content of ``costs.json``: sorted keys, a newline at the end."""
        data = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps({"schema": SCHEMA, **data}, sort_keys=True, indent=1, default=dict) + "\n"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Writes the costs to ``path``.

        Raises ``UsageError`` if the file exists and ``force`` is false.
        """
        write_text(path, self.to_json(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MeasuredCosts:
        """The costs in a file.  Raises ``UsageError`` if there is none or it is not one."""
        source, text = os.fspath(path), read_kept(path, "costs")
        data = parse_json(text, source, _refuse)
        _check_schema(data, source)
        del data["schema"]
        return cls(**data)


def _refuse(constant: str) -> float:
    """No time is NaN or infinite."""
    raise ValueError(f"{constant} is not a time")


def _check_schema(data: Any, source: str) -> None:
    """Raises ``UsageError`` unless ``data`` fits the schema of this version."""
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise UsageError(f'{source} is not a costs file: its "schema" is {found!r}, not "{SCHEMA}"')
    require_fit(data, "costs", SCHEMA, source)


Costs = MeasuredCosts | Mapping[str, float] | str | os.PathLike[str] | None
"""Measured costs, seconds by op name, the path of a costs file, or nothing."""
