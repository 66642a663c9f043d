"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzzing.cases import WarmProcess
from hypothesis import settings

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # which fuses ops away; before TensorFlow

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
    """Marks every test of a slow folder."""
    for item in items:
        if _in_slow_folder(item.path):
            item.add_marker(pytest.mark.slow)


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
