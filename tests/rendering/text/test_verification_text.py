"""Verifications as text, against a literal one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from verifications_by_hand import failed_verification, small_verification

from placer.application.verifying.verification_result import OpRow
from placer.rendering.text.layout import ROWS
from placer.rendering.text.verification_text import render_verification

REHEARSED = """\
Ran as planned: 3 of 4 ops on their devices, the others explained, outputs
equal.

placed
Ran on CPU devices (GPU:0 as CPU:1, GPU:1 as CPU:2); graph optimization off.

Verification
  ops         3 of 4 ran where they were asked to; 1 fed
  transfers   1 of 1 predicted were made, no others; 1 fetch not checked (the
              run leaves outputs on their device)
  variables   1 of 1 where they should be
  outputs     1 output equal to the unplaced program's
  checked on  CPU devices: ops, transfers, variables, outputs

Ops elsewhere  Asked for  Ran on  Why
─────────────────────────────────────
x              GPU:0      CPU:0   fed
"""


def test_a_verification_reads_like_this():
    """A rehearsal in which a fed op and a fetched tensor are explained, word by word."""
    assert render_verification(small_verification(), "placed") == REHEARSED


def test_unexplained_differences_are_the_result():
    """What nothing explains is told in sentences."""
    text = render_verification(failed_verification(), "placed", width=200)
    assert "2 unexplained differences:" in text
    assert "op a was asked to run on GPU:0 and ran on CPU:0" in text
    assert "output y differs from the unplaced program's by up to 0.5" in text
    assert "NOT equal" in text


def test_on_hardware_and_without_a_plan_it_says_so():
    """Nothing is called a rehearsal or a prediction that is none."""
    text = render_verification(
        small_verification(rehearsed=False, planned=False), "placed", width=120
    )
    assert "Ran on the devices asked for" in text
    assert "Rehearsal" not in text
    assert "no plan to compare with" in text
    assert text.startswith("Ran as the model says: 3 of 4 ops")


def test_counts_of_codes_have_their_object():
    """Which op is in the row of each."""
    op = OpRow(op="a", requested="GPU:0", actual="CPU:0", code="colocated_with:b")
    sent = replace(small_verification().transfers[0], code="off_device")
    found = replace(small_verification(), ops=(op,), transfers=(sent,))
    text = render_verification(found, "placed", width=120)
    assert "0 of 1 ran where they were asked to; 1 colocated with another op" in text
    assert "1 of ops that ran elsewhere" in text
    assert "colocated with b" in text


def test_where_no_devices_are_asked_for_no_line_says_otherwise():
    """Neither the headline nor a row compares ops with devices that nothing asks for."""
    ops = (OpRow(op="a", requested="", actual="CPU:0"),)
    changes = {"rehearsed": False, "planned": False, "variables": (), "ops": ops}
    found = small_verification(**changes)
    assert repr(found) == "<Verification: 1 ops, none of which names a device, 0 mismatches>"
    text = render_verification(found, "m", width=120)
    assert "the model has no devices to check" in text
    assert "Ran on this machine; graph optimization off." in text
    assert "ops         1, none of which names a device\n" in text
    assert "devices asked for" not in text


def test_without_a_transfer_none_is_predicted():
    """Of none, none were made."""
    text = render_verification(small_verification(transfers=()), "placed")
    assert "transfers   none, as predicted" in text
    text = render_verification(small_verification(outputs=()), "placed", width=200)
    assert "on their devices, the others explained, no outputs to compare.\n" in text
    assert "outputs     none\n" in text


@pytest.mark.parametrize("width", [40, 80])
def test_long_lists_are_cut_and_counted(width):
    """Ten rows are shown of twelve, within the width, and a code keeps the op it names."""
    ops = tuple(
        OpRow(op=f"scope/op{i}", requested="GPU:0", actual="CPU:0", code="colocated_with:table")
        for i in range(12)
    )
    text = render_verification(small_verification(ops=ops), "placed", width=width)
    assert f"and {12 - ROWS} more" in text
    assert max(len(line) for line in text.splitlines()) <= width
    assert ("colocated with table" in text) == (width == 80)


def test_a_verification_has_the_summary_of_every_result():
    """The same text as the command's, under a heading of its own; its counts are ``counts``."""
    found = small_verification()
    assert (
        found.summary(width=70).splitlines()[4:]
        == (render_verification(found, "m", width=70).splitlines()[4:])
    )
    assert found.counts["ops"] == len(found.ops)
    assert f"of {len(found.ops)} ops as planned" in repr(found)
