// A picture that is moved under a frame: dragging, scrolling and zooming, and an overview beside it.
// Scrolling is the browser's own, so that wheels, fingers and keys do what they do elsewhere.
const leastZoom = 0.15, mostZoom = 2.5;

class Viewport {
  // `paintOverview(context, scale)` draws the whole as it is.
  constructor(picture, { label, paintOverview }) {
    Object.assign(this, { picture, paintOverview, zoom: 1, width: 1, height: 1 });
    this.frame = element("div", { class: "frame", role: "application", "aria-label": label }, picture);
    this.overview = element("canvas", { class: "overview", "aria-hidden": "true" });
    this.node = element("div", { class: "viewport" }, this.frame, this.overview);
    this.tools = element("div", { class: "tools", role: "group", "aria-label": "Size" },
      this.tool("Enlarge", "+", () => this.scale(1.25)), this.tool("Reduce", "−", () => this.scale(0.8)), this.tool("Everything", "All", () => this.fit()));
    this.frame.addEventListener("scroll", () => this.paint());
    this.frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = this.frame.getBoundingClientRect();
      this.scale(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    this.dragging(this.frame, (event, from) => {
      this.frame.scrollTo(from.left + from.x - event.clientX, from.top + from.y - event.clientY);
    });
    this.dragging(this.overview, (event) => {
      const box = this.overview.getBoundingClientRect();
      this.show((event.clientX - box.left) / this.shrunk, (event.clientY - box.top) / this.shrunk);
    }, true);
    new ResizeObserver(() => this.paint()).observe(this.frame);
  }
  tool(label, sign, action) { return element("button", { type: "button", title: label, "aria-label": label, onclick: action }, sign); }
  // A mouse drags; a finger scrolls as it does anyway. What is dragged is not clicked.
  dragging(node, move, atOnce = false) {
    let from = null, moved = false;
    node.addEventListener("pointerdown", (event) => {
      if (event.button || !atOnce && event.pointerType !== "mouse") return;
      from = { x: event.clientX, y: event.clientY, left: this.frame.scrollLeft, top: this.frame.scrollTop };
      moved = atOnce;
      if (atOnce) { node.setPointerCapture(event.pointerId); move(event, from); }
    });
    node.addEventListener("pointermove", (event) => {
      if (!from) return;
      if (!moved && Math.hypot(event.clientX - from.x, event.clientY - from.y) < 5) return;
      if (!moved) { moved = true; node.setPointerCapture(event.pointerId); node.classList.add("dragged"); hideTooltip(); }
      move(event, from);
    });
    for (const name of ["pointerup", "pointercancel"]) node.addEventListener(name, () => { from = null; node.classList.remove("dragged"); });
    node.addEventListener("click", (event) => { if (moved) { event.stopPropagation(); moved = false; } }, true);
  }
  resize(width, height) {
    Object.assign(this, { width, height });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.apply();
  }
  apply() {
    this.picture.setAttribute("width", this.width * this.zoom);
    this.picture.setAttribute("height", this.height * this.zoom);
    this.node.dataset.zoom = this.zoom.toFixed(3);
    this.paint();
  }
  // The point under (x, y) of the frame stays where it is.
  scale(factor, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2) {
    const before = this.zoom;
    this.zoom = Math.min(mostZoom, Math.max(leastZoom, before * factor));
    const left = this.frame.scrollLeft + x, top = this.frame.scrollTop + y;
    this.apply();
    this.frame.scrollTo(left * this.zoom / before - x, top * this.zoom / before - y);
  }
  fit() {
    this.zoom = Math.max(leastZoom, Math.min(1, this.frame.clientWidth / this.width, (this.frame.clientHeight || 600) / this.height));
    this.apply();
  }
  // As large as can be read; where not everything has room then, with as much `weight` of `spots` in
  // the middle as may be.
  fitReadable(spots) {
    this.fit();
    if (this.zoom < 0.7) {
      this.zoom = Math.max(0.7, Math.min(1, (this.frame.clientWidth - 2) / this.width));
      this.apply();
    }
    const [wide, high] = [this.frame.clientWidth / this.zoom, this.frame.clientHeight / this.zoom];
    const inView = (spot) => spots.filter((other) => Math.abs(other.x - spot.x) < 0.4 * wide && Math.abs(other.y - spot.y) < 0.4 * high);
    const weigh = (some) => some.reduce((sum, spot) => sum + spot.weight, 0);
    const best = spots.map(inView).sort((a, b) => weigh(b) - weigh(a))[0] ?? [{ x: this.width / 2, y: 0 }];
    const middle = (axis) => (Math.min(...best.map((spot) => spot[axis])) + Math.max(...best.map((spot) => spot[axis]))) / 2;
    this.show(middle("x"), middle("y"));
  }
  // Brings a point of the picture into the middle.
  show(x, y) { this.frame.scrollTo(x * this.zoom - this.frame.clientWidth / 2, y * this.zoom - this.frame.clientHeight / 2); }
  paint() {
    const { frame, overview } = this;
    const all = this.width * this.zoom <= frame.clientWidth + 1 && this.height * this.zoom <= frame.clientHeight + 1;
    overview.hidden = all || !frame.clientWidth;
    if (overview.hidden) return;
    const scale = this.shrunk = Math.min(Math.min(150, 0.16 * this.node.clientWidth) / this.width, (frame.clientHeight - 20) / this.height, 0.5);
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.max(24, this.width * scale), this.height * scale];
    Object.assign(overview.style, { width: `${width}px`, height: `${height}px` });
    overview.width = Math.round(width * ratio);
    overview.height = Math.round(height * ratio);
    const context = overview.getContext("2d");
    context.scale(ratio, ratio);
    this.paintOverview(context, scale);
    const part = scale / this.zoom;
    context.strokeStyle = colour("text");
    context.lineWidth = 1.5;
    context.strokeRect(frame.scrollLeft * part + 1, frame.scrollTop * part + 1, Math.min(width, frame.clientWidth * part) - 2, Math.min(height, frame.clientHeight * part) - 2);
  }
}
