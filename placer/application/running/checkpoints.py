"""Checkpoints read variable by variable, each straight to where it belongs.

TensorFlow restores a checkpoint as one op, which holds all values on the host before it assigns
the first (``tensorflow/python/checkpoint/restore.py``).  Here the host holds one value at a time.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from placer.errors import ModelError, UsageError, some
from placer.extraction.reading.checkpoint_index import OBJECT_GRAPH
from placer.extraction.reading.loaded_variables import VALUE

Variables = dict[str, Any]
"""Variables of TensorFlow or Keras, by key or path."""

Progress = Callable[[int, int, str], None]


def read_checkpoint(
    target: Any,
    prefix: str | os.PathLike[str],
    *,
    partial: bool = False,
    progress: Progress | None = None,
) -> int:
    """As :func:`placer.load_checkpoint`, whose ``progress`` may also be a flag."""
    reader = _open(prefix)
    stored = _match(target, reader, str(prefix), partial=partial)
    show = progress or (lambda *_: None)
    total, done = sum(size for _, size in stored.values()), 0
    for key, (variable, size) in stored.items():
        show(done, total, key)
        variable.assign(stored_value(str(prefix), key, variable.dtype))
        done += size
    show(done, total, "")
    return done


def stored_value(prefix: str, key: str, dtype: Any) -> Any:
    """The value under ``key`` of the checkpoint ``prefix``, as a tensor on the host."""
    with tf.device("CPU:0"):
        (value,) = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[dtype]
        )
    return value


def _open(prefix: str | os.PathLike[str]) -> Any:
    try:
        return tf.train.load_checkpoint(str(prefix))
    except (ValueError, tf.errors.OpError) as error:
        if str(prefix).endswith(".h5"):
            raise UsageError(f"read {str(prefix)!r} with model.load_weights(path)") from error
        raise ModelError(
            f"there is no checkpoint {str(prefix)!r} that can be read ({error}); give its prefix, "
            f"without .index"
        ) from error


def _match(target: Any, reader: Any, prefix: str, *, partial: bool) -> dict[str, tuple[Any, int]]:
    """The variables of ``target`` and their bytes by key, in the order of the checkpoint."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    if isinstance(target, Mapping):
        keys = {name: variable for name, variable in target.items() if name in shapes}
        wanted = dict(target)
        extra = sorted(set(shapes) - set(keys) - {OBJECT_GRAPH})
    elif not hasattr(target, "_trackable_children"):
        raise UsageError(
            "target must be a Keras model, a tf.Module, a tf.train.Checkpoint or a mapping of "
            f"names to variables, got an object of type {type(target).__name__!r}"
        )
    elif OBJECT_GRAPH in shapes:
        keys, extra = _match_objects(target, reader)
        wanted = _all_variables(target)
    else:
        raise UsageError(
            f"{prefix!r} is a checkpoint of names, not of objects: give the variables as a mapping "
            f"of the names {some(sorted(shapes))}"
        )
    found = {id(_tensorflow_variable(variable)) for variable in keys.values()}
    missing = sorted(name for name, v in wanted.items() if id(_tensorflow_variable(v)) not in found)
    if (missing or extra) and not partial:
        misfits = [f"the checkpoint lacks {some(missing)}"] if missing else []
        misfits += [f"the model lacks {some(extra)}"] if extra else []
        raise ModelError(
            f"{prefix!r} does not fit the model: {'; '.join(misfits)}. Nothing was loaded "
            "(partial=True loads what both have)"
        )
    return {
        key: _checked(key, _tensorflow_variable(variable), shapes[key], dtypes[key])
        for key, variable in keys.items()
    }


def _checked(key: str, variable: Any, shape: list[int], dtype: Any) -> tuple[Any, int]:
    if not variable.shape.is_compatible_with(shape) or variable.dtype.base_dtype != dtype:
        raise ModelError(
            f"{key} has shape {shape} and dtype {dtype.name} in the checkpoint, the model's "
            f"variable {tuple(variable.shape)} and {variable.dtype.name}; nothing was loaded"
        )
    return variable, math.prod(shape) * max(dtype.size, 1)


def _match_objects(target: Any, reader: Any) -> tuple[Variables, list[str]]:
    """(variables by key, keys of values that no object of ``target`` has)."""
    content = reader.get_tensor(OBJECT_GRAPH)
    nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content).nodes
    objects = matched_objects(target, nodes)
    found = {
        attribute.checkpoint_key: objects[number]
        for number, node in enumerate(nodes)
        for attribute in node.attributes
        if attribute.name == VALUE and _is_variable(objects.get(number))
    }
    extra = [
        attribute.checkpoint_key
        for node in nodes
        for attribute in node.attributes
        if attribute.name == VALUE and attribute.checkpoint_key not in found
    ]
    return found, sorted(key for key in extra if not key.startswith("save_counter"))


def matched_objects(target: Any, nodes: Sequence[Any]) -> dict[int, Any]:
    """The object of ``target`` for every one that a checkpoint's object graph leads to, by number:
    both are walked side by side, edge by name, as TensorFlow does."""
    found, pending = {0: target}, deque([0])
    while pending:
        number = pending.popleft()
        children = found[number]._trackable_children()
        for child in nodes[number].children:
            if child.node_id not in found and child.local_name in children:
                found[child.node_id] = children[child.local_name]
                pending.append(child.node_id)
    for number, optimizer in list(found.items()):
        for slot in nodes[number].slot_variables:
            variable = found.get(slot.original_variable_node_id)
            slots = getattr(optimizer, "get_slot", None)
            if variable is not None and slots is not None:
                found.setdefault(slot.slot_variable_node_id, slots(variable, slot.slot_name))
    return found


def _all_variables(target: Any) -> Variables:
    """Every variable that ``target`` tracks, by its path, the nearest first."""
    queue, seen, found = [("", target)], {id(target)}, Variables()
    for path, here in queue:  # grows meanwhile
        if _is_variable(here) and path != "save_counter":
            found[path or "the variable itself"] = here
        for name, child in here._trackable_children().items():
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{path}/{name}" if path else name, child))
    return found


def _is_variable(value: Any) -> bool:
    return hasattr(value, "handle") and hasattr(value, "assign")


def _tensorflow_variable(variable: Any) -> Any:
    """The ``tf.Variable`` of a Keras variable, or itself."""
    return getattr(variable, "_value", None) if hasattr(variable, "path") else variable
