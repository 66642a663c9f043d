"""Two replicas of ResNet-50 at batch 64: the predicted and measured speed, the memory per card.

    python benchmarks/replicas/run.py predict --out DIR    # one and two T4, by prediction
    python benchmarks/replicas/run.py memory  --out DIR    # on simulated T4s, loader by loader
    python benchmarks/replicas/run.py measure --out DIR    # two logical CPUs: an idle machine
    python benchmarks/replicas/run.py equal   --out DIR    # two logical CPUs: the outputs alone
    python benchmarks/replicas/run.py train   --out DIR    # beside MirroredStrategy

``memory`` and ``train`` need a compiler (``placer doctor`` says so).  With ``--size`` and
``--batch`` it is done with smaller pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_DISABLE_RZ_CHECK"] = "1"  # which plans take for granted, and placer sets itself

REPLICAS = "replicas:2"
CARDS, CPUS = "2xT4", "2xCPU:64GiB"
MIRRORED = "mirrored"
TRAINING = (MIRRORED, "replicas", "all-reduce")
ROUNDS = 7


def build(out: Path, size: int) -> Any:
    """The model, saved as a SavedModel and as a GraphDef with its weights as constants."""
    import keras
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    keras.utils.set_random_seed(7)
    model = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3))
    spec = tf.TensorSpec((None, size, size, 3), name="pictures")
    if not (out / "saved").exists():
        model.export(str(out / "saved"), verbose=False)
        function = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec)
        frozen = convert_to_constants.convert_variables_to_constants_v2(function)
        (out / "frozen.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    return model


def plan_of(out: Path, name: str, batch: int, devices: str, strategy: str | None) -> Any:
    """The plan of one of the two files, kept in ``out``."""
    import placer

    file = out / f"{name}-{devices}-{'whole' if strategy is None else 'replicas'}.json"
    if not file.exists():
        settings = {"batch_size": batch, "time_limit": 10.0, "offload": "never"}
        placer.place(str(out / name), devices, strategy=strategy, **settings).save(file)
    return placer.Plan.load(file)


def predict(out: Path, size: int, batch: int) -> None:
    """Prints predicted samples a second of one T4, of two replicas, and what those hold."""
    build(out, size)
    for name in ("saved", "frozen.pb"):
        one, two = (plan_of(out, name, batch, *way) for way in (("1xT4", None), (CARDS, REPLICAS)))
        rates = [batch / plan.metrics.step_seconds for plan in (one, two)]
        print(f"{name}: {rates[0]:,.0f} and {rates[1]:,.0f} samples/s, {rates[1] / rates[0]:.2f}")


def in_use(out: Path, name: str, *words: str) -> dict[str, int]:
    """The most in use on each simulated card while this script runs the command ``words``."""
    own = [sys.executable, __file__, *words, "--out", str(out)]
    tail = ["--devices", CARDS, "--format", "json", "-o", str(out / name), "--force", "--", *own]
    subprocess.run([sys.executable, "-m", "placer", "simulate", *tail], check=True)
    found: dict[str, int] = json.loads((out / name).read_text())["peak_bytes"]
    return found


def memory(out: Path, size: int, batch: int) -> None:
    """Prints what each card holds at most, predicted and by TensorFlow's allocator."""
    import placer

    build(out, size)
    size_words = ("--size", str(size), "--batch", str(batch))
    plans = {name: plan_of(out, name, batch, CARDS, REPLICAS) for name in ("saved", "frozen.pb")}
    for name, plan in plans.items():
        placer.apply(str(out / name), plan, out / f"placed-{name}", force=True)
    ways = {"policy": "saved", "session": "saved", "load_placed": "saved", "graph": "frozen.pb"}
    for way, name in ways.items():
        found = in_use(out, f"{way}.json", "step", way, *size_words)
        rows = {row.name: row.peak_memory_bytes for row in plans[name].devices}
        tell(way, rows, found)
    found = in_use(out, "keras.json", "step", "keras", *size_words)
    tell("keras", json.loads((out / "keras-plan.json").read_text()), found)


def tell(way: str, predicted: dict[str, int], found: dict[str, int]) -> None:
    """Prints one row."""
    told = (
        f"{name} {found[name] / 1e6:.1f} MB, predicted {predicted[name] / 1e6:.1f} "
        f"({predicted[name] / found[name] - 1:+.1%})"
        for name in sorted(found)
    )
    print(f"{way}: {'; '.join(told)}", flush=True)


def step(out: Path, way: str, size: int, batch: int) -> None:
    """Loads the placed program in one way, and runs three steps of it."""
    import numpy as np
    import tensorflow as tf

    pictures = np.zeros((batch, size, size, 3), np.float32)
    v1 = tf.compat.v1
    if way in ("session", "graph"):
        with tf.Graph().as_default(), v1.Session() as session:
            if way == "session":
                loaded = v1.saved_model.load(session, ["serve"], str(out / "placed-saved"))
                signature = loaded.signature_def["serving_default"]
                (fed,), (fetched,) = (
                    [item.name for item in ends.values()]
                    for ends in (signature.inputs, signature.outputs)
                )
            else:
                graph_def = v1.GraphDef.FromString((out / "placed-frozen.pb").read_bytes())
                tf.import_graph_def(graph_def, name="")
                fed = next(n.name for n in graph_def.node if n.op == "Placeholder") + ":0"
                fetched = "Identity:0"
            for _ in range(3):
                session.run(fetched, {fed: pictures})
        return
    import placer

    if way == "keras":
        model = build(out, size)
        found = placer.auto(model, CARDS, batch_size=batch, offload="never")
        print(found.summary(), file=sys.stderr)
        rows = {row.name: row.peak_memory_bytes for row in found.plan.devices}
        (out / "keras-plan.json").write_text(json.dumps(rows))
        with found.bind(model):
            model.predict(np.tile(pictures, (3, 1, 1, 1)), batch_size=batch, verbose=0)
        return
    if way == "load_placed":
        loaded = placer.load_placed(out / "placed-saved")
    else:
        options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
        loaded = tf.saved_model.load(str(out / "placed-saved"), options=options)
    function = loaded.signatures["serving_default"]
    with tf.device("CPU:0"):
        fed = tf.constant(pictures)
        for _ in range(3):
            function(fed)


def measure(out: Path, size: int, batch: int) -> None:
    """Prints the seconds of a batch, replicas on two logical CPUs in turns with the plain model on
    one, each with one intra-op thread; and whether the outputs are the same bits."""
    import numpy as np
    import tensorflow as tf

    import placer

    tf.config.threading.set_intra_op_parallelism_threads(1)
    placer.cpu_devices(3)
    build(out, size)
    plan = plan_of(out, "saved", batch, "2xCPU:64GiB", REPLICAS)
    placer.apply(str(out / "saved"), plan, out / "placed-cpus", force=True)
    replicas = placer.load_placed(out / "placed-cpus").signatures["serving_default"]
    plain = tf.saved_model.load(str(out / "saved")).signatures["serving_default"]
    pictures = tf.constant(np.random.default_rng(7).random((batch, size, size, 3), np.float32))
    seconds: dict[str, list[float]] = {"plain": [], "replicas": []}
    busiest: dict[str, list[float]] = {"plain": [], "replicas": []}
    outputs = {}
    for number in range(ROUNDS + 1):
        for name, function in (("plain", plain), ("replicas", replicas)):
            started, before = time.perf_counter(), processor_seconds()
            (outputs[name],) = (value.numpy() for value in function(pictures).values())
            if number:
                seconds[name].append(time.perf_counter() - started)
                after = processor_seconds()
                busiest[name].append(max(after[thread] - before.get(thread, 0) for thread in after))
    same = np.array_equal(outputs["plain"], outputs["replicas"])
    print(f"bit-equal: {same}; load {os.getloadavg()[0]:.1f}")
    for what, times in (("a batch", seconds), ("its busiest thread, processor time", busiest)):
        plain, divided = (statistics.median(times[name]) for name in ("plain", "replicas"))
        print(f"{what}: {plain:.3f} s and {divided:.3f} s, {plain / divided:.2f} times as fast")


def equal(out: Path, size: int, batch: int) -> None:
    """Prints whether replicas on two logical CPUs give the bits of the plain program: a GraphDef in
    a session, and Keras's ``predict`` in the way that ``auto`` chooses."""
    import numpy as np

    import placer

    placer.cpu_devices(3)
    model = build(out, size)
    pictures = np.random.default_rng(7).random((batch, size, size, 3), np.float32)
    plan = plan_of(out, "frozen.pb", batch, CPUS, REPLICAS)
    placer.apply(str(out / "frozen.pb"), plan, out / "placed-cpus.pb", force=True)
    found = [outputs_of(out / name, pictures) for name in ("frozen.pb", "placed-cpus.pb")]
    print(f"GraphDef, {REPLICAS}: bit-equal {np.array_equal(*found)}", flush=True)
    plain = model.predict(pictures, batch_size=batch, verbose=0)
    chosen = placer.auto(model, CPUS, batch_size=batch, offload="never")
    with chosen.bind(model):
        divided = model.predict(pictures, batch_size=batch, verbose=0)
    print(f"Keras predict, {chosen.chosen}: bit-equal {np.array_equal(plain, divided)}")


def outputs_of(path: Path, pictures: Any) -> Any:
    """What a GraphDef gives in a session."""
    import tensorflow as tf

    v1 = tf.compat.v1
    graph_def = v1.GraphDef.FromString(path.read_bytes())
    fed = next(node.name for node in graph_def.node if node.op == "Placeholder")
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        return session.run("Identity:0", {f"{fed}:0": pictures})


def train(out: Path, size: int, batch: int) -> None:
    """Prints for each kind of data-parallel training the most in use on each simulated card while
    it trains, the prediction, what a step sends, and the losses on two logical CPUs beside
    MirroredStrategy's."""
    del size
    losses = {}
    for way in TRAINING:
        words = ("step", f"train-{way}", "--batch", str(batch))
        in_use(out, f"train-{way}.json", *words)
        subprocess.run([sys.executable, __file__, *words, "--out", str(out)], check=True)
        losses[way] = json.loads((out / f"{way}-losses.json").read_text())
        told = json.loads((out / f"{way}-memory.json").read_text())
        tell(way, told["predicted"] or told["found"], told["found"])
        print(f"{way}: {told['sent']}")
    for way in TRAINING:
        pairs = zip(losses[way], losses[MIRRORED], strict=True)
        off = max(abs(ours / theirs - 1) for ours, theirs in pairs)
        print(f"{way}: {len(losses[way])} losses off by {off:.1e} at most")


def network() -> Any:
    """Dense layers that train, with Adam; their weights are most of what a card holds."""
    import keras

    keras.utils.set_random_seed(7)
    layers = [keras.layers.Dense(2048, "tanh") for _ in range(4)]
    model = keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=False)
    return model


def train_step(out: Path, way: str, batch: int) -> None:
    """Ten steps of training in one way, on the GPUs that there are or on two logical CPUs."""
    import numpy as np
    import tensorflow as tf

    import placer

    has_gpus = bool(tf.config.list_physical_devices("GPU"))
    random = np.random.default_rng(7)
    x, y = random.random((batch, 1024), np.float32), random.integers(0, 10, batch)
    names = [f"{'GPU' if has_gpus else 'CPU'}:{number}" for number in range(2)]
    if not has_gpus:
        placer.cpu_devices(3)
    told: dict[str, Any] = {"predicted": {}, "sent": "by NCCL"}
    if way == MIRRORED:
        with tf.distribute.MirroredStrategy(names).scope():
            model = network()
        losses = losses_of(model, x, y, told)
    else:
        losses = divided_losses(way, x, y, told)
    (out / f"{way}-losses.json").write_text(json.dumps(losses))
    if has_gpus:
        (out / f"{way}-memory.json").write_text(json.dumps(told))


def divided_losses(way: str, x: Any, y: Any, told: dict[str, Any]) -> list[float]:
    """The losses of replicas as :func:`placer.auto` builds them; ``told`` gets the prediction."""
    from functools import partial

    import placer
    from placer.application.binding.model_binding import BoundStep, bind_model
    from placer.extraction.reading.training_steps import batch_specs, trace_step
    from placer.strategies.keras_replicas import divided_train_step
    from placer.strategies.requests import TrainingDivision

    division = TrainingDivision(replicas=(("GPU:0",), ("GPU:1",)), replicated=way == "all-reduce")
    method = partial(divided_train_step, division=division)
    model = network()
    step = trace_step(model, batch_specs((x, y)), "train_step", method(model))
    plan = placer.place(step, CARDS, batch_size=len(x), offload="never", work_limit=10)
    rows = {row.name: row.peak_memory_bytes for row in plan.devices if row.type != "CPU"}
    gradients, sent = 4e-6 * model.count_params(), 1e-6 * plan.metrics.sent_bytes
    ring = 1e-6 * (plan.metrics.collective_bytes or 0)
    told["predicted"] = rows
    told["sent"] = (
        f"gradients of {gradients:.1f} MB, {sent:.1f} MB in transfers, {ring:.1f} in all-reduces"
    )
    how = BoundStep(method=method, parts=division.parts, adapts=True)
    with bind_model(plan, model, step=how):
        return losses_of(model, x, y, told)


def losses_of(model: Any, x: Any, y: Any, told: dict[str, Any]) -> list[float]:
    """The losses of ten epochs of one batch; ``told`` gets the most in use meanwhile."""
    import tensorflow as tf

    names = [f"GPU:{n}" for n, _ in enumerate(tf.config.list_physical_devices("GPU"))]
    for name in names:
        tf.config.experimental.reset_memory_stats(name)
    found = model.fit(x, y, batch_size=len(x), epochs=10, shuffle=False, verbose=0)
    told["found"] = {n: tf.config.experimental.get_memory_info(n)["peak"] for n in names}
    return [float(loss) for loss in found.history["loss"]]


def processor_seconds() -> dict[str, float]:
    """The processor time of every thread of this process: that of the busiest one says what a batch
    would take on free cores, on a busy machine too."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for thread in os.listdir("/proc/self/task"):
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
        found[thread] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("predict", "memory", "measure", "equal", "train", "step"))
    parser.add_argument("way", nargs="?", help="of a step: how it is loaded")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True, parents=True)
    sizes = arguments.size, arguments.batch
    if arguments.what == "step" and arguments.way.startswith("train-"):
        train_step(arguments.out, arguments.way.removeprefix("train-"), arguments.batch)
        return
    if arguments.what == "step":
        step(arguments.out, arguments.way, *sizes)
        return
    actions = {f.__name__: f for f in (predict, memory, measure, equal, train)}
    actions[arguments.what](arguments.out, *sizes)


if __name__ == "__main__":
    main()
