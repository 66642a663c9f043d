"""What ``placer auto`` decides, held against building every way; and the command."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
import tensorflow as tf
from jsonschema import Draft202012Validator
from long_tests import sometimes
from plans_by_hand import small_plan
from split_tables import export_training

import placer
from cost_models.byte_sizes import spell_bytes
from placer.__main__ import main
from placer.errors import NoSolutionError, PlacerError, UsageError
from placer.plan.plan import Plan
from placer.plan.request import read_options
from placer.plan.schemas import load_schema
from placer.questions.auto_programs import open_program
from placer.questions.auto_result import DOUBT_SECONDS
from placer.questions.auto_ways import AS_IT_IS, Ways
from placer.rendering.json_text import to_json
from placer.rendering.results import render_result
from placer.strategies.requests import MICRO_BATCHES, StrategyRequest

WORK = {"work_limit": 2, "time_limit": 60.0}
"""Searches that end alike every time."""

SLOW_GPU = """
[[device]]
name = "GPU:{number}"
type = "GPU"
memory = "{memory}"
peak_flops = {flops}
memory_bandwidth = 1e9
launch_seconds = 2e-6
"""


def cluster(folder, *, memory="1GiB", flops=(1e9, 1e9)):
    """A file that describes slow GPUs, on which a small model is worth dividing."""
    path = folder / "cluster.toml"
    rows = [SLOW_GPU.format(number=n, memory=memory, flops=each) for n, each in enumerate(flops)]
    host = SLOW_GPU.replace("GPU", "CPU").format(number=0, memory="64GiB", flops=1e8)
    path.write_text("".join([*rows, host]))
    return path


NOT_BUILT = (
    r"not tried: (cannot be faster than as-it-is \((at least|critical path) .+s.*\)|"
    r"would save at most [^()]+s( with nothing offloaded)?, below the accuracy of predictions)$"
)


def test_another_file_is_said_not_to_be_a_result(tmp_path):
    """By its schema, and not by the first field that it lacks."""
    small_plan().save(tmp_path / "plan.json")
    with pytest.raises(UsageError, match=r"not a result of auto: its schema is 'placer.plan/\d'"):
        placer.AutoResult.load(tmp_path / "plan.json")


@pytest.mark.slow
def test_what_fits_one_device_is_left_as_it_is(saved_model):
    """One accelerator, or a step too short to share: nothing is built, and nothing to change; of
    two it says what a process for each would answer, and that a batch of 1 gains nothing else."""
    for devices, size in (("1xT4", 32), ("2xT4", 32), ("2xT4", 1)):
        found = placer.auto(str(saved_model), devices, batch_size=size)
        assert found.changes_nothing
        assert [row.name for row in found.rows if row.step_seconds] == [AS_IT_IS]
        assert all(re.match(NOT_BUILT, row.note) for row in found.rows[1:])
        assert "It fits as it is: change nothing" in found.summary()
        # the host may be faster: place may offload, auto does not where all fits
        assert "with nothing offloaded" in found.rows[1].note
        assert "no accelerator" not in found.advice[0]  # quicker by less than predictions tell
        if devices == "2xT4":
            rate = 2 * size / found.row.step_seconds
            less = "replicas do not help a batch of 1; " * (size == 1)
            told = f"{less}one process per accelerator: {rate:,.0f} samples/s in total (2.00 times "
            assert found.advice[1].startswith(told)
        assert len(found.advice) == int(devices[0])
    with pytest.raises(UsageError, match="bind takes the Keras model"):
        found.bind(42)
    found = placer.auto(str(saved_model), "1xT4", batch_size=32, offload="never")
    assert "offloaded" not in found.rows[1].note
    found = placer.auto(str(saved_model), "1xT4", batch_size=32, margin=0)
    assert found.advice[0].startswith("no accelerator: everything on CPU:0 takes ")


@pytest.mark.slow
def test_a_training_step_from_a_file_is_called_one(tmp_path):
    """By what it computes: a file does not say that it trains."""
    export_training(tmp_path / "step.meta", "sgd")
    found = placer.auto(tmp_path / "step.meta", "1xGPU:8MiB", batch_size=8, **WORK)
    assert found.task == "training"
    assert "GraphDef: training, batches of 8, for throughput" in found.summary(width=120)


@pytest.mark.slow
def test_what_fits_no_card_gets_neither_replicas_nor_a_process_for_each(saved_model, tmp_path):
    """Both hold the whole model on every card: it is placed on several."""
    devices = cluster(tmp_path, memory="300KiB")
    settings = {"batch_size": 64, "offload": "never", **WORK}
    found = placer.auto(str(saved_model), devices, **settings)
    assert {"GPU:0", "GPU:1"} <= set(found.plan.placement.values())
    assert not found.chosen.startswith("replicas")
    assert not next(row for row in found.rows if row.name == "replicas:2").fits
    assert "a process for each" not in " ".join(found.advice)


@pytest.mark.slow
def test_where_nothing_fits_the_plan_is_that_of_the_nearest_row():
    """Which the first sentence names: the figures of a page are its own."""
    weights = [tf.Variable(tf.zeros([256, 256])) for _ in range(6)]

    @tf.function(input_signature=[tf.TensorSpec([None, 256], name="x")])
    def layers(x):
        for weight in weights:
            x = tf.nn.relu(x @ weight)
        return x

    found = placer.auto(layers, "2xGPU:1200KiB", batch_size=64, offload="never", **WORK)
    assert found.row is None
    assert found.nearest.name == "one-placement"
    assert found.plan.over_bytes == found.nearest.over_bytes
    assert {"GPU:0", "GPU:1"} <= found.plan.over_bytes.keys()
    assert "The nearest, one-placement, " in found.summary(width=200)


@pytest.mark.slow
def test_where_nothing_fits_the_first_sentence_names_a_fix(saved_model, tmp_path):
    """Each line of advice begins with a change with which the way that it names fits."""
    devices = cluster(tmp_path, memory="300KiB", flops=[1e9])
    settings = {"batch_size": 64, **WORK}
    found = placer.auto(saved_model, devices, offload="never", **settings)
    assert found.row is None
    first = " ".join(found.summary(width=120).partition("\n\n")[0].split())
    assert re.fullmatch(
        f"No strategy fits {devices}. The nearest, as-it-is, does not fit: GPU:0 requires .+, .+ "
        r"more than its limit of 300 KiB\. "
        r"Would fit \(tried\): offload='auto' \(one-placement, .+ a step\).",
        first,
    )
    with pytest.raises(NoSolutionError, match=re.escape(first[1:].partition("Would")[0])):
        found.require_row()
    changes = [line.partition(": ") for line in found.advice]
    assert [change.split()[:2] for change, _, _ in changes] == [
        ["--offload", "auto"],
        ["--max-memory", f"GPU:0={spell_bytes(found.rows[0].required_bytes['GPU:0'])}"],
    ]
    (_, more), *_ = [change.split() for change, _, way in changes if way == AS_IT_IS]
    for changed in ({"offload": "auto"}, {"offload": "never", "max_memory": more}):
        assert placer.auto(saved_model, devices, **settings, **changed).row


@pytest.mark.slow
def test_where_nothing_else_helps_faster_devices_are_named(saved_model, tmp_path):
    """With the gain that the same request has on devices of twice the rates."""
    settings = {"batch_size": 1024, **WORK}
    slow = cluster(tmp_path, flops=[1e9])
    found = placer.auto(str(saved_model), slow, **settings)
    slow.write_text(slow.read_text().replace("= 1000000000.0", "= 2e9").replace("= 1e9", "= 2e9"))
    fast = placer.auto(str(saved_model), slow, **settings)
    gain = found.row.step_seconds / fast.row.step_seconds
    (line,) = found.advice
    told = f"as-it-is would then be {gain:.2f} times as fast"
    assert line == f"accelerators 2 times as fast: {told}"
    assert gain > 1.5


@pytest.mark.slow
def test_strategies_are_the_rows_of_auto(saved_model, tmp_path, monkeypatch, capsys):
    """The same ways and figures in Python and by the command as it was called before, which writes
    no program; ``place`` builds each divided one as it was shown."""
    monkeypatch.chdir(tmp_path)
    devices = cluster(tmp_path)
    found = placer.auto(str(saved_model), devices, batch_size=1024, **WORK)
    rows = found.rows
    divided = [row for row in rows if ":" in row.name and row.step_seconds]
    assert divided
    assert placer.compare_strategies(saved_model, devices, batch_size=1024, **WORK).rows == rows
    for row in divided:
        plan = placer.place(saved_model, devices, batch_size=1024, strategy=row.name, **WORK)
        assert plan.metrics.step_seconds == row.step_seconds
        assert plan.required_bytes == row.required_bytes
        assert found.with_strategy(row.name).plan.placement == plan.placement
    with pytest.raises(UsageError, match=r"for 'pipeline:3'; there are as-it-is.*builds more"):
        found.with_strategy("pipeline:3")
    limits = ["--work-limit", "2", "--time-limit", "60"]
    asked = ["strategies", str(saved_model), "--devices", str(devices), "--batch-size", "1024"]
    assert main([*asked, *limits, "--format", "json"]) == 0
    written = json.loads(capsys.readouterr().out)["rows"]
    assert [row["step_seconds"] for row in written] == [row.step_seconds for row in rows]
    assert {*tmp_path.iterdir()} == {devices}


CASES = [
    (64, "1GiB", (1e9, 1e9), 0.1),
    (1024, "1GiB", (1e9, 1e9), 0.1),
    (1024, "1GiB", (1e9, 3e9), 0.0),
    (4096, "4MiB", (1e9, 1e9), 0.0),
    (4096, "4MiB", (1e9,), 0.1),
    (256, "400KiB", (1e9, 1e9), 0.0),
    (4096, "8MiB", (1e9, 1e9, 1e9, 1e9), 0.1),
]
ALWAYS = CASES[2:5:2]
"""Parts in proportion to the speeds, too little memory for one device; the others with
PLACER_LONG_TESTS."""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "memory", "flops", "margin"), sometimes(CASES, ALWAYS))
def test_no_way_that_is_left_out_is_faster(saved_model, tmp_path, size, memory, flops, margin):
    """Every way is built, whatever it cannot beat: without a margin the choice is within 3% of the
    fastest of them, with one within the margin; and no way beats what it was said not to."""
    devices = cluster(tmp_path, memory=memory, flops=flops)
    program = open_program(
        str(saved_model), devices, read_options({"batch_size": size, **WORK}), None
    )
    ways = Ways(program, latency=False)
    steps = {}
    for way in ways:
        try:
            built = way.build()
        except PlacerError:
            continue
        if not built.plan.placement:
            continue
        least = max(way.least_seconds, way.tighter()[0] if way.tighter else 0.0)
        assert built.step_seconds >= 0.999 * least, way.name
        if built.fits:
            steps[way.name] = built.step_seconds
    for pieces in (2, 4):
        asked = StrategyRequest(kind=MICRO_BATCHES, parts=pieces)
        built = program.divided(asked, program.cluster)
        if built.fits:
            steps[str(asked)] = built.step_seconds
    found = placer.auto(str(saved_model), devices, batch_size=size, margin=margin, **WORK)
    assert (found.row is None) == (not steps)
    if steps:
        best = min(steps.values())
        allowed = max(1.1 * best, best + DOUBT_SECONDS) if margin else 1.03 * best
        assert found.row.step_seconds <= allowed, (found.summary(), steps)


@pytest.mark.slow
def test_a_pipeline_has_as_many_pieces_as_pay(saved_model, tmp_path):
    """More than four a stage where that is faster; the fewest where none can win."""
    wanted = read_options({"batch_size": 4096, "work_limit": 2, "time_limit": 60.0})
    program = open_program(str(saved_model), cluster(tmp_path), wanted, None)
    ways = Ways(program, latency=False)
    way = next(way for way in ways if way.name == "pipeline:8")
    found = way.build()
    ways.to_beat = 0.5 * found.step_seconds
    fewest = way.build()
    assert (found.name, fewest.name) == ("pipeline:16", "pipeline:4")
    assert found.plan.request["strategy"] == found.name
    assert found.step_seconds < fewest.step_seconds


@pytest.mark.slow
def test_a_pipeline_has_fewer_pieces_where_launches_are_much_of_a_step(saved_model, tmp_path):
    """If the usual number does not beat the fastest way, half of it is tried."""
    wanted = read_options({"batch_size": 4096, "work_limit": 2, "time_limit": 60.0})
    devices = cluster(tmp_path)
    devices.write_text(devices.read_text().replace("= 2e-6", "= 2e-2"))
    program = open_program(str(saved_model), devices, wanted, None)
    ways = Ways(program, latency=False)
    way = next(way for way in ways if way.name == "pipeline:8")
    usual = way.build()
    ways.to_beat = usual.step_seconds
    fewer = way.build()
    assert (usual.name, fewer.name) == ("pipeline:8", "pipeline:4")
    assert way.tighter()[0] <= fewer.step_seconds < usual.step_seconds


@pytest.mark.slow
def test_what_is_divided_fits_and_says_why_the_rest_does_not(saved_model, tmp_path):
    """Two slow GPUs: replicas, and the file that is written runs as planned."""
    devices, out = cluster(tmp_path), tmp_path / "placed"
    words = ["auto", str(saved_model), "--devices", str(devices), "--batch-size", "1024"]
    assert main([*words, "-o", str(out)]) == 0
    assert (out / "saved_model.pb").is_file()
    plan = Plan.load(f"{out}.plan.json")
    assert plan.request["strategy"] == "replicas:2"
    assert main([*words, "-o", str(out)]) == 2  # it is there


@pytest.mark.slow
def test_the_json_fits_its_schema_and_csv_has_a_row_per_way(saved_model, capsys):
    """What ``--format`` prints."""
    words = ["auto", str(saved_model), "--devices", "1xGPU:100KiB", "--batch-size", "8"]
    assert main([*words, "--offload", "never", "--format", "json"]) == 6
    out, told = capsys.readouterr()
    found = json.loads(out)
    assert "no strategy fits 1xGPU:100KiB. The nearest, as-it-is, does not fit: " in told
    assert found["advice"][0].partition(":")[0] in told  # what to do next
    Draft202012Validator(load_schema("auto")).validate(found)
    assert found["chosen"] is None
    assert "does not fit" in found["rows"][0]["note"]
    assert [row["fits"] for row in found["rows"]] == [False] * len(found["rows"])
    assert main([*words, "--offload", "never"]) == 6
    out, told = capsys.readouterr()
    assert out.startswith("No strategy fits 1xGPU:100KiB. ")
    assert told.endswith("placer: no strategy fits\n")  # and not the first line once more
    assert main([*words, "--offload", "never", "--format", "csv"]) == 6
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [row["fits"] for row in rows] == ["False"] * len(found["rows"])


@pytest.mark.slow
def test_whether_a_way_fits_that_was_not_tried_is_not_known(saved_model):
    """Null in JSON, empty in CSV, "not built" on the page."""
    found = placer.auto(str(saved_model), "2xT4", batch_size=32)
    data = json.loads(to_json(found))
    Draft202012Validator(load_schema("auto")).validate(data)
    rows = [*csv.DictReader(io.StringIO(render_result(found, "csv", width=80)))]
    untried = [row.step_seconds is None for row in found.rows]
    assert any(untried)
    assert [row["fits"] is None for row in data["rows"]] == untried
    assert [row["fits"] == "" for row in rows] == untried
    assert render_result(found, "html", width=80).count("<td>not built") == sum(untried)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"pins": {"y": "GPU:1"}}, {}])
def test_what_may_not_be_on_the_first_accelerator_is_placed_on_several(tmp_path, asked):
    """By a device string or by a pin: the row that changes nothing says so, the others are tried;
    a device that no device string may name is refused as ever."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
        with tf.device(None if asked else "/device:GPU:1"):
            tf.matmul(x, tf.ones((64, 64)), name="y")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    found = placer.auto(path, "2xT4", batch_size=32, outputs=("y",), **asked, **WORK)
    first, second = found.rows[:2]
    assert first.note.startswith("not all ops may be on GPU:0: ")
    assert "there is no device" not in first.note  # among the two there is
    assert (first.step_seconds, first.fits) == (None, None)
    assert (second.name, found.chosen, found.plan.placement["y"]) == (
        *("one-placement", "one-placement"),
        "GPU:1",
    )
    with pytest.raises(UsageError, match="GPU:1"):
        placer.auto(path, "1xT4", batch_size=32, outputs=("y",), **asked, **WORK)


def test_for_memory_the_simplest_way_that_fits_is_taken(saved_model, tmp_path):
    """Though others are faster."""
    found = placer.auto(str(saved_model), cluster(tmp_path), batch_size=1024, for_="memory")
    assert found.changes_nothing
    assert all(row.note == "not required: a simpler strategy fits" for row in found.rows[1:])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"for_": "speed"}, "throughput, latency, memory"),
        ({"margin": 1.5}, "margin"),
        ({"strategy": "replicas"}, "auto chooses"),
        ({"batch": 3}, "no option 'batch'"),
        ({"data": 1}, "Keras models"),
    ],
)
def test_wrong_requests_are_said(saved_model, settings, told):
    """Before any work."""
    with pytest.raises(UsageError, match=told):
        placer.auto(str(saved_model), "2xT4", batch_size=8, **settings)


def test_data_does_not_stand_for_a_batch_size():
    """The message says what data sets, and asks for the rest."""
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    with pytest.raises(UsageError, match="give batch_size, since data sets the other dimensions"):
        placer.auto(model, "2xT4", data=([[1.0] * 4], [[1.0] * 2]))
    with pytest.raises(UsageError, match=r"give batch_size$"):
        placer.auto(model, "2xT4")


def test_what_takes_no_time_is_not_asked_to_be_faster(tmp_path):
    """Constants on the host alone: no device or batch makes more of them in a second."""
    with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
        tf.constant([1.0, 2.0], name="c")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    found = placer.auto(tmp_path / "graph.pb", "2xT4", outputs=("c",), time_limit=1.0)
    assert found.row is not None
    assert found.advice == ()


def test_a_program_without_a_batch_has_fewer_ways(saved_model: Path):
    """Its size is in its shapes; nothing is divided then."""
    found = placer.auto(str(saved_model), "2xT4", shapes={"x": (16, 64)})
    assert {row.name for row in found.rows} == {AS_IT_IS, "one-placement"}
    assert found.row is not None
    assert found.row.samples_per_second is None
