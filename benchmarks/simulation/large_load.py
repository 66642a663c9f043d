"""A SavedModel of 20 GiB, loaded by ``load_placed`` on simulated GPUs: how much the host takes.

    python benchmarks/simulation/large_load.py [--gigabytes 20] [--limit-gigabytes 8]

Writes the model on simulated GPUs (its variables are zeros, and its checkpoint's files are links
to one file of 256 MiB, so that it takes no disk), places it on two T4s, applies the plan, and loads
it and serves a request by ``placer simulate``.  A process that loads is ended once it holds more
than the limit; the most that it held is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GIB = 1 << 30
WIDTH = 8192
LAYER_BYTES = 4 * WIDTH * WIDTH
DEVICES = "2xT4"


def network(layers: int, width: int) -> Any:
    """Square layers one after another; on a simulated GPU they take no memory of the host."""
    import tensorflow as tf

    class Network(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            with tf.device("GPU:0"):
                self.weights = [
                    tf.Variable(tf.zeros((width, width)), name=f"weight_{n}") for n in range(layers)
                ]

        @tf.function(input_signature=[tf.TensorSpec((1, width), name="x")])
        def run(self, x: Any) -> Any:
            for weight in self.weights:
                x = tf.nn.relu(tf.linalg.matmul(x, weight))
            return {"y": x}

    return Network()


def write(folder: Path, layers: int) -> None:
    """The graph from TensorFlow, and a checkpoint whose shards are links to one file."""
    import placer

    placer.simulate_gpus("GPU:60GiB")
    import tensorflow as tf
    from tensorflow.python.saved_model.save import save_and_return_nodes

    model = network(layers, WIDTH)
    save_and_return_nodes(model, str(folder), {"serving_default": model.run}, None, True)
    small = tf.train.Checkpoint(network(layers, 1))
    structure = tf.train.load_checkpoint(small.save(str(folder / "small" / "ckpt")))
    names = [name for name in structure.get_variable_to_shape_map() if name.startswith("weights")]
    graph = structure.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    shards = folder / "shards"
    shards.mkdir()
    zeros = tf.zeros((WIDTH, WIDTH))
    rows = [*((name, zeros) for name in names), ("_CHECKPOINTABLE_OBJECT_GRAPH", graph)]
    prefixes = [str(shards / str(number)) for number in range(len(rows))]
    for prefix, (name, value) in zip(prefixes, rows, strict=True):
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=prefix, tensor_names=[name], shape_and_slices=[""], tensors=[value]
            )
        data = Path(f"{prefix}.data-00000-of-00001")
        first = Path(f"{prefixes[0]}.data-00000-of-00001")
        if data != first and data.stat().st_size == first.stat().st_size:
            data.unlink()
            data.hardlink_to(first)
    (folder / "variables").mkdir(exist_ok=True)
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=prefixes,
        destination_prefix=str(folder / "variables" / "variables"),
        delete_old_dirs=False,
    )


def serve(placed: Path) -> None:
    """Loads the placed model and answers one request; prints what every GPU holds then."""
    import placer

    loaded = placer.load_placed(str(placed), progress=False)
    import tensorflow as tf

    answer = loaded.signatures["serving_default"](tf.zeros((1, WIDTH)))["y"]
    held = [tf.config.experimental.get_memory_info(f"GPU:{number}") for number in (0, 1)]
    print(json.dumps({"shape": answer.shape.as_list(), "held": [row["current"] for row in held]}))


def resident_bytes(process: int) -> int:
    """The most that a process has held so far of the host's memory; 0 where it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    rows = [line.split() for line in status.splitlines() if line.startswith("VmHWM")]
    return int(rows[0][1]) * 1024 if rows else 0


def descendants(process: int) -> list[int]:
    """A process and all that it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(row for child in children for row in descendants(int(child)))]


def run_held(command: list[str], limit_bytes: int) -> tuple[str, int]:
    """What ``command`` prints, and the most that one of its processes held; ends it above."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            found = descendants(process.pid)
            most = max(most, *map(resident_bytes, found))
            if most > limit_bytes:
                for each in reversed(found):
                    os.kill(each, 9)
                raise SystemExit(f"a process held {most / GIB:.2f} GiB")
            time.sleep(0.05)
        assert process.stdout is not None
        if process.returncode:
            raise SystemExit(process.returncode)
        return process.stdout.read(), most


def main() -> None:
    """Prints each step with its seconds, and at the end what was held where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=int, default=20)
    parser.add_argument("--limit-gigabytes", type=float, default=8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("step", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    layers = arguments.gigabytes * GIB // LAYER_BYTES
    if arguments.step:
        step, path = arguments.step
        return write(Path(path), layers) if step == "write" else serve(Path(path))
    python, this = sys.executable, str(Path(__file__).resolve())
    limit_bytes = int(arguments.limit_gigabytes * GIB)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        model, placed = Path(temporary) / "model", Path(temporary) / "placed"
        plan = Path(temporary) / "plan.json"
        size = ["--gigabytes", str(arguments.gigabytes)]
        placer = [python, "-m", "placer"]
        simulate = [*placer, "simulate", "--devices", DEVICES, "-q", "-o", f"{temporary}/run.txt"]
        for command in (
            [python, this, *size, "write", str(model)],
            [*placer, "place", str(model), "--devices", DEVICES, "-q", "-o", str(plan)],
            [*placer, "apply", str(model), str(plan), "-o", str(placed), "-q"],
            [*simulate, "--", python, this, "serve", str(placed)],
        ):
            began = time.monotonic()
            printed, most = run_held(command, limit_bytes)
            words = " ".join(word for word in command if word.isalpha())
            print(f"{words}: {time.monotonic() - began:.0f} s, {most / GIB:.2f} GiB at most")
        print(printed.splitlines()[-1])


if __name__ == "__main__":
    main()
