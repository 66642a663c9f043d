"""Runs the fifteen programs under what ``placer.auto`` chooses, each in a process of its own.

    python benchmarks/published_programs/run.py [NAME ...]
    placer simulate --devices 2xT4 -- python benchmarks/published_programs/run.py --step NAME

Draws are held equal: each is one example's, the same for all examples, parts and steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEVICES, TIGHT = "2xT4", 0.7
"""Devices, and the share of the whole step's need that each gets when something has to be done."""

SEARCH_SECONDS = 2.0

SLOW = """
[[device]]
name = "{name}"
type = "{type}"
memory = "{memory}"
peak_flops = {flops}
memory_bandwidth = {flops}
launch_seconds = 1e-6
"""
"""Accelerators on which such small steps are worth dividing."""


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--step"]:
        one_step(arguments[1])
    elif arguments[:1] in (["--fit"], ["--prints"], ["--again"]):
        task = {"--fit": fitted, "--prints": fingerprints, "--again": again}[arguments[0]]
        print(json.dumps(task(*arguments[1:])), flush=True)
    else:
        from programs import FIFTEEN

        print("| program | 2xT4 | caps at 70% | slow GPUs | fingerprints |", flush=True)
        print("|---|---|---|---|---|", flush=True)
        for name in arguments or [program.name for program in FIFTEEN]:
            found, prints = child("--fit", name), child("--prints", name, hash_seed="1")
            if "error" in found:
                print(f"| {name} | {found['error']} | | | |", flush=True)
                continue
            alike = "equal" if found["prints"] == prints else "differ"
            cells = " | ".join(shown(found[key]) for key in ("wide", "tight", "slow"))
            print(f"| {name} | {cells} | {alike} |", flush=True)


def child(*arguments: str, hash_seed: str = "0") -> Any:
    """What a fresh process in a folder of its own answers."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TF_ENABLE_ONEDNN_OPTS": "0"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).resolve()), *arguments]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode:
        return {"error": "; ".join(ran.stderr.strip().splitlines()[-1:])}
    return json.loads(ran.stdout.strip().splitlines()[-1])


def shown(found: Any) -> str:
    """A cell of the table."""
    if "error" in found:
        return str(found["error"])
    told = f"{found['chosen']}, {found['difference']:.1e}, {found['seconds']:.1f} s"
    return told if found["again"] == "equal" else f"{told}, in another process {found['again']}"


def known(name: str) -> Any:
    """The program of this name."""
    from programs import FIFTEEN

    return next(program for program in FIFTEEN if program.name == name)


def fresh(program: Any) -> Any:
    """The model with the first weights of every such model."""
    import keras

    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    return program.build()


def batch_of(program: Any) -> Any:
    """A batch as ``auto`` takes it, where the model does not say what one is."""
    from programs import BATCH

    found = program.data(BATCH)
    is_bare = len(found) == 1 and not isinstance(found[0], tuple)
    return (found[0] if is_bare else found) if program.needs_data else None


def asked(model: Any, program: Any, devices: str, **options: Any) -> Any:
    """The answer of ``auto``."""
    from programs import BATCH

    import placer

    return placer.auto(model, devices, batch_size=BATCH, data=batch_of(program), **options)


def trained(model: Any, program: Any) -> list[list[float]]:
    """The losses of every batch of three epochs."""
    import keras
    from programs import BATCH, EPOCHS, STEPS

    found: list[list[float]] = []

    class Losses(keras.callbacks.Callback):
        """Keeps the losses of a batch, and forgets them for the next."""

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            del batch
            found.append([float(logs[key]) for key in sorted(logs) if "loss" in key])
            self.model.reset_metrics()

    settings = {"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
    model.fit(*program.data(BATCH * STEPS), callbacks=[Losses()], **settings)
    return found


def fitted(name: str) -> dict[str, Any]:
    """What is chosen, how far its losses are from plain Keras's, and whether they are the same in
    another process that has the saved result: as it is asked for, with caps at a share of what the
    whole needs, and where a batch is worth dividing."""
    two_devices()
    program, prints = known(name), fingerprints(name)
    with draws_held():
        plain = trained(fresh(program), program)
        wide, need = under(program, plain, DEVICES)
        cap = int(TIGHT * need)
        caps = {"max_memory": {"GPU:0": cap, "GPU:1": cap}, "reserve": "0", "margin": 0.0}
        tight, _ = under(program, plain, DEVICES, **caps)
        Path("slow.toml").write_text(slow_gpus())
        slow, _ = under(program, plain, "slow.toml", margin=0.0)
    return {"wide": wide, "tight": tight, "slow": slow, "prints": prints, "plain": plain}


def two_devices() -> None:
    """Two CPU devices in the place of GPUs, on which TensorFlow changes no sum."""
    import tensorflow as tf

    import placer

    placer.rehearsal_devices(2)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def again(name: str, path: str) -> list[list[float]]:
    """The losses in a process that has the saved result alone."""
    import placer

    two_devices()
    program = known(name)
    with draws_held():
        model = fresh(program)
        with placer.AutoResult.load(path).bind(model):
            return trained(model, program)


def slow_gpus() -> str:
    """Two of them, and a host that is slower."""
    rows = [("GPU:0", "GPU", 1e10), ("GPU:1", "GPU", 1e10), ("CPU:0", "CPU", 1e9)]
    return "".join(
        SLOW.format(name=name, type=kind, memory="8GiB", flops=flops) for name, kind, flops in rows
    )


def under(program: Any, plain: Any, devices: str, **options: Any) -> tuple[dict[str, Any], int]:
    """One run under ``auto``, and what the whole needs."""
    model, need, found = fresh(program), 0, dict[str, Any]()
    try:
        begin = time.perf_counter()
        auto = asked(model, program, devices, time_limit=SEARCH_SECONDS, **options)
        need = auto.rows[0].required_bytes["GPU:0"]
        found |= {"chosen": auto.chosen, "seconds": time.perf_counter() - begin}
        found["rows"] = {row.name: row.note for row in auto.rows}
        with auto.bind(model):
            bound = trained(model, program)
        steps = zip(plain[:10], bound, strict=False)
        pairs = [pair for both in steps for pair in zip(*both, strict=True)]
        auto.save("auto.json", force=True)
        losses = child("--again", program.name, os.path.abspath("auto.json"))
        error = losses["error"] if isinstance(losses, dict) else "others"
        found["again"] = "equal" if losses == bound else error
        found["difference"] = max(abs(a - b) / max(abs(a), 1e-6) for a, b in pairs)
    except Exception as error:
        traceback.print_exc()
        found["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found, need


def fingerprints(name: str) -> list[str]:
    """Those of the training step, whole and in two parts where it has any."""
    import placer
    from placer.errors import PlacerError
    from placer.extraction.reading.training_steps import batch_specs, model_specs, trace_step
    from placer.strategies.keras_replicas import divided_train_step
    from placer.strategies.requests import TrainingDivision

    program = known(name)
    model = fresh(program)
    data = batch_of(program)
    specs = model_specs(model) if data is None else batch_specs(data)
    found = [placer.extract(trace_step(model, specs, "train_step")).model["fingerprint"]]
    try:
        method = divided_train_step(model, TrainingDivision(pieces=2))
        function = trace_step(model, specs, "train_step", method)
        found.append(placer.extract(function).model["fingerprint"])
    except PlacerError:
        found.append("")
    return found


def one_step(name: str) -> None:
    """Plans and trains one batch, on the GPUs that there are."""
    program = known(name)
    model = fresh(program)
    auto = asked(model, program, DEVICES)
    from programs import BATCH

    with auto.bind(model, missing="error"):
        model.fit(*program.data(BATCH), batch_size=BATCH, verbose=0)
    print(f"{name}: a step as {auto.chosen}")


@contextmanager
def draws_held() -> Iterator[None]:
    """Has what a graph draws be one example's, for all of them, and the same in every step."""
    import keras
    import tensorflow as tf
    from tensorflow.python.ops import gen_stateless_random_ops as first
    from tensorflow.python.ops import gen_stateless_random_ops_v2 as second

    def of_one_example(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(shape: Any, *arguments: Any, **settings: Any) -> Any:
            shape = tf.convert_to_tensor(shape)
            if tf.executing_eagerly() or shape.shape[0] == 0:
                return draw(shape, *arguments, **settings)
            one = draw(tf.concat([[1], shape[1:]], 0), *arguments, **settings)
            return tf.broadcast_to(one, shape)

        return drawn

    before = [
        (module, name, function)
        for module in (first, second)
        for name, function in vars(module).items()
        if name.startswith("stateless_random_") and callable(function)
        if not any(word in name for word in ("fallback", "get_", "gamma", "binomial"))
    ]
    following = keras.random.SeedGenerator.next
    for module, name, function in before:
        setattr(module, name, of_one_example(function))
    keras.random.SeedGenerator.next = lambda self, **_: self.state.value * 1
    try:
        yield
    finally:
        keras.random.SeedGenerator.next = following
        for module, name, function in before:
            setattr(module, name, function)


if __name__ == "__main__":
    main()
