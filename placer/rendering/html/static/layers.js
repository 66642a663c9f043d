// The layers of the model: groups within groups in the order of its depth, what of them is shown,
// what flows between, and where it lies. Every open group is laid out on its own, from the inside out
// (Sugiyama's method, by dagre), as Model Explorer does.

// A node is a group, an op with a place of its own, or an op that is shown with that one.
const layerTree = () => {
  const { op: anchors, group, group_name: names, group_parent: parents, anchor } = step.layers;
  const passOf = Uint8Array.from(step.layers.pass, Number);
  const make = (name, parent, op) => ({ name, parent, op, level: parent ? parent.level + 1 : 0, inner: [], rank: -1, own: null });
  const groups = [];
  names.forEach((name, i) => groups.push(make(step.strings[name], i ? groups[parents[i]] : null, null)));
  const nodeOf = new Array(opCount);
  anchors.forEach((op, rank) => {
    let node = nodeOf[op] = make(opName(op), groups[group[rank]], op);
    node.own = [];
    for (; node && node.rank < 0; node = node.parent) {
      node.rank = rank;
      node.parent?.inner.push(node);
    }
  });
  // What is shown with an op: its gradients and updates can be seen; constants and variables not.
  const folded = new Uint8Array(opCount);
  for (const op of step.order) {
    const node = nodeOf[op + anchor[op]];
    node.own.push(op);
    if (!anchor[op]) continue;
    nodeOf[op] = node;
    folded[op] = Number(/^(Const|VarHandleOp|Variable|VariableV2|Placeholder|ReadVariableOp)$/.test(opType(op)));
  }
  for (const op of anchors) {
    const node = nodeOf[op];
    const seen = node.own.filter((other) => !folded[other]);
    if (seen.length < 2) continue;
    seen.forEach((other, i) => {
      const inner = make(opName(other), node, other);
      inner.own = other === op ? node.own.filter((one) => one === op || folded[one]) : [other];
      inner.rank = node.rank + i / seen.length;
      node.inner.push(inner);
      inner.own.forEach((one) => { nodeOf[one] = inner; });
    });
    for (const other of node.own) if (folded[other] && nodeOf[other] === node) nodeOf[other] = node.inner[0];
  }
  const opsOf = (node) => node.ops ??= node.own ?? node.inner.flatMap(opsOf);
  // A tensor is sent once to a device: it is drawn to its first reader there that needs its value.
  const cost = (op) => 4 * passOf[op] + 2 * Number(/^(Shape|ShapeN|Size|Rank)$/.test(opType(op)));
  const readerOf = step.sent.readers.map((ops, row) => step.sent.kind[row] === "control" || !ops.length ? -1
    : ops.reduce((first, op) => (cost(op) - cost(first) || nodeOf[op].rank - nodeOf[first].rank) < 0 ? op : first));
  return { root: groups[0], nodeOf, passOf, folded, opsOf, readerOf };
};

// What is shown of a tree in which some groups are open: closed nodes, and what flows between them.
const shownOf = (tree, open) => {
  const closed = [], opened = [];
  const visit = (node) => {
    if (open.has(node) && node.inner.length) { opened.push(node); node.shown = node.inner; node.inner.forEach(visit); }
    else { node.shown = null; closed.push(node); }
  };
  visit(tree.root);
  const home = new Array(opCount);
  for (const node of closed) {
    Object.assign(node, { inside: 0, insideCount: 0, counts: [0, 1, 2].map(() => devices.map(() => 0)), written: [0, 1, 2].map(() => devices.map(() => 0)), folds: 0, resident: 0, seconds: 0 });
    for (const op of tree.opsOf(node)) {
      home[op] = node;
      node.counts[tree.passOf[op]][step.device[op]] += 1 - tree.folded[op];
      node.written[tree.passOf[op]][step.device[op]] += (1 - tree.folded[op]) * (1 + step.output_bytes[op]);
      node.folds += tree.folded[op];
      node.resident += step.persistent_bytes[op];
      node.seconds += step.seconds[op];
    }
  }
  // Edges lie where their ends part: between two nodes of the same open group.
  for (const node of opened) node.flows = new Map();
  const apart = (from, to) => {
    let a = from, b = to;
    while (a.level > b.level) a = a.parent;
    while (b.level > a.level) b = b.parent;
    while (a.parent !== b.parent) { a = a.parent; b = b.parent; }
    return [a, b];
  };
  const flow = (from, to, key) => {
    const [a, b] = apart(from, to);
    const flows = a.parent.flows;
    const name = `${key} ${a.rank} ${b.rank} ${a.level}`;
    if (!flows.has(name)) flows.set(name, { from: a, to: b, key, bytes: 0, count: 0, targets: new Set(), ends: [] });
    return flows.get(name);
  };
  for (let op = 0; op < opCount; op += 1) {
    for (let i = readOffset[op]; i < readOffset[op + 1]; i += 1) {
      const from = home[step.reads[i]], to = home[op];
      if (from === to || step.read_bytes[i] < 0) continue;
      const pass = Math.max(tree.passOf[step.reads[i]], tree.passOf[op]);
      flow(from, to, pass ? (tree.passOf[step.reads[i]] === pass && pass === 1 ? "back" : "other") : "forward");
    }
  }
  const sent = step.sent;
  const ribbons = new Map();
  for (let row = 0; row < sent.op.length; row += 1) {
    if (tree.readerOf[row] < 0) continue;
    const from = home[sent.op[row]], to = home[tree.readerOf[row]];
    const bytes = sent.bytes[row] ?? 0;
    if (to === from) { from.inside += bytes; from.insideCount += 1; continue; }
    const down = from.rank < to.rank;
    const ribbon = flow(from, to, down ? "down" : "up");
    ribbon.bytes += bytes; ribbon.count += 1; ribbon.targets.add(sent.target[row]);
    if (!ribbon.ends.some((end) => end[0] === from && end[1] === to)) ribbon.ends.push([from, to]);
    ribbons.set(ribbon, ribbon);
  }
  return { closed, opened, ribbons: [...ribbons.values()] };
};

const boxHeight = 40, headHeight = 26, padding = 16;
const measureText = (() => {
  const context = document.createElement("canvas").getContext("2d");
  return (text, bold) => {
    context.font = `${bold ? "600 " : ""}12px system-ui, sans-serif`;
    return context.measureText(text).width;
  };
})();

// Gives every node that is shown `x`, `y` (its upper left corner), `width`, `height`, and every flow
// that is drawn `points`; returns the size of the whole.
const layOutLayers = (tree, shown, labelOf) => {
  const size = (node) => {
    if (!node.shown) {
      const lines = labelOf(node);
      const halves = lines.lanes.length * (16 + Math.max(...lines.lanes.map((text) => measureText(text))));
      node.width = Math.ceil(Math.max(96, Math.min(340, measureText(lines.title, true) + (lines.device ? measureText(lines.device) + 16 : 0) + 20), halves, measureText(lines.inside) + 16));
      node.height = boxHeight + (lines.inside ? 17 : 0);
      return;
    }
    node.shown.forEach(size);
    const graph = new dagre.graphlib.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 26, edgesep: 14, marginx: padding, marginy: 8 });
    graph.setDefaultEdgeLabel(() => ({}));
    node.shown.forEach((inner, i) => { inner.id = `${i}`; graph.setNode(inner.id, { width: inner.width, height: inner.height }); });
    const flows = [...node.flows.values()];
    const joined = new Set();
    const add = (flow) => {
      const [upper, lower] = flow.from.rank < flow.to.rank ? [flow.from, flow.to] : [flow.to, flow.from];
      joined.add(upper).add(lower);
      flow.name = flow.key;
      flow.reversed = upper !== flow.from;
      flow.label = flow.count ? `${flow.reversed ? "↑" : "↓"} ${formatBytes(flow.bytes)}` : "";
      graph.setEdge(upper.id, lower.id, flow.label ? { width: measureText(flow.label, true) + 14, height: 18, labelpos: "c", weight: 2 } : { weight: flow.key === "forward" ? 4 : 1 }, flow.name);
      flow.edge = [upper.id, lower.id, flow.name];
    };
    // A forward edge against the order of depth, or one of the other passes, places nothing that the
    // forward pass has placed.
    const sends = new Set(flows.filter((flow) => flow.count).map((flow) => `${flow.from.id} ${flow.to.id}`));
    flows.filter((flow) => flow.count || flow.key === "forward" && flow.from.rank < flow.to.rank && !sends.has(`${flow.from.id} ${flow.to.id}`)).forEach(add);
    flows.filter((flow) => !flow.edge && (!joined.has(flow.from) || !joined.has(flow.to))).forEach(add);
    // What nothing joins to the rest lies behind what is before it.
    for (const part of dagre.graphlib.alg.components(graph)) {
      const first = Math.min(...part.map(Number));
      if (first) graph.setEdge(node.shown[first - 1].id, node.shown[first].id, { weight: 0 }, "order");
    }
    dagre.layout(graph);
    const { width, height } = graph.graph();
    const head = labelOf(node).head;
    node.width = Math.max(width || 0, head);
    node.height = (height || 0) + (node.parent ? headHeight : 0);
    const left = (node.width - (width || 0)) / 2, top = node.parent ? headHeight : 0;
    for (const inner of node.shown) {
      const at = graph.node(inner.id);
      inner.x = at.x - inner.width / 2 + left;
      inner.y = at.y - inner.height / 2 + top;
    }
    node.drawn = flows.filter((flow) => flow.edge).map((flow) => {
      const edge = graph.edge(...flow.edge);
      flow.points = edge.points.map((point) => ({ x: point.x + left, y: point.y + top }));
      flow.at = edge.x === undefined ? null : { x: edge.x + left, y: edge.y + top };
      return flow;
    });
  };
  const place = (node, x, y) => {
    node.x = x; node.y = y;
    if (!node.shown) return;
    for (const inner of node.shown) place(inner, inner.x + x, inner.y + y);
    for (const flow of node.drawn) {
      for (const point of flow.at ? [...flow.points, flow.at] : flow.points) { point.x += x; point.y += y; }
    }
  };
  size(tree.root);
  place(tree.root, 0, 0);
  return { width: tree.root.width, height: tree.root.height };
};
