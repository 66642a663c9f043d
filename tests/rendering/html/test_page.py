"""The page as text: its data come back, and no name gets out of them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from plans_by_hand import infeasible_plan, small_plan, small_report
from steps_by_hand import drawn_plan, drawn_step

from placer.errors import UsageError
from placer.rendering.html.page import json_in_script, render_page
from placer.rendering.results import render_result

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
    plan = replace(plan, warnings=({"code": name, "message": name, "count": 1, "ops": [name]},))
    plan = replace(plan, model={**plan.model, "path": name, "signature": name})
    calm = replace(plan, warnings=({"code": "a", "message": "a", "count": 1, "ops": ["a"]},))
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
    assert data["reads"] == [edge.producer for edges in step.edges for edge in edges]
    assert sum(data["output_bytes"]) == sum(s or 0 for sizes in step.output_bytes for s in sizes)
    assert data["buffers"]["bytes"] == [buffer.bytes for buffer in step.buffers]
    assert data["sent"]["bytes"] == [row.transfer.bytes for row in step.sent]
    assert data["step"] == round(step.step_seconds * 1e12)


def test_pages_of_every_state_are_written():
    """A report alone, a plan out of a file, one that fits nothing: each says what it lacks."""
    report = render_page(small_report())
    assert "No devices were named" in report
    assert 'data-key="memory.peak_bytes" data-value="5242880"' in report
    unplaced = replace(small_report(), warnings=(("not_placed", "a shape is unknown"),))
    page = render_page(unplaced)
    assert "Not placed, see" in page
    assert "No devices were named" not in page
    from_file = render_page(replace(drawn_plan(), step=None))
    assert "holds no graph" in from_file
    assert Page(from_file).data["placement"]["devices"] == ["CPU:0", "GPU:0", "GPU:1"]
    impossible = render_page(infeasible_plan())
    assert "--max-memory GPU:0=125829120" in impossible
    assert "GPU:0 (cap 100 MiB) must hold 120 MiB" in impossible
    assert "Impossible" in impossible


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
    assert repr(small_plan()) == "<Plan OPTIMAL: 4 ops, 3146752 bytes transferred>"
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
    """Proven best has the colour of its own; what was found is as far from the best as its bound,
    and both are about the spill allowance, if there is one."""
    solver = small_plan().solver
    proven = render_page(small_plan())
    assert "nothing better exists<" in proven
    assert "status-optimal" in proven
    taken = {"spill_footprint_bytes": 7 << 20, "spill_allowance_bytes": 8 << 20}
    within = render_page(small_plan(solver=replace(solver, **taken)))
    assert "nothing better exists within the spill allowance<" in within
    assert 'data-key="plan.solver.spill_allowance_bytes" data-value="8388608"' in within
    found = replace(solver, status="FEASIBLE", lower_bound=1.0, relative_gap=0.99)
    page = render_page(small_plan(solver=found))
    assert "at most 99.0% from the best<" in page
    assert "nothing better exists" not in page
    colours = dict(re.findall(r"\.tile \.status-(optimal|feasible) \{ color: var\(--(\w+)\)", page))
    assert colours["optimal"] == "good" != colours["feasible"]
