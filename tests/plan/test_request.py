"""What a placement can be asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from placer.errors import UsageError
from placer.plan.request import Options, describe_request, requested_options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": 0}, "batch_size is 0; give a whole number from 1"),
        ({"batch_size": "32"}, "batch_size is '32'"),
        (
            {"batch_size": 2**31 - 1},
            "batch_size is 2147483647; give a whole number from 1 to 2,147",
        ),
        ({"trip_count": 10**20}, "to 2^63-1"),
        ({"shapes": {"x": (None, 2**31 - 1)}}, "shapes has the size 2147483647 of 'x'; give at"),
        ({"ragged": {"x": (2**31 - 1, 5)}}, "ragged has the size 2147483647 of 'x'"),
        ({"dims": {"T": 2**31 - 1}}, "dims has the size 2147483647 of 'T'; give at most 2,147"),
        ({"trip_count": -1}, "trip_count is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"time_limit": -1.0}, "give seconds above zero"),
        ({"time_limit": float("nan")}, "give seconds above zero"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(options, told):
    """In the words of Python, before any work."""
    with pytest.raises(UsageError, match=told.replace("^", r"\^")):
        Options(**options)


def test_a_plan_remembers_the_request():
    """As JSON holds it, and back."""
    wanted = Options(batch_size=np.int64(8), outputs=("y",), pins={"a*": "GPU:0"}, seed=3)
    described = json.loads(json.dumps(describe_request("2xT4", wanted)))
    assert described == {
        "devices": "2xT4",
        "batch_size": 8,
        "outputs": ["y"],
        "pins": {"a*": "GPU:0"},
        "seed": 3,
    }
    assert requested_options(described) == wanted
