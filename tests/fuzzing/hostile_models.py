"""Models that read, write or run something that nobody asked for.

A :class:`Harm` is a few ops that a program computes beside its output; :func:`write` puts it into a
file of one of :data:`FORMATS`.  What it touches lies in the folder ``outside``, and what it calls
is a port of this machine: a test watches both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

v1, raw = tf.compat.v1, tf.raw_ops

NUMBER = 7
"""What is written in every secret: a model that has read it has a tensor with 7 rows."""

SIGNATURE = [tf.TensorSpec([None, 4], tf.float32, name="x")]
FORMATS = ("saved_model", "saved_model_v1", "graph", "graph_text", "meta_graph")


@dataclass(frozen=True, kw_only=True)
class Harm:
    """``build(outside, port)`` gives the tensors and ops of it; ``op_type`` does the harm."""

    name: str
    op_type: str
    build: Callable[[Path, int], list[Any]]


HARMS: list[Harm] = []


def harm(op_type: str) -> Callable[[Callable[[Path, int], Any]], Callable[[Path, int], Any]]:
    """Makes a function that builds ops one of :data:`HARMS`."""

    def add(build: Callable[[Path, int], Any]) -> Callable[[Path, int], Any]:
        def listed(outside: Path, port: int) -> list[Any]:
            made = build(outside, port)
            return list(made) if isinstance(made, list | tuple) else [made]

        HARMS.append(Harm(name=build.__name__, op_type=op_type, build=listed))
        return build

    return add


def fill(outside: Path) -> None:
    """Writes what the models read to ``outside``."""
    outside.mkdir(parents=True)
    (outside / "secret").write_text(str(NUMBER))
    (outside / "words.txt").write_text("a\nb\n")
    with tf.io.TFRecordWriter(str(outside / "records")) as writer:
        writer.write(str(NUMBER).encode())
    tf.train.Checkpoint(v=tf.Variable([1.0])).write(str(outside / "weights"))


def _rows(text: Any) -> Any:
    """A tensor with as many rows as a text says: shape inference must know the text for that."""
    return tf.zeros(tf.stack([tf.strings.to_number(text, tf.int32), 3]))


def _dataset(dataset: Any) -> Any:
    return raw.DatasetToSingleElement(
        dataset=dataset, output_types=[tf.string], output_shapes=[[]], metadata=""
    )[0]


def _nothing() -> Any:
    return raw.TensorDataset(components=[tf.constant("x")], output_shapes=[[]], metadata="")


@harm("ReadFile")
def read_file(outside, port):
    return _rows(raw.ReadFile(filename=str(outside / "secret")))


@harm("ReadFile")
def read_url(outside, port):
    return _rows(raw.ReadFile(filename=f"file://{outside / 'secret'}"))


@harm("ReadFile")
def read_joined_name(outside, port):
    return _rows(raw.ReadFile(filename=raw.StringJoin(inputs=[f"{outside}/sec", "ret"])))


@harm("ReadFile")
def read_file_by_content_of_constant(outside, port):
    """The name is where strings seldom are in a constant."""
    from tensorflow.core.framework import tensor_pb2

    name = str(outside / "secret").encode()
    proto = tensor_pb2.TensorProto(dtype=tf.string.as_datatype_enum, tensor_shape={})
    proto.tensor_content = bytes([len(name)]) + name
    graph = v1.get_default_graph()
    attributes = {
        "value": v1.AttrValue(tensor=proto),
        "dtype": v1.AttrValue(type=tf.string.as_datatype_enum),
    }
    constant = graph.create_op("Const", [], [tf.string], attrs=attributes)
    return _rows(raw.ReadFile(filename=constant.outputs[0]))


@harm("ReadFile")
def read_in_branch(outside, port):
    return tf.cond(
        tf.timestamp() > 0,
        lambda: raw.ReadFile(filename=str(outside / "secret")),
        lambda: tf.constant("1"),
    )


@harm("ReadFile")
def read_in_called_function(outside, port):
    @tf.function
    def read():
        return raw.ReadFile(filename=str(outside / "secret"))

    return _rows(read())


@harm("MatchingFiles")
def matching_files(outside, port):
    return tf.zeros(tf.shape(raw.MatchingFiles(pattern=f"{outside}/*"))[0])


@harm("ReaderReadV2")
def whole_file_reader(outside, port):
    return _read_with(raw.WholeFileReaderV2(container="", shared_name="r"), outside / "secret")


@harm("ReaderReadV2")
def text_line_reader(outside, port):
    return _read_with(raw.TextLineReaderV2(container="", shared_name="t"), outside / "secret")


def _read_with(reader, path):
    queue = raw.FIFOQueueV2(component_types=[tf.string], shapes=[[]], shared_name=f"q{path.name}")
    enqueue = raw.QueueEnqueueV2(handle=queue, components=[tf.constant(str(path))])
    with tf.control_dependencies([enqueue]):
        return _rows(raw.ReaderReadV2(reader_handle=reader, queue_handle=queue).value)


@harm("TFRecordDataset")
def tfrecord_dataset(outside, port):
    path = [str(outside / "records")]
    return _rows(_dataset(raw.TFRecordDataset(filenames=path, compression_type="", buffer_size=0)))


@harm("TextLineDataset")
def text_line_dataset(outside, port):
    path = [str(outside / "secret")]
    return _rows(_dataset(raw.TextLineDataset(filenames=path, compression_type="", buffer_size=0)))


@harm("FixedLengthRecordDataset")
def fixed_length_dataset(outside, port):
    size = tf.constant(1, tf.int64)
    none = tf.constant(0, tf.int64)
    return _rows(
        _dataset(
            raw.FixedLengthRecordDataset(
                filenames=[str(outside / "secret")],
                header_bytes=none,
                record_bytes=size,
                footer_bytes=none,
                buffer_size=none,
            )
        )
    )


@harm("MatchingFilesDataset")
def matching_files_dataset(outside, port):
    return _dataset(raw.MatchingFilesDataset(patterns=[f"{outside}/*"]))


@harm("SqlDataset")
def sql_dataset(outside, port):
    return _dataset(
        raw.SqlDataset(
            driver_name="sqlite",
            data_source_name=str(outside / "made.sqlite"),
            query="select 1",
            output_types=[tf.string],
            output_shapes=[[]],
        )
    )


@harm("ReadFile")
def read_in_dataset_function(outside, port):
    dataset = tf.data.Dataset.from_tensors(str(outside / "secret")).map(tf.io.read_file)
    return _rows(_dataset(dataset._variant_tensor))


@harm("DatasetFromGraph")
def dataset_from_graph(outside, port):
    return _dataset(raw.DatasetFromGraph(graph_def=tf.constant("x")))


@harm("InitializeTableFromTextFileV2")
def table_of_text_file(outside, port):
    table = raw.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="table")
    filled = raw.InitializeTableFromTextFileV2(
        table_handle=table,
        filename=str(outside / "words.txt"),
        key_index=-2,
        value_index=-1,
        vocab_size=2,
    )
    with tf.control_dependencies([filled]):
        return raw.LookupTableFindV2(
            table_handle=table, keys=tf.constant(["a"]), default_value=tf.constant(-1, tf.int64)
        )


@harm("RestoreV2")
def restore(outside, port):
    return raw.RestoreV2(
        prefix=str(outside / "weights"),
        tensor_names=["v/.ATTRIBUTES/VARIABLE_VALUE"],
        shape_and_slices=[""],
        dtypes=[tf.float32],
    )[0]


@harm("Restore")
def restore_of_before(outside, port):
    return raw.Restore(file_pattern=str(outside / "weights*"), tensor_name="v", dt=tf.float32)


@harm("LoadAndRemapMatrix")
def remap_matrix(outside, port):
    return raw.LoadAndRemapMatrix(
        ckpt_path=str(outside / "weights"),
        old_tensor_name="v",
        row_remapping=tf.constant([0], tf.int64),
        col_remapping=tf.constant([], tf.int64),
        initializing_values=tf.constant([], tf.float32),
        num_rows=1,
        num_cols=1,
    )


@harm("GenerateVocabRemapping")
def vocabulary_remapping(outside, port):
    words = str(outside / "words.txt")
    found = raw.GenerateVocabRemapping(
        new_vocab_file=words, old_vocab_file=words, new_vocab_offset=0, num_new_vocab=2
    )
    return tf.zeros(tf.stack([found.num_present, 3]))


@harm("ImmutableConst")
def constant_in_a_file(outside, port):
    path = str(outside / "words.txt")
    value = raw.ImmutableConst(dtype=tf.int32, shape=[1], memory_region_name=path)
    return tf.zeros(value)


@harm("DecodeProtoV2")
def description_in_a_file(outside, port):
    return raw.DecodeProtoV2(
        bytes=tf.constant([b""]),
        message_type="x",
        field_names=["y"],
        output_types=[tf.int32],
        descriptor_source=str(outside / "secret"),
    ).sizes


@harm("FixedUnigramCandidateSampler")
def sampler_of_a_vocabulary(outside, port):
    return raw.FixedUnigramCandidateSampler(
        true_classes=tf.constant([[0]], tf.int64),
        num_true=1,
        num_sampled=1,
        unique=False,
        range_max=2,
        vocab_file=str(outside / "words.txt"),
    ).sampled_candidates


@harm("WriteFile")
def write_file(outside, port):
    return raw.WriteFile(filename=str(outside / "written"), contents="x")


@harm("PrintV2")
def print_to_file(outside, port):
    return raw.PrintV2(input="x", output_stream=f"file://{outside / 'printed'}")


@harm("SaveV2")
def save(outside, port):
    return raw.SaveV2(
        prefix=str(outside / "saved"),
        tensor_names=["x"],
        shape_and_slices=[""],
        tensors=[tf.constant(1.0)],
    )


@harm("Save")
def save_of_before(outside, port):
    return raw.Save(filename=str(outside / "saved"), tensor_names=["x"], data=[tf.constant(1.0)])


@harm("MergeV2Checkpoints")
def merge_checkpoints(outside, port):
    """Deletes what it merges."""
    prefix = str(outside / "weights")
    return raw.MergeV2Checkpoints(
        checkpoint_prefixes=[prefix], destination_prefix=str(outside / "merged")
    )


@harm("CreateSummaryFileWriter")
def summary_writer(outside, port):
    writer = raw.SummaryWriter(shared_name="w")
    return raw.CreateSummaryFileWriter(
        writer=writer,
        logdir=str(outside / "log"),
        max_queue=tf.constant(1),
        flush_millis=tf.constant(1),
        filename_suffix="",
    )


@harm("CacheDatasetV2")
def cache_dataset(outside, port):
    return _dataset(
        raw.CacheDatasetV2(
            input_dataset=_nothing(),
            filename=str(outside / "cache"),
            cache=raw.DummyMemoryCache(),
            output_types=[tf.string],
            output_shapes=[[]],
        )
    )


@harm("SnapshotDataset")
def snapshot_dataset(outside, port):
    return _dataset(
        raw.SnapshotDataset(
            input_dataset=_nothing(),
            path=str(outside / "snapshot"),
            output_types=[tf.string],
            output_shapes=[[]],
        )
    )


@harm("DatasetToTFRecord")
def dataset_to_records(outside, port):
    return raw.DatasetToTFRecord(
        input_dataset=_nothing(), filename=str(outside / "out"), compression_type=""
    )


@harm("DebugIdentityV2")
def debug_to_file(outside, port):
    return raw.DebugIdentityV2(
        input=tf.constant(1.0), tfdbg_run_id="r", debug_urls=[f"file://{outside}/debug"]
    )


@harm("DebugIdentity")
def debug_to_address(outside, port):
    return raw.DebugIdentity(
        input=tf.constant(1.0), tensor_name="x:0", debug_urls=[f"grpc://localhost:{port}"]
    )


@harm("RpcClient")
def rpc_client(outside, port):
    graph = v1.get_default_graph()
    inputs = [tf.constant(f"localhost:{port}"), tf.constant(100, tf.int64)]
    return graph.create_op("RpcClient", inputs, [tf.resource, tf.string]).outputs[1]


@harm("FileSystemSetConfiguration")
def file_system(outside, port):
    return raw.FileSystemSetConfiguration(scheme="gs", key="proxy", value=f"localhost:{port}")


@harm("EagerPyFunc")
def python(outside, port):
    def write(value):
        (outside / "python").write_text("x")
        return value

    return tf.py_function(write, [tf.constant(1.0)], tf.float32)


@harm("PyFunc")
def python_of_before(outside, port):
    def write(value):
        (outside / "python").write_text("x")
        return value

    return v1.py_func(write, [tf.constant(1.0)], tf.float32)


def write(wanted: Harm, form: str, outside: Path, target: Path, port: int) -> Path:
    """Writes the program with the ops of ``wanted`` in format ``form``; returns its path."""
    if form == "saved_model":
        module = tf.Module()
        module.w = tf.Variable(tf.ones([4, 4]), name="w")

        @tf.function(autograph=False, input_signature=SIGNATURE)
        def call(x):
            return _outputs(x, module.w, wanted, outside, port)

        module.call = call
        tf.saved_model.save(module, str(target), signatures=call)
        return target
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        variable = v1.get_variable("w", [4, 4], use_resource=True)
        outputs = _outputs(x, variable, wanted, outside, port)
        if form == "saved_model_v1":
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                v1.saved_model.simple_save(session, str(target), {"x": x}, outputs)
            return target
        ends = [output.op.name for output in outputs.values()]
        for name in ends:
            graph.add_to_collection("train_op", graph.get_operation_by_name(name))
        if form == "meta_graph":
            path = target.with_suffix(".meta")
            v1.train.export_meta_graph(str(path), graph=graph, clear_devices=True)
        else:
            path = target.with_suffix(".pbtxt" if form == "graph_text" else ".pb")
            v1.train.write_graph(
                graph.as_graph_def(), str(path.parent), path.name, form == "graph_text"
            )
        return path


def _outputs(x: Any, variable: Any, wanted: Harm, outside: Path, port: int) -> dict[str, Any]:
    """``y`` waits for what does harm; ``z`` has the shape of what was read."""
    made = wanted.build(outside, port)
    found = {}
    with tf.control_dependencies([item for item in made if item is not None]):
        found["y"] = tf.identity(x @ variable, name="y")
    for item in made:
        if isinstance(item, tf.Tensor) and item.dtype in (tf.float32, tf.int64, tf.int32):
            found["z"] = tf.identity(item, name="z")
    return found
