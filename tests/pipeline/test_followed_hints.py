"""Hints that cost nothing are followed, and no others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_problems import problem_of

from placer.graph.op_graph import ColocationGroup
from placer.pipeline.followed_hints import follow_hints
from placer.solving.solution import Solution, Status


@pytest.mark.parametrize(
    ("hint", "peak", "expected"),
    [
        (("op0", "op1"), 0, (0, 0, 1)),  # as much is sent one op later
        (("op0", "op2"), 0, (0, 1, 1)),  # a second tensor would be sent
        (("op0", "op1"), 11, (0, 1, 1)),  # what the prediction finds is above a cap
    ],
)
def test_what_a_hint_ties_is_together_where_that_costs_nothing(hint, peak, expected):
    """Of a chain whose first op has one device and whose last another, the middle may be on
    either."""
    problem = problem_of(
        resident=[0, 0, 0],
        tensors=[(0, [1], 8), (1, [2], 8)],
        capacity=[10, 10, 10],
        allowed=[[0], [0, 1], [1]] if hint[1] == "op1" else [[0], [1], [0, 1]],
    )
    graph = SimpleNamespace(
        colocation_hints=(ColocationGroup(ops=hint, reasons=("colocation_hint",)),)
    )
    found = follow_hints(
        SimpleNamespace(graph=graph, problem=problem),
        Solution(status=Status.FEASIBLE, device_of=(0, 1, 1), value=8.0),
        lambda _: (SimpleNamespace(peak_bytes=peak),) * 3,
    )
    assert (found.device_of, found.value) == (expected, 8.0)
