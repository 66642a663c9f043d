"""Tables that no accelerator can hold: into how many parts they are split.

The fewest parts that each fit are tried first, then twice as many, until nothing is spilled: small
parts go into what the large ones leave free.
"""

import logging
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_models.devices import Cluster
from cost_models.op_info import TensorProperties
from cost_models.tensor_size import tensor_bytes
from placer.errors import ModelError
from placer.pipeline.placement import place_workload
from placer.pipeline.workload import Workload, read_cluster, read_workload
from placer.plan.request import AUTO, NEVER, Options, format_splits
from placer.prediction.memory.allocator import MOST_PADDING_BYTES

_LOG = logging.getLogger(__name__)

_FACTORS = (1, 2, 4, 8)
"""Multiples of the fewest parts, in the order in which they are tried."""


def decide_splits(source: Any, devices: str | Path, wanted: Options) -> Options:
    """``wanted`` with the number of parts of every table that is to be split, none if all fit.

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
    for factor in _FACTORS:
        counts = {name: max(2, factor * math.ceil(size / part)) for name, size in sizes.items()}
        asked = replace(wanted, split_tables=format_splits(counts))
        _LOG.info("trying %s", asked.split_tables)
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
    found: dict[str, int] = {}
    for variable in workload.graph.variables:
        shape = variable.shape
        if limit and shape and None not in shape:
            size = _bytes(variable.dtype, [n for n in shape if n is not None])
            if size > limit:
                found[variable.handle] = size
    return found


def _bytes(dtype: str, shape: list[int]) -> int:
    return tensor_bytes(TensorProperties(shape=tuple(shape), dtype=dtype)) or 0


def _largest(cluster: Cluster) -> int:
    """Returns the bytes that the largest accelerator can hold; 0 without one."""
    sizes = [d.usable_bytes for d in cluster.devices if d.type != "CPU"]
    return max(sizes, default=0)
