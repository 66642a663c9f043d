"""The libraries are compiled once, and what stands in the way of that is told in a sentence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path

import pytest
from simulation.simulated_runs import require_simulation

from placer.errors import PlacerError, UsageError
from placer.simulation import building
from placer.simulation.building import build_libraries, find_compiler, find_tensorflow


def test_without_a_compiler_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cc, gcc, clang and no ziglang: the error says how to get one; CC names another."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'graph-placer\[simulate\]'"):
        find_compiler()
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    monkeypatch.setenv("CC", "icx -m64")
    assert find_compiler() == ["icx", "-m64"]


def test_ziglang_compiles_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler that pip installs is run by this Python."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert find_compiler()[1:] == ["-P", "-m", "ziglang", "cc"]


def test_elsewhere_than_on_x86_linux_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the machine."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="x86-64 Linux only, and this is aarch64"):
        build_libraries()


def test_a_tensorflow_without_cuda_lists_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was built with is read from its files, without an import."""
    info = tmp_path / "python" / "platform" / "build_info.py"
    info.parent.mkdir(parents=True)
    spec = importlib.util.spec_from_loader("tensorflow", None, is_package=True)
    assert spec is not None
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    info.write_text("build_info = dict([('is_cuda_build', False)])")
    with pytest.raises(UsageError, match="without CUDA support"):
        find_tensorflow()
    told = "dict([('cuda_version', '11.8'), ('cudnn_version', '8'), ('is_cuda_build', True)])"
    info.write_text(told)
    with pytest.raises(UsageError, match="built for CUDA 11"):
        find_tensorflow()
    info.write_text(told.replace("11.8", "12.5.1"))
    assert "libcudart.so.12" in find_tensorflow().libraries
    assert "libcudnn.so.8" in find_tensorflow().libraries
    info.write_text("dict([('is_cuda_build', True)])")  # as TensorFlow 2.22 has it
    asked = ["absl-py>=1", "nvidia-cudnn-cu12<10.0,>=9.10.2.21; extra == 'and-cuda'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: asked)
    assert {"libcudart.so.12", "libcudnn.so.9"} <= set(find_tensorflow().libraries)


def test_functions_are_found_among_the_constants(tmp_path: Path) -> None:
    """Of an object with strings, those that are names of NVIDIA's functions."""
    require_simulation()
    source, made = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text('const char *a[] = {"cuInit", "cudnnCreate", "current", "cu", "ncclSend"};')
    building._compile(find_compiler(), made, [str(source)], str(tmp_path))
    found = set(building._functions(made))
    assert {b"cuInit", b"cudnnCreate", b"ncclSend"} <= found
    assert not found & {b"current", b"cu"}


def test_what_the_compiler_says_is_passed_on(tmp_path: Path) -> None:
    """An error of the compiler is an error with its text, and nothing is left."""
    require_simulation()
    source = tmp_path / "wrong.c"
    source.write_text("int f( {")
    with pytest.raises(PlacerError, match=r"could not compile wrong\.so: (.|\n)*error"):
        building._compile(find_compiler(), tmp_path / "wrong.so", [str(source)], str(tmp_path))
    assert os.listdir(tmp_path) == ["wrong.c"]


@pytest.mark.slow
def test_libraries_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call compiles every library that TensorFlow loads, the second finds them."""
    require_simulation()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = build_libraries()
    assert all(path.is_file() for path in first.paths)
    assert {"libcuda.so.1", "libcupti.so.12", "libnccl.so.2"} <= {p.name for p in first.paths}
    monkeypatch.setattr(building, "_build", lambda *_: pytest.fail("compiled again"))
    assert build_libraries() == first
