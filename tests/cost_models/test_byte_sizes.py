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
        ("GiB", "not a size"),
        ("-8GiB", "not a size"),
        ("", "not a size"),
        ("8e9", "unknown unit|not a size"),
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
    with pytest.raises(ValueError, match=r"1\.00 GiB.*limit of 1\.00 GiB"):
        parse_reserve("1GiB", 1024**3)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (97_800_000, "93.3 MiB"),
        (1023 * 1024, "1.00 MiB"),
        (40 << 30, "40.0 GiB"),
        (5 << 60, "5120 PiB"),
    ],
)
def test_bytes_have_three_digits_and_binary_units(size, text):
    """Sizes change the unit before a fourth digit, and None is never zero."""
    assert format_bytes(size) == text


@example(1070)
@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_formatted_size_parses_back_to_within_its_last_digit(size):
    """Formatting loses at most half of the third digit, and reading back a byte's fraction."""
    back = parse_bytes(format_bytes(size))
    assert abs(back - size) <= size * 0.005 + 1
