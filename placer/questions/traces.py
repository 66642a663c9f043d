"""The measurements in a trace of TensorFlow's profiler, beside the prediction."""

import os
from dataclasses import replace
from typing import Any

from placer.application.measuring.traces import read_trace
from placer.pipeline.pipeline import report
from placer.plan.measured_costs import MeasuredCosts


def profile_trace(
    source: str | os.PathLike[str], trace: str | os.PathLike[str], **options: Any
) -> MeasuredCosts:
    """Measured op times of the model in ``source`` out of a ``trace``, for ``costs=``, with the
    memory that the trace shows and the peaks that are predicted for one device.

    ``trace`` is a log folder of ``tf.profiler.experimental`` or of Keras's TensorBoard callback, or
    an ``*.xplane.pb`` file.  ``options`` choose and bind the program as for ``report``; errors as
    for :func:`~placer.application.measuring.traces.read_trace`.
    """
    found = read_trace(source, trace, **options)
    if not found.memory:
        return found
    options.pop("time_limit", None)
    memory = report(source, **options).memory
    predicted = {
        "low_bytes": memory.low_bytes,
        "expected_bytes": memory.peak_bytes,
        "high_bytes": memory.high_bytes,
        "resident_bytes": memory.weight_bytes
        + memory.optimizer_state_bytes
        + memory.metrics_bytes
        + memory.constant_bytes,
    }
    return replace(found, predicted_memory=predicted)
