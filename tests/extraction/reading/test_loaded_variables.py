"""What loaders of a SavedModel restore, reached by the signature or not."""

from __future__ import annotations

import shutil

import pytest
import tensorflow as tf
from extraction.reading.tower_models import Towers, save_session_model, save_towers

from cost_models.clusters import parse_cluster
from placer.errors import UsageError
from placer.extraction.files.sources import read_source
from placer.extraction.reading.checkpoint_index import read_index
from placer.extraction.reading.loaded_variables import restored_handles
from placer.extraction.reading.loading import load_program
from placer.pipeline.stored_bytes import loading_facts
from placer.plan.loading_facts import PLAIN, SESSION

v1 = tf.compat.v1


class CountingTowers(Towers):
    """With a variable of int32 that nothing reads."""

    def __init__(self):
        super().__init__("user")
        self.counts = tf.Variable(tf.range(7), name="counts")


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """A SavedModel of TensorFlow 2 with three signatures."""
    return save_towers(tmp_path_factory.mktemp("towers") / "model", CountingTowers())


@pytest.fixture(scope="module", params=[True, False], ids=["resource", "reference"])
def session_model(request, tmp_path_factory):
    """A SavedModel as a session of TensorFlow 1 writes it."""
    folder = tmp_path_factory.mktemp("session") / "model"
    return save_session_model(folder, resources=request.param, unused="rest")


def stored(folder, signature=None):
    """What is stored beside the program of a signature."""
    program = load_program(folder, signature=signature)
    return program.find_stored(program)


def test_unused_variables_are_found_with_what_they_are(towers):
    """The copy is known by its checksum, the slot goes with its variable, the item table is read
    by another signature; int32 stays in host memory."""
    found = stored(towers)
    by_name = {item.name: item for item in found.objects}
    assert {name for name, item in by_name.items() if item.handle} == {"user"}
    assert by_name["again"].copy_of == "user"
    assert by_name["slot"].follows == by_name["user"].handle
    assert by_name["item"].signatures == ("embed",)
    assert by_name["counts"].host_only
    assert {item.name: item.bytes for item in found.unused} == {
        **{"again": 50 * 8 * 4, "slot": 50 * 8 * 4},
        **{"item": 90 * 8 * 4, "counts": 7 * 4},
    }
    assert sum(found.host_bytes) == 50 * 8 * 4 + 90 * 8 * 4 + 7 * 4
    assert found.following_bytes == {by_name["user"].handle: 50 * 8 * 4}


def test_another_signature_uses_others(towers):
    """What is used is a matter of the signature that was chosen."""
    assert [item.name for item in stored(towers, "embed").objects if item.handle] == ["item"]


def test_objects_and_the_restore_op_agree(towers):
    """Both loaders restore the same bytes, under the same keys."""
    found = stored(towers)
    assert {(v.name, v.bytes) for v in found.objects} == {(v.name, v.bytes) for v in found.nodes}


def test_models_of_sessions_are_read_through_their_restore_op(session_model):
    """They have no objects; reference variables are where their nodes are in every loader."""
    found = stored(session_model)
    assert not found.objects
    assert {v.name: bool(v.handle) for v in found.nodes} == {
        "table": True,
        "w": True,
        "rest": False,
    }
    meta_graph = read_source(session_model).meta_graphs[0]
    references = {node.name for node in meta_graph.graph_def.node if node.op == "VariableV2"}
    assert all(v.by_node == bool(references) for v in found.nodes)
    assert dict(restored_handles(meta_graph)) == {n: n for n in ("table", "w", "rest")}


def test_a_checkpoint_shorter_than_its_index_is_named(towers, tmp_path):
    """No loader can restore it, although its shapes are known."""
    shutil.copytree(towers, tmp_path / "model")
    (data,) = (tmp_path / "model" / "variables").glob("*.data*")
    data.write_bytes(data.read_bytes()[:-100])
    ((code, message, _),) = load_program(tmp_path / "model").warnings
    assert code == "damaged_checkpoint"
    assert f"{data.name} has {data.stat().st_size:,} bytes" in message


def test_a_missing_shard_beside_others_is_named(towers, tmp_path):
    """Two of three files are there."""
    shutil.copytree(towers, tmp_path / "model")
    index = read_index(tmp_path / "model")
    (data,) = index.shards
    data.rename(data.with_name("variables.data-00000-of-00003"))
    data.with_name("variables.data-00001-of-00003").write_bytes(b"")
    from tensorflow.core.protobuf import tensor_bundle_pb2

    from placer.extraction.files.sorted_tables import read_table, write_table

    file = tmp_path / "model" / "variables" / "variables.index"
    entries = dict(read_table(file))
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(entries[b""])
    header.num_shards = 3
    write_table(file, {**entries, b"": header.SerializeToString()})
    warnings = load_program(tmp_path / "model").warnings
    assert [message for code, message, _ in warnings if code == "damaged_checkpoint"] == [
        "the checkpoint cannot be restored: variables.data-00002-of-00003 is missing, "
        "2 of 3 files of data are there"
    ]


def test_a_model_without_variables_folder_gets_one_line(towers, tmp_path):
    """It is read as it is; what it would restore is known from its objects."""
    shutil.copytree(towers, tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / "variables")
    found = load_program(tmp_path / "model")
    assert [code for code, _, _ in found.warnings] == ["no_weights"]
    assert len(found.find_stored(found).objects) == 5


def test_an_index_that_cannot_be_read_is_no_second_error(towers, tmp_path):
    """Its reader of shapes says so; nothing is said of the files of data."""
    shutil.copytree(towers, tmp_path / "model")
    index = tmp_path / "model" / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:-9])
    assert [code for code, _, _ in load_program(tmp_path / "model").warnings] == ["damaged_index"]
    with pytest.raises(UsageError, match="tag set"):
        load_program(tmp_path / "model", tag_set="train")


def test_parts_of_a_table_count_what_they_are(tmp_path):
    """A partitioned variable has one key, and each part restores its slice of it."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], "ids")
        split = v1.fixed_size_partitioner(3)
        table = v1.get_variable("table", [60, 8], use_resource=True, partitioner=split)
        y = tf.nn.embedding_lookup(table, ids)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "model"), {"ids": ids}, {"y": y})
    found = stored(tmp_path / "model")
    assert [v.bytes for v in found.nodes] == [20 * 8 * 4] * 3
    assert len({v.name for v in found.nodes}) == 3


def test_a_sharded_saver_reads_parts_of_a_table_on_the_host(tmp_path):
    """Sessions make a variable where an op asks for that touches it: the parts on the host, what
    nothing asks for on the GPU.  A plan says otherwise."""
    with tf.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], "ids")
        split = v1.fixed_size_partitioner(2)
        table = v1.get_variable("table", [60, 8], use_resource=True, partitioner=split)
        w = v1.get_variable("w", [8, 4], use_resource=True)
        v1.get_variable("average", [60, 8], use_resource=True)
        y = tf.matmul(tf.nn.embedding_lookup(table, ids), w)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(tmp_path / "model"))
        signature = v1.saved_model.predict_signature_def({"ids": ids}, {"y": y})
        saver = v1.train.Saver(sharded=True)
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, saver=saver
        )
        builder.save()
    found = stored(tmp_path / "model")
    asked = {v.name: v.asked for v in found.nodes}
    assert asked == {"table/part_0": "CPU:0", "table/part_1": "CPU:0", "w": "", "average": ""}
    cluster = parse_cluster("2xT4")
    loaded = loading_facts(found, cluster).devices
    assert loaded[SESSION] == {"CPU:0": 2 * 30 * 8 * 4, "GPU:0": 8 * 4 * 4 + 60 * 8 * 4}
    assert loaded[PLAIN].keys() == {"GPU:0"}
    placement = {v.handle: "GPU:1" for v in found.nodes if v.handle}
    assert loading_facts(found, cluster, placement).devices[SESSION].keys() == {"CPU:0", "GPU:1"}
