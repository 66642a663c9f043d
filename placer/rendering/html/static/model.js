// The data of the page: columns as placer/rendering/html/columns.py writes them.
const data = JSON.parse(byId("data").textContent);
const plan = data.plan;
const step = data.step;
// Places and times are written as differences from what is before them.
const summed = (steps) => { let sum = 0; return steps.map((step) => sum += step); };
if (step) {
  step.start = summed(step.start);
  step.order = summed(step.order);
  step.layers.op = summed(step.layers.op);
  step.layers.group = summed(step.layers.group);
  step.buffers.op = summed(step.buffers.op);
  step.buffers.first = summed(step.buffers.first);
  step.buffers.last = step.buffers.first.map((first, i) => first + step.buffers.length[i]);
  let edge = 0;
  step.read_count.forEach((count, op) => { for (const end = edge + count; edge < end; edge += 1) step.reads[edge] = op - step.reads[edge]; });
}
const columns = step ?? data.placement;
const opCount = columns ? columns.leaf.length : 0;
const devices = columns ? columns.devices : [];

const scopePaths = [""];
const scopePath = (scope) => {
  if (scopePaths[scope] === undefined) {
    const outer = scopePath(columns.scope_parent[scope]);
    const own = columns.strings[columns.scope_name[scope]];
    scopePaths[scope] = columns.scope_parent[scope] === 0 ? own : `${outer}/${own}`;
  }
  return scopePaths[scope];
};
const opName = (op) => {
  const leaf = columns.strings[columns.leaf[op]];
  return columns.scope[op] === 0 ? leaf : `${scopePath(columns.scope[op])}/${leaf}`;
};
const opType = (op) => step ? step.strings[step.op_type[op]] : "";
const sentName = (row) => step.sent.index[row] < 0 ? `^${opName(step.sent.op[row])}` : `${opName(step.sent.op[row])}:${step.sent.index[row]}`;

// Scopes and ops below a scope, in graph order; an op is written as -1 - op.
const scopeChildren = [];
const fillScopes = () => {
  for (let scope = 0; scope < columns.scope_parent.length; scope += 1) scopeChildren.push([]);
  const seen = new Uint8Array(columns.scope_parent.length);
  for (let op = 0; op < opCount; op += 1) {
    let child = -1 - op;
    let scope = columns.scope[op];
    while (true) {
      scopeChildren[scope].push(child);
      if (scope === 0 || seen[scope]) break;
      seen[scope] = 1;
      child = scope;
      scope = columns.scope_parent[scope];
    }
  }
};
const sumByScope = (amounts) => {
  const sums = new Float64Array(columns.scope_parent.length);
  for (let op = 0; op < opCount; op += 1) sums[columns.scope[op]] += amounts[op];
  for (let scope = sums.length - 1; scope > 0; scope -= 1) sums[columns.scope_parent[scope]] += sums[scope];
  return sums;
};

// What an op reads, and what reads it, as offsets into flat columns.
let readOffset, readers, readerOffset;
const fillEdges = () => {
  readOffset = new Int32Array(opCount + 1);
  for (let op = 0; op < opCount; op += 1) readOffset[op + 1] = readOffset[op] + step.read_count[op];
  readerOffset = new Int32Array(opCount + 1);
  for (const producer of step.reads) readerOffset[producer + 1] += 1;
  for (let op = 0; op < opCount; op += 1) readerOffset[op + 1] += readerOffset[op];
  const next = readerOffset.slice();
  readers = new Int32Array(step.reads.length);
  for (let op = 0; op < opCount; op += 1) {
    for (let i = readOffset[op]; i < readOffset[op + 1]; i += 1) {
      readers[next[step.reads[i]]] = op;
      next[step.reads[i]] += 1;
    }
  }
};
if (columns) fillScopes();
if (step) fillEdges();

// Position of every op in the execution order.
const positionOf = new Int32Array(opCount);
if (step) step.order.forEach((op, position) => { positionOf[op] = position; });

// Time of every position of the execution order: when the schedule has started all ops up to it. Where
// nothing takes time, positions themselves are the axis.
const timed = Boolean(step?.step);
const momentOf = new Float64Array(opCount);
if (step) step.order.reduce((latest, op, position) => momentOf[position] = timed ? Math.max(latest, step.start[op]) : position, 0);
const lastBefore = (time) => {
  let low = 0, high = opCount;
  while (low < high) { const middle = (low + high) >> 1; if (momentOf[middle] <= time) low = middle + 1; else high = middle; }
  return Math.max(0, low - 1);
};
const tickText = (stepSize) => {
  const [unit, size] = [["s", 1e12], ["ms", 1e9], ["µs", 1e6], ["ns", 1e3]].find(([, s]) => stepSize >= s / 2) ?? ["ps", 1];
  const digits = Math.max(0, -Math.floor(Math.log10(stepSize / size) + 1e-9));
  return (time) => `${(time / size).toFixed(digits)} ${unit}`;
};
const timeAxis = {
  charts: [], cursor: null, extent: timed ? step.step : Math.max(1, opCount), range: [0, timed ? step.step : Math.max(1, opCount)],
  least: timed ? Math.max(1000, step.step / 1e6) : Math.min(10, Math.max(1, opCount)),
  left: Math.min(window.innerWidth < 760 ? 96 : 150, Math.max(66, 20 + 6.4 * Math.max(0, ...devices.map((name) => name.length)) * (step?.sent.op.length ? 2 : 1) + 20)),
  format: timed ? tickText : () => (position) => formatCount(Math.round(position)),
  paint() { for (const chart of this.charts) chart.paint(); },
};

// A device has one colour everywhere; CPUs are grey.
let accelerators = 0;
const deviceClass = {};
for (const name of plan ? plan.devices.map((row) => row.name).concat(devices) : devices) {
  if (deviceClass[name]) continue;
  deviceClass[name] = /(^|[:/])CPU:\d+$/i.test(name) ? "device-cpu" : `device-${accelerators++ % 8}`;
}
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const deviceColour = (device) => colour(deviceClass[devices[device]]);
const planRow = (device) => plan?.devices.find((row) => row.name === devices[device]) ?? null;

// What is selected is told to whoever listens.
const listeners = [];
const onSelect = (listener) => listeners.push(listener);
const selectOp = (op) => { for (const listener of listeners) listener(op); };
const opButton = (op, width = 80) => element("button", { type: "button", class: "op", title: opName(op), onclick: () => selectOp(op) }, shorten(opName(op), width));
