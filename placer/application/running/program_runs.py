"""One run of a program, with the graphs that TensorFlow partitioned for it.

Called in a process of its own (:mod:`placer.application.verifying.verification_process`), or in the
caller's for live functions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context

from placer.application.devices.device_mapping import HOST, DeviceMapping
from placer.application.devices.graph_optimisers import (
    graph_optimisation,
    switch_memory_optimiser_off,
    switch_optimisers_off,
)
from placer.application.devices.runtime_settings import soft_placement
from placer.application.running.cluster_runs import session_target
from placer.application.running.generated_inputs import Array, stand_in_weights
from placer.application.running.graph_starts import GraphStart, invent_tables, started
from placer.errors import ModelError
from placer.extraction.files.sources import read_source
from placer.extraction.reading.saved_functions import find_function
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.op_types import REF_VARIABLES, VARIABLES
from placer.processes import LONG_SECONDS
from placer.simulation.environment import is_simulating

v1 = tf.compat.v1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a program is run for a verification.

    ``on_hardware`` forbids a rehearsal, ``strict`` switches soft placement off, ``optimised``
    leaves graph optimisation on, ``seed`` is that of made-up inputs.  ``cluster`` are addresses of
    servers by job and task, whose devices the placed program uses.  ``memory`` also rehearses
    whether the plan fits.
    """

    on_hardware: bool = False
    strict: bool = False
    optimised: bool = False
    time_limit_seconds: float = LONG_SECONDS
    seed: int = 0
    cluster: Mapping[str, Mapping[int, str]] | None = None
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The program to run, unplaced and placed: ``kind`` is ``saved_model`` (TensorFlow 2),
    ``saved_model_session``, ``graph`` or ``function``.

    ``programs`` are paths of SavedModels or GraphDefs, or PortableFunctions (``kind`` says which),
    the unplaced one first: ``which`` is 0 for it, 1 for the placed one.
    ``inputs`` are arrays by signature key or, for a session, by tensor name.  ``fetches``, (key,
    tensor), and ``targets`` are those of the unplaced and of the placed graph.  The placed program
    runs on the devices of ``mapping``.  ``folder`` is the model's, whose program may do nothing
    but compute; ``None`` where it may do what it does.  ``start`` is what a graph needs beside its
    step.
    """

    kind: str
    programs: tuple[Any, Any]
    inputs: Mapping[str, Array] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    signature: str = ""
    fetches: tuple[tuple[tuple[str, str], ...], ...] = ((), ())
    targets: tuple[tuple[str, ...], ...] = ((), ())
    mapping: DeviceMapping = field(default_factory=DeviceMapping)
    options: RunOptions = field(default_factory=RunOptions)
    folder: str | None = None
    start: GraphStart = field(default_factory=GraphStart)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Outputs by key, the partitioned graphs, and where captured variables live (by the number of
    the function's argument).  ``notes`` say how the program was run where that is not obvious."""

    outputs: Mapping[str, Array]
    partition_graphs: Sequence[Any]
    variable_devices: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def run_flat(
    function: Any, inputs: Sequence[Any], keys: Sequence[str], *, optimised: bool = False
) -> Run:
    """The first call of a ConcreteFunction on ``inputs`` (one array per argument, in order).

    ``keys`` name its flat outputs.  TensorFlow reports partitioned graphs only at the first call
    of a function: use a fresh one.
    """
    return _observed(function, lambda: _call_flat(function, inputs, keys), optimised)


def _call_flat(function: Any, inputs: Sequence[Any], keys: Sequence[str]) -> dict[str, Any]:
    """The outputs of a call with one array per argument, in order."""
    arguments = [
        tf.constant(value, t.dtype) for value, t in zip(inputs, function.inputs, strict=False)
    ]
    result = function._call_flat(arguments, function.captured_inputs)
    values = [] if result is None else tf.nest.flatten(result, expand_composites=True)
    tensors = [value for value in values if hasattr(value, "numpy")]
    return dict(zip(keys, tensors, strict=False))


def _observed(function: Any, call: Callable[[], Mapping[str, Array]], optimised: bool) -> Run:
    """Returns what ``call``, the first call of ``function``, gives and runs."""
    with graph_optimisation(optimised):
        context.enable_graph_collection()
        try:
            with tf.device("CPU:0"):
                outputs = call()
            metadata = context.export_run_metadata()
        finally:
            context.disable_graph_collection()
    graphs = metadata.function_graphs  # the outermost function's first; none of a later call
    captured = function.captured_inputs
    first = len(function.inputs) - len(captured)
    return Run(
        outputs={key: value.numpy() for key, value in outputs.items()},
        partition_graphs=list(graphs[0].partition_graphs) if graphs else [],
        variable_devices={first + n: handle.device for n, handle in enumerate(captured)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFunction:
    """A ``function`` of a SavedModel that is loaded (``model`` keeps it alive); ``exported`` ones
    take their inputs by name.  ``notes`` say how it was loaded where that is not obvious."""

    function: Any
    model: Any
    exported: bool
    notes: tuple[str, ...]


@soft_placement(True)  # else TensorFlow ignores the saved devices of variables
def load_function(request: RunRequest, which: int) -> LoadedFunction:
    """The function of a TensorFlow 2 SavedModel, variables on their saved devices.

    The program is a copy that may be changed.  Variables of a model without weights get made-up
    values.
    """
    path, tags = Path(request.programs[which]), list(request.tags)
    # loaded, if need be without the records of an optimizer that is not here
    stored = _has_weights(path)
    options = tf.saved_model.LoadOptions(
        experimental_variable_policy="save_variable_devices",
        experimental_skip_checkpoint=not stored,
    )
    notes = []
    try:
        loaded = tf.saved_model.load(str(path), tags=tags, options=options)
    except AttributeError as error:
        if "add_slot" not in str(error):
            raise
        notes.append(drop_slot_records(path))
        loaded = tf.saved_model.load(str(path), tags=tags, options=options)
    # its function, with weights
    if not isinstance(loaded.signatures, Mapping):  # the model may call anything so
        raise ModelError(
            "the model has an attribute called signatures that holds other things: rename it"
        )
    exported = loaded.signatures.get(request.signature)
    function = exported or _inner_function(loaded, path, tags, request.signature)
    if not stored:
        notes.append(_invent_weights(function.variables))
    return LoadedFunction(
        function=function, model=loaded, exported=exported is not None, notes=tuple(notes)
    )


def call_loaded(loaded: LoadedFunction, request: RunRequest, which: int) -> dict[str, Any]:
    """The outputs of one call, by key.

    A function that no signature exports takes the inputs in their order and gives the outputs in
    theirs.
    """
    if loaded.exported:
        tensors = {key: tf.constant(value) for key, value in request.inputs.items()}
        return dict(loaded.function(**tensors))
    keys = [key for key, _ in request.fetches[which]]
    return _call_flat(loaded.function, list(request.inputs.values()), keys)


def run_saved_model(request: RunRequest, which: int) -> Run:
    """One call of a signature of a TensorFlow 2 SavedModel; see :func:`load_function`."""
    loaded = load_function(request, which)
    run = _observed(
        loaded.function, lambda: call_loaded(loaded, request, which), request.options.optimised
    )
    return replace(run, notes=loaded.notes)


def _inner_function(loaded: Any, path: Path, tags: Sequence[str], name: str) -> Any:
    """The ConcreteFunction of a loaded object that no signature exports."""
    meta_graph = choose_meta_graph(read_source(path), path, ",".join(tags))
    found = find_function(meta_graph, name)
    assert found is not None
    owner = loaded
    for step in found.path:
        if isinstance(owner, Mapping):
            owner = owner[step]
        else:
            owner = owner[int(step)] if isinstance(owner, Sequence) else getattr(owner, step)
    return getattr(owner, "concrete_functions", [owner])[found.number]


def drop_slot_records(path: Path) -> str:
    """Removes the records of optimizer slots from a SavedModel's object graph; says so.

    They ask for a Keras 2 optimizer when loaded, and ``tf.saved_model.load`` fails without one.
    """
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta_graph in saved_model.meta_graphs:
        for node in meta_graph.object_graph_def.nodes:
            node.ClearField("slot_variables")
    file.write_bytes(saved_model.SerializeToString())
    return (
        "tf.saved_model.load cannot revive the model's Keras 2 optimizer here; it was run from a "
        "copy without the records of optimizer slots"
    )


def _invent_weights(variables: Sequence[Any]) -> str:
    for number, variable in enumerate(variables):
        shape = tuple(variable.shape.as_list())
        variable.assign(stand_in_weights(number, shape, variable.dtype))
    return f"the model comes without weights: its {len(variables)} variables got made-up values"


def _has_weights(path: Path) -> bool:
    return (path / "variables" / "variables.index").exists()


@contextmanager
def open_session(request: RunRequest, which: int) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """A session with a SavedModel, loaded and initialised as a session does it, or with a GraphDef;
    variables without weights get made-up values, which notes beside it say."""
    path = Path(request.programs[which])
    target, config = _config(request, placed=which == 1)
    with tf.Graph().as_default(), v1.Session(target, config=config) as session:
        if request.kind == "graph":
            tf.graph_util.import_graph_def(read_source(path, as_written=True), name="")
        else:
            v1.saved_model.load(session, list(request.tags), str(path))
        stored = request.kind != "graph" and _has_weights(path)
        notes = () if stored else invent_state(session, session.graph)
        if request.kind == "graph":
            invent_tables(session, session.graph, request.start)
        with started(session, session.graph, request.start):
            yield session, notes


def run_session(request: RunRequest, which: int) -> Run:
    """One run in a session; see :func:`open_session`."""
    fetches = request.fetches[which]
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    wanted = [tensor for _, tensor in fetches], list(request.targets[which])
    with open_session(request, which) as (session, notes):
        values, _ = session.run(wanted, dict(request.inputs), options, metadata)
    return Run(
        outputs=dict(zip([key for key, _ in fetches], values, strict=True)),
        partition_graphs=list(metadata.partition_graphs),
        notes=notes,
    )


def _config(request: RunRequest, *, placed: bool) -> tuple[str, Any]:
    """(target, ConfigProto) of the session: this process, or it and the servers of a cluster."""
    target, config = "", v1.ConfigProto()
    if request.options.cluster is not None and placed:
        host = request.mapping.stand_ins[HOST]
        target, config = session_target(request.options.cluster, host)
    config.device_count["CPU"] = request.mapping.cpu_count
    config.allow_soft_placement = not (request.options.strict and placed)
    switch_memory_optimiser_off(config)
    if not request.options.optimised:
        switch_optimisers_off(config)
    return target, config


def invent_state(session: Any, graph: Any) -> tuple[str, ...]:
    """Made-up values for every variable of a graph that comes without a checkpoint.

    A reference variable takes over what another device sends, or a copy of it, as threads have it,
    and what is in use later depends on that: on simulated GPUs, where nobody computes with values,
    it is filled where it is.
    """
    handles = [op for op in graph.get_operations() if op.type in VARIABLES]
    assigns: list[Any] = []
    feeds: dict[Any, Any] = {}
    filled = REF_VARIABLES if is_simulating() else frozenset()
    ones: dict[Any, Any] = {}
    for number, op in enumerate(handles):
        dtype = tf.dtypes.as_dtype(op.get_attr("dtype"))
        sizes = (dim.size for dim in op.get_attr("shape").dim)  # none where the rank is unknown
        shape = tuple(size if size >= 0 else 1 for size in sizes)
        with graph.colocate_with(op, ignore_existing=True):
            if op.type in filled and dtype.is_floating:
                if dtype not in ones:
                    ones[dtype] = v1.placeholder(dtype, [])
                dims = v1.placeholder(tf.int32, [len(shape)])
                feeds |= {dims: shape, ones[dtype]: 1}
                value = tf.fill(dims, ones[dtype])
            else:
                value = v1.placeholder(dtype, shape)
                feeds[value] = stand_in_weights(number, shape, dtype)
            assigns.append(assign_value(op, value))
    session.run(assigns, feeds)
    if not handles:
        return ()
    return (f"the graph comes without weights: its {len(handles)} variables got made-up values",)


def assign_value(op: Any, value: Any) -> Any:
    """The op that assigns ``value`` to the variable of ``op``."""
    if op.type == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=value)
    return tf.raw_ops.Assign(ref=op.outputs[0], value=value, validate_shape=False).op
