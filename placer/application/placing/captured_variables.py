"""The variables that a live function uses, also those that it knows by their handles only."""

from __future__ import annotations

from typing import Any

from placer.extraction.graph_defs.program import FlatProgram


def captured_variables(program: FlatProgram, function: Any) -> list[Any]:
    """The variables that ``function``, whose flat program is ``program``, captures, each once.

    A function that hands ``variable.handle`` to a raw op (``ResourceSparseApplyAdagradV2``) holds
    the handle and no ``tf.Variable``; such a handle gets a variable object of its own here.
    """
    known = {id(variable.handle): variable for variable in function.graph.variables}
    for variable in program.variables:
        handle = program.captures.get(variable.handle)
        if handle is not None and variable.dtype != "resource" and id(handle) not in known:
            known[id(handle)] = _around(handle, variable.name)
    return list(known.values())


def _around(handle: Any, name: str) -> Any:
    """A variable object for the variable behind ``handle``."""
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util, resource_variable_ops

    entry = handle_data_util.get_handle_data(handle).shape_and_type[0]
    return resource_variable_ops.BaseResourceVariable(
        trainable=False,
        shape=tf.TensorShape(entry.shape),
        dtype=tf.as_dtype(entry.dtype),
        handle=handle,
        name=name,
        handle_name=name,
        unique_id=name,
        in_graph_mode=False,
    )
