"""The weights of a SavedModel in its checkpoint, read one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placer.errors import ModelError
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.op_types import CALLS
from placer.graph.tensor_names import data_inputs, op_of

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"


class StoredWeights:
    """The values of the variables of ``program`` in the checkpoint of the SavedModel ``path``.

    A variable is found by the object that the signature's function is bound to, in a checkpoint of
    TensorFlow 1 by its name.  Raises :class:`ModelError` if one has no value.
    """

    def __init__(self, path: Path, program: FlatProgram) -> None:
        import tensorflow as tf

        self.prefix = str(path / "variables" / "variables")
        try:
            reader = tf.train.load_checkpoint(self.prefix)
        except (ValueError, tf.errors.OpError) as error:
            raise ModelError(f"the weights of {str(path)!r} cannot be read: {error}") from error
        self.dtypes = reader.get_variable_to_dtype_map()
        names = {variable.handle: variable.name for variable in program.variables}
        if _OBJECT_GRAPH in self.dtypes:
            self.keys = _bound_keys(path, program, reader.get_tensor(_OBJECT_GRAPH))
        else:
            self.keys = names
        missing = [names[h] for h in names if self.keys.get(h) not in self.dtypes]
        if missing:
            raise ModelError(
                f"{str(path)!r} has no value for {len(missing)} of {len(names)} variables, the "
                f"first {missing[0]}: its checkpoint is of another model"
            )

    def read(self, handle: str) -> Any:
        """The value of a variable, as a tensor on the host."""
        import tensorflow as tf

        key = self.keys[handle]
        with tf.device("CPU:0"):
            (value,) = tf.raw_ops.RestoreV2(
                prefix=self.prefix,
                tensor_names=[key],
                shape_and_slices=[""],
                dtypes=[self.dtypes[key]],
            )
        return value


def _bound_keys(path: Path, program: FlatProgram, content: bytes) -> dict[str, str]:
    """The checkpoint key of every handle that a call of the main graph is given.

    The objects of a SavedModel have the same numbers in its graph and in its checkpoint.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(content).nodes
    keys = {
        number: attribute.checkpoint_key
        for number, node in enumerate(objects)
        for attribute in node.attributes
        if attribute.name == _VALUE
    }
    meta_graph = choose_meta_graph(read_source(path), path, ",".join(program.tags))
    functions = meta_graph.object_graph_def.concrete_functions
    found: dict[str, str] = {}
    for node in meta_graph.graph_def.node:
        name = node.attr["f"].func.name if node.op in CALLS else node.op
        bound = functions[name].bound_inputs if name in functions else ()
        given = data_inputs(node.input)
        for source, number in zip(given[len(given) - len(bound) :], bound, strict=True):
            if number in keys:
                found[op_of(source)] = keys[number]
    return found
