"""Plans as text, against literal tables."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest
from plans_by_hand import (
    MIB,
    device_row,
    infeasible_plan,
    small_plan,
    small_report,
    transfer_row,
)

from placer.graph.rewriting import Rewriting, Swap
from placer.pipeline.fixes import fit_note
from placer.plan.plan import Plan
from placer.plan.rows import PlanWarning
from placer.problem.conflict import CapInConflict, Conflict
from placer.problem.status import Stage
from placer.rendering.html.page import render_page
from placer.rendering.quantities import share_of_cap
from placer.rendering.results import render_result
from placer.rendering.text.answers import plan_answer, report_answer
from placer.rendering.text.explanation_text import conflict_blocks
from placer.rendering.text.formats import render
from placer.rendering.text.layout import ROWS, Rows, to_text
from placer.rendering.text.plan_text import NOTES, plan_blocks, quality_text, stages_text

render_plan = partial(render_result, format_name="text", width=80)
render_coloured = partial(render_result, format_name="text", width=80, colour=True)

PLACED = """\
Fits on 2x T4: GPU:1 90.0% full, sends 3.00 MiB a step (proven best).

models/small
SavedModel · signature serving_default · batch 32 · 4 ops

Placement
  status     OPTIMAL (proven best)
  cost       3.00 MiB
  made of    3.00 MiB sent in 4 messages
  transfers  1 data 3.00 MiB, 1 feed 1.00 KiB, 1 fetch 128 B, 1 control
  step       4.10 ms predicted; critical path 4.00 ms; busiest device 2.00 ms
             (work + transfers, which overlap)
  search     1.50 s, seed 0

Device  Ops  Required    Limit   Used  Resident     Busy      Peak  Model
─────────────────────────────────────────────────────────────────────────
GPU:0     1  60.0 MiB  100 MiB  60.0%  40.0 MiB  2.00 ms  60.0 MiB  T4
GPU:1     2  90.0 MiB  100 MiB  90.0%  40.0 MiB  2.00 ms  90.0 MiB  T4
CPU:0     1  1.00 KiB  100 MiB  <0.1%       0 B      0 s  1.00 KiB  CPU

Required: a memory limit that is enough in any execution order, padding and
fragmentation included. Peak: most bytes of tensors live at once. Not validated
on GPUs.

Transfers     Bytes  From   To     Kind   Memory
────────────────────────────────────────────────
a:0        3.00 MiB  GPU:0  GPU:1  data   device
x:0        1.00 KiB  CPU:0  GPU:0  feed   device
b:0           128 B  GPU:1  CPU:0  fetch  device
"""

INFEASIBLE = """\
No placement fits on 1x GPU (proven): GPU:0 must hold at least 120 MiB and can
hold 100 MiB. Would fit (tried): max_memory='GPU:0=120MiB'.

models/small
SavedModel · signature serving_default · batch 32

Placement
  status  INFEASIBLE (proven: no placement fits these limits and pins)
  limits  GPU:0 100 MiB
  search  1.50 s, seed 0

Why no placement fits
  because    GPU:0 (limit 100 MiB) must hold at least 120 MiB: pins={'a*':
             'GPU:0'} (2 ops, 70.0 MiB), the colocation group of w (2 ops, 40.0
             MiB) and other ops that may run nowhere else (10.0 MiB).
  would fit  max_memory='GPU:0=120MiB'
"""


@pytest.mark.parametrize(
    ("plan", "text"), [(small_plan(), PLACED), (infeasible_plan(), INFEASIBLE)], ids=["yes", "no"]
)
def test_a_plan_reads_like_this(plan, text):
    """The summary of a placed and of an infeasible plan, word by word."""
    assert render_plan(plan) == text
    assert plan.summary() == text


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    """Whatever the width, lines stay within it, and long op names keep their ends."""
    name = "StatefulPartitionedCall/resnet50_1/conv1_conv_1/convolution:0"
    plan = small_plan(transfers=(transfer_row(name, "GPU:0", "GPU:1", 3 << 20, "data"),))
    lines = render_plan(plan, width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert any(re.match(r"\S*n:0 +3.00 MiB", line) for line in lines)


def test_colours_are_only_there_when_asked_for():
    """Without colour there is no escape sequence; with it the text is the same."""
    coloured = render_plan(small_plan(), colour=True)
    assert "\x1b[" in coloured
    assert "\x1b" not in render_plan(small_plan())
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == render_plan(small_plan()).split()


def test_the_quality_of_an_answer_is_said_whatever_is_known():
    """Value, bound and gap are told as far as they are proven of the placement."""
    solver = small_plan().solver
    worse = replace(solver, value=2000, lower_bound=1500, relative_gap=0.25)
    unproven = replace(solver, value=2000, lower_bound=None, relative_gap=None)
    assert quality_text(worse) == "1.95 KiB, lower bound 1.46 KiB, gap 25.0%"
    assert quality_text(unproven) == "1.95 KiB, no lower bound proven"
    over = replace(worse, status="UNKNOWN", lower_bound=3000, relative_gap=-0.5)
    assert quality_text(over) == "1.95 KiB"


def test_only_the_largest_transfers_are_listed_unsized_last():
    """Ten rows, the largest first; and how many more there are."""
    rows = [transfer_row(f"t{i}:0", "GPU:0", "GPU:1", i * 1000, "data") for i in range(1, 15)]
    rows.append(transfer_row("string:0", "CPU:0", "GPU:1", None, "feed"))
    text = render_plan(small_plan(transfers=tuple(rows)))
    assert f"and {15 - ROWS} more" in text
    assert "t14:0" in text
    assert "t4:0" not in text
    assert "1 without a size" in text
    few = render_plan(small_plan(transfers=tuple(rows[-2:])))
    assert few.index("t14:0") < few.index("string:0")


def test_spilled_bytes_get_a_column_where_there_are_any():
    """What went to the host for want of room is shown per device."""
    plan = small_plan(devices=(device_row("GPU:0"), device_row("CPU:0", spilled_bytes=7 << 20)))
    lines = render_plan(plan).splitlines()
    header = next(line for line in lines if line.startswith("Device"))
    host = next(line for line in lines if line.startswith("CPU:0"))
    assert host[: header.index("Offloaded") + len("Offloaded")].endswith("7.00 MiB")
    assert "Offloaded" not in render_plan(small_plan())


def test_ops_that_keep_nothing_are_offloaded_too():
    """Where there are no bytes to tell, their number stands in the answer."""
    plan = small_plan(devices=(device_row("GPU:0"), device_row("CPU:0", spilled_ops=3)))
    assert plan_answer(plan).startswith("Fits on 1x GPU with 3 ops offloaded to CPU:0: ")


def test_a_cost_is_told_in_parts():
    """What is sent, in how many messages, and how much longer ops take."""
    metrics = replace(small_plan().metrics, sent_bytes=260 << 10, messages=9, slower_seconds=41e-6)
    text = render_plan(small_plan(metrics=metrics), width=200)
    assert "made of    260 KiB sent in 9 messages\n" in text
    text = render_plan(small_plan(metrics=replace(metrics, messages=1, slower_seconds=0.0)))
    assert "260 KiB sent in 1 message\n" in text
    timed = replace(small_plan().solver, objective="step-time", value=0.0041, lower_bound=0.004)
    text = render_plan(small_plan(metrics=metrics, solver=timed), width=200)
    assert "objective  step 4.10 ms, by the search's own estimate\n" in text
    assert "made of" not in text
    near = replace(timed, status="FEASIBLE", relative_gap=1e-6)
    assert ", gap below 0.1%\n" in render_plan(small_plan(metrics=metrics, solver=near), width=200)
    twice = (transfer_row("x:0", "CPU:0", "GPU:0", 4 << 10, "feed"),) * 2
    text = render_plan(small_plan(metrics=metrics, transfers=twice), width=200)
    assert (
        "256 KiB sent in 8 messages; not counted: 1 message (4.00 KiB) that repeats a tensor into "
        "host memory" in text
    )
    edges, signal = (("a", "b"),), transfer_row("^a", "GPU:0", "GPU:1", None, "control")
    linked = replace(
        small_plan().solver, value=248000, link_bandwidth=12e9, link_latency_seconds=1e-5
    )
    plan = small_plan(
        metrics=replace(metrics, sent_bytes=8000, messages=3, slower_seconds=0.0),
        solver=linked,
        control_edges=edges,
        transfers=(signal,),
    )
    told = "7.81 KiB sent + 234 KiB for the latency of 2 messages; not counted: 1 control edge b"
    assert told in render_plan(plan, width=200)  # of a cost of 242 KiB
    none = replace(metrics, sent_bytes=0, messages=0)
    linked = replace(small_plan().solver, link_bandwidth=12e9)
    text = render_plan(small_plan(metrics=none, solver=linked), width=200)
    extra = "480 KiB for the extra 41.0 µs of ops on slower devices"
    extra += " (as much as a link sends in that time)"
    assert f"made of    {extra}\n" in text
    text = render_plan(small_plan(metrics=metrics, solver=linked), width=200)
    assert f" + {extra}\n" in text
    # every message and every op is rounded up to whole bytes, as in the cost: 8 + 3 x 3 + 20
    tiny = replace(metrics, sent_bytes=8, messages=3, slower_seconds=17e-9, slower_bytes=20)
    link = replace(linked, value=37, link_bandwidth=1e9, link_latency_seconds=2.1e-9)
    text = render_plan(small_plan(metrics=tiny, solver=link), width=200)
    told = "8 B sent + 9 B for the latency of 3 messages + 20 B for the extra 0.02 µs of ops"
    assert " ".join(told.split()) in " ".join(text.split())
    # a tensor without a size counts in the cost as what is assumed of it, and is not among the sent
    assumed = (PlanWarning(code="assumed_sizes", message="sizes are assumed"),)
    plan = small_plan(metrics=tiny, solver=replace(link, value=40), warnings=assumed)
    assert "slower devices (as much as a link sends in that time) + 3 B of assumed size" in (
        " ".join(render_plan(plan, width=200).split())
    )


def test_all_on_the_host_is_said_beside_the_status():
    """It stands under the status, and is not told again among the warnings."""
    message = "everything is on CPU:0"
    plan = small_plan(warnings=(PlanWarning(code="all_on_host", message=message),))
    text = render_plan(plan)
    assert text.count(message) == 1
    assert text.index(message) < text.index("transfers")


def test_what_is_found_is_not_green():
    """Only a proof has the colour of one."""
    colours = {}
    for status in ("OPTIMAL", "FEASIBLE"):
        plan = small_plan(solver=replace(small_plan().solver, status=status, lower_bound=1.0))
        line = next(part for part in render_coloured(plan).splitlines() if status in part)
        colours[status] = re.search(r"\x1b\[(\d+)m" + status, line)[1]
    assert colours == {"OPTIMAL": "32", "FEASIBLE": "36"}


def test_why_nothing_fits_is_said_of_a_proof_only():
    """A placement over a cap, with none proven impossible, is shown as what it is."""
    conflict = Conflict(caps=(CapInConflict(device="GPU:0", peak_bytes=9, usable_bytes=8),))
    over = small_plan(solver=replace(small_plan().solver, status="UNKNOWN"), conflict=conflict)
    assert "Where this placement does not fit" in render_plan(over)
    assert "Why no placement fits" not in render_plan(over)
    assert "Why no placement fits" in render_plan(infeasible_plan())


def test_warnings_and_unmodelled_ops_are_never_silent():
    """Every warning is shown with its code and count, unmodelled op types with theirs."""
    warning = PlanWarning(code="unknown_shape", message="not counted", count=7, ops=("a:0",))
    text = render_plan(small_plan(warnings=(warning,), unmodelled={"Odd": 3, "Rare": 1}))
    assert "unknown_shape  not counted (7)" in text
    assert "3 Odd, 1 Rare" in text


def test_a_solver_that_crashed_is_said_beside_the_status():
    """What the answer is worth stands in the first lines, and is not repeated below."""
    warning = PlanWarning(code="solver_crashed", message="CP-SAT crashed", count=1, ops=())
    text = render_plan(small_plan(warnings=(warning,)))
    lines = [line.split() for line in text.partition("Placement\n")[2].splitlines()[:2]]
    assert [line[0] for line in lines] == ["status", "warning"]
    assert lines[1][1:] == ["CP-SAT", "crashed"]
    assert text.count("crashed") == 1


@pytest.mark.parametrize("key", sorted(infeasible_plan().conflict.to_json()))
def test_a_conflict_that_lacks_something_is_shown_all_the_same(key):
    """Plans of other versions hold other keys; what is there is told, and nothing is obeyed."""
    conflict = infeasible_plan().conflict.to_json()
    del conflict[key]
    conflict["fixes"] = ["raise \x1b[1mthe cap"]
    text = render_plan(replace(infeasible_plan(), conflict=Conflict.from_json(conflict)))
    assert "Why no placement fits" in text
    assert r"raise \x1b[1mthe cap" in text


@pytest.mark.parametrize("explains", [False, True])
def test_that_no_change_fits_is_said_once(explains):
    """By ``place``, and by ``explain`` with how to go on."""
    plan = infeasible_plan()
    plan = replace(plan, conflict=replace(plan.conflict, fixes=()))
    document = partial(conflict_blocks, plan, ()) if explains else partial(plan_blocks, plan)
    text = " ".join(render(document, "text", width=80, colour=False).split())
    assert text.count("No change that makes it fit was found.") == 1
    assert ("found. A longer search (time_limit=300) may find one." in text) == explains
    assert "-o PLAN" not in text  # of explain, there is one
    assert "Each of these changes" not in text


def test_a_proof_without_fit_says_so():
    """A longer search for what to compute again may make the step fit."""
    plan = infeasible_plan()
    plan = replace(plan, solver=replace(plan.solver, status="UNKNOWN"))
    text = " ".join(render_plan(plan).split())
    assert "(proven without fit): " in text
    told = "none found that fits with fit; without it none fits (proven)"
    assert f"UNKNOWN ({told})" in text
    assert "Why no placement fits" in text
    plan.raise_for_conflict()
    page = render_page(plan)
    assert ">Not found</p>" in page
    assert "Nothing fits these devices, limits and pins without fit</h2>" in page


def test_required_memory_is_what_caps_hold_for():
    """The need of the allocator, not the peak, is the share of the limit, in red above it; the
    first sentence says the same."""
    plan = small_plan()
    devices = [replace(row, need_bytes=123 << 20, allocator="one region") for row in plan.devices]
    over = replace(plan, devices=tuple(devices))
    assert over.devices[0].to_json()["required_bytes"] == 123 << 20
    shown = render_plan(over)
    assert "GPU:0     1   123 MiB  100 MiB  123.0%" in shown
    assert shown.startswith(
        "Not known to fit on 2x T4: in the best placement found, GPU:0 requires 123 MiB,\n"
    )
    assert re.search(r"\x1b\[31m *123.0%", render_coloured(over))


def test_the_moment_of_the_most_is_not_called_a_peak():
    """The required memory may be most while another op runs than that at which tensors peak."""
    row = device_row(
        "GPU:0",
        needs={"loading": MIB, "first_step": 3 * MIB, "later_steps": 2 * MIB},
        need_bytes=3 * MIB,
        need_peak_op="b",
    )
    shown = " ".join(render_plan(small_plan(devices=(row, *small_plan().devices[1:]))).split())
    assert "GPU:0 requires: loading 1.00 MiB, first step 3.00 MiB" in shown
    assert "later steps 2.00 MiB; the most while b runs" in shown


def test_columns_that_do_not_fit_are_named():
    """A narrow terminal hides the last columns, and says which."""
    assert "(hidden: Peak, Model; a wider terminal shows all)" in render_plan(
        small_plan(), width=60
    )
    assert "not shown" not in render_plan(small_plan(), width=80)


def test_names_that_differ_by_their_call_nodes_keep_them():
    """Where a longer one is cut; the others lose theirs."""
    names = ("StatefulPartitionedCall/NoOp", "StatefulPartitionedCall_1/NoOp", "PartitionedCall/a")
    rows = [*((name, "GPU:0") for name in names), ("long/" * 8, "GPU:0")]
    text = to_text([Rows(("Op", "On"), rows, width=42)], width=42, colour=False)
    assert [line.split()[0] for line in text.splitlines()[2:5]] == [*names[:2], "…/a"]


@pytest.mark.parametrize("code", NOTES)
def test_what_every_plan_of_its_kind_says_is_no_warning(code):
    """It is a note on the table."""
    note = PlanWarning(code=code, message="CPU:0 is taken to have enough")
    plan = small_plan(warnings=(note,))
    for text in (render_plan(plan), render_result(plan, "html", width=80)):
        assert "CPU:0 is taken to have enough" in text
        assert "Warnings" not in text.partition("<script")[0]


def test_a_proof_is_not_doubted_for_the_clock():
    """Where the clock ended a part of the search, what is proven best stays so."""
    solver = replace(small_plan().solver, cut_by_time=True)
    assert "search     1.50 s, seed 0\n" in render_plan(small_plan(solver=solver))
    for seconds, said in (
        (5.2, "results may differ between runs"),
        (30.0, "time limit reached; a"),
    ):
        found = replace(solver, status="FEASIBLE", seconds=seconds)
        assert said in " ".join(render_plan(small_plan(solver=found)).split())
        # nobody is told to give what was given
        plan = small_plan(solver=found)
        text = " ".join(render_plan(replace(plan, request={"work_limit": 2})).split())
        assert "time_limit ended the search before work_limit did" in text
        assert "makes them repeatable" not in text


def test_accelerators_without_ops_are_named_with_the_reason():
    """A second GPU that nothing is on; where all are used, or none is, there is no such line."""
    proven = replace(small_plan().solver, status="OPTIMAL")
    found = replace(small_plan().solver, status="FEASIBLE")
    alone = dict.fromkeys(small_plan().placement, "GPU:0")
    text = " ".join(render_plan(small_plan(placement=alone, solver=found)).split())
    assert "Idle: GPU:1, since no placement was found that costs less with it." in text
    text = " ".join(render_plan(small_plan(placement=alone, solver=proven)).split())
    assert "Idle: GPU:1, since no placement with it costs less." in text
    assert "Idle" not in render_plan(small_plan())
    assert "Idle" not in render_plan(small_plan(placement=dict.fromkeys(alone, "CPU:0")))


def test_what_swaps_send_is_no_part_of_the_cost():
    """The cost is that of the placement, and its parts add up to it."""
    plan = small_plan()
    swap = Swap(tensor="a:0", after=("b",))
    solver = replace(plan.solver, status="FEASIBLE")
    solver = replace(solver, value=3 * MIB + 1024 + 128, link_bandwidth=1e9)
    sent = (
        transfer_row("a:0", "GPU:0", "CPU:0", 2 * MIB, "data"),
        transfer_row(f"{swap.name}:0", "CPU:0", "GPU:0", 2 * MIB, "data"),
        transfer_row("^b", "GPU:1", "CPU:0", 4, "control"),
    )
    plan = replace(
        plan,
        placement={**plan.placement, swap.name: "CPU:0", swap.arrival: "CPU:0"},
        transfers=(*plan.transfers, *sent),
        metrics=replace(
            plan.metrics,
            sent_bytes=7 * MIB + 1024 + 128,
            messages=7,
            step_seconds=1.1e-3,
            fit_extra_seconds=1e-4,
        ),
        rewriting=Rewriting(swaps=(swap,)),
        solver=solver,
    )
    text = " ".join(render_plan(plan).split())
    added = "not counted: 3 messages (4.00 MiB together) that fit adds"
    assert f"made of 3.00 MiB sent in 4 messages; {added}" in text
    assert "the step is 100 µs (10.0%) longer than before fit, predicted" in " ".join(text.split())
    assert "FEASIBLE (found, not proven best)" in text


def test_a_step_made_to_fit_is_longer_by_one_share_wherever_it_is_said():
    """In the plan, and beside a change that would fit; a report rounds a limit as a plan does."""
    metrics = replace(small_plan().metrics, fit_extra_seconds=0.3, step_seconds=1.5)
    plan = small_plan(metrics=metrics)
    assert "300 ms (25.0%) longer than before " in " ".join(render_plan(plan).split())
    assert fit_note(plan).startswith("step 25.0% longer (predicted): ")
    found = small_report()
    required = found.memory.required_bytes
    full = replace(found, memory=replace(found.memory, usable_bytes=required + 1))
    assert full.memory.required_bytes == required
    assert report_answer(full).endswith(f"{share_of_cap(required, required + 1)}).")
    assert share_of_cap(required, required + 1) == "<100%"


LAYERS = Stage(
    name="layers",
    why="nothing fits yet",
    ended="a placement fits",
    seconds=0.25,
    searches=2,
    value=2048.0,
)


def test_a_stage_is_a_line():
    """Why it began, how it ended, and what is best by then; a plan in a file keeps it."""
    plan = small_plan()
    plan = replace(plan, solver=replace(plan.solver, objective="transfer", stages=(LAYERS,)))
    assert stages_text(plan.solver) == (
        "layers: nothing fits yet; a placement fits after 250 ms, 2 searches; 2.00 KiB, lower "
        "bound none\n"
    )
    assert Plan.from_json(plan.to_json()).solver.stages == (LAYERS,)
