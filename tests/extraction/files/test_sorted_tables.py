"""Indices of checkpoints that others wrote."""

from base64 import b64decode
from pathlib import Path

from placer.extraction.files.sorted_tables import read_table, unsnapped

_SNAPPY = (
    "wAHwbQAABggBGgIIAQAcDl9DSEVDS1BPSU5UQUJMRV9PQkpFQ1RfR1JBUEgIBxIAIAwo6wQ1kNG3RwAcC2EvLkFUVF"
    "JJQlVURVMvVkFSSUFCTEVfVkFMVUUIARIAKAQ1BjgnHwAcDWIvLkFUVFJJQlVUUioANCAEKAQ1EP14TwAcDWMvdlYA"
    "QCAIKAQ179aCwwAAAAABAAAAAf1+z4gAAAAAAQAAAADA8qGwAAEDZACZAQAAAAABAAAAAOiuc7qeAQirAQ8AAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAV/uAiyR1R9s="
)
"""The index of TensorFlow Serving's ``saved_model_half_plus_two_tf2_cpu``."""


def test_an_index_that_snappy_compressed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "variables.index"
    file.write_bytes(b64decode(_SNAPPY))
    variables = [f"{name}/.ATTRIBUTES/VARIABLE_VALUE".encode() for name in "abc"]
    keys = [key for key, _ in read_table(file)]
    assert keys == [b"", b"_CHECKPOINTABLE_OBJECT_GRAPH", *variables]


def test_copies_may_be_far_and_bytes_many() -> None:
    many = bytes(range(100))
    written = bytes([60 << 2, 99]) + many  # a length in a byte of its own
    near, far = bytes([2 | 9 << 2, 100, 0]), bytes([3 | 9 << 2, 110, 0, 0, 0])
    assert unsnapped(bytes([120]) + written + near + far) == many + many[:10] * 2
