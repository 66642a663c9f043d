"""One place turns errors into messages and exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plans_by_hand import MIB, device_row, infeasible_plan, small_plan, small_report

import placer
from placer import errors
from placer.__main__ import main
from placer.commands.parser import EXAMPLES, FEW, HELP, build_parser
from placer.plan.plan import Plan
from placer.plan.request import read_options
from placer.plan.rows import PlanWarning

_COSTS = '{"schema": "placer.costs/1", "device_type": "CPU", "ops": %s}'


@pytest.fixture
def pipeline(monkeypatch):
    """Stands in for ``placer.pipeline.pipeline``: its functions return or raise what a test
    sets."""
    from types import ModuleType

    module = ModuleType("placer.pipeline.pipeline")
    module.calls = []
    module.result = small_plan()

    def answer(source, devices=None, **options):
        module.calls.append((source, devices, options))
        if isinstance(module.result, BaseException):
            raise module.result
        return module.result

    module.place = module.report = answer
    monkeypatch.setitem(sys.modules, "placer.pipeline.pipeline", module)
    return module


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PlacerError("told"), 1),
        (errors.UsageError("told"), 2),
        (errors.ModelError("told"), 3),
        (errors.ShapeError("told"), 4),
        (errors.InfeasibleError("told"), 5),
        (errors.NoSolutionError("told"), 6),
        (errors.GateError("told"), 7),
        (errors.VerificationError("told"), 8),
    ],
)
def test_errors_become_one_line_and_their_exit_code(pipeline, capsys, error, code):
    """Every kind of error is one line on stderr and nothing on stdout."""
    pipeline.result = error
    assert main(["report", "model"]) == code
    assert capsys.readouterr() == ("", "placer: told\n")


def test_an_interrupt_exits_130(pipeline):
    """Control-C ends as shells expect it."""
    pipeline.result = KeyboardInterrupt()
    assert main(["report", "model"]) == 130


def test_a_fault_is_one_line_and_with_v_a_traceback(pipeline, capsys):
    """An unexpected exception exits 1; only -v shows where it came from."""
    pipeline.result = ZeroDivisionError("by zero")
    assert main(["report", "model"]) == 1
    message = "placer: unexpected error: ZeroDivisionError: by zero"
    assert capsys.readouterr().err == f"{message}; run with -v for the traceback\n"
    assert main(["report", "model", "-v"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback")
    assert told.endswith(f"{message}\n")


FRESH_REPORT = (
    f"import sys; sys.path[:0] = {sys.path!r}; from plans_by_hand import small_report; "
    "from types import ModuleType; fake = ModuleType('placer.pipeline.pipeline'); "
    "fake.report = lambda *a, **k: small_report(); sys.modules['placer.pipeline.pipeline'] = fake; "
    "from placer.__main__ import main; sys.exit(main(['report', 'model']))"
)
"""A report without any work, in an interpreter of its own."""


def test_a_reader_that_leaves_is_no_error():
    """``placer ... | head -1`` says nothing on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"input(); {FRESH_REPORT}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    _, told = process.communicate(b"\n")
    assert (process.returncode, told) == (141, b"")


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 1, b"placer: cannot write the output: No space left on device; free space"),
        (">&-", 0, b""),
        (">/dev/null 2>&-", 0, b""),
    ],
)
def test_an_output_that_takes_nothing(redirection, code, message):
    """A full disk is said in one line; a stream that the caller closed is nobody's loss."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", FRESH_REPORT]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr[: len(message)]) == (code, message)
    assert done.stderr.count(b"\n") == bool(message)


def test_an_error_does_not_speak_to_the_terminal(pipeline, capsys):
    """Names from files are shown, and obeyed neither on the screen nor in its title."""
    pipeline.result = errors.ModelError("op a\x1b[31m\u202eb is unknown\nsecond line")
    assert main(["report", "model"]) == 3
    assert capsys.readouterr().err == "placer: op a\\x1b[31m\\u202eb is unknown\nsecond line\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["simulate", "--", "python"], "--devices"),
        (["report", "model", "--format", "yaml"], "must be one of text, json"),
        (["report", "model", "--shape", "32x128"], "must be NAME=32x128"),
        (["report", "m", "--shape", "a:1", "--shape", "a:2"], "--shape a is given twice"),
        (
            ["report", "model", "--dim", "T=long"],
            "the size of T must be a whole number, got 'long'",
        ),
        (["report", "model", "--batch-size", "-1"], "must be a positive integer, got '-1'"),
        (["place", "model", "--batch-size", "1,2"], "one batch size, got '1,2': placer report"),
        (["place", "m", "--devices", "2xT4", "--batch-size", "0"], "must be a positive integer"),
        (["report", "model", "--batch-size", "2147483647"], "must be at most 2,147,483,646"),
        (["report", "model", "--dim", f"T={'9' * 20}"], "must be at most 2,147,483,646"),
        (["report", "model", "--batch-size", "8,99999999999"], "at most 2,147,483,646, got 9"),
        (["place", "m", "--shape", "x=99999999999x8"], "at most 2,147,483,646, got 9"),
        (["auto", "m", "--batch-size", "99999999999"], "at most 2,147,483,646, got 9"),
        (["place", "m", "--ragged", "x=8x99999999999"], "at most 2,147,483,646, got 9"),
        (["place", "m", "--devices", "2xT4", "--force"], "and none is written: give -o, or leave"),
        (["auto", "m", "--devices", "2xT4", "--force"], "and none is written: give -o, or leave"),
        (["place", "m", "--solver", "heft", "--seed", "3"], "--seed has no effect on heft"),
        (["compare", "m", "--solver", "heft", "--work-limit", "3"], "no effect on heft: leave it"),
        (["report", "model", "--trip-count", "9" * 20], "must be at most 9,223,372"),
        (["report", "model", "-o", ""], "must be the name of a file"),
        (["report", "model", "-o", "."], ". is a folder: give the name of a file"),
        (["report", "model", "--force", "-o", "."], ". is a folder: give the name of a file"),
        (["report", "model", "--force", "-o", "/dev/null"], "is a device or a pipe"),
        (["explain", "nope.json"], "cannot read the plan nope.json: there is no such file"),
        (["report", "model", "--fail-on", "rain"], "one of fallback, unmodelled, unknown-shape"),
        (["place", "model", "--devices", "2xT4", "--pin", "GPU:0"], "must be 'GLOB=GPU:0'"),
        (
            ["place", "model", "--devices", "2xT4", "--time-limit", "0"],
            "positive number of seconds",
        ),
        (
            ["place", "model", "--devices", "2xT4", "--objective", "speed"],
            "must be one of transfer",
        ),
        (["report", "model", "--max-memory", "GPU:0=1GiB"], "--max-memory requires --devices"),
        (["report", "model", "--fail-on", "fallback"], "--fail-on fallback requires --devices"),
        (["place", "m", "--devices", "2xT4", "--fail-above", "GPU:2=1GiB"], "GPU:0, GPU:1, CPU:0"),
        (["place", "m", "--devices", "2xT4", "--fail-above", "GPU:0"], "its limit, GPU:0=9GiB"),
        (["place", "m", "--devices", "2xNope", "--fail-above", "GPU:0=1GiB"], "unknown device"),
    ],
)
def test_wrong_usage_exits_2_before_any_work(pipeline, capsys, argv, message):
    """What is wrong with a command line is said with what would be right, before any work."""
    assert main(argv) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert pipeline.calls == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken JSON at line 1, column 2"),
        ("[1]", "is not a costs file"),
        ('{"a": 1}', "is not a costs file"),
        ('{"schema": "placer.plan/1"}', "is not a costs file"),
        (_COSTS % '{"a": {"median_seconds": -1}}', "at ops/a/median_seconds"),
        (_COSTS % '{"a": {"median_seconds": "fast"}}', "at ops/a/median_seconds"),
        (_COSTS % '{"a": {"median_seconds": NaN}}', "cannot be read as JSON"),
        (_COSTS % '{"a": 1}', "at ops/a"),
    ],
)
def test_measured_costs_must_be_seconds(pipeline, tmp_path, capsys, text, message):
    """A costs file that does not fit its schema is refused before any work."""
    path = tmp_path / "costs.json"
    path.write_text(text)
    assert main(["report", "model", "--costs", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert pipeline.calls == []


def test_measured_costs_reach_the_pipeline(pipeline, tmp_path):
    """The path arrives, which plans keep, so that explain reads the same costs; what is no file of
    costs is refused before any work."""
    path = tmp_path / "costs.json"
    path.write_text(_COSTS % '{"a": {"median_seconds": 1}, "b": {"median_seconds": 2.5e-6}}')
    assert main(["place", "model", "--devices", "2xT4", "--costs", str(path)]) == 0
    assert pipeline.calls[0][2]["costs"] == str(path)
    path.write_text("{}")
    assert main(["place", "model", "--devices", "2xT4", "--costs", str(path)]) == 2
    assert len(pipeline.calls) == 1


def test_options_reach_the_pipeline(pipeline, capsys):
    """Every option arrives under the pipeline's name for it."""
    argv = "place model --devices 2xT4 --tag-set serve --signature s --outputs a,b:1 -q"
    argv += " --batch-size 8 --shape x:32x128 --shape y:: --max-memory GPU:0=1GiB"
    argv += " --max-memory CPU:0=2GiB --reserve 1GiB+10% --offload never --pin a=b=GPU:1"
    argv += " --pin-type Hash*=CPU:0 --keep-together enc/* --clear-devices --colocate-gradients"
    argv += " --keep-colocation --fit recompute --max-slowdown 30%"
    argv += " --split-tables users=4,items=2"
    argv += " --time-limit 5 --work-limit 7 --seed 3 --order memory --micro-batches 4"
    argv += " --allow-unsafe-keras --follow-links --shape z:Bx?x3 --dim B=8 --ragged ids=?x50"
    argv = argv.replace("y::", "scope/y:")
    assert main(argv.split()) == 0
    ((source, devices, options),) = pipeline.calls
    assert (source, devices) == ("model", "2xT4")
    assert options == {
        "tag_set": "serve",
        "signature": "s",
        "outputs": ("a", "b:1"),
        "batch_size": 8,
        "shapes": {"x": (32, 128), "scope/y": (), "z": ("B", None, 3)},
        "dims": {"B": 8},
        "ragged": {"ids": (None, 50)},
        "allow_unsafe": True,
        "follow_links": True,
        "trip_count": None,
        "costs": None,
        "red_zones": None,
        "max_memory": "GPU:0=1GiB,CPU:0=2GiB",
        "reserve": "1GiB+10%",
        "offload": "never",
        "objective": "transfer",
        "pins": {"a=b": "GPU:1"},
        "pin_types": {"Hash*": "CPU:0"},
        "keep_together": ("enc/*",),
        "clear_devices": True,
        "colocate_gradients": True,
        "keep_colocation": True,
        "fit": "recompute",
        "max_slowdown": "30%",
        "split_tables": "users=4,items=2",
        "time_limit": 5.0,
        "work_limit": 7,
        "order": "memory",
        "seed": 3,
        "solver": "cp-sat",
        "strategy": "micro-batches:4",
    }
    assert "OPTIMAL" in capsys.readouterr().out


def test_place_optimised_names_what_took_its_place(pipeline, capsys):
    assert main(["place", "model", "--devices", "2xT4", "--optimised"]) == 2
    assert "verify MODEL PLAN --memory" in capsys.readouterr().err
    assert not pipeline.calls


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_fit_is_refused(given, pipeline, capsys):
    assert main(["place", "model", "--devices", "2xT4", "--fit", given]) == 2
    assert "--fit is empty" in capsys.readouterr().err
    assert not pipeline.calls


def test_place_writes_the_plan_and_never_overwrites(pipeline, tmp_path, capsys):
    """The plan goes to -o; a second run stops before any work, and --force replaces it."""
    path = tmp_path / "plan.json"
    argv = ["place", "model", "--devices", "2xT4", "-o", str(path)]
    assert main(argv) == 0
    assert Plan.load(path) == small_plan()
    assert main(argv) == 2
    assert "--force" in capsys.readouterr().err
    assert len(pipeline.calls) == 1
    pipeline.result = small_plan(tool_version="9")
    assert main([*argv, "--force"]) == 0
    assert Plan.load(path).tool_version == "9"


def test_place_prints_the_plan_as_json(pipeline, capsys):
    """With --format json, stdout is the plan and nothing else."""
    assert main(["place", "model", "--devices", "2xT4", "--format", "json"]) == 0
    assert Plan.from_json(capsys.readouterr().out) == small_plan()


def test_an_infeasible_plan_is_written_all_the_same(pipeline, tmp_path, capsys, monkeypatch):
    """Exit code 5 comes after the plan with the conflict is in the file and on stdout."""
    monkeypatch.setenv("COLUMNS", "100")
    pipeline.result = infeasible_plan()
    path = tmp_path / "plan.json"
    assert main(["place", "model", "--devices", "2xT4", "-o", str(path)]) == 5
    assert Plan.load(path).conflict == infeasible_plan().conflict
    out, told = capsys.readouterr()
    assert "must hold at least 120 MiB: --pin 'a*=GPU:0' (2 ops, 70.0 MiB)" in out
    assert "--max-memory GPU:0=120MiB" in out
    assert told == "placer: no placement fits (proven)\n"  # the reason stands on stdout
    assert "placer explain" not in out
    pipeline.result = replace(
        infeasible_plan(), conflict=replace(infeasible_plan().conflict, fixes=())
    )
    assert main(["place", "model", "--devices", "2xT4", "-o", str(path), "--force"]) == 5
    assert f"Next: placer explain {path} --time-limit 300" in capsys.readouterr().out


def test_the_output_of_place_is_the_plan(pipeline, tmp_path, capsys):
    """Whatever is printed; a page is written by another command, which is named."""
    out = tmp_path / "plan.json"
    argv = ["place", "model", "--devices", "2xT4", "--format", "html", "-o"]
    assert main([*argv, str(out)]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert json.loads(out.read_text())["schema"] == "placer.plan/1"
    assert main([*argv, str(tmp_path / "plan.html")]) == 2
    assert f"placer export {tmp_path / 'plan.json'} --to html -o" in capsys.readouterr().err


def test_no_placement_in_time_exits_6(pipeline, capsys):
    """Without a placement and without a proof, the advice is more time."""
    solver = replace(infeasible_plan().solver, status="UNKNOWN")
    pipeline.result = replace(infeasible_plan(), solver=solver, conflict=None)
    assert main(["place", "model", "--devices", "2xT4"]) == 6
    assert "--time-limit" in capsys.readouterr().err


def test_what_fit_does_not_make_fit_exits_6(pipeline, capsys):
    """That nothing fits is proven of the step as it is only."""
    solver = replace(infeasible_plan().solver, status="UNKNOWN")
    pipeline.result = replace(infeasible_plan(), solver=solver)
    assert main(["place", "model", "--devices", "2xT4", "--fit", "auto"]) == 6
    told = "no placement was found that fits with --fit, and none fits without it (proven)"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "code"), [("GPU:1=90MiB", 0), ("GPU:1=89MiB", 7), ("1=89MiB", 7), ("GPU:*=89MiB", 7)]
)
def test_fail_above_is_a_gate_on_the_required_memory(pipeline, capsys, limit, code):
    """90 MiB pass a limit of 90 MiB and trip one of 89 MiB, after the summary."""
    argv = ["place", "model", "--devices", "2xT4", "--fail-above", limit]
    assert main(argv) == code
    out, told = capsys.readouterr()
    assert "GPU:1" in out
    over = "GPU:1 requires 90.0 MiB, 1.00 MiB more than its --fail-above limit of 89.0 MiB"
    assert (over in told) == (code == 7)


def test_earlier_names_still_work(pipeline, capsys):
    """Options, keyword arguments, strategies and plans take the names that they had before."""
    argv = "place model --devices 2xT4 --spill never --strategy towers:2 --fail-over 1=89MiB"
    assert main(argv.split()) == 7
    options = pipeline.calls[0][2]
    assert (options["offload"], options["strategy"]) == ("never", "replicas:2")
    assert read_options({"spill": "never"}).offload == "never"
    old = replace(small_plan(), request={"spill": "never", "strategy": "towers:2"})
    now = {"offload": "never", "strategy": "replicas:2"}
    assert Plan.from_json(old.to_json()).request == now
    assert placer.rehearsal_devices is placer.cpu_devices


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("unmodelled", "3 ops have no cost model: Odd"),
        ("unknown-shape", "2 tensors have an unknown shape"),
        ("fallback", "5 ops do not run on the device that the graph asks for"),
        ("offload", "7.00 MiB of ops with a GPU kernel are offloaded to CPU:0"),
    ],
)
def test_fail_on_is_a_gate_on_what_was_found(pipeline, capsys, gate, message):
    """Each gate trips on its own finding, and on no other."""
    warnings = tuple(
        PlanWarning(code=code, message="", count=count)
        for code, count in (("unknown_shape", 2), ("device_string_ignored", 5))
    )
    offloaded = (device_row("GPU:0"), device_row("CPU:0", spilled_bytes=7 << 20))
    pipeline.result = small_plan(unmodelled={"Odd": 3}, warnings=warnings, devices=offloaded)
    assert main(["place", "model", "--devices", "2xT4", "--fail-on", gate]) == 7
    assert capsys.readouterr().err == f"placer: a gate tripped: {message}\n"
    pipeline.result = small_plan()
    assert main(["place", "model", "--devices", "2xT4", "--fail-on", gate]) == 0


def test_ops_that_keep_nothing_trip_the_gate_on_offloading(pipeline, capsys):
    """A kernel on the host is offloaded though no variable is."""
    rows = (device_row("GPU:0"), device_row("CPU:0", spilled_ops=3))
    pipeline.result = small_plan(devices=rows)
    assert main(["place", "model", "--devices", "1xGPU:1GiB", "--fail-on", "offload"]) == 7
    assert "3 ops with a GPU kernel are offloaded to CPU:0" in capsys.readouterr().err


def test_report_writes_to_a_file_without_colours(pipeline, tmp_path, capsys):
    """With -o the report goes to the file alone."""
    pipeline.result = small_report(plan=small_plan())
    path = tmp_path / "report.txt"
    assert main(["report", "model", "--devices", "2xT4", "-o", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert "\x1b" not in path.read_text()
    assert "proven best" in path.read_text()


def test_report_as_json_is_sorted_and_carries_the_plan(pipeline, capsys):
    """The JSON has the report's facts and the same plan that place would write."""
    import json

    pipeline.result = small_report(plan=small_plan())
    assert main(["report", "model", "--devices", "2xT4", "--format", "json"]) == 0
    text = capsys.readouterr().out
    data = json.loads(text)
    assert text == json.dumps(data, sort_keys=True, indent=1) + "\n"
    assert data["schema"] == "placer.report/1"
    assert data["memory"]["peak_bytes"] == 5 * MIB
    assert Plan.from_json(json.dumps(data["plan"])) == small_plan()


def test_a_plan_over_its_caps_is_no_solution(pipeline, tmp_path, capsys):
    """Its placement is written for a look, the exit code is 6, and the message has the numbers."""
    plan = small_plan()
    unknown = replace(plan.solver, status="UNKNOWN")
    smaller = tuple(replace(row, memory_limit_bytes=MIB, usable_bytes=MIB) for row in plan.devices)
    pipeline.result = small_plan(solver=unknown, devices=smaller)
    path = tmp_path / "plan.json"
    assert main(["place", "model", "--devices", "2xT4", "-o", str(path)]) == 6
    option = "--max-memory GPU:0=60MiB,GPU:1=90MiB"
    out, err = capsys.readouterr()
    assert f"89.0 MiB more than its limit of 1.00 MiB. May fit (not tried): {option}" in err
    assert f"May fit (not tried): {option}." in " ".join(out.split())
    assert Plan.load(path).placement
    assert not Plan.load(path).fits


@pytest.mark.parametrize(
    "line", [line for lines in EXAMPLES.values() for line in lines], ids=lambda line: line[:40]
)
def test_every_example_of_the_help_is_a_command_line(line):
    """It parses as it is printed."""
    program, *words = shlex.split(line)
    assert program == "placer"
    assert callable(build_parser().parse_args(words).run)


def test_every_command_has_examples():
    """``placer COMMAND --help`` ends with something to copy."""
    commands = build_parser()._subparsers._group_actions[0].choices
    assert set(commands) == set(EXAMPLES)


def test_this_machine_is_the_default(pipeline):
    """A placement without devices is asked of the GPUs here, a report of the model alone."""
    assert main(["place", "model"]) == 0
    assert pipeline.calls[-1][1] == "local"
    assert main(["report", "model", "--max-memory", "GPU:0=1GiB"]) == 2


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_command_helps(command, capsys):
    """Asked as a person does; some metavars have percent signs, which argparse may take for its
    own."""
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: placer {command} [OPTIONS]")
    assert "examples:\n  placer " in told
    assert not [
        line for line in told.splitlines() if "     " in line[26:]
    ]  # as it is in the source
    assert f"\n  {command} " in HELP
    assert main(["help", command]) == 0
    assert capsys.readouterr().out == told
    assert main([command, "-h"]) == 0
    short = capsys.readouterr().out
    assert len(re.findall(r"^  -", short, re.MULTILINE)) <= FEW
    assert (short == told) == ("Show the common options" not in told)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("plcae", "placer: there is no command 'plcae'; did you mean place?"),
        ("place", "placer place: give MODEL "),
        ("place m --batch_size 3", "there is no option --batch_size; did you mean --batch-size?"),
        (
            "place m -b 64 --devices T4",
            "there is no option -b; did you mean --baseline or --batch-size",
        ),
        ("place m --gpus 2", "there is no option --gpus; did you mean --devices?"),
        ("place m --device 2xT4", "there is no option --device; did you mean --devices?"),
        ("compare --help-me", "there is no option --help-me; did you mean --help?"),
        ("place m --devices T4 --objective latenc", "must be one of transfer, step-time"),
        ("place m x --devices T4", "there is one argument too many: 'x'"),
        ("place m --devices T4 --max-memory GPU:0=8", "8 bytes? Write the unit: 8GiB, or 8B"),
        ("place m --devices T4 --reserve 8+10%", "8 bytes? Write the unit: 8GiB, or 8B"),
        ("place m --devices T4 --fail-above GPU=8", "8 bytes? Write the unit: 8GiB, or 8B"),
        ("place m --fit auto --max-slowdown -5%", "must be a share such as 30% or 0.3, got '-5%'"),
        ("place m --devices T4 --max-slowdown", "needs a value, as in --max-slowdown 30%"),
        ("place m --devices -1xT4", "'-1xT4' asks for no device; write a count of 1 or more"),
        ("place m --devices T4 --seed -1", "must be an integer of 0 or more, got '-1'"),
        ("place m -q -v", "--verbose and --quiet exclude each other: leave out one of them"),
        ("solve p.json --workers 0", "--workers: must be a positive integer, got '0'"),
        ("simulate --devices T4 python a.py --epochs 1", "write -- before the command: -- python"),
        ("export p.json --shape x=1x2", "there is no option --shape (see placer export --help)"),
        ("--verison", "there is no option '--verison'; did you mean --version?"),
        ("simulate --devic T4 -- python a.py", "no option --devic; did you mean --devices?"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(line, told, capsys):
    """Near names, all that is missing at once, and the command whose help to read."""
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_file_gives_defaults_which_are_printed(pipeline, tmp_path, monkeypatch, capsys):
    """The command line comes before placer.toml, which comes before pyproject.toml; a file does
    not allow a model anything."""
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text('[tool.placer]\ndevices = "2xT4"\nbatch-size = 4\n')
    assert main(["place", "model", "--batch-size", "8", "-q"]) == 0
    assert capsys.readouterr().err == "placer: from pyproject.toml: --devices=2xT4\n"
    assert pipeline.calls[-1][1] == "2xT4"
    assert pipeline.calls[-1][2]["batch_size"] == 8
    text = 'devices = "1xT4"\nclear-devices = true\npin = {"a*" = "GPU:0"}\nfail-on = "offload"\n'
    Path("placer.toml").write_text(text)
    assert main(["place", "model"]) == 0
    assert pipeline.calls[-1][1] == "1xT4"
    assert pipeline.calls[-1][2]["pins"] == {"a*": "GPU:0"}
    assert pipeline.calls[-1][2]["clear_devices"]
    for wrong in ("allow-unsafe = true", "divices = '1xT4'"):
        Path("placer.toml").write_text(wrong)
        assert main(["place", "model", "--devices", "1xT4"]) == 2
    assert "did you mean devices?" in capsys.readouterr().err


@pytest.mark.parametrize(("when", "coloured"), [("always", True), ("never", False)])
def test_color_is_as_asked_for(pipeline, capsys, monkeypatch, when, coloured):
    """Also where stdout is no terminal, as in a CI log."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, "")  # the command changes both
    assert main(["place", "model", "--devices", "2xT4", "--color", when]) == 0
    assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_completion_knows_commands_and_options(capsys):
    """What bash and zsh read is written from the parser itself."""
    pytest.importorskip("shtab")
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "--max-memory" in script
        assert "--spill" not in script
    assert "place:'Choose a device for every op: few copies, within memory limits'" in script


@pytest.mark.parametrize(
    "line",
    [
        "apply model plan.json -o out --force",
        "apply model -o out plan.json --force",
        "apply -o out model --force plan.json",
        "apply --force -o out model plan.json",
    ],
)
def test_options_stand_before_between_and_after_the_arguments(line):
    found = build_parser().parse_args(line.split())
    assert (found.model, found.plan, found.output, found.force) == (
        *("model", "plan.json", "out"),
        True,
    )
