"""A disk that is full: at every write of a command in turn.

    python -m fuzzing.full_disk [--most 40]

A file system in memory, with room for one page more each time, or for one file more, holds the
output and the folder for temporary files.  It is mounted in a name space of its own, for which
Linux asks no privilege (where containers forbid that, this says so).  The command ends with a
message that names the disk, the result of before is there, and nothing is left over.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fuzzing.cases import Outcome, WarmProcess, contents
from fuzzing.commands import COMMANDS, compile_searches, is_whole

INSIDE = "PLACER_FUZZING_INSIDE"
PAGE_BYTES = 4096
SPACE = ("No space left", "free space", "disk")


class Disk:
    """A small file system at ``folder``."""

    def __init__(self, folder: Path, *, pages: int, files: int) -> None:
        self.folder = folder
        options = f"size={pages * PAGE_BYTES},nr_inodes={files}"
        self._call("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))

    def close(self) -> None:
        """Takes it away."""
        self._call("umount", "-l", str(self.folder))

    def used(self) -> tuple[int, int]:
        """Pages and files."""
        found = os.statvfs(self.folder)
        return found.f_blocks - found.f_bfree, found.f_files - found.f_ffree

    def _call(self, *command: str) -> None:
        subprocess.run(command, check=True)


def run(warm: WarmProcess, name: str, pages: int, files: int) -> tuple[Outcome, list[str], bool]:
    """How a command ended on a disk of that size, the defects, and whether it was too small."""
    with tempfile.TemporaryDirectory(prefix="fuzz-disk-") as temporary:
        folder = Path(temporary)
        arguments = COMMANDS[name](folder)
        (folder / "disk").mkdir()
        disk = Disk(folder / "disk", pages=pages, files=files)
        try:
            result = disk.folder / "result"
            if name == "apply":
                result.mkdir()
                (result / "saved_model.pb").write_bytes(b"")
            else:
                result.write_bytes(b"")
            (disk.folder / "temporary").mkdir()
            (folder / "temporary").symlink_to(disk.folder / "temporary")
            before = contents(disk.folder)
            outcome = warm.run([*arguments, "-o", str(result), "--force"], folder)
            defects = outcome.defects(frozenset({0, 1, 2, 3}))
            after = contents(disk.folder)
            if outcome.status == 0:
                if not is_whole(name, result):
                    defects.append("says that all is well, and the result is not whole")
            else:
                if before != after:
                    changed = {path for path in before.keys() ^ after.keys()} or {"result"}
                    defects.append(f"loses or leaves {', '.join(sorted(changed))}")
                if not any(words in outcome.stderr for words in SPACE):
                    defects.append(f"does not name the disk: {outcome.stderr.strip()[-200:]}")
        finally:
            disk.close()
    return outcome, defects, outcome.status != 0


def main() -> int:
    """0 if nothing was lost or left, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=40, help="sizes that are tried per command")
    parser.add_argument("--commands", default=",".join(COMMANDS))
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        return _in_a_name_space()
    compile_searches()
    warm = WarmProcess()
    failures, counts = 0, Counter[str]()
    for name in arguments.commands.split(","):
        for kind in ("pages", "files"):
            for size in _sizes(arguments.most):
                pages, files = (size, 1000) if kind == "pages" else (100_000, size + 4)
                outcome, defects, was_full = run(warm, name, pages, files)
                counts[f"exit {outcome.status}"] += 1
                for defect in defects:
                    failures += 1
                    sys.stdout.write(f"{name}, {pages} pages, {files} files: {defect}\n")
                    sys.stdout.flush()
                if not was_full:
                    break
    warm.close()
    told = ", ".join(f"{key}: {count}" for key, count in sorted(counts.items()))
    sys.stdout.write(
        f"{counts.total()} commands on a disk too small ({told}); {failures} failures\n"
    )
    return 1 if failures else 0


def _sizes(most: int) -> list[int]:
    """One more each time, and larger steps after half of them."""
    sizes = [1]
    while len(sizes) < most:
        sizes.append(sizes[-1] + (1 if len(sizes) < most // 2 else sizes[-1] // 4))
    return sizes


def _in_a_name_space() -> int:
    """This module again, where it may mount."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False).returncode
    ):
        sys.stdout.write("full disk: not tried, no name spaces for users here\n")
        return 0
    command = [*unshare, sys.executable, "-m", "fuzzing.full_disk", *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
