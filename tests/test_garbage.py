"""The cycle collector waits, and goes on."""

import gc

import pytest

from placer.processes import collection_paused


@collection_paused()
def _fail():
    assert not gc.isenabled()
    raise ValueError("no")


def test_the_collector_goes_on_after_an_error():
    with pytest.raises(ValueError, match="no"):
        _fail()
    assert gc.isenabled()


def test_one_pause_within_another():
    with collection_paused():
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
