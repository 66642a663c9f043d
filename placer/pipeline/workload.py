"""A program with its costs, the devices it is to run on, and the options of the request."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cost_models.clusters import Devices, parse_cluster
from cost_models.devices import Cluster
from cost_models.op_cost import OpCost
from cost_models.tensor_size import is_known, spell_shape
from placer.errors import ShapeError, UsageError
from placer.extraction import Extraction, extract
from placer.extraction.division.division import Division
from placer.extraction.shapes.composite_shapes import OPEN
from placer.graph.op_graph import OpGraph
from placer.graph.rewriting import Rewriting
from placer.graph.rewritten_graphs import rewrite_graph
from placer.pipeline.costing import cost_ops
from placer.pipeline.stored_bytes import with_stored
from placer.plan.report import UNKNOWN_SHARE
from placer.plan.request import Options
from placer.prediction.costs.op_costs import rewritten_costs
from placer.solving.solver import require_solver

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A program with its costs, and the devices it is to run on.

    ``source`` is what it was read from, ``wanted`` what was asked for.
    """

    source: Any
    wanted: Options
    extraction: Extraction
    costs: Mapping[str, OpCost]
    cluster: Cluster

    @property
    def graph(self) -> OpGraph:
        """The flat graph."""
        return self.extraction.graph

    def with_graph(self, graph: OpGraph) -> Workload:
        """The workload with another graph of the same ops: reordered, with control edges, or with
        other bytes that lie idle."""
        return replace(self, extraction=replace(self.extraction, graph=graph))

    def rewritten(self, rewriting: Rewriting) -> Workload:
        """The workload of the rewritten graph.

        Raises :class:`UsageError` as :func:`placer.graph.rewritten_graphs.rewrite_graph`.
        """
        if not rewriting:
            return self
        graph = rewrite_graph(self.graph, rewriting)
        return replace(self.with_graph(graph), costs=rewritten_costs(self.costs, graph, rewriting))

    def on(self, devices: Devices, wanted: Options) -> Workload:
        """The same program on other devices, with other options for placing it."""
        return replace(self, wanted=wanted, cluster=read_cluster(devices, wanted))


_MOST_ROOTS = 3
"""Ops with unbound outputs that an error names."""


def read_workload(
    source: Any,
    devices: Devices | Cluster,
    wanted: Options,
    division: Division | None = None,
    *,
    needs_shapes: bool = False,
) -> Workload:
    """The workload of ``source`` with its shapes bound, its batch divided by ``division``.

    Raises :class:`UsageError` for a wrong request, before the model is read, :class:`ModelError` if
    that is impossible, :class:`ShapeError` if it ``needs_shapes`` and too many are unknown.
    """
    cluster = devices if isinstance(devices, Cluster) else read_cluster(devices, wanted)
    require_solver(wanted.solver)
    _LOG.info("reading the model")
    extraction = extract(
        source,
        tag_set=wanted.tag_set,
        signature=wanted.signature,
        outputs=wanted.outputs,
        batch_size=wanted.batch_size,
        shapes=wanted.shapes,
        dims=wanted.dims,
        ragged=wanted.ragged,
        **wanted.access,
        division=division,
        splits=wanted.splits,
    )
    if needs_shapes:
        require_known_shapes(extraction)
    return cost_program(source, extraction, cluster, wanted)


def read_cluster(devices: Devices, wanted: Options) -> Cluster:
    """The cluster that ``devices`` describes, under the caps and the reserve of ``wanted``.

    Raises :class:`UsageError` for an unknown device or a size that cannot be read.
    """
    try:
        return parse_cluster(devices, wanted.max_memory, wanted.reserve)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


def require_known_shapes(extraction: Extraction) -> None:
    """Raises :class:`ShapeError` unless nearly all bytes are of tensors with a known shape."""
    parts = (extraction.graph, *extraction.graph.functions.values())
    unknown, total = len(extraction.unknown), sum(len(part.tensors) for part in parts)
    if extraction.unknown_share > UNKNOWN_SHARE:
        shapes = [(item, extraction.bound_shape(item)) for item in extraction.inputs]
        inputs = [(item, shape) for item, shape in shapes if not is_known(shape)]
        is_bound = extraction.has_fixed_batch or extraction.bindings.get("batch_size") is not None
        told = [w for w in extraction.warnings if w[0] in (OPEN, "no_inference")]
        explained = {op for code, _, ops in told if code == OPEN for op in ops}
        roots = [r for r in extraction.unknown_roots or extraction.unknown if r not in explained]
        more = "" if len(roots) <= _MOST_ROOTS else f" and {len(roots) - _MOST_ROOTS:,} more"
        lost = f", first those of {', '.join(roots[:_MOST_ROOTS])}{more}. "
        if opened := shape_options(extraction):
            both = f"{'' if is_bound else '--batch-size N and '}{opened}"
            lost = f". Add {both}: the batch size alone sets only the first dimension"
        else:
            batch = "" if is_bound or not inputs else "the batch with --batch-size N, or "
            fed = {item.op for item in extraction.inputs}
            named = [] if inputs and fed.issuperset(roots[:_MOST_ROOTS]) else ["an op just named"]
            keys = ", ".join(item.key for item, _ in inputs[:5])
            given = " or of ".join([*([f"an input ({keys})"] if inputs else []), *named])
            example = f"{inputs[0][0].key}={spell_shape(inputs[0][1])}" if inputs else "NAME=32x128"
            lost += f"Set {batch}the shape of {given}, with --shape {example}"
        lost = "" if is_bound and not roots else lost
        if any("CudnnRNN" in root for root in roots):
            lost += (
                ". The size of what cuDNN keeps is unknown: leave use_cudnn of the layers at 'auto'"
            )
        raise ShapeError(
            f"{unknown:,} of {total:,} tensors {'has' if unknown == 1 else 'have'} an unknown "
            f"shape{lost}"
            f"{''.join(f'; {message}' for _, message, _ in told)}"
        )


def shape_options(extraction: Extraction) -> str:
    """Returns the options with which no input has an unknown dimension behind its first one."""
    shapes = extraction.open_shapes.items()
    return " ".join(f"--shape {key}={shape}" for key, shape in shapes)


def cost_program(
    source: Any, extraction: Extraction, cluster: Cluster, wanted: Options
) -> Workload:
    """The workload of an extracted program, with the cost of every op."""
    _LOG.info("estimating costs of %s ops", f"{len(extraction.graph.ops):,}")
    costs, extraction = cost_ops(extraction, cluster, wanted)
    stored = extraction.stored
    idle = {cluster.host.name: stored.host_bytes}
    return Workload(
        source=source,
        wanted=wanted,
        extraction=replace(extraction, graph=extraction.graph.with_idle(idle)),
        costs=with_stored(costs, stored),
        cluster=cluster,
    )
