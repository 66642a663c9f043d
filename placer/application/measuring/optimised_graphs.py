"""The graph that TensorFlow makes of a placed one before it runs it.

Grappler (``tensorflow/core/grappler``) prunes, folds, fuses and rewrites the placed graph at the
first step of a session.  Here it does so ahead, in a process of its own, with the plan's devices
described to it, which need not be there.  Loops and branches stay ops: a session lowers them
first.  What a session's runtime does afterwards on CPUs (folding and copying small constants) is
not in it.  Its Python interface is private and may go: then the request fails with a clear message.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.device_names import full_name
from cost_models.devices import Cluster
from placer.errors import PlacerError, UsageError
from placer.extraction import Extraction
from placer.extraction.extraction import ProgramChoice, choice_of
from placer.extraction.process.local_models import local_model
from placer.graph.program_source import Bindings
from placer.graph.rewriting import NO_REWRITING, Rewriting
from placer.plan.rows import OptimisedFacts
from placer.processes import Ending, Tell, run_task

_GPU_ARCHITECTURE = "7"
_GPU_FLOPS_PER_CYCLE = 128
"""Operations per cycle of a multiprocessor by ``GetDeviceInfo`` of ``op_level_cost_estimator.cc``:
64 cores with an FMA each.  The frequency is chosen to give the device's peak."""

_FUSED_PREFIX = "_Fused"
_LAYOUT_MARK = "LayoutOptimizer"
_SWAP_PREFIX = "swap_in_"
_LOWERED = "_lower_using_switch_merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisedGraph:
    """A serialised GraphDef with devices and the shapes that inputs are bound to; what to fetch,
    and what was done, its peaks not known yet."""

    graph: bytes
    outputs: tuple[str, ...]
    facts: OptimisedFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiseRequest:
    """The program in ``path``, where its ops are, and (name, type, FLOP/s, bytes/s, bytes) of the
    devices."""

    path: str
    choice: ProgramChoice
    bindings: Bindings
    placement: Mapping[str, str]
    control_edges: Sequence[tuple[str, str]]
    rewriting: Rewriting
    devices: Sequence[tuple[str, str, float, float, int]]


def optimise(
    source: Any,
    extraction: Extraction,
    cluster: Cluster,
    placement: Mapping[str, str],
    control_edges: Sequence[tuple[str, str]] = (),
    rewriting: Rewriting = NO_REWRITING,
    *,
    time_limit_seconds: float = 600.0,
    **access: bool,
) -> OptimisedGraph:
    """Optimises the program in ``source`` as TensorFlow does, rewritten, with ``control_edges``,
    and placed by ``placement`` on ``cluster``; ``access`` is ``allow_unsafe`` and ``follow_links``.

    Raises :class:`UsageError` for a live program (it must be in a file) or one in parts,
    :class:`PlacerError` if this TensorFlow has no Grappler or Grappler refuses the graph.
    """
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            "what TensorFlow makes of a graph is known for models in files: save the program first"
        )
    if "division" in extraction.model:
        raise UsageError("what TensorFlow makes of a batch in parts is not known: leave one out")
    splits = extraction.model.get("splits")
    with local_model(source, weights=False, splits=splits, **access) as local:
        request = OptimiseRequest(
            path=os.fspath(local.path),
            choice=choice_of(extraction.model),
            bindings=extraction.bindings,
            placement=placement,
            control_edges=control_edges,
            rewriting=rewriting,
            devices=[
                (full_name(d.name), d.type, d.peak_flops, d.memory_bandwidth, d.usable_bytes)
                for d in cluster.devices
            ],
        )
        hidden = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        outcome = run_task(f"{__name__}:answer", request, time_limit_seconds, hidden)
    if outcome.ending is not Ending.ANSWERED:
        raise PlacerError(f"Grappler did not optimise the graph: {outcome.reason}")
    found: OptimisedGraph = outcome.answer
    return found


def answer(request: OptimiseRequest, _: Tell) -> OptimisedGraph:
    """The optimised graph of a request, in this process."""
    from placer.application.placing.graph_placement import (
        place_graph_def,
        rewrite_program,
        with_control_edges,
    )
    from placer.application.running.generated_inputs import bound_shapes
    from placer.extraction.graph_defs.protobufs import fill_shape
    from placer.extraction.graph_defs.rewritten_nodes import forget_rewriting
    from placer.extraction.reading.loading import load_program

    program = load_program(request.path, **request.choice)
    rewritten = rewrite_program(program, request.rewriting)
    ordered = with_control_edges(rewritten, request.control_edges)
    placed = place_graph_def(ordered, request.placement)
    ends = [*program.output_ops, *program.targets]
    optimised = optimise_graph(placed, ends, request.devices)
    accelerated = any(kind == "GPU" for _, kind, *_ in request.devices)
    swapped = optimise_graph(placed, ends, request.devices, swaps=True) if accelerated else placed
    forget_rewriting(optimised)  # else it would be taken back where the graph is read
    # the sizes of one step, which TensorFlow learns when it is fed
    by_key = bound_shapes(program, request.bindings)
    shapes = {item.op: by_key[item.key] for item in program.inputs}
    for node in optimised.node:
        if node.name in shapes and "shape" in node.attr:
            fill_shape(node.attr["shape"].shape, shapes[node.name])
    was = {node.name: node.op for node in placed.node}
    kinds = Counter(_kind(node, was) for node in optimised.node)
    return OptimisedGraph(
        graph=optimised.SerializeToString(),
        outputs=(*(t for _, t in program.outputs), *(f"^{name}" for name in program.targets)),
        facts=OptimisedFacts(
            file_op_count=len(was),
            op_count=len(optimised.node),
            fused=kinds["fused"],
            folded=kinds["folded"],
            transposes=kinds["transpose"],
            swaps=sum(node.name.startswith(_SWAP_PREFIX) for node in swapped.node),
            peaks={},
        ),
    )


def _kind(node: Any, was: Mapping[str, str]) -> str:
    """Returns the kind of change that made ``node``, as far as it is counted."""
    if node.op.startswith(_FUSED_PREFIX):
        return "fused"
    if node.op == "Const" and was.get(node.name, "Const") != "Const":
        return "folded"
    return "transpose" if node.op == "Transpose" and _LAYOUT_MARK in node.name else ""


def optimise_graph(
    graph_def: Any,
    ends: Sequence[str],
    devices: Sequence[tuple[str, str, float, float, int]],
    *,
    swaps: bool = False,
) -> Any:
    """The placed ``graph_def`` as Grappler leaves it for a session that runs ``ends``.

    With ``swaps`` its memory optimiser is on, as it is by default.  Raises :class:`PlacerError`
    if it cannot be asked, or refuses.
    """
    try:
        from tensorflow.python.grappler import cluster as grappler_cluster
        from tensorflow.python.grappler import tf_optimizer
    except ImportError as error:
        raise PlacerError(
            f"this TensorFlow has no Grappler that can be asked ({error}): leave --optimised out"
        ) from error
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

    from placer.application.devices.graph_optimisers import switch_memory_optimiser_off
    from placer.extraction.graph_defs.pure_ops import restore_kernels, withhold_kernels

    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    withhold_kernels(meta_graph.graph_def)  # Grappler computes constants
    for node in meta_graph.graph_def.node:
        if _LOWERED in node.attr:
            node.attr[_LOWERED].b = False
    meta_graph.collection_def["train_op"].node_list.value.extend(dict.fromkeys(ends))
    config = config_pb2.ConfigProto()
    if not swaps:
        switch_memory_optimiser_off(config)
    described = [named_device(*device) for device in devices]
    try:
        cluster = grappler_cluster.Cluster(devices=described)
        optimised = tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False, cluster=cluster)
    except Exception as error:
        raise PlacerError(f"Grappler cannot optimise this graph: {error}"[:800]) from error
    restore_kernels(optimised)
    return optimised


def named_device(
    name: str, kind: str, peak_flops: float, memory_bandwidth: float, memory_bytes: float
) -> Any:
    """Grappler's description of a device."""
    from tensorflow.core.protobuf import device_properties_pb2

    properties = device_properties_pb2.DeviceProperties(
        type=kind,
        num_cores=1,
        frequency=round(peak_flops / 1e6 / (_GPU_FLOPS_PER_CYCLE if kind == "GPU" else 1)),
        bandwidth=round(memory_bandwidth / 1e3),
        memory_size=int(memory_bytes),
        environment={"architecture": _GPU_ARCHITECTURE},
    )
    return device_properties_pb2.NamedDevice(name=name, properties=properties)
