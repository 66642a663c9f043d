"""The kernels that the installed TensorFlow has, in the format of ``cost_models.kernels``.

    python benchmarks/inputs/kernel_snapshot.py -o cost_models/data/kernels.json

renews the snapshot.  It needs a TensorFlow built with CUDA, which lists its GPU kernels on any
machine; the ``tensorflow-cpu`` wheel lists none.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cost_models.kernels import SCHEMA

_DEVICES = ("CPU", "GPU", "DEFAULT")

_Constraints = tuple[tuple[str, frozenset[object]], ...]
"""The allowed values of each constrained attribute, sorted by its name."""

_Shared = tuple[str, str, int]
"""What kernels must have in common to be written as one: host arguments, label, priority."""


def registry_document() -> dict[str, Any]:
    """The registry of the installed TensorFlow as a JSON document.

    ``RuntimeError`` if it has no GPU kernels, because a snapshot of it would send every op to
    the host.
    """
    from tensorflow.python.framework import kernels, versions

    rows: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type in _DEVICES:
            rows[kernel.op][kernel.device_type].append(kernel)
    if not any("GPU" in by_device for by_device in rows.values()):
        raise RuntimeError(
            "this TensorFlow lists no GPU kernels; use a wheel built with CUDA (tensorflow, not "
            "tensorflow-cpu)"
        )
    definitions = op_definitions()
    interned: dict[frozenset[object], int] = {}
    ops = {op: _row(definitions.get(op), rows[op], interned) for op in sorted(rows)}
    return {
        "schema": SCHEMA,
        "tensorflow_version": versions.VERSION,
        "values": [sorted(values, key=str) for values in interned],
        "ops": ops,
    }


def op_definitions() -> dict[str, Any]:
    """All op definitions that this TensorFlow knows, by op type."""
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    listed = pywrap_tf_session.TF_GetAllOpList()
    ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(listed))
    return {op.name: op for op in ops.op}


def _row(
    definition: Any, by_device: Mapping[str, list[Any]], interned: dict[frozenset[object], int]
) -> dict[str, Any]:
    """One op type: its kernels per device, and of its definition what is needed to match them."""
    lists = _list_attributes(definition)
    row: dict[str, Any] = {
        device: [
            _kernel_row(constraints, shared, interned)
            for shared, constraints in _merged_kernels(by_device[device], lists)
        ]
        for device in _DEVICES
        if device in by_device
    }
    constrained = {key for device in row for kernel in row[device] for key in (kernel or [{}])[0]}
    if definition is not None and any(kernel for device in row for kernel in row[device]):
        row["in"] = " ".join(_argument(argument) for argument in definition.input_arg)
        row["out"] = " ".join(_argument(argument) for argument in definition.output_arg)
        row["defaults"] = {
            attribute.name: _attribute_value(attribute.default_value)
            for attribute in definition.attr
            if attribute.name in constrained and attribute.HasField("default_value")
        }
    return {key: value for key, value in row.items() if value}


def _list_attributes(definition: Any) -> frozenset[str]:
    """Attributes that hold lists; the kernels of two dtypes do not take a list of both."""
    attributes = () if definition is None else definition.attr
    return frozenset(a.name for a in attributes if a.type.startswith("list("))


def _kernel_row(
    constraints: _Constraints, shared: _Shared, interned: dict[frozenset[object], int]
) -> list[Any]:
    """``[constraints, host arguments, label, priority]`` without the defaults at its end."""
    allowed = {key: interned.setdefault(values, len(interned)) for key, values in constraints}
    row: list[Any] = [allowed, *shared]
    while row and not row[-1]:
        row.pop()
    return row


def _merged_kernels(
    kernels: Iterable[Any], lists: frozenset[str]
) -> list[tuple[_Shared, _Constraints]]:
    """Kernels that differ only in the values allowed for one attribute, written as one.

    Most ops register one kernel per dtype.
    """
    grouped: dict[_Shared, set[_Constraints]] = defaultdict(set)
    for kernel in kernels:
        shared = (" ".join(sorted(kernel.host_memory_arg)), kernel.label, kernel.priority)
        grouped[shared].add(_constraints(kernel))
    merged = [
        (shared, constraints)
        for shared, group in grouped.items()
        for constraints in _merge_attributes(group, lists)
    ]
    return sorted(merged, key=lambda row: (row[0], [(k, sorted(map(str, v))) for k, v in row[1]]))


def _merge_attributes(group: set[_Constraints], lists: frozenset[str]) -> set[_Constraints]:
    """The group after uniting, attribute by attribute, rows that agree in all other attributes."""
    for attribute in sorted({key for row in group for key, _ in row} - lists):
        united: dict[_Constraints, frozenset[object]] = defaultdict(frozenset)
        rest = {row for row in group if attribute not in dict(row)}
        for row in group - rest:
            others = tuple(pair for pair in row if pair[0] != attribute)
            united[others] |= dict(row)[attribute]
        group = rest | {
            tuple(sorted([*others, (attribute, values)])) for others, values in united.items()
        }
    return group


def _constraints(kernel: Any) -> _Constraints:
    """The kernel's constraints; an attribute that is constrained twice must fulfil both."""
    allowed: dict[str, frozenset[object]] = {}
    for constraint in kernel.constraint:
        values = frozenset(_list_values(constraint.allowed_values.list))
        allowed[constraint.name] = allowed.get(constraint.name, values) & values
    return tuple(sorted(allowed.items()))


def _list_values(values: Any) -> list[object]:
    from tensorflow.python.framework import dtypes

    if values.type:
        return [dtypes.as_dtype(dtype).name for dtype in values.type]
    return [*(text.decode() for text in values.s), *values.i, *values.b]


def _attribute_value(value: Any) -> object:
    """A default as JSON: a dtype's name, a text, a number, or a list of dtype names."""
    from tensorflow.python.framework import dtypes

    kind = value.WhichOneof("value")
    if kind == "type":
        return str(dtypes.as_dtype(value.type).name)
    if kind == "list":
        return _list_values(value.list)
    found = getattr(value, kind)
    return found.decode() if isinstance(found, bytes) else found


def _argument(argument: Any) -> str:
    parts = (argument.name, argument.type_attr, argument.number_attr, argument.type_list_attr)
    return ":".join(parts).rstrip(":")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def write_snapshot(path: Path) -> None:
    """Write the installed TensorFlow's registry to ``path``, one op type per line."""
    document = registry_document()
    ops = document.pop("ops")
    head = _compact(document)[:-1]
    lines = ",\n".join(f"{_compact(op)}:{_compact(row)}" for op, row in ops.items())
    path.write_text(f'{head},"ops":{{\n{lines}\n}}}}\n', encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Write the snapshot that ``-o`` names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    write_snapshot(parser.parse_args(arguments).output)


if __name__ == "__main__":
    main()
