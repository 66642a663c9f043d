"""What is wrong with a request or a file is one message with what to do, and the right exit code.

The process that reads models is left out (``tests/extraction/test_extractor.py`` has it): its
work is done here, so that each case takes no second.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from placer.__main__ import main

NODES = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: 2 } dim { size: 2 } } } } }
node { name: "a" op: "MatMul" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "y" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
"""
CALL = """
node { name: "c" op: "PartitionedCall" input: "x" attr { key: "f" value { func { name: "f" } } }
       attr { key: "Tin" value { list { type: DT_FLOAT } } }
       attr { key: "Tout" value { list { type: DT_FLOAT } } } }
"""
STRINGS = """
node { name: "words" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
       attr { key: "value"
              value { tensor { dtype: DT_STRING string_val: "w" tensor_shape { } } } } }
node { name: "upper" op: "StringUpper" input: "words" }
"""


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Lets this process do what the reading process does."""
    pytest.importorskip("tensorflow")
    from placer.extraction.process import child_process, reading_tasks
    from placer.processes import Ending, Outcome

    def answer(task, request, _, told=None):
        found = getattr(reading_tasks, task)(request, told or (lambda _: None))
        return Outcome(ending=Ending.ANSWERED, answer=found)

    monkeypatch.setattr(reading_tasks, "limit_memory", lambda *_: None)
    monkeypatch.setattr(child_process, "_ask", answer)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a good model of three ops."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.pbtxt").write_text(NODES)
    return tmp_path


def fails(capsys, argv, code, *told):
    """``argv`` exits with ``code``, says one line that has all of ``told``, and prints nothing."""
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert err.startswith("placer: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert [text for text in told if text not in err] == []
    assert out == ""


FILES = {
    "empty": (b"", "is empty (0 bytes)"),
    "no ops": (b"\x22\x03\x08\xe8\x07", "or it has no ops"),
    "text": (b"Dear reader,\nthis is no graph.\n", "is not a model that can be read"),
    "random": (random.Random(0).randbytes(5000), "is not a model that can be read"),
    "enormous length": (
        b"\x0a\xff\xff\xff\xff\x07" + b"x" * 100,
        "is not a model that can be read",
    ),
    "cut text": (NODES.encode()[:150], "is not a model that can be read"),
    "cycle": (NODES.replace('"x" input: "x"', '"y" input: "x"'), "cycle that is not a v1 loop: "),
    "self": (NODES.replace('"x" input: "x"', '"a" input: "x"'), "a -> a"),
    "duplicate": (NODES.replace('name: "y"', 'name: "a"'), "two ops of the graph are called 'a'"),
    "dangling": (NODES.replace('input: "a"', 'input: "b"'), "something reads 'b', which is not"),
    "no such output": (NODES.replace('input: "a"', 'input: "a:3"'), "'a'"),
    "unknown function": (NODES + CALL, "op 'c' calls function 'f', which is not in the file"),
    "too few inputs": (NODES.replace('input: "x" input: "x"', 'input: "x"'), "has 1 inputs"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_damaged_file_is_refused(folder, capsys, case):
    """Whatever is wrong inside, the exit code is 3 and the reason is true."""
    content, reason = FILES[case]
    data = content.encode() if isinstance(content, str) else content
    (folder / "model.pb").write_bytes(data)
    fails(capsys, ["report", "model.pb"], 3, reason)


def test_a_file_of_another_tool_is_named(folder, capsys):
    """By its name, also where it is an archive as Keras files are; and a plan is called one."""
    (folder / "model.pt").write_bytes(b"PK\x03\x04")
    (folder / "model.onnx").write_bytes(b"\x08\x07")
    (folder / "plan.json").write_text('{"rows": "' + 5000 * "-" + '", "schema": "placer.plan/1"}')
    fails(capsys, ["report", "model.pt"], 3, "seems to be a PyTorch file", "or Keras file")
    fails(capsys, ["report", "model.onnx"], 3, "seems to be an ONNX model")
    fails(capsys, ["report", "plan.json"], 3, "seems to be a plan of placer")


def test_a_truncated_binary_file_is_refused(folder, capsys):
    """Half a GraphDef is none."""
    from google.protobuf import text_format
    from tensorflow.core.framework import graph_pb2

    content = text_format.Parse(NODES, graph_pb2.GraphDef()).SerializeToString()
    (folder / "half.pb").write_bytes(content[: len(content) // 2])
    fails(capsys, ["report", "half.pb"], 3, "is not a model that can be read")


def test_a_pipe_is_no_model(folder, capsys):
    """It could be read only once, and by one process."""
    os.mkfifo(folder / "pipe.pb")
    fails(capsys, ["report", "pipe.pb"], 3, "a model is not read from a pipe")


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["missing.pb"], 3, "there is no file or folder 'missing.pb'"),
        (["empty"], 3, "'empty' is a folder without saved_model.pb"),
        (["versions"], 3, "there is one in '1'"),
        (["good.pbtxt", "--outputs", "b"], 2, "there is no output or op 'b'"),
        (
            ["good.pbtxt", "--outputs", "a:7"],
            2,
            "there is no output 'a:7'; the outputs of 'a' are a:0",
        ),
        (["good.pbtxt", "--signature", "f"], 2, "which has no signature 'f'"),
        (["good.pbtxt", "--tag-set", "train"], 2, "which has no tag set 'train'"),
        (["good.pbtxt", "--shape", "b:3"], 2, "there is no input or op 'b' to set"),
        (
            ["good.pbtxt", "--shape", "x:3x2"],
            2,
            "[3,2] does not fit 'x', which is declared as [2,2]",
        ),
    ],
)
def test_a_wrong_choice_says_what_exists(folder, capsys, argv, code, told):
    """Paths, outputs, signatures and shapes that are not there."""
    (folder / "empty").mkdir()
    (folder / "versions" / "1").mkdir(parents=True)
    (folder / "versions" / "1" / "saved_model.pb").touch()
    fails(capsys, ["report", *argv], code, told)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--pin", "z*=GPU:0"], "name in the graph of 5 ops matches 'z*'"),
        (["--pin", "a=GPU:7"], "there is no device GPU:7 among GPU:0, GPU:1, CPU:0"),
        (["--pin", "a=banana"], "'banana' is not a device name; write GPU:0"),
        (["--pin", "upper=GPU:0"], "TensorFlow has no GPU kernel for StringUpper on string"),
        (["--pin-type", "String*=GPU:1"], "no op that matches can run there"),
        (["--keep-together", "z*"], "no op of the 5 in the graph matches (* also matches /)"),
        (["--max-memory", "GPU:0=0"], "the memory must be more than zero"),
        (["--max-memory", "GPU:0=8Gb"], "reads as bits; write GB or GiB"),
        (["--max-memory", "GPU:0=8XB"], "unknown unit 'XB'"),
        (["--max-memory", "GPU:9=8GB"], "is given for GPU:9, which is not among the devices"),
        (["--reserve", "200%"], "leaves nothing of a limit"),
        (["-o", "good.pbtxt"], "exists already: choose another name or add --force"),
        (["-o", "nowhere/plan.json"], "the folder nowhere does not exist"),
    ],
)
def test_a_wrong_request_is_usage(folder, capsys, argv, told):
    """Devices, pins, caps and output files."""
    (folder / "model.pbtxt").write_text(NODES + STRINGS)
    fails(capsys, ["place", "model.pbtxt", "--devices", "2xT4", *argv], 2, told)
    assert sorted(path.name for path in folder.iterdir()) == ["good.pbtxt", "model.pbtxt"]


def test_an_unknown_device_model_is_usage(folder, capsys):
    """The nearest preset is proposed."""
    argv = ["place", "good.pbtxt", "--devices", "2xT5"]
    fails(capsys, argv, 2, "unknown device 'T5'; did you mean T4")


def test_a_model_that_is_read_is_not_replaced(folder, capsys):
    """``--force`` is for what was written before, and not for the model or the plan."""
    before = (folder / "good.pbtxt").read_bytes()
    told = "good.pbtxt is the input, so it cannot be the output: choose another name"
    for command in ("place", "report"):
        argv = [command, "good.pbtxt", "--devices", "2xT4", "-o", "good.pbtxt", "--force"]
        fails(capsys, argv, 2, told)
    fails(capsys, ["apply", "good.pbtxt", "--clear", "-o", "good.pbtxt", "--force"], 2, told)
    assert (folder / "good.pbtxt").read_bytes() == before


def test_a_folder_that_may_not_be_written(folder, capsys, monkeypatch):
    """Found out before any work, or when the file is made."""
    argv = ["place", "good.pbtxt", "--devices", "2xT4", "-o", "locked/plan.json"]
    (folder / "locked").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        fails(capsys, argv, 2, "may not be written: choose another")
    if os.path.isdir("/proc"):
        argv[-1] = "/proc/plan.json"
        fails(capsys, argv, 2, "the folder of /proc/plan.json cannot be written")


PLANS = {
    "missing": (None, "cannot read the plan plan.json"),
    "broken": ("{", "broken JSON at line 1, column 2"),
    "none": ("[]", 'it has no "schema": "placer.plan/1"'),
    "newer": ('{"schema": "placer.plan/2", "tool_version": "9.0"}', "written by placer 9.0"),
    "damaged": ('{"schema": "placer.plan/1"}', "does not fit the schema placer.plan/1"),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_is_none(folder, capsys, case):
    """apply and verify say what is wrong with a plan, and write nothing."""
    content, told = PLANS[case]
    if content is not None:
        (folder / "plan.json").write_text(content)
    fails(capsys, ["apply", "good.pbtxt", "plan.json", "-o", "out.pb"], 2, told)
    fails(capsys, ["verify", "good.pbtxt", "plan.json"], 2, told)
    assert not (folder / "out.pb").exists()


def test_a_plan_of_another_model(folder, capsys):
    """Fingerprints are compared before anything is written or run."""
    argv = ["place", "good.pbtxt", "--devices", "2xT4", "-o", "plan.json", "-q"]
    assert main([*argv, "--pin", "a=GPU:1"]) == 0
    assert json.loads((folder / "plan.json").read_text())["placement"]["a"] == "GPU:1"
    (folder / "other.pbtxt").write_text(NODES.replace('"Neg"', '"Abs"'))
    capsys.readouterr()
    told = "the plan was made for another program: "
    fails(capsys, ["apply", "other.pbtxt", "plan.json", "-o", "out.pb"], 2, told)
    fails(capsys, ["verify", "other.pbtxt", "plan.json"], 2, told)
    assert not (folder / "out.pb").exists()
