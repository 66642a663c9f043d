"""TensorFlow 1: a tower on every GPU, averaged gradients, a loop in the graph, a saver."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.client import device_lib

STEPS, BATCH, LENGTH = 5, 32, 12

tf.disable_eager_execution()
gpus = [row.name for row in device_lib.list_local_devices() if row.device_type == "GPU"]

x = tf.placeholder(tf.float32, (None, LENGTH, 64))
y = tf.placeholder(tf.int64, (None,))
optimizer = tf.train.MomentumOptimizer(0.1, 0.9)


def tower(inputs, labels):
    kernel = tf.get_variable("kernel", (64 + 128, 128))
    last = tf.get_variable("last", (128, 7))

    def body(time, state):
        joined = tf.concat([inputs[:, time], state], axis=1)
        return time + 1, tf.tanh(tf.matmul(joined, kernel))

    start = tf.zeros((tf.shape(inputs)[0], 128))
    _, state = tf.while_loop(lambda time, _: time < LENGTH, body, (0, start))
    logits = tf.matmul(state, last)
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


found, losses = [], []
parts = zip(gpus, tf.split(x, len(gpus)), tf.split(y, len(gpus)), strict=True)
for index, (gpu, inputs, labels) in enumerate(parts):
    with tf.device(gpu), tf.variable_scope("model", reuse=index > 0):
        losses.append(tower(inputs, labels))
        found.append(optimizer.compute_gradients(losses[-1]))
averaged = [
    (tf.add_n([gradient for gradient, _ in rows]) / len(gpus), rows[0][1])
    for rows in zip(*found, strict=True)
]
step = tf.train.get_or_create_global_step()
train = optimizer.apply_gradients(averaged, step)
saver = tf.train.Saver()

random = np.random.default_rng(0)
config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
with tf.Session(config=config) as session, tempfile.TemporaryDirectory() as folder:
    session.run(tf.global_variables_initializer())
    for _ in range(STEPS):
        feed = {x: random.random((BATCH, LENGTH, 64)), y: random.integers(0, 7, BATCH)}
        *_, reached = session.run([train, tf.add_n(losses), step], feed)
    path = saver.save(session, os.path.join(folder, "model"), global_step=step)
    saver.restore(session, path)
    reached = session.run(step)
print("towers:", len(gpus))
print("last step:", reached)
