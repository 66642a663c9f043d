// The predicted schedule: a row per device (several where ops run side by side) and per link.
const scheduleView = () => {
  const rowHeight = 22;
  const mostLanes = 8;
  // Lanes of spans that do not overlap by more than rounding; a span is [start, seconds, op or transfer].
  const lanesOf = (spans) => {
    spans.sort((a, b) => a[0] - b[0] || a[2] - b[2]);
    const lanes = [], free = [];
    for (const span of spans) {
      let lane = free.findIndex((time) => time <= span[0] + 2);
      if (lane < 0) { lane = Math.min(lanes.length, mostLanes - 1); lanes[lane] ??= []; }
      free[lane] = span[0] + span[1];
      lanes[lane].push(span);
    }
    return lanes;
  };
  const rows = [];
  devices.forEach((name, device) => {
    const spans = [];
    for (let op = 0; op < opCount; op += 1) if (step.device[op] === device && step.seconds[op] > 0) spans.push([step.start[op], step.seconds[op], op]);
    lanesOf(spans).forEach((lane, i) => rows.push({ label: i ? "" : name, spans: lane, style: deviceClass[name], ops: true }));
  });
  const links = new Map();
  const sent = step.sent;
  for (let row = 0; row < sent.op.length; row += 1) {
    if (!sent.seconds[row]) continue;
    const key = `${devices[sent.source[row]]} → ${devices[sent.target[row]]}`;
    if (!links.has(key)) links.set(key, { label: key, spans: [], style: deviceClass[devices[sent.target[row]]], ops: false });
    links.get(key).spans.push([sent.start[row], sent.seconds[row], row]);
  }
  for (const link of links.values()) { link.spans.sort((a, b) => a[0] - b[0]); rows.push(link); }
  const body = bodyOf("schedule");
  if (!rows.length || !step.step) { body.append(element("p", { class: "note" }, "Nothing here takes time.")); return { paint: () => {}, reveal: () => {} }; }

  let current = { row: 0, index: 0 };
  let marked = null;
  const firstAfter = (spans, time) => {
    let low = 0, high = spans.length;
    while (low < high) { const middle = (low + high) >> 1; if (spans[middle][0] + spans[middle][1] < time) low = middle + 1; else high = middle; }
    return low;
  };
  const draw = (context, width, height) => {
    const textWidth = chart.left - 10;
    rows.forEach((row, r) => {
      const y = 4 + r * rowHeight;
      context.fillStyle = colour("quiet"); context.textAlign = "right"; context.textBaseline = "middle";
      if (row.label) context.fillText(row.label, textWidth, y + rowHeight / 2 - 1, textWidth);
      context.fillStyle = colour("trough");
      context.fillRect(chart.left, y, chart.width, rowHeight - 4);
      const fill = colour(row.style);
      let until = -1;
      for (let i = firstAfter(row.spans, chart.range[0]); i < row.spans.length && row.spans[i][0] <= chart.range[1]; i += 1) {
        const [start, seconds, item] = row.spans[i];
        const x = Math.max(chart.left, chart.x(start));
        const end = Math.min(chart.left + chart.width, chart.x(start + seconds));
        if (end - until < 0.5) continue;
        const from = Math.max(x, until);
        context.fillStyle = fill;
        context.globalAlpha = i % 2 ? 0.78 : 1;  // neighbours stay apart
        context.fillRect(from, y, Math.max(0.6, end - from), rowHeight - 4);
        context.globalAlpha = 1;
        until = Math.max(until, from + Math.max(0.6, end - from));
        if (end - x > 44) {
          context.save(); context.beginPath(); context.rect(x, y, end - x - 3, rowHeight - 4); context.clip();
          context.fillStyle = colour("on-fill"); context.textAlign = "left";
          const name = row.ops ? opName(item).split("/").pop() : formatBytes(sent.bytes[item]);
          context.fillText(name, x + 4, y + rowHeight / 2 - 2); context.restore();
        }
        if (row.ops && item === marked) { context.strokeStyle = colour("text"); context.lineWidth = 2; context.strokeRect(x - 1, y - 1, Math.max(4, end - x + 2), rowHeight - 2); context.lineWidth = 1; }
      }
    });
    chart.axis(context, height);
    chart.cursor(context, height - 18);
  };
  const tell = (row, span) => row.ops
    ? [opName(span[2]), opType(span[2]), `${formatTime(span[1])} from ${formatTime(span[0])}`, `${formatFlops(step.flops[span[2]])}, ${formatBytes(step.bytes_accessed[span[2]])} accessed`]
    : [sentName(span[2]), `${formatBytes(sent.bytes[span[2]])}, ${sent.kind[span[2]]}`, row.label, `${formatTime(span[1])} from ${formatTime(span[0])}`];
  const spoken = element("p", { class: "moment", "aria-live": "polite" });
  const say = () => {
    const row = rows[current.row];
    const span = row.spans[current.index];
    marked = row.ops ? span[2] : null;
    spoken.replaceChildren(...(row.ops ? [opButton(span[2]), ` ${opType(span[2])}, ${formatTime(span[1])} from ${formatTime(span[0])} on ${devices[step.device[span[2]]]}`] : [tell(row, span).join(", ")]));
    chart.reveal(span[0]);
  };
  const chart = new Chart({
    label: "Predicted schedule. Up and down choose a row, left and right an op, Enter shows it, plus and minus change the range.",
    height: 4 + rows.length * rowHeight + 20, draw,
    point: (value, y, click, event) => {
      const r = y === null ? -1 : Math.floor((y - 4) / rowHeight);
      const row = rows[r];
      const slack = (chart.range[1] - chart.range[0]) / chart.width;
      const index = row ? firstAfter(row.spans, value - slack) : -1;
      const span = row?.spans[index];
      if (!span || span[0] > value + slack) { hideTooltip(); return; }
      showTooltip(tell(row, span), event);
      if (click) { current = { row: r, index }; say(); if (row.ops) selectOp(span[2]); }
    },
    key: (event) => {
      const row = rows[current.row];
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (event.key === "Enter" && row.ops) { selectOp(row.spans[current.index][2]); return true; }
      if (!moves[event.key]) return false;
      const [down, right] = moves[event.key];
      const next = Math.min(rows.length - 1, Math.max(0, current.row + down));
      const time = row.spans[current.index][0];
      current = next === current.row ? { row: next, index: Math.min(row.spans.length - 1, Math.max(0, current.index + right)) }
        : { row: next, index: Math.min(rows[next].spans.length - 1, firstAfter(rows[next].spans, time)) };
      say();
      return true;
    },
  });
  const busy = devices.map((_, d) => { let sum = 0; for (let op = 0; op < opCount; op += 1) if (step.device[op] === d) sum += step.seconds[op]; return sum; });
  const facts = `One step takes ${formatTime(step.step)}. ` + devices.flatMap((name, d) => busy[d] ? [`${name} computes for ${formatTime(busy[d])}`] : []).join(", ") + ".";
  body.append(element("p", { class: "note" }, facts), chart.canvas, element("p", { class: "axis" }, "time from the start of the step, for memory and schedule; drag to enlarge, click to move the cursor"), spoken);
  chart.paint();
  onSelect((op) => {
    marked = op;
    const span = 40 * Math.max(step.seconds[op], step.step / 20000);
    chart.show(step.start[op] + step.seconds[op] / 2 - span / 2, step.start[op] + step.seconds[op] / 2 + span / 2);
  });
  return { paint: () => chart.paint() };
};
