// Memory over the time of a step: per device a stacked area by kind, with the tensors alive at the
// cursor, or a line for each device that has a limit. Memory follows the execution order; its
// positions stand at their time (see `momentOf`).
const paleKinds = new Set(["kind-weights", "unused"]);  // what is there all the time
const ampleBytes = 2 ** 50;  // the cap of a host whose memory nobody gave
const memoryView = () => {
  const buffers = step.buffers;
  const count = Math.max(step.order.length, 1);
  const seriesOf = devices.map(() => null);

  const limitOf = (device) => {
    const bytes = planRow(device)?.usable_bytes;
    return bytes && bytes !== ampleBytes ? bytes : 0;
  };
  const kindClass = (kind) => kind < step.kinds.length ? `kind-${step.kinds[kind]}` : "unused";
  const nameOfKind = (kind) => kind < step.kinds.length ? kindName(step.kinds[kind]) : "loaded, not used";

  // Bytes of every kind while op number i of the order runs, what is not used last, and their sum.
  const series = (device) => {
    if (seriesOf[device]) return seriesOf[device];
    const kinds = step.kinds.map(() => null);
    const unused = step.unused[device];
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
    if (unused) {
      kinds.push(new Float64Array(count).fill(unused));
      for (let i = 0; i < count; i += 1) total[i] += unused;
    }
    let peak = 0;
    for (let i = 1; i < count; i += 1) if (total[i] > total[peak]) peak = i;
    seriesOf[device] = { kinds, total, peak };
    return seriesOf[device];
  };
  const peakOf = (device) => series(device).total[series(device).peak];
  const shareOf = (device) => limitOf(device) && peakOf(device) ? (planRow(device).required_bytes ?? 0) / limitOf(device) : -1;
  // The tightest device that holds anything first: the chart begins with it, and lines are drawn along its op order.
  const byTightness = devices.map((_, d) => d).sort((a, b) => shareOf(b) - shareOf(a) || peakOf(b) - peakOf(a));
  const limited = byTightness.filter(limitOf);
  let together = false;
  // The position with most bytes of those from one time up to before another.
  const fullestIn = (from, to) => {
    const { total } = series(device);
    let best = lastBefore(from);
    for (let i = best; i >= 0 && momentOf[i] === momentOf[best]; i -= 1) if (total[i] > total[best]) best = i;
    for (let i = lastBefore(from) + 1; i < count && momentOf[i] < to; i += 1) if (total[i] > total[best]) best = i;
    return best;
  };
  let device = byTightness[0];
  let cursor = series(device).peak;

  const draw = (context, width, height) => {
    const { kinds } = series(device);
    const bottom = height - 18;
    const shown = together ? limited : [device];
    const most = Math.max(1, ...shown.map(peakOf));
    const caps = [...new Set(shown.map(limitOf))].filter((cap) => cap && (together || cap < 1.6 * most));
    const top = Math.max(most, ...caps) * (caps.length ? 1.06 : 1.08);
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
    if (together) limited.forEach((each) => {
      const { total } = series(each);
      context.beginPath();
      for (let p = 0; p < pixels; p += 1) { context.lineTo(chart.left + p, y(total[moments[p]])); context.lineTo(chart.left + p + 1, y(total[moments[p]])); }
      context.strokeStyle = colour(deviceClass[devices[each]]); context.lineWidth = 3; context.stroke(); context.lineWidth = 1;
    });
    else kinds.forEach((line, kind) => {
      if (!line) return;
      context.beginPath();
      for (let p = pixels - 1; p >= 0; p -= 1) { context.lineTo(chart.left + p + 1, y(below[p])); context.lineTo(chart.left + p, y(below[p])); }
      for (let p = 0; p < pixels; p += 1) {
        below[p] += line[moments[p]];
        context.lineTo(chart.left + p, y(below[p])); context.lineTo(chart.left + p + 1, y(below[p]));
      }
      context.globalAlpha = paleKinds.has(kindClass(kind)) ? 0.45 : 1;
      context.fillStyle = colour(kindClass(kind));
      context.fill();
      context.globalAlpha = 1;
    });
    for (const cap of caps) {
      context.strokeStyle = colour("alarm"); context.setLineDash([5, 4]);
      context.beginPath(); context.moveTo(chart.left, y(cap)); context.lineTo(width - 8, y(cap)); context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour("alarm"); context.textAlign = "right"; context.textBaseline = "bottom";
      context.fillText(`limit ${formatBytes(cap)}`, width - 10, y(cap) - 2);
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
      showTooltip([together ? "" : formatBytes(total[at]), step.order.length ? shorten(opName(step.order[at]), 60) : "",
        ...(together ? limited.map((d) => `${devices[d]} ${formatBytes(series(d).total[at])}`)
          : kinds.flatMap((line, kind) => line?.[at] ? [`${nameOfKind(kind)} ${formatBytes(line[at])}`] : []))], event);
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
    const entry = (swatch, name, bytes) => element("li", {}, element("i", { class: `swatch ${swatch}` }), name, element("b", {}, formatBytes(bytes)));
    legend.replaceChildren(...(together ? limited.map((d) => entry(deviceClass[devices[d]], devices[d], series(d).total[cursor]))
      : kinds.flatMap((line, kind) => line ? [entry(kindClass(kind), nameOfKind(kind), line[cursor])] : [])));
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
    const own = peak.total[peak.peak], drawn = `${formatBytes(own)} along this execution order`;
    const known = row?.peak_memory_bytes, over = known ? `${formatBytes(row.peak_low_bytes)} to ${formatBytes(known)} over all orders followed` : "";
    const isLike = known && row.peak_low_bytes <= own && own <= known;
    facts.textContent = (isLike ? `Peak ${drawn}; ${over}` : known ? `Peak ${over}; ${drawn} in this picture, which has each loop as one op` : `Peak ${drawn}`) +
      (row?.need_bytes && row.allocator ? `; its allocator requires ${formatBytes(row.need_low_bytes)} to ${formatBytes(row.need_bytes)}` : "") +
      (limitOf(device) ? `; limit ${formatBytes(limitOf(device))}.` : ".");
    if (together) facts.textContent = "All devices with a limit; the cursor follows the tightest.";
  };
  const option = (name, d, swatch) => element("label", {}, element("input", { type: "radio", name: "memory-device", value: name, checked: swatch !== null && d === device, onchange: () => {
    together = swatch === null; device = d; moveTo(series(d).peak); tellFacts();
  } }), swatch, name);
  const choose = element("div", { class: "choice", role: "radiogroup", "aria-label": "Device" },
    ...byTightness.map((d) => option(devices[d], d, element("i", { class: `swatch ${deviceClass[devices[d]]}` }))),
    limited.length > 1 ? option("All", byTightness[0], null) : "");
  bodyOf("memory").append(element("div", { class: "row" }, choose, chart.tools), facts, chart.canvas, legend);
  byId("cursor").append(moment, alive);
  timeAxis.cursor = momentOf[cursor] ?? null;
  told();
  tellFacts();
  chart.paint();
  onSelect((op) => { moveTo(positionOf[op]); });
  return { series, paint: () => chart.paint() };
};
