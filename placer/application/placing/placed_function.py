"""A function of this process, running where its plan says.

The placed flat graph becomes a ConcreteFunction with the signature of the original.  TensorFlow
variables cannot move, so each captured one is copied to its planned device and the copy is
captured instead, unless all are there already (``plan.scope()`` creates them so); tables and other
resources stay where they are.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import handle_data_util, resource_variable_ops

from placer.application.devices.device_mapping import DeviceMapping
from placer.application.devices.graph_optimisers import switch_red_zones_off
from placer.application.devices.runtime_settings import soft_placement
from placer.application.placing.collectives import place_collectives
from placer.application.placing.function_graphs import build_function, find_ends
from placer.application.placing.graph_placement import map_graph_devices, place_graph_def
from placer.application.placing.moved_variables import copy_variable
from placer.errors import UsageError
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.graph_defs.protobufs import Captures, Tensor
from placer.extraction.reading.companions import touched_handles
from placer.extraction.reading.live import concrete_function, is_keras_model, trace_keras_model
from placer.graph.passes.differentiation import is_update_type
from placer.plan.plan import Plan

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MovedVariable:
    """One variable: its name in the plan, the ``placeholder`` that stands for it, the original, and
    the copy that the function uses (the original itself where that is on its planned device
    already).  A ``replica`` is one that a part of the batch has besides."""

    name: str
    placeholder: str
    original: Any
    copy: Any
    replica: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class PlacedFunction:
    """A callable with the signature of the function it was made from.

    ``concrete_function`` is the placed ConcreteFunction, ``original`` the one it was made from,
    ``variables`` the copies it uses (``moved`` pairs them with the originals), ``plan`` the plan.
    ``captures`` maps flat placeholders to what they stand for; ``mapping`` says which devices
    stand in for the plan's where those are absent.  With ``strict``, calls switch off soft
    placement, a setting of the whole process, and put it back.  The first call of a function that
    updates copies warns that the originals stay as they are.
    """

    concrete_function: Any
    program: FlatProgram
    plan: Plan
    original: Any
    captures: Captures
    moved: tuple[MovedVariable, ...]
    mapping: DeviceMapping
    strict: bool
    updated: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what the original returns for these arguments."""
        if self.updated:
            _LOG.warning(
                "the placed function updates copies of %d variables: call copy_back() to give the "
                "originals, such as those of a model, the new values",
                self.updated,
            )
            self.updated = 0
        if not self.strict:
            return self.concrete_function(*args, **kwargs)
        with soft_placement(False):
            return self.concrete_function(*args, **kwargs)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables in use, each on its planned device."""
        return tuple(variable.copy for variable in self.moved)

    def copy_back(self) -> None:
        """Assigns the values of the copies to the original variables, one at a time."""
        for variable in self.moved:
            if variable.copy is not variable.original and not variable.replica:
                variable.original.assign(variable.copy)


def place_function(
    source: Any,
    program: FlatProgram,
    plan: Plan,
    *,
    mapping: DeviceMapping,
    strict: bool = False,
    copies: dict[Any, Any] | None = None,
) -> PlacedFunction:
    """``source``, whose flat program is ``program``, running as ``plan`` says on the devices of
    ``mapping``.

    With ``copies``, which maps ``id(variable.handle)`` (of a replica with its device) to a copy and
    grows here, several functions share their copies, and a variable that is on its planned device
    is used as it is.  Raises :class:`UsageError` for a function with ``jit_compile`` or a
    collective with two ops on one device.
    """
    refuse_compilation(source, program)
    switch_red_zones_off()
    original = original_function(source)
    moved = _move_variables(program, original, plan.placement, mapping, copies)
    captures = _new_captures(program, moved, plan, mapping)
    graph_def = place_graph_def(program, plan.placement)
    map_graph_devices(graph_def, mapping.stand_in)
    place_collectives(graph_def)
    variables = [variable.copy for variable in moved]
    function = build_function(graph_def, find_ends(program), captures, original, variables)
    return PlacedFunction(
        concrete_function=function,
        program=program,
        plan=plan,
        original=original,
        captures=captures,
        moved=tuple(moved),
        mapping=mapping,
        strict=strict,
        updated=0 if copies is not None else _count_updated(program, moved),
    )


def _count_updated(program: FlatProgram, moved: Sequence[MovedVariable]) -> int:
    """The number of copied variables that the program updates."""
    nodes = program.graph_def.node
    updates = {node.name for node in nodes if is_update_type(node.op)}
    handles = {name for op, names in touched_handles(nodes) if op in updates for name in names}
    named = {variable.name for variable in program.variables if variable.handle in handles}
    return sum(each.name in named for each in moved if each.copy is not each.original)


def original_function(source: Any) -> Any:
    """The ConcreteFunction that ``source`` stands for."""
    return trace_keras_model(source) if is_keras_model(source) else concrete_function(source)


def refuse_compilation(source: Any, program: FlatProgram) -> None:
    """Raises :class:`UsageError` for a program that asks to be compiled by XLA."""
    compiled = [ops for code, _, ops in program.warnings if code == "jit_compile"]
    attributes = getattr(getattr(source, "function_def", None), "attr", {})
    whole = getattr(source, "_jit_compile", None) or (
        "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b
    )
    if whole or compiled:
        what = "the function" if whole else f"the call {compiled[0][0]} in it"
        raise UsageError(
            f"{what} is compiled by XLA (jit_compile=True), which puts a whole function on one "
            f"device and would erase the placement; trace it with jit_compile=False (Keras: "
            f"compile(jit_compile=False)) and place it again"
        )


def _move_variables(
    program: FlatProgram,
    original: Any,
    placement: Mapping[str, str],
    mapping: DeviceMapping,
    copies: dict[Any, Any] | None,
) -> list[MovedVariable]:
    """A copy of every captured variable on its planned device, made one after the other.

    Without ``copies`` either all are copied or, if all are on their devices, none; replicas are
    always copies.
    """
    by_handle = {id(v.handle): v for v in captured_variables(program, original)}
    captured = [
        (variable, found, mapping.stand_in(placement[variable.handle]))
        for variable in program.variables
        if (found := by_handle.get(id(program.captures.get(variable.handle)))) is not None
    ]
    replicas = program.copies
    in_place = all(v.device == device for row, v, device in captured if row.handle not in replicas)
    known = {} if copies is None else copies
    moved = []
    for row, variable, device in captured:
        is_replica = row.handle in replicas
        key = (id(variable.handle), device) if is_replica else id(variable.handle)
        if key not in known:
            share = in_place or (copies is not None and variable.device == device)
            share = share and not is_replica
            known[key] = variable if share else copy_variable(variable, device)
        moved.append(
            MovedVariable(
                name=row.name,
                placeholder=row.handle,
                original=variable,
                copy=known[key],
                replica=is_replica,
            )
        )
    return moved


def captured_variables(program: FlatProgram, function: Any) -> list[Any]:
    """The variables that ``function``, whose flat program is ``program``, captures, each once.

    A function that hands ``variable.handle`` to a raw op (``ResourceSparseApplyAdagradV2``) holds
    the handle and no ``tf.Variable``; such a handle gets a variable object of its own here.
    """
    known = {id(variable.handle): variable for variable in function.graph.variables}
    for variable in program.variables:
        handle = program.captures.get(variable.handle)
        if handle is not None and variable.dtype != "resource" and id(handle) not in known:
            known[id(handle)] = _variable_behind(handle, variable.name)
    return list(known.values())


def _variable_behind(handle: Any, name: str) -> Any:
    """A variable object for the variable behind ``handle``."""
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


def _new_captures(
    program: FlatProgram, moved: Sequence[MovedVariable], plan: Plan, mapping: DeviceMapping
) -> dict[str, Tensor]:
    """Returns the captures of the placed function: copied variables and values, other resources."""
    handles = {variable.placeholder: variable.copy.handle for variable in moved}
    captures = {}
    for name, value in program.captures.items():
        if value.dtype in (tf.resource, tf.variant):
            captures[name] = handles.get(name, value)
        else:
            with tf.device(mapping.stand_in(plan.placement[name])):
                captures[name] = tf.identity(value)
    return captures
