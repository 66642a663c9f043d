"""Checkpoints, and paths of TensorFlow's file systems."""

import pytest

tf = pytest.importorskip("tensorflow")

from placer.errors import ModelError, UsageError  # noqa: E402
from placer.extraction import extract  # noqa: E402
from placer.extraction.files.sources import model_file, read_source  # noqa: E402
from placer.extraction.process.local_models import (  # noqa: E402
    fetch_path,
    local_model,
    scheme_of,
)

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder with a checkpoint of TensorFlow 1, its graph beside it, and one of TensorFlow 2."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        tf.matmul(x, v1.get_variable("w", [3, 2]), name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "old" / "model.ckpt"), global_step=7)
    tf.train.Checkpoint(w=tf.Variable([1.0])).write(str(folder / "new" / "ckpt-1"))
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "",
        "checkpoint",
        "model.ckpt-7",
        "model.ckpt-7.index",
        "model.ckpt-7.meta",
        "model.ckpt-7.data-00000-of-00001",
    ],
)
def test_every_part_of_a_checkpoint_leads_to_its_graph(checkpoints, name):
    """The prefix, each file of it, the state file and the folder all mean the .meta."""
    path = checkpoints / "old" / name
    assert model_file(path).name == "model.ckpt-7.meta"
    assert len(read_source(path).graph_def.node) > 3


def test_a_checkpoint_without_a_graph_says_so(checkpoints):
    """A checkpoint of TensorFlow 2 holds variables only."""
    with pytest.raises(ModelError, match=r"no ckpt-1\.meta beside it: it holds variables, but no"):
        model_file(checkpoints / "new" / "ckpt-1")


def test_a_checkpoint_is_analysed(checkpoints):
    """The training graph beside a checkpoint is a model like any other."""
    found = extract(checkpoints / "old" / "model.ckpt-7", batch_size=4)
    assert found.graph.tensors["y:0"].properties.shape == (4, 2)
    assert [v.name for v in found.graph.variables] == ["w"]


def test_a_path_with_a_scheme_is_read_through_tensorflow(checkpoints):
    """file:// is this machine; a scheme without a file system is refused by name."""
    meta = checkpoints / "old" / "model.ckpt-7.meta"
    found = extract(f"file://{meta}", batch_size=4)
    assert found.model["path"] == f"file://{meta}"
    with pytest.raises(ModelError, match="no file system for nosuch://"):
        extract("nosuch://bucket/model")
    with pytest.raises(UsageError, match="exists in one process only"):
        extract("ram://model")
    assert [scheme_of(path) for path in ("gs://b/m", "/a/b", "C:/a")] == ["gs", "", ""]


def test_what_is_fetched_of_a_folder(tmp_path):
    """All of a SavedModel comes over, without its weights where they are not needed."""
    parts = ["saved_model.pb", "variables/variables.index", "variables/variables.data-0-of-1"]
    for part in parts:
        tf.io.gfile.makedirs("ram://models/small/variables")
        with tf.io.gfile.GFile(f"ram://models/small/{part}", "w") as file:
            file.write(part)
    for weights, count in ((True, 3), (False, 2)):
        target = tmp_path / str(weights)
        fetch_path("ram://models/small", target, weights=weights)
        files = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
        assert files == sorted(parts[:count])
        assert (target / parts[1]).read_text() == parts[1]
    with pytest.raises(ModelError, match="no file or folder 'ram://models/none'"):
        fetch_path("ram://models/none", tmp_path / "none", weights=True)


def test_a_program_of_this_process_has_no_path():
    """Traces, for one, are read for a model in a file; this was a TypeError of Python."""
    expected = "path of a model, not an object of type 'GraphDef': save the program first"
    with pytest.raises(UsageError, match=expected), local_model(tf.compat.v1.GraphDef()):
        pass


@pytest.mark.parametrize("given", ["", "checkpoint", "model", "model.index"])
def test_the_graph_of_a_checkpoint_lies_beside_it(tmp_path, given):
    """A link in its place that leads out of the folder is read only with ``follow_links``."""
    folder = tmp_path / "trained"
    folder.mkdir()
    (tmp_path / "far").write_bytes(b"graph")
    (folder / "model.meta").symlink_to(tmp_path / "far")
    (folder / "model.index").write_bytes(b"")
    (folder / "checkpoint").write_text('model_checkpoint_path: "model"')
    with (
        pytest.raises(ModelError, match=r"'model.meta' .* is a link that leads out"),
        local_model(folder / given, weights=False),
    ):
        pass
    with local_model(folder / given, weights=False, follow_links=True) as model:
        assert model.path == folder / given
