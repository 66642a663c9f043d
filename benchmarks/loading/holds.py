"""``holds.py MODEL LOADER``: bytes by device once MODEL is loaded, and the host's peak, as JSON.

By TensorFlow's own allocators.  That of the CPU hands out whole chunks and splits them only where
that leaves half: for the host, what live variables take is given too.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"

import tensorflow as tf

v1 = tf.compat.v1
PATH, LOADER = sys.argv[1], sys.argv[2]
TAGS = ["serve"] if "--no-tags" not in sys.argv else []


def load() -> Any:
    """Whatever keeps the model alive."""
    if LOADER == "v1":
        session = v1.Session(graph=tf.Graph(), config=v1.ConfigProto(allow_soft_placement=True))
        with session.graph.as_default():
            v1.saved_model.load(session, TAGS, PATH)
        return session
    if LOADER == "load_placed":
        import placer

        return placer.load_placed(PATH, progress=False)
    policy = LOADER if LOADER == "save_variable_devices" else None
    options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
    return tf.saved_model.load(PATH, options=options)


gpus = [f"GPU:{number}" for number in range(len(tf.config.list_logical_devices("GPU")))]
for name in gpus:
    with tf.device(name):
        _ = tf.constant([1.0]) + 1.0


def measure() -> dict[str, dict[str, int]]:
    """What every device holds now and held at most."""
    gc.collect()
    return {name: tf.config.experimental.get_memory_info(name) for name in ("CPU:0", *gpus)}


before = measure()
for name in before:
    tf.config.experimental.reset_memory_stats(name)
loaded = load()
after = measure()
print(
    json.dumps(
        {
            name: [found[key] - before[name]["current"] for key in ("current", "peak")]
            for name, found in after.items()
        }
    )
)
