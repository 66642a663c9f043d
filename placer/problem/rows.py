"""Records as ``plan.json`` holds them."""

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, ClassVar, Self


class Kept:
    """A record whose fields may have other keys in ``plan.json``."""

    __slots__ = ()

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """The row in a JSON object; keys that this version does not know are left out."""
        names = {key_of(item): item.name for item in fields(cls)}  # type: ignore[arg-type]
        values = {names[key]: value for key, value in content.items() if key in names}
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


class Row(Kept):
    """A record that is in ``plan.json`` with all its fields, and the properties ``IN_JSON``."""

    __slots__ = ()
    IN_JSON: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that ``plan.json`` holds."""
        own = {key_of(item): getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return own | {name: getattr(self, name) for name in self.IN_JSON}


def key_of(item: Field[Any]) -> str:
    """The key of a field in ``plan.json``."""
    return str(item.metadata.get("key", item.name))
