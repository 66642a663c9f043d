"""Harmed documents beside healthy models: plans, costs, clusters, traces, problems, and names.

The unharmed ones are what the commands themselves write, or as short as they can be.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import mutations, seeds
from fuzzing.cases import ROOT, Case

READ = frozenset({0, 2, 3})
"""A harmed document is refused (2), or says what is not so of a model (3)."""

SOLVE = READ | {5, 6}
"""``place``, ``report --devices`` and ``solve`` may also find it infeasible, or no solution."""

VERIFY = SOLVE | {8}
GATES = SOLVE | {7}

DEVICES = ("--devices", "2xA100-40GB", "--batch-size", "4", "--time-limit", "4")

CLUSTER = """\
[[device]]
name = "/job:worker/task:0/device:GPU:0"
model = "A100-40GB"
memory = "39GiB"

[[device]]
name = "/job:worker/task:1/device:GPU:0"
memory = 1000000000
peak_flops = 1.5e13
memory_bandwidth = 1.5e12
compute_capability = 8.0

[[device]]
name = "CPU:0"
memory = "64GiB"

[default_link]
bandwidth = 12e9
latency = 10e-6

[network_link]
bandwidth = 3.1e9
latency = 150e-6

[[link]]
from = "/job:worker/task:0/device:GPU:0"
to = "/job:worker/task:1/device:GPU:0"
bandwidth = 10e9

[[task]]
name = "/job:worker/task:0"
address = "10.0.0.1:2222"
"""

REMATERIALISATION = {
    "schema": "placer.rematerialisation/1",
    "node_names": ["f0", "f1", "f2", "b2", "b1", "b0"],
    "seconds": [1, 1, 1, 1, 1, 1],
    "bytes": [5, 1, 1, 1, 1, 1],
    "inputs": [[], [0], [1], [2], [1, 3], [0, 4]],
    "order": [0, 1, 2, 3, 4, 5],
    "budget_bytes": 7,
}

HOSTILE_NAMES = (
    *("dense", "a.b", "a-b", "a>b", "a\\b", "a/../../b", "..", "/etc/passwd", "__proto__"),
    *("constructor", "toString", "CON", "a" * 300, "=1+1", "-x", "@SUM(A1)", "nan", "0", "a b"),
    *('"><img src=x onerror=alert(1)>', "</script><script>alert(1)</script>", "{{7*7}}", "{% x %}"),
    *(
        "\x1b[31mred",
        "[bold]x[/bold]",
        "%s%n",
        "a\nb",
        "a|b|c",
        "`x`",
        "\u202egnp.exe",
        "x\r",
        "a,b",
    ),
    *("&amp;", "<!--", "]]>", "$(touch gone)", "é", "\U0001f4a5", "\x00", "\x7f", "\u2028"),
)
"""Names for ops that some reader of the results may take for something else than a name."""

HOSTILE_FILES = (
    *(
        "model",
        "a b",
        "a\nb",
        "[bold]x",
        "%s%n{0}",
        "$(touch gone)",
        "\x1b[31mred",
        "-o",
        "--force",
    ),
    *(
        "a'b\"c",
        "é\U0001f4a5",
        "\udcff\udcfe",
        "n" * 250,
        ".hidden",
        "~",
        "*",
        "a\\b",
        "CON",
        "&;|<>",
    ),
)
"""Names for files; two of them are no UTF-8."""


@cache
def _written_by(option: str, *command: str) -> bytes:
    """What ``placer`` writes where ``option`` says, for the healthy graph."""
    with tempfile.TemporaryDirectory() as folder:
        model, result = Path(folder) / "graph.pb", Path(folder) / "written"
        model.write_bytes(layers())
        arguments = [sys.executable, "-m", "placer", command[0], str(model), *command[1:]]
        subprocess.run([*arguments, option, str(result)], check=True, capture_output=True, cwd=ROOT)
        return result.read_bytes()


@cache
def layers() -> bytes:
    """The healthy graph."""
    return bytes(seeds.layers_graph().SerializeToString(deterministic=True))


def _model(folder: Path) -> Path:
    path = folder / "graph.pb"
    path.write_bytes(layers())
    return path


def plan_case(folder: Path, index: int, random: Random) -> Case:
    """A harmed plan, in every command that reads one; ``verify`` runs the model, one in twenty."""
    plan = _written_by("-o", "place", *DEVICES)
    model, harmed = _model(folder), folder / "plan.json"
    harmed.write_bytes(mutations.mutate_json(plan, random))
    result = ["-o", f"{folder}/result"]
    if index % 20 == 19:
        return Case.of(["verify", str(model), str(harmed)], VERIFY)
    kind = random.choice(("apply", "apply", "explain", "export", "diff", "baseline"))
    if kind == "export":
        to = random.choice(("html", "trace", "graphml", "dot", "model-explorer-data"))
        return Case.of(["export", str(harmed), "--model", str(model), "--to", to, *result], SOLVE)
    if kind == "explain":
        return Case.of(["explain", str(harmed), "conv", "--model", str(model)], SOLVE)
    if kind == "diff":
        (folder / "other.json").write_bytes(plan)
        return Case.of(["diff", str(harmed), f"{folder}/other.json", *result], SOLVE)
    if kind == "baseline":
        gate = ["--baseline", str(harmed), "--fail-above", "+5%"]
        return Case.of(["report", str(model), *DEVICES, *gate, *result], GATES)
    return Case.of(["apply", str(model), str(harmed), "-o", f"{folder}/result.pb"], SOLVE)


def costs_case(folder: Path, index: int, random: Random) -> Case:
    """Harmed measured costs, read by ``report`` or, one time in five, fitted by ``calibrate``."""
    profile = ("profile", "--batch-size", "4", "--steps", "1", "--threads", "1")
    model, harmed = _model(folder), folder / "costs.json"
    harmed.write_bytes(mutations.mutate_json(_written_by("-o", *profile), random))
    if index % 5 == 4:
        return Case.of(["calibrate", str(harmed), "-o", f"{folder}/result.toml"], READ)
    options = ["--batch-size", "4", "--costs", str(harmed), "-o", f"{folder}/result"]
    return Case.of(["report", str(model), *options], READ)


_TOML_VALUES = (*("-1", "0", "1e400", "nan", "inf", "true", "[]", '""', '"GPU:99"', "2020-01-01"),)
_TOML_VALUES += (*('"/job:worker/task:99999999999999999999/device:GPU:0"', '"\\u001b[31m"', "{}"),)
_TOML_VALUES += (*('"39 elephants"', "9" * 40, '"' + "x" * 5000 + '"', "[" * 2000, "0x7fffffff"),)


def cluster_case(folder: Path, index: int, random: Random) -> Case:
    """A harmed ``cluster.toml``: values, tables or text."""
    model, harmed = _model(folder), folder / "cluster.toml"
    text = CLUSTER
    for _ in range(random.randint(1, 3)):
        lines = list(re.finditer(r"(?m)^(\w+) = (.*)$", text))
        chosen = random.choice(lines)
        value = random.choice((*_TOML_VALUES, random.choice(lines).group(2)))
        key = random.choice((chosen.group(1),) * 3 + (random.choice(lines).group(1), "colour"))
        text = text[: chosen.start()] + f"{key} = {value}" + text[chosen.end() :]
    content = (
        text.encode() if random.random() < 0.6 else mutations.mutate_text(text.encode(), random)
    )
    harmed.write_bytes(content)
    options = ["--devices", str(harmed), "--batch-size", "4", "--time-limit", "3"]
    return Case.of(["report", str(model), *options, "-o", f"{folder}/result"], SOLVE)


def trace_case(folder: Path, index: int, random: Random) -> Case:
    """``profile --trace`` with a harmed trace of the drawn layers' ops."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    from traces_by_hand import gpu_steps

    model, harmed = folder / "graph.pb", folder / "harmed.xplane.pb"
    model.write_bytes(_dense_graph())
    trace = gpu_steps()
    if index % 3 == 0:
        harmed.write_bytes(mutations.mutate_bytes(trace, random))
    else:
        space = xplane_pb2.XSpace.FromString(trace)
        mutations.mutate_message(space, random)
        harmed.write_bytes(space.SerializeToString())
    arguments = ["profile", str(model), "--trace", str(harmed), "-o", f"{folder}/result"]
    return Case.of(arguments, READ)


@cache
def _dense_graph() -> bytes:
    """The ops of the drawn trace."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (4, 4))
        with tf.name_scope("dense"):
            tf.nn.relu(tf.matmul(x, x, name="MatMul"), name="Relu")
        tf.shape(x, name="Shape")
    return bytes(graph.as_graph_def().SerializeToString())


# --- problems


@cache
def _problem() -> Any:
    """A problem that a networkx graph poses: a chain with a skip, a group, a pin."""
    import networkx

    from placer.problem.placement_problem import PlacementProblem

    graph = networkx.DiGraph()
    for layer in range(6):
        node = {"resident_bytes": 300 * 2**20, "output_bytes": 2**20, "flops": 1e12}
        graph.add_node(f"layer{layer}", **node)
    networkx.add_path(graph, [f"layer{layer}" for layer in range(6)])
    graph.add_edge("layer0", "layer5", bytes=2**10)
    graph.nodes["layer1"]["group"] = graph.nodes["layer2"]["group"] = "pair"
    graph.nodes["layer5"]["pin"] = "GPU:1"
    return PlacementProblem.from_networkx(graph, devices="3xGPU:1GiB")


def problem_case(folder: Path, index: int, random: Random) -> Case:
    """``solve`` with a harmed ``placer.problem/1`` file."""
    from placer.problem.placement_problem import to_json

    harmed = folder / "problem.json"
    harmed.write_bytes(mutations.mutate_json(to_json(_problem()).encode(), random))
    return _solve(harmed, folder, random)


def rematerialisation_case(folder: Path, index: int, random: Random) -> Case:
    """``solve`` with a harmed ``placer.rematerialisation/1`` file."""
    harmed = folder / "rematerialisation.json"
    harmed.write_bytes(mutations.mutate_json(json.dumps(REMATERIALISATION).encode(), random))
    return _solve(harmed, folder, random)


def _solve(harmed: Path, folder: Path, random: Random) -> Case:
    solver = random.choice(("cp-sat", "cp-sat", "heft"))
    options = ["--time-limit", "2", "--solver", solver, "-o", f"{folder}/result"]
    return Case.of(["solve", str(harmed), *options], SOLVE)


# --- names


def names_case(folder: Path, index: int, random: Random) -> Case:
    """A healthy graph with hostile names, of ops and of files, through every format of results."""
    graph = seeds.layers_graph()
    old = [node.name for node in graph.node]
    chosen = random.sample(old, random.randint(1, 4))
    new = dict(zip(chosen, random.sample(HOSTILE_NAMES, len(chosen)), strict=True))
    for node in graph.node:
        node.name = new.get(node.name, node.name)
        node.input[:] = [_renamed(name, new) for name in node.input]
    name = random.choice(HOSTILE_FILES)
    model = folder / name
    model.write_bytes(graph.SerializeToString())
    result = folder / ("result" + name if random.random() < 0.5 else "result")
    form = random.choice(("text", "json", "csv", "markdown", "html"))
    if random.random() < 0.5:
        options = ["--batch-size", "4", "--format", form, "-o", str(result)]
        return Case.of(["report", str(model), *options], SOLVE | {4})
    place = ["place", str(model), *DEVICES, "-o", str(result)]
    follow = random.choice(("export", "explain", "diff", "place"))
    commands = [place]
    if follow == "export":
        to = random.choice(("html", "trace", "graphml", "dot", "model-explorer", "tensorboard"))
        commands.append(["export", str(result), "--to", to, "-o", f"{folder}/result.{to}"])
    elif follow == "explain":
        commands.append(["explain", str(result), random.choice([*new.values(), "conv"])])
    elif follow == "diff":
        commands.append(["diff", str(result), str(result), "--format", "markdown"])
    else:
        place += ["--format", form]
    return Case(commands=commands, allowed=SOLVE | {4})


def _renamed(name: str, new: dict[str, str]) -> str:
    control, plain = ("^", name[1:]) if name.startswith("^") else ("", name)
    op, colon, output = plain.partition(":")
    return control + new.get(op, op) + colon + output


DOCUMENTS = {
    "plan": plan_case,
    "costs": costs_case,
    "cluster": cluster_case,
    "trace": trace_case,
    "problem": problem_case,
    "rematerialisation": rematerialisation_case,
    "names": names_case,
}
