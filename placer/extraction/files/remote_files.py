"""Models on other machines: fetched through TensorFlow's file systems (``gs://``, ``hdfs://``)."""

from __future__ import annotations

import re
from pathlib import Path

from placer.errors import ModelError

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
        raise ModelError(f"{path!r} cannot be read: {error.message}") from error
