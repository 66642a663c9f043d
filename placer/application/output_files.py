"""Files and folders that appear whole or not at all, and overwrite nothing unasked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placer.errors import UsageError


def require_free(out: Path, *, force: bool) -> None:
    """Raises :class:`UsageError` if ``out`` exists and may not be replaced."""
    if out.exists() and not force:
        raise UsageError(f"{str(out)!r} exists; choose another name, or overwrite it with --force")
    if not out.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {str(out.resolve().parent)!r} to write {out.name} in")


def replace_file(out: Path, content: bytes, *, force: bool) -> None:
    """Writes a file beside ``out`` and renames it to ``out``.

    Raises :class:`UsageError` if ``out`` exists and ``force`` is not given.
    """
    require_free(out, force=force)
    if out.is_dir():
        raise UsageError(f"{str(out)!r} is a folder; give the name of a file")
    descriptor, temporary = tempfile.mkstemp(dir=out.resolve().parent, prefix=f".{out.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(out)
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextmanager
def replaced_folder(out: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder beside ``out`` that becomes ``out`` if the block ends well.

    Raises :class:`UsageError` if ``out`` exists and ``force`` is not given.
    """
    require_free(out, force=force)
    temporary = Path(tempfile.mkdtemp(dir=out.resolve().parent, prefix=f".{out.name}."))
    temporary.chmod(0o755)
    try:
        yield temporary
        if out.is_dir() and not out.is_symlink():
            shutil.rmtree(out)
        else:
            out.unlink(missing_ok=True)
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def link_tree(source: Path, target: Path) -> None:
    """Makes ``target`` a copy of the folder ``source``, by hard links where possible."""
    shutil.copytree(source, target, copy_function=link_file)


def link_file(source: str, target: str) -> str:
    """Makes ``target`` a hard link of ``source``, or a copy where links are impossible."""
    try:
        os.link(source, target, follow_symlinks=True)
    except OSError:
        shutil.copy2(source, target)
    return target
