"""The same request gives the same plan, whatever else the machine does, or says that it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from layered_graphs import layered_graph
from long_tests import long_test

from placer.__main__ import main
from placer.plan.plan import Plan
from placer.rendering.text.plan_text import CUT

PLACE = ["--batch-size", "8", "--outputs", "y", "--time-limit", "500", "--force", "-q"]


@pytest.fixture(scope="module")
def layers(tmp_path_factory) -> Path:
    """A GraphDef of 400 ops with a loop."""
    path = tmp_path_factory.mktemp("layers") / "layers.pb"
    path.write_bytes(layered_graph(400).SerializeToString())
    return path


def place_in_process(model: Path, plan: Path, hash_seed: int, *options: str) -> dict[str, object]:
    """The plan but for its seconds, out of a process with its own order of sets."""
    command = [sys.executable, "-m", "placer", "place", str(model), *PLACE, *options]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [*command, "-o", str(plan)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(plan.read_text())
    for timed in (content["solver"], *content["solver"]["stages"]):
        del timed["seconds"]
    return content


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    ["transfer", *(pytest.param(each, marks=long_test) for each in ("step-time", "throughput"))],
)
def test_a_work_limit_gives_the_same_plan_under_any_load(layers, tmp_path, objective):
    """Alone and beside processes that keep every core busy, with sets in another order: the same
    file but for its seconds, and nothing was cut; caps that hardly hold the model, on three
    devices."""
    caps = ("--devices", "3xGPU", "--max-memory", "GPU:*=150KiB")
    options = (*caps, "--objective", objective, "--work-limit", "1")
    alone = place_in_process(layers, tmp_path / "alone.json", 1, *options)
    spinning = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spinning) for _ in range(1 + (os.cpu_count() or 1))]
    try:
        beside = place_in_process(layers, tmp_path / "beside.json", 2, *options)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert beside == alone
    assert alone["solver"]["cut_by_time"] is False


def test_what_is_proven_at_once_is_the_same_without_a_work_limit(saved_model, tmp_path):
    """Everything on one device transfers what any placement must: no clock has a say in it."""
    options = ("--devices", "2xT4")
    plans = [
        place_in_process(saved_model, tmp_path / f"{seed}.json", seed, *options) for seed in (1, 2)
    ]
    assert plans[0] == plans[1]
    assert plans[0]["solver"]["cut_by_time"] is False


def test_a_search_that_the_clock_ended_says_so(layers, tmp_path, capsys):
    """In the plan, and in a sentence under the status unless the answer is proven all the same."""
    path = tmp_path / "plan.json"
    caps = ["--devices", "3xGPU", "--max-memory", "GPU:*=150KiB", "--offload", "never"]
    argv = ["place", str(layers), *PLACE, *caps, "--time-limit", "1.5", "-o", str(path)]
    assert main(argv) in (0, 6)
    solver = Plan.load(path).solver
    assert solver.cut_by_time is True
    assert (CUT in " ".join(capsys.readouterr().out.split())) == (solver.status != "OPTIMAL")
