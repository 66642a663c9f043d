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

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A folder that is copied fails with one error that quotes those of its files."""


def check_writable(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Nothing, if ``path`` may be written: call it before the work whose result goes there.

    Raises ``UsageError`` if ``path`` exists and ``force`` is false, or its folder is missing or
    may not be written.
    """
    target = Path(path)
    parent = target.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"the folder of {target} does not exist: create it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder of {target} may not be written: choose another")
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target} exists already: choose another name or add --force")


@contextmanager
def replaced(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """A path in the same folder that becomes ``path`` when the block ends without an exception.

    The block creates a file or a folder there.  An old file or folder is replaced only with
    ``force``; after an exception it is as it was, and nothing of the new one is left.  Raises
    ``UsageError`` as :func:`check_writable` does, ``PlacerError`` where the disk is full.
    """
    target = Path(path)
    check_writable(target, force=force)
    parent = target.absolute().parent
    try:
        workspace = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    except OSError as error:
        raise UsageError(f"the folder of {target} cannot be written: {error.strerror}") from error
    try:
        yield workspace / target.name
        _put(workspace / target.name, target, workspace / "replaced")
    except OSError as error:
        if any(os.strerror(number) in str(error) for number in _NO_SPACE):
            raise PlacerError(
                f"{target} was not written, and nothing is left of it: {error}; free space in "
                f"{parent}, or choose another folder"
            ) from error
        raise
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _put(new: Path, target: Path, old: Path) -> None:
    """Nothing; ``target`` is then ``new``.  A folder cannot be renamed over: it goes to ``old``
    first, and comes back if the second step fails."""
    if not target.is_dir() or target.is_symlink():
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
    with replaced(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
