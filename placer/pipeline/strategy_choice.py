"""The number of parts that a strategy runs the batch in, where none was named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.pipeline.placement import place_workload
from placer.pipeline.preparation import prepare
from placer.pipeline.workload import read_cluster
from placer.plan.plan import Plan
from placer.plan.request import Options, describe_request
from placer.strategies.requests import (
    PIPELINE,
    choose_plan,
    read_strategy,
    tries_several,
    with_default_parts,
)


def decide_strategy(devices: str | Path, wanted: Options) -> Options:
    """``wanted`` with the number of parts that its strategy makes on ``devices``.

    The stages of a pipeline are to be busy alike, unless the step time is asked for.
    """
    if wanted.strategy is None:
        return wanted
    asked = with_default_parts(read_strategy(wanted.strategy), read_cluster(devices, wanted))
    balanced = asked.kind == PIPELINE and wanted.objective == "transfer"
    objective = "throughput" if balanced else wanted.objective
    return replace(wanted, strategy=str(asked), objective=objective)


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
        lambda strategy: try_placing(source, devices, replace(wanted, strategy=strategy)),
    )


def try_placing(source: Any, devices: str | Path, wanted: Options) -> Plan:
    """The plan for one way to run the batch, without a word on why if nothing fits."""
    plan = place_workload(prepare(source, devices, wanted))
    return replace(plan, request=describe_request(devices, wanted))
