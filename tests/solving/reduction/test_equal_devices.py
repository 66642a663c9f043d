"""Tests of devices that differ in their name only."""

from placer.solving.reduction.equal_devices import numbered_by_use


def test_equal_devices_are_named_in_the_order_of_their_first_use() -> None:
    """Devices 0, 1 and 2 are equal, 3 is none of them, and one that nothing uses comes last."""
    assert numbered_by_use([[0, 1, 2]], (3, 2, 0, 2, 3)) == (3, 0, 1, 0, 3)
    assert numbered_by_use([[0, 1, 2]], (1, 1, 0)) == (0, 0, 1)
    assert numbered_by_use([], (1, 0)) == (1, 0)
    assert numbered_by_use([[0, 2], [1, 3]], (3, 2, 1, 0)) == (1, 0, 3, 2)
