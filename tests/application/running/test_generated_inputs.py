"""Input values: what is given is held against what the program takes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from placer.application.running.generated_inputs import input_values
from placer.errors import UsageError
from placer.extraction.graph_defs.program import ProgramInput

PROGRAM = SimpleNamespace(
    inputs=(
        ProgramInput(key="x", tensor="x:0", dtype="float32", shape=(None, 3)),
        ProgramInput(key="free", tensor="free:0", dtype="int32", shape=None),
    )
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"y": 1}, "no input 'y'; the inputs are x, free"),
        ({"x": np.zeros((2, 4))}, r"'x' is given as \[2, 4\], and is \[\?, 3\]"),
        ({"x": np.zeros(3)}, r"'x' is given as \[3\]"),
        ({"x": [["a", "b", "c"]]}, "'x' is a float32, its values are not"),
        ([1.0], "1 input values are given for 2 inputs"),
    ],
)
def test_values_that_do_not_fit_are_refused(given, told):
    """Before anything runs, in the words of the model's inputs."""
    pytest.importorskip("tensorflow")
    with pytest.raises(UsageError, match=told):
        input_values(PROGRAM, given)


def test_values_that_fit_are_taken():
    """In the dtype of the input; an input of unknown shape takes any."""
    pytest.importorskip("tensorflow")
    found = input_values(PROGRAM, {"x": np.ones((5, 3)), "free": [[1]]})
    assert (found["x"].dtype, found["x"].shape) == (np.float32, (5, 3))
    assert (found["free"].dtype, found["free"].shape) == (np.int32, (1, 1))
