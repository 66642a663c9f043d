"""What processes of their own do with one program: write, plan, and run it on simulated cards.

``python steps.py write|place|run NAME FOLDER ...``; the last line of stdout is JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from programs import FIT, FROZEN, SAVED, SESSION, Program, chosen

STEPS = 10
MEBIBYTE = 1 << 20
SEEN = (1, 2, 3, STEPS)
"""Steps after which memory is looked at."""


def main() -> None:
    action, name, folder, *rest = sys.argv[1:]
    program = next(p for p in chosen([name]) if p.name == name)
    found = {"write": write, "place": place, "run": run}[action](program, Path(folder), *rest)
    print(json.dumps(found), flush=True)
    sys.stdout.flush()
    os._exit(0)  # what TensorFlow does at its end is not measured


def write(program: Program, folder: Path) -> dict[str, Any]:
    """Writes the file of a program that is one."""
    import tensorflow as tf

    if program.runs == SAVED:
        program.build().export(str(folder / "model"), verbose=False)
    elif program.runs == FROZEN:
        from tensorflow.python.framework.convert_to_constants import (
            convert_variables_to_constants_v2,
        )

        model = program.build()
        specs = [tf.TensorSpec((program.batch, *shape), dtype) for shape, dtype in program.inputs]
        traced = tf.function(lambda x: model(x, training=False)).get_concrete_function(*specs)
        frozen = convert_variables_to_constants_v2(traced)
        (folder / "model.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
        return {"outputs": [tensor.name for tensor in frozen.outputs]}
    return {}


def place(program: Program, folder: Path, share: str) -> dict[str, Any]:
    """Makes the plan, caps being this share of what one device needs (0: no caps)."""
    import placer

    source, outputs, batch = source_of(program, folder)
    options: dict[str, Any] = {"batch_size": batch, "outputs": outputs, "seed": 0}
    if program.runs == SESSION:  # TensorFlow puts hints over what a device function says
        options["keep_colocation"] = True
    options = {key: value for key, value in options.items() if value is not None}
    one = placer.place(source, f"1x{program.card}", offload="never", time_limit=20, **options)
    if program.devices == 1:
        plan = one
    else:
        cap = int(float(share) * need_of(one, "GPU:0"))
        plan = placer.place(
            source,
            f"{program.devices}x{program.card}",
            max_memory={f"GPU:{index}": cap for index in range(program.devices)},
            offload="never",
            time_limit=20,
            **options,
        )
    if plan.placement:
        plan.save(folder / "plan.json")
    if plan.placement and program.runs in (SAVED, FROZEN):
        placer.apply(source, plan, folder / f"placed{'.pb' if program.runs == FROZEN else ''}")
    spilled = sum(device.spilled_bytes or 0 for device in plan.devices)
    return {"status": plan.solver.status, "one": need_of(one, "GPU:0"), "spilled": spilled}


def need_of(plan: Any, name: str) -> int:
    return next((d.need_bytes or 0 for d in plan.devices if d.name == name), 0)


def source_of(program: Program, folder: Path) -> tuple[Any, Any, int | None]:
    """What is placed, its outputs, and the batch size that is bound."""
    import tensorflow as tf

    import placer

    if program.runs == FROZEN:
        outputs = json.loads((folder / "write.json").read_text())["outputs"]
        return folder / "model.pb", outputs, None
    if program.runs == SAVED:
        return folder / "model", None, program.batch
    if program.runs == FIT:
        model = compiled(program)
        step = placer.training_step(model, batch_of(program))
        globals()["_kept"] = model
        return step, None, program.batch
    with tf.Graph().as_default() as graph:
        (loss, train), _ = program.build()
    return graph, [loss.name, f"^{train.name}"], None


def run(program: Program, folder: Path, limits: str) -> dict[str, Any]:
    """Runs ten steps on simulated cards, with these limits in MiB (``100,80``)."""
    import tempfile

    import placer
    from placer.simulation.environment import RECORDS
    from placer.simulation.records import read_records

    records = Path(os.environ.setdefault(RECORDS, tempfile.mkdtemp()))
    placer.simulate_gpus(f"{program.devices}x{program.card}")
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    sizes = [float(limit) for limit in limits.split(",")]
    for gpu, size in zip(gpus, sizes, strict=True):
        limited = [tf.config.LogicalDeviceConfiguration(memory_limit=size)]
        tf.config.set_logical_device_configuration(gpu, limited)
    phases: dict[str, list[list[int]]] = {}
    at = {"stage": "start"}

    def seen(stage: str, following: str) -> None:
        gc.collect()
        own = next((r for r in read_records(records) if r.process == os.getpid()), None)
        rows = []
        for index in range(program.devices):
            info = tf.config.experimental.get_memory_info(f"GPU:{index}")
            requested = own.gpus[index].live_asked_bytes if own else 0
            rows.append([info["current"], info["peak"], requested])
            tf.config.experimental.reset_memory_stats(f"GPU:{index}")
        phases[stage] = rows
        at["stage"] = following

    errors = (tf.errors.ResourceExhaustedError, tf.errors.NotFoundError, tf.errors.UnknownError)
    runner: Callable[..., Iterator[int]] = {
        FIT: fit,
        SAVED: serve,
        SESSION: session,
        FROZEN: frozen_session,
    }[program.runs]
    try:
        seen("start", "loading")
        for step in runner(program, folder):
            following = f"step {step + 1}"
            if step == 0:
                seen("loading", following)
            elif step in SEEN:
                seen(f"step {step}", following)
            at["stage"] = following
            if step == STEPS:
                break
    except errors as error:
        said = str(error)[:200]
        return {"served": False, "stage": at["stage"], "error": type(error).__name__, "said": said,
                "phases": phases}  # fmt: skip
    return {"served": True, "phases": phases}


def fit(program: Program, folder: Path) -> Iterator[int]:
    """Steps of ``fit`` under ``bind``, the model being built where the plan has it."""
    import queue
    import threading

    import keras
    import tensorflow as tf

    from placer.plan.plan import Plan

    plan = Plan.load(folder / "plan.json")
    with plan.scope():
        model = compiled(program)
        model.optimizer.build(model.trainable_variables)
    with tf.device("CPU:0"):
        data = tf.data.Dataset.from_tensors(batch_of(program)).repeat(STEPS)
    done: queue.Queue[Any] = queue.Queue(maxsize=1)
    go_on = threading.Semaphore(0)

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            done.put(batch + 1)
            go_on.acquire()

    def training() -> None:
        try:
            with plan.bind(model):
                done.put(0)
                go_on.acquire()
                model.fit(data, shuffle=False, verbose=0, callbacks=[Steps()])
        except BaseException as error:
            done.put(error)

    threading.Thread(target=training, daemon=True).start()
    while True:
        step = done.get()
        if isinstance(step, BaseException):
            raise step
        yield step
        go_on.release()


def serve(program: Program, folder: Path) -> Iterator[int]:
    """Calls of a placed SavedModel."""
    import numpy as np
    import tensorflow as tf

    import placer

    path, batch = str(folder / "placed"), inputs_of(program)
    if program.loader == "v1":
        tf1 = tf.compat.v1
        config = tf1.ConfigProto(allow_soft_placement=True)
        with tf.Graph().as_default(), tf1.Session(config=config) as opened:
            loaded = tf1.saved_model.load(opened, ["serve"], path)
            signature = loaded.signature_def["serving_default"]
            names = sorted(signature.inputs)
            feeds = {signature.inputs[n].name: x for n, x in zip(names, batch, strict=True)}
            yield 0
            for step in range(1, STEPS + 1):
                opened.run([o.name for o in signature.outputs.values()], feeds)
                yield step
        return
    if program.loader == "policy":
        options = tf.saved_model.LoadOptions(experimental_variable_policy="save_variable_devices")
        model = tf.saved_model.load(path, options=options)
    else:
        model = placer.load_placed(path, progress=False)
    call = model.signatures["serving_default"]
    names = sorted(call.structured_input_signature[1])
    with tf.device("CPU:0"):
        feeds = {name: tf.constant(value) for name, value in zip(names, batch, strict=True)}
    yield 0
    for step in range(1, STEPS + 1):
        for value in call(**feeds).values():
            np.asarray(value)
        yield step


def session(program: Program, folder: Path) -> Iterator[int]:
    """Steps of a TensorFlow 1 graph whose ops are created where the plan has them."""
    import tensorflow as tf

    from placer.plan.plan import Plan

    tf1 = tf.compat.v1
    plan = Plan.load(folder / "plan.json")
    config = tf1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default(), tf1.device(plan.device_function):
        fetches, inputs = program.build()
        start = tf1.global_variables_initializer()
        with tf1.Session(config=config) as opened:
            opened.run(start)
            feeds = {x: numbers(x.shape, x.dtype.name) for x in inputs}
            yield 0
            for step in range(1, STEPS + 1):
                opened.run(fetches, feeds)
                yield step


def frozen_session(program: Program, folder: Path) -> Iterator[int]:
    """Steps of a placed GraphDef in a session."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    graph_def = tf1.GraphDef.FromString((folder / "placed.pb").read_bytes())
    outputs = json.loads((folder / "write.json").read_text())["outputs"]
    with tf.Graph().as_default() as graph:
        tf1.import_graph_def(graph_def, name="")
        inputs = [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]
        feeds = dict(zip(inputs, inputs_of(program), strict=True))
        with tf1.Session(config=tf1.ConfigProto(allow_soft_placement=True)) as opened:
            yield 0
            for step in range(1, STEPS + 1):
                opened.run(outputs, feeds)
                yield step


def compiled(program: Program) -> Any:
    """The model as ``fit`` wants it."""
    import keras

    keras.utils.set_random_seed(0)
    model = program.build()
    losses = keras.losses
    binary = program.labels[1].startswith("float")
    loss = losses.BinaryCrossentropy if binary else losses.SparseCategoricalCrossentropy
    momentum = program.optimizer == "Momentum"
    optimizer = (
        keras.optimizers.SGD(0.01, momentum=0.9)
        if momentum
        else getattr(keras.optimizers, program.optimizer)(0.01)
    )
    model.compile(optimizer, loss(from_logits=True), jit_compile=False)
    return model


def inputs_of(program: Program) -> list[Any]:
    return [numbers((program.batch, *shape), dtype) for shape, dtype in program.inputs]


def batch_of(program: Program) -> tuple[Any, Any]:
    """Inputs and labels, as ``fit`` takes them."""
    inputs, (shape, dtype) = inputs_of(program), program.labels
    labels = numbers((program.batch, *shape), dtype)
    return (tuple(inputs) if len(inputs) > 1 else inputs[0]), labels


def numbers(shape: Any, dtype: str) -> Any:
    import numpy as np

    rng, shape = np.random.default_rng(0), tuple(int(size) for size in shape)
    if dtype.startswith("float"):
        return rng.uniform(0, 1, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


if __name__ == "__main__":
    main()
