"""Rows of a plan: records, and the objects of ``plan.json``."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError

import pytest
from plans_by_hand import device_row, small_plan, transfer_row

from placer.plan.plan import Plan
from placer.plan.rows import PlanWarning
from placer.prediction.metrics import Transfer

ROW = {
    "tensor": "a:0",
    "from": "GPU:0",
    "to": "GPU:1",
    "bytes": None,
    "kind": "data",
    "memory": "device",
}


def test_a_row_has_the_keys_of_the_file():
    """``from`` is no name in Python: the attributes are ``source`` and ``target``."""
    row = transfer_row("a:0", "GPU:0", "GPU:1", None, "data")
    assert (row.source, row.target) == ("GPU:0", "GPU:1")
    assert row.to_json() == ROW


def test_a_row_comes_back_from_its_json():
    """Lists are tuples then; what this version does not know is left out."""
    read = Transfer.read({**json.loads(json.dumps(ROW)), "colour": "red"})
    assert read.to_json() == ROW
    warning = PlanWarning(code="odd", message="three ops are odd", count=3, ops=("a", "b"))
    assert PlanWarning.read(json.loads(json.dumps(warning.to_json()))) == warning


def test_rows_do_not_change():
    """They are frozen, and survive being sent to another process."""
    row = device_row("GPU:0")
    with pytest.raises(FrozenInstanceError):
        row.name = "GPU:1"
    assert pickle.loads(pickle.dumps(row)) == row


def test_a_plan_in_memory_and_one_out_of_a_file_are_alike():
    """The same records, the same text."""
    plan = small_plan(warnings=(PlanWarning(code="odd", message="", ops=("a",)),))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert isinstance(again.warnings[0].ops, tuple)
