"""Where TensorFlow is not installed: one sentence says so, and all but reading a model works."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placer import extract
from placer.errors import TENSORFLOW_MISSING

ROOT = Path(__file__).parents[2]

POSING = """
import pickle, sys
from placer.pipeline.formulation import formulate
from placer.pipeline.workload import cost_program, read_cluster
from placer.plan.request import read_options
from placer.problem.placement_problem import to_json

def pose(extracted):
    extraction = pickle.loads(extracted)
    wanted = read_options({"max_memory": {"GPU:*": "300KiB"}})
    workload = cost_program("model", extraction, read_cluster("2xGPU", wanted), wanted)
    return to_json(formulate(workload).problem)

if __name__ == "__main__":
    print(pose(open(sys.argv[1], "rb").read()))
    assert "tensorflow" not in sys.modules
"""

Without = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def without(tmp_path_factory) -> Without:
    """Runs a Python that finds the packages of this one, but for TensorFlow and Keras."""
    packages = tmp_path_factory.mktemp("packages")
    for folder in [Path(entry) for entry in sys.path if entry.endswith("site-packages")]:
        for package in folder.iterdir():
            is_left_out = package.name.startswith(("tensorflow", "keras", "placer", "cost_models"))
            if not is_left_out and package.suffix != ".pth":
                (packages / package.name).symlink_to(package)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{packages}"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [getattr(sys, "_base_executable", sys.executable), "-P", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    if run("-c", "import tensorflow").returncode == 0:
        pytest.skip("the Python that this environment was made with has a TensorFlow of its own")
    return run


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report MODEL", "devices", "verify MODEL"])
def test_one_sentence_says_how_to_install_it(without, saved_model, command):
    """Whether the model is read in a process of its own or run in this one."""
    words = [str(saved_model) if word == "MODEL" else word for word in command.split()]
    finished = without("-m", "placer", *words)
    assert (finished.returncode, finished.stderr) == (2, f"placer: {TENSORFLOW_MISSING}\n")


@pytest.mark.slow
def test_the_doctor_says_that_it_is_missing(without):
    """A bug report is written with or without it."""
    finished = without("-m", "placer", "doctor")
    assert finished.returncode == 0, finished.stderr
    assert "not installed" in finished.stdout
    assert "graph-placer[cpu]" in finished.stdout


@pytest.mark.slow
def test_plans_do_not_depend_on_the_tensorflow_that_is_installed(without, saved_model, tmp_path):
    """What ops cost and which kernels exist comes from files of this package: of one graph the
    solver sees the same problem with TensorFlow and without."""
    extracted = pickle.dumps(extract(str(saved_model), batch_size=8))
    (tmp_path / "extracted").write_bytes(extracted)
    (tmp_path / "posing.py").write_text(POSING)
    finished = without(str(tmp_path / "posing.py"), str(tmp_path / "extracted"))
    names: dict[str, Any] = {"__name__": "posing"}
    exec(POSING, names)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == names["pose"](extracted)
