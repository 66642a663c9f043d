"""What a search tells while it runs, and how it ends."""

from __future__ import annotations

import sys
import time
from types import ModuleType

import pytest

from placer.solving.process.search_run import (
    Answer,
    BestSoFar,
    Effort,
    SearchRequest,
    run_search,
)
from placer.solving.solution import Status


def test_every_change_is_told_and_bounds_never_fall() -> None:
    """A later bound that is lower changes nothing; no bound is none."""
    told: list[Answer] = []
    best = BestSoFar(told.append)
    best.raise_bound(3)
    best.raise_bound(None)
    best.keep([0, 1])
    best.raise_bound(2)
    best.prove(Status.OPTIMAL)
    assert best.answer == told[-1]
    assert [answer.lower_bound for answer in told] == [3, 3, 3, 3]
    assert told[-1] == Answer(status=Status.OPTIMAL, device_of=(0, 1), lower_bound=3)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose functions can be named as searches."""
    module = ModuleType("searches_by_hand")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def run(name: str, told: list[Answer], seconds: float) -> Answer:
    effort = Effort(deadline=time.time() + seconds)
    request = SearchRequest(search=f"searches_by_hand:{name}", problem=7, hints=(), effort=effort)
    return run_search(request, told.append)


def test_a_search_that_does_not_end_is_left_after_its_deadline(searches: ModuleType) -> None:
    """With the best answer so far."""

    def endless(problem: int, hints: object, best: BestSoFar, effort: Effort) -> None:
        best.keep([problem])
        time.sleep(30.0)

    searches.endless = endless
    began = time.monotonic()
    assert run("endless", [], 0.2).device_of == (7,)
    assert time.monotonic() - began < 10.0


def test_a_search_that_fails_ends_the_process_and_keeps_what_it_told(searches: ModuleType) -> None:
    """The caller sees a process that died, and the last answer."""

    def failing(problem: int, hints: object, best: BestSoFar, effort: Effort) -> None:
        best.keep([problem])
        raise ValueError("gone")

    searches.failing = failing
    told: list[Answer] = []
    with pytest.raises(SystemExit) as ending:
        run("failing", told, 5.0)
    assert isinstance(ending.value.__cause__, ValueError)
    assert [answer.device_of for answer in told] == [(7,)]
