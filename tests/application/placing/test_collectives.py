"""What is said of steps after the one that closed TensorFlow's collectives."""

import threading

import pytest
import tensorflow as tf

from placer.application.placing import collectives
from placer.errors import PlacerError

CANCELLED = tf.errors.CancelledError(None, None, "Loop execution was cancelled.")
WRONG = tf.errors.InvalidArgumentError(None, None, "Tensor had NaN values")
CLOSED = tf.errors.AbortedError(None, None, "Collective ops is aborted by: NaN values")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    monkeypatch.setattr(collectives, "_a_step_failed", threading.Event())


def ended_by(error):
    """What a step with collectives raises if TensorFlow ends it with ``error``."""
    with pytest.raises((PlacerError, tf.errors.OpError)) as raised, collectives.collectives_open():
        raise error
    return raised.value


@pytest.mark.parametrize("later", [CLOSED, CANCELLED])
def test_steps_after_a_failed_one_say_what_to_do(later):
    """Whichever of the two errors TensorFlow raises."""
    assert ended_by(WRONG) is WRONG
    for _ in range(2):
        told = ended_by(later)
        assert isinstance(told, PlacerError)
        assert "from the last checkpoint" in str(told)
        assert told.__cause__ is later


def test_a_step_cancelled_by_its_caller_keeps_its_error():
    assert ended_by(CANCELLED) is CANCELLED


def test_a_failure_without_collectives_waiting_keeps_its_error():
    assert ended_by(WRONG) is WRONG
    assert ended_by(WRONG) is WRONG
