"""Files that are kept: read as text, and held against the JSON Schema shipped with the package."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from placer.errors import UsageError, reason_of

_SUFFIX = ".schema.json"


def load_schema(name: str) -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of ``plan``, ``report``, ``verification``, ``auto``,
    ``costs``, ``problem``, ``solution``, ``rematerialisation`` or
    ``rematerialisation-solution``.  Raises ``UsageError`` for another name."""
    file = Path(__file__).with_name(f"{name}{_SUFFIX}")
    if not file.is_file():
        known = sorted(each.name.removesuffix(_SUFFIX) for each in file.parent.glob(f"*{_SUFFIX}"))
        raise UsageError(f"there is no schema {name!r}; there are {', '.join(known)}")
    text = file.read_text(encoding="utf-8")
    schema: dict[str, object] = json.loads(text)
    return schema


def read_kept(path: str | os.PathLike[str], what: str) -> str:
    """The text of a file.  Raises ``UsageError`` if there is none, or it is no text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except TypeError as error:
        raise UsageError(f"the {what} must be the path of a file; got {path!r}") from error
    except OSError as error:
        told = f"cannot read the {what} {os.fspath(path)}: {reason_of(error)}"
        raise UsageError(told) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read the {what} {os.fspath(path)}: it is not text, so it is not a {what} "
            "(is it a model?)"
        ) from error


def parse_json(text: str, source: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The content of a JSON text.  Raises ``UsageError`` with the place where it breaks."""
    try:
        return json.loads(text, parse_constant=parse_constant)
    except json.JSONDecodeError as error:
        raise broken_json(source, error) from error
    except (ValueError, RecursionError) as error:  # a number, or a nesting, beyond any document
        raise UsageError(f"{source} cannot be read as JSON: {error}") from error


def broken_json(source: str, error: json.JSONDecodeError) -> UsageError:
    """Returns the error with line and column."""
    place = f"line {error.lineno}, column {error.colno}"
    return UsageError(f"{source} is broken JSON at {place}: {error.msg}")


def require_fit(data: object, name: str, version: str, source: str) -> None:
    """Raises ``UsageError`` with the place of the first difference if ``data`` does not fit the
    schema of ``name``."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(load_schema(name)).iter_errors(data))
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path) or "the top level"
        raise UsageError(f"{source} does not fit the schema {version} at {place}: {error.message}")
