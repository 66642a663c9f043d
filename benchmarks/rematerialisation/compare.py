"""A training step beside the same one rewritten: as JSON, whether they train the same, and how long
a step of each takes.

    python compare.py exact|optimised|timed|in-line GRAPH.pb REWRITTEN.pb [--steps 20]
        [--seconds 20]

``exact``: all losses and, after the last step, all variables, bit for bit, without TensorFlow's
graph optimisation, with deterministic ops (scatter-adds race without).  ``optimised``: the largest
relative difference of a loss with it on.  ``timed``: medians of steps that are run in turns, the
optimisation off.  ``in-line``: the same, one op after another, as a GPU's stream runs them (a
thread between ops, all of them within one).  A program of its own: oneDNN has to be off before
TensorFlow is loaded.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from measure import fed_value, np, ops_of, tf, v1

WARM_STEPS = 3


class Step:
    """The step of one graph, in a session of its own whose variables begin alike."""

    def __init__(self, path: Path, *, optimised: bool, in_line: bool) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            tf.import_graph_def(v1.GraphDef.FromString(path.read_bytes()), name="")
            self.feeds = {op.outputs[0]: fed_value(op) for op in ops_of(self.graph, "Placeholder")}
            outputs = json.loads(path.with_suffix(".json").read_text())["outputs"]
            self.fetches = [self.graph.as_graph_element(output) for output in outputs]
            handles = sorted(ops_of(self.graph, "VarHandleOp"), key=lambda op: op.name)
            starts = [begun(handle, number) for number, handle in enumerate(handles)]
            self.variables = [
                tf.raw_ops.ReadVariableOp(
                    resource=handle.outputs[0], dtype=tf.as_dtype(handle.get_attr("dtype"))
                )
                for handle in handles
            ]
        config = v1.ConfigProto(inter_op_parallelism_threads=int(in_line))
        if not optimised:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = -1
        self.session = v1.Session(graph=self.graph, config=config)
        self.session.run(starts)

    def run(self) -> float:
        """The loss of one step."""
        return float(self.session.run(self.fetches, self.feeds)[0])

    def seconds(self) -> float:
        begun_at = perf_counter()
        self.run()
        return perf_counter() - begun_at

    def values(self) -> list[bytes]:
        """Of all variables."""
        return [np.asarray(value).tobytes() for value in self.session.run(self.variables)]


def begun(handle: Any, number: int) -> Any:
    """The op that gives the variable its first value: positive, as second moments are, and so small
    that what a layer sums up neither grows nor falls."""
    dtype = tf.as_dtype(handle.get_attr("dtype"))
    shape = [side.size for side in handle.get_attr("shape").dim]
    if dtype.is_floating and len(shape) > 1:
        drawn = np.random.default_rng(number).uniform(0, 2 / np.prod(shape[:-1]), shape)
        value = tf.constant(drawn.astype(dtype.as_numpy_dtype))
    else:
        value = tf.fill(shape, tf.cast(0.01, dtype))
    return tf.raw_ops.AssignVariableOp(resource=handle.outputs[0], value=value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("exact", "optimised", "timed", "in-line"))
    parser.add_argument("paths", nargs=2, type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    if given.mode == "exact":
        tf.config.experimental.enable_op_determinism()
    in_line = given.mode == "in-line"
    optimised = given.mode == "optimised"
    steps = [Step(path, optimised=optimised, in_line=in_line) for path in given.paths]
    timed = in_line or given.mode == "timed"
    print(json.dumps(in_turns(steps, given.seconds) if timed else trained(steps, given.steps)))


def trained(steps: list[Step], count: int) -> dict[str, Any]:
    """What so many steps of each come to."""
    losses = [[step.run() for _ in range(count)] for step in steps]
    if not np.isfinite(losses).all() or len(set(losses[0])) < 2:
        raise SystemExit(f"losses that show nothing: {losses[0]}")
    first, second = (step.values() for step in steps)
    worst = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
    return {
        "steps": count,
        "losses": [losses[0][0], losses[0][-1]],
        "losses_equal": losses[0] == losses[1],
        "variables": len(first),
        "variables_equal": first == second,
        "largest_difference": worst,
    }


def in_turns(steps: list[Step], seconds: float) -> dict[str, Any]:
    """The median seconds of a step of each."""
    for _ in range(WARM_STEPS):
        for step in steps:
            step.run()
    took: list[list[float]] = [[], []]
    until = perf_counter() + seconds
    while perf_counter() < until or len(took[0]) < WARM_STEPS:
        for number in (0, 1) if len(took[0]) % 2 else (1, 0):
            took[number].append(steps[number].seconds())
    first, second = map(median, took)
    return {"pairs": len(took[0]), "seconds": [first, second], "extra": second / first - 1}


if __name__ == "__main__":
    main()
