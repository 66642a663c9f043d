"""Why nothing fits, as records and as JSON."""

from __future__ import annotations

from plans_by_hand import infeasible_plan

from placer.problem.conflict import CapInConflict, Conflict, Fix


def test_a_conflict_comes_back_from_its_json():
    """What is not known is left out, and no entry is lost."""
    conflict = infeasible_plan().conflict
    data = conflict.to_json()
    assert Conflict.from_json(data) == conflict
    assert data["caps"] == ({"device": "GPU:0", "usable_bytes": 100 << 20},)
    assert set(data["groups"][0]) == {"ops", "op_count", "bytes"}
    assert "ops" not in data


def test_advice_that_was_not_tried_is_a_sentence():
    """As plans of a placement that breaks its caps hold it, and older plans for every change."""
    cap = CapInConflict(device="GPU:0", peak_bytes=7, usable_bytes=4)
    conflict = Conflict(caps=(cap,), fixes=(Fix(change="raise the cap"),))
    data = conflict.to_json()
    assert data == {
        "caps": ({"device": "GPU:0", "peak_bytes": 7, "usable_bytes": 4},),
        "pins": (),
        "groups": (),
        "fixes": ["raise the cap"],
    }
    assert Conflict.from_json(data) == conflict


def test_entries_of_other_versions_are_left_out():
    """A row that lacks something, and one that has more, are read."""
    rows = [{"device": "GPU:0", "colour": "red"}]
    assert Conflict.from_json({"caps": rows, "mood": 1}) == Conflict(
        caps=(CapInConflict(device="GPU:0"),)
    )
