"""Models that read, write or run what nobody asked for: ``make harm``.

    python -m fuzzing.hostile [--kinds read_file,python] [--formats graph,meta_graph]

Every kind of harm (:mod:`fuzzing.hostile_models`) in every format is given to the commands that
read models, which must not touch anything outside, and to those that run them, which must refuse
it by name (exit code 3).  What is touched is told by Linux (inotify), whoever touches it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fuzzing.cases import WarmProcess, changes, contents
from fuzzing.hostile_folders import TRAPS, Trap
from fuzzing.hostile_models import FORMATS, HARMS, Harm, fill, write

_IN_OPEN, _IN_MODIFY, _IN_MOVED, _IN_CREATE, _IN_DELETE = 0x20, 0x2, 0xC0, 0x100, 0x200
_EVENT = struct.Struct("iIII")

SEARCH = ("--batch-size", "2", "--devices", "1xT4", "--work-limit", "2", "--time-limit", "5")
READS = ("report", "place", "compare", "explain")
RUNS = ("verify", "profile")


class Watch:
    """Says what happens to the files of a folder, and who calls a port."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        mask = _IN_OPEN | _IN_MODIFY | _IN_MOVED | _IN_CREATE | _IN_DELETE
        if libc.inotify_add_watch(self.descriptor, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self.server = socket.create_server(("localhost", 0))
        self.server.setblocking(False)
        self.port = self.server.getsockname()[1]

    def seen(self) -> list[str]:
        """What has been touched since this was asked last: names of files, and ``connection``."""
        found: dict[str, None] = {}
        while True:
            try:
                content = os.read(self.descriptor, 2**16)
            except BlockingIOError:
                break
            while content:
                _, _, _, length = _EVENT.unpack_from(content)
                name = content[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                found[os.fsdecode(name) or "the folder"] = None
                content = content[_EVENT.size + length :]
        try:
            self.server.accept()[0].close()
            found["connection"] = None
        except BlockingIOError:
            pass
        return list(found)

    def close(self) -> None:
        """Ends the watch."""
        os.close(self.descriptor)
        self.server.close()


def commands(model: Path, plan: Path, outputs: str | None = "y") -> dict[str, list[str]]:
    """Every command line that is tried; ``place`` writes the plan of the others."""
    name, chosen = str(model), () if outputs is None else ("--outputs", outputs)
    return {
        "report": ["report", name, "--batch-size", "2", "--devices", "1xT4"],
        "place": ["place", name, *chosen, *SEARCH, "-o", str(plan)],
        "compare": ["compare", name, *chosen, *SEARCH],
        "explain": ["explain", str(plan)],
        "verify": ["verify", name, *chosen],
        "profile": ["profile", name, *chosen, "--batch-size", "2", "--steps", "1"],
    }


def run(
    warm: WarmProcess, wanted: Harm, form: str, tried: Sequence[str] = (*READS, *RUNS)
) -> list[str]:
    """What the commands do that they should not, in words."""
    defects = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder, outside = Path(name, "work"), Path(name, "outside")
        folder.mkdir()
        fill(outside)
        watch = Watch(outside)
        try:
            model = write(wanted, form, outside, folder / "model", watch.port)
            lines = commands(model, folder / "result.json")
            lines["profile"] += ["-o", str(folder / "result.costs")]
            for command in tried:
                if command == "explain" and not (folder / "result.json").exists():
                    continue  # a size that is in the secret is not known (exit code 4)
                before = contents(folder)
                watch.seen()  # through links
                outcome = warm.run(lines[command], folder)
                found = [f"touches {what}" for what in watch.seen()]
                runs = command in RUNS
                found += outcome.defects(frozenset({3} if runs else {0, 4}))
                found += changes(before, contents(folder), outcome.status)
                if runs and f"({wanted.op_type})" not in outcome.stderr:
                    found.append(f"does not name {wanted.op_type}: {outcome.stderr[-300:]}")
                defects += [f"{command} {what}: {outcome.stderr[-200:]}" for what in found]
        finally:
            watch.close()
    return defects


def run_trap(
    warm: WarmProcess, wanted: Trap, tried: Sequence[str] = ("report", "place", "apply", "verify")
) -> list[str]:
    """What commands do with a model of :mod:`fuzzing.hostile_folders` that they should not."""
    defects = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder, outside = Path(name, "work"), Path(name, "outside")
        folder.mkdir()
        fill(outside)
        watch = Watch(outside)
        try:
            model = wanted.build(folder, outside)
            plan = folder / "result.json"
            lines = {
                key: [*line, *(() if key == "explain" else wanted.options)]
                for key, line in commands(model, plan, outputs=None).items()
            }
            lines["profile"] += ["-o", str(folder / "result.costs")]
            placed = str(folder / "result.placed")
            lines["apply"] = ["apply", str(model), str(plan), "-o", placed, *wanted.options]
            watch.seen()
            also = ["profile"] if "profile" in wanted.refuse else []
            for command in (*tried, *also):
                if command == "apply" and not plan.exists():
                    continue
                before = contents(folder)
                watch.seen()  # through links
                outcome = warm.run(lines[command], folder)
                refused = command in wanted.refuse
                found = [f"touches {what}" for what in watch.seen()]
                found += outcome.defects(
                    frozenset({3} if refused else {0, 4} if command == "place" else {0})
                )
                found += changes(before, contents(folder), outcome.status)
                if refused and wanted.words not in outcome.stderr:
                    found.append(f"does not say {wanted.words!r}")
                defects += [f"{command} {what}: {outcome.stderr[-300:]}" for what in found]
        finally:
            watch.close()
    return defects


def main() -> int:
    """0 if nothing was touched and everything refused, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = [item.name for item in (*HARMS, *TRAPS)]
    parser.add_argument("--kinds", default=",".join(kinds))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--commands", default=",".join((*READS, *RUNS)))
    arguments = parser.parse_args()
    warm = WarmProcess()
    names, count, failures = arguments.kinds.split(","), 0, 0
    tried = [
        (f"{wanted.name} {form}", partial(run, warm, wanted, form, arguments.commands.split(",")))
        for wanted in HARMS
        for form in arguments.formats.split(",")
    ]
    tried += [(wanted.name, partial(run_trap, warm, wanted)) for wanted in TRAPS]
    for name, defects_of in tried:
        if name.split()[0] in names:
            defects = defects_of()
            count += 1
            failures += bool(defects)
            for defect in defects:
                sys.stdout.write(f"{name}: {defect}\n")
            sys.stdout.flush()
    warm.close()
    sys.stdout.write(f"{count} hostile models of {len(names)} kinds, {failures} failures\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
