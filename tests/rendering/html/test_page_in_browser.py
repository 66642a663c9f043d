"""The page in a browser: it draws, its figures are the JSON's, nothing leaves it or runs in it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from browser import chromium, console, open_page, requests
from graphs_by_hand import draw, draw_cluster, draw_costs
from plans_by_hand import infeasible_plan, small_report
from selenium.webdriver import ActionChains
from steps_by_hand import drawn_plan, empty_step, long_step

import placer
from placer.prediction.predicted_step import KINDS, describe_step
from placer.prediction.prediction import predict
from placer.rendering.html.page import render_page
from placer.rendering.json_text import to_json

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

PEAK_FIGURE = "return Number(document.querySelector('#cursor .moment b').dataset.bytes)"
FIGURES = """return [...document.querySelectorAll('[data-key]')].map(
    (node) => [node.dataset.key, Number(node.dataset.value), node.innerText])"""
CANVAS_COLOURS = """const found = {};
for (const canvas of document.querySelectorAll('canvas.chart')) {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) colours.add(data.slice(i, i + 4).join());
  found[canvas.closest('section').id] = colours.size;
}
return found"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def report(saved_model):
    """The model of three layers on two GPUs that are too small for it."""
    options = {"max_memory": "GPU:*=300KiB", "batch_size": 8, "offload": "never"}
    return placer.report(saved_model, "2xGPU", **options)


@pytest.fixture
def show(driver, tmp_path):
    """Opens a page, and looks afterwards that nothing was logged and nothing else asked for."""
    shown = []

    def open_text(text):
        path = tmp_path / f"page{len(shown)}.html"
        path.write_text(text, encoding="utf-8")
        open_page(driver, path)
        shown.append(path.as_uri())
        return driver

    yield open_text
    assert console(driver) == []
    assert set(requests(driver)) == set(shown)


def _split(tab):
    return tab.rpartition(" ")


def value_at(document, key):
    for part in key.split("."):
        document = document[int(part)] if part.isdecimal() else document[part]
    return document


def test_every_figure_is_the_jsons(show, report):
    """What the template shows, the peak of the chart, and the rows of the tables."""
    page = show(render_page(report))
    document = json.loads(to_json(report))
    figures = page.execute_script(FIGURES)
    assert len(figures) > 25
    for key, value, text in figures:
        assert value == value_at(document, key), key
        assert text
    gpus = [row for row in document["plan"]["devices"] if row["type"] == "GPU"]
    tightest = max(gpus, key=lambda row: row["required_bytes"] / row["usable_bytes"])
    assert page.execute_script(PEAK_FIGURE) == tightest["peak_expected_bytes"]
    busy = {row["name"]: row["busy_seconds"] for row in document["plan"]["devices"]}
    step = report.plan.step()
    for number, device in enumerate(step.devices):
        seconds = [
            finish - start
            for start, finish, where in zip(
                step.start_seconds, step.finish_seconds, step.device_of, strict=True
            )
            if where == number
        ]
        assert sum(seconds) == pytest.approx(busy[device])
    counts = page.execute_script(
        "return [...document.querySelectorAll('[role=tab]')].map((tab) => tab.innerText)"
    )
    rows = {name: int(count.replace(",", "")) for name, _, count in map(_split, counts)}
    assert rows["Ops"] == len(document["plan"]["placement"])
    assert rows["Transfers"] == len(document["plan"]["transfers"])
    assert rows["Variables"] == len(document["plan"]["variables"])


def test_everything_is_drawn(show, report):
    """Both canvases have colours, the treemap cells, the layers parts and at least one ribbon."""
    page = show(render_page(report))
    colours = page.execute_script(CANVAS_COLOURS)
    assert colours.keys() == {"memory", "schedule"}
    assert min(colours.values()) > 5
    counts = page.execute_script(
        "return ['.cell', '.part', '.ribbon', '#tables tbody tr', '#memory .legend li']"
        ".map((query) => document.querySelectorAll(query).length)"
    )
    assert all(counts), counts


def test_memory_follows_the_cursor(show):
    """Home goes to the peak, an arrow to the next op; bytes and tensors are those of the step."""
    plan = drawn_plan()
    step = plan.step()
    page = show(render_page(plan))
    device = page.find_element("css selector", "#memory input[checked]").get_attribute("value")
    number, line = step.devices.index(device), step.memory_bytes[device]
    canvas = page.find_element("css selector", "#memory canvas")
    canvas.send_keys("\ue011")  # Home
    at = line.index(max(line))
    for position, key in ((at, "\ue014"), (at + 1, "\ue012"), (at, "")):
        if position < len(line):
            assert page.execute_script(PEAK_FIGURE) == line[position]
            alive = [
                b for b in step.buffers if b.device == number and b.first <= position <= b.last
            ]
            rows = page.find_elements("css selector", "#cursor tbody tr")
            assert len(rows) == len(alive)
        canvas.send_keys(key)
    kinds = {KINDS.index(buffer.kind) for buffer in step.buffers if buffer.device == number}
    assert len(page.find_elements("css selector", "#memory .legend li")) == len(kinds)


def test_devices_are_seen_together(show, report):
    """A line for each device that has a limit, the tightest first, each with its bytes."""
    page = show(render_page(report))
    tightest, *others = page.execute_script(
        "return [...document.querySelectorAll('#memory .choice input')].map((each) => each.value)"
    )
    assert others[-1] == "All"
    rows = {row.name: row for row in report.plan.devices}
    assert rows[tightest].required_bytes == max(
        row.required_bytes for row in rows.values() if row.type == "GPU"
    )
    page.execute_script("document.querySelector('#memory .choice input[value=All]').click()")
    shown = page.execute_script(
        "return [...document.querySelectorAll('#memory .legend li')].map((each) => each.innerText)"
    )
    assert sorted(text[:5] for text in shown) == ["GPU:0", "GPU:1"]


def test_a_script_in_an_op_name_does_not_run(show):
    """Names with markup are shown as they are, in every view and in the panel of an op.

    There is no function ``hacked``: the console, which must be empty, would tell of a call.
    """
    name = "<img id=hacked onerror='window.hacked=1'>&amp;<script>window.hacked=1;{<"
    plan = drawn_plan(prefix="</script><script>hacked();{<")
    plan = replace(plan, model={**plan.model, "path": name})
    page = show(render_page(plan))
    page.execute_script("document.querySelector('#tables .op').click()")
    assert page.execute_script("return window.hacked === undefined")
    assert page.execute_script("return document.querySelectorAll('#hacked, img').length") == 0
    assert page.execute_script("return document.scripts.length") == 2
    assert page.find_element("css selector", "h1").text == name.rpartition("/")[2]
    assert "</script>" in page.find_element("css selector", "#details h2").text


def test_search_finds_an_op_and_shows_it(show):
    """Two words of a name, the arrow and Enter: the panel names the op, what it reads, its time."""
    page = show(render_page(drawn_plan()))
    page.find_element("css selector", "body").send_keys("/")
    search = page.switch_to.active_element
    search.send_keys("two matmul")
    assert len(page.find_elements("css selector", "#matches [role=option]")) == 2
    search.send_keys("\ue015", "\ue007")  # down, Enter
    panel = page.find_element("css selector", "#details")
    assert panel.find_element("css selector", "h2").text == "net/two/b"
    assert "1.00 s" in panel.text
    assert "net/one/a" in panel.text
    page.switch_to.active_element.send_keys("\ue00c")  # Escape
    assert not panel.is_displayed()


def test_tables_sort_and_filter(show):
    """A click on a header sorts, a second one turns it round; words and devices filter."""
    page = show(render_page(drawn_plan()))

    def names():
        return [cell.text for cell in page.find_elements("css selector", "#tables td:first-child")]

    def press(header):
        page.execute_script(
            "[...document.querySelectorAll('#tables th button')]"
            ".find((button) => button.innerText.startsWith(arguments[0])).click()",
            header,
        )

    press("Op")
    up = [name for name in names() if name]
    press("Op")
    assert [name for name in names() if name] == up[::-1] == sorted(up, reverse=True)
    page.find_element("css selector", "#tables input").send_keys("net two")
    assert sorted(name for name in names() if name) == ["net/two/b", "net/two/c"]


def test_scopes_open_and_close_by_keyboard(show, report):
    """Everything closed is one part or few; Enter opens a part, Backspace closes it again."""
    page = show(render_page(report))

    def parts():
        return [
            part.get_attribute("aria-label")
            for part in page.find_elements("css selector", "#placement .part")
        ]

    before = parts()
    closed = page.find_element("css selector", "#placement .part.closed")
    closed.send_keys("\ue007")
    opened = parts()
    assert len(opened) > len(before)
    page.switch_to.active_element.send_keys("\ue003")
    assert parts() == before


def test_name_scopes_count_what_is_below_them_as_a_report_does(show, report):
    """The tab has as many rows as it says, and a row the figures of the report's text."""
    page = show(render_page(report))
    (tab,) = (
        each
        for each in page.find_elements("css selector", "[role=tab]")
        if each.text.startswith("Name scopes")
    )
    page.execute_script("arguments[0].click()", tab)
    rows = page.execute_script(
        """return [...document.querySelectorAll('#table-panel tbody tr:not([aria-hidden])')]
          .map((row) => [...row.cells].map((cell) => cell.textContent))"""
    )
    assert tab.text == f"Name scopes {len(rows)}"
    shown = {name: (time, int(ops.replace(",", ""))) for name, time, ops, *_ in rows}
    for spot in report.compute.by_scope:
        if spot.name in shown:
            assert shown[spot.name][1] == spot.op_count
    assert len(shown.keys() & {spot.name for spot in report.compute.by_scope}) >= 3


def test_what_is_loaded_and_not_used_is_named_in_every_view(show):
    """In the treemap beside the sum, which has ops alone; in the memory view as a kind."""
    plan = drawn_plan()
    step = replace(plan.step(), unused_bytes=tuple(3 << 20 for _ in plan.step().devices))
    page = show(render_page(replace(plan, step=lambda: step)))
    assert (
        "beside 3.00 MiB loaded and not used"
        in page.find_element("css selector", "#scopes .note").text
    )
    assert "loaded, not used" in page.find_element("css selector", "#memory .legend").text


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (1, 1 << 30, "Peak {own} along this execution order; 1 B to 1.00 GiB over"),
        (1, 2, "Peak 1 B to 2 B over all orders followed; {own} along this execution order in"),
    ],
)
def test_a_peak_that_the_picture_does_not_reach_is_the_plans(show, low, high, told):
    """Such as that of a loop, which the picture has as one op: the plan's comes first."""
    plan = drawn_plan()
    rows = [replace(row, peak_low_bytes=low, peak_memory_bytes=high) for row in plan.devices]
    page = show(render_page(replace(plan, devices=tuple(rows))))
    own = page.find_element("css selector", "#cursor .moment b").text
    assert told.format(own=own) in page.find_element("css selector", "#memory .note").text


def test_light_and_dark(show):
    """The button switches, and the paper changes with it."""
    page = show(render_page(drawn_plan()))
    paper = "return getComputedStyle(document.body).backgroundColor"
    papers = []
    for _ in range(2):
        page.find_element("css selector", "#theme").click()
        papers.append(page.execute_script(paper))
    assert len(set(papers)) == 2


def test_a_narrow_window_scrolls_down_only(driver, show, report):
    """At 380 pixels the page is no wider than the window."""
    metrics = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page = show(render_page(report))
        width = page.execute_script("return document.documentElement.scrollWidth")
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert width <= 380


def test_a_graph_of_forty_thousand_ops_stays_usable(show):
    """Less than 5 MB; of the tables and the graph only what is seen is drawn, search finds all."""
    step = long_step(2000)
    plan = drawn_plan(placement={name: "GPU:0" for name in step.ops}, step=lambda: step)
    text = render_page(plan)
    assert len(text.encode()) < 5e6
    page = show(text)
    for query, most in (("#tables tbody tr", 60), (".part", 60), (".cell", 1500)):
        assert 0 < page.execute_script(f"return document.querySelectorAll('{query}').length") < most
    search = page.find_element("css selector", "#search")
    search.send_keys("layer_1999/op_19", "\ue007")
    panel = page.find_element("css selector", "#details")
    assert panel.find_element("css selector", "h2").text == "model/layer_1999/op_19"
    page.execute_script("document.querySelector('#details .tools button').click()")
    assert "op_19" in page.find_element("css selector", "#placement .chosen").text


def boxes(page):
    """Closed boxes by name: their edges, and the colours of what they are filled with."""
    rows = page.execute_script(BOXES)
    return {name: (x, y, width, height, fills) for name, x, y, width, height, fills in rows}


BOXES = """return [...document.querySelectorAll('#placement .part:not(.opened)')].map((part) => {
  const {x, y, width, height} = part.querySelector('.outline').getBBox();
  const fills = [...part.querySelectorAll('rect:not(.outline)')]
    .map((fill) => getComputedStyle(fill).fill);
  return [part.dataset.name.split('/').pop(), x, y, width, height, fills];
})"""


def training_plan(layers=6):
    """A plan of a training step, forward up to the loss and back again: half of the layers, of two
    ops each, are on GPU:1, and 1 MiB crosses each way."""
    names = [f"net/layer_{i}/{op}" for i in range(layers) for op in ("mul", "act")]
    back = [f"gradients/{name}_grad/G" for name in names]
    weights = [f"net/layer_{i}/kernel" for i in range(layers)]
    updates = [f"up/{i}" for i in range(layers)]
    graph = draw(
        f"x=Placeholder -> {' -> '.join(names)} -> loss=L2Loss -> gradients/loss_grad/Mul",
        f"gradients/loss_grad/Mul -> {' -> '.join(reversed(back))}",
        *(f"{weight}=VarHandleOp -> {names[2 * i]}" for i, weight in enumerate(weights)),
        *(
            f"{weights[i]}, {back[2 * i]} -> {update}=ResourceApplyGradientDescent"
            for i, update in enumerate(updates)
        ),
        bytes=dict.fromkeys(["x", *names, *back], 1 << 20),
        dtypes=dict.fromkeys(weights, "resource"),
        feeds=["x"],
        fetches=["loss:0"],
    )
    half = layers // 2
    late = {*names[layers:], *back[layers:], *weights[half:], *updates[half:]}
    late |= {"loss", "gradients/loss_grad/Mul"}
    placement = {name: "GPU:1" if name in late else "GPU:0" for name in graph.ops}
    costs, cluster = draw_costs(graph, flops=10**9), draw_cluster("GPU:0", "GPU:1")
    metrics = predict(graph, costs, placement, cluster)
    step = describe_step(graph, costs, placement, cluster, metrics)
    return drawn_plan(placement=placement, step=lambda: step)


def test_layers_lie_in_the_order_of_the_model(show):
    """From the top down, one box per layer; weights and gradients lie with their layer."""
    page = show(render_page(training_plan()))
    found = boxes(page)
    order = ["x", *(f"layer_{i}" for i in range(6)), "loss"]
    assert sorted(found) == sorted(order)
    tops = [found[name][1] for name in order]
    assert tops == sorted(set(tops))
    label = page.find_element("css selector", "#placement [data-name$=layer_1]")
    assert "forward: 2 on GPU:0" in label.get_attribute("aria-label")
    assert "backward: 2 on GPU:0" in label.get_attribute("aria-label")
    assert "update: 1 on GPU:0" in label.get_attribute("aria-label")
    assert "1 constants and variables" in label.get_attribute("aria-label")


def test_the_cut_is_read_without_a_click(show):
    """Its bytes stand on its ribbons, forward downwards and backward upwards, within the frame; and
    in words above, by pair of devices."""
    page = show(render_page(training_plan()))
    labels = page.execute_script(
        """const frame = document.querySelector('.frame').getBoundingClientRect();
        return [...document.querySelectorAll('.bytes')].filter((label) => {
          const box = label.getBoundingClientRect();
          return box.top >= frame.top && box.bottom <= frame.bottom && box.left >= frame.left
            && box.right <= frame.right;
        }).map((label) => label.textContent)"""
    )
    assert labels.count("↓ 1.00 MiB") == 2  # the input, and between the layers
    assert labels.count("↑ 1.00 MiB") == 1
    cut = [item.text for item in page.find_elements("css selector", ".cut li")]
    assert any("GPU:0 → GPU:1 1.00 MiB 1 tensor" in text for text in cut), cut
    assert any("GPU:1 → GPU:0 1.00 MiB 1 tensor" in text for text in cut), cut


def test_boxes_have_the_colours_of_their_devices(show):
    """In the layers, the legend and the tables one colour is one device."""
    page = show(render_page(training_plan()))
    colours = page.execute_script(
        """const items = [...document.querySelectorAll('#placement .legend li')];
        return Object.fromEntries(items.map((item) => [
            item.innerText, getComputedStyle(item.querySelector('i')).backgroundColor]))"""
    )
    assert len(set(colours.values())) == 3
    found = boxes(page)
    assert set(found["layer_0"][4]) == {colours["GPU:0"]}
    assert set(found["layer_5"][4]) == {colours["GPU:1"]}


def test_pan_and_zoom(show):
    """Dragging moves the layers, the buttons and the wheel with Ctrl change their size about what
    is pointed at, the overview brings a place into view, and what is dragged is not clicked."""
    step = long_step(40, 4)
    plan = drawn_plan(placement={name: "GPU:0" for name in step.ops}, step=lambda: step)
    page = show(render_page(plan))
    before = len(boxes(page))
    state = """const frame = document.querySelector('.frame');
        const zoom = Number(document.querySelector('.viewport').dataset.zoom);
        return [frame.scrollLeft, frame.scrollTop, zoom]"""
    page.execute_script("document.querySelector('#placement').scrollIntoView()")
    for _ in range(4):
        page.find_element("css selector", "#placement [aria-label=Enlarge]").click()
    _, top, zoom = page.execute_script(state)
    assert zoom > 1.5
    frame = page.find_element("css selector", ".frame")
    drag = ActionChains(page, duration=20).move_to_element(frame).click_and_hold()
    drag.move_by_offset(-60, -80).release().perform()
    moved = page.execute_script(state)
    assert moved[1] == pytest.approx(top + 80, abs=3)
    assert len(boxes(page)) == before
    point = """const box = document.querySelector('#placement .part').getBoundingClientRect();
        return [box.x, box.y]"""
    at = page.execute_script(point)
    page.execute_script(
        """const [x, y] = arguments[0];
        document.querySelector('.frame').dispatchEvent(new WheelEvent('wheel', {
          deltaY: -60, ctrlKey: true, clientX: x, clientY: y, cancelable: true, bubbles: true}))""",
        at,
    )
    assert page.execute_script(state)[2] > moved[2]
    if at[1] > 0:
        assert page.execute_script(point) == pytest.approx(at, abs=3)
    overview = page.find_element("css selector", ".overview")
    page.execute_script("arguments[0].scrollIntoView({block: 'end'})", overview)
    ActionChains(page).move_to_element_with_offset(
        overview, 0, overview.size["height"] // 2 - 2
    ).click().perform()
    lowest = page.execute_script(
        """const frame = document.querySelector('.frame');
        return frame.scrollTop + frame.clientHeight >= frame.scrollHeight - 2"""
    )
    assert lowest
    page.find_element("css selector", "#placement [aria-label=Everything]").click()
    assert page.execute_script("return document.querySelector('.overview').hidden")


def test_layers_are_walked_by_keyboard(show):
    """One stop of Tab; arrows go down and up the model, Enter opens, Backspace closes, the size
    follows plus and 0, and an op shows its panel."""
    page = show(render_page(training_plan()))
    stops = page.find_elements("css selector", "#placement .part[tabindex='0']")
    assert len(stops) == 1
    stops[0].send_keys("\ue010")  # End
    names = [page.switch_to.active_element.get_attribute("data-name")]
    for _ in range(3):
        page.switch_to.active_element.send_keys("\ue013")  # up
        names.append(page.switch_to.active_element.get_attribute("data-name"))
    assert names[0] == "loss"
    assert names[1:] == ["layer_5", "layer_4", "layer_3"]
    page.switch_to.active_element.send_keys("\ue015")  # down
    assert page.switch_to.active_element.get_attribute("data-name") == names[2]
    before = len(boxes(page))
    page.switch_to.active_element.send_keys("\ue007")
    assert len(boxes(page)) > before
    inner = page.switch_to.active_element
    assert inner.get_attribute("data-name").endswith("layer_4/mul")
    inner.send_keys("+")
    zoom = "return Number(document.querySelector('.viewport').dataset.zoom)"
    enlarged = page.execute_script(zoom)
    page.switch_to.active_element.send_keys("0")
    assert page.execute_script(zoom) < enlarged
    for _ in range(2):  # the op with its gradient, and the op alone
        page.switch_to.active_element.send_keys("\ue007")
    assert page.find_element("css selector", "#details h2").text == "net/layer_4/mul"
    page.switch_to.active_element.send_keys("\ue00c")  # Escape
    for _ in range(2):
        page.switch_to.active_element.send_keys("\ue003")
    assert len(boxes(page)) == before


def test_memory_and_schedule_show_the_same_time(show):
    """What is enlarged in one is in the other, and the cursor stands in both."""
    page = show(render_page(training_plan()))
    pixels = """return ['memory', 'schedule'].map((id) => {
      const canvas = document.querySelector(`#${id} canvas`);
      return canvas.toDataURL();
    })"""
    before = page.execute_script(pixels)
    page.find_element("css selector", "#schedule canvas").send_keys("+")
    enlarged = page.execute_script(pixels)
    assert all(one != other for one, other in zip(before, enlarged, strict=True))
    page.find_element("css selector", "#memory canvas").send_keys("0")
    assert page.execute_script(pixels) == before
    page.find_element("css selector", "#memory canvas").send_keys("\ue012")  # left
    assert all(one != other for one, other in zip(before, page.execute_script(pixels), strict=True))


def test_tables_show_figures_on_a_phone(driver, show, report):
    """At 400 pixels the largest figure of a row stands beside its name, and devices are cards."""
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page = show(render_page(report))
        rights = page.execute_script(
            """const cells = '#tables .number, .devices td, #cursor .number';
            return [...document.querySelectorAll(cells)]
              .filter((cell) => cell.cellIndex < 3 || cell.closest('.devices'))
              .map((cell) => cell.getBoundingClientRect()).filter((box) => box.width && box.x < 400)
              .map((box) => box.right)"""
        )
        width = page.execute_script("return document.documentElement.scrollWidth")
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(rights) > 20
    assert sum(right <= 400 for right in rights) > 0.6 * len(rights)
    assert width <= 400


@pytest.mark.parametrize(
    "text",
    [
        render_page(small_report()),
        render_page(replace(drawn_plan(), step=None)),
        render_page(infeasible_plan()),
        render_page(replace(small_report(), step=empty_step)),
        render_page(drawn_plan(prefix="/")),
    ],
    ids=["report without a step", "plan out of a file", "infeasible", "no ops", "odd names"],
)
def test_pages_of_every_state_work(show, text):
    """Their scripts run to the end without an error."""
    assert show(text).find_element("css selector", "h1").text
