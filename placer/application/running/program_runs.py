"""One run of a program, with the graphs that TensorFlow partitioned for it.

Called in a process of its own (:mod:`placer.application.verifying.verification_process`), or in the
caller's for live functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.config import flags
from tensorflow.core.protobuf import config_pb2, saved_model_pb2
from tensorflow.python.eager import context

from placer.application.running.cluster_runs import local_master
from placer.application.running.generated_inputs import Array, stand_in_weights
from placer.extraction.files.sources import read_source
from placer.extraction.reading.saved_functions import find_function
from placer.extraction.reading.signatures import choose_meta_graph
from placer.graph.op_types import VARIABLES


@dataclass(frozen=True, kw_only=True)
class Run:
    """Outputs by key, the partitioned graphs, and where captured variables live (by the number of
    the function's argument).  ``notes`` say how the program was run where that is not obvious."""

    outputs: Mapping[str, Array]
    partition_graphs: Sequence[Any]
    variable_devices: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@contextmanager
def graph_optimisation(enabled: bool) -> Iterator[None]:
    """Turns the optimisers off (or leaves them) for functions that are first called in the block.

    Grappler has a public setting.  The runtime's own optimiser, which merges equal ops of a
    partition, has none for eager functions, only ``optimizer_options.opt_level`` in the
    configuration that each function copies from the context.
    """
    if enabled:
        yield
        return
    eager = context.context()
    options = tf.config.optimizer.get_experimental_options()
    before = eager._config, options.get("disable_meta_optimizer", False)
    config = config_pb2.ConfigProto()
    if eager._config is not None:
        config.CopyFrom(eager._config)
    config.graph_options.optimizer_options.opt_level = -1
    eager._config = config
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        eager._config = before[0]
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before[1]})


@contextmanager
def hardware_like_constants() -> Iterator[None]:
    """Keeps constants where they are placed in the block, as on accelerators.

    TensorFlow copies constants of up to 16 elements to every *CPU device* that reads them, never
    to accelerators of one host (``core/common_runtime/replicate_constants_pass.cc``): in a
    rehearsal that would hide transfers that the hardware makes.
    """
    flag = getattr(flags.config(), "enable_aggressive_constant_replication", None)
    if flag is None or not flag.value():
        yield
        return
    flag.reset(False)
    try:
        yield
    finally:
        flag.reset(True)


def run_flat(
    function: Any, inputs: Sequence[Any], keys: Sequence[str], *, optimised: bool = False
) -> Run:
    """The first call of a ConcreteFunction on ``inputs`` (one array per argument, in order).

    ``keys`` name its flat outputs.  TensorFlow reports partitioned graphs only at the first call
    of a function: use a fresh one.
    """

    def call() -> dict[str, Array]:
        arguments = [
            tf.constant(value, t.dtype) for value, t in zip(inputs, function.inputs, strict=False)
        ]
        result = function._call_flat(arguments, function.captured_inputs)
        values = [] if result is None else tf.nest.flatten(result, expand_composites=True)
        tensors = [value for value in values if hasattr(value, "numpy")]
        return dict(zip(keys, tensors, strict=False))

    return _observed(function, call, optimised)


def _observed(function: Any, call: Callable[[], Mapping[str, Array]], optimised: bool) -> Run:
    """What ``call``, the first call of ``function``, gives and runs."""
    with graph_optimisation(optimised):
        context.enable_graph_collection()
        try:
            with tf.device("CPU:0"):
                outputs = call()
            metadata = context.export_run_metadata()
        finally:
            context.disable_graph_collection()
    captured = function.captured_inputs
    first = len(function.inputs) - len(captured)
    return Run(
        outputs={key: value.numpy() for key, value in outputs.items()},
        partition_graphs=_function_graphs(metadata),
        variable_devices={first + n: handle.device for n, handle in enumerate(captured)},
    )


def _function_graphs(metadata: Any) -> list[Any]:
    """The partitioned graphs of the outermost function: the first that was instantiated.

    None come with later calls of a function that was called before.
    """
    if not metadata.function_graphs:
        return []
    return list(metadata.function_graphs[0].partition_graphs)


def run_saved_model(
    path: Path,
    tags: Sequence[str],
    signature: str,
    inputs: Mapping[str, Array],
    output_keys: Sequence[str],
    *,
    optimised: bool = False,
) -> Run:
    """One call of a signature of a TensorFlow 2 SavedModel, variables on their saved devices.

    A function that no signature exports takes ``inputs`` in their order and gives
    ``output_keys`` in theirs.  ``path`` is a copy that may be changed.  Variables of a model
    without weights get made-up values.
    """
    # loaded, if need be without the records of an optimizer that is not here
    stored = (path / "variables" / "variables.index").exists()
    options = tf.saved_model.LoadOptions(
        experimental_variable_policy="save_variable_devices",
        experimental_skip_checkpoint=not stored,
    )
    notes = []
    try:
        loaded = tf.saved_model.load(str(path), tags=list(tags), options=options)
    except AttributeError as error:
        if "add_slot" not in str(error):
            raise
        notes.append(drop_slot_records(path))
        loaded = tf.saved_model.load(str(path), tags=list(tags), options=options)
    # its function, with weights, called once
    exported = signature in loaded.signatures
    function = (
        loaded.signatures[signature] if exported else _inner_function(loaded, path, tags, signature)
    )
    if not stored:
        notes.append(_invent_weights(function.variables))
    if not exported:
        run = run_flat(function, list(inputs.values()), output_keys, optimised=optimised)
        return replace(run, notes=tuple(notes))

    def call() -> Mapping[str, Array]:
        result: Mapping[str, Array] = function(
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        return result

    return replace(_observed(function, call, optimised), notes=tuple(notes))


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


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """What a session feeds and fetches: arrays by tensor name, (key, tensor) pairs, op names."""

    feeds: Mapping[str, Array]
    fetches: Sequence[tuple[str, str]]
    targets: Sequence[str] = ()
    cpu_count: int = 1
    strict: bool = False
    optimised: bool = False
    cluster: Mapping[str, Mapping[int, str]] | None = None


def run_saved_model_session(path: Path, tags: Sequence[str], request: SessionRequest) -> Run:
    """One session run of a SavedModel, loaded and initialised as a session does it."""
    stored = (path / "variables" / "variables.index").exists()

    def load(session: Any) -> tuple[str, ...]:
        tf.compat.v1.saved_model.load(session, list(tags), str(path))
        return () if stored else invent_state(session, session.graph)

    return _run_session(load, request)


def run_graph_session(graph_def: Any, request: SessionRequest) -> Run:
    """One session run of a GraphDef; variables get made-up values."""

    def load(session: Any) -> tuple[str, ...]:
        tf.graph_util.import_graph_def(graph_def, name="")
        return invent_state(session, session.graph)

    return _run_session(load, request)


def _config(request: SessionRequest) -> tuple[str, Any]:
    """(target, ConfigProto) of the session: this process, or it and the servers of a cluster."""
    config = tf.compat.v1.ConfigProto(
        device_count={"CPU": request.cpu_count}, allow_soft_placement=not request.strict
    )
    if not request.optimised:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
    if request.cluster is None:
        return "", config
    target, cluster = local_master(request.cluster)
    config.cluster_def.CopyFrom(cluster)
    config.isolate_session_state = True
    return target, config


def _run_session(load: Callable[[Any], tuple[str, ...]], request: SessionRequest) -> Run:
    """The run of a session in which ``load`` puts the graph and its state; it returns notes."""
    v1 = tf.compat.v1
    target, config = _config(request)
    metadata = v1.RunMetadata()
    options = v1.RunOptions(output_partition_graphs=True)
    wanted = [tensor for _, tensor in request.fetches], list(request.targets)
    with tf.Graph().as_default(), v1.Session(target, config=config) as session:
        notes = load(session)
        values, _ = session.run(wanted, dict(request.feeds), options, metadata)
    keys = [key for key, _ in request.fetches]
    return Run(
        outputs=dict(zip(keys, values, strict=True)),
        partition_graphs=list(metadata.partition_graphs),
        notes=notes,
    )


def invent_state(session: Any, graph: Any) -> tuple[str, ...]:
    """Made-up values for every variable of a graph that comes without a checkpoint."""
    handles = [op for op in graph.get_operations() if op.type in VARIABLES]
    assigns, feeds = [], {}
    for number, op in enumerate(handles):
        dtype = tf.dtypes.as_dtype(op.get_attr("dtype"))
        shape = tuple(size if size >= 0 else 1 for size in _static_shape(op))
        with graph.colocate_with(op, ignore_existing=True):
            value = tf.compat.v1.placeholder(dtype, shape)
            assigns.append(_assign(op, value))
        feeds[value] = stand_in_weights(number, shape, dtype)
    session.run(assigns, feeds)
    if not handles:
        return ()
    return (f"the graph comes without weights: its {len(handles)} variables got made-up values",)


def _static_shape(op: Any) -> list[int]:
    proto = op.get_attr("shape")
    return [] if proto.unknown_rank else [dim.size for dim in proto.dim]


def _assign(op: Any, value: Any) -> Any:
    if op.type == "VarHandleOp":
        return tf.raw_ops.AssignVariableOp(resource=op.outputs[0], value=value)
    return tf.raw_ops.Assign(ref=op.outputs[0], value=value, validate_shape=False).op
