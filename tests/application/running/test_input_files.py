"""Files of inputs: strings, bytes, and nothing that is run."""

from __future__ import annotations

import base64
import json
import os
import pickle

import numpy as np
import pytest

from placer.application.running.input_files import read_inputs
from placer.errors import UsageError

PICTURES = [b"\xff\xd8one\0", b"\xff\xd8two"]


def test_arrays_of_bytes_and_of_strings_are_read(tmp_path):
    """numpy pickles arrays of Python objects: bytes keep every byte, numbers stay as they are."""
    path = tmp_path / "inputs.npz"
    np.savez(path, pictures=np.array(PICTURES, object), names=np.array(["a", "b"]), x=np.ones(3))
    found = read_inputs(str(path))
    assert list(found["pictures"]) == PICTURES
    assert list(found["names"]) == ["a", "b"]
    assert found["x"].tolist() == [1.0] * 3


class Harm:
    """Calls something when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_a_pickle_that_calls_something_is_refused(tmp_path, monkeypatch):
    """Nothing of it runs; objects of other kinds are refused too."""
    monkeypatch.chdir(tmp_path)
    np.savez("harm.npz", x=np.array([Harm()], object))
    with pytest.raises(UsageError, match=r"would call (posix|nt)\.mkdir"):
        read_inputs("harm.npz")
    assert not (tmp_path / "harmed").exists()
    np.savez("odd.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(UsageError, match="has dict among its strings"):
        read_inputs("odd.npz")
    assert pickle.loads(pickle.dumps(PICTURES)) == PICTURES


def test_lines_of_json_are_examples(tmp_path):
    """Each line has a value for every input; bytes are written as TensorFlow Serving takes them."""
    path = tmp_path / "inputs.jsonl"
    rows = [
        {"x": [1.5, 2.5], "picture": {"b64": base64.b64encode(picture).decode()}}
        for picture in PICTURES
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_inputs(str(path))
    assert found["x"].tolist() == [[1.5, 2.5]] * 2
    assert list(found["picture"]) == PICTURES
    path.write_text('"one text"\n"another"\n')
    assert [list(array) for array in read_inputs(str(path))] == [["one text", "another"]]
    path.write_text('{"x": 1}\n{"y": 1}\n')
    with pytest.raises(UsageError, match="do not have the same inputs"):
        read_inputs(str(path))


@pytest.mark.slow
def test_records_are_the_values_of_the_only_input(tmp_path):
    """A TFRecord file has messages without names."""
    import tensorflow as tf

    path = str(tmp_path / "examples.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for picture in PICTURES:
            writer.write(picture)
    assert [list(array) for array in read_inputs(path)] == [PICTURES]
    broken = tmp_path / "broken.tfrecord"
    broken.write_bytes(b"no record")
    with pytest.raises(UsageError, match="cannot be read as TFRecord"):
        read_inputs(str(broken))


def test_a_file_that_is_not_there_is_told(tmp_path):
    """By its name."""
    with pytest.raises(UsageError, match=r"there is no such file"):
        read_inputs(str(tmp_path / "absent.npz"))
