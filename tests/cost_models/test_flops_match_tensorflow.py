"""Our flops beside those of TensorFlow's profiler, op by op."""

from pathlib import Path

import profiled_ops
import pytest

from cost_models import registry
from cost_models.registry import Work, cost_rule

tf = profiled_ops.tf


def _differing(families):
    """(op type, ours, TensorFlow's) of the ops for which they are not the same."""
    with tf.Graph().as_default():
        found = [tensor.op for family in families for tensor in family()]
        figures = [
            (op.type, profiled_ops.our_flops(op), profiled_ops.profiled_flops(op)) for op in found
        ]
    return [row for row in figures if row[1] != row[2]]


@pytest.mark.parametrize(
    "family", profiled_ops.EQUAL, ids=lambda family: family.__name__.strip("_")
)
def test_flops_equal_those_of_the_profiler(family):
    """Every op type that the profiler counts, and counts right, has equal flops."""
    assert _differing([family]) == []


def test_where_the_profiler_errs_it_is_stated():
    """What differs is listed with both formulas, and nothing is listed that is the same."""
    differing = {row[0] for row in _differing(profiled_ops.DIFFERENT)}
    assert differing == set(profiled_ops.FORMULAS)


def test_every_type_that_the_profiler_counts_is_compared():
    """TensorFlow's registry is walked: a type that is added there fails here."""
    with tf.Graph().as_default():
        compared = {tensor.op.type for family in profiled_ops.EQUAL for tensor in family()}
    assert len(compared) > 40
    assert compared == profiled_ops.profiled_types()


def test_the_page_says_what_is():
    """``docs/flops.md`` is what the comparison gives today."""
    page = Path(__file__).parents[2] / "docs" / "flops.md"
    assert page.read_text() == profiled_ops.table()


def test_a_wrong_rule_is_found(monkeypatch):
    """With half the flops for a product, the comparison fails for that type alone."""
    right = registry._RULES["MatMul"]
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    cost_rule("MatMul")(lambda info: Work(flops=right(info).flops // 2))
    assert {row[0] for row in _differing(profiled_ops.EQUAL)} == {"MatMul"}
