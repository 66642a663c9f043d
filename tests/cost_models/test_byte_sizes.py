import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cost_models.byte_sizes import format_bytes, parse_bytes, parse_reserve


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8GiB", 8 * 1024**3),
        ("8GB", 8 * 1000**3),
        ("8 gib", 8 * 1024**3),
        ("1.5KiB", 1536),
        ("512", 512),
        ("512B", 512),
        (123, 123),
        ("0", 0),
    ],
)
def test_binary_and_decimal_units_differ(text, expected):
    """8GiB counts in 1024s and 8GB in 1000s, and a bare number is bytes."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8G", "two ways"),
        ("8Gi", "two ways"),
        ("8Gb", "bits"),
        ("8GIBB", "unknown unit"),
        ("GiB", "no size"),
        ("-8GiB", "no size"),
        ("", "no size"),
        ("8e9", "unknown unit|no size"),
        (-1, "negative"),
        (True, "integer or text"),
        (1.5, "integer or text"),
    ],
)
def test_mistyped_sizes_are_refused_with_the_reason(text, said):
    """A size that can be read in two ways or not at all raises, and the message says which."""
    with pytest.raises(ValueError, match=said):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("reserve", "limit", "expected"),
    [
        (None, 1000, 0),
        ("0", 1000, 0),
        ("5%", 1000, 50),
        ("5%", 1001, 51),
        ("100B+10%", 1000, 200),
        ("1GiB + 10%", 10 * 1024**3, 2 * 1024**3),
        (7, 1000, 7),
    ],
)
def test_a_reserve_adds_bytes_and_percentages_of_the_cap(reserve, limit, expected):
    """The terms of a reserve add up, a percentage of the cap being rounded up."""
    assert parse_reserve(reserve, limit) == expected


def test_a_reserve_that_leaves_nothing_is_refused():
    """A reserve as large as the cap raises with both numbers."""
    with pytest.raises(ValueError, match=r"1\.00 GiB.*cap of 1\.00 GiB"):
        parse_reserve("1GiB", 1024**3)


def test_formatted_sizes_read_well():
    """Bytes are printed in the binary unit that leaves at most four digits before the point."""
    assert [format_bytes(n) for n in (0, 1023, 1024, 8 * 1024**3, 1024**2 - 1, 1024**5)] == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "8.00 GiB",
        "1.00 MiB",
        "1.00 PiB",
    ]


@example(1070)
@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_formatted_size_parses_back_to_within_its_last_digit(size):
    """Formatting loses at most half a hundredth of the unit, and reading back a byte's fraction."""
    back = parse_bytes(format_bytes(size))
    assert abs(back - size) <= max(size, 1024) * 0.005 + 1
