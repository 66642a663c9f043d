"""Results as JSON: stable, sorted keys, bytes and seconds as plain numbers."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def to_json(value: Any) -> str:
    """Any record, mapping or sequence as JSON text with sorted keys.

    A record with a ``to_json()`` of its own (such as a plan) is what that gives.  Of others these
    are its fields (but those with ``in_file`` false in their metadata), the properties that its
    type names in ``IN_JSON``, and its ``SCHEMA`` where it has one.
    """
    return json.dumps(_plain(value), sort_keys=True, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        own = value.to_json()
        return json.loads(own) if isinstance(own, str) else own
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_dataclass(value):
        names = [item.name for item in fields(value) if item.metadata.get("in_file", True)]
        names += getattr(value, "IN_JSON", ())
        schema = {"schema": value.SCHEMA} if hasattr(value, "SCHEMA") else {}
        return schema | {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
