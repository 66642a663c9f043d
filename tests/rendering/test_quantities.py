"""Numbers as people read them."""

from __future__ import annotations

import pytest

from placer.rendering import quantities


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (5e-9, "0.01 µs"), (5e-6, "5.00 µs"), (0.0612, "61.2 ms"), (90.0, "90.0 s")],
)
def test_seconds_take_the_unit_that_fits(seconds, text):
    """Durations are in s, ms or µs."""
    assert quantities.format_seconds(seconds) == text


def test_work_is_in_decimal_units():
    """FLOPs and rates count in thousands, not in 1024."""
    assert quantities.format_flops(771_000_000_000) == "771 GFLOP"
    assert quantities.format_flops(12) == "12 FLOP"
    assert quantities.format_flops(None) == "unknown"
    assert quantities.format_rate(1.558e12, "B/s") == "1.56 TB/s"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a/b", "a/b"),
        ("StatefulPartitionedCall/conv1/Conv2D", "…/conv1/Conv2D"),
        ("StatefulPartitionedCall_1/PartitionedCall/conv/Conv2D", "…/conv/Conv2D"),
        ("encoder/layer_0/attention/MatMul", "encode…ention/MatMul"),
    ],
)
def test_long_names_lose_calls_then_their_middle(name, text):
    """Of what does not fit into 20 columns, both ends of the op's own name are kept."""
    assert quantities.shorten(name, 20) == text


def test_shapes_say_what_is_unknown():
    """Unknown dimensions and unknown rank are told apart."""
    assert quantities.format_shape((None, 8)) == "[?, 8]"
    assert quantities.format_shape(None) == "[...]"
    assert quantities.format_shape(()) == "[]"


def test_a_share_of_little_does_not_read_as_nothing():
    """What is above 0 and rounds to it is below a tenth of a percent."""
    shares = [quantities.format_share(part, 10_000) for part in (0, 1, 4.9, 5, 9_999.9)]
    assert shares == ["0.0%", "<0.1%", "<0.1%", "0.1%", "100.0%"]
    assert quantities.share_of_cap(2 << 20, 14 << 30) == "<0.1%"
