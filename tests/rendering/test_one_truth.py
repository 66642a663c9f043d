"""Ten plans on every surface: the same figure wherever it stands."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import networkx
import pytest
from split_tables import export_recommender
from verifications_by_hand import small_verification

import placer
from cost_models.byte_sizes import AMPLE_BYTES, format_bytes
from cost_models.devices import Link
from placer.application.verifying.verification_result import DeviceMemory, MemoryRehearsal
from placer.commands.gates import Gates, check_plan
from placer.commands.place import require_placement
from placer.errors import InfeasibleError, NoSolutionError
from placer.front_words import in_front_words
from placer.pipeline.preparation import on_accelerators, prepare
from placer.plan.plan import Plan
from placer.plan.request import Options
from placer.prediction.predicted_step import KINDS as STEP_KINDS
from placer.problem.limits import fullest, limit_words
from placer.problem.placement_costs import message_bytes
from placer.questions.comparison import DEFAULT, compare_workload
from placer.questions.difference import diff_plans
from placer.questions.saved_plans import with_step
from placer.rendering.exports.graphs import graphml
from placer.rendering.exports.trace import trace_json
from placer.rendering.quantities import format_seconds, share_of_cap
from placer.rendering.results import render_result
from placer.rendering.text.answers import model_line, plan_answer

QUICK = {"time_limit": 5.0, "work_limit": 1}
RESIDENT = STEP_KINDS[: STEP_KINDS.index("activation")]

KINDS = (
    *("inference", "training", "offloaded", "split tables", "infeasible"),
    *("two hosts", "micro-batches", "replicas", "fit", "unknown sizes"),
)

HOSTS = "".join(
    f'[[device]]\nname = "/job:worker/task:{task}/device:{name}:0"\n'
    f'type = "{name}"\nmemory = "{size}"\n'
    for task in range(2)
    for name, size in (("GPU", "2MiB"), ("CPU", "1GiB"))
)


@pytest.fixture(scope="module")
def programs():
    """Programs of a few ops, by what they do."""
    import tensorflow as tf

    weights = [tf.Variable(tf.zeros([256, 256]), name=f"w{i}") for i in range(4)]

    def layers(x):
        for weight in weights:
            x = tf.nn.relu(x @ weight)
        return x

    @tf.function(input_signature=[tf.TensorSpec([None, 256], name="x")])
    def infer(x):
        return layers(x)

    @tf.function(input_signature=[tf.TensorSpec([64, 256], name="x")])
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layers(x) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def words(texts):
        long = tf.strings.split(texts).to_tensor()
        return layers(tf.zeros([8, 256])), tf.strings.join([texts, texts]), tf.strings.length(long)

    infer.kept = train.kept = words.kept = weights
    return {"infer": infer, "train": train, "words": words}


@pytest.fixture(scope="module")
def requests(programs, tmp_path_factory) -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """What is asked for each kind of plan: program, devices, options."""
    folder = tmp_path_factory.mktemp("truth")
    export_recommender(folder / "recommender")
    (folder / "hosts.toml").write_text(HOSTS)
    asked = {
        "inference": ("infer", "2xGPU:1MiB", {"batch_size": 64, "offload": "never"}),
        "training": ("train", "2xGPU:3MiB", {}),
        "offloaded": ("infer", "1xGPU:1MiB", {"batch_size": 64}),
        "infeasible": ("infer", "1xGPU:1MiB", {"batch_size": 64, "offload": "never"}),
        "two hosts": ("infer", folder / "hosts.toml", {"batch_size": 64}),
        "micro-batches": ("infer", "1xGPU:8MiB", {"batch_size": 64, "strategy": "micro-batches:2"}),
        "replicas": ("infer", "2xGPU:8MiB", {"batch_size": 64, "strategy": "replicas:2"}),
        "fit": ("train", "1xGPU:3MiB", {"fit": "auto"}),
        "unknown sizes": ("words", "1xGPU:8MiB", {"batch_size": 8}),
        "split tables": ("tables", "2xGPU:8MiB", {"batch_size": 8, "split_tables": "users=2"}),
    }
    known = {**programs, "tables": folder / "recommender"}
    return {
        kind: (known[name], devices, {**QUICK, **options})
        for kind, (name, devices, options) in asked.items()
    }


@pytest.fixture(scope="module")
def plans(requests) -> dict[str, Plan]:
    """One plan of each kind."""
    return {
        kind: placer.place(source, devices, **options)
        for kind, (source, devices, options) in requests.items()
    }


def cells(text: str, number: int) -> list[str]:
    """A row of the table of devices."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(r"(\| )?Device ", line)) + 2
    return [cell.strip(" |") for cell in re.split(r"  +| \| ", lines[first + number])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_the_same_wherever_it_stands(plans, kind):
    """Required memory, its share of the limit, and what a step sends: text of two widths, Markdown,
    JSON, CSV, the page, the difference to another plan; the first sentence is one everywhere."""
    plan = plans[kind]
    data = json.loads(plan.to_json())
    texts = [render_result(plan, "text", width=width) for width in (80, 200)]
    page, markdown = (
        render_result(plan, "html", width=80),
        render_result(plan, "markdown", width=80),
    )
    for text in texts:
        assert " ".join(text.partition("\n\n")[0].split()) == in_front_words(plan_answer(plan))
    assert dict(csv.reader(io.StringIO(render_result(plan, "csv", width=80)))).items() >= (
        plan.placement.items()
    )
    for part in model_line(plan).split(" · "):  # format, strategy, split tables, ops, ...
        assert f"<span>{part}</span>" in page
    for number, (device, row) in enumerate(zip(plan.devices, data["devices"], strict=True)):
        required = device.required_bytes
        assert row["required_bytes"] == required == plan.required_bytes.get(device.name)
        if required is None:
            continue
        share = share_of_cap(required, device.usable_bytes)
        for text in (*texts, markdown):
            assert {format_bytes(required), share} <= set(cells(text, number)), text
        key = f'data-key="plan.devices.{number}.required_bytes" data-value="{required}"'
        assert f"{key}>{format_bytes(required)}<" in page
        assert share == "-" or f">{share}</span>" in page
    if not plan.placement:
        assert kind == "infeasible"
        assert "longer search" not in texts[1]
        return
    told = " ".join(row.message for row in plan.warnings)
    for name in plan.over_bytes:
        assert f"{name} requires {format_bytes(plan.required_bytes[name])}" in told
    sent = sum(t.bytes or 0 for t in plan.transfers if t.kind in ("data", "feed", "fetch"))
    assert data["metrics"]["sent_bytes"] == plan.metrics.sent_bytes == sent
    if kind == "micro-batches":  # what is on the host, the accelerators could not have
        assert not any(row.spilled_bytes for row in plan.devices)
    told = f"sends {format_bytes(sent)} a step" if plan.fits else "Not known to fit"
    assert told in plan_answer(plan)
    assert f'data-key="plan.metrics.sent_bytes" data-value="{sent}">{format_bytes(sent)}<' in page
    empty = replace(plan, metrics=replace(plan.metrics, sent_bytes=sent + 7))
    figures = {c.name: (c.unit, c.before, c.after) for c in diff_plans(plan, empty).figures}
    assert figures["sent_bytes"] == ("bytes", sent, sent + 7)
    for name, required in plan.required_bytes.items():
        assert figures[f"required {name}"] == ("bytes", required, required)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inference", "training", "offloaded", "two hosts"])
def test_a_cost_is_the_sum_of_its_parts(plans, kind):
    """To the byte in JSON, and each is printed: messages and slower work are rounded up."""
    plan = plans[kind]
    data, text = json.loads(plan.to_json()), " ".join(plan.summary(width=200).split())
    solver, metrics = data["solver"], data["metrics"]
    link = Link(bandwidth=solver["link_bandwidth"], latency=solver["link_latency_seconds"])
    parts = metrics["messages"] * message_bytes(link), metrics["slower_bytes"]
    assert solver["value"] == metrics["sent_bytes"] + sum(parts)
    for size, words in zip(parts, ("the latency of", r"the extra \S+ \S+ of ops on"), strict=True):
        assert len(re.findall(f"{format_bytes(size)} for {words}", text)) == bool(size)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "infeasible"])
def test_questions_about_a_plan_have_its_figures(plans, requests, kind):
    """Explained, exported to a trace and a graph, and as the first row of a comparison."""
    plan, (source, devices, options) = plans[kind], requests[kind]
    # explain
    found = placer.explain(plan, source=source)
    first = " ".join(found.summary(width=80).partition("\n\n")[0].split())
    assert first == in_front_words(plan_answer(plan))
    for device in plan.devices:
        ops = list(plan.placement.values()).count(device.name)
        assert found.ops[device.name].get("spilled", 0) == device.spilled_ops
        assert sum(found.ops[device.name].values()) == ops
        assert sum(found.resident_bytes[device.name].values()) == device.resident_bytes
        assert device.needs is None or max(device.needs.values()) == device.required_bytes
    assert {row for row, _, _ in found.transfers} <= set(plan.transfers)
    # export
    drawn = with_step(plan, source)
    assert drawn.warnings == plan.warnings
    step = drawn.step()
    events = json.loads(trace_json(step))["traceEvents"]
    rows = [e for e in events if e["ph"] == "X" and e["cat"] in ("data", "feed", "fetch")]
    sent = plan.metrics.sent_bytes
    assert sum(e["args"]["bytes"] or 0 for e in rows) == sent
    ends = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert ends == pytest.approx(1e6 * plan.metrics.step_seconds, abs=1e-2)
    for number, device in enumerate(plan.devices, start=1):
        held = [e for e in events if e["ph"] == "C" and e["pid"] == number]
        peak = max((sum(e["args"].values()) for e in held), default=0)
        assert {e["args"].get("unused", 0) for e in held} <= {step.unused_bytes[number - 1]}
        assert device.peak_low_bytes <= peak <= device.peak_memory_bytes
        kept = [b.bytes for b in step.buffers if b.device == number - 1 and b.kind in RESIDENT]
        unused = found.resident_bytes[device.name].get("unused", 0)
        assert unused == step.unused_bytes[number - 1]
        assert sum(kept) + unused == device.resident_bytes  # the page draws both
    edges = networkx.parse_graphml(graphml(drawn.step(), 10_000)).edges(data="transfer_bytes")
    crossing = {row.bytes for row in plan.transfers if row.kind in ("data", "feed")}
    assert {size for _, _, size in edges if size} == {size for size in crossing if size}
    # compare
    wanted = Options(**on_accelerators(options))
    compared = compare_workload(prepare(source, devices, wanted), None, [DEFAULT])
    ours, other = compared.strategies[0], compared.plan
    assert (ours.required_bytes, ours.sent_bytes) == (
        other.required_bytes,
        other.metrics.sent_bytes,
    )
    text, table = (render_result(compared, form, width=250) for form in ("text", "csv"))
    first = next(csv.DictReader(io.StringIO(table)))
    line = next(line for line in text.splitlines() if line.startswith("placer  "))
    assert int(first["sent_bytes"]) == ours.sent_bytes
    assert format_bytes(ours.sent_bytes) in line
    for name, required in ours.required_bytes.items():
        assert int(first[f"required_bytes {name}"]) == required
        assert share_of_cap(required, compared.caps[name]) in line
    if "fit" not in options:
        assert (other.required_bytes, other.metrics) == (plan.required_bytes, plan.metrics)


@pytest.mark.slow
def test_a_gate_and_a_cap_say_the_same(plans):
    """Of every device of every plan, at what it requires, a byte less, and half of it."""
    asked = 0
    for plan in plans.values():
        for number, device in enumerate(plan.devices):
            for limit in {(size := device.required_bytes or 0), max(size - 1, 0), size // 2}:
                rows = [*plan.devices]
                rows[number] = replace(device, usable_bytes=limit)
                over = replace(plan, devices=tuple(rows)).over_bytes.keys() & {device.name}
                gate = check_plan(plan, Gates({device.name: limit}, None, 0.0))
                assert bool(over) == bool(gate), (device, limit)
                asked += 1
    assert asked >= 50


@pytest.mark.slow
def test_rows_of_other_questions_are_those_of_their_plan(programs):
    """The sentence of a comparison, the chosen row of auto, a row of a sweep."""
    options = {**QUICK, "batch_size": 64, "devices": "2xGPU:1MiB"}
    compared = placer.compare(programs["infer"], **options)
    sent = compared.plan.metrics.sent_bytes
    assert f"placer sends {format_bytes(sent)} a step" in compared.summary()
    one = placer.compare(programs["infer"], **{**options, "devices": "1xGPU:1MiB"}, offload="never")
    assert one.plan.conflict.fixes == ()  # none is tried
    for name, devices in (("infer", "2xGPU:1MiB"), ("train", "2xGPU:3MiB")):
        chosen = placer.auto(programs[name], **{**options, "devices": devices})
        row, plan = chosen.row, chosen.plan
        assert (row.required_bytes, row.step_seconds) == (
            plan.required_bytes,
            plan.metrics.step_seconds,
        )
        told = " ".join(chosen.summary(width=200).split())
        assert f"{format_seconds(plan.metrics.step_seconds)} a step" in told
        kept = next(
            line
            for line in csv.DictReader(io.StringIO(render_result(chosen, "csv", width=80)))
            if line["name"] == chosen.chosen
        )
        assert float(kept["step_seconds"]) == row.step_seconds
        for device, required in plan.required_bytes.items():
            share = share_of_cap(required, chosen.caps[device])
            assert share == "-" or f"{device} {share}" in told
            assert int(kept[f"required_bytes {device}"]) == required
        assert chosen.caps["CPU:0"] == AMPLE_BYTES
    swept = placer.sweep(programs["infer"], [64], "2xGPU:1MiB", time_limit=5.0, max_trials=0)
    (row,), (report,) = swept.rows, swept.reports
    assert (row.required_bytes, row.sent_bytes) == (
        report.plan.required_bytes,
        report.plan.metrics.sent_bytes,
    )
    assert report.memory.required_bytes == max(report.memory.high_bytes, report.memory.need_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inference", "offloaded", "infeasible"])
def test_a_row_of_a_sweep_is_the_plan_of_its_batch(plans, requests, kind):
    """Its figures, whether it fits, the fullest device in the bar, and the limits in the answer."""
    plan, (source, devices, options) = plans[kind], requests[kind]
    options = {"offload": "auto", **options}
    del options["batch_size"]
    swept = placer.sweep(source, [64], devices, max_trials=0, **options)
    (row,), metrics = swept.rows, plan.metrics
    assert (row.fits, row.required_bytes, row.peak_bytes) == (
        plan.fits,
        plan.required_bytes,
        plan.peak_bytes,
    )
    assert (row.sent_bytes, row.step_seconds) == (metrics.sent_bytes, metrics.step_seconds)
    text = swept.summary(width=200)
    line = next(line for line in text.splitlines() if line.strip().startswith("64  "))
    for figure in (*map(format_bytes, plan.required_bytes.values()), format_bytes(row.sent_bytes)):
        assert (figure in line) == bool(plan.placement)
    name, _ = fullest(plan.required_bytes, swept.caps)
    share = share_of_cap(plan.required_bytes[name], swept.caps[name]) if name else "FLOP"
    assert line.rstrip().endswith(share)
    assert not (plan.fits and name) or f"{name} {share} full" in plan_answer(plan)
    limits = ", ".join(
        f"{each.name} {limit_words(each.memory_limit_bytes, each.usable_bytes)}"
        for each in plan.devices
    )
    assert f"(limits: {limits})" in " ".join(text.split())
    assert plan.placement or re.search(rf"limits +{limits}", plan.summary(width=200))


@pytest.mark.slow
def test_what_is_loaded_and_not_used_counts_alike(tmp_path):
    """On one device: in a report, in the row of ``auto`` that changes nothing, in that of
    TensorFlow's own placement; and a report places as ``place`` does, which leaves it out."""
    import tensorflow as tf

    module, path = tf.Module(), tmp_path / "model"
    module.used, module.unused = (tf.Variable(tf.zeros([256, 256 * n])) for n in (2, 4))
    spec = tf.TensorSpec([None, 256], name="x")
    module.run = tf.function(lambda x: x @ module.used, input_signature=[spec])
    tf.saved_model.save(module, path, signatures=module.run)
    options = {**QUICK, "batch_size": 8}
    one = placer.report(path, "1xGPU:8MiB", **options)
    required = one.memory.required_bytes
    assert required > 6 * 256 * 256 * 4
    chosen = placer.auto(path, "1xGPU:8MiB", **options)
    assert chosen.changes_nothing
    assert [row.code for row in chosen.plan.warnings] == ["assumed_host"]
    assert chosen.plan.solver.value >= chosen.plan.metrics.sent_bytes  # no search, and a cost
    row = chosen.rows[0]
    assert (row.name, row.required_bytes["GPU:0"]) == ("as-it-is", required)
    workload = prepare(path, "1xGPU:8MiB", Options(**options))
    default = compare_workload(workload, None, [DEFAULT]).strategies[1]
    assert default.required_bytes["GPU:0"] == required
    plan = placer.place(path, "1xGPU:8MiB", **options)
    assert (one.plan.placement, one.plan.required_bytes) == (plan.placement, plan.required_bytes)
    assert plan.required_bytes["GPU:0"] < required


def test_cpus_of_a_task_hold_what_they_hold_in_a_comparison(tmp_path):
    """A constant on the host is at the same task in the row that changes nothing of ``auto``, and
    in that of TensorFlow's own placement."""
    import tensorflow as tf

    (tmp_path / "hosts.toml").write_text(HOSTS)

    @tf.function(input_signature=[tf.TensorSpec([64, 256], name="x")])
    def program(x):
        return tf.reshape(tf.transpose(x), [4, 64, 64]) @ tf.ones([64, 8])

    chosen = placer.auto(program, str(tmp_path / "hosts.toml"), **QUICK)
    workload = prepare(program, str(tmp_path / "hosts.toml"), Options(**QUICK))
    default = compare_workload(workload, None, [DEFAULT]).strategies[1]
    left = {**default.required_bytes, **chosen.rows[0].required_bytes}
    assert left == default.required_bytes
    assert any(left[name] for name in left if "task" in name and "CPU" in name)


@pytest.mark.slow
def test_one_device_requires_in_a_report_what_its_row_says():
    """Though the host, which holds what is fetched, peaks higher."""
    import tensorflow as tf

    weight = tf.Variable(tf.zeros([256, 256]))

    @tf.function(input_signature=[tf.TensorSpec([1024, 256], name="x")])
    def shuffled(x):
        y = x @ weight
        return [tf.random.shuffle(y, seed) for seed in range(4)]  # kernels on the host only

    shuffled.kept = weight
    found = placer.report(shuffled, "1xGPU:1GiB", pin_types={"MatMul": "GPU:0"}, **QUICK)
    accelerator, host = found.plan.devices
    assert accelerator.required_bytes < host.required_bytes
    assert found.memory.required_bytes == accelerator.required_bytes
    assert found.memory.high_bytes == accelerator.peak_memory_bytes


@pytest.mark.slow
def test_a_reserve_is_off_the_limit_wherever_it_stands(programs):
    """In the text and page of a plan and a verification; each and a difference name the reserve."""
    options = {**QUICK, "batch_size": 64, "devices": "1xGPU:8MiB"}
    whole = placer.place(programs["infer"], **options)
    plan = placer.place(programs["infer"], **options, reserve="2MiB+25%")
    (row, _), told = plan.devices, "8.00 MiB less the reserve of 4.00 MiB."
    share = share_of_cap(row.required_bytes, 4 * 2**20)
    memory = DeviceMemory(
        device=row.name,
        cap_bytes=row.usable_bytes,
        limit_bytes=row.memory_limit_bytes,
        predicted_bytes=row.peak_memory_bytes,
        need_bytes=row.need_bytes,
        held_bytes=2**20,
        peak_bytes=6 * 2**20,
    )
    ran = small_verification(memory=MemoryRehearsal(devices=(memory,), steps=10))
    texts = [render_result(found, "text", width=200) for found in (plan, ran)]
    for text in texts:
        line = next(line for line in text.splitlines() if line.startswith("GPU:0  "))
        assert {format_bytes(row.required_bytes), "4.00 MiB", share} <= set(re.split(r"  +", line))
        assert text.count(told) == 1
    assert "more may be in use than is required" in texts[1]
    assert render_result(plan, "html", width=80).count(told) == 1
    limits = "1x GPU of 8.00 MiB", "1x GPU of 8.00 MiB less a reserve of 4.00 MiB"
    assert diff_plans(whole, plan).asked == (("limits", *limits),)


@pytest.mark.slow
def test_whoever_names_a_limit_names_its_reserve(programs):
    """Explained, compared, chosen and swept; where nothing fits in every sentence that says by how
    much, and a limit that is said to be enough is enough beside the reserve."""
    reserve = {**QUICK, "devices": "1xGPU:8MiB", "reserve": "2MiB+25%"}
    told = "8.00 MiB less the reserve of 4.00 MiB"
    infer, train = programs["infer"], programs["train"]
    plan = placer.place(infer, batch_size=64, **reserve)
    found = [
        placer.explain(plan, source=infer),
        placer.compare(infer, batch_size=64, **reserve),
        placer.auto(infer, batch_size=64, **reserve),
        placer.sweep(infer, [64], max_trials=0, **reserve),
    ]
    for each in found:
        assert (
            " ".join(each.summary().split()).count(f"GPU:0 {told}")
            + each.summary().count(f"GPU:0: {told}")
            == 1
        ), each
    assert share_of_cap(plan.required_bytes["GPU:0"], 4 * 2**20) in found[2].summary()
    # what does not fit
    small = {**reserve, "devices": "1xGPU:3MiB", "reserve": "1MiB", "offload": "never"}
    told = "3.00 MiB less the reserve of 1.00 MiB"
    plan = placer.place(train, **small)
    required, more = plan.required_bytes["GPU:0"], plan.over_bytes["GPU:0"]
    with pytest.raises(NoSolutionError) as failed:
        require_placement(plan)
    chosen = placer.auto(train, **small)
    compared = placer.compare(train, **small)
    sentences = [str(failed.value), chosen.rows[0].note, *(row.message for row in plan.warnings)]
    sentences += [render_result(each, "text", width=500) for each in (plan, chosen, compared)]
    sentences = [text for text in sentences if "more than" in text]
    assert len(sentences) == 6
    for text in sentences:
        for rest in text.split(" requires ")[1:]:
            assert rest.startswith(f"{format_bytes(required)}, {format_bytes(more)} more than its ")
            assert f"limit of {told}" in rest.partition(" more than its ")[2]
    # the advice, tried
    (option,) = (fix.change for fix in plan.conflict.fixes if "--max-memory" in fix.change)
    asked = {**small, "max_memory": option.removeprefix("--max-memory ")}
    assert placer.place(train, **asked).fits
    assert not placer.place(train, **{**asked, "reserve": "1060KiB"}).fits
    # where nothing fits
    small["devices"] = "1xGPU:2MiB"
    advice = [line.partition(": ")[0] for line in placer.auto(train, **small).advice]
    (option,) = (change for change in advice if "--max-memory" in change)
    assert placer.place(train, **{**small, "max_memory": option.partition(" ")[2]}).fits
    nothing = placer.place(infer, batch_size=64, **small)
    with pytest.raises(InfeasibleError, match=r"limit 2\.00 MiB less the reserve of 1\.00 MiB"):
        nothing.raise_for_conflict()
    assert "can hold 1.00 MiB beside the reserve" in plan_answer(nothing)
