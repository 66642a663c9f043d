"""What tables and strings take, against the tables' own growth."""

from placer.extraction.reading.table_contents import strings_bytes, table_bytes, text_bytes


def test_a_table_is_seven_eighths_full_at_most():
    """One entry more than that doubles it: 7 slots hold 6 entries, 15 hold 13."""
    assert table_bytes(6, 16, 0) == 7 * 17
    assert table_bytes(7, 16, 0) == 15 * 17
    assert table_bytes(13, 16, 0) == 15 * 17


def test_long_texts_lie_in_blocks_of_their_own():
    """Of up to 22 bytes they are in their slots."""
    assert text_bytes(22) == 0
    assert text_bytes(23) == 48
    assert strings_bytes(10, 10 * 40) == 10 * (24 + 64)
    assert table_bytes(6, 32, 6 * 40) == 7 * 33 + 6 * 64


def test_mutable_tables_have_a_node_for_every_entry():
    """Key, value, the next node and the hash, what the allocator keeps, and a bucket."""
    assert table_bytes(100, 16, 0, is_mutable=True) == 100 * (16 + 16 + 16 + 8)
