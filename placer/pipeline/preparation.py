"""From a request to the workload that is placed: a strategy is decided, and divides the batch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_models.devices import Cluster
from placer.errors import NoSolutionError, UsageError
from placer.extraction.division.division import Division
from placer.pipeline.placement import place_workload
from placer.pipeline.table_splits import decide_splits
from placer.pipeline.workload import Workload, read_cluster, read_workload
from placer.plan.plan import Plan
from placer.plan.request import Options, describe_request
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


def decide(source: Any, devices: str | Path, wanted: Options) -> Options:
    """``wanted`` with what ``devices`` and ``source`` decide: the number of parts of a strategy,
    and of every table that is split.

    Raises :class:`UsageError` for what no strategy has, :class:`ModelError` for a table that is
    too large and cannot be split.
    """
    return decide_splits(source, devices, decide_strategy(devices, wanted))


def decide_strategy(devices: str | Path, wanted: Options) -> Options:
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


def prepare(source: Any, devices: str | Path, wanted: Options) -> Workload:
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
        raise UsageError(f"--strategy {asked} divides the batch: say how large it is: --batch-size")
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


def place_in_parts(source: Any, devices: str | Path, wanted: Options) -> Plan:
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


def place_without_advice(source: Any, devices: str | Path, wanted: Options) -> Plan:
    """The plan for one way to run the batch; if nothing fits, it does not say why."""
    plan = place_workload(prepare(source, devices, wanted))
    return replace(plan, request=describe_request(devices, wanted))
