"""Compiles the libraries that stand for NVIDIA's: once per user and TensorFlow, in seconds.

The functions are strings of TensorFlow's shared libraries (each table of functions that it loads
late has their names), the versions follow from the CUDA it was built with; it is not imported.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import mmap
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from placer.errors import TENSORFLOW_MISSING, PlacerError, UsageError
from placer.files import cache_folder, replaced

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
        "simulated GPUs require a C compiler, and none of cc, gcc and clang is here: install one, "
        "or pip install 'graph-placer[simulate]'"
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


_FILES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")

_FUNCTION = re.compile(
    rb"(?<=\0)(?:__cuda|cu|cuda|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|cupti|nccl|nvml)"
    rb"[A-Z][A-Za-z0-9_]{2,80}(?=\0)"
)

_LIBRARIES = {
    12: (
        *("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.12", "libcublas.so.12"),
        *("libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12"),
        *("libcupti.so.12", "libnccl.so.2"),
    ),
    13: (
        *("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libcublas.so.13"),
        *("libcublasLt.so.13", "libcufft.so.12", "libcusolver.so.12", "libcusparse.so.12"),
        *("libcupti.so.13", "libnccl.so.2"),
    ),
}
"""Names that the libraries of a major version of CUDA have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTensorFlow:
    """The ``folder`` of the package, and the names of the ``libraries`` that it loads."""

    folder: Path
    libraries: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Its own shared libraries, which say what it looks up."""
        return tuple(self.folder / name for name in _FILES)

    def functions(self) -> list[str]:
        """The names of the functions that it can look up, in three seconds."""
        found = {name for path in self.files for name in _functions(path)}
        return sorted(name.decode() for name in found)


def find_tensorflow() -> InstalledTensorFlow:
    """The TensorFlow that this Python would import.

    Raises :class:`UsageError` if there is none, or if it was built without CUDA.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(TENSORFLOW_MISSING)
    folder = Path(next(iter(spec.submodule_search_locations)))
    try:
        info = (folder / "python" / "platform" / "build_info.py").read_text()
    except OSError:
        info = ""
    versions = _cuda_and_cudnn(info)
    if "'is_cuda_build', True" not in info or versions is None:
        raise UsageError(
            "this TensorFlow was built without CUDA support, so it lists no GPU: install the "
            "package tensorflow for x86-64 Linux in place of tensorflow-cpu"
        )
    cuda, cudnn = versions
    libraries = _LIBRARIES.get(cuda)
    if libraries is None:
        raise UsageError(
            f"this TensorFlow was built for CUDA {cuda}; GPUs are simulated for CUDA "
            f"{' and '.join(map(str, _LIBRARIES))}"
        )
    return InstalledTensorFlow(folder=folder, libraries=(*libraries, f"libcudnn.so.{cudnn}"))


def _cuda_and_cudnn(info: str) -> tuple[int, int] | None:
    """The major versions of CUDA and cuDNN in what TensorFlow says of its build, or, since 2.22
    leaves them out there, in what its package asks for; ``None`` where neither says."""
    found = re.search(r"'cuda_version', '(\d+).*'cudnn_version', '(\d+)", info)
    if found is None:
        try:
            wanted = " ".join(importlib.metadata.requires("tensorflow") or ())
        except importlib.metadata.PackageNotFoundError:
            return None
        found = re.search(r"nvidia-cudnn-cu(\d+)[^;]*?>=(\d+)", wanted)
    return (int(found[1]), int(found[2])) if found else None


def _functions(path: Path) -> Iterator[bytes]:
    """The names of functions among the constants of a shared library."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for start, length in _constants(content):
            yield from _FUNCTION.findall(content, start, start + length)


def _constants(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Start and length of the sections that have constants, in an ELF file of 64 bits."""
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    sections = [
        struct.unpack_from("<IIQQQQ", content, table + number * size) for number in range(count)
    ]
    names_at = sections[names][4]
    for name, _, _, _, start, length in sections:
        text = content[names_at + name : content.find(b"\0", names_at + name)]
        if text.startswith((b".rodata", b".lrodata")):
            yield start, length
