"""What micro-batches save: TensorFlow's allocation records beside the prediction.

    python benchmarks/strategies/peaks.py --out DIR [NAME ...]

Inference graphs of ``benchmarks/graphs.py``, whole and in four pieces, are planned for one CPU,
written by ``placer.apply`` and recorded (``benchmarks/memory_accuracy/record.py``): one step, one
op at a time, nothing optimised.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "memory_accuracy"))
import graphs
import record  # first: it switches oneDNN off
import tensorflow as tf

import placer

PIECES = 4
NAMES = (
    "gru",
    "inception_v3",
    "mlp_mixer",
    "mobilenet_v2",
    "perceptron",
    "recommender",
    "transformer_encoder",
    "vision_transformer",
)


def write_graph(graph: graphs.BenchmarkGraph, folder: Path) -> tuple[Path, list[str]]:
    """The GraphDef of ``graph`` for any batch, and its outputs."""
    import keras

    keras.utils.set_random_seed(0)
    model = graph.build()  # kept here: functions hold their variables weakly
    program, outputs = graphs.flat_program(graphs._step(graph, model, None))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{graph.name}.pb"
    path.write_bytes(program.SerializeToString())
    return path, [name for name in outputs if ":" in name]


def compare(graph: graphs.BenchmarkGraph, batch: int, folder: Path) -> dict[str, list[int]]:
    """Peaks, recorded and predicted, of the whole and of the pieces."""
    path, outputs = write_graph(graph, folder)
    found: dict[str, list[int]] = {"recorded": [], "predicted": []}
    for pieces in (1, PIECES):
        request = {"outputs": tuple(outputs), "batch_size": batch, "time_limit": 2.0}
        plan = placer.place(path, "CPU:0", strategy=f"micro-batches:{pieces}", **request)
        target = path.with_name(f"{path.stem}-{pieces}-pieces.pb")
        placer.apply(path, plan, target, force=True)
        graph_def = tf.compat.v1.GraphDef.FromString(target.read_bytes())
        for node in graph_def.node:
            if node.op == "Placeholder":
                node.attr["shape"].shape.dim[0].size = batch
        metadata, _ = record.run(graph_def, outputs)
        found["recorded"].append(record.peak_bytes(metadata))
        found["predicted"].append(plan.devices[0].peak_expected_bytes)
    return found


def main() -> None:
    """Prints a row per graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    known = {graph.name: graph for graph in graphs.GRAPHS}
    print("| graph | whole, MB | pieces, MB | saved, recorded | saved, predicted | off by |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        batch = max(known[name].batches)
        try:
            found = compare(known[name], batch, arguments.out)
        except placer.errors.PlacerError as error:
            print(f"| {name}, batch {batch} | not divided: {error} | | | | |")
            continue
        saved, expected = (pair[0] - pair[1] for pair in (found["recorded"], found["predicted"]))
        whole, pieces = (size / 1e6 for size in found["recorded"])
        off = expected / saved - 1 if saved else float("nan")
        print(
            f"| {name}, batch {batch} | {whole:.2f} | {pieces:.2f} | {saved / 1e6:.2f} | "
            f"{expected / 1e6:.2f} | {off:+.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
