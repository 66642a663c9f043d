"""Lookup tables of a SavedModel are counted by what fills them."""

from __future__ import annotations

import pytest
import tensorflow as tf

from placer.extraction.reading.loading import load_program
from placer.extraction.reading.table_contents import table_bytes


class Lookups(tf.Module):
    """A table out of a file, one out of constants, and one that changes."""

    def __init__(self, vocabulary):
        super().__init__()
        whole, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
        lines = tf.lookup.TextFileInitializer(vocabulary, tf.string, whole, tf.int64, number)
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.range(100, dtype=tf.int64), tf.range(100, dtype=tf.int64)
        )
        self.lines = tf.lookup.StaticHashTable(lines, 0)
        self.pairs = tf.lookup.StaticHashTable(pairs, 0)
        self.seen = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
        self.seen.insert(tf.range(50, dtype=tf.int64), tf.range(50, dtype=tf.int64))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def words(self, word):
        return {"id": self.pairs.lookup(self.lines.lookup(word))}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def alone(self, word):
        return {"id": self.lines.lookup(word)}


@pytest.fixture(scope="module")
def lookups(tmp_path_factory):
    """A SavedModel with a file of 1,000 words of 30 letters."""
    folder = tmp_path_factory.mktemp("lookups")
    (folder / "words.txt").write_text("".join(f"{i:030d}\n" for i in range(1000)))
    module = Lookups(str(folder / "words.txt"))
    signatures = {"serving_default": module.words, "alone": module.alone}
    tf.saved_model.save(module, str(folder / "model"), signatures)
    return folder / "model"


LINES = table_bytes(1000, 24 + 8, 30_000)
PAIRS = table_bytes(100, 16, 0)
SEEN = table_bytes(50, 16, 0, is_mutable=True)


@pytest.mark.parametrize(
    ("signature", "used", "idle"),
    [("serving_default", LINES + PAIRS, SEEN), ("alone", LINES, PAIRS + SEEN)],
)
def test_tables_count_whether_the_signature_uses_them_or_not(lookups, signature, used, idle):
    """All of them are filled when the model is loaded."""
    program = load_program(lookups, signature=signature)
    found = program.find_stored(program)
    assert sum(found.held_bytes.values()) == used
    assert found.idle_bytes == idle
    assert not found.at_least


def test_a_table_whose_file_is_gone_is_said_to_be_left_out(lookups, tmp_path):
    """What is counted is the least then."""
    import shutil

    shutil.copytree(lookups, tmp_path / "model")
    (tmp_path / "model" / "assets" / "words.txt").unlink()
    program = load_program(tmp_path / "model", signature="alone")
    assert program.find_stored(program).at_least
