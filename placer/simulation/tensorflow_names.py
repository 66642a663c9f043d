"""The names that the installed TensorFlow looks up in NVIDIA's libraries, read from its own files.

TensorFlow is not imported for it.  The functions are strings of its shared libraries (each table
of functions that it loads late has their names), the versions follow from the CUDA it was built
with.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from placer.errors import UsageError

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
        raise UsageError("TensorFlow is not installed here: pip install tensorflow")
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
