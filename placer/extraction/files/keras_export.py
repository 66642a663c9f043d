"""A Keras file becomes a SavedModel; only in a child process, because it runs the file's code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from placer.errors import ModelError
from placer.extraction.files.keras_files import (
    foreign_code,
    foreign_files,
    keras_suffix,
    keras_version,
    modernised,
    read_config,
)
from placer.extraction.files.model_paths import ALLOW_UNSAFE

_MOST_REASONS, _MOST_CHARACTERS = 3, 300

_INNER = "Exception encountered:"
"""Comes before the reason in what Keras says of a layer, after all of its configuration."""


def require_safe(path: Path) -> None:
    """Raises :class:`ModelError` if loading a Keras file would run code not of Keras, or read other
    files."""
    found = foreign_code(read_config(path))
    found += [] if found else foreign_files(path)
    if not found:
        return
    more = f" and {len(found) - _MOST_REASONS} more" if len(found) > _MOST_REASONS else ""
    raise ModelError(
        f"{str(path)!r} would run code of its own or read other files when it is loaded: "
        f"{'; '.join(found[:_MOST_REASONS])}{more}; {ALLOW_UNSAFE}"
    )


def export_keras_file(path: Path, target: Path, folder: Path, *, allow_code: bool) -> None:
    """Writes the inference of the model in a Keras file as a SavedModel to ``target``.

    The signature ``serving_default`` has the model's inputs, their batch unknown.  ``folder`` is
    for temporary files.  Without ``allow_code`` Keras's own safe mode is on, in
    addition to :func:`require_safe`.  Raises :class:`ModelError` for what Keras cannot load.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras

    keras.utils.disable_interactive_logging()  # Keras 3.5 has no verbose=False for export()
    try:
        model = keras.saving.load_model(
            _loadable(path, folder), compile=False, safe_mode=not allow_code
        )
    except MemoryError:
        raise
    except Exception as error:  # Keras raises anything, from KeyError to a marshal ValueError
        wrote = keras_version(path)
        raise ModelError(
            f"Keras {keras.__version__} cannot load {str(path)!r}"
            f"{f', which Keras {wrote} wrote' if wrote else ''}: {type(error).__name__}: "
            f"{_reason(error)}; build the model in Python and pass it on, or export it with the "
            "Keras that wrote it"
        ) from error
    _export(model, path, target)


def _export(model: Any, path: Path, target: Path) -> None:
    if not getattr(model, "inputs", None):
        raise ModelError(
            f"{str(path)!r} does not say what its model takes: build it in Python, call it once, "
            "and pass it on"
        )
    try:
        model.export(str(target))
    except MemoryError:
        raise
    except Exception as error:  # tracing runs the layers' own code
        raise ModelError(
            f"the model in {str(path)!r} loads, but cannot be traced: {_reason(error)}"
        ) from error


def _reason(error: Exception) -> str:
    """Returns what an error says, on one line: the innermost reason whole as far as there is room,
    what Keras says before it (a layer with its configuration) cut."""
    text = " ".join(str(error).split())
    told, found, inner = text.rpartition(_INNER)
    if not found:
        return text[: 2 * _MOST_CHARACTERS]
    return f"{told[:_MOST_CHARACTERS].rstrip()} ... {inner.strip()[-_MOST_CHARACTERS:]}"


def _loadable(path: Path, folder: Path) -> Path:
    """The file under a name that Keras recognises; a modernised copy where it needs one."""
    config = read_config(path)
    link = folder / f"model{keras_suffix(path)}"
    new = modernised(config)
    if link.suffix != ".h5" or new == config:
        link.symlink_to(path.resolve())
        return link
    import h5py

    shutil.copyfile(path, link)
    with h5py.File(link, "r+") as file:
        file.attrs["model_config"] = json.dumps(new)
    return link
