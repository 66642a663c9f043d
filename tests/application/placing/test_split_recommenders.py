"""A plan with a table in parts, applied: parts where the plan says, outputs those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import split_tables as tables
import tensorflow as tf

import placer
from placer.application.placing.placed_programs import clear
from placer.errors import UsageError
from placer.extraction.files.sources import file_hash


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """A model, its plan with the table in four parts, and the placed model."""
    folder = tmp_path_factory.mktemp("recommender")
    tables.export_recommender(folder / "model")
    plan = placer.place(
        folder / "model",
        "2xGPU:8MB",
        signature="serving_default",
        batch_size=32,
        split_tables={"users": 4},
        pins={"users/part_[01]": "GPU:0", "users/part_2": "GPU:1", "users/part_3": "CPU:0"},
        work_limit=200,
    )
    placer.apply(folder / "model", plan, folder / "placed", rehearse=True)
    return folder, plan


def test_parts_run_where_the_plan_says_and_give_what_the_whole_gives(placed):
    """TensorFlow's partition graphs, against the unplaced whole, from either file."""
    folder, plan = placed
    assert len({plan.variables[f"users/part_{number}"] for number in range(4)}) == 3
    ids = {"user": tables.edge_ids(4)}
    found = placer.verify(folder / "model", plan, ids)
    found.raise_for_mismatch()
    assert [row.equal for row in found.outputs] == [True, True, True]
    held = {row.variable: row.requested for row in found.variables}
    assert held["users/part_2"] == "GPU:1"


def test_the_placed_model_links_the_weights(placed):
    """The data is the same file; what is loaded from it computes the same."""
    folder, _ = placed
    files = [
        folder / name / "variables" / f"variables.data-00000-of-0000{shards}"
        for name, shards in (("model", 1), ("placed", 2))
    ]
    assert files[0].samefile(files[1])
    ids = tf.constant(tables.edge_ids(4))
    whole, split = (
        tf.saved_model.load(folder / name).signatures["serving_default"](user=ids)
        for name in ("model", "placed")
    )
    assert all(tables.same_bits(whole[key], split[key]) for key in whole)


def test_the_plan_knows_the_file_that_it_was_made_for(placed):
    """The hash is of the model that was given; the placed one is not split again."""
    folder, plan = placed
    assert plan.model["sha256"] == file_hash(folder / "model" / "saved_model.pb")
    assert plan.model["path"] == str(folder / "model")
    placer.apply(folder / "placed", plan, folder / "again", rehearse=True)
    first, second = (
        tf.saved_model.load(folder / name).signatures["serving_default"](
            user=np.arange(8, dtype=np.int32)
        )
        for name in ("placed", "again")
    )
    assert all(tables.same_bits(first[key], second[key]) for key in first)


@pytest.mark.parametrize("is_dropped", [False, True], ids=["twice", "once"])
def test_what_keras_exports_is_split_with_its_copies(tmp_path, is_dropped):
    """A table twice in the file, both in parts, or its copy dropped before: every loader gives
    what it gave."""
    import keras

    ids = [keras.Input([], dtype="int32", name=name) for name in ("user", "item")]
    rows = [
        keras.layers.Embedding(n, 8, name=f"of_{n}")(x) for n, x in zip((60, 20), ids, strict=True)
    ]
    scores = keras.layers.Dense(1)(keras.layers.Concatenate()(rows))
    keras.Model(ids, scores).export(tmp_path / "model", verbose=False)
    if is_dropped:
        (tmp_path / "model").rename(tmp_path / "whole")
        clear(str(tmp_path / "whole"), tmp_path / "model", drop_unused=True)
    name = "of_60/embeddings_1"
    plan = placer.place(
        tmp_path / "model",
        "2xGPU:8MB",
        batch_size=4,
        split_tables={name: 3},
        pins={f"{name}/part_0": "GPU:0", f"{name}/part_1": "GPU:1", f"{name}/part_2": "CPU:0"},
        work_limit=50,
    )
    placer.apply(tmp_path / "model", plan, tmp_path / "placed", rehearse=True)
    placer.apply(tmp_path / "model", plan, tmp_path / "small", rehearse=True, drop_unused=True)
    feeds = {"user": np.array([0, 19, 20, 59], np.int32), "item": np.arange(4, dtype=np.int32)}
    found = [in_session(tmp_path / name, feeds) for name in ("model", "placed", "small")]
    for load, names in (
        (tf.saved_model.load, ("model", "placed", "small")),
        (placer.load_placed, ("placed", "small")),
    ):
        for name in names:
            call = load(str(tmp_path / name)).signatures["serving_default"]
            found.append(call(**{key: tf.constant(value) for key, value in feeds.items()}))
    assert all(tables.same_bits(found[0]["output_0"], other["output_0"]) for other in found)


def in_session(folder, feeds):
    """The outputs of a model in a session, as TensorFlow Serving runs it."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ["serve"], str(folder)).signature_def
        signature = signature["serving_default"]
        values = {signature.inputs[key].name: value for key, value in feeds.items()}
        return session.run({k: info.name for k, info in signature.outputs.items()}, values)


def test_nothing_is_written_inside_of_the_model(placed):
    """Although the model that is read is a copy, which is elsewhere."""
    folder, plan = placed
    before = sorted((folder / "model").rglob("*"))
    with pytest.raises(UsageError, match="inside of the model"):
        placer.apply(folder / "model", plan, folder / "model" / "assets" / "placed", rehearse=True)
    assert sorted((folder / "model").rglob("*")) == before
