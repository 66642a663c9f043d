"""Commands that take a while and write something, for harm from outside: kills, two writers, a disk
that is full.  And whether what they wrote is whole."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from fuzzing.cases import ROOT
from fuzzing.documents import DEVICES
from graph_defs_by_hand import add_node, add_splat

LAYERS = 60


@cache
def tangled_graph() -> bytes:
    """Layers that also read others from some way before them: no search proves its placement in
    seconds."""
    from tensorflow.core.framework import graph_pb2

    graph, random = graph_pb2.GraphDef(), Random(0)
    graph.versions.producer = 2000
    node = graph.node
    add_node(node, "Placeholder", "x", dtype="float32", shape=(None, 64))
    names = ["x"]
    for layer in range(LAYERS):
        add_splat(node, f"l{layer}/w", (64, 64))
        add_node(node, "MatMul", f"l{layer}/mul", [names[-1], f"l{layer}/w"], T="float32")
        read = [f"l{layer}/mul", *random.sample(names, min(3, len(names)))]
        add_node(node, "AddN", f"l{layer}/sum", read, N=len(read), T="float32")
        names.append(f"l{layer}/sum")
    add_node(node, "Identity", "y", [names[-1]], T="float32")
    return bytes(graph.SerializeToString(deterministic=True))


@cache
def tangled_problem() -> str:
    """As JSON."""
    from small_problems import tangle

    from placer.problem.placement_problem import to_json

    return to_json(tangle(1))


@cache
def _saved_model() -> Path:
    """A SavedModel with a megabyte of weights and a plan for it, in a folder that stays until the
    end of this process."""
    import tensorflow as tf

    folder = Path(_folder.name)
    module = tf.Module()
    module.weights = [tf.Variable(tf.fill((512, 256), 0.5)), tf.Variable(tf.fill((256, 512), 0.5))]

    @tf.function(input_signature=[tf.TensorSpec((None, 512), name="x")])
    def serve(x):
        return {"y": tf.nn.relu(x @ module.weights[0]) @ module.weights[1]}

    module.serve = serve
    tf.saved_model.save(module, str(folder / "model"), signatures=serve)
    command = ["place", f"{folder}/model", *DEVICES, "-o", f"{folder}/plan.json"]
    subprocess.run(
        [sys.executable, "-m", "placer", *command], check=True, cwd=ROOT, capture_output=True
    )
    return folder


_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-")


def _place(folder: Path) -> list[str]:
    (folder / "graph.pb").write_bytes(tangled_graph())
    caps = ",".join(f"GPU:{number}={LAYERS * 64 * 64 * 4}B" for number in range(3))
    options = ["--devices", "3xT4", "--max-memory", caps, "--batch-size", "32"]
    return ["place", f"{folder}/graph.pb", *options, "--offload", "never", "--time-limit", "3"]


def _report(folder: Path) -> list[str]:
    (folder / "graph.pb").write_bytes(tangled_graph())
    return ["report", f"{folder}/graph.pb", "--batch-size", "32", "--format", "json"]


def _page(folder: Path) -> list[str]:
    return [*_report(folder)[:-1], "html"]


def _solve(folder: Path) -> list[str]:
    (folder / "problem.json").write_text(tangled_problem())
    return ["solve", f"{folder}/problem.json", "--time-limit", "2"]


def _apply(folder: Path) -> list[str]:
    model = _saved_model()
    return ["apply", f"{model}/model", f"{model}/plan.json"]


def _trace(folder: Path) -> list[str]:
    model = _saved_model()
    return ["export", f"{model}/plan.json", "--to", "trace"]


def _profile(folder: Path) -> list[str]:
    options = ["--batch-size", "4", "--steps", "1", "--threads", "1"]
    return ["profile", f"{_saved_model()}/model", *options]


def compile_searches() -> None:
    """All of them, as long as that takes: commands run under a time limit here."""
    subprocess.run([sys.executable, "-P", "-m", "placer.solving.warm_up"], check=True)


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "place": _place,
    "report": _report,
    "solve": _solve,
    "apply": _apply,
    "page": _page,
    "trace": _trace,
    "profile": _profile,
}
"""The arguments of commands, without ``-o``; what they read is put into the folder."""


def is_whole(command: str, result: Path) -> bool:
    """Whether a result can be used."""
    if command == "apply":
        from tensorflow.core.protobuf import saved_model_pb2

        graph = saved_model_pb2.SavedModel.FromString((result / "saved_model.pb").read_bytes())
        weights = (result / "variables" / "variables.data-00000-of-00001").stat().st_size
        return bool(graph.meta_graphs) and weights >= 2 * 512 * 256 * 4
    text = result.read_text()
    if command == "page":
        return text.rstrip().endswith("</html>")
    try:
        document = json.loads(text)
    except ValueError:
        return False
    if command == "place":
        from placer.plan.plan import Plan

        return Plan.from_json(text).placement != {}
    return "traceEvents" in document or str(document["schema"]).startswith("placer.")
