"""The score of a placement, against its definition."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.prediction.scoring import score
from placer.problem.placement_problem import PlacementProblem, ProblemTensor

_OPS = ("a", "b", "c", "d")


def _problem(**changes):
    """a -(8)-> b, c; b -(4)-> d; c -(2)-> d on two GPUs and the host."""
    problem = PlacementProblem(
        op_names=_OPS,
        device_names=("CPU:0", "GPU:0", "GPU:1"),
        host=0,
        resident_bytes=(100, 10, 0, 1),
        temporary_bytes=(0,) * 4,
        seconds=((0.0,) * 3,) * 4,
        group=(0, 1, 2, 3),
        allowed=((1, 2),) * 4,
        spillable=(True,) * 4,
        tensors=(
            ProblemTensor(producer=0, consumers=(1, 2), bytes=8),
            ProblemTensor(producer=1, consumers=(3,), bytes=4),
            ProblemTensor(producer=2, consumers=(3,), bytes=2),
        ),
        control_edges=(),
        capacity_bytes=(1000, 1000, 1000),
        transient_bytes=(0, 0, 0),
        live_bytes=(),
        bandwidth=((1.0,) * 3,) * 3,
        latency=((0.0,) * 3,) * 3,
    )
    return replace(problem, **changes)


def test_a_tensor_is_sent_once_per_reading_device():
    """Two readers on one other device cost one send, on two other devices two."""
    assert score(_problem(), (1, 1, 1, 1)).transfer_bytes == 0
    assert score(_problem(), (1, 2, 2, 2)).transfer_bytes == 8
    assert score(_problem(), (1, 2, 0, 2)).transfer_bytes == 8 + 8 + 2


def test_loads_add_resident_live_and_reserved_bytes():
    """Every moment is a row, every device a column."""
    problem = _problem(live_bytes=({0: 8, 1: 4}, {2: 2}), transient_bytes=(0, 5, 7))
    found = score(problem, (1, 2, 1, 0))
    assert found.load_bytes == ((1, 105 + 8, 17 + 4), (1, 105 + 2, 17))
    assert found.peak_bytes == (1, 113, 21)
    assert found.violations == ()


def test_without_moments_the_resident_bytes_count():
    """A problem that gives no moments is capped by what is resident."""
    found = score(_problem(capacity_bytes=(1000, 99, 1000)), (1, 1, 2, 2))
    assert found.load_bytes == ((0, 110, 1),)
    assert found.violations == ("GPU:0 holds 110 bytes at moment 0, 11 above its capacity of 99",)


def test_the_worst_moment_is_reported():
    """A cap that is broken at one moment only is broken."""
    problem = _problem(live_bytes=({}, {1: 5}, {}), capacity_bytes=(0, 115, 0))
    (violation,) = score(problem, (1, 1, 1, 1)).violations
    assert violation.startswith("GPU:0 holds 116 bytes at moment 1, 1 above")


def test_a_torn_group_is_a_violation():
    """Ops of one group must share a device."""
    found = score(_problem(group=(0, 1, 1, 3)), (1, 1, 2, 2))
    assert found.violations == ("c is on GPU:1, b of the same group on GPU:0",)


def test_pins_hold():
    """A pin is an allowed list of one."""
    problem = _problem(allowed=((1, 2), (2,), (1, 2), (1, 2)))
    assert score(problem, (1, 1, 1, 1)).violations == ("b is on GPU:0, allowed: GPU:1",)


def test_the_host_is_open_or_not():
    """A spillable op may be on the host under ``auto``, never under ``never``."""
    assert score(_problem(), (0, 1, 1, 1)).violations == ()
    assert score(_problem(spill="never"), (0, 1, 1, 1)).violations == (
        "a is on CPU:0, allowed: GPU:0, GPU:1",
    )
    assert score(_problem(spillable=(False,) * 4), (0, 1, 1, 1)).violations


def test_a_placement_must_cover_the_problem():
    """Too few devices, or a device that does not exist, is an error, not a score."""
    with pytest.raises(ValueError, match="3 devices given for 4 ops"):
        score(_problem(), (1, 1, 1))
    with pytest.raises(ValueError, match="d is on device 3 of 3"):
        score(_problem(), (1, 1, 1, 3))


@given(device_of=st.tuples(*[st.integers(0, 2)] * 4))
def test_the_cut_agrees_with_a_count_over_pairs(device_of):
    """Counting (tensor, device) pairs one by one gives the same bytes."""
    problem = _problem()
    expected = 0
    for tensor in problem.tensors:
        for device in range(3):
            if device != device_of[tensor.producer]:
                expected += tensor.bytes * any(device_of[op] == device for op in tensor.consumers)
    assert score(problem, device_of).transfer_bytes == expected
