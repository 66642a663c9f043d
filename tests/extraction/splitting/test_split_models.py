"""Splitting a table changes where it lies, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import split_tables as tables
import tensorflow as tf

from placer.errors import ModelError, UsageError
from placer.extraction import extract
from placer.extraction.splitting.split_graphs import find_tables
from placer.extraction.splitting.split_models import split_model
from placer.graph.stored_variables import sum_bytes

v1 = tf.compat.v1
PARTS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folders of a model and of the same with its table split."""
    folder = tmp_path_factory.mktemp("split")
    tables.export_recommender(folder / "whole")
    split_model(folder / "whole", {"users": PARTS}, folder / "split", weights=True)
    return folder / "whole", folder / "split"


def test_outputs_are_those_of_the_whole_to_the_bit(models):
    """Where parts begin and end, NaNs and negative zeros; ids of both kinds."""
    whole, split = (tf.saved_model.load(folder).signatures for folder in models)
    ids = tables.edge_ids(PARTS)
    expected, found = (m["serving_default"](user=tf.constant(ids)) for m in (whole, split))
    assert {key: tables.same_bits(expected[key], found[key]) for key in expected} == dict.fromkeys(
        ("rows", "pairs", "score"), True
    )
    sizes = [m["size"](user=tf.constant(ids, tf.int64))["rows"].numpy() for m in (whole, split)]
    assert sizes[0].tolist() == sizes[1].tolist()


def test_a_session_loads_it_too(models):
    """The restore of TensorFlow 1 and of TensorFlow Serving knows the parts."""
    ids = tables.edge_ids(PARTS)
    found = []
    for folder in models:
        with tf.Graph().as_default(), v1.Session() as session:
            loaded = v1.saved_model.load(session, ["serve"], str(folder))
            signature = loaded.signature_def["serving_default"]
            feed = {signature.inputs["user"].name: ids}
            found.append(session.run(signature.outputs["score"].name, feed))
    assert tables.same_bits(*found)


@pytest.mark.parametrize("bad", [-1, tables.USERS])
def test_an_id_that_the_whole_refuses_is_refused(models, bad):
    """Clipping hides none."""
    for folder in models:
        loaded = tf.saved_model.load(folder)
        with pytest.raises(tf.errors.InvalidArgumentError):
            loaded.signatures["serving_default"](user=tf.constant([bad], tf.int32))


def test_the_checkpoint_keeps_its_bytes_and_the_whole(models):
    """Data is linked; the whole is there under its name, and the parts are its rows."""
    whole, split = (folder / "variables" / "variables" for folder in models)
    data = split.with_name("variables.data-00000-of-00002")
    assert data.resolve() == whole.with_name("variables.data-00000-of-00001").resolve()
    reader = tf.train.load_checkpoint(str(split))
    key = "users/%s.ATTRIBUTES/VARIABLE_VALUE"
    rows = tf.train.load_checkpoint(str(whole)).get_tensor(key % "")
    assert tables.same_bits(reader.get_tensor(key % ""), rows)
    parts = [reader.get_tensor(key % f"part_{number}/") for number in range(PARTS)]
    assert [len(part) for part in parts] == [1666, 1667, 1667]
    assert tables.same_bits(np.concatenate(parts), rows)


MEASURED = """
import json, sys
from pathlib import Path
import tensorflow as tf
from placer.extraction.splitting.parts import Table
from placer.extraction.splitting.split_checkpoints import split_checkpoint

def peak():
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return 1024 * int(status.split()[0])

def there_and_back(folder, rows):
    table = Table(name="w", shape=(rows, 64), count=4)
    split_checkpoint(folder / "ck", folder / "split", {"w": table})
    pieces = [str(folder / f"piece_{number}") for number in range(4)]
    for name, span, piece in zip(table.parts("w"), table.spans, pieces):
        (part,) = tf.raw_ops.RestoreV2(prefix=str(folder / "split/ck"), tensor_names=[name],
                                       shape_and_slices=[""], dtypes=[tf.float32])
        tf.raw_ops.SaveV2(prefix=piece, tensor_names=["w"], shape_and_slices=[span],
                          tensors=[part])
        del part
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=pieces,
                                  destination_prefix=str(folder / "back"))

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
there_and_back(folder / "small", 100_000)
before = peak()
there_and_back(folder, rows)
print(json.dumps([peak() - before, 4 * 64 * rows // 4]))
"""


@pytest.mark.slow
def test_one_slice_of_memory_is_enough(tmp_path):
    """A whole is restored part by part, and these saved back into a whole, in 1.3 times a part: in
    a process of its own, whose highest memory Linux knows."""
    rows = 600_000
    value = tf.reshape(tf.range(rows * 64, dtype=tf.float32) % 7, [rows, 64])
    (tmp_path / "small").mkdir()
    for folder, some in ((tmp_path, value), (tmp_path / "small", value[:100_000])):
        tf.raw_ops.SaveV2(
            prefix=str(folder / "ck"), tensor_names=["w"], shape_and_slices=[""], tensors=[some]
        )
    command = [sys.executable, "-c", MEASURED, str(tmp_path), str(rows)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    taken, part = json.loads(output.splitlines()[-1])
    assert taken <= 1.3 * part
    back = tf.train.load_checkpoint(str(tmp_path / "back")).get_tensor("w")
    assert tables.same_bits(back, value)


def test_a_copy_that_no_call_reads_is_not_suggested():
    """Keras exports each variable twice."""
    graph_def = tf.compat.v1.GraphDef()
    for name in ("words/embeddings", "words/embeddings_1"):
        graph_def.node.add(name=name, op="VarHandleOp")
    graph_def.node.add(name="f", op="StatefulPartitionedCall", input=["words/embeddings_1"])
    with pytest.raises(UsageError, match=r"did you mean words/embeddings_1\?$"):
        find_tables(graph_def, {"words": 4})


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ({"clients": 2}, UsageError, "there is no variable 'clients' to split"),
        ({"items": 101}, ModelError, "cannot be split into 101 parts: it takes from 2 to 100"),
        ({"last": 2}, ModelError, "last cannot be split by rows: .*MatMul"),
    ],
)
def test_what_cannot_be_split_is_named(models, tmp_path, counts, error, message):
    """The variable, the op in the way, and nothing written."""
    with pytest.raises(error, match=message):
        split_model(models[0], counts, tmp_path / "out", weights=True)
    assert not (tmp_path / "out").exists()


def test_a_model_is_analysed_split_without_its_weights_and_has_them(models, tmp_path):
    """The copy that is read lacks them, which is no news of the model; a model without is told."""
    splits = {"users": PARTS}
    found = extract(models[0], signature="serving_default", batch_size=4, splits=splits)
    assert [code for code, _, _ in found.warnings if code == "no_weights"] == []
    bare = shutil.copytree(models[0], tmp_path / "bare", ignore=shutil.ignore_patterns("*.data-*"))
    found = extract(bare, signature="serving_default", batch_size=4, splits=splits)
    assert [code for code, _, _ in found.warnings if code == "no_weights"] == ["no_weights"]


def test_copies_of_parts_are_copies(tmp_path):
    """A split model has as much that is loaded and not used as the whole one, to the byte."""
    import keras

    user = keras.Input([], dtype="int32", name="user")
    rows = keras.layers.Embedding(1000, 4, name="users")(user)
    model = keras.Model(user, keras.layers.Dense(7)(rows))
    model.export(tmp_path / "model", verbose=False)  # writes each variable twice
    found = [
        extract(tmp_path / "model", signature="serving_default", batch_size=4, splits=splits).stored
        for splits in ({}, {"users/embeddings_1": PARTS})
    ]
    whole, split = ([v for v in stored.unused if v.copy_of] for stored in found)
    assert (len(whole), len(split)) == (3, 2 + PARTS)
    assert sum_bytes(whole) == sum_bytes(split) == 4 * model.count_params()
    assert [sum_bytes(stored.variables) for stored in found] == [8 * model.count_params()] * 2


def test_parts_are_not_split_anew(models, tmp_path):
    """A model that is in four parts is not in two."""
    split_model(models[0], {"users": 4}, tmp_path / "four", weights=True)
    with pytest.raises(UsageError, match=r"did you mean users/part_0"):
        split_model(tmp_path / "four", {"users": 2}, tmp_path / "two", weights=True)


@pytest.mark.parametrize(
    ("value", "ids", "message"),
    [
        (["aa", "bb", "cc", "dd"], "int32", r"its elements \(string\) have no fixed size"),
        (np.zeros((40_000, 1), np.float32), "int16", "ids of a type too small"),
    ],
)
def test_tables_that_rows_cannot_be_told_in_are_refused(tmp_path, value, ids, message):
    """Strings lie one behind another in no fixed size; ids of 16 bits do not count 40,000 rows."""
    module = tf.Module()
    module.users = tf.Variable(value, name="users")
    spec = [tf.TensorSpec([None], ids, name="user")]
    module.read = tf.function(
        lambda user: (
            tf.raw_ops.ResourceGather(
                resource=module.users.handle, indices=user, dtype=module.users.dtype
            )
            if ids != "int16"
            else tf.raw_ops.GatherV2(params=module.users.read_value(), indices=user, axis=0)
        ),
        input_signature=spec,
    )
    tf.saved_model.save(module, tmp_path / "model", signatures=module.read)
    with pytest.raises(ModelError, match=message):
        split_model(tmp_path / "model", {"users": 2}, tmp_path / "out", weights=True)


def test_a_damaged_index_is_told(models, tmp_path):
    """A checkpoint whose index is cut off ends in an error that names it."""
    broken = tmp_path / "model"
    (broken / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (broken / name).write_bytes((models[0] / name).read_bytes())
    index = broken / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:-30])
    with pytest.raises(ModelError, match="index"):
        split_model(broken, {"users": 2}, tmp_path / "out", weights=True)


def train(path, saved):
    """Twenty losses, and the state behind them, saved by the graph's own saver and by a new one."""
    draws = np.random.default_rng(0)
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(str(path))
        session.run(v1.global_variables_initializer())
        (loss,), (step,) = v1.get_collection("losses"), v1.get_collection("train_op")
        losses = []
        for _ in range(20):
            feeds = {"ids:0": draws.integers(0, 300, 64), "wanted:0": draws.normal(size=(64, 1))}
            losses.append(session.run([loss, step], feeds)[0])
        prefixes = [saver.save(session, f"{saved}_own"), f"{saved}_new"]
        v1.train.Saver().save(session, prefixes[1])
    readers = [tf.train.load_checkpoint(prefix) for prefix in prefixes]
    return losses, [
        {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        for reader in readers
    ]


@pytest.mark.parametrize(("name", "slots"), [("sgd", 0), ("adagrad", 1), ("ftrl", 2)])
def test_twenty_losses_and_the_checkpoint_are_those_of_the_whole(tmp_path, name, slots):
    """Rows are updated in their parts, slots alike, and savers save one whole tensor."""
    names = ["users", "users/Adagrad"] if slots == 1 else ["users", "users/Ftrl", "users/Ftrl_1"]
    tables.export_training(tmp_path / "whole.meta", name)
    counts = dict.fromkeys(names[: slots + 1], PARTS)
    split_model(tmp_path / "whole.meta", counts, tmp_path / "split.meta", weights=False)
    losses, states = train(tmp_path / "whole.meta", tmp_path / "a")
    found, kept = train(tmp_path / "split.meta", tmp_path / "b")
    assert found == losses
    for state in kept:
        assert state.keys() == states[0].keys()
        assert all(tables.same_bits(state[key], states[0][key]) for key in state)


def test_slots_must_be_split_too(tmp_path):
    """An update of a table and its slot takes both or none, which the error says."""
    tables.export_training(tmp_path / "whole.meta", "adagrad")
    with pytest.raises(ModelError, match="updates users/Adagrad, too, which must be split"):
        split_model(tmp_path / "whole.meta", {"users": 2}, tmp_path / "x.meta", weights=False)
