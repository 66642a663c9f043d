"""``placer simulate``: what scripts held, why they had no room, gates and time limits."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from simulation.simulated_runs import require_simulation

from placer.__main__ import main
from placer.rendering.text.layout import to_text
from placer.rendering.text.simulation_text import _advice_for, simulation_blocks
from placer.simulation.cards import read_cards
from placer.simulation.records import GpuRecord, Held, Moment, ProcessRecord
from placer.simulation.runs import SimulatedRun, run_simulated

TRAINING = """
import sys, numpy as np, keras, tensorflow as tf
width = int(sys.argv[1])
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width, name="wide"),
                          keras.layers.Dense(1, name="last")])
model.compile("adam", "mse", jit_compile=False)
model.fit(np.ones((32, 8), "float32"), np.ones((32, 1), "float32"), batch_size=16, verbose=0)
print(tf.config.experimental.get_memory_info("GPU:0")["peak"])
"""


def simulate(
    tmp_path: Path, *options: str, script: str = TRAINING, width: int = 0
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command on a script."""
    require_simulation()
    path = tmp_path / "train.py"
    path.write_text(script)
    command = [sys.executable, "-m", "placer", "simulate", *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, str(path), str(width)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_peak_is_tensorflows_own_and_a_gate_trips(tmp_path: Path) -> None:
    """The most in use is what TensorFlow says, every byte of it has a holder, variables have their
    names, and a limit below it ends the command with exit code 7."""
    out = tmp_path / "run.json"
    gate = ("--fail-above", "GPU:0=1MiB", "--format", "json", "-o", str(out))
    code, printed, told = simulate(tmp_path, "--devices", "2xT4", *gate, width=20_000)
    assert code == 7, told[-3000:]
    assert "GPU:0 held" in told
    found = json.loads(out.read_text())
    assert found["schema"] == "placer.simulation/1"
    assert found["exit_code"] == 0
    gpu, other = found["processes"][0]["gpus"]
    assert gpu["peak"]["in_use_bytes"] == int(printed.split()[-1]) == found["peak_bytes"]["GPU:0"]
    held = {row["op"]: row["held_bytes"] for row in gpu["peak"]["held"]}
    assert sum(held.values()) == gpu["peak"]["in_use_bytes"]
    kernel = next(size for op, size in held.items() if op.startswith("variable") and "wide/k" in op)
    assert any(op.startswith("variable adam/") for op in held)  # which a function has made
    assert 8 * 20_000 * 4 <= kernel < 2 * 8 * 20_000 * 4
    assert other["peak"]["in_use_bytes"] < gpu["peak"]["in_use_bytes"]


FILLING = """
import tensorflow as tf
with tf.device("GPU:0"):
    kept = tf.Variable(tf.zeros((6, 1024, 256)), name="kept")
    doubled = tf.add(kept, kept)
"""


@pytest.mark.slow
def test_an_out_of_memory_error_is_explained(tmp_path: Path) -> None:
    """The script ends with TensorFlow's own error and code 1; behind it stand who asked for how
    much, who held the memory, and what to try."""
    code, printed, told = simulate(tmp_path, "--devices", "GPU:10MiB", script=FILLING)
    assert code == 1
    assert "ResourceExhausted" in told
    assert "GPU:0 had no room" in printed
    assert "AddV2 asked for 6.00 MiB" in printed
    assert "variable kept" in printed
    assert "try" in printed


WAITING = """
import tensorflow as tf
with tf.device("GPU:0"):
    total = tf.Variable(tf.zeros(()))
    while float(tf.reduce_sum(tf.matmul(tf.ones((2, 2)), tf.ones((2, 2))))) < 1.0:
        total.assign_add(1.0)
"""


@pytest.mark.slow
def test_a_script_that_waits_for_a_value_is_ended(tmp_path: Path) -> None:
    """The time limit ends a loop on a value that no kernel computes, with exit code 6, and names
    the op whose value was read last."""
    for limit in ("15", "90"):  # the longer one where the machine is too busy to begin in time
        code, _, told = simulate(tmp_path, "--devices", "T4", "--time-limit", limit, script=WAITING)
        assert code == 6, told[-3000:]
        if "that of Sum: simulated GPUs compute no" in told:
            break
    assert "that of Sum: simulated GPUs compute no" in told
    assert "train.py" in told  # where Python was


def moment(**given: object) -> Moment:
    """Four variables and a batch, 10 MiB in all."""
    held = (
        Held(op="variable dense/kernel", held_bytes=8 * 2**20, count=4),
        Held(op="model/MatMul", held_bytes=2 * 2**20, count=1),
    )
    known = {"in_use_bytes": 10 * 2**20, "asked_bytes": 4 * 2**20, "seconds": 3.0, "launches": 12}
    return Moment(op="model/Relu", held=held, **{**known, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "refusals", "answer", "told"),
    [
        (
            *(
                1,
                1,
                "Out of memory on GPU:0: model/Relu asked for 4.00 MiB with 10.0 MiB of 12.0 MiB",
            ),
            "4.00 MiB with 10.0 MiB of 12.0 MiB in use, 3.00 s after the start",
        ),
        (0, 1, "Ran to its end: GPU:0 held at most 10.0 MiB of 12.0 MiB.", "refused 1 request"),
        (
            *(1, 0, "Failed, not for lack of memory: GPU:0 held at most 10.0 MiB of 12.0 MiB."),
            "read 3 values from the GPUs, the last of loss: values are not simulated",
        ),
    ],
)
def test_the_text_says_why_a_script_failed(
    code: int, refusals: int, answer: str, told: str
) -> None:
    """The answer comes first.  A failed script was refused memory, and the text says which op asked
    and what held it, or perhaps compared values; where it did not fail, TensorFlow did without."""
    record = GpuRecord(
        index=0,
        peak=moment(asked_bytes=0),
        refused=moment() if refusals else None,
        refusals=refusals,
        taken_bytes=12 * 2**20,
        launches=12,
        last_op="model/Relu",
        live_bytes=0,
        live_asked_bytes=0,
    )
    run = SimulatedRun(
        command=("python", "train.py"),
        gpus=read_cards("2xGPU:12MiB"),
        exit_code=code,
        seconds=5.0,
        is_late=False,
        processes=(
            ProcessRecord(process=1, started=0.0, reads=3, last_read_op="loss", gpus=(record,)),
        ),
    )
    text = to_text(simulation_blocks(run, 100), width=100, colour=False)
    assert text.startswith(answer)
    assert told in " ".join(text.split())
    assert "variable dense/kernel  8.00 MiB" in text
    assert "12.0 MiB 0 B 0.0% - - 0" in " ".join(text.split())  # not used
    assert ("values are not simulated" in " ".join(text.split())) == (code == 1 and not refusals)


def test_a_request_larger_than_all_in_use_is_not_blamed_on_a_step() -> None:
    """A weight of 4 MiB, created when nothing is there yet."""
    record = GpuRecord(
        index=0,
        peak=moment(),
        refused=replace(moment(in_use_bytes=2816), held=()),
        refusals=1,
        taken_bytes=0,
        launches=0,
        last_op="",
        live_bytes=0,
        live_asked_bytes=0,
    )
    (line,) = _advice_for(record, 2**20)
    assert line.startswith("this request is larger than all that was in use")


def test_one_time_is_told_of_a_run_that_the_limit_ended() -> None:
    """The limit: the process had a moment more, to say where it was."""
    run = SimulatedRun(
        command=("sleep", "5"),
        gpus=read_cards("T4"),
        exit_code=143,
        seconds=2.0,
        is_late=True,
        processes=(),
    )
    text = to_text(simulation_blocks(run, 100), width=100, colour=False)
    assert "ended by the time limit\n" in text
    assert "2.00 s" not in text


@pytest.mark.slow
def test_a_run_needs_no_stderr_that_is_a_file() -> None:
    """As in a notebook, or where it was closed."""
    require_simulation()
    for stream in (io.StringIO(), None):
        with contextlib.redirect_stderr(stream):
            assert run_simulated(["true"], read_cards("T4")).exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--devices", "2xT4"], "a command is missing"),
        (["--devices", "CPU:4GiB", "--", "true"], "names 0 GPUs"),
        (["--devices", "T4", "--fail-above", "GPU:1=1GiB", "--", "true"], "no such device"),
    ],
)
def test_wrong_usage(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command, a GPU or a device that a gate is about, the exit code is 2."""
    assert main(["simulate", *words]) == 2
    assert told in capsys.readouterr().err
