"""Strategies by name, as ``placer place --strategy`` takes them: how many parts each makes on which
devices, and which number of parts is best.  Parts that take turns are also called pieces.

- ``micro-batches:N``: N parts one after the other; ``micro-batches`` alone, or ``:auto``, as few as
  fit the caps.
- ``replicas:N``: N parts side by side, each on an accelerator of its own (by default on all).
- ``pipeline:N``: the layers in stages on all accelerators, N parts through them, one more in flight
  than there are stages, as one is under way between two (by default four parts per stage).
- ``hybrid:R``: R replicas, each on as many accelerators as there are for it (by default what is
  predicted to be fastest).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cost_models.devices import Cluster, task_of
from placer.errors import NoSolutionError, UsageError
from placer.extraction.division.division import REPLICA, Division
from placer.graph.program_source import TrainingDivisionFacts
from placer.plan.plan import Plan

MICRO_BATCHES, REPLICAS, PIPELINE, HYBRID = "micro-batches", "replicas", "pipeline", "hybrid"
KINDS = (MICRO_BATCHES, REPLICAS, PIPELINE, HYBRID)
ALL_REDUCE = "all-reduce"
"""Replicas with their own variables, of training steps that are traced; ``place`` has none."""

AUTO = "auto"
MOST_PARTS = 64

PIECES_PER_STAGE = 4
"""A pipeline of four times as many pieces as stages keeps its devices busy four fifths of the time
or more (Y. Huang et al., GPipe, NeurIPS 2019, section 2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRequest:
    """A strategy and how many parts it makes; ``None``: to be chosen."""

    kind: str
    parts: int | None = None

    def __str__(self) -> str:
        return self.kind if self.parts is None else f"{self.kind}:{self.parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDivision:
    """How a training step is divided: replicas on groups of devices, with parts of the batch in
    proportion to ``speeds`` (as even as can be without), or ``pieces``, ``in_flight`` at a time.
    ``replicated`` replicas have their own variables.  With ``is_exact`` false the parts have batch
    statistics of their own; where it ``is_proved``, the graph says that they train as the whole
    does."""

    replicas: tuple[tuple[str, ...], ...] = ()
    speeds: tuple[float, ...] | None = None
    pieces: int = 1
    in_flight: int = 1
    replicated: bool = False
    is_exact: bool = True
    is_proved: bool = False

    @property
    def parts(self) -> int:
        """Parts of the batch."""
        return len(self.replicas) or self.pieces

    def as_json(self) -> TrainingDivisionFacts:
        """Returns what a plan keeps."""
        return {
            "towers": [list(group) for group in self.replicas],
            "speeds": None if self.speeds is None else list(self.speeds),
            "pieces": self.pieces,
            "in_flight": self.in_flight,
            "replicated": self.replicated,
            "is_exact": self.is_exact,
            "is_proved": self.is_proved,
        }


def planned_training(plan: Plan) -> TrainingDivision | None:
    """How ``plan`` divides the training step that it is of; ``None`` where that is whole."""
    found = plan.model.get("training_division")
    if found is None:
        return None
    return TrainingDivision(
        replicas=tuple(tuple(group) for group in found["towers"]),
        speeds=None if found["speeds"] is None else tuple(found["speeds"]),
        pieces=found["pieces"],
        in_flight=found["in_flight"],
        replicated=found["replicated"],
        is_exact=found["is_exact"],
        is_proved=found.get("is_proved", False),
    )


def training_division(
    asked: StrategyRequest, cluster: Cluster, speeds: tuple[float, ...] | None = None
) -> TrainingDivision:
    """How ``asked``, which names a number of parts, divides a training step."""
    if asked.kind in (REPLICAS, HYBRID, ALL_REDUCE):
        groups = tuple(tuple(group) for group in replica_groups(asked, cluster))
        replicated = asked.kind == ALL_REDUCE
        return TrainingDivision(replicas=groups, speeds=speeds, replicated=replicated)
    in_flight = len(cluster.workers) + 1 if asked.kind == PIPELINE else 1
    return TrainingDivision(pieces=asked.parts or 1, in_flight=in_flight)


def read_strategy(text: str) -> StrategyRequest:
    """The strategy called ``text``.  Raises :class:`UsageError` saying what there is."""
    kind, colon, count = text.replace("towers", REPLICAS).partition(":")
    automatic = not colon or (kind == MICRO_BATCHES and count == AUTO)
    if kind == ALL_REDUCE:
        raise UsageError(
            f"--strategy {text}: replicas that join their gradients by an all-reduce are built "
            "from a Keras training step, by placer.auto(model, devices); a file has no such step"
        )
    if kind not in KINDS or not (automatic or (count.isdecimal() and int(count) > 0)):
        raise UsageError(
            f"--strategy must be micro-batches, replicas, pipeline or hybrid, with :N for N parts "
            f"of the batch (micro-batches:auto for as few as fit), got {text!r}"
        )
    return StrategyRequest(kind=kind, parts=None if automatic else int(count))


def with_default_parts(
    asked: StrategyRequest, cluster: Cluster, examples: int | None
) -> StrategyRequest:
    """``asked`` with the number of parts that it makes of so many ``examples`` on ``cluster``,
    unless trials show it."""
    if asked.parts is not None or tries_several(asked):
        return asked
    count = len(cluster.workers)
    if asked.kind == PIPELINE:
        count = min(PIECES_PER_STAGE * count, examples or PIECES_PER_STAGE * count)
    return replace(asked, parts=count)


def choose_plan(
    asked: StrategyRequest, cluster: Cluster, examples: int | None, attempt: Callable[[str], Plan]
) -> Plan:
    """The plan with the best number of parts for a strategy that :func:`tries_several`.

    ``attempt`` places by a strategy that names one; the batch has so many ``examples``.  Raises
    :class:`UsageError` for a strategy that needs other devices, :class:`NoSolutionError` if no
    number of micro-batches fits.
    """
    if asked.kind == MICRO_BATCHES:
        most = min(examples or MOST_PARTS, MOST_PARTS)
        return fewest_parts(lambda parts: attempt(f"{MICRO_BATCHES}:{parts}"), most)[1]
    plans = [attempt(f"{HYBRID}:{parts}") for parts in hybrid_replicas(len(cluster.workers))]
    return min(plans, key=lambda plan: (not plan.fits, _step_seconds(plan)))


def tries_several(asked: StrategyRequest) -> bool:
    """Whether only plans show how many parts are best."""
    return asked.parts is None and asked.kind in (MICRO_BATCHES, HYBRID)


def _step_seconds(plan: Plan) -> float:
    found = plan.metrics.step_seconds
    return float("inf") if found is None else found


def fewest_parts(
    attempt: Callable[[int], Plan],
    most: int = MOST_PARTS,
    devices: str = "the devices",
    advice: str = "add devices, raise a limit, or allow offloading with --offload auto (not tried)",
) -> tuple[int, Plan]:
    """The fewest parts whose plan fits, and that plan; more parts are taken to need no more memory.

    Raises :class:`NoSolutionError` with ``advice`` if even ``most`` do not fit.
    """
    failing, parts = 0, 1
    plan = attempt(parts)
    while not plan.fits:
        if parts == most:
            raise NoSolutionError(
                f"no number of micro-batches was found to fit {devices}, not even {most}: weights, "
                f"and in training their gradients, do not shrink with them; {advice}"
            )
        failing, parts = parts, min(most, 2 * parts)
        plan = attempt(parts)
    while parts - failing > 1:
        middle = (failing + parts) // 2
        found = attempt(middle)
        if found.fits:
            parts, plan = middle, found
        else:
            failing = middle
    return parts, plan


def equal_groups(accelerators: int) -> list[int]:
    """The numbers of equal groups, two or more, of two accelerators or more each."""
    return [n for n in range(2, accelerators // 2 + 1) if accelerators % n == 0]


def hybrid_replicas(accelerators: int) -> list[int]:
    """The numbers of replicas of equal groups of two accelerators or more.

    Raises :class:`UsageError` if there are none.
    """
    found = equal_groups(accelerators)
    if not found:
        raise UsageError(
            "--strategy hybrid requires two replicas or more on two accelerators or more each, at "
            f"least 4 in all; --devices has {accelerators}: name more, or use --strategy replicas"
        )
    return found


def replica_groups(asked: StrategyRequest, cluster: Cluster) -> list[list[str]]:
    """The accelerators of each replica of a ``replicas`` or ``hybrid`` strategy.

    Raises :class:`UsageError` if there are not as many.
    """
    names, parts = cluster.workers, asked.parts or 0
    if asked.kind == HYBRID and parts not in hybrid_replicas(len(names)):
        known = " or ".join(f"hybrid:{number}" for number in hybrid_replicas(len(names)))
        raise UsageError(
            f"--strategy {asked}: {len(names)} accelerators cannot be divided into {parts} equal "
            f"groups of two or more; write {known}"
        )
    if parts < 2 <= len(names):
        raise UsageError(
            f"--strategy {asked} makes one replica, which divides nothing: ask for two or more, "
            f"such as {asked.kind}:2"
        )
    if parts < 2 or parts > len(names):
        needed = f"{parts} accelerators" if parts > 1 else "two accelerators or more"
        raise UsageError(
            f"--strategy {asked if parts > 1 else asked.kind} requires {needed}, one for each "
            "replica; --devices has "
            f"{len(names)}: name more, or use --strategy micro-batches"
        )
    size = len(names) // parts if asked.kind == HYBRID else 1
    return [list(names[number * size : (number + 1) * size]) for number in range(parts)]


def group_alone(cluster: Cluster, group: Collection[str]) -> Cluster:
    """Some accelerators with the CPUs of their tasks and the host, under the names they have."""
    tasks = {task_of(name) for name in group if cluster.device(name).type != "CPU"}
    cpus = {d.name for d in cluster.devices if d.type == "CPU" and task_of(d.name) in tasks}
    wanted = {cluster.host.name, *group, *cpus}
    kept = tuple(device for device in cluster.devices if device.name in wanted)
    return replace(cluster, devices=kept, unnamed=cluster.default_device)


def with_all_threads(cluster: Cluster, name: str) -> Cluster:
    """One device with what stays beside it, and the threads of the others if all share them."""
    alone, device = group_alone(cluster, [name]), cluster.device(name)
    threads = device.parallel_ops + sum(
        other.parallel_ops
        for other in cluster.devices
        if other not in alone.devices and cluster.pool_of(other) == cluster.pool_of(device)
    )
    kept = (replace(d, parallel_ops=threads) if d.name == name else d for d in alone.devices)
    return replace(alone, devices=tuple(kept))


def division_of(
    asked: StrategyRequest, cluster: Cluster, stages: Mapping[str, str] | None = None
) -> Division | None:
    """How ``asked``, which names a number of parts, divides a batch; ``None`` for one part.

    ``stages`` is the placement of one part on the first of the groups of a hybrid.
    """
    accelerators, parts = cluster.workers, asked.parts or 1
    if asked.kind in (REPLICAS, HYBRID):
        groups = replica_groups(asked, cluster)
        if stages is None:
            maps: list[Mapping[str, str]] = [{"": group[0]} for group in groups]
        else:
            moved = [dict(zip(groups[0], group, strict=True)) for group in groups]
            maps = [{op: to.get(name, name) for op, name in stages.items()} for to in moved]
        return Division(parts=parts, scope=REPLICA, devices=tuple(maps))
    if asked.kind == PIPELINE and len(accelerators) < 2:
        raise UsageError(
            f"--strategy {asked} requires two accelerators or more, one for each stage; --devices "
            f"has {len(accelerators)}: name more, or use --strategy micro-batches"
        )
    in_flight = len(accelerators) + 1 if asked.kind == PIPELINE else 1
    return Division(parts=parts, in_flight=in_flight) if parts > 1 else None
