"""Limits, what exceeds them, and limits that would be enough."""

from __future__ import annotations

import pytest

from cost_models.byte_sizes import bytes_with_unit
from cost_models.clusters import parse_cluster
from placer.problem.limits import limits_for, limits_option, overruns


@pytest.mark.parametrize("reserve", [None, "1MiB", "25%", "1MiB+1%"])
@pytest.mark.parametrize("asked", [None, "GPU:1=12MiB", "GPU:1=12MiB,CPU:0=1GiB"])
def test_wider_limits_are_enough_and_leave_the_others(reserve, asked):
    """Asked for, they have the bytes usable, to less than a hundredth."""
    cluster = parse_cluster("2xGPU:8MiB,CPU:64GiB", asked, reserve)
    needed = {"GPU:0": bytes_with_unit("20MiB") + 1}
    option = limits_option(limits_for(cluster.devices, needed, asked, reserve))
    wider = parse_cluster("2xGPU:8MiB,CPU:64GiB", option.removeprefix("--max-memory "), reserve)
    assert needed["GPU:0"] <= wider.caps["GPU:0"] <= 1.02 * needed["GPU:0"]
    assert {**wider.caps, "GPU:0": 0} == {**cluster.caps, "GPU:0": 0}


def test_what_exceeds_a_limit_names_the_reserve():
    """Of the devices that exceed theirs alone."""
    cluster = parse_cluster("2xGPU:8MiB", None, "1MiB")
    assert overruns(cluster.devices, {"GPU:1": 2**20}) == [
        "GPU:1 requires 8.00 MiB, 1.00 MiB more than its limit of 8.00 MiB less the reserve of "
        "1.00 MiB"
    ]
