"""``placer solve``: problem file in, placement out, no TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_problems import problem_of

from placer.__main__ import main
from placer.errors import UsageError
from placer.problem.placement_problem import PlacementProblem, Request, check, from_json, to_json


def two_pairs() -> PlacementProblem:
    problem = problem_of(
        resident=[1] * 4,
        tensors=[(0, [1], 8), (1, [2], 1), (2, [3], 8)],
        capacity=[2, 2],
    )
    return replace(problem, seconds=((1.0, 1.0),) * 4)


def solve(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys\n"
        "from placer.__main__ import main\n"
        "code = main(sys.argv[1:])\n"
        "assert 'tensorflow' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", script, "solve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def problem_file(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(to_json(two_pairs()))
    return path


def test_the_placement_is_printed_and_written(problem_file: Path, tmp_path: Path) -> None:
    """Text on stdout, JSON in the file; a second run does not overwrite it."""
    out = tmp_path / "solution.json"
    done = solve(str(problem_file), "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "OPTIMAL" in done.stdout
    assert "value 1 bytes, lower bound 1" in done.stdout
    content = json.loads(out.read_text())
    assert content["placement"]["op0"] == content["placement"]["op1"]
    assert content["relative_gap"] == 0.0
    assert solve(str(problem_file), "-o", str(out)).returncode == 2


def test_a_baseline_answers_under_its_name(problem_file: Path) -> None:
    done = solve(str(problem_file), "--solver", "first-fit", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is broken JSON"),
        ("[" * 100_000, "is not a placement problem"),
        (f'{{"schema": "placer.rematerialisation/1", "a": {"[" * 100_000}', "is not a placement"),
        ('{"schema": "placer.plan/1"}', 'not "placer.problem/1"; docs/formulation.md'),
        ('{"schema": "placer.problem/1"}', "is not a placement problem: it lacks 'tensors'"),
        (to_json(two_pairs()).replace('"host"', '"hos"'), "problem: it has a key that no problem"),
        (
            '{"schema": "placer.problem/1", "tensors": [], "live_bytes": []}',
            "problem: it lacks op_names, device_names,",
        ),
        (to_json(replace(two_pairs(), capacity_bytes=("2", 2))), "'2', which is not a whole"),
        (to_json(two_pairs()).replace('"op0"', "7"), "op_names has 7, which is not text"),
        (to_json(replace(two_pairs(), control_edges=((0,),))), "(0,), which is not a pair of ops"),
        (to_json(replace(two_pairs(), temporary_bytes=(1.5, 0, 0, 0))), "temporary_bytes has 1.5"),
        (to_json(replace(two_pairs(), seconds=((float("nan"),),))), "seconds has nan"),
        (to_json(replace(two_pairs(), spillable=(1, 1, 1, 1))), "1, which is not true or false"),
    ],
)
def test_what_is_no_problem_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "problem.json"
    path.write_text(text)
    assert main(["solve", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_infeasible_and_unsolved_have_their_exit_codes(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(to_json(replace(two_pairs(), capacity_bytes=(1, 1))))
    done = solve(str(path))
    assert done.returncode == 5
    assert "GPU:0 and CPU:0 (limit 1 B each) must hold at least 4 B" in done.stdout
    assert solve(str(path), "--solver", "m-etf").returncode == 6
    assert solve(str(tmp_path / "absent.json")).returncode == 2
    assert solve(str(path), "--solver", "absent").returncode == 2


PINNED = replace(
    two_pairs(),
    allowed=((0,), (0,), (0,), (1,)),
    unconfined={0: (0, 1), 1: (0, 1)},
    colocation=(0, 1, 2, 3),
    working_set_bytes=(1, 1, 1, 1),
    requests=(Request(name="a pin", kind="pin", ops=(0, 1), devices=(0,)),),
)
"""Three ops where two fit, two of them by a pin."""


def test_a_problem_may_say_what_was_asked_for(tmp_path: Path) -> None:
    """The pin comes back from the file, and is what to drop; older files have none of it."""
    assert from_json(to_json(PINNED)) == PINNED
    older = json.loads(to_json(PINNED))
    for name in ("requests", "unconfined", "colocation", "working_set_bytes"):
        del older[name]
    assert from_json(json.dumps(older)).requests == ()
    path = tmp_path / "problem.json"
    path.write_text(to_json(PINNED))
    done = solve(str(path), "--format", "json")
    assert done.returncode == 5
    conflict = json.loads(done.stdout)["conflict"]
    assert [row["request"] for row in conflict["pins"]] == ["a pin"]
    assert conflict["fixes"][0]["change"] == "without a pin"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": (Request(name="r", kind="wish"),)}, "kind 'wish'; it can be pin, "),
        ({"requests": (Request(name="r", kind="pin", ops=(9,)),)}, "'r' names op 9 of 4"),
        ({"requests": (Request(name="r", kind="pin", devices=(2,)),)}, "names device 2 of 2"),
        ({"unconfined": {7: (0,)}}, "unconfined names op 7 of 4"),
        ({"colocation": (1,)}, "colocation has 1 entries for 4 ops"),
        ({"working_set_bytes": (-1, 0, 0, 0)}, "a size is -1 bytes"),
    ],
)
def test_requests_that_refer_to_nothing_are_refused(change, message) -> None:
    """With what was found, before any search."""
    with pytest.raises(UsageError, match=message):
        check(replace(two_pairs(), **change))


@pytest.mark.slow
def test_a_rematerialisation_problem_is_solved_and_its_answer_fits_the_schema(
    tmp_path: Path,
) -> None:
    """What is computed again, the budget that nothing keeps, and options that are of placements."""
    from placer.fitting import recompute_problem as rematerialised
    from placer.plan.schemas import require_fit

    given = rematerialised.RematerialisationProblem(
        node_names=("f0", "f1", "b1", "b0"),
        seconds=(2, 1, 1, 1),
        bytes=(5, 2, 1, 1),
        inputs=((), (0,), (1,), (0, 2)),
        order=(0, 1, 2, 3),
        budget_bytes=7,
    )
    path, out = tmp_path / "problem.json", tmp_path / "answer.json"
    path.write_text(rematerialised.to_json(given))
    require_fit(json.loads(path.read_text()), "rematerialisation", "1", "it")
    done = solve(str(path), "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert "FEASIBLE" in done.stdout
    assert "computed again: 1 node: f0" in done.stdout
    answer = json.loads(out.read_text())
    require_fit(answer, "rematerialisation-solution", "1", "it")
    assert answer["sequence"] == ["f0", "f1", "b1", "f0", "b0"]
    path.write_text(rematerialised.to_json(replace(given, budget_bytes=6)))
    done = solve(str(path))
    assert (done.returncode, "reads and writes 7" in done.stderr) == (5, True)
    done = solve(str(path), "--objective", "transfer")
    assert (done.returncode, "leave out --objective" in done.stderr) == (2, True)
    for text in ('{"schema": "placer.rematerialisation/1"}', '["placer.rematerialisation/1"]'):
        path.write_text(text)
        done = solve(str(path))
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
