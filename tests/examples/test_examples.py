"""Each example keeps its promise: one headline number."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing.warm_children import run_python

from placer.__main__ import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_go_to_the_host_and_only_looked_up_rows_cross():
    """Two columns of 128 rows of 64 floats cross, side by side, and nothing else: the ids are cut
    out of what is fed where they are looked up."""
    example = load("embeddings_on_the_host")
    plan = example.place_recommender()
    rows = example.BATCH_SIZE * example.WIDTH * 4
    crossing = [t.bytes for t in plan.transfers if t.kind in ("data", "feed")]
    assert plan.variables["table_a"] == plan.variables["table_b"] == "CPU:0"
    assert plan.variables["hidden"].startswith("GPU:")
    assert crossing == [2 * rows]
    assert plan.metrics.transfer_bytes == 2 * rows == 65_536


def test_a_pin_more_does_not_beat_what_is_proven_of_the_recommender():
    """The slices of the ids beside their tables: asking for it finds what was found without."""
    import placer

    example = load("embeddings_on_the_host")
    plan = example.place_recommender()
    caps = {0: "40MiB", 1: "40MiB", "cpu": "1GiB"}
    pinned = placer.place(
        example.build_step(),
        devices="2xGPU",
        max_memory=caps,
        time_limit=10,
        pins={"strided_slice*": "CPU:0"},
    )
    columns = 2 * example.BATCH_SIZE * example.WIDTH * 4
    assert plan.metrics.transfer_bytes == pinned.metrics.transfer_bytes == columns
    for each in (plan.solver, pinned.solver):
        assert each.status == "OPTIMAL"
        assert each.value == plan.solver.value


def test_a_keras_model_that_fits_no_single_device_runs_on_two():
    """33 MiB of weights on two devices of 20 MiB: the outputs are the unplaced model's."""
    told = run("keras_model.py")
    assert "Peak" in told
    assert "ops ran as planned; outputs differ by 0\n" in told


def test_the_page_on_networkx_does_what_it_says(saved_model, tmp_path, monkeypatch, capsys):
    """Two cuts of a chain and what skips; a problem through GraphML; a plan's graph, whose edges
    that cross add up to its transfer."""
    import networkx

    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES.parent / "docs" / "networkx.md").read_text()
    pose, round_trip, found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(pose.strip().splitlines()) <= 11
    names = {"model": str(saved_model)}
    for code in (pose, round_trip, found):
        exec(compile(code, "networkx.md", "exec"), names)
    assert names["solution"].value == 2 * 2**20 + 2**10
    told = capsys.readouterr().out
    assert told.startswith("Status.OPTIMAL") or told.startswith("OPTIMAL")
    plan, graph = names["plan"], names["found"]
    assert set(graph) == set(plan.placement)
    assert {op: row["device"] for op, row in graph.nodes(data=True)} == plan.placement
    crossing = {
        (row["tensor"], plan.placement[reader]): row["bytes"]
        for _, reader, row in graph.edges(data=True)
        if row["crosses"] and not row.get("control")
    }
    assert sum(crossing.values()) == plan.metrics.transfer_bytes
    assert networkx.read_graphml("plan.graphml").nodes.keys() == plan.placement.keys()
    posed = names["placer"].PlacementProblem.from_networkx(graph, devices="2xGPU:1GiB")
    assert sum(posed.resident_bytes) == sum(row.resident_bytes for row in plan.devices)


def test_the_stages_can_be_used_one_by_one(saved_model, tmp_path, monkeypatch, capsys):
    """The page for researchers: a rule, a problem file, a solver, and its placement predicted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(saved_model)
    page = (EXAMPLES.parent / "docs" / "research.md").read_text()
    code, recompute = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(compile(code, "research.md", "exec"), names)
    assert set(names["graph"]) == set(names["placement"])
    told = capsys.readouterr().out
    assert float(told.split()[0]) == names["metrics"].schedule.step_seconds > 0
    exec(compile(recompute, "research.md", "exec"), again := {})
    assert (again["found"].status, again["found"].sequence) == ("FEASIBLE", (0, 1, 2, 3, 4, 0, 5))
    for line in re.findall(r"^placer (solve .*?)(?:  +#.*)?$", page, re.MULTILINE):
        assert main(line.split()) == 0
    solution = json.loads((tmp_path / "solution.json").read_text())
    assert solution["value"] <= names["solution"].value


def test_the_page_on_extraction_shows_what_its_example_prints():
    """One line for each op; remarks stand behind two blanks."""
    page = (EXAMPLES.parent / "docs" / "extraction.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL).groups()
    printed = run_python(["-c", code]).stdout
    assert printed.splitlines() == [line.partition("  ")[0] for line in shown.splitlines()]


def test_hotspots_name_what_is_alive_at_the_peak(saved_model):
    """Kinds add up to the peak, and weights are the largest part of a small dense model."""
    memory = load("memory_hotspots").find_hotspots(saved_model, batch_size=8)
    assert sum(memory.bytes_at_peak.values()) == memory.peak_bytes
    assert next(iter(memory.bytes_at_peak)) == "weights"
    told = run("memory_hotspots.py", str(saved_model), "--batch-size", "8")
    assert "GiB while" in told


def test_the_gate_passes_a_model_that_did_not_grow_and_stops_one_that_did(tmp_path):
    """A model passes against its own plan, a wider one does not; another batch is no comparison."""
    narrow, wide = (save_layers(tmp_path / str(width), width) for width in (256, 1024))
    plan = tmp_path / "plan.json"
    place = ["place", str(narrow), "--devices", "2xT4", "--batch-size", "64"]
    assert main([*place, "-o", str(plan), "-q"]) == 0
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    codes = [
        subprocess.run(
            ["bash", str(EXAMPLES / "ci_gate.sh"), str(model), str(plan), batch],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
        ).returncode
        for model, batch in ((narrow, "512"), (narrow, "64"), (wide, "64"))
    ]
    assert codes == [2, 0, 7]
    assert "| Figure | Before | After |" in (tmp_path / "summary.md").read_text()


def save_layers(folder, width):
    """The folder of a SavedModel of two layers, the first of which has so many units."""
    import tensorflow as tf

    network = tf.Module()
    network.weights = [tf.Variable(tf.ones(size)) for size in ((64, width), (width, 10))]

    @tf.function(input_signature=[tf.TensorSpec((None, 64), tf.float32)])
    def serve(x):
        return tf.nn.relu(x @ network.weights[0]) @ network.weights[1]

    tf.saved_model.save(network, str(folder), signatures=serve)
    return folder


def test_the_notebook_trains_a_keras_model_as_planned():
    """Every cell runs; report and plan are shown as pages, the step ran where it was planned."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "keras_training.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=300).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    told = "".join(o["text"] for o in outputs if o.get("name") == "stdout")
    assert [page.startswith("<iframe srcdoc=") for page in pages] == [True, True]
    assert "Placement\n  status" in told
    assert re.search(r"^[1-9]\d* ops ran as planned$", told, re.MULTILINE)


def run(script, *arguments):
    """What the example prints."""
    done = run_python([EXAMPLES / script, *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout
