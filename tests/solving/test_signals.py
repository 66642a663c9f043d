"""Ops without tensors sit where they signal least."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from small_problems import problem_of, random_problem

from placer.prediction.scoring import score
from placer.solving.signals import settle_signals


def test_an_op_that_waits_for_many_goes_to_them():
    """Op 3 waits for 0, 1 and 2 and sends nothing: it goes to the two of GPU:0.

    0, 1 (GPU:0), 2 (GPU:1) ..> 3      4 reads a tensor of 3's device mate and stays
    """
    problem = problem_of(
        resident=[1, 1, 1, 0, 0],
        tensors=[(2, [4], 8)],
        capacity=[9, 9, 9],
        allowed=[[0, 1]] * 5,
        control_edges=[(0, 3), (1, 3), (2, 3), (0, 4), (1, 4)],
    )
    assert settle_signals(problem, (0, 0, 1, 1, 1)) == (0, 0, 1, 0, 1)


def test_an_op_whose_tensors_are_empty_goes_to_its_reader():
    """Op 0 writes the shape of a scalar, which 1 and 2 read; what 3 writes has bytes."""
    problem = problem_of(
        resident=[0, 1, 1, 0],
        tensors=[(0, [1, 2], 0), (3, [1], 8)],
        capacity=[9, 9],
        allowed=[[0, 1]] * 4,
        control_edges=[],
    )
    assert settle_signals(problem, (0, 1, 1, 0)) == (1, 1, 1, 0)


@given(seed=st.integers(0, 10_000))
def test_bytes_and_loads_stay_what_they_are(seed):
    """Whatever the problem and the placement."""
    problem = random_problem(seed)
    device_of = tuple(allowed[-1] for allowed in problem.allowed)
    before, after = score(problem, device_of), score(problem, settle_signals(problem, device_of))
    assert after.transfer_bytes == before.transfer_bytes
    assert after.load_bytes == before.load_bytes
    assert len(after.violations) <= len(before.violations)
