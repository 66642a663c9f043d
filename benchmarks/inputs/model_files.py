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

    ``name`` is its path in the folder.  ``options`` bind and choose (every command but verify
    takes them), ``place`` are for ``placer place`` alone; ``reason`` says why they are needed.
    ``out`` says why a file is left out of the second table although it may run, ``anyway`` that
    it is placed although it does not run by itself.
    """

    name: str
    path: Path
    options: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    reason: str = ""
    out: str = ""
    anyway: bool = False


def find_models(folder: Path) -> list[Model]:
    """Every model under ``folder``, in the order of the names."""
    cases: dict[str, Any] = tomllib.loads(CASES.read_text())
    return [_model(path, folder, cases) for path in sorted(_paths(folder))]


def _paths(folder: Path) -> Iterator[Path]:
    if any((folder / name).exists() for name in SAVED_MODEL_FILES):
        yield folder
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _paths(path)
        else:
            yield path


def _model(path: Path, folder: Path, cases: dict[str, Any]) -> Model:
    name = path.relative_to(folder).as_posix()
    case = cases.get(name, {})
    return Model(
        name=name,
        path=path,
        options=tuple(case.get("options", ())),
        place=tuple(case.get("place", ())),
        reason=case.get("reason", ""),
        out=case.get("out", ""),
        anyway=case.get("anyway", False),
    )
