"""The values of a SavedModel, restored one variable at a time, each straight to its device.

TensorFlow's loaders run one RestoreV2 for everything, so that the host holds all values at once.
Here a model is loaded without values (``LoadOptions(experimental_skip_checkpoint=True)``), and
then gets them one by one: those of TensorFlow 2 through the objects, whose graph the checkpoint
has too; those of TensorFlow 1 through the ops that its restore op waits for.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.eager import wrap_function
from tensorflow.python.eager.polymorphic_function.saved_model_utils import TrackableConstant

from placer.application.devices.runtime_settings import soft_placement
from placer.application.running.checkpoints import Progress, matched_objects, stored_value
from placer.errors import ModelError, UsageError
from placer.extraction.reading.checkpoint_index import (
    OBJECT_GRAPH,
    PREFIX,
    CheckpointIndex,
    read_index,
)
from placer.extraction.reading.loaded_variables import VALUE, string_values
from placer.extraction.splitting.split_checkpoints import write_partial_checkpoint
from placer.graph.op_types import ASSIGNS, RESTORES, TABLE_INITIALISERS

RESTORED = ASSIGNS | TABLE_INITIALISERS
"""Op types that take what was read."""


def load_one_by_one(
    folder: Path, saved_model: Any, tags: Sequence[str] | None, progress: Progress | None = None
) -> Any:
    """Loads the SavedModel in ``folder`` as ``tf.saved_model.load`` does, variables where it says.

    ``progress`` is told bytes read, bytes in all, and what comes next.  Raises
    :class:`ModelError` for a checkpoint that is damaged or not there, :class:`UsageError` for
    ``tags`` that no graph has.
    """
    index = read_index(folder)
    if damage := index.unreadable or index.damage:
        raise ModelError(f"{str(folder)!r}: {damage}")
    options = tf.saved_model.LoadOptions(
        experimental_variable_policy="save_variable_devices", experimental_skip_checkpoint=True
    )
    chosen = _chosen(saved_model, tags)
    # without soft placement TensorFlow ignores the saved devices of variables
    with soft_placement(True), _lifted_where_placed(), _constants_where_placed(chosen):
        loaded = tf.saved_model.load(str(folder), tags=tags, options=options)
    if not index.has_data:
        if getattr(loaded, "variables", None):
            raise ModelError(f"{str(folder)!r} has no weights: its variables are not there")
        return loaded
    told = _Told(index, progress or (lambda *_: None))
    prefix = str(folder / PREFIX)
    if OBJECT_GRAPH in index.entries:
        _restore_objects(loaded, prefix, index, told)
    elif len(saved_model.meta_graphs) == 1 and chosen.object_graph_def.nodes:
        # its attributes may be functions of the model
        raise ModelError(
            f"{str(folder)!r}: its checkpoint lacks the graph of objects: save the model again"
        )
    else:
        _restore_graph(loaded, chosen, prefix, told)
    told.done()
    return loaded


def _chosen(saved_model: Any, tags: Sequence[str] | None) -> Any:
    """The meta graph that TensorFlow loads; raises :class:`UsageError` if it would load none."""
    graphs = saved_model.meta_graphs
    if tags is None and len(graphs) == 1:
        return graphs[0]
    wanted = {tags} if isinstance(tags, str) else set(tags or ())
    for graph in graphs:
        if tags is not None and set(graph.meta_info_def.tags) == wanted:
            return graph
    known = " or ".join(str(sorted(graph.meta_info_def.tags)) for graph in graphs)
    raise UsageError(f"tags must be {known}, as in the model; got {tags!r}")


class _Told:
    """Tells how far reading is."""

    def __init__(self, index: CheckpointIndex, show: Progress) -> None:
        self.sizes = {key: entry.bytes for key, entry in index.entries.items()}
        self.total, self.read, self.show = sum(self.sizes.values()), 0, show

    def next(self, keys: Sequence[str]) -> None:
        """The values under ``keys`` are read now."""
        self.show(self.read, self.total, keys[0] if keys else "")
        self.read += sum(self.sizes.get(key, 0) for key in keys)

    def done(self) -> None:
        """All is read."""
        self.show(self.total, self.total, "")


def _restore_objects(loaded: Any, prefix: str, index: CheckpointIndex, told: _Told) -> None:
    """Restores variables one by one, and what other objects keep as TensorFlow does."""
    content = index.text(OBJECT_GRAPH) or b""
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content)
    objects = matched_objects(loaded, graph.nodes)
    left = set(index.entries) - {OBJECT_GRAPH}
    for number, node in enumerate(graph.nodes):
        (key, *more) = [item.checkpoint_key for item in node.attributes] or [""]
        variable = objects.get(number)
        is_plain = key and not more and node.attributes[0].name == VALUE
        if is_plain and isinstance(variable, tf.Variable):
            told.next([key])
            variable.assign(stored_value(prefix, key, variable.dtype))
            node.ClearField("attributes")
            left.discard(key)
    if not left or not any(node.attributes for node in graph.nodes):
        return
    with tempfile.TemporaryDirectory(prefix="placer-restore-") as folder:
        rest = Path(folder) / "rest"
        told.next(sorted(left))
        write_partial_checkpoint(Path(prefix), rest, left, graph.SerializeToString())
        tf.train.Checkpoint(loaded).read(str(rest / PREFIX.name)).expect_partial()


def _restore_graph(loaded: Any, meta_graph: Any, prefix: str, told: _Told) -> None:
    """Runs what the restore op of a graph of TensorFlow 1 waits for, op by op."""
    if not meta_graph.saver_def.restore_op_name:
        return
    restore = loaded.graph.as_graph_element(meta_graph.saver_def.restore_op_name)
    steps = list(_waited_for(getattr(restore, "op", restore)))
    if any(op.type not in RESTORED for op in steps):  # a call, say
        loaded.restore(prefix)
        return
    for op in steps:
        outputs = _restored_outputs(op)
        keys, spans = [], []
        for tensor in outputs:
            names, slices = (string_values(item.op.node_def) for item in tensor.op.inputs[1:3])
            keys.append(names[tensor.value_index])
            spans.append(slices[tensor.value_index] if len(slices) == len(names) else b"")
        told.next([key.decode() for key in keys])
        assign = loaded.prune(feeds=outputs, fetches=[op])
        with tf.device("CPU:0"):
            values = tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=keys,
                shape_and_slices=spans,
                dtypes=[tensor.dtype for tensor in outputs],
            )
        assign(*values)


def _waited_for(restore: Any) -> Iterator[Any]:
    """The ops that ``restore`` groups, itself if it groups none."""
    pending, seen = [restore], {restore.name}
    while pending:
        op = pending.pop()
        if op.type != "NoOp":
            yield op
            continue
        for before in op.control_inputs:
            if before.name not in seen:
                seen.add(before.name)
                pending.append(before)


def _restored_outputs(op: Any) -> list[Any]:
    """The tensors of a checkpoint that ``op`` needs."""
    pending, found = list(op.inputs), dict[str, Any]()
    while pending:
        tensor = pending.pop()
        if tensor.op.type in RESTORES:
            found[tensor.name] = tensor
        else:
            pending.extend(tensor.op.inputs)
    return list(found.values())


def _constants_where_placed(meta_graph: Any) -> AbstractContextManager[None]:
    """Makes the constants of the object graph on the devices of their ops, in the block;
    ``tf.saved_model.load`` makes those that are no strings on the default device."""
    device_of = {node.name: node.device for node in meta_graph.graph_def.node if node.device}
    make = TrackableConstant._deserialize_from_proto

    def make_there(object_proto: Any, **known: Any) -> Any:
        with tf.device(device_of.get(object_proto.constant.operation)):
            return make(object_proto=object_proto, **known)

    return _replaced(TrackableConstant, "_deserialize_from_proto", make_there)


def _lifted_where_placed() -> AbstractContextManager[None]:
    """Makes the variables of a graph of TensorFlow 1 on the devices of its handles, in the block.

    ``tf.saved_model.load`` lifts them out of the graph onto the default device
    (``tensorflow/python/eager/wrap_function.py``).
    """
    lift = wrap_function._lift_single_variable

    def lift_there(variable: Any, graph: Any, holder: Any) -> Any:
        with tf.init_scope(), tf.device(variable.handle.op.device or None):
            return lift(variable, graph, holder)

    return _replaced(wrap_function, "_lift_single_variable", lift_there)


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Puts ``function`` in the place of one of TensorFlow's, in the block."""
    before = vars(owner)[name]  # of a class, as it stands there
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)
