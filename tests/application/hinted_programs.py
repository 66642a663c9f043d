"""Training programs in TensorFlow 1's graphs, full of colocation hints and small enough to run."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

VOCABULARY, LENGTH, BATCH, WIDTH, HEADS = 40, 8, 2, 16, 2


def transformer(layers: int = 4, *, resources: bool = True, device=None):
    """The graph of one Adam step of a transformer, made as large ones are.

        tokens -> embedding -> layer_0 -> ... -> layer_N -> the embedding again -> loss

    ``tf.gradients`` of TensorFlow 2, which has every backward op name its forward op, slots that
    name their variable, and raw update ops.  ``loss:0`` is fetched, ``train`` run, ``init`` before.
    Without ``resources`` variables are references, as in TensorFlow 1.  ``device`` is a device
    function to build it under.
    """
    with tf.Graph().as_default() as graph, v1.device(device):
        tokens = v1.placeholder(tf.int32, [BATCH, LENGTH + 1], name="tokens")
        with v1.variable_scope("", use_resource=resources):
            table = _variable("embedding", [VOCABULARY, WIDTH])
            x = tf.gather(table, tokens[:, :-1]) + _variable("positions", [LENGTH, WIDTH])
            for number in range(layers):
                with v1.variable_scope(f"layer_{number}"):
                    x = _layer(x)
            logits = tf.einsum("blw,vw->blv", x, table)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens[:, 1:], logits)
            loss = tf.reduce_mean(losses, name="loss")
            _adam(loss, v1.trainable_variables())
        v1.global_variables_initializer()
    return graph


def _variable(name, shape):
    seed = sum(map(ord, v1.get_variable_scope().name + name))
    start = np.random.default_rng(seed).normal(0.0, 0.1, shape).astype(np.float32)
    return v1.get_variable(name, initializer=start)


def _layer(x):
    normed = _normed(x, "norm_1")
    query, key, value = (
        tf.einsum("blw,whd->bhld", normed, _variable(name, [WIDTH, HEADS, WIDTH // HEADS]))
        for name in ("query", "key", "value")
    )
    scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * (HEADS / WIDTH) ** 0.5)
    mixed = _variable("output", [HEADS, WIDTH // HEADS, WIDTH])
    x = x + tf.einsum("bhld,hdw->blw", tf.matmul(scores, value), mixed)
    inner = tf.einsum("blw,wf->blf", _normed(x, "norm_2"), _variable("inner", [WIDTH, 4 * WIDTH]))
    return x + tf.einsum("blf,fw->blw", tf.tanh(inner), _variable("outer", [4 * WIDTH, WIDTH]))


def _normed(x, name):
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    spread = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + 1e-5)
    return centred * spread * (1.0 + _variable(name, [WIDTH]))


def _adam(loss, variables):
    gradients = tf.gradients(loss, variables)
    with v1.colocate_with(variables[0]):
        powers = [v1.get_variable(f"beta_{n}", initializer=b) for n, b in ((1, 0.9), (2, 0.99))]
    gradients = list(map(tf.convert_to_tensor, gradients))
    rates = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}
    updates = []
    for variable, gradient in zip(variables, gradients, strict=True):
        with v1.colocate_with(variable):
            zeros = np.zeros(variable.shape, np.float32)
            slots = [v1.get_variable(f"{variable.op.name}/{n}", initializer=zeros) for n in "mv"]
        state = dict(zip(("var", "m", "v"), (variable, *slots), strict=True))
        state |= {"beta1_power": powers[0].value(), "beta2_power": powers[1].value()}
        with tf.control_dependencies(gradients):  # no update before all weights were read
            updates.append(_update(state, {**rates, "grad": gradient}))
    with tf.control_dependencies(updates):
        decays = [
            power.assign(power * beta).op for power, beta in zip(powers, (0.9, 0.99), strict=True)
        ]
    tf.group(*updates, *decays, name="train")


def _update(state, rates):
    if hasattr(state["var"], "handle"):
        handles = {key: state[key].handle for key in ("var", "m", "v")}
        return tf.raw_ops.ResourceApplyAdam(**{**state, **handles}, **rates)
    references = {key: state[key]._ref() for key in ("var", "m", "v")}
    return tf.raw_ops.ApplyAdam(**{**state, **references}, **rates).op


def batches(count: int):
    """Tokens of ``count`` steps, the same every time."""
    rng = np.random.default_rng(7)
    shape = (count, BATCH, LENGTH + 1)
    return list(rng.integers(0, VOCABULARY, shape).astype(np.int32))
