"""All ways to run a program, the simplest first, each with a step that it cannot beat.

With s the predicted step of the whole batch on one accelerator, w its work there (busy seconds) and
c its longest chain of ops, these are

- of anything that shares the work among accelerators: 1 / (sum of 1/w), all of them always busy
  (less where they are unlike, as each op may run where it takes the least share of w);
- *one placement*: that, or c if it is longer (the host counts where not all fits one accelerator);
- *in parts*: each op that works along the batch runs once for each part, with its launches;
- *micro-batches*, and what only saves memory on one accelerator: s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from placer.errors import NoSolutionError, PlacerError
from placer.graph.passes.roles import find_roles
from placer.plan.request import NEVER
from placer.questions.auto_bounds import (
    kind_of,
    least_sum,
    shares_of,
    work_elsewhere,
    work_of,
    work_of_part,
)
from placer.questions.auto_programs import AutoProgram, Built
from placer.strategies.requests import (
    ALL_REDUCE,
    HYBRID,
    MICRO_BATCHES,
    MOST_PARTS,
    PIECES_PER_STAGE,
    PIPELINE,
    REPLICAS,
    StrategyRequest,
    equal_groups,
    group_alone,
)

AS_IT_IS, ONE_PLACEMENT = "as-it-is", "one-placement"

_CLEARLY = 0.97
"""A pipeline of more pieces is tried as long as a step becomes so much shorter, and a placement
that sends more is taken if its step is."""

_FEWEST_PER_STAGE = 2
"""Pieces of a pipeline: with one per stage, half of the devices wait."""

_MOST_OPS = 20_000
"""Nor are there more ops then: more take minutes to build."""

_ON_ONE = "at least the {} of the whole batch on one accelerator"
_SHARED = "at least {} with every accelerator fully busy"
_WITH_HOST = "at least {} with the host and every accelerator fully busy"
PARTS = "at least {}, as its parts launch more ops"
_CHAIN = "critical path {} on accelerators"
NOTHING_OFFLOADED = ", with nothing offloaded"
"""So one placement is built where all fits one accelerator; the host may take less for its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way before it is built: it cannot beat ``least_seconds``, and ``why_no_faster`` is a
    sentence that gives them with the reason.  ``changes`` is what is different for the user.
    ``tighter`` gives, after some more reading, a step in seconds that it cannot beat either, and
    about how many ops it has."""

    name: str
    changes: str
    least_seconds: float
    why_no_faster: str
    build: Callable[[], Built]
    in_parts: bool = False
    tighter: Callable[[], tuple[float, int]] | None = None


class Ways:
    """The ways of a program.  Each kind of accelerator runs the whole batch alone, by prediction,
    before any of them is built: ``alone`` has the first one of each kind.  ``to_beat`` is the step
    in seconds of the fastest way so far: a pipeline that cannot beat it is built only once."""

    def __init__(self, program: AutoProgram, *, latency: bool) -> None:
        self.program, self.latency = program, latency
        self.to_beat = math.inf
        self.cluster = cluster = program.cluster
        self.alone: dict[str, Built] = {}
        like, kinds = dict[str, str](), dict[str, str]()
        for name in cluster.workers:
            like[name] = kinds.setdefault(kind_of(cluster, name), name)
            if like[name] not in self.alone:
                self.alone[name] = program.on_one_device(name)
        works = {name: work_of(self.alone[kind], kind) for name, kind in like.items()}
        self.shares = [
            shares_of(built, kind, cluster.device(kind)) for kind, built in self.alone.items()
        ]
        self.rate = sum(1 / work for work in works.values())
        self.ideal = least_sum(self.shares) / self.rate
        least = min(works.values())
        self.speeds = tuple(least / work for work in works.values())
        self.fastest = like[min(works, key=works.__getitem__)]
        self.on_fastest = self.alone[self.fastest]

    def __iter__(self) -> Iterator[Way]:
        yield from self._as_it_is()
        if not (self.on_fastest.fits or self.on_fastest.refused):
            yield from self._with_less_memory()
        yield self._one_placement()
        size, count = self.program.size or 1, len(self.cluster.workers)
        if size > 1 and not self.on_fastest.fits:
            yield self._micro_batches(size)
        if 1 < count <= size:
            yield from self._on_several(size, count)

    def _as_it_is(self) -> Iterator[Way]:
        first = self.cluster.workers[0]
        for name, built in self.alone.items():
            is_first = name == first
            yield Way(
                name=AS_IT_IS if is_first else f"on-{name}",
                changes="nothing" if is_first else "another device",
                least_seconds=built.step_seconds,
                why_no_faster="",
                build=partial(self.program.as_it_is, built, name)
                if is_first
                else partial(replace, built),
            )

    def _with_less_memory(self) -> Iterator[Way]:
        """The whole batch on the fastest accelerator all the same.

        What saves memory there has its way here, the cheapest first.
        """
        alone = group_alone(self.cluster, [self.fastest])
        yield Way(
            name="order",
            changes="control edges that keep memory low",
            least_seconds=self.on_fastest.step_seconds,
            why_no_faster=_ON_ONE,
            build=lambda: self.program.place(alone, order="fit", offload="never"),
        )
        if self.program.trains:
            yield Way(
                name="recompute",
                changes="some tensors computed twice, or on the host meanwhile",
                least_seconds=self.on_fastest.step_seconds,
                why_no_faster=_ON_ONE,
                build=lambda: self.program.rewritten(alone),
            )

    def _one_placement(self) -> Way:
        chain, shared = self.on_fastest.plan.metrics.critical_path_seconds or 0.0, self.ideal
        busy = _SHARED if len(self.cluster.workers) > 1 else _ON_ONE
        if not self.on_fastest.fits:  # the host may take a part
            busy = _WITH_HOST
            host = work_elsewhere(self.on_fastest, self.fastest, self.cluster.host)
            loads = shares_of(self.on_fastest, self.fastest, self.cluster.host)
            shared, chain = least_sum([*self.shares, loads]) / (self.rate + 1 / host), 0.0
        elif len(self.cluster.workers) == 1:
            shared = self.on_fastest.step_seconds
        is_kept = self.on_fastest.fits and self.program.wanted.offload != NEVER
        why = _CHAIN if chain > shared else busy
        return Way(
            name=ONE_PLACEMENT,
            changes="ops on several devices",
            least_seconds=max(chain, shared),
            why_no_faster=why + NOTHING_OFFLOADED if is_kept else why,
            build=self._placed,
        )

    def _placed(self) -> Built:
        """The shortest step; where not all fits one accelerator the least transfer, unless the
        other is clearly shorter: a short search may not come by it."""
        # what fits one accelerator needs no host, and its limit does not count one
        offload = NEVER if self.on_fastest.fits else self.program.wanted.offload
        found = self.program.place(self.cluster, objective="step-time", offload=offload)
        if found.fits and self.on_fastest.fits:
            return found
        other = self.program.place(self.cluster, objective="transfer", offload=offload)
        is_clear = not other.fits or found.step_seconds < _CLEARLY * other.step_seconds
        return found if found.fits and is_clear else other

    def _micro_batches(self, size: int) -> Way:
        return Way(
            name=MICRO_BATCHES,
            changes="micro-batches in turn",
            least_seconds=self.on_fastest.step_seconds,
            why_no_faster=_ON_ONE,
            build=lambda: self._in_pieces(size),
            in_parts=True,
        )

    def _in_pieces(self, size: int) -> Built:
        """The fewest pieces, a power of two, that fit the fastest accelerator.

        Those of which one does not fit alone are not built.  Raises :class:`NoSolutionError` if no
        number fits.
        """
        pieces = 2
        while pieces <= min(size, MOST_PARTS):
            piece = self.program.on_one_device(self.fastest, math.ceil(size / pieces))
            if piece.fits:
                asked = StrategyRequest(kind=MICRO_BATCHES, parts=pieces)
                found = self.program.divided(asked, self.cluster)
                if found.fits:
                    return replace(found, name=str(asked))
            elif any((row.resident_bytes or 0) > row.usable_bytes for row in piece.plan.devices):
                break
            pieces *= 2
        raise NoSolutionError(f"does not fit {self.fastest} in any number of micro-batches")

    def _on_several(self, size: int, count: int) -> Iterator[Way]:
        yield self._divided(REPLICAS, count, "parts of the batch side by side")
        if self.program.task == "training":
            yield self._divided(ALL_REDUCE, count, "replicas with their own variables")
        pieces = min(PIECES_PER_STAGE * count, size)
        if not self.latency and pieces > count:
            way = self._divided(PIPELINE, pieces, "micro-batches through stages")
            fewest = min(_FEWEST_PER_STAGE * count, pieces)
            yield replace(
                way,
                build=lambda: self._pipeline(pieces, count, size),
                tighter=lambda: self._least_in_fewest(fewest, pieces),
            )
        for replicas in equal_groups(count):
            yield self._divided(HYBRID, replicas, "replicas of several devices")

    def _divided(self, kind: str, parts: int, changes: str) -> Way:
        asked = StrategyRequest(kind=kind, parts=parts)
        uneven = (
            kind in (REPLICAS, ALL_REDUCE)
            and len(self.alone) > 1
            and self.program.task == "training"
        )
        return Way(
            name=str(asked),
            changes=changes,
            least_seconds=self.ideal,
            why_no_faster=_SHARED,
            build=lambda: self.program.divided(
                asked, self.cluster, self.speeds if uneven else None
            ),
            in_parts=True,
            tighter=None if uneven else partial(self._least_in_parts, asked, parts),
        )

    def _pipeline(self, pieces: int, count: int, size: int) -> Built:
        """A pipeline of so many pieces, or of twice as many as long as that is clearly faster, or
        of fewer if it does not beat the fastest way (launches may be much of its step).

        Of P pieces through S stages a device has nothing to do for S - 1 of P + S - 1 turns:
        without those it would be as fast as it can be.
        """
        fewest = min(_FEWEST_PER_STAGE * count, pieces)
        while pieces > fewest and self._least_in_pieces(pieces)[0] >= self.to_beat:
            pieces = max(fewest, pieces // 2)
        best, ops = self._staged(pieces), len(self.program.whole().graph.ops)
        if best.fits and best.step_seconds >= self.to_beat:
            return self._in_fewer_pieces(best, pieces, count)
        is_clear = True
        while is_clear and best.step_seconds * pieces / (pieces + count - 1) < self.to_beat:
            pieces *= 2
            if pieces > min(size, MOST_PARTS) or ops * pieces > _MOST_OPS:
                break
            try:
                found = self._staged(pieces)
            except PlacerError:
                break
            if not found.fits or (best.fits and found.step_seconds >= best.step_seconds):
                break
            is_clear = not best.fits or found.step_seconds < _CLEARLY * best.step_seconds
            best = found
        return best

    def _in_fewer_pieces(self, best: Built, pieces: int, count: int) -> Built:
        """The fastest of ``best`` and of half its pieces, and so on, as far as those could win."""
        fewest = _FEWEST_PER_STAGE * count
        while pieces > fewest:
            pieces = max(fewest, pieces // 2)
            if self._least_in_pieces(pieces)[0] >= self.to_beat:
                break
            found = self._staged(pieces)
            if not found.fits or found.step_seconds >= best.step_seconds:
                break
            best = found
        return best

    def _least_in_pieces(self, pieces: int) -> tuple[float, int]:
        return self._least_in_parts(StrategyRequest(kind=PIPELINE, parts=pieces), pieces)

    def _least_in_fewest(self, fewest: int, usual: int) -> tuple[float, int]:
        """The step that the ``fewest`` pieces cannot beat, and the ops of the ``usual`` number,
        which is built first."""
        seconds, ops = self._least_in_pieces(fewest)
        whole = len(self.program.whole().graph.ops)
        return seconds, whole + (ops - whole) * (usual - 1) // max(1, fewest - 1)

    def _staged(self, pieces: int) -> Built:
        asked = StrategyRequest(kind=PIPELINE, parts=pieces)
        return replace(self.program.divided(asked, self.cluster), name=str(asked))

    def _least_in_parts(self, asked: StrategyRequest, parts: int) -> tuple[float, int]:
        """The step in seconds that ``parts`` cannot beat, all with their own launches, and about
        how many ops it has."""
        count, size = len(self.cluster.workers), self.program.size or 1
        least = max(1, size // parts) if asked.kind == PIPELINE else math.ceil(size / parts)
        piece = self.program.whole(least)
        works = [work_of_part(built, piece, kind) for kind, built in self.alone.items()]
        part, rest = (least_sum(loads) for loads in zip(*works, strict=True))
        shared = (parts * part + (0.0 if asked.kind == HYBRID else rest)) / count
        ops = len(piece.graph.ops) + (parts - 1) * len(works[0][0])
        if asked.kind == ALL_REDUCE:  # every one has what comes of gradients, updates too
            gradients = piece.graph.ask_once(find_roles).gradients
            again = [sum(s for op, s in once.items() if op in gradients) for _, once in works]
            alone = [sum(each.values()) for each, _ in works]
            return max(shared, *map(sum, zip(alone, again, strict=True))), ops
        if asked.kind == REPLICAS:
            return max(shared, *(sum(each.values()) for each, _ in works)), ops
        return shared, ops
