"""Hostile models touch nothing and are refused by name; ``make harm`` tries all of them."""

import pytest

pytest.importorskip("tensorflow")

from fuzzing.hostile import SEARCH, Watch, run, run_trap
from fuzzing.hostile_folders import TRAPS
from fuzzing.hostile_models import HARMS, fill, write

import placer
from placer.errors import ModelError

SOME_HARMS = (
    *(("read_file", "saved_model"), ("table_of_text_file", "graph"), ("python", "saved_model")),
    *(("constant_in_a_file", "graph_text"), ("write_file", "meta_graph")),
    ("restore", "saved_model_v1"),
)
SOME_OPS = ("read_file", "table_of_text_file", "write_file")
SOME_TRAPS = (
    *("good_vocabulary", "asset_that_climbs", "link_of_an_asset", "initialiser_that_writes"),
    *("good_beside_a_bad_signature", "keras_download", "pipe_for_the_index"),
)


@pytest.mark.parametrize(("name", "form"), SOME_HARMS)
def test_hostile_models_touch_nothing(warm_process, name, form):
    """Those that read them; those that run them say which op does what."""
    (wanted,) = (item for item in HARMS if item.name == name)
    assert run(warm_process, wanted, form, ("report", "verify")) == []


@pytest.mark.parametrize("name", SOME_TRAPS)
def test_paths_and_loaders_are_looked_at_and_good_ones_run(warm_process, name):
    """A vocabulary in the model's folder is read, one elsewhere is not."""
    (wanted,) = (item for item in TRAPS if item.name == name)
    assert run_trap(warm_process, wanted, ("place", "apply", "verify")) == []


@pytest.mark.parametrize("name", ["good_beside_a_bad_signature", "good_vocabulary"])
def test_loading_reads_nothing_for_signatures_that_do_not_run(tmp_path, name):
    """TensorFlow would compute a size out of a file while it imports the other signature."""
    import tensorflow as tf

    (wanted,) = (item for item in TRAPS if item.name == name)
    outside = tmp_path / "outside"
    fill(outside)
    path = wanted.build(tmp_path, outside)
    watch = Watch(outside)
    loaded = placer.load_placed(path)
    assert watch.seen() == []
    watch.close()
    x = tf.ones([2, 4])
    assert loaded.signatures["serving_default"](x=x)["y"].shape == (2, 4)


@pytest.mark.parametrize("name", SOME_OPS)
def test_loading_and_streaming_touch_nothing(tmp_path, name):
    """A placed program may be loaded if nothing harmful runs then; a streamed one would run it."""
    (wanted,) = (item for item in HARMS if item.name == name)
    outside = tmp_path / "outside"
    fill(outside)
    watch = Watch(outside)
    path = write(wanted, "saved_model", outside, tmp_path / "model", watch.port)
    watch.seen()
    placer.load_placed(path)
    with pytest.raises(ModelError, match=rf"\({wanted.op_type}\)"):
        placer.stream(path, "1GiB", signature="serving_default")
    assert watch.seen() == []
    watch.close()


@pytest.mark.parametrize("name", ["write_file"])
def test_auto_builds_nothing_that_does_harm(warm_process, tmp_path, name):
    """``auto -o`` runs what it writes, so it refuses the model by the op's name."""
    (wanted,) = (item for item in HARMS if item.name == name)
    outside, out = tmp_path / "outside", tmp_path / "out"
    fill(outside)
    watch = Watch(outside)
    (tmp_path / "own").mkdir()
    path = write(wanted, "graph", outside, tmp_path / "own/model", watch.port)
    watch.seen()
    line = ["auto", str(path), "--outputs", "y", *SEARCH, "-o", str(out)]
    outcome = warm_process.run(line, tmp_path)
    assert (outcome.status, out.exists(), watch.seen()) == (3, False, [])
    assert f"({wanted.op_type})" in outcome.stderr
    watch.close()
