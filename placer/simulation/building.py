"""Compiles the libraries that stand for NVIDIA's: once per user and TensorFlow, in seconds."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from placer.errors import PlacerError, UsageError
from placer.files import cache_folder, replaced
from placer.simulation.tensorflow_names import InstalledTensorFlow, find_tensorflow

SOURCES = Path(__file__).parent / "sources"
MAIN = "libplacer_gpus.so"
"""Has all functions; the libraries by NVIDIA's names are empty and refer to it."""

_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-fno-builtin", "-fno-sanitize=undefined", "-w")
_LIMIT_SECONDS = 300.0

_STUBS = """\
/* Functions that TensorFlow can look up and that only say that all went well. */
long placer_succeeds(void) { return 0; }
long placer_not_supported(void) { return 3; }
#define SUCCEEDS(name) long name(void) __attribute__((weak, alias("placer_succeeds")));
#define NOT_SUPPORTED(name) long name(void) __attribute__((weak, alias("placer_not_supported")));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """Where the compiled libraries lie, the ``paths`` in the order to load them."""

    folder: Path
    paths: tuple[Path, ...]


def build_libraries() -> Libraries:
    """The libraries for the installed TensorFlow, compiled if this user has not done so before.

    Raises :class:`UsageError` where GPUs cannot be simulated: without a compiler, on a machine
    other than x86-64 Linux, for a TensorFlow without CUDA.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UsageError(
            f"GPUs are simulated on x86-64 Linux only, and this is {platform.machine()} "
            f"{platform.system()}"
        )
    tensorflow = find_tensorflow()
    folder = cache_folder(f"gpus-{_version(tensorflow)}")
    paths = tuple(folder / "lib" / name for name in (MAIN, *tensorflow.libraries))
    if not all(path.exists() for path in paths):
        _build(tensorflow, folder, find_compiler())
    return Libraries(folder=folder / "lib", paths=paths)


def find_compiler() -> list[str]:
    """The command that compiles C here; raises :class:`UsageError` if there is none."""
    named = os.environ.get("CC", "").split()
    if named and shutil.which(named[0]):
        return named
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-P", "-m", "ziglang", "cc"]
    raise UsageError(
        "simulated GPUs need a C compiler, and none of cc, gcc and clang is here: install one, or "
        "pip install 'graph-placer[simulate]'"
    )


def _build(tensorflow: InstalledTensorFlow, folder: Path, compiler: list[str]) -> None:
    """Compiles everything beside ``folder/lib`` and renames it to that."""
    with tempfile.TemporaryDirectory(prefix="placer-gpus-") as workspace:
        stubs = Path(workspace) / "stubs.c"
        lines = [
            f"{'NOT_SUPPORTED' if name.startswith('nvml') else 'SUCCEEDS'}({name})"
            for name in tensorflow.functions()
        ]
        stubs.write_text("\n".join((_STUBS, *lines, "")))
        empty = Path(workspace) / "empty.c"
        empty.write_text("")
        with replaced(folder / "lib", force=True) as new:
            new.mkdir()
            sources = [*map(str, sorted(SOURCES.glob("*.c"))), str(stubs)]
            _compile(compiler, new / MAIN, [*sources, "-ldl", "-lm", "-lpthread"], workspace)
            beside = ("-Wl,--no-as-needed", f"-L{new}", "-lplacer_gpus", "-Wl,-rpath,$ORIGIN")
            for name in tensorflow.libraries:
                _compile(compiler, new / name, [str(empty), *beside], workspace)


def _compile(compiler: list[str], library: Path, what: list[str], workspace: str) -> None:
    """Compiles one shared library; raises :class:`PlacerError` with what the compiler said."""
    named = ("-shared", f"-Wl,-soname,{library.name}", "-o", str(library))
    command = [*compiler, *_FLAGS, *named, *what]
    environment = {**os.environ, "TMPDIR": workspace}
    environment.pop("LD_PRELOAD", None)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise PlacerError(f"{compiler[0]} took more than {_LIMIT_SECONDS:g} s") from error
    if done.returncode:
        raise PlacerError(
            f"{' '.join(compiler)} could not compile {library.name}: {done.stderr[-2000:].strip()}"
        )


def _version(tensorflow: InstalledTensorFlow) -> str:
    """A digest of the sources, of this module, and of the TensorFlow that the libraries are for."""
    digest = hashlib.blake2b(digest_size=8)
    for source in (*sorted(SOURCES.iterdir()), Path(__file__)):
        digest.update(source.read_bytes())
    for path in tensorflow.files:
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()
