"""Files that appear whole or not at all, and are never overwritten by accident."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from placer.errors import PlacerError, UsageError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors that say that a disk is full."""


def rebased(path: str, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> str:
    """The relative ``path`` from folder ``old`` as one from folder ``new``; others stay."""
    if not path or os.path.isabs(path) or "://" in path:
        return path
    folder, name = os.path.split(os.path.normpath(os.path.join(old, path)))
    return os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(new))


def check_writable(
    path: str | os.PathLike[str], *, force: bool = False, may_be_folder: bool = False
) -> None:
    """Nothing, if ``path`` may be written: call it before the work whose result goes there.

    Raises ``UsageError`` if ``path`` exists and ``force`` is false, if it is a device, a pipe, or
    (unless ``may_be_folder``) a folder, or if its folder is missing or may not be written.
    """
    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        raise UsageError(f"{target} is a device or a pipe, and not a file: choose another name")
    if target.is_dir() and not may_be_folder:
        raise UsageError(f"{target} is a folder: give the name of a file")
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target} exists already: choose another name or add --force")
    parent = _followed(target).parent
    if not parent.is_dir():
        raise UsageError(f"the folder of {target} does not exist: create it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder of {target} may not be written: choose another")


def _followed(target: Path) -> Path:
    """Where a symbolic link leads: it stays, and what it names is replaced."""
    return Path(os.path.realpath(target))


@contextmanager
def replaced(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """A path in the same folder that becomes ``path`` when the block ends without an exception.

    The block creates a file or a folder there.  An old file or folder is replaced only with
    ``force`` and by its like: a folder only by one that has an entry of the same name, so that a
    wrong name costs nobody a folder of other things.  After an exception it is as it was, and
    nothing of the new one is left.  Raises ``UsageError`` as :func:`check_writable` does,
    ``PlacerError`` where the disk is full.
    """
    target = Path(path)
    check_writable(target, force=force, may_be_folder=True)
    final = _followed(target)
    parent = final.parent
    try:
        workspace = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=parent))
    except OSError as error:
        raise UsageError(f"the folder of {target} cannot be written: {error.strerror}") from error
    try:
        yield workspace / final.name
        _check_alike(workspace / final.name, final, target)
        _put(workspace / final.name, final, workspace / "replaced")
    except OSError as error:
        # a folder that is copied fails with one error that quotes those of its files
        if any(os.strerror(number) in str(error) for number in NO_SPACE):
            raise PlacerError(
                f"{target} was not written, and nothing is left of it: {error}; free space in "
                f"{parent}, or choose another folder"
            ) from error
        raise
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _check_alike(new: Path, old: Path, named: Path) -> None:
    """Nothing, if ``new`` may take the place of what is there, if anything."""
    if not old.exists():
        return
    if old.is_dir() and not new.is_dir():
        raise UsageError(f"{named} is a folder: give the name of a file")
    if new.is_dir() and not old.is_dir():
        raise UsageError(f"{named} is a file, and a folder is to be written: choose another name")
    if new.is_dir():
        entries = set(os.listdir(old))
        if entries and not entries & set(os.listdir(new)):
            raise UsageError(
                f"{named} is a folder of other things, such as {min(entries)}, and is not "
                f"replaced: choose another name"
            )


def _put(new: Path, target: Path, old: Path) -> None:
    """Nothing; ``target`` is then ``new``.  A folder cannot be renamed over: it goes to ``old``
    first, and comes back if the second step fails."""
    if not target.is_dir():
        new.replace(target)
        return
    target.rename(old)
    try:
        new.replace(target)
    except OSError:
        old.rename(target)
        raise


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> None:
    """Nothing; ``path`` then holds ``text`` as UTF-8.  Raises as :func:`replaced` does."""
    check_writable(path, force=force)
    with replaced(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
