"""A recommender whose embedding tables do not fit the accelerators.

    python examples/embeddings_on_the_host.py

Two tables of 64 MiB and a tower are placed on two GPUs of 40 MiB.  The tables go to the host
with their lookups, the tower stays on a GPU, and only the looked-up rows cross.
"""

from __future__ import annotations

from typing import Any

BATCH_SIZE = 128
ROWS, WIDTH = 262_144, 64


def build_step() -> Any:
    """A ``tf.function`` from two columns of ids to one score per example."""
    import tensorflow as tf

    tables = [tf.Variable(tf.zeros((ROWS, WIDTH)), name=f"table_{name}") for name in ("a", "b")]
    hidden = tf.Variable(tf.zeros((2 * WIDTH, 2048)), name="hidden")
    middle = tf.Variable(tf.zeros((2048, 1024)), name="middle")
    last = tf.Variable(tf.zeros((1024, 1)), name="last")

    @tf.function(input_signature=[tf.TensorSpec((BATCH_SIZE, 2), tf.int32, name="ids")])
    def score(ids: Any) -> Any:
        columns = [tf.gather(table, ids[:, index]) for index, table in enumerate(tables)]
        return tf.nn.relu(tf.nn.relu(tf.concat(columns, axis=1) @ hidden) @ middle) @ last

    return score


def place_recommender() -> Any:
    """The plan for two GPUs that could not hold one table each."""
    import placer

    caps = {0: "40MiB", 1: "40MiB", "cpu": "1GiB"}
    return placer.place(build_step(), devices="2xGPU", max_memory=caps, time_limit=10)


if __name__ == "__main__":
    plan = place_recommender()
    print(plan.summary())
    for variable, device in sorted(plan.variables.items()):
        print(f"{variable:10} {device}")
