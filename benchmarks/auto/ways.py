"""All ways to run a program, one by one: those that ``placer.auto`` chooses from, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from placer.errors import PlacerError
from placer.questions.auto_programs import AutoProgram, Built
from placer.questions.auto_ways import Ways
from placer.strategies.requests import (
    MICRO_BATCHES,
    PIPELINE,
    REPLICAS,
    StrategyRequest,
    group_alone,
)

PIECES = (2, 4, 8)


def built_ways(program: AutoProgram) -> dict[str, Built]:
    """Every way that can be built and fits, whatever it cannot beat, by a name of its own."""
    found = {}
    for name, build in _ways(program):
        try:
            built = build()
        except PlacerError:
            continue
        if built.fits:
            found[name] = built
    return found


def _ways(program: AutoProgram) -> Iterator[tuple[str, Callable[[], Built]]]:
    """Those of ``auto``; then other numbers of pieces, fewer accelerators, another objective."""
    ways = Ways(program, latency=False)
    for way in ways:
        if not way.in_parts or not (program.inexact or way.name.startswith(PIPELINE)):
            yield way.name, way.build
    cluster, size = program.cluster, program.size or 1
    yield "one-placement/transfer", partial(program.place, cluster, objective="transfer")
    if program.inexact:
        return
    alone = group_alone(cluster, [ways.fastest])
    asked = StrategyRequest(kind=MICRO_BATCHES, parts=2)
    yield f"{asked}/{ways.fastest}", partial(program.divided, asked, alone)
    workers = sorted(cluster.workers, key=lambda name: -ways.speeds[cluster.workers.index(name)])
    for count in range(2, len(workers)):
        some = group_alone(cluster, workers[:count])
        asked = StrategyRequest(kind=REPLICAS, parts=count)
        yield f"{asked}/{count}", partial(program.divided, asked, some)
    if len(set(ways.speeds)) > 1 and program.task == "training":
        asked = StrategyRequest(kind=REPLICAS, parts=len(workers))
        yield f"{asked}/even", partial(program.divided, asked, cluster)
    for pieces in (p * len(workers) for p in PIECES):
        if len(workers) > 1 and pieces <= size:
            asked = StrategyRequest(kind=PIPELINE, parts=pieces)
            yield str(asked), partial(program.divided, asked, cluster)
