"""Files are read by their content, and the chosen signature decides what is analysed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from google.protobuf import text_format  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

from placer.errors import ModelError, UsageError  # noqa: E402
from placer.extraction import input_formats  # noqa: E402
from placer.extraction.input_formats import LIVE_FORMATS, InputFormat  # noqa: E402
from placer.extraction.reading.bare_graphs import read_graph  # noqa: E402
from placer.extraction.reading.loading import load_program  # noqa: E402
from placer.extraction.reading.sinks import training_step  # noqa: E402

v1 = tf.compat.v1


def small_graph():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", [3, 2], use_resource=True)
        tf.matmul(x, w, name="y")
        v1.train.Saver()
        v1.global_variables_initializer()
    return graph


def test_the_content_decides_not_the_name(tmp_path):
    """Binary and text GraphDefs are read under any name, and give one program."""
    graph_def = small_graph().as_graph_def()
    for name, content in {
        "a.pb": graph_def.SerializeToString(),
        "b.pb": str(graph_def).encode(),
        "c.pbtxt": text_format.MessageToString(graph_def).encode(),
        "d": graph_def.SerializeToString(),
    }.items():
        (tmp_path / name).write_bytes(content)
    programs = [load_program(tmp_path / name) for name in ("a.pb", "b.pb", "c.pbtxt", "d")]
    assert len({program.fingerprint for program in programs}) == 1
    (tmp_path / "broken.pb").write_bytes(b"node { name: ")
    with pytest.raises(ModelError, match="is not a model that can be read"):
        load_program(tmp_path / "broken.pb")
    with pytest.raises(ModelError, match="no file or folder"):
        load_program(tmp_path / "absent.pb")


@pytest.mark.parametrize("name", [":0", "^x", "a:b"])
def test_a_name_that_is_no_ops_is_refused(name):
    """It would be read as that of a tensor or of a control edge, also in a training step."""
    meta_graph = tf.compat.v1.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(small_graph().as_graph_def())
    meta_graph.collection_def["train_op"].node_list.value.append("y")
    meta_graph.graph_def.node.add(name=name, op="NoOp")
    with pytest.raises(ModelError, match="which is not a valid name"):
        load_program(meta_graph.graph_def)
    with pytest.raises(ModelError, match="which is not a valid name"):
        training_step(meta_graph)


def test_an_attribute_without_a_name_is_no_dtype():
    """Outputs whose dtype is fixed keep it."""
    from placer.extraction.graph_defs.op_definitions import OpDefinitions
    from placer.extraction.graph_defs.tensor_types import output_types

    node = v1.NodeDef(name="m", op="Merge", input=["a", "b"])
    node.attr["T"].type, node.attr["N"].i = 1, 2
    node.attr[""].SetInParent()
    assert [found.dtype for found in output_types(node, OpDefinitions())] == ["float32", "int32"]


def test_savers_and_initialisers_are_no_outputs():
    """A graph without named outputs gives its sinks, not its initialiser or its saver."""
    program = load_program(small_graph())
    assert program.outputs == (("y", "y:0"),)
    assert program.targets == ()
    assert [(v.name, v.dtype, v.shape) for v in program.variables] == [("w", "float32", (3, 2))]
    assert [(i.key, i.shape) for i in program.inputs] == [("x", (None, 3))]
    chosen = load_program(small_graph(), outputs=["x"])
    assert len(chosen.graph_def.node) == 1


def test_an_op_without_outputs_is_run_not_fetched():
    """An assignment named among the outputs is a target: there is no tensor to fetch."""
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", [3], use_resource=True)
        step = tf.raw_ops.AssignAddVariableOp(resource=w.handle, value=tf.ones(3), name="step")
        w.read_value()
    program = load_program(graph, outputs=[step.name])
    assert (program.outputs, program.targets) == ((), ("step",))


def training_meta_graph(*, losses=True, minimised=True):
    """x -> square -> loss -> update, with an evaluation beside it that no training step needs."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [4], name="x")
        w = v1.get_variable("w", [4], use_resource=False)
        loss = tf.reduce_sum(tf.square(w - x), name="loss")
        if losses:
            v1.losses.add_loss(loss)
        if minimised:
            step = v1.train.get_or_create_global_step()
            v1.train.GradientDescentOptimizer(0.1).minimize(loss, step, name="step")
        tf.abs(w - x, name="evaluation")
        return v1.train.export_meta_graph()


@pytest.mark.parametrize("losses", [True, False])
def test_a_meta_graph_that_trains_runs_its_training_step(tmp_path, losses):
    """The collections train_op and losses say what to run; no --outputs is needed."""
    (tmp_path / "a.meta").write_bytes(training_meta_graph(losses=losses).SerializeToString())
    program = load_program(tmp_path / "a.meta")
    assert program.targets == ("step",)
    assert program.outputs == ((("loss", "loss:0"),) if losses else ())
    assert "evaluation" not in program.origins
    again = load_program(tmp_path / "a.meta", outputs=program.chosen_outputs)
    assert again.fingerprint == program.fingerprint


def test_a_meta_graph_with_losses_alone_runs_its_sinks(tmp_path):
    """Losses without a train_op may be a part of what the graph does."""
    (tmp_path / "a.meta").write_bytes(training_meta_graph(minimised=False).SerializeToString())
    assert [key for key, _ in load_program(tmp_path / "a.meta").outputs] == ["loss", "evaluation"]


def test_values_in_one_branch_are_no_outputs():
    """A sink inside a v1 conditional or loop cannot be fetched, so it is left out."""
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [], name="x")

            def dead():
                tf.negative(x, name="nobody_reads_this")
                return x * 2.0

            y = v1.cond(x > 0, dead, lambda: x)
            tf.identity(y, name="y")
        finally:
            v1.enable_control_flow_v2()
    assert [key for key, _ in load_program(graph).outputs] == ["y"]


@pytest.fixture(scope="module")
def two_signatures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.ones([3, 2]), name="w")
            keys, values = tf.constant(["a"]), tf.constant([1], tf.int64)
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(keys, values), -1
            )

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def multiply(self, x):
            return {"y": x @ self.w, "z": x + 1.0}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def look_up(self, word):
            return {"id": self.table.lookup(word)}

    module = Module()
    signatures = {"serving_default": module.multiply, "look_up": module.look_up}
    tf.saved_model.save(module, str(folder), signatures)
    return folder


def test_the_signature_decides_what_is_reached(two_signatures):
    """Each signature reaches its own ops, variables and tables; outputs narrow it further."""
    program = load_program(two_signatures)
    assert (program.signature, program.tags) == ("serving_default", ("serve",))
    assert [key for key, _ in program.outputs] == ["y", "z"]
    assert [(v.name, v.shape) for v in program.variables] == [("w", (3, 2))]
    words = load_program(two_signatures, signature="look_up")
    assert [v.dtype for v in words.variables] == ["resource"]
    assert [i.key for i in words.inputs] == ["word"]
    only_z = load_program(two_signatures, outputs=["z"])
    assert not any(node.op == "MatMul" for node in only_z.graph_def.node)


def test_wrong_choices_say_what_exists(two_signatures):
    """A wrong tag set, signature or output is answered with those that exist."""
    with pytest.raises(UsageError, match="'look_up', 'serving_default'"):
        load_program(two_signatures, signature="train")
    with pytest.raises(UsageError, match="it has 'serve'"):
        load_program(two_signatures, tag_set="serve,gpu")
    with pytest.raises(UsageError, match="outputs are y, z"):
        load_program(two_signatures, outputs=["w2"])
    with pytest.raises(ModelError, match=r"without saved_model\.pb"):
        load_program(two_signatures.parent)


def test_tag_sets_and_signatures_of_meta_graphs(tmp_path):
    """A tag set must be named exactly; a MetaGraphDef alone has its signatures too."""
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    for tags, name in ((["serve"], "a"), (["gpu", "serve"], "b")):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 3], name="x")
            y = tf.multiply(x, 2.0, name=name)
            tf.add(y, 1.0, name="other_sink")
            signature = v1.saved_model.predict_signature_def({"in": x}, {"out": y})
        meta = saved.meta_graphs.add(graph_def=graph.as_graph_def())
        meta.meta_info_def.tags.extend(tags)
        meta.signature_def["double"].CopyFrom(signature)
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    for tag_set, name in ((None, "a"), ("serve,gpu", "b"), ("gpu,serve", "b")):
        program = load_program(tmp_path, tag_set=tag_set, signature="double")
        assert program.outputs == (("out", f"{name}:0"),)
    with pytest.raises(UsageError, match="no tag set 'gpu'; it has 'serve', 'gpu,serve'"):
        load_program(tmp_path, tag_set="gpu")
    (tmp_path / "b.meta").write_bytes(saved.meta_graphs[1].SerializeToString())
    program = load_program(tmp_path / "b.meta", signature="double")
    assert (program.outputs, program.inputs[0].key) == ((("out", "b:0"),), "in")
    assert load_program(tmp_path / "b.meta").outputs == (("other_sink", "other_sink:0"),)


def test_a_meta_graph_without_tags_is_found(tmp_path):
    """The only MetaGraph is taken whatever its tags are; an empty tag set means no tags at all."""
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add(graph_def=small_graph().as_graph_def())
    info = v1.saved_model.build_tensor_info
    with tf.Graph().as_default():
        tf.graph_util.import_graph_def(meta.graph_def, name="")
        y = v1.get_default_graph().get_tensor_by_name("y:0")
        meta.signature_def["default"].outputs["y"].CopyFrom(info(y))
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    for tag_set in (None, ""):
        program = load_program(tmp_path, tag_set=tag_set)
        assert (program.signature, program.tags) == ("default", ())
    # beside another one it has to be asked for
    served = saved.meta_graphs.add()
    served.CopyFrom(meta)
    served.meta_info_def.tags.append("train")
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    assert load_program(tmp_path, tag_set="").tags == ()
    with pytest.raises(UsageError, match="no tag set 'serve'; it has '', 'train'"):
        load_program(tmp_path)


def test_a_damaged_index_is_told(two_signatures, tmp_path):
    """Shapes do not need the index, but a model with a broken one will not load its weights."""
    shutil.copytree(two_signatures, tmp_path / "model")
    index = tmp_path / "model" / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:-9])
    program = load_program(tmp_path / "model")
    assert [code for code, _, _ in program.warnings] == ["damaged_index"]
    assert program.fingerprint == load_program(two_signatures).fingerprint
    assert load_program(two_signatures).warnings == ()


def test_weights_may_be_absent(two_signatures, tmp_path):
    """Shapes and dtypes come from the graph, so the variables folder is not needed."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "saved_model.pb").write_bytes((two_signatures / "saved_model.pb").read_bytes())
    assert load_program(bare).fingerprint == load_program(two_signatures).fingerprint
    assert load_program(bare).variables == load_program(two_signatures).variables


def test_a_fed_op_hides_what_computes_it(tmp_path):
    """A signature that feeds an inner tensor needs nothing that only this tensor needs."""
    with tf.Graph().as_default() as graph:
        examples = v1.placeholder(tf.string, [None], name="examples")
        parsed = tf.io.decode_raw(examples, tf.float32)
        x = tf.reshape(parsed, [-1, 3], name="x")
        y = tf.multiply(x, tf.constant(2.0, name="two"), name="y")
        builder = v1.saved_model.Builder(str(tmp_path / "model"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        with v1.Session(graph=graph) as session:
            signatures = {"serving_default": signature}
            builder.add_meta_graph_and_variables(session, ["serve"], signatures)
    builder.save()
    program = load_program(tmp_path / "model")
    types = {node.name: node.op for node in program.graph_def.node}
    assert types == {"x": "Placeholder", "two": "Const", "y": "Mul"}
    assert program.inputs[0].shape == (None, 3)


def test_a_cycle_is_refused_by_name(tmp_path):
    """Ops that wait for each other without a loop are named."""
    text = """node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "a" op: "AddV2" input: "x" input: "b"
               attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "b" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "y" op: "Neg" input: "b" attr { key: "T" value { type: DT_FLOAT } } }"""
    (tmp_path / "cycle.pbtxt").write_text(text)
    with pytest.raises(ModelError, match=r"not a v1 loop: (a -> b -> a|b -> a -> b)"):
        load_program(tmp_path / "cycle.pbtxt")


def test_a_number_beyond_its_enum_is_refused(tmp_path):
    """A text file whose number no field of its type can hold is not a model."""
    (tmp_path / "large.pbtxt").write_text(
        'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: 1099511627776 } } }'
    )
    with pytest.raises(ModelError):
        load_program(tmp_path / "large.pbtxt")


GRAPHS = os.environ.get("PLACER_TEST_DATA")

REAL = {
    "basic-pitch": (686, 0),
    "guesslang": (196, 2),
    "tfnet-lstm-savedmodel": (57, 2),
    "openpose-mobilenet/mobilenet_v2_small/graph_opt.pb": (916, 0),
    "zoo-sm_bilstm_while_v2_train_k3/saved_model": (304, 8),
    "zoo-inceptionv3_infer_dynbatch/graph.pb": (1182, 0),
    "tf-grappler-testdata/large_function_graph.pbtxt": (23, 0),
    "tf-mlir-graphdef/graph-gradient-def.pbtxt": (9, 1),
    "openvino-pbtxt/forward_edge_model_unsorted.pbtxt": (5, 0),
}


@pytest.mark.skipif(not GRAPHS, reason="PLACER_TEST_DATA names no folder of real graphs")
@pytest.mark.parametrize("name", REAL)
def test_real_graphs_flatten(name):
    """Graphs that others wrote have the expected number of ops and functions left when flat."""
    program = load_program(Path(GRAPHS or "") / "graphs" / name)
    found = len(program.graph_def.node), len(program.graph_def.library.function)
    assert found == REAL[name]
    names = [node.name for node in program.graph_def.node]
    seen = set()
    for node in program.graph_def.node:
        sources = {reference.lstrip("^").split(":")[0] for reference in node.input}
        assert sources <= set(names)
        if node.op != "Merge":
            assert sources <= seen
        seen.add(node.name)


def is_names(source) -> bool:
    """A kind of our own: the names of ops that follow each other."""
    return isinstance(source, tuple)


def read_names(source, outputs):
    """Its program: identities."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], name="x")
        for name in source:
            x = tf.identity(x, name=name)
    return read_graph(graph, outputs)


def test_an_input_format_is_two_functions_and_one_line(monkeypatch):
    """What is recognised is read; what is of no kind is refused with the kinds there are."""
    monkeypatch.setitem(sys.modules, "placer.extraction.reading.names", sys.modules[__name__])
    known = InputFormat("names", "names:is_names", "names:read_names")
    monkeypatch.setattr(input_formats, "LIVE_FORMATS", (known, *LIVE_FORMATS))
    assert load_program(("a", "b")).outputs == (("b", "b:0"),)
    with pytest.raises(
        UsageError, match=r"from an object of type 'int': pass a path, names, .* or a tf\.function"
    ):
        load_program(1)
