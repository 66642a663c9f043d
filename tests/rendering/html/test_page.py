"""The page as text: its data come back, and no name gets out of them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import accumulate, combinations, product
from pathlib import Path

import pytest
from plans_by_hand import MIB, device_row, infeasible_plan, small_plan, small_report
from steps_by_hand import drawn_plan, drawn_step

import placer.rendering.html
from placer.errors import UsageError
from placer.front_words import command_line
from placer.plan.report import UnknownShape
from placer.plan.rows import GateVerdict, PlanWarning
from placer.prediction.predicted_step import KINDS
from placer.questions.auto_result import AutoResult, AutoRow
from placer.rendering.html.page import _render, json_in_script, render_page
from placer.rendering.results import render_result
from placer.rendering.text.answers import required_note

STATIC = Path(placer.rendering.html.__file__).parent / "static"
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "a&lt;b&amp;",
    "line\u2028and\u2029paragraph\nnewline\x07\u202eright to left",
    "{{ 7 * 7 }}{% raw %}",
]


class Page(HTMLParser):
    """Elements and the text of every script of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.policy, self.open = [], [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        assert not [key for key in attributes if key.startswith("on")]
        assert not {"src", "href"} & attributes.keys() or attributes["href"].startswith("#")
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]
        self.open = tag == "script"
        if self.open:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.open = False

    def handle_data(self, data):
        if self.open:
            self.scripts[-1] += data

    @property
    def data(self):
        return json.loads(self.scripts[0])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_a_name(name):
    """It makes no element, and comes back out of the data as it was."""
    plan = drawn_plan(prefix=name.replace("=", "").replace("/", ""))
    plan = replace(plan, warnings=(PlanWarning(code=name, message=name, ops=(name,)),))
    plan = replace(plan, model={**plan.model, "path": name, "signature": name})
    calm = replace(plan, warnings=(PlanWarning(code="a", message="a", ops=("a",)),))
    calm = replace(calm, model={**plan.model, "path": "a", "signature": "a"}, step=None)
    calm = replace(calm, step=drawn_plan().step)
    page, reference = Page(render_page(plan)), Page(render_page(calm))
    assert page.tags == reference.tags
    assert len(page.scripts) == 2
    assert page.data["plan"]["model"]["path"] == name


def test_json_in_a_script_cannot_end_it():
    """No character that means something to an HTML parser is left, and nothing is lost."""
    text = json_in_script(HOSTILE)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == HOSTILE


def test_the_policy_names_the_scripts_own_hash():
    """Nothing but this script and style may run or load."""
    text = render_page(drawn_plan())
    page = Page(text)
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy
    assert page.policy.startswith("default-src 'none'")
    assert "://" not in re.sub(r"http://www\.w3\.org/2000/svg", "", text)


def test_the_columns_hold_the_step():
    """Names, bytes, reads and transfers of the data are those of the step."""
    _, step, _ = drawn_step()
    data = Page(render_page(drawn_plan())).data["step"]
    strings = data["strings"]
    assert [strings[number] for number in data["leaf"]] == [n.split("/")[-1] for n in step.ops]
    reads = [edge.producer for edges in step.edges for edge in edges]
    readers = [op for op, edges in enumerate(step.edges) for _ in edges]
    assert [op - back for op, back in zip(readers, data["reads"], strict=True)] == reads
    assert list(accumulate(data["order"])) == list(step.order)
    assert sum(data["output_bytes"]) == sum(s or 0 for sizes in step.output_bytes for s in sizes)
    assert data["buffers"]["bytes"] == [buffer.bytes for buffer in step.buffers]
    assert list(accumulate(data["buffers"]["first"])) == [buffer.first for buffer in step.buffers]
    assert data["sent"]["bytes"] == [row.transfer.bytes for row in step.sent]
    assert data["step"] == round(step.step_seconds * 1e12)


def test_pages_of_every_state_are_written():
    """A report alone, a plan out of a file, one that fits nothing: each says what it lacks."""
    report = render_page(small_report())
    assert "No devices were named" in report
    assert 'data-key="memory.peak_bytes" data-value="5242880"' in report
    assert "at least <span" not in report
    lost = UnknownShape(tensor="a:0", op_type="A", shape=(None,), is_origin=True)
    page = render_page(replace(small_report(), unknown_shapes=(lost,)))
    for key in ("memory.peak_bytes", "memory.required_bytes", "compute.flops"):
        assert f'at least <span data-key="{key}"' in page
    unplaced = replace(small_report(), warnings=(("not_placed", "a shape is unknown"),))
    page = render_page(unplaced)
    assert "Not placed, see" in page
    assert "No devices were named" not in page
    unfit = replace(small_report(), plan=infeasible_plan(), step=drawn_plan().step)
    assert "Not placed: memory, times and the schedule are those of one" in render_page(unfit)
    assert "Not placed: memory" not in render_page(drawn_plan())
    from_file = render_page(replace(drawn_plan(), step=None))
    assert "holds no graph" in from_file
    assert Page(from_file).data["placement"]["devices"] == ["CPU:0", "GPU:0", "GPU:1"]
    impossible = render_page(infeasible_plan())
    assert "--max-memory GPU:0=120MiB" in impossible
    assert "GPU:0 (limit 100 MiB) must hold at least 120 MiB" in impossible
    assert "Impossible" in impossible
    assert "Would fit (tried)" in impossible


def test_options_on_a_page_are_those_of_who_writes_it():
    """Keyword arguments from Python, options from the command line; whole commands stay."""
    told = PlanWarning(code="a", message="try --offload auto or placer place --fit auto", ops=())
    plan = replace(drawn_plan(), warnings=(told,))
    assert "try offload=&#39;auto&#39; or placer place --fit auto" in render_page(plan)
    with command_line():
        assert told.message in render_page(plan)


def test_a_page_is_written_once(tmp_path):
    """``to_html`` writes a file and refuses to overwrite it; the plan's JSON knows no step."""
    plan, path = drawn_plan(), tmp_path / "plan.html"
    plan.to_html(path)
    with pytest.raises(UsageError, match="exists already"):
        plan.to_html(path)
    small_report().to_html(path, force=True)
    assert "step" not in json.loads(plan.to_json())
    assert json.loads(plan.to_json()) == json.loads(replace(plan, step=None).to_json())


def test_what_a_shell_shows_is_short():
    """A plan of a hundred thousand ops must not fill the screen."""
    assert repr(small_plan()) == "<Plan OPTIMAL: 4 ops, 3146880 bytes sent a step>"
    assert repr(infeasible_plan()) == "<Plan INFEASIBLE: no placement>"
    assert repr(small_report()).startswith("<Report: ")
    assert small_report().summary(width=70) == render_result(small_report(), "text", width=70)


def test_a_notebook_shows_the_page_in_a_frame_without_rights():
    """The frame may run the page's script, and reach nothing of the notebook."""
    shown = small_plan()._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown
    assert small_report()._repr_html_().startswith("<iframe")


def test_nothing_better_exists_is_said_of_a_proof_only():
    """Proven best has the colour of its own; what was found is as far from the best as its bound
    says."""
    solver = small_plan().solver
    proven = render_page(small_plan())
    assert "nothing better exists<" in proven
    assert "status-optimal" in proven
    found = replace(solver, status="FEASIBLE", lower_bound=1.0, relative_gap=0.99)
    page = render_page(small_plan(solver=found))
    assert "at most 99.0% from the best<" in page
    assert "nothing better exists" not in page
    assumed = PlanWarning(code="assumed_sizes", message="sizes are assumed")
    found = replace(solver, status="FEASIBLE", relative_gap=0.0)
    page = render_page(small_plan(solver=found, warnings=(assumed,)))
    assert "proven best for the assumed sizes<" in page
    colours = dict(re.findall(r"\.tile \.status-(optimal|feasible) \{ color: var\(--(\w+)\)", page))
    assert colours["optimal"] == "good" != colours["feasible"]


def test_the_page_carries_the_licence_of_the_library_in_it():
    """Who passes the page on passes dagre on: with its version, its notice, and no address."""
    page = render_page(drawn_plan())
    version = (STATIC / "dagre" / "VERSION").read_text().strip()
    assert f"dagre {version}" in page
    assert (STATIC / "dagre" / "LICENSE").read_text() in page
    assert "sourceMappingURL" not in page


def test_the_need_of_a_device_is_told_in_parts():
    """The peak, and what is beyond it, are the need, in words and in the bar."""
    row = replace(
        small_plan().devices[0],
        resident_bytes=40 << 20,
        peak_memory_bytes=100 << 20,
        allocator="one region",
        in_use_peak_bytes=110 << 20,
        need_bytes=150 << 20,
        usable_bytes=200 << 20,
    )
    page = render_page(small_plan(devices=(row, *small_plan().devices[1:])))
    assert '<td class="number" data-head="Beyond the peak">50.0 MiB</td>' in page
    bars = re.findall(
        r'<rect class="(resident|step|padding)"[^>]* x="([0-9.]+)" width="([0-9.]+)"', page
    )
    assert [(kind, float(x), float(width)) for kind, x, width in bars[:3]] == [
        ("resident", 0.0, 20.0),
        ("step", 20.0, 30.0),
        ("padding", 50.0, 25.0),
    ]
    for usable, level in ((150, "near"), (140, "over")):
        row = replace(row, usable_bytes=usable << 20)
        page = render_page(small_plan(devices=(row, *small_plan().devices[1:])))
        assert f'<svg class="gauge {level}"' in page


@pytest.mark.parametrize("result", [small_plan(), small_report(plan=small_plan())])
def test_a_verdict_of_gates_stands_on_the_page_as_in_the_text(result):
    """Of a plan, and of a report, which has its own."""
    verdict = GateVerdict(passed=False, failures=("GPU:0 requires 9 GiB",), notes=("so be it",))
    assert "Gate" not in render_page(result)
    page = render_page(replace(result, gate=verdict))
    assert '<p class="note">Gate failed: GPU:0 requires 9 GiB; so be it.</p>' in page
    told = " ".join(replace(result, gate=verdict).summary().split())
    assert "verdict failed why GPU:0 requires 9 GiB note so be it" in told


def test_messages_are_those_of_the_text():
    """Control signals are among them."""
    plan = small_plan()
    assert any(row.kind == "control" for row in plan.transfers)
    assert f"{plan.metrics.messages} messages between devices" in render_page(plan)


def test_a_change_that_may_fit_is_not_denied():
    """The first sentence alone says what to try."""
    plan = infeasible_plan()
    conflict = replace(plan.conflict, fixes=())
    for offload, count in (("never", 0), ("auto", 1)):
        found = replace(plan, conflict=conflict, request={**plan.request, "offload": offload})
        page = render_page(found)
        assert page.count("No change that makes it fit was found") == count
        assert page.count("May fit (not tried): ") == 1 - count


def test_clones_and_swaps_have_their_place():
    """What a plan's file says is computed again, swapped or released, name by name."""
    plan = json.loads(small_plan().to_json())
    assert "Rewritten step" not in _render({"plan": plan}, None)
    plan["rewriting"] = {
        "clones": [{"op": "net/<relu>", "after": ["net/late"]}],
        "released": ["train/join"],
    }
    page = _render({"plan": plan}, None)
    assert '<td>computed again</td><td class="wrap">net/&lt;relu&gt;</td>' in page
    assert '<td>released</td><td class="wrap">train/join</td>' in page


def test_what_auto_tried_has_its_place():
    """The page of the best way's plan, with every other way and why it lost."""
    rows = (
        AutoRow(
            name="as it is", changes="nothing", least_seconds=2.0, step_seconds=2.0, note="slow"
        ),
        AutoRow(name="replicas <4>", changes="a copy each", least_seconds=0.5, step_seconds=0.6),
        AutoRow(name="pieces", changes="many", least_seconds=3.0, note="cannot beat the replicas"),
    )
    found = AutoResult(
        model=small_plan().model,
        name="",
        task="training",
        aim="throughput",
        batch_size=8,
        margin=0.1,
        caps={},
        rows=rows,
        chosen="replicas <4>",
        gain=3.33,
        advice=("NVLink",),
        plan=small_plan(),
        keras_seconds=0.0,
    )
    page = render_result(found, "html", width=80)
    assert 'replicas &lt;4&gt; <span class="tag">chosen</span>' in page
    assert "3.33 times as fast as the next that was built and fits" in page
    assert "at least 3.00 s" in page
    assert "cannot beat the replicas" in page
    assert ">Strategies</h2>" in page
    assert ">Strategies</h2>" not in render_page(small_plan())
    same = replace(found, chosen="as-it-is", rows=(replace(rows[0], name="as-it-is"),))
    # there is nothing to apply
    assert ["Next: <code>" in render_page(row) for row in (found, same)] == [True, False]
    for changes, said in (
        ({}, "Steps within 10% of the fastest, or longer by less than 100 µs, count as equally"),
        ({"keras_seconds": 2e-3}, "100 µs, or shorter than the 2.00 ms that Keras adds, count as"),
        ({"margin": 0.0}, "The fastest strategy that fits is taken."),
        ({"aim": "memory"}, "The simplest strategy that fits is taken."),
    ):
        assert said in render_page(replace(found, **changes))
    live = render_page(replace(found, name="net"))
    assert '<h1 id="title">net</h1>' in live
    for shown in (live, render_result(replace(found, name="net"), "text", width=80)):
        assert "Keras model" in shown
        assert "SavedModel" not in shown
    # as shells, print() and notebooks show it
    assert repr(found) == str(found) == found.summary()
    assert "- **pieces**: cannot beat the replicas" in found._repr_markdown_()


def test_colours_of_devices_and_of_kinds_do_not_overlap():
    """No two of them are alike, to an eye without red or green cones neither (Machado, Oliveira and
    Fernandes, doi:10.1109/TVCG.2009.113; distances in Oklab)."""
    css = (STATIC / "page.css").read_text()
    found = dict(re.findall(r"--((?:device|kind)-\w+): (#[0-9a-f]{6});", css))
    devices = [colour for name, colour in found.items() if name.startswith("device")]
    kinds = [colour for name, colour in found.items() if name.startswith("kind")]
    assert {f"kind-{kind}" for kind in KINDS} <= found.keys()
    assert len(devices) == 9
    for sight in SIGHTS:
        seen = {colour: oklab(linear(colour), sight) for colour in (*devices, *kinds)}
        for one, other in product(devices, kinds):
            assert math.dist(seen[one], seen[other]) > 0.09, (one, other)
            assert seen[one][0] > seen[other][0], "devices are lighter than kinds"
        for one, other in (*combinations(devices, 2), *combinations(kinds, 2)):
            assert math.dist(seen[one], seen[other]) > 0.08, (one, other)


SIGHTS = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
)


def linear(colour):
    """Red, green and blue of a #rrggbb as amounts of light."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def oklab(light, sight):
    """What is seen of ``light``, in Oklab (Ottosson, 2020)."""

    def times(matrix, vector):
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    seen = [min(1.0, max(0.0, part)) for part in times(sight, light)]
    cones = times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        seen,
    )
    return times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        [cone ** (1 / 3) for cone in cones],
    )


def test_a_placement_over_a_limit_is_neither_applied_nor_near_the_best():
    """What comes next and the distance from the best are of placements that fit."""
    plan = small_plan(solver=replace(small_plan().solver, status="FEASIBLE", relative_gap=0.5))
    over = replace(plan, solver=replace(plan.solver, status="UNKNOWN"))
    for told in ("placer apply", "at most 50.0% from the best"):
        assert told in render_page(plan)
        assert told not in render_page(over)


def test_a_page_and_a_text_say_what_is_required_where_no_allocator_decides():
    """On a CPU more than its peak, and under a limit that is no allocator's not more."""
    cpu = device_row("CPU:0", need_bytes=70 * MIB, needs=None)
    tiny = device_row("GPU:0", need_bytes=70 * MIB, usable_bytes=1024)
    for rows, told in (
        ([cpu], "A CPU requires more than its peak where ops run at the same time"),
        ([tiny], "Under a limit below 1.00 MiB the peak is what is required."),
    ):
        plan = small_plan(devices=(*small_plan().devices, *rows))
        for text in (render_page(plan), render_result(plan, "text", width=300)):
            assert told in text
    assert not required_note(small_plan())
