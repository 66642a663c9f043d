"""Coarser problems, down to a few units whatever is beside them."""

from __future__ import annotations

import numpy as np
from small_problems import problem_of

from placer.solving.compiled.coarsening import coarser_levels
from placer.solving.reduction.unit_problem import reduce_to_units
from placer.solving.search.unit_arrays import transfer_arrays

CHAIN, ALONE = 64, 200


def test_units_that_nothing_ties_do_not_end_the_levels() -> None:
    """A chain beside three times as many ops that share no tensor with anything: the chain gets as
    coarse as without them."""
    chain = [(op, [op + 1], 8) for op in range(CHAIN - 1)]
    problem = problem_of(resident=[1] * (CHAIN + ALONE), tensors=chain, capacity=[300, 300, 0])
    arrays = transfer_arrays(reduce_to_units(problem))
    size = np.ones(CHAIN + ALONE)
    together = np.zeros(CHAIN + ALONE, np.int64)
    new_of = np.arange(CHAIN + ALONE)
    levels = coarser_levels(arrays, size, 20.0, 16, together, lambda: 1)
    for _, joined in levels:
        new_of = joined[new_of]
    assert len(np.unique(new_of[:CHAIN])) <= 16
    assert np.bincount(new_of).max() <= 20


def test_units_that_nothing_ties_stay_apart_where_asked_to() -> None:
    """Halves of such units that are to stay apart share no cluster."""
    problem = problem_of(resident=[1] * 100, tensors=[], capacity=[300, 300, 0])
    arrays = transfer_arrays(reduce_to_units(problem))
    apart = np.arange(100) % 2
    _, new_of = next(iter(coarser_levels(arrays, np.ones(100), 100.0, 4, apart, lambda: 1)))
    assert len(np.unique(new_of)) == 2
    assert not set(new_of[apart == 0]) & set(new_of[apart == 1])
