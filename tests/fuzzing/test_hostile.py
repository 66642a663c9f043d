"""Hostile models touch nothing and are refused by name; ``make harm`` tries all of them."""

import pytest

pytest.importorskip("tensorflow")

from fuzzing.hostile import Watch, run, run_trap
from fuzzing.hostile_folders import TRAPS
from fuzzing.hostile_models import HARMS, fill

import placer

SOME_HARMS = (
    *(("read_file", "saved_model"), ("table_of_text_file", "graph"), ("python", "saved_model")),
    *(("constant_in_a_file", "graph_text"), ("write_file", "meta_graph")),
    ("restore", "saved_model_v1"),
)
SOME_TRAPS = (
    *("good_vocabulary", "asset_that_climbs", "link_of_an_asset", "good_cache_of_links"),
    *("initialiser_that_writes", "good_beside_a_bad_signature", "good_vocabulary_of_before"),
    *("other_function_than_the_signature_says", "keras_download", "pipe_for_the_index"),
    *("asset_that_no_loader_feeds", "asset_loaded_as_a_constant", "creator_that_is_an_object"),
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
