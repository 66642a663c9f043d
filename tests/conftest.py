"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzing.cases import WarmProcess
from fuzzing.warm_children import start
from hypothesis import settings
from solving.virtual_time import VirtualTime

from placer import processes
from placer.solving.process import clock

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # which fuses ops away; before TensorFlow
for name in ("CI", "FORCE_COLOR"):  # of which commands make other output
    os.environ.pop(name, None)

settings.register_profile("placer", deadline=None)  # a busy machine is no failure
settings.load_profile("placer")

SLOW_FOLDERS = ("application", "examples", "extraction/division", "fuzzing", "strategies")
"""Here most tests run TensorFlow programs or commands in processes of their own; slow tests
elsewhere are marked one by one."""


def _in_slow_folder(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / name) for name in SLOW_FOLDERS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without slow tests, these folders are not even imported: TensorFlow and Keras take long."""
    without_slow = config.option.markexpr == "not slow"
    return True if without_slow and _in_slow_folder(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of a slow folder, and begins with the files that have slow tests.

    Files go to processes in this order (``--no-loadscope-reorder``, see the Makefile): if one that
    takes a minute were the last, the other processes would wait for it.
    """
    for item in items:
        if _in_slow_folder(item.path):
            item.add_marker(pytest.mark.slow)
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    counts = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path not in slow_files, -counts[item.path]))


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Replaces the time under the clock of searches: what a test asserts of it then depends on no
    machine."""
    virtual = VirtualTime()
    monkeypatch.setattr(clock, "time", virtual)
    return virtual


@pytest.fixture
def v1_loops() -> Iterator[None]:
    """Loops as TensorFlow 1 builds them: Enter, Merge, Switch, NextIteration, Exit."""
    v1 = pytest.importorskip("tensorflow").compat.v1
    was_on = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    yield
    if was_on:
        v1.enable_control_flow_v2()


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real graphs that PLACER_TEST_DATA names; skips without it."""
    folder = os.environ.get("PLACER_TEST_DATA")
    if not folder:
        pytest.skip("PLACER_TEST_DATA is not set: it names the folder of real graphs")
    if not (Path(folder) / "graphs").is_dir():
        pytest.skip(f"PLACER_TEST_DATA={folder} has no folder graphs")
    return Path(folder)


@pytest.fixture(scope="session")
def warm_process() -> Iterator[WarmProcess]:
    """Runs command lines in forks of a process that has TensorFlow and Keras imported."""
    process = WarmProcess()
    yield process
    process.close()


FRESH = (
    *("fuzzing", "solving/process", "extraction/process"),
    *("extraction/test_extractor.py", "test_processes.py"),
)
"""Tests of what processes do have fresh interpreters, as users have; every command has them in
``commands/test_isolation.py``."""


@pytest.fixture(scope="module", autouse=True)
def warm_children(request: pytest.FixtureRequest) -> Iterator[None]:
    """The children of placer are forks of processes that have imported what they need."""
    tests = Path(__file__).parent
    is_fresh = any(request.path.is_relative_to(tests / name) for name in FRESH)
    if is_fresh or sys.platform != "linux":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes.Child, "_start", start)
        yield


@pytest.fixture(scope="module", autouse=True)
def solvers_stay_out() -> Iterator[None]:
    """OR-Tools is not loaded, by this file or when files were collected: after TensorFlow it ends
    the process with a segmentation fault."""
    yield
    assert "ortools" not in sys.modules, "a test imports OR-Tools: see searches_in_children.py"


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of three dense layers, 64 -> 256 -> 256 -> 10, with an unknown batch size.

    Its weights are 64*256 + 256*256 + 256*10 float32 (338 KiB) and 522 biases.
    """
    import tensorflow as tf

    class Network(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((64, 256), (256, 256), (256, 10))
            self.weights = [
                tf.Variable(tf.random.stateless_normal(size, seed=(0, i)), name=f"w{i}")
                for i, size in enumerate(sizes)
            ]
            self.biases = [
                tf.Variable(tf.zeros(size[1]), name=f"b{i}") for i, size in enumerate(sizes)
            ]

        @tf.function(input_signature=[tf.TensorSpec((None, 64), tf.float32, name="x")])
        def serve(self, x):
            for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
                with tf.name_scope(f"layer_{i}"):
                    x = tf.nn.relu(x @ weight + bias)
            return {"y": x}

    path = tmp_path_factory.mktemp("models") / "dense"
    network = Network()
    tf.saved_model.save(network, str(path), signatures={"serving_default": network.serve})
    return path
