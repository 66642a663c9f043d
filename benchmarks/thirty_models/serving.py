"""Signatures that people serve: text, pictures, sound, recommenders, graphs, loops, tables."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.thirty_models.parts import Dense, save, spec


def example_classifier(path):
    """A canned classifier: ``tf.Example`` in, class names and probabilities out."""
    model, names = tf.Module(), tf.constant([b"cat", b"dog", b"bird"])
    model.tower = Dense([20, 64, 3])

    @tf.function(input_signature=[spec([None], tf.string, "examples")])
    def classify(examples):
        parsed = tf.io.parse_example(
            examples,
            {
                "x": tf.io.FixedLenFeature([16], tf.float32),
                "y": tf.io.FixedLenFeature([4], tf.int64, [0] * 4),
            },
        )
        x = tf.concat([parsed["x"], tf.cast(parsed["y"], tf.float32)], 1)
        scores = tf.nn.softmax(model.tower(x))
        return {"classes": tf.gather(names, tf.argmax(scores, 1)), "scores": scores}

    save(model, path, classify)
    return []


def example_pooled(path):
    """Ragged and sparse features of ``tf.Example``, pooled."""
    model = tf.Module()
    model.words, model.items = tf.Variable(tf.ones([100, 8])), tf.Variable(tf.ones([50, 8]))
    model.tower = Dense([16, 8, 1])

    @tf.function(input_signature=[spec([None], tf.string, "examples")])
    def score(examples):
        parsed = tf.io.parse_example(
            examples,
            {"words": tf.io.RaggedFeature(tf.string), "items": tf.io.VarLenFeature(tf.int64)},
        )
        ids = tf.strings.to_hash_bucket_fast(parsed["words"].values, 100)
        words = parsed["words"].with_values(tf.gather(model.words, ids))
        items = tf.nn.safe_embedding_lookup_sparse(model.items, parsed["items"])
        return {"score": model.tower(tf.concat([tf.reduce_mean(words, axis=1), items], 1))}

    save(model, path, score)
    return ["--ragged", "words=8x5", "--ragged", "items=8x3"]


def png_pictures(path):
    """Encoded pictures, decoded one by one."""
    model = tf.Module()
    model.kernel = tf.Variable(tf.ones([3, 3, 3, 8]))
    model.tower = Dense([8, 4])

    def decoded(picture):
        return tf.image.resize(tf.io.decode_image(picture, 3, expand_animations=False), [32, 32])

    @tf.function(input_signature=[spec([None], tf.string, "pictures")])
    def classify(pictures):
        out = tf.TensorSpec([32, 32, 3], tf.float32)
        x = tf.nn.conv2d(
            tf.map_fn(decoded, pictures, fn_output_signature=out), model.kernel, 2, "SAME"
        )
        return {"scores": model.tower(tf.reduce_mean(x, [1, 2]))}

    save(model, path, classify)
    return []


def spectrogram(path):
    """Sound: a short-time Fourier transform, mel bands, a convolution."""
    model = tf.Module()
    model.kernel, model.tower = tf.Variable(tf.ones([3, 3, 1, 4])), Dense([4, 10])

    @tf.function(input_signature=[spec([None, 4000], tf.float32, "sound")])
    def classify(sound):
        bands = tf.abs(tf.signal.stft(sound, 256, 128))
        mel = tf.signal.linear_to_mel_weight_matrix(40, bands.shape[-1], 16000)
        x = tf.math.log(tf.tensordot(bands, mel, 1) + 1e-6)[..., tf.newaxis]
        return {
            "scores": model.tower(tf.reduce_mean(tf.nn.conv2d(x, model.kernel, 2, "SAME"), [1, 2]))
        }

    save(model, path, classify)
    return []


def detector(path):
    """Boxes and scores on a grid, combined non-maximum suppression."""
    model = tf.Module()
    model.kernel = tf.Variable(tf.random.stateless_normal([3, 3, 3, 9], [1, 2]) * 0.1)

    @tf.function(input_signature=[spec([None, 64, 64, 3], tf.float32, "image")])
    def detect(image):
        x = tf.nn.conv2d(image, model.kernel, 8, "SAME")
        boxes, scores = tf.reshape(x[..., :4], [-1, 64, 1, 4]), tf.reshape(x[..., 4:], [-1, 64, 5])
        found = tf.image.combined_non_max_suppression(boxes, tf.sigmoid(scores), 5, 10)
        return {
            "boxes": found.nmsed_boxes,
            "scores": found.nmsed_scores,
            "count": found.valid_detections,
        }

    save(model, path, detect)
    return []


def greedy_decoder(path):
    """Tokens one after the other in a ``while`` with a cache of keys that grows."""
    model = tf.Module()
    model.table, model.out = tf.Variable(tf.ones([50, 16])), Dense([16, 50])

    @tf.function(input_signature=[spec([None], tf.int32, "first")])
    def generate(first):
        cache = tf.zeros([tf.shape(first)[0], 8, 16])

        def body(step, token, cache, out):
            x = tf.gather(model.table, token)
            place = tf.one_hot(step, 8)[tf.newaxis, :, tf.newaxis]
            cache = cache * (1 - place) + x[:, tf.newaxis] * place
            weights = tf.nn.softmax(tf.einsum("bd,btd->bt", x, cache))
            token = tf.argmax(model.out(tf.einsum("bt,btd->bd", weights, cache)), 1, tf.int32)
            return step + 1, token, cache, out.write(step, token)

        out = tf.TensorArray(tf.int32, 8)
        *_, out = tf.while_loop(lambda step, *_: step < 8, body, [0, first, cache, out])
        return {"tokens": tf.transpose(out.stack())}

    save(model, path, generate)
    return []


def experts(path):
    """A mixture of experts: the best two of four for every example, gathered and scattered."""
    model = tf.Module()
    model.gate = Dense([16, 4])
    model.experts = [Dense([16, 32, 16]) for _ in range(4)]

    @tf.function(input_signature=[spec([None, 16], tf.float32, "x")])
    def mix(x):
        weights, chosen = tf.math.top_k(tf.nn.softmax(model.gate(x)), 2)
        result = tf.zeros_like(x)
        for number, expert in enumerate(model.experts):
            rows = tf.where(tf.reduce_any(chosen == number, 1))
            part = expert(tf.gather_nd(x, rows))
            share = tf.reduce_sum(tf.where(chosen == number, weights, 0.0), 1)
            part *= tf.gather_nd(share, rows)[:, tf.newaxis]
            result = tf.tensor_scatter_nd_add(result, rows, part)
        return {"y": result}

    save(model, path, mix)
    return []


def message_passing(path):
    """A graph network: messages along edges, summed by node."""
    model = tf.Module()
    model.message, model.update = Dense([32, 16]), Dense([32, 16])

    @tf.function(
        input_signature=[spec([None, 16], tf.float32, "nodes"), spec([None, 2], tf.int32, "edges")]
    )
    def step(nodes, edges):
        for _ in range(3):
            ends = tf.concat([tf.gather(nodes, edges[:, 0]), tf.gather(nodes, edges[:, 1])], 1)
            sums = tf.math.unsorted_segment_sum(
                model.message(ends), edges[:, 1], tf.shape(nodes)[0]
            )
            nodes = tf.nn.relu(model.update(tf.concat([nodes, sums], 1)))
        return {"nodes": nodes}

    save(model, path, step)
    return ["--shape", "nodes:8x16", "--shape", "edges:30x2"]


def viterbi(path):
    """The best path through a chain of tags, with ``scan`` forwards and backwards."""
    model = tf.Module()
    model.change = tf.Variable(tf.random.stateless_normal([6, 6], [3, 4]))

    @tf.function(input_signature=[spec([None, 12, 6], tf.float32, "scores")])
    def decode(scores):
        def forward(before, now):
            total = before[0][:, :, tf.newaxis] + model.change
            return tf.reduce_max(total, 1) + now, tf.argmax(total, 1, tf.int32)

        steps = tf.transpose(scores, [1, 0, 2])
        first = steps[0], tf.zeros(tf.shape(steps[0]), tf.int32)
        best, pointers = tf.scan(forward, steps[1:], first)
        last = tf.argmax(best[-1], 1, tf.int32)
        back = tf.scan(lambda tag, p: tf.gather(p, tag, batch_dims=1), pointers, last, reverse=True)
        return {"tags": tf.transpose(tf.concat([back, last[tf.newaxis]], 0))}

    save(model, path, decode)
    return []


def clusters(path):
    """k-means with state: the signature moves its own centres."""
    model = tf.Module()
    model.centres, model.steps = (
        tf.Variable(tf.random.stateless_normal([5, 8], [5, 6])),
        tf.Variable(0),
    )

    @tf.function(input_signature=[spec([None, 8], tf.float32, "x")])
    def learn(x):
        distance = tf.reduce_sum((x[:, tf.newaxis] - model.centres) ** 2, 2)
        nearest = tf.argmin(distance, 1)
        means = tf.math.unsorted_segment_mean(x, nearest, 5)
        model.centres.assign(0.9 * model.centres + 0.1 * means)
        model.steps.assign_add(1)
        return {"nearest": nearest, "steps": model.steps.read_value()}

    save(model, path, learn)
    return []


def retrieval(path):
    """Ids of users as strings, the best of many candidates by name, without those seen."""
    model = tf.Module()
    values = tf.lookup.KeyValueTensorInitializer([f"u{n}" for n in range(99)], list(range(1, 100)))
    model.table = tf.lookup.StaticHashTable(values, 0)
    model.users, model.items = tf.Variable(tf.ones([100, 8])), tf.Variable(tf.ones([500, 8]))
    names = tf.constant([f"item {n}" for n in range(500)])

    @tf.function(
        input_signature=[spec([None], tf.string, "user"), spec([None, 20], tf.int32, "seen")]
    )
    def recommend(user, seen):
        scores = tf.gather(model.users, model.table.lookup(user)) @ tf.transpose(model.items)
        scores -= 1e9 * tf.reduce_max(tf.one_hot(seen, 500), 1)
        best, places = tf.math.top_k(scores, 10)
        return {"names": tf.gather(names, places), "scores": best}

    save(model, path, recommend)
    return []


def sessions(path):
    """Ragged histories, padded, through a recurrence over time."""
    model = tf.Module()
    model.items, model.cell = tf.Variable(tf.ones([100, 16])), Dense([32, 16])

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64, ragged_rank=1)])
    def encode(history):
        steps = tf.transpose(tf.gather(model.items, history.to_tensor()), [1, 0, 2])
        state = tf.zeros([history.nrows(), 16])
        states = tf.scan(lambda h, x: tf.tanh(model.cell(tf.concat([h, x], 1))), steps, state)
        return {"state": states[-1]}

    save(model, path, encode)
    return ["--ragged", "history=8x6"]


def counters(path):
    """A mutable table that counts what it sees."""
    model = tf.Module()
    model.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)

    @tf.function(input_signature=[spec([None], tf.string, "words")])
    def count(words):
        before = model.table.lookup(words)
        model.table.insert(words, before + 1)
        return {"before": before}

    save(model, path, count)
    return []


def quantised(path):
    """Convolutions with fake quantisation between them."""
    model = tf.Module()
    model.kernels = [tf.Variable(tf.ones([3, 3, a, b])) for a, b in ((3, 8), (8, 16))]

    @tf.function(input_signature=[spec([None, 32, 32, 3], tf.float32, "image")])
    def features(image):
        x = tf.quantization.fake_quant_with_min_max_args(image)
        for kernel in model.kernels:
            x = tf.nn.relu6(
                tf.nn.conv2d(
                    x, tf.quantization.fake_quant_with_min_max_vars(kernel, -2.0, 2.0), 2, "SAME"
                )
            )
        return {"features": tf.reduce_mean(x, [1, 2])}

    save(model, path, features)
    return []


def words_of_texts(path):
    """Texts, split and hashed, a bag of words."""
    model = tf.Module()
    model.table = tf.Variable(np.ones([1000, 8], "float32"))

    @tf.function(input_signature=[spec([None], tf.string, "texts")])
    def embed(texts):
        words = tf.strings.split(tf.strings.lower(texts))
        ids = tf.strings.to_hash_bucket_fast(words.values, 1000)
        return {"bag": tf.reduce_mean(words.with_values(tf.gather(model.table, ids)), axis=1)}

    save(model, path, embed)
    return ["--ragged", "StringSplit=8x5"]
