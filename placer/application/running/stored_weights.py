"""The weights of a SavedModel in its checkpoint, read one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placer.application.running.checkpoints import OBJECT_GRAPH, VALUE, stored_value
from placer.errors import ModelError
from placer.extraction.files.sources import read_source
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.reading.saved_functions import captured_tensors
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.tensor_names import op_of


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
        if OBJECT_GRAPH in self.dtypes:
            self.keys = _bound_keys(path, program, reader.get_tensor(OBJECT_GRAPH))
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
        key = self.keys[handle]
        return stored_value(self.prefix, key, self.dtypes[key])


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
        if attribute.name == VALUE
    }
    meta_graph = choose_meta_graph(read_source(path), path, ",".join(program.tags))
    captured = captured_tensors(meta_graph)
    return {op_of(tensor): keys[number] for number, tensor in captured if number in keys}
