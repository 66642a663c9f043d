"""Models as everything else reads them: a GraphDef, MetaGraphDef or SavedModel on this machine."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from placer.errors import ModelError, PlacerError, UsageError
from placer.extraction.files.keras_files import CONFIG_FILE, is_keras_file
from placer.extraction.files.model_paths import require_own_files, without_copies
from placer.extraction.files.sources import file_hash, model_file
from placer.extraction.process.child_process import (
    FetchRequest,
    KerasRequest,
    SplitRequest,
    make_local,
    memory_limit,
)
from placer.extraction.reading.checkpoint_index import ABSENT
from placer.graph.program_source import ModelSource
from placer.processes import LONG_SECONDS

if TYPE_CHECKING:
    from placer.extraction.extraction import Extraction

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def scheme_of(path: str) -> str:
    """``"gs"`` of ``gs://bucket/model``; ``""`` for a path on this machine.

    >>> scheme_of("gs://bucket/model"), scheme_of("/tmp/model")
    ('gs', '')
    """
    found = _SCHEME.match(path)
    return found.group(1).lower() if found else ""


def fetch_path(path: str, target: Path, *, weights: bool) -> None:
    """Copies a remote file or folder to the new path ``target``; only in a child process.

    Without ``weights`` the shards of variables, which analysis never reads, stay where they are.
    Raises :class:`ModelError` if there is no such path, or no file system for its scheme.
    """
    from tensorflow.python.framework import errors
    from tensorflow.python.lib.io import file_io

    try:
        if not file_io.file_exists_v2(path):
            raise ModelError(f"there is no file or folder {path!r}")
        if not file_io.is_directory_v2(path):
            file_io.copy_v2(path, str(target))
            return
        for folder, _, names in file_io.walk_v2(path):
            inside = target / folder.removeprefix(path).strip("/")
            if not inside.resolve().is_relative_to(target.resolve()):
                raise ModelError(f"{path!r} has the folder {folder!r}, which leads out of it")
            inside.mkdir(parents=True)
            for name in names:
                if weights or ".data-" not in name:
                    file_io.copy_v2(f"{folder.rstrip('/')}/{name}", str(inside / name))
    except errors.UnimplementedError as error:
        raise ModelError(
            f"this TensorFlow has no file system for {scheme_of(path)}:// ({error.message}): "
            f"copy {path!r} to this machine"
        ) from error
    except errors.OpError as error:
        told = error.message.partition("\n")[0].rpartition("error details: ")[2]
        raise ModelError(
            f"{path!r} cannot be read: {told}. Copy it to this machine and give the local path"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """Where a model was found and where it can be read.

    ``source`` is the path as given, ``original`` the file on this machine that holds it (a Keras
    file, say), ``path`` what to read: ``original`` or a SavedModel made of it, for which
    ``source_format`` says ``keras``.  ``splits`` are the variables that were split into parts, and
    how many; ``unsplit`` is the model before.
    """

    source: str
    original: Path
    path: Path
    source_format: str = ""
    splits: Mapping[str, int] = field(default_factory=dict)
    unsplit: Path | None = None

    @property
    def folder(self) -> str:
        """The folder that the model's files are in."""
        path = self.unsplit or self.path
        return str(path if path.is_dir() else path.absolute().parent)

    def describe(self, found: Extraction) -> Extraction:
        """``found`` in ``path``, described as what was given."""
        if str(self.path) == self.source:
            return found
        model: ModelSource = {**found.model, "path": self.source}
        if self.unsplit is not None:
            digest = file_hash(model_file(self.unsplit))
            model = {**model, "splits": dict(self.splits), "sha256": digest}
        weightless = [row for row in found.warnings if row[0] == ABSENT]
        if weightless and self._holds_weights():
            kept = tuple(row for row in found.warnings if row not in weightless)
            found = replace(found, warnings=kept)
        if self.source_format:
            folder = self.original.is_dir()
            file = self.original / CONFIG_FILE if folder else self.original
            model = {**model, "format": self.source_format, "sha256": file_hash(file)}
        return replace(found, model=model)

    def _holds_weights(self) -> bool:
        """Whether only the copy that was read goes without weights, as far as is known here."""
        if scheme_of(self.source) not in ("", "file"):
            return True
        return any((self.unsplit or self.path).glob("variables/*.data-*"))


@contextmanager
def local_model(
    source: str | os.PathLike[str],
    *,
    allow_unsafe: bool = False,
    follow_links: bool = False,
    weights: bool = True,
    runs: bool = False,
    splits: Mapping[str, int] | None = None,
) -> Iterator[LocalModel]:
    """The model behind a path, fetched or exported first where needed; copies go with the block.

    In a child process remote paths (``gs://bucket/model``) are fetched, without ``weights`` only
    what analysis reads, Keras files become SavedModels, and variables are split into as many parts
    as ``splits`` says.  Raises :class:`ModelError` where that fails, for a Keras file that would
    run code of its own unless ``allow_unsafe``, and for links out of the folder among what is read
    (all of it with ``weights``, or if it ``runs``) unless ``follow_links``; :class:`UsageError` for
    a program of this process.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            "give the path of a model, not an object of type "
            f"{type(source).__name__!r}: save the program first"
        )
    name = os.fspath(source)
    scheme = scheme_of(name)
    if scheme == "ram":
        raise UsageError(f"{name!r} exists in one process only: write the model to a disk")
    with tempfile.TemporaryDirectory(prefix="placer-model-") as folder, _named(name, folder):
        original = Path(name.partition("://")[2] if scheme == "file" else name)
        if scheme not in ("", "file"):
            original = Path(folder) / (Path(name).name or "model")
            request = FetchRequest(path=name, target=original, weights=weights)
            make_local(request, LONG_SECONDS)
        is_keras = is_keras_file(original)
        require_own_files(original, whole=weights or runs or is_keras, follow_links=follow_links)
        found = LocalModel(source=name, original=original, path=original)
        if is_keras:
            target = Path(folder) / "exported"
            files = original.iterdir() if original.is_dir() else [original]
            export = KerasRequest(
                path=original,
                target=target,
                allow_code=allow_unsafe,
                memory_limit_bytes=memory_limit(sum(file.stat().st_size for file in files)),
            )
            make_local(export, LONG_SECONDS)
            found = replace(found, path=target, source_format="keras")
        yield _split(found, splits or {}, Path(folder), weights=weights)


@contextmanager
def _named(name: str, folder: str) -> Iterator[None]:
    """Errors of the block name the model, and no copy of it in ``folder``."""
    try:
        yield
    except PlacerError as error:
        error.args = (without_copies(error.args[0], folder, name), *error.args[1:])
        raise


def _split(
    model: LocalModel, splits: Mapping[str, int], folder: Path, *, weights: bool
) -> LocalModel:
    """``model`` with its tables split, in ``folder``; itself if it is so already."""
    if not splits:
        return model
    target = folder / "split"
    size = model_file(model.path).stat().st_size
    request = SplitRequest(
        path=model.path,
        target=target,
        counts=splits,
        weights=weights,
        memory_limit_bytes=memory_limit(size),
    )
    read = sum(f.stat().st_size for f in model.path.glob("variables/*")) if weights else 0
    make_local(request, LONG_SECONDS + read / 50e6)  # bytes per second, for checksums of tables
    return (
        replace(model, path=target, splits=splits, unsplit=model.path) if target.exists() else model
    )
