"""Where TensorFlow is not installed: one sentence says so, and all but reading a model works."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from placer import extract
from placer.errors import TENSORFLOW_MISSING

ROOT = Path(__file__).parents[2]

PLACING = """
import pickle, sys
from placer.pipeline.placement import place_workload
from placer.pipeline.workload import cost_program, read_cluster
from placer.plan.request import read_options

def place(extracted):
    extraction = pickle.loads(extracted)
    wanted = read_options({"max_memory": {"GPU:*": "300KiB"}, "work_limit": 0.1})
    workload = cost_program("model", extraction, read_cluster("2xGPU", wanted), wanted)
    return place_workload(workload, explains=False)

if __name__ == "__main__":
    plan = place(open(sys.argv[1], "rb").read())
    assert "tensorflow" not in sys.modules
    print(plan.solver.status, plan.placement)
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
@pytest.mark.parametrize("command", ["report MODEL", "devices", "verify MODEL PLAN"])
def test_one_sentence_says_how_to_install_it(without, saved_model, tmp_path, command):
    """Whether the model is read in a process of its own or run in this one."""
    named = {"MODEL": str(saved_model), "PLAN": str(tmp_path / "plan.json")}
    finished = without("-m", "placer", *(named.get(word, word) for word in command.split()))
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
    """What ops cost and which kernels exist comes from files of this package: the same graph has
    the same plan with TensorFlow and without."""
    extracted = pickle.dumps(extract(str(saved_model), batch_size=8))
    (tmp_path / "extracted").write_bytes(extracted)
    (tmp_path / "placing.py").write_text(PLACING)
    finished = without(str(tmp_path / "placing.py"), str(tmp_path / "extracted"))
    names: dict[str, object] = {"__name__": "placing"}
    exec(PLACING, names)
    plan = names["place"](extracted)
    assert finished.stdout == f"{plan.solver.status} {plan.placement}\n", finished.stderr
    assert len(set(plan.placement.values())) > 1
