"""Files that appear whole or not at all, and are never overwritten by accident."""

import errno
import fcntl
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    (unless ``may_be_folder``) a folder, if its folder is missing or may not be written, or if it is
    no name for a file.
    """
    target = Path(path)
    try:
        kind = os.stat(target).st_mode  # once: another command may replace it meanwhile
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{target} is too long for a name: choose another") from error
        kind = 0
    if kind and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise UsageError(f"{target} is a device or a pipe, and not a file: choose another name")
    if stat.S_ISDIR(kind) and not may_be_folder:
        raise UsageError(f"{target} is a folder: give the name of a file")
    if os.path.lexists(target) and not force:
        raise UsageError(f"{target} exists already: choose another name or add --force")
    parent = _followed(target).parent
    if not parent.is_dir():
        raise UsageError(f"the folder {Path(target).parent} does not exist: create it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder of {target} may not be written: choose another")


def check_apart(out: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Raises :class:`UsageError` if ``out`` exists and is the ``source`` that is read, holds it, or
    is part of it: what is read is never replaced."""
    if not (os.path.exists(out) and os.path.exists(source)):
        return
    new, read = Path(out).resolve(), Path(source).resolve()
    if new.is_relative_to(read) or read.is_relative_to(new):
        if str(out) == str(source):
            raise UsageError(f"{out} is the input, so it cannot be the output: choose another name")
        how = "is" if new == read else "is part of" if new.is_relative_to(read) else "holds"
        raise UsageError(f"{out} {how} {source}, which is read: choose another name to write to")


def check_outside(out: Path, source: Path) -> None:
    """Raises :class:`UsageError` if ``out`` would be written inside of the folder ``source``."""
    if out.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"the output is inside of the model {source}: choose another folder")


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
    workspace = None
    try:
        workspace = Path(tempfile.mkdtemp(prefix=f".{final.name[:40]}.", dir=parent))
        new, old = workspace / "new" / final.name, workspace / "old"
        new.parent.mkdir()
        yield new
        with _others_waiting(parent):
            if os.path.lexists(target) and not force:
                raise UsageError(
                    f"{target} was written by something else meanwhile, and is kept: choose "
                    "another name or add --force"
                )
            _check_alike(new, final, target)
            try:
                _put(new, final, old)
            finally:
                if old.exists() and not os.path.lexists(final):
                    old.rename(final)  # an error or an interrupt came between the two steps
    except OSError as error:
        # a folder that is copied fails with one error that quotes those of its files
        if any(os.strerror(number) in str(error) for number in NO_SPACE):
            raise PlacerError(
                f"{target} was not written, and nothing is left of it: {error}; free space in "
                f"{parent}, or choose another folder"
            ) from error
        if workspace is None:
            told = f"the folder of {target} cannot be written: {error.strerror}"
            raise UsageError(told) from error
        raise
    finally:
        if workspace is not None:
            _remove(workspace)


def _remove(folder: Path) -> None:
    """Nothing is then left of ``folder``, also if an interrupt comes meanwhile, which goes on."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _others_waiting(folder: Path) -> Iterator[None]:
    """While the block runs, no other process is in one like it for ``folder`` (where the file
    system has locks): two commands that write one file do so one after the other."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


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
    first."""
    if target.is_dir():
        target.rename(old)
    new.replace(target)


def write_text(path: str | os.PathLike[str], text: str, *, force: bool = False) -> None:
    r"""Nothing; ``path`` then holds ``text`` as UTF-8, with bytes of file names that are none as
    ``\udcff``.  Raises as :func:`replaced` does."""
    check_writable(path, force=force)
    with replaced(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def cache_folder(name: str, first: str | None = None) -> Path:
    """A folder of this user for what can be made again: in ``first`` where that is given, else in
    the user's folder for caches, else a temporary one that goes with this process.

    Code found there is run: a folder that others may write to is not used.
    """
    for parent in _cache_folders(first):
        folder = parent / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(folder):
                return folder
        except OSError:
            continue
    return Path(temporary_cache(name.partition("-")[0]).name)


def _cache_folders(first: str | None) -> list[Path]:
    folders = [Path(first)] if first else []
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):  # as the XDG Base Directory Specification has it
        return [*folders, Path(home) / "placer"]
    try:
        return [*folders, Path.home() / ".cache" / "placer"]
    except RuntimeError:  # a user without a home
        return folders


def _is_ours(folder: Path) -> bool:
    """Whether this user can write there and others cannot."""
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    is_own = found.st_uid == os.getuid() and not found.st_mode & others
    return stat.S_ISDIR(found.st_mode) and is_own and os.access(folder, os.W_OK | os.X_OK)


@functools.cache
def temporary_cache(kind: str) -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix=f"placer-{kind}-", ignore_cleanup_errors=True)
