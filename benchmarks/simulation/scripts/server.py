"""A server's loop: a SavedModel is written, loaded, and answers requests of several threads."""

import queue
import tempfile
import threading

import keras
import numpy as np
import tensorflow as tf

REQUESTS, THREADS = 24, 3

inputs = keras.Input((96, 96, 3))
base = keras.applications.MobileNetV2((96, 96, 3), weights=None, include_top=False, pooling="avg")
model = keras.Model(inputs, keras.layers.Dense(5, "softmax")(base(inputs)))
waiting: queue.Queue = queue.Queue()
answers: list = []


def serve(function) -> None:
    while (request := waiting.get()) is not None:
        outputs = function(tf.constant(request))
        answers.append([value.numpy() for value in outputs.values()])


with tempfile.TemporaryDirectory() as folder:
    model.export(folder)
    loaded = tf.saved_model.load(folder)
    function = loaded.signatures["serving_default"]
    workers = [threading.Thread(target=serve, args=(function,)) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    for number in range(REQUESTS):
        waiting.put(np.full((1 + number % 4, 96, 96, 3), 0.5, "float32"))
    for _ in workers:
        waiting.put(None)
    for worker in workers:
        worker.join()
assert sorted(rows[0].shape for rows in answers)[-1] == (4, 5)
print("last step:", len(answers))
