"""TensorFlow 1: a monitored session with hooks, a scaffold of savers and a decaying rate."""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

STEPS, BATCH = 10, 64

tf.disable_v2_behavior()
data = np.random.default_rng(0).random((BATCH * STEPS, 100), "float32")

x, y = tf.data.make_one_shot_iterator(
    tf.data.Dataset.from_tensor_slices((data, (data[:, 0] * 10).astype("int32"))).batch(BATCH)
).get_next()
hidden = x
for index, width in enumerate((512, 512)):
    kernel = tf.get_variable(f"kernel_{index}", (hidden.shape[-1], width))
    bias = tf.get_variable(f"bias_{index}", (width,), initializer=tf.zeros_initializer())
    hidden = tf.nn.dropout(tf.nn.relu(tf.matmul(hidden, kernel) + bias), rate=0.1)
logits = tf.matmul(hidden, tf.get_variable("last", (512, 10)))
loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
accuracy = tf.reduce_mean(
    tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32)
)
step = tf.train.get_or_create_global_step()
rate = tf.train.exponential_decay(0.01, step, 5, 0.9, staircase=True)
train = tf.train.AdamOptimizer(rate).minimize(loss, step)
tf.summary.scalar("loss", loss)
tf.summary.histogram("last", tf.trainable_variables()[-1])

with tempfile.TemporaryDirectory() as folder:
    hooks = [
        tf.train.StopAtStepHook(last_step=STEPS),
        tf.train.LoggingTensorHook({"loss": loss, "accuracy": accuracy}, every_n_iter=5),
        tf.train.NanTensorHook(loss),
    ]
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=4, save_summaries_steps=4
    ) as session:
        reached = 0
        while not session.should_stop():
            session.run(train)
            reached += 1
    assert tf.train.latest_checkpoint(folder).endswith(f"-{STEPS}")
print("last step:", reached)
