"""Reports as text, against a literal report."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from plans_by_hand import small_plan, small_report

from placer.plan.report import InputFacts, UnknownShape
from placer.rendering.results import render_result

render_report = partial(render_result, format_name="text", width=80)

REPORT = """\
A step requires 6.00 MiB on one device.

models/small
SavedModel · tags serve · signature serving_default

Model
  ops         4 of 100 in the file are used; 2 op types
  parameters  1,024 in 1 variable: float32 4.00 KiB
  inputs      x float32 [?, 8] set to [32, 8]
  outputs     y
  batch       set to 32 (batch_size)

Memory of a step with everything on one device
  required         6.00 MiB
  expected peak    5.00 MiB, while a runs; not validated on GPUs
  range            4.00 MiB to 6.00 MiB by the order of the ops
  at the peak      activations 5.00 MiB, weights 4.00 KiB, constants 16 B,
                   optimizer state 8 B
  scopes at peak   5.00 MiB layer
  largest at peak  3.00 MiB a, freed after b
  resident         weights 4.00 KiB, optimizer state 8 B, constants 16 B

Compute
  work  4.00 MFLOP, 2.01 MiB accessed, 1.9 FLOP per byte
  step  4.10 ms predicted on one T4
  ops   4.00 ms in all, without feeds and fetches; shares are of this

Op type     Time  Share  Ops    FLOP  Accessed    Output
────────────────────────────────────────────────────────
MatMul   3.00 ms  75.0%    2  4.00 M  2.00 MiB  1.00 MiB
Relu     1.00 ms  25.0%    1  1.00 k  7.81 KiB  3.91 KiB

Name scope       Time  Share  Ops    FLOP  Accessed    Output
─────────────────────────────────────────────────────────────
layer/matmul  3.00 ms  75.0%    2  4.00 M  2.00 MiB  1.00 MiB
layer/relu    1.00 ms  25.0%    1  1.00 k  7.81 KiB  3.91 KiB

Placing
  largest group  8.00 KiB (4.00 KiB resident): 3 ops such as w must share a
                 device (one variable)
  no GPU kernel  1 RandomShuffle
"""


def test_a_report_reads_like_this():
    """The report on a small model, word by word."""
    assert render_report(small_report()) == REPORT


def test_names_from_the_file_are_shown_and_not_obeyed():
    """Colours, line ends and letters that turn the line around come out escaped, everywhere."""
    report = small_report()
    name = "a\x1b[31m\u202e\nb"
    spot = replace(report.compute.by_op_type[0], name=name)
    told = render_report(
        replace(
            report,
            model=replace(report.model, path=name, outputs=(name,), signature=name),
            memory=replace(report.memory, peak_op=name, scopes_at_peak={name: 1}),
            compute=replace(report.compute, by_op_type=(spot,), by_scope=(spot,)),
        )
    )
    assert told.count(r"a\x1b[31m\u202e\nb") == 7
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_a_live_program_is_in_no_file():
    """Whatever kind it is: its title calls it a live program."""
    model = replace(small_report().model, path="", format="keras")
    text = render_report(small_report(model=model))
    assert "Live program" in text
    assert "4 of 100 in the program are used" in text


def test_with_a_plan_the_placement_follows():
    """A report with devices shows the placement, its proof and the transfers under the rest."""
    text = render_report(small_report(plan=small_plan()))
    assert text.startswith(
        "Fits on 2x T4: GPU:1 90.0% full, sends 3.00 MiB a step (proven best).\n"
    )
    assert REPORT.partition("\n")[2].replace("; not validated on GPUs", "") in text
    assert " ".join(text.split()).lower().count("not validated on gpus") == 1
    assert text.index("proven best") < text.index("\nGPU:1") < text.index("a:0")


def test_an_unbound_batch_is_said_aloud():
    """An unknown input dimension is named with the option that binds it."""
    open_input = InputFacts(
        key="x", dtype="float32", declared_shape=(None, 8), bound_shape=(None, 8)
    )
    model = replace(small_report().model, inputs=(open_input,), batch_size=None)
    text = render_report(small_report(model=model), width=200)
    assert "x float32 [?, 8]\n" in text
    assert "not set: x of unknown size; give batch_size=N" in text
    text = render_report(small_report(model=replace(model, batch_size=4)), width=200)
    assert "set to 4 (batch_size); x still open: shapes={'x'" in text
    bound = replace(model, inputs=(replace(open_input, bound_shape=(4, 8)),))
    assert "batch       set by shapes\n" in render_report(small_report(model=bound))


def test_ops_without_a_gpu_kernel_are_counted_in_bodies_too():
    """A plan, which places loops whole, counts fewer: the report says so."""
    report = small_report()
    assert "no GPU kernel  1 RandomShuffle\n" in render_report(report)
    model = replace(report.model, function_count=1)
    text = render_report(replace(report, model=model))
    assert "no GPU kernel  1 RandomShuffle; in loops and branches too\n" in text


def test_what_nothing_reads_is_there_while_its_op_runs():
    """A buffer that ends with the op that writes it has no reader to name."""
    report = small_report()
    buffer = replace(report.memory.largest_at_peak[0], until="a")
    text = render_report(small_report(memory=replace(report.memory, largest_at_peak=(buffer,))))
    assert "largest at peak  3.00 MiB a, while it runs\n" in text


def test_what_is_unknown_is_listed_and_not_counted():
    """Unknown shapes are counted, the ops at which they arise named, and figures say at least."""
    unknown = tuple(
        UnknownShape(tensor=f"t{i}:0", op_type="Odd", shape=(None,), is_origin=i > 0)
        for i in range(7)
    )
    text = render_report(
        small_report(unknown_shapes=unknown, unknown_share=0.125, unmodelled={"Odd": 7})
    )
    assert "7 tensors of unknown size, not counted (12.5% of bytes)" in text
    assert "t1:0 Odd [?]" in text
    assert "t0:0" not in text
    assert "and 1 more" in text
    assert "no cost model   7 Odd; 0.0% of the time" in text
    least = ("expected peak    at least 5.00 MiB", "at least 4.00 MFLOP", "at least 4.10 ms")
    for figure in (*least, "at least 4.00 ms in all"):
        assert figure in text
    # what ``place`` takes for known fits in one word, with a plan and without
    memory = replace(small_report().memory, usable_bytes=1024**3)
    for share, verb in ((0.125, "May fit"), (0.01, "Fits")):
        found = small_report(unknown_shapes=unknown, unknown_share=share, memory=memory)
        assert re.match(f"{verb} on one .*: a step requires at least", render_report(found))


def test_narrow_terminals_keep_every_line_inside():
    """At 40 columns no line is wider, and every section is still there."""
    lines = render_report(small_report(plan=small_plan()), width=40).splitlines()
    assert max(len(line) for line in lines) <= 40
    for heading in ("Model", "Compute", "Placing", "Placement"):
        assert heading in lines


def test_the_band_of_a_step_is_said_where_it_is_known():
    """A calibrated device gives a range, ops of unknown work a share; a preset says nothing."""
    report = small_report()
    assert "by the calibration" not in render_report(report, width=120, colour=False)
    unsure = replace(report.compute, inaccurate_share=0.25, relative_error=0.35)
    text = render_report(replace(report, compute=unsure), width=200, colour=False)
    assert "4.10 ms predicted on one T4, 3.04 ms to 5.54 ms by the calibration\n" in text
    ops = "4.00 ms in all, without feeds and fetches, 25.0% of it in ops whose work is not fully"
    assert ops in text  # a share of their time, which the step is not


def test_names_that_shape_takes_are_whole():
    """Inputs and the ops where shapes get lost, however narrow the terminal."""
    name = "StatefulPartitionedCall/" * 6 + "RaggedReduceSum/Repeat/SequenceMask/Range"
    lost = UnknownShape(tensor=f"{name}:0", op_type="Range", shape=(None,), is_origin=True)
    key = "serving_default_" + "long_" * 20
    item = InputFacts(key=key, dtype="int64", declared_shape=(None,), bound_shape=(None,))
    model = replace(small_report().model, inputs=(item,))
    report = small_report(model=model, unknown_shapes=(lost,))
    lines = render_report(report, width=60).splitlines()
    assert f"  {name}:0 Range [?]" in lines
    assert key in "".join(line.strip() for line in lines)
    assert name in render_result(report, "markdown", width=60).replace("\\", "")


def test_what_the_allocator_needs_is_shown_with_its_parts():
    """Of a report in which allocators were followed."""
    report = small_report()
    mib = 1 << 20
    memory = replace(
        report.memory,
        allocator="one region",
        need_expected_bytes=7 * mib,
        need_low_bytes=6 * mib,
        need_bytes=9 * mib,
        need_parts={"tensors": 5 * mib, "workspace": 0, "padding": mib, "fragmentation": mib},
    )
    shown = " ".join(render_report(replace(report, memory=memory)).split())
    assert (
        "required 9.00 MiB made of tensors 5.00 MiB, padding 1.00 MiB, fragmentation 1.00 MiB; "
        "2.00 MiB more in the worst order of the ops" in shown
    )
    loading = replace(memory, high_bytes=4 * mib)  # no moment of a step has that many
    assert "made of tensors 5.00 MiB while loading, padding" in " ".join(
        render_report(replace(report, memory=loading)).split()
    )


def test_resident_bytes_that_are_elsewhere_are_told_apart():
    """Constants in host memory are resident, and not at the peak of the device."""
    memory = small_report().memory
    apart = replace(memory, constant_bytes=2064)
    text = render_report(replace(small_report(), memory=apart))
    assert "constants 2.02 KiB; 2.00 KiB of it in host memory" in " ".join(text.split())
    assert "in host memory" not in render_report(small_report())
