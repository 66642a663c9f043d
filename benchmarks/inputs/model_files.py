"""The models under a folder: SavedModel folders, and every other file by itself."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
CASES = Path(__file__).with_name("cases.toml")


@dataclass(frozen=True)
class Model:
    """A model file and how it has to be asked for.

    ``name`` is its path in the folder, or what ``cases.toml`` calls a second way to ask for it.
    ``options`` bind and choose (every command but verify takes them), ``reason`` says why they are
    needed.  ``out`` says why a file is left out of the second table although it may run,
    ``anyway`` that it is placed although it does not run by itself.
    """

    name: str
    path: Path
    options: tuple[str, ...] = ()
    reason: str = ""
    out: str = ""
    anyway: bool = False


def find_models(folder: Path) -> list[Model]:
    """Every model under ``folder``, in the order of the names; one that is asked for in several
    ways several times."""
    cases: dict[str, Any] = tomllib.loads(CASES.read_text())
    names = [path.relative_to(folder).as_posix() for path in _paths(folder)]
    more = [name for name, case in cases.items() if case.get("file") in names]
    return [_model(name, folder, cases.get(name, {})) for name in sorted([*names, *more])]


def _paths(folder: Path) -> Iterator[Path]:
    if any((folder / name).exists() for name in SAVED_MODEL_FILES):
        yield folder
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _paths(path)
        else:
            yield path


def _model(name: str, folder: Path, case: dict[str, Any]) -> Model:
    return Model(
        name=name,
        path=folder / case.get("file", name),
        options=tuple(case.get("options", ())),
        reason=case.get("reason", ""),
        out=case.get("out", ""),
        anyway=case.get("anyway", False),
    )
