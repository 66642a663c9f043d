"""A predicted step as a log that TensorBoard reads: the graph with devices and costs.

The graph plugin colours by the device of each node; memory and compute time it takes from the
``StepStats`` of a tagged run.
"""

import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.util import event_pb2

from cost_models.device_names import full_name
from placer.files import replaced
from placer.graph.tensor_names import short_tensor
from placer.prediction.predicted_step import PredictedStep

TAG = "predicted step"
"""Name of the run in TensorBoard's list of tags."""


def write_event_file(
    step: PredictedStep, folder: str | os.PathLike[str], *, force: bool = False
) -> None:
    """Writes ``folder`` with one event file, for ``tensorboard --logdir FOLDER``.

    Raises ``UsageError`` if the folder exists and ``force`` is false.
    """
    run = event_pb2.TaggedRunMetadata(tag=TAG, run_metadata=_run_metadata(step).SerializeToString())
    events = [
        event_pb2.Event(file_version="brain.Event:2"),
        event_pb2.Event(graph_def=_graph_def(step).SerializeToString()),
        event_pb2.Event(tagged_run_metadata=run),
    ]
    with replaced(folder, force=force) as new:
        new.mkdir()
        # TensorBoard reads files with ``tfevents`` in their name
        with tf.io.TFRecordWriter(str(Path(new) / "events.out.tfevents.0.placer")) as writer:
            for event in events:
                writer.write(event.SerializeToString())


def _graph_def(step: PredictedStep) -> Any:
    """The flat graph with every op on its device."""
    full_names = [full_name(name) for name in step.devices]
    graph = graph_pb2.GraphDef()
    for number, name in enumerate(step.ops):
        inputs = ((step.ops[edge.producer], edge.index) for edge in step.edges[number])
        graph.node.add(
            name=name,
            op=step.op_types[number],
            device=full_names[step.device_of[number]],
            input=[f"^{op}" if n < 0 else short_tensor(op, n) for op, n in inputs],
        )
    return graph


def _run_metadata(step: PredictedStep) -> Any:
    """Times in whole microseconds (the unit of the format), memory as output and resident bytes."""
    found = config_pb2.RunMetadata()
    devices = [found.step_stats.dev_stats.add(device=full_name(name)) for name in step.devices]
    for number, name in enumerate(step.ops):
        start = round(step.start_seconds[number] * 1e6)
        finish = round(step.finish_seconds[number] * 1e6)
        held = sum(size or 0 for size in step.output_bytes[number])
        held += step.persistent_bytes[number] + step.temporary_bytes[number]
        node = devices[step.device_of[number]].node_stats.add(
            node_name=name,
            all_start_micros=start,
            op_end_rel_micros=finish - start,
            all_end_rel_micros=finish - start,
            all_start_nanos=round(step.start_seconds[number] * 1e9),
            all_end_rel_nanos=round(
                (step.finish_seconds[number] - step.start_seconds[number]) * 1e9
            ),
            timeline_label=step.op_types[number],
        )
        node.memory.add(allocator_name=step.devices[step.device_of[number]], total_bytes=held)
    return found
