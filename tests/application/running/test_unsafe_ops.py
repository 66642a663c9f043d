"""What a run reaches, and what of it does more than compute."""

import pytest
import tensorflow as tf
from google.protobuf import text_format

from placer.application.running.unsafe_ops import Start, disarm, require_harmless
from placer.errors import ModelError


def _reads(path):
    """A graph that reads a file, whose name goes through what passes it on, and a function."""

    @tf.function(autograph=False)
    def read(name):
        return tf.io.read_file(tf.squeeze(tf.stack([tf.identity(name)])))

    with tf.Graph().as_default() as graph:
        name = tf.constant(str(path), name="name")
        tf.identity(read(name), name="y")
        tf.raw_ops.WriteFile(filename="x", contents="x", name="write")
    return graph.as_graph_def()


def test_what_a_run_does_not_reach_does_not_count(tmp_path):
    """The graph writes a file, but not for its output."""
    graph_def = _reads(tmp_path / "words")
    require_harmless(graph_def, [Start(ends=["y"])], tmp_path)
    with pytest.raises(
        ModelError, match=r"op 'write' \(WriteFile\) writes files.*allow_unsafe=True"
    ):
        require_harmless(graph_def, [Start(ends=["y", "write"])], tmp_path)


def test_a_file_is_read_from_the_folder_of_the_model(tmp_path):
    """Not from another one, nor through a link that leads there."""
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "model/link").symlink_to(tmp_path / "secret")
    require_harmless(_reads(tmp_path / "model/words"), [Start(ends=["y"])], tmp_path / "model")
    for name in ("secret", "model/link", "model/../secret"):
        with pytest.raises(ModelError, match=r"'ReadFile' \(ReadFile\) in function .* reads '/"):
            require_harmless(_reads(tmp_path / name), [Start(ends=["y"])], tmp_path / "model")


def test_a_name_that_climbs_out_of_a_link_is_outside(tmp_path):
    """Linux takes ``link/..`` for the parent of what the link leads to, TensorFlow for the folder
    of the link."""
    (tmp_path / "model/deep/inner").mkdir(parents=True)
    (tmp_path / "model/link").symlink_to("deep/inner")
    graph_def = _reads(tmp_path / "model/link/../../secret")
    assert (tmp_path / "model/link/../../secret").resolve() == tmp_path / "model/secret"
    with pytest.raises(ModelError, match="not in the model's folder"):
        require_harmless(graph_def, [Start(ends=["y"])], tmp_path / "model")


def _restores(path):
    return tf.raw_ops.RestoreV2(
        prefix=str(path / "w"), tensor_names=["v"], shape_and_slices=[""], dtypes=[tf.float32]
    )[0]


@pytest.mark.parametrize(
    ("link", "read"),
    [
        ("w.index", _restores),
        ("s/far", lambda path: tf.raw_ops.MatchingFiles(pattern=f"{path}/s/*/*")),
        ("t/far", lambda path: tf.raw_ops.MatchingFiles(pattern=f"{path}/s/*/*/*")),
    ],
)
def test_a_name_of_several_files_leads_to_none_outside(tmp_path, link, read):
    """The prefix of a checkpoint and a pattern lie in the folder; a link among the files that they
    stand for leads out of it."""
    for name in ("elsewhere", "model/s", "model/t"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "model/s/near").symlink_to("../t")
    with tf.Graph().as_default() as graph:
        tf.identity(read(tmp_path / "model"), name="y")
    start = [Start(ends=["y"])]
    require_harmless(graph.as_graph_def(), start, tmp_path / "model")
    (tmp_path / "model" / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="not in the model's folder"):
        require_harmless(graph.as_graph_def(), start, tmp_path / "model")


_WITH_A_LIST = """
node { name: "own" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
  attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape {} string_val: "OWN" } } } }
node { name: "far" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
  attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape {} string_val: "/far" } } } }
node { name: "y" op: "PartitionedCall" input: "own" input: "own" input: "far"
  attr { key: "f" value { func { name: "f" attr { key: "N" value { i: 2 } } } } } }
library { function {
  signature { name: "f" input_arg { name: "a" type: DT_STRING number_attr: "N" }
    input_arg { name: "b" type: DT_STRING } attr { name: "N" type: "int" } }
  node_def { name: "r" op: "ReadFile" input: "b" } } }
"""


def test_an_argument_behind_a_list_is_not_known(tmp_path):
    """The second argument of the function is the third input of its call."""
    text = _WITH_A_LIST.replace("OWN", str(tmp_path / "words"))
    graph_def = text_format.Parse(text, tf.compat.v1.GraphDef())
    with pytest.raises(ModelError, match="whose names are known only then"):
        require_harmless(graph_def, [Start(ends=["y"])], tmp_path)


def test_a_file_that_the_caller_names_is_read(tmp_path):
    """A fed tensor is the caller's, also through a function; a fed constant is read without it,
    where TensorFlow computes constants."""
    fed = Start(ends=["y"], fed=frozenset({"name:0"}))
    graph_def = _reads("/elsewhere")
    with pytest.raises(ModelError, match="reads '/elsewhere'"):
        require_harmless(graph_def, [fed], tmp_path)
    graph_def.node[0].CopyFrom(type(graph_def.node[0])(name="name", op="Placeholder"))
    require_harmless(graph_def, [fed], tmp_path)


def test_a_name_that_is_put_together_is_not_known(tmp_path):
    """Parts of it may be constants in the folder: the whole is not."""
    with tf.Graph().as_default() as graph:
        name = tf.strings.join([str(tmp_path), "/../secret"])
        tf.identity(tf.io.read_file(name), name="y")
    with pytest.raises(ModelError, match="whose names are known only then"):
        require_harmless(graph.as_graph_def(), [Start(ends=["y"])], tmp_path)


@pytest.mark.parametrize("shared", ["api_implements", "api_implements_other"])
def test_a_function_may_stand_for_another(tmp_path, shared):
    """TensorFlow picks among functions with one ``api_implements``."""
    graph_def = _reads(tmp_path / "words")
    (function,) = graph_def.library.function
    other = graph_def.library.function.add()
    other.CopyFrom(function)
    other.signature.name = "other"
    other.node_def.add(name="write", op="WriteFile")
    function.attr["api_implements"].s = b"reads"
    other.attr[shared].s = b"reads"
    if shared != "api_implements":
        require_harmless(graph_def, [Start(ends=["y"])], tmp_path)
        return
    with pytest.raises(ModelError, match="in function 'other' writes files"):
        require_harmless(graph_def, [Start(ends=["y"])], tmp_path)


@pytest.mark.parametrize("is_default", [False, True])
def test_a_function_may_be_given_another_to_call(tmp_path, is_default):
    """As an attribute of the call, or by default."""
    graph_def = _reads(tmp_path / "words")
    (function,) = graph_def.library.function
    other = graph_def.library.function.add()
    other.signature.name = "other"
    other.node_def.add(name="write", op="WriteFile")
    call = next(node for node in graph_def.node if node.attr["f"].func.name)
    function.node_def.add(name="inner", op="StatefulPartitionedCall").attr["f"].placeholder = "g"
    declared = function.signature.attr.add(name="g", type="func")
    require_harmless(graph_def, [Start(ends=["y"])], tmp_path)
    given = declared.default_value if is_default else call.attr["f"].func.attr["g"]
    given.func.name = "other"
    with pytest.raises(ModelError, match="in function 'other' writes files"):
        require_harmless(graph_def, [Start(ends=["y"])], tmp_path)


def test_reading_ops_that_are_not_reached_cannot_run(tmp_path):
    """TensorFlow would run them where it computes constants."""
    graph_def = _reads("/elsewhere")
    reached = require_harmless(graph_def, [], tmp_path)
    assert disarm(graph_def, reached)
    nodes = {node.name: node for node in graph_def.library.function[0].node_def}
    assert nodes[nodes["ReadFile"].input[0].partition(":")[0]].op == "PlaceholderWithDefault"
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(graph_def, name="")  # is whole, and sessions place it
        assert session.run(graph.get_tensor_by_name("name:0")) == b"/elsewhere"
    graph_def = _reads(tmp_path / "words")
    assert not disarm(graph_def, require_harmless(graph_def, [Start(ends=["y"])], tmp_path))
