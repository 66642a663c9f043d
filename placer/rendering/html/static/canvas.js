// Drawing along the time of a step, which can be enlarged: the memory chart and the schedule show the
// same part of it, one above the other.
const niceStep = (span, count) => {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
};
const niceBytes = (span, count) => 2 ** Math.max(0, Math.ceil(Math.log2(span / count)));

class Chart {
  // `draw(context, width, height)` paints; `point(x, y)` and `key(event)` are told what is pointed at.
  constructor({ label, height, draw, point, key }) {
    Object.assign(this, { height, draw, point, extent: timeAxis.extent, least: timeAxis.least, left: timeAxis.left });
    timeAxis.charts.push(this);
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": label, class: "chart" });
    this.tools = element("div", { class: "tools", role: "group", "aria-label": "Range shown" },
      this.tool("Enlarge", "+", () => this.zoom(0.5)), this.tool("Reduce", "−", () => this.zoom(2)),
      this.tool("Earlier", "◀", () => this.move(-0.4)), this.tool("Later", "▶", () => this.move(0.4)),
      this.tool("Everything", "All", () => this.show(0, this.extent)));
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.value(event.offsetX));
      else this.move((event.deltaX || event.deltaY) / 1500);
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.drag = event.offsetX;
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag === undefined) { point(this.value(event.offsetX), event.offsetY, false, event); return; }
      this.band = event.offsetX;
      this.paint();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const from = this.drag;
      this.drag = this.band = undefined;
      if (from === undefined) return;
      if (Math.abs(event.offsetX - from) < 6) { point(this.value(event.offsetX), event.offsetY, true, event); this.paint(); return; }
      this.show(...[this.value(from), this.value(event.offsetX)].sort((a, b) => a - b));
    });
    this.canvas.addEventListener("pointerleave", (event) => point(null, null, false, event));
    this.canvas.addEventListener("dblclick", () => this.show(0, this.extent));
    this.canvas.addEventListener("keydown", (event) => {
      const actions = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show(0, this.extent) };
      if (actions[event.key]) actions[event.key]();
      else if (!key(event)) return;
      event.preventDefault();
    });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
  }
  tool(label, sign, action) { return element("button", { type: "button", title: label, "aria-label": label, onclick: action }, sign); }
  get range() { return timeAxis.range; }
  get width() { return Math.max(1, this.canvas.clientWidth - this.left - 8); }
  value(x) { return this.range[0] + Math.min(1, Math.max(0, (x - this.left) / this.width)) * (this.range[1] - this.range[0]); }
  x(value) { return this.left + (value - this.range[0]) / (this.range[1] - this.range[0]) * this.width; }
  show(from, to) {
    const span = Math.min(this.extent, Math.max(to - from, this.least));
    const start = Math.min(Math.max(0, (from + to - span) / 2), this.extent - span);
    timeAxis.range = [start, start + span];
    timeAxis.paint();
  }
  zoom(factor, around = (this.range[0] + this.range[1]) / 2) {
    this.show(around - (around - this.range[0]) * factor, around + (this.range[1] - around) * factor);
  }
  move(share) {
    const span = this.range[1] - this.range[0];
    const start = Math.min(Math.max(0, this.range[0] + share * span), this.extent - span);
    this.show(start, start + span);
  }
  // Brings a value into the part that is shown.
  reveal(value) {
    const [from, to] = this.range;
    if (value < from || value > to) this.show(value - (to - from) / 2, value + (to - from) / 2);
    else timeAxis.paint();
  }
  paint() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.draw(context, width, this.height);
    if (this.band === undefined) return;
    context.fillStyle = colour("band");
    context.fillRect(Math.min(this.drag, this.band), 0, Math.abs(this.band - this.drag), this.height);
  }
  // The moment that is looked at, down to `bottom`.
  cursor(context, bottom) {
    const x = Math.round(this.x(timeAxis.cursor)) + 0.5;
    if (timeAxis.cursor === null || x < this.left || x > this.left + this.width + 1) return;
    context.strokeStyle = colour("text");
    context.beginPath(); context.moveTo(x, 2); context.lineTo(x, bottom); context.stroke();
  }
  // Ticks along the bottom, as many as do not overlap.
  axis(context, height) {
    const step = niceStep(this.range[1] - this.range[0], Math.max(2, this.width / 110));
    const format = timeAxis.format(step);
    context.fillStyle = colour("quiet");
    context.strokeStyle = colour("line");
    context.textBaseline = "top";
    let last = -Infinity;
    for (let value = Math.ceil(this.range[0] / step) * step; value <= this.range[1]; value += step) {
      const x = Math.round(this.x(value)) + 0.5;
      const text = format(value);
      const half = context.measureText(text).width / 2;
      context.beginPath(); context.moveTo(x, height - 18); context.lineTo(x, height - 14); context.stroke();
      if (x - half < last + 10 || x + half > this.left + this.width + 8) continue;
      context.textAlign = "center";
      context.fillText(text, x, height - 12);
      last = x + half;
    }
  }
}

const tooltip = byId("tooltip");
const hideTooltip = () => { tooltip.hidden = true; };
const showTooltip = (lines, event) => {
  tooltip.replaceChildren(...lines.map((line, i) => element(i ? "div" : "b", {}, line)));
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.width - 4))}px`;
  tooltip.style.top = `${Math.max(4, event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 12 : event.clientY + 18)}px`;
};
