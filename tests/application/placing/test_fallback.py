"""What soft placement moves is foreseen, seen, recorded, or refused."""

import pytest
import tensorflow as tf
from placements import plan_for

from placer import apply, verify
from placer.application.placing.fallback import (
    foresee_moves,
    record_moves,
    refuse_moves,
)
from placer.application.verifying.verification_result import seen_moves
from placer.errors import VerificationError
from placer.extraction.reading.loading import load_program


@pytest.fixture(scope="module")
def function():
    """A matmul, a float remainder of strings' lengths, and a variable that is read."""
    weight = tf.Variable(tf.ones([2, 2]), name="weight")

    @tf.function(input_signature=[tf.TensorSpec([2, 2], name="x"), tf.TensorSpec([2], tf.int32)])
    def run(x, n):
        y = tf.matmul(x, weight, name="product")
        text = tf.strings.as_string(n, name="text")
        return y, tf.bitcast(tf.strings.length(text, name="length"), tf.int32)

    run.keep = weight
    return run


@pytest.fixture(scope="module")
def program(function):
    return load_program(function)


@pytest.fixture(scope="module")
def careless(program):
    """A plan that asks GPU:0 for everything, and GPU:1 for the variable."""
    handle = program.variables[0].handle
    placement = {node.name: "GPU:0" for node in program.graph_def.node} | {handle: "GPU:1"}
    return plan_for(program, placement)


def test_moves_are_foreseen_with_their_reasons(program, careless):
    """No kernel there, and colocated with a variable elsewhere; what can run there is left out."""
    moves = {move.op: move for move in foresee_moves(program, careless.placement)}
    assert moves["text"].code == "host_only_kernel"
    assert (moves["text"].requested, moves["text"].actual) == ("GPU:0", "CPU:0")
    reads = [move for move in moves.values() if move.code.startswith("colocated_with:")]
    assert [move.actual for move in reads] == ["GPU:1"]
    assert "product" not in moves
    assert not foresee_moves(program, dict.fromkeys(careless.placement, "CPU:0"))


def test_a_dtype_without_a_kernel_is_told_from_an_op_without_one():
    """MatMul has GPU kernels, none for int64: the reason lists those there are."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.int64, [2, 2], name="x")
        tf.matmul(x, x, name="product")
    program = load_program(graph)
    (move,) = foresee_moves(program, {"x": "CPU:0", "product": "GPU:0"})
    assert move.code == "no_kernel_for_dtype"
    assert "DT_FLOAT" in move.reason or "float" in move.reason


def test_strict_refuses_and_soft_tells(function, careless, caplog):
    """Strict ends with exit code 8 before anything runs; soft warns of each op."""
    with pytest.raises(VerificationError, match=r"would move .* text") as caught:
        apply(function, careless, strict=True)
    assert caught.value.exit_code == 8
    apply(function, careless)
    assert "will move text: GPU:0 -> CPU:0" in caplog.text


def test_what_a_run_moved_is_recorded_in_the_plan(function, program):
    """Requested against actual, by reason; a plan that was kept has no such warning."""
    from placer import place

    plan = place(function, "2xGPU:1GiB", time_limit=2)
    assert not seen_moves(verify(function, plan))
    refuse_moves(seen_moves(verify(function, plan)), "moved")
    moves = foresee_moves(program, dict.fromkeys(plan.placement, "GPU:0"))
    recorded = record_moves(plan, moves)
    rows = [row for row in recorded.warnings if row.code == "fallback"]
    assert sum(row.count for row in rows) == len(moves) > 0
    assert type(plan).from_json(recorded.to_json()) == recorded
