// Memory over the time of a step: per device a stacked area by kind, with the tensors alive at the
// cursor. Memory follows the execution order; its positions stand at their time (see `momentOf`).
const ampleBytes = 2 ** 50;  // the cap of a host whose memory nobody gave
const memoryView = () => {
  const buffers = step.buffers;
  const count = Math.max(step.order.length, 1);
  const seriesOf = devices.map(() => null);

  // Bytes of every kind while op number i of the order runs, and their sum.
  const series = (device) => {
    if (seriesOf[device]) return seriesOf[device];
    const kinds = step.kinds.map(() => null);
    for (let i = 0; i < buffers.op.length; i += 1) {
      if (buffers.device[i] !== device || !buffers.bytes[i]) continue;
      const line = kinds[buffers.kind[i]] ??= new Float64Array(count + 1);
      line[buffers.first[i]] += buffers.bytes[i];
      line[buffers.last[i] + 1] -= buffers.bytes[i];
    }
    const total = new Float64Array(count);
    for (const line of kinds) {
      if (!line) continue;
      let sum = 0;
      for (let i = 0; i < count; i += 1) { sum += line[i]; line[i] = sum; total[i] += sum; }
    }
    let peak = 0;
    for (let i = 1; i < count; i += 1) if (total[i] > total[peak]) peak = i;
    seriesOf[device] = { kinds, total, peak };
    return seriesOf[device];
  };
  const fullest = () => {
    let best = 0;
    devices.forEach((_, d) => { if (series(d).total[series(d).peak] > series(best).total[series(best).peak]) best = d; });
    return best;
  };
  // The position with most bytes of those from one time up to before another.
  const fullestIn = (from, to) => {
    const { total } = series(device);
    let best = lastBefore(from);
    for (let i = best; i >= 0 && momentOf[i] === momentOf[best]; i -= 1) if (total[i] > total[best]) best = i;
    for (let i = lastBefore(from) + 1; i < count && momentOf[i] < to; i += 1) if (total[i] > total[best]) best = i;
    return best;
  };
  let device = fullest();
  let cursor = series(device).peak;

  const draw = (context, width, height) => {
    const { kinds, total, peak } = series(device);
    const bottom = height - 18;
    const row = planRow(device);
    const cap = row?.usable_bytes;
    const most = total[peak] || 1;
    const top = cap && cap < 1.6 * most ? Math.max(cap, most) * 1.06 : most * 1.08;
    const y = (bytes) => bottom - bytes / top * (bottom - 8);
    const tick = niceBytes(top, 5);
    context.textBaseline = "middle";
    for (let bytes = 0; bytes <= top; bytes += tick) {
      context.strokeStyle = colour("grid");
      context.beginPath(); context.moveTo(chart.left, Math.round(y(bytes)) + 0.5); context.lineTo(width - 8, Math.round(y(bytes)) + 0.5); context.stroke();
      context.fillStyle = colour("quiet"); context.textAlign = "right";
      context.fillText(formatBytes(bytes), chart.left - 6, y(bytes));
    }
    // One column per pixel, at the fullest moment in it, so that no peak is lost.
    const pixels = Math.floor(chart.width);
    const moments = new Int32Array(pixels);
    for (let p = 0; p < pixels; p += 1) {
      moments[p] = fullestIn(chart.value(chart.left + p), chart.value(chart.left + p + 1));
    }
    const below = new Float64Array(pixels);
    kinds.forEach((line, kind) => {
      if (!line) return;
      context.beginPath();
      for (let p = pixels - 1; p >= 0; p -= 1) { context.lineTo(chart.left + p + 1, y(below[p])); context.lineTo(chart.left + p, y(below[p])); }
      for (let p = 0; p < pixels; p += 1) {
        below[p] += line[moments[p]];
        context.lineTo(chart.left + p, y(below[p])); context.lineTo(chart.left + p + 1, y(below[p]));
      }
      context.fillStyle = colour(`kind-${step.kinds[kind]}`);
      context.fill();
    });
    if (cap && cap <= top) {
      context.strokeStyle = colour("alarm"); context.setLineDash([5, 4]);
      context.beginPath(); context.moveTo(chart.left, y(cap)); context.lineTo(width - 8, y(cap)); context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour("alarm"); context.textAlign = "right"; context.textBaseline = "bottom";
      context.fillText(`usable ${formatBytes(cap)}`, width - 10, y(cap) - 2);
    }
    chart.axis(context, height);
    chart.cursor(context, bottom);
  };
  const moveTo = (position) => {
    cursor = Math.min(count - 1, Math.max(0, position));
    timeAxis.cursor = momentOf[cursor] ?? null;
    chart.reveal(timeAxis.cursor ?? 0);
    told();
  };
  const chart = new Chart({
    label: "Memory over time. Left and right arrows move the cursor, Home goes to the peak, plus and minus change the range.",
    height: 260, draw,
    point: (value, _, click, event) => {
      if (value === null) { hideTooltip(); return; }
      const at = fullestIn(value, value + (chart.range[1] - chart.range[0]) / chart.width);
      if (click) moveTo(at);
      const { kinds, total } = series(device);
      showTooltip([formatBytes(total[at]), step.order.length ? shorten(opName(step.order[at]), 60) : "",
        ...kinds.flatMap((line, kind) => line?.[at] ? [`${kindName(step.kinds[kind])} ${formatBytes(line[at])}`] : [])], event);
    },
    key: (event) => {
      const by = event.shiftKey ? Math.ceil(count / 50) : 1;
      if (event.key === "ArrowLeft") moveTo(cursor - by);
      else if (event.key === "ArrowRight") moveTo(cursor + by);
      else if (event.key === "Home") moveTo(series(device).peak);
      else return false;
      return true;
    },
  });
  const alive = element("div");
  const legend = element("ul", { class: "legend", "aria-label": "Bytes by kind at the cursor" });
  const moment = element("p", { class: "moment", "aria-live": "polite" });
  const told = () => {
    const { kinds, total, peak } = series(device);
    const running = step.order[cursor];
    moment.replaceChildren(
      element("b", { "data-bytes": total[cursor] }, formatBytes(total[cursor])), ` on ${devices[device]} while op ${formatCount(cursor + 1)} of ${formatCount(step.order.length)} runs: `,
      running === undefined ? "none" : opButton(running),
      cursor === peak ? element("span", { class: "tag" }, "peak") : "");
    legend.replaceChildren(...kinds.flatMap((line, kind) => line ? [element("li", {},
      element("i", { class: `swatch kind-${step.kinds[kind]}` }), kindName(step.kinds[kind]), element("b", {}, formatBytes(line[cursor])))] : []));
    const rows = [];
    for (let i = 0; i < buffers.op.length; i += 1) {
      if (buffers.device[i] === device && buffers.first[i] <= cursor && cursor <= buffers.last[i] && buffers.bytes[i]) rows.push(i);
    }
    rows.sort((a, b) => buffers.bytes[b] - buffers.bytes[a] || a - b);
    alive.replaceChildren(element("h3", {}, `${formatCount(rows.length)} tensors alive at the cursor`), listAlive(rows.slice(0, 100), total[cursor]),
      rows.length > 100 ? element("p", { class: "note" }, `and ${formatCount(rows.length - 100)} smaller ones`) : "");
  };
  const listAlive = (rows, total) => element("div", { class: "scroll short", tabindex: 0, role: "region", "aria-label": "Tensors alive" }, element("table", {},
    element("thead", {}, element("tr", {}, ...["Written by", "Bytes", "Share", "Kind", "Last needed by"].map((text, i) =>
      element("th", { scope: "col", class: i === 1 || i === 2 ? "number" : null }, text)))),
    element("tbody", {}, ...rows.map((i) => element("tr", {},
      element("td", {}, opButton(buffers.op[i], 56)),
      element("td", { class: "number" }, formatBytes(buffers.bytes[i])),
      element("td", { class: "number" }, formatShare(buffers.bytes[i], total)),
      element("td", {}, element("i", { class: `swatch kind-${step.kinds[buffers.kind[i]]}` }), kindName(step.kinds[buffers.kind[i]])),
      element("td", {}, buffers.first[i] === 0 && buffers.last[i] >= count - 1 ? "kept" : opButton(step.order[buffers.last[i]], 40)))))));

  const facts = element("p", { class: "note" });
  const tellFacts = () => {
    const row = planRow(device);
    const peak = series(device);
    facts.textContent = `Peak ${formatBytes(peak.total[peak.peak])} along this execution order` +
      (row?.peak_memory_bytes ? `; ${formatBytes(row.peak_low_bytes)} to ${formatBytes(row.peak_memory_bytes)} over all orders followed` : "") +
      (row?.need_bytes && row.allocator ? `; its allocator needs ${formatBytes(row.need_low_bytes)} to ${formatBytes(row.need_bytes)}` : "") +
      (row?.usable_bytes && row.usable_bytes !== ampleBytes ? `; ${formatBytes(row.usable_bytes)} usable.` : ".");
  };
  const choose = element("div", { class: "choice", role: "radiogroup", "aria-label": "Device" }, ...devices.map((name, d) =>
    element("label", {}, element("input", { type: "radio", name: "memory-device", value: name, checked: d === device, onchange: () => {
      device = d; moveTo(series(d).peak); tellFacts();
    } }), element("i", { class: `swatch ${deviceClass[name]}` }), name)));
  bodyOf("memory").append(element("div", { class: "row" }, choose, chart.tools), facts, chart.canvas, legend);
  byId("cursor").append(moment, alive);
  timeAxis.cursor = momentOf[cursor] ?? null;
  told();
  tellFacts();
  chart.paint();
  onSelect((op) => { moveTo(positionOf[op]); });
  return { series, paint: () => chart.paint() };
};
