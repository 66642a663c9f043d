"""Files of input values: ``.npz``, TFRecord, and JSON lines.

Arrays of strings and bytes are arrays of Python objects, which numpy pickles.  Of a pickle only
what such an array is made of is read: it cannot name anything else to be called.
"""

import base64
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from placer.errors import UsageError

Values = Mapping[str, Any] | Sequence[Any]
"""Arrays by name of the input, or the array of the only one."""

_BASE64 = "b64"
"""The key by which JSON holds bytes, as in requests to TensorFlow Serving."""

_PARTS_OF_ARRAYS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


_UNREADABLE = (
    *(OSError, ValueError, TypeError, AttributeError, KeyError, EOFError),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)


def read_inputs(path: str) -> Values:
    """The values in a file: arrays by name of an ``.npz``; the messages of a TFRecord file, for the
    only input; of JSON lines an object with a value for each input, or the value of the only one,
    on every line, one line an example.

    Raises :class:`UsageError` if the file cannot be read as what its name says.
    """
    suffix = Path(path).suffix.lower()
    read: Callable[[str], Values] = _read_npz
    kind, advice = ".npz", "write it with numpy.savez, or as JSON lines (.jsonl)"
    if suffix in (".tfrecord", ".tfrecords", ".tfrec"):
        read, kind, advice = _read_records, "TFRecord", "write it with tf.io.TFRecordWriter"
    elif suffix in (".jsonl", ".ndjson"):
        read, kind = _read_lines, "JSON lines"
        advice = 'write one object a line, as in {"x": [1, 2], "name": "abc"}'
    try:
        return read(path)
    except FileNotFoundError as error:
        raise UsageError(f"--inputs {path}: there is no such file") from error
    except _UNREADABLE as error:
        raise UsageError(
            f"--inputs {path}: cannot be read as {kind} ({error}); {advice}"
        ) from error


def _read_npz(path: str) -> dict[str, Any]:
    import numpy

    found: dict[str, Any] = {}
    if not zipfile.is_zipfile(path) and Path(path).exists():
        raise ValueError("it is not a zip archive")
    with numpy.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            try:
                found[name] = arrays[name]
            except ValueError:
                found[name] = _read_objects(arrays.zip, name)
    return found


def _read_objects(archive: zipfile.ZipFile, name: str) -> Any:
    """An array of strings or bytes in an ``.npz``; raises ``ValueError`` for anything else."""
    from numpy.lib import format as layout

    with archive.open(f"{name}.npy") as stream:
        major, _ = layout.read_magic(stream)
        header = layout.read_array_header_1_0 if major == 1 else layout.read_array_header_2_0
        _, _, dtype = header(stream)
        if not dtype.hasobject:
            raise ValueError(f"the array {name!r} is damaged")
        array = _Objects(stream).load()
    odd = {type(value).__name__ for value in array.ravel() if not isinstance(value, str | bytes)}
    if odd:
        raise ValueError(f"the array {name!r} has {', '.join(sorted(odd))} among its strings")
    return array


class _Objects(pickle.Unpickler):
    """Reads arrays of plain Python values, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The part of an array that is meant; raises ``UnpicklingError`` for anything else."""
        if (module, name) not in _PARTS_OF_ARRAYS:
            raise pickle.UnpicklingError(f"it would call {module}.{name}")
        return super().find_class(module, name)


def _read_records(path: str) -> list[Any]:
    import numpy
    import tensorflow as tf

    try:
        records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
    except tf.errors.OpError as error:
        raise ValueError(error.message) from error
    if not records:
        raise ValueError("it has no record")
    found = numpy.empty(len(records), object)
    found[:] = records
    return [found]


def _read_lines(path: str) -> Values:
    import numpy

    rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
    if not rows:
        raise ValueError("it has no line")

    def stacked(values: Sequence[Any]) -> Any:
        plain = [_plain(value) for value in values]
        is_text = any(isinstance(value, str | bytes) for value in _leaves(plain))
        return numpy.array(plain, object) if is_text else numpy.array(plain)

    named = [row for row in rows if isinstance(row, dict) and _BASE64 not in row]
    if not named:
        return [stacked(rows)]
    if len(named) < len(rows) or any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError("its lines do not have the same inputs")
    return {key: stacked([row[key] for row in rows]) for key in rows[0]}


def _plain(value: Any) -> Any:
    """A value of JSON with bytes where it has an object with base64."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value[_BASE64], validate=True)
    return value


def _leaves(value: Any) -> list[Any]:
    return (
        [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]
    )
