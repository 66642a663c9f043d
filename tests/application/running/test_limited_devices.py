"""Processes whose tensors come from a limited allocator."""

from __future__ import annotations

import pytest
import tensorflow as tf
from fuzzing.warm_children import run_python

from placer.application.running.limited_devices import (
    Limit,
    _attempt,
    limited_environment,
)
from placer.errors import ModelError

_TAKEN = """
import sys
import tensorflow as tf
from placer.application.running.limited_devices import Limit, take_one_region, _unwritten
beyond = take_one_region(Limit(bytes=int(sys.argv[1]), in_one_region=True))
held = tf.config.experimental.get_memory_info("CPU:0")["current"]
rest = _unwritten(int(sys.argv[1]) // 256 * 256)
print(beyond, held, tf.config.experimental.get_memory_info("CPU:0")["current"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit_bytes", [200 * 2**20, 3000 * 2**20 + 300_123])
def test_one_region_is_all_that_may_be_handed_out(limit_bytes):
    """One tensor may have it all, to the last chunk of 256 bytes, also where TensorFlow is told
    more (whole MiB), or there are more bytes than an int32 counts."""
    limit = Limit(bytes=limit_bytes, in_one_region=True)
    environment = limited_environment(limit.mib, optimised=False)
    found = run_python(["-c", _TAKEN, str(limit_bytes)], environment=environment)
    beyond, held, full = map(int, found.stdout.split())
    assert beyond == held == limit.mib * 2**20 - limit_bytes // 256 * 256
    assert full == limit.mib * 2**20


class _NoneEnded:
    """Devices of which every process is there."""

    def __init__(self):
        self.ended = {}


def _failing(error_type, message):
    def run():
        raise error_type(None, None, message)

    return run


def test_a_constant_without_memory_ran_out_of_it_where_it_lies():
    """TensorFlow says that it cannot parse it, and not which device has no memory."""
    with tf.Graph().as_default() as graph, tf.device("/job:placer/task:2/device:CPU:0"):
        tf.constant(1.0, name="c")
    message = "Cannot parse tensor from proto: dtype: DT_FLOAT\n\n\t [[{{node c}}]]"
    run = _failing(tf.errors.InvalidArgumentError, message)
    found = _attempt(run, _NoneEnded(), graph)
    assert found == (2, "c", "Cannot parse tensor from proto: dtype: DT_FLOAT")


def test_other_faults_are_no_lack_of_memory():
    """A program that does not run is said to do so."""
    run = _failing(tf.errors.InvalidArgumentError, "Incompatible shapes: [2] vs. [3]")
    with pytest.raises(ModelError, match="does not run: Incompatible shapes"):
        _attempt(run, _NoneEnded(), tf.Graph())


def test_a_lack_of_memory_says_which_process_it_was():
    """As TensorFlow's message does."""
    said = "OOM when allocating tensor with shape[2] on /job:placer/replica:0/task:1/device:CPU:0"
    run = _failing(tf.errors.ResourceExhaustedError, said + "\n\t [[{{node y}}]]")
    task, op, _ = _attempt(run, _NoneEnded(), tf.Graph())
    assert (task, op) == (1, "y")
