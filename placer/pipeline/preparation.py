"""From a request to the workload that is placed: a strategy is decided, and divides the batch."""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.clusters import Devices
from cost_models.devices import Cluster
from cost_models.op_info import TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.errors import ModelError, NoSolutionError, UsageError
from placer.extraction.division.division import Division
from placer.pipeline.placement import place_workload
from placer.pipeline.workload import Workload, read_cluster, read_workload
from placer.plan.plan import Plan
from placer.plan.request import AUTO, NEVER, Options, describe_request, format_splits
from placer.prediction.memory.chunks import MOST_PADDING_BYTES
from placer.solving.process import clock
from placer.strategies.requests import (
    HYBRID,
    PIPELINE,
    StrategyRequest,
    choose_plan,
    division_of,
    group_alone,
    read_strategy,
    replica_groups,
    tries_several,
    with_default_parts,
)

_LOG = logging.getLogger(__name__)

_FACTORS = (1, 2, 4, 8)
"""Multiples of the fewest parts, in the order in which they are tried."""


def decide_splits(source: Any, devices: Devices, wanted: Options) -> Options:
    """``wanted`` with the number of parts of every table that is to be split, none if all fit.

    The fewest parts that each fit are tried first, then twice as many, until nothing goes to the
    host: small parts go into what the large ones leave free.
    Raises :class:`ModelError` for a table that is too large and cannot be split.
    """
    if wanted.split_tables != AUTO:
        return wanted
    cluster = read_cluster(devices, wanted)
    whole = replace(wanted, split_tables=NEVER)
    sizes = too_large(read_workload(source, cluster, whole, needs_shapes=True))
    if not sizes or not isinstance(source, str | os.PathLike):
        return whole  # of a program in memory, the conflict says what is too large
    largest = _largest(cluster)
    part = max(largest // 2, largest - MOST_PADDING_BYTES)  # and its chunk is not the whole region
    best: tuple[tuple[bool, int, int], Options] | None = None
    deadline = clock.monotonic() + wanted.time_limit
    for factor in _FACTORS:
        if best is not None and clock.monotonic() > deadline:
            break
        counts = {name: max(2, factor * math.ceil(size / part)) for name, size in sizes.items()}
        asked = replace(wanted, split_tables=format_splits(counts))
        _LOG.info("trying to split tables: %s", asked.split_tables)
        seconds = wanted.time_limit / len(_FACTORS)
        trial = replace(asked, time_limit=seconds, fit="", max_slowdown=None)  # the step as it is
        try:
            plan = place_workload(read_workload(source, cluster, trial))
        except ModelError:  # more parts than rows
            if best is None:
                raise
            break
        spilled = sum(device.spilled_bytes or 0 for device in plan.devices)
        rank = not plan.fits, spilled, plan.metrics.transfer_bytes or 0
        if best is None or rank < best[0]:
            best = rank, asked
        if plan.fits and not spilled:
            break
    assert best is not None
    return best[1]


def too_large(workload: Workload) -> dict[str, int]:
    """The bytes of the variables that no accelerator can hold, by their handles."""
    limit = _largest(workload.cluster)
    sizes = {
        variable.handle: tensor_bytes(TensorProperties(shape=variable.shape, dtype=variable.dtype))
        for variable in workload.graph.variables
    }
    return {handle: size for handle, size in sizes.items() if limit and size and size > limit}


def _largest(cluster: Cluster) -> int:
    """Returns the bytes that the largest accelerator can hold; 0 without one."""
    sizes = [d.usable_bytes for d in cluster.devices if d.type != "CPU"]
    return max(sizes, default=0)


def decide(source: Any, devices: Devices, wanted: Options) -> Options:
    """``wanted`` with what ``devices`` and ``source`` decide: the number of parts of a strategy,
    and of every table that is split.

    Raises :class:`UsageError` for what no strategy has, :class:`ModelError` for a table that is
    too large and cannot be split.
    """
    return decide_splits(source, devices, decide_strategy(devices, wanted))


def on_accelerators(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with nothing offloaded where a strategy is asked for, unless it is said that
    something is: parts are asked of the accelerators."""
    return {"offload": NEVER, **options} if options.get("strategy") else {**options}


def decide_strategy(devices: Devices, wanted: Options) -> Options:
    """Returns ``wanted`` with the number of parts that its strategy makes on ``devices``.

    The stages of a pipeline are to be busy alike, unless the step time is asked for.  Raises
    :class:`UsageError` for what no strategy has.
    """
    if wanted.strategy is None:
        return wanted
    asked = read_strategy(wanted.strategy)
    asked = with_default_parts(asked, read_cluster(devices, wanted), wanted.batch_size)
    balanced = asked.kind == PIPELINE and wanted.objective == "transfer"
    objective = "throughput" if balanced else wanted.objective
    return replace(wanted, strategy=str(asked), objective=objective)


def prepare(source: Any, devices: Devices, wanted: Options) -> Workload:
    """Everything that placing ``source`` on ``devices`` needs to know.

    Raises what :func:`placer.pipeline.pipeline.place` raises.
    """
    cluster = read_cluster(devices, wanted)
    division = _division(source, cluster, wanted)
    return read_workload(source, cluster, wanted, division, needs_shapes=True)


def _division(source: Any, cluster: Cluster, wanted: Options) -> Division | None:
    """How the strategy that is asked for divides the batch."""
    if wanted.strategy is None:
        return None
    asked = read_strategy(wanted.strategy)
    stages = _place_replica(source, asked, cluster, wanted) if asked.kind == HYBRID else None
    return division_of(asked, cluster, stages)


def _place_replica(
    source: Any, asked: StrategyRequest, cluster: Cluster, wanted: Options
) -> Mapping[str, str]:
    """The placement of one replica of a hybrid on the first group of devices.

    Raises :class:`UsageError` without a batch size, :class:`NoSolutionError` if it does not fit.
    """
    group = replica_groups(asked, cluster)[0]
    if wanted.batch_size is None:
        raise UsageError(f"--strategy {asked} divides the batch: give its size with --batch-size")
    part = replace(wanted, strategy=None, batch_size=-(-wanted.batch_size // (asked.parts or 1)))
    alone = group_alone(cluster, group)
    plan = place_workload(read_workload(source, alone, part, needs_shapes=True))
    if not plan.fits:
        raise NoSolutionError(
            f"--strategy {asked}: one replica of {part.batch_size} examples was not found to fit "
            f"{', '.join(group)}; fewer replicas have more devices each"
        )
    return plan.placement


def needs_trials(wanted: Options) -> bool:
    """Whether only placements show how many parts are best."""
    return wanted.strategy is not None and tries_several(read_strategy(wanted.strategy))


def place_in_parts(source: Any, devices: Devices, wanted: Options) -> Plan:
    """The plan for the best number of parts.

    Raises :class:`UsageError` for a strategy that needs other devices, :class:`NoSolutionError` if
    no number of micro-batches fits.
    """
    return choose_plan(
        read_strategy(wanted.strategy or ""),
        read_cluster(devices, wanted),
        wanted.batch_size,
        lambda strategy: place_without_advice(source, devices, replace(wanted, strategy=strategy)),
    )


def place_without_advice(source: Any, devices: Devices, wanted: Options) -> Plan:
    """The plan for one way to run the batch; if nothing fits, it does not say why."""
    plan = place_workload(prepare(source, devices, wanted))
    return replace(plan, request=describe_request(devices, wanted))
