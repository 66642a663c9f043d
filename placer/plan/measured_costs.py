"""Measured op costs: what ``placer profile`` writes and ``--costs`` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from placer.errors import UsageError
from placer.files import write_text

SCHEMA = "placer.costs/1"


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """What ``costs.json`` holds (see the JSON Schema): the times of one graph on one machine.

    ``ops`` has, for every op of the flat graph that ran, seconds of one execution: the
    ``median_seconds`` of the steps and the ``least_seconds``; a loop has those of all that it ran.
    ``step`` has the wall-clock time of whole steps that were not traced, and the processor time
    that they took.  ``device_type`` is what the times are for (``CPU``).  A file written by hand
    may leave out all but ``schema``, ``ops`` and ``device_type``.
    """

    ops: Mapping[str, Mapping[str, float]]
    device_type: str = "CPU"
    model: Mapping[str, Any] = field(default_factory=dict)
    bindings: Mapping[str, Any] = field(default_factory=dict)
    step: Mapping[str, float] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    tensorflow_version: str = ""
    tool_version: str = ""

    @property
    def op_seconds(self) -> dict[str, float]:
        """The median time of one execution by op name."""
        return {name: float(times["median_seconds"]) for name, times in self.ops.items()}

    def check_graph(self, fingerprint: str, source: str) -> None:
        """Nothing, if the times are of the graph with this fingerprint.

        Raises ``UsageError`` if they are of another one; a file without a fingerprint fits any.
        """
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
        """Nothing; ``path`` then holds the costs.

        Raises ``UsageError`` if the file exists and ``force`` is false.
        """
        write_text(path, self.to_json(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MeasuredCosts:
        """The costs in a file.  Raises ``UsageError`` if there is none or it is not one."""
        source = os.fspath(path)
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse)
        except OSError as error:
            told = error.strerror or error
            raise UsageError(f"cannot read the costs {source}: {told}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{source} cannot be read as JSON: {error}") from error
        _check_schema(data, source)
        del data["schema"]
        return cls(**data)


def costs_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``costs.json``, as shipped with the package."""
    schema: dict[str, Any] = json.loads(
        Path(__file__).with_name("costs.schema.json").read_text(encoding="utf-8")
    )
    return schema


def _refuse(constant: str) -> float:
    """No time is NaN or infinite."""
    raise ValueError(f"{constant} is no time")


def _check_schema(data: Any, source: str) -> None:
    """Nothing, if ``data`` fits the schema of this version.  Raises ``UsageError``."""
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise UsageError(
            f'{source} is no costs file: its "schema" is {found!r}, not "{SCHEMA}"; write one with '
            f"placer profile"
        )
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(costs_schema()).iter_errors(data))
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path) or "the top level"
        raise UsageError(f"{source} does not fit the schema {SCHEMA} at {place}: {error.message}")


GRAPPLER = "grappler"
"""What ``costs`` says to have TensorFlow's Grappler predict the times of ops."""

Costs = MeasuredCosts | Mapping[str, float] | str | os.PathLike[str] | None
"""Measured costs, seconds by op name, ``"grappler"``, the path of a costs file, or nothing."""
