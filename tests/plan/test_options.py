"""Options: one list of names for editors, shells, the page in the docs, and mistyped ones."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import fields
from pathlib import Path

import pytest
from plans_by_hand import small_plan

import placer
from placer.application.placing.placed_programs import apply
from placer.commands.parser import build_parser
from placer.errors import UsageError
from placer.extraction.extraction import require_choice
from placer.plan.request import NEVER, Keywords, Options, read_options
from placer.questions.auto import SEARCH_SECONDS
from placer.solving.solution import SolverParameters

NAMES = [item.name for item in fields(Options)]
PLAN = small_plan()
PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_editors_and_shells_complete_every_option():
    """The type of the keyword arguments has the fields of the record, in order; so has the
    signature that Python shows, with the defaults."""
    assert list(Keywords.__annotations__) == NAMES
    for function in (placer.place, placer.report, placer.sweep, placer.compare):
        parameters = inspect.signature(function).parameters
        assert set(NAMES) - set(parameters) == set()
        assert parameters["time_limit"].default == Options().time_limit
        assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    assert inspect.signature(placer.auto).parameters["time_limit"].default == SEARCH_SECONDS
    assert inspect.signature(placer.sweep).parameters["offload"].default == NEVER


def test_the_page_has_a_line_for_every_option():
    """With the option of the command line, which exists."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `(-[\w-]*)` \|", PAGE.read_text(), re.MULTILINE))
    assert list(rows) == NAMES
    commands = build_parser()._subparsers._group_actions[0].choices
    for name, flag in rows.items():
        assert flag == "-" or flag in commands["place"]._option_string_actions, name


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("batchsize", "batch_size"),
        ("objectiv", "objective"),
        ("pin", "pins"),
        ("shape", "shapes"),
        ("inexact", "exact=False"),
    ],
)
def test_a_mistyped_option_gets_the_near_name(given, near):
    """It is a usage error, before anything is read."""
    with pytest.raises(UsageError, match=rf"no option '{given}': did you mean .*\b{near}\b"):
        read_options({given: 1})
    with pytest.raises(UsageError, match=f"no option '{given}'"):
        placer.place("no such model", "2xT4", **{given: 1})


@pytest.mark.parametrize("given", ["format", "workers", "verbose"])
def test_an_option_that_none_is_like_gets_no_near_name(given):
    """``work_limit`` is not what somebody wanted who wrote ``format``."""
    with pytest.raises(UsageError, match=f"no option '{given}': known are"):
        read_options({given: 1})


def test_a_mistyped_choice_is_refused_too():
    """``verify`` and ``apply`` used to ignore it."""
    with pytest.raises(UsageError, match="no option 'signatur': did you mean signature"):
        placer.verify("no such model", signatur="f")


@pytest.mark.parametrize("given", ["rehearsal", "on_cpu_devices", "cpu_devices"])
def test_the_near_name_is_one_that_the_function_takes(given):
    """``apply`` knows its own keywords, also under the name that the command line has for them;
    ``place`` has no such option."""
    with pytest.raises(UsageError, match=f"no option '{given}': did you mean rehearse\\?"):
        require_choice([given], apply)
    with pytest.raises(UsageError, match=r"no option '\w+'(?!.*rehearse)"):
        read_options({given: True})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: placer.place("model", "2xT4", time_limit="3"), "time_limit must be a number"),
        (lambda: placer.place("model", "2xT4", reserve=5), "reserve must be a text"),
        (lambda: placer.place("model", "2xT4", fit="auto", max_slowdown=30), "such as 30% or 0.3"),
        (lambda: placer.place("model", "2xT4", outputs=5), "outputs must be a list of names"),
        (
            lambda: placer.place("model", "2xT4", shapes={"x": 4}),
            "shapes must be a mapping .*got 4 in {'x': 4}",
        ),
        (lambda: placer.place("model", "2xT4", fit=True), "fit must be a text such as 'auto'"),
        (lambda: placer.Plan.load(None), "path must be the path of a file; got None"),
        (lambda: placer.place(3), "cannot read a program from an object of type 'int'"),
        (lambda: placer.sweep("model", "2xT4"), "batch_sizes must be a list of whole numbers"),
        (lambda: placer.sweep("model", [0]), "a batch size is 0; give a whole number"),
        (lambda: placer.extract("model", batch_size=0), "batch_size is 0; give a whole number"),
        (lambda: placer.extract("model", dims={"B": -1}), "the size of B is -1"),
        (lambda: placer.find_fixes(PLAN, time_limit=-1), "time_limit is -1; give seconds above"),
        (lambda: placer.find_fixes(PLAN, time_limit=math.nan), "time_limit is nan; give seconds"),
        (lambda: placer.verify("model", time_limit_seconds=0), "time_limit_seconds is 0; give"),
        (lambda: placer.verify("model", seed=-1), "seed is -1; give a whole number from 0"),
        (lambda: placer.profile("model", steps=0), "steps is 0; give a whole number from 1"),
        (lambda: placer.explain(PLAN, transfer_count=-1), "transfer_count is -1; give"),
        (lambda: placer.fewest_pieces(len, "2xT4", most=0), "most is 0; give a whole number"),
        (lambda: SolverParameters(workers=-1), "workers is -1; give a whole number"),
        (lambda: SolverParameters(time_limit_seconds=math.nan), "time_limit_seconds is nan"),
        (lambda: placer.solve(3), "problem must be a PlacementProblem, .*got 3"),
    ],
)
def test_arguments_of_a_wrong_type_or_size_are_named(call, told):
    """Before devices are looked for, and not by an error of Python from within."""
    with pytest.raises(UsageError, match=told):
        call()
