"""A plan fits its model in another process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fingerprints_of_formats.py")


@pytest.mark.slow
def test_fingerprints_count_nothing_of_a_process(tmp_path):
    """Two processes with other hash seeds, folders, devices and functions made before: every format
    has one fingerprint, of a SavedModel that each of them exports, too."""
    running = []
    for seed, devices in (("1", "1"), ("2", "3")):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, str(SCRIPT), devices]
        running.append(
            subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
        )
    outputs = [process.communicate()[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    first, second = (json.loads(output.splitlines()[-1]) for output in outputs)
    assert first == second
    assert len(set(first.values())) == 5  # a GraphDef of the function is the function
