// The placement as layers of the graph: scopes that open and close, coloured by device.
// A part is a scope, an op (-1 - op), or a run of siblings where a scope has very many.
const placementView = () => {
  if (!opCount) { bodyOf("placement").append(element("p", { class: "note" }, "There are no ops.")); return { paint: () => {}, reveal: () => {} }; }
  const mostChildren = 24;
  const mostParts = 44;
  const parts = new Map();
  const makePart = (key, name, members, parent) => {
    if (parts.has(key)) return parts.get(key);
    const part = { key, name, members, parent, inner: null };
    parts.set(key, part);
    return part;
  };
  // Ops below a scope, in graph order, counted once.
  const opsOf = (part) => {
    if (part.ops) return part.ops;
    const found = [];
    const visit = (child) => { if (child < 0) found.push(-1 - child); else for (const c of scopeChildren[child]) visit(c); };
    part.members.forEach(visit);
    part.ops = Int32Array.from(found.sort((a, b) => a - b));
    return part.ops;
  };
  const alone = (child) => { while (child >= 0 && scopeChildren[child].length === 1) child = scopeChildren[child][0]; return child; };
  const partOf = (outer, parent) => {
    const child = alone(outer);
    return makePart(`${child}`, child < 0 ? opName(-1 - child) : scopePath(child), [child], parent);
  };
  const short = (name) => name.split("/").pop();
  const label = ({ name, members }) => {
    if (members.length > 1 && name.includes(" … ")) return `${shortenPart(name.split(" … ")[0], 17)} +${formatCount(members.length - 1)}`;
    return short(name).length > 13 ? shortenPart(short(name), 23) : shorten(name, 24);
  };
  const innerParts = (part) => {
    if (part.inner) return part.inner;
    const members = part.members.length === 1 && part.members[0] >= 0 ? scopeChildren[part.members[0]] : part.members;
    const single = members.filter((child) => child < 0);
    const scopes = members.filter((child) => child >= 0);
    if (part.members.length === 1 && part.members[0] < 0) part.inner = [];
    else if (members.length <= mostChildren) part.inner = members.map((child) => partOf(child, part));
    else if (scopes.length && single.length > 6) {
      part.inner = [makePart(`${part.key}:ops`, `${formatCount(single.length)} single ops`, single, part),
        ...(scopes.length <= mostChildren ? scopes.map((child) => partOf(child, part)) : [makePart(`${part.key}:scopes`, `${formatCount(scopes.length)} scopes`, scopes, part)])];
    } else {
      const size = Math.ceil(members.length / Math.max(2, Math.min(mostChildren - 4, Math.ceil(members.length / 12))));
      part.inner = [];
      for (let i = 0; i < members.length; i += size) {
        const run = members.slice(i, i + size);
        const [first, last] = [run[0], run[run.length - 1]].map((c) => short(c < 0 ? opName(-1 - c) : scopePath(c)));
        part.inner.push(run.length === 1 ? partOf(run[0], part) : makePart(`${part.key}:${i}:${size}`, `${first} … ${last}`, run, part));
      }
    }
    return part.inner;
  };
  const root = makePart("root", "everything", [alone(0)], null);
  const open = new Set([root]);
  const canOpen = (part) => innerParts(part).length > 1;
  const visible = () => {
    const found = [];
    const visit = (part) => { if (open.has(part) && innerParts(part).length) innerParts(part).forEach(visit); else found.push(part); };
    visit(root);
    return found;
  };
  // To begin with, the scopes in which most bytes cross are opened while it stays readable, then
  // those that take most of the time.
  const crossing = (part) => {
    if (part.crossing !== undefined) return part.crossing;
    const inside = new Uint8Array(opCount);
    for (const op of opsOf(part)) inside[op] = 1;
    const { op, readers: readBy, bytes } = step.sent;
    part.crossing = 0;
    for (let row = 0; row < op.length; row += 1) if (inside[op[row]] && readBy[row].some((reader) => inside[reader])) part.crossing += bytes[row] ?? 0;
    return part.crossing;
  };
  const seconds = (part) => part.seconds ??= opsOf(part).reduce((sum, op) => sum + step.seconds[op], 0);
  const openLargest = (size, least, limit) => {
    while (true) {
      const shown = visible();
      const next = shown.filter((part) => canOpen(part) && size(part) > least * size(root) && shown.length + innerParts(part).length <= mostParts).sort((a, b) => size(b) - size(a))[0];
      if (!next || shown.length > limit) return;
      open.add(next);
    }
  };
  openLargest(crossing, 0.05, mostParts);
  openLargest(seconds, 0.05, mostParts / 3);
  let chosen = null;
  let zoom = 1;

  const collect = () => {
    const shown = visible();
    const home = new Int32Array(opCount).fill(-1);
    shown.forEach((part, i) => { for (const op of opsOf(part)) home[op] = i; });
    const nodes = shown.map((part) => {
      const ops = opsOf(part);
      const counts = devices.map(() => 0);
      let rank = 0;
      for (const op of ops) { counts[step.device[op]] += 1; rank += positionOf[op] / ops.length; }
      return { part, counts, rank, count: ops.length };
    });
    // Edges between what is shown; bytes that change device are the transfers.
    const edges = new Map();
    const edge = (from, to) => {
      const key = from * nodes.length + to;
      if (!edges.has(key)) edges.set(key, { from: nodes[from], to: nodes[to], bytes: 0, sent: 0, count: 0, targets: new Set() });
      return edges.get(key);
    };
    for (let op = 0; op < opCount; op += 1) {
      for (let i = readOffset[op]; i < readOffset[op + 1]; i += 1) {
        const from = home[step.reads[i]], to = home[op];
        if (from !== to && step.read_bytes[i] >= 0) edge(from, to).bytes += step.read_bytes[i];
      }
    }
    const rows = step.sent;
    let within = 0;
    for (let row = 0; row < rows.op.length; row += 1) {
      if (rows.kind[row] === "control") continue;
      const from = home[rows.op[row]];
      const to = new Set(rows.readers[row].map((reader) => home[reader]));
      to.delete(from);
      if (!to.size) { within += rows.kind[row] === "fetch" ? 0 : rows.bytes[row] ?? 0; continue; }
      for (const target of to) {
        const found = edge(from, target);
        found.sent += rows.bytes[row] ?? 0; found.count += 1; found.targets.add(rows.target[row]);
      }
    }
    return { nodes, edges: [...edges.values()], within };
  };

  const picture = element("svg:svg", { class: "layers", role: "group", "aria-label": "Layers of the graph" });
  const frame = element("div", { class: "frame" }, picture);
  const trail = element("div", { class: "crumbs" });
  const caption = element("p", { class: "note" });
  const boxWidth = 182, boxHeight = 40, gapX = 18, gapY = 44;

  const describe = (node) => [node.part.name || "everything", `${formatCount(node.count)} ${node.count === 1 ? "op" : "ops"}`,
    ...devices.flatMap((name, d) => node.counts[d] ? [`${name}: ${formatCount(node.counts[d])}`] : []),
    node.count === 1 ? "Enter shows the op" : "Enter or click opens it, Backspace closes its scope"];
  const toggle = (part) => {
    if (opsOf(part).length === 1) { selectOp(opsOf(part)[0]); return; }
    if (!canOpen(part)) return;
    open.add(part); chosen = innerParts(part)[0]; paint(true);
  };
  const close = (part) => {
    if (!part || part === root) return;
    for (const other of [...open]) for (let p = other; p; p = p.parent) if (p === part) { open.delete(other); break; }
    chosen = part; paint(true);
  };
  const drawNode = (node) => {
    const bar = [];
    let x = node.x;
    devices.forEach((name, d) => {
      const width = boxWidth * node.counts[d] / node.count;
      if (width) bar.push(element("svg:rect", { x, y: node.y, width, height: boxHeight, class: `fill ${deviceClass[name]}` }));
      x += width;
    });
    const group = element("svg:g", { class: `part${node.part === chosen ? " chosen" : ""}${canOpen(node.part) ? " closed" : ""}`, tabindex: 0, role: "button", "aria-label": describe(node).join(", "),
      onclick: () => toggle(node.part), onpointermove: (event) => showTooltip(describe(node), event), onpointerleave: hideTooltip,
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " " || event.key === "ArrowRight") toggle(node.part);
        else if (event.key === "Backspace" || event.key === "ArrowLeft") close(node.part.parent);
        else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
          const all = [...picture.querySelectorAll(".part")];
          all[(all.indexOf(group) + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length].focus();
        } else return;
        event.preventDefault();
      } },
    ...bar, element("svg:rect", { x: node.x, y: node.y, width: boxWidth, height: boxHeight, rx: 3, class: "outline" }),
    element("svg:svg", { x: node.x, y: node.y, width: boxWidth - 4, height: boxHeight },
      element("svg:text", { x: 8, y: 17 }, label(node.part)),
      element("svg:text", { x: 8, y: 32, class: "value" }, node.count === 1 ? opType(opsOf(node.part)[0]) : `${canOpen(node.part) ? "▸ " : ""}${formatCount(node.count)} ops`)));
    node.element = group;
    return group;
  };
  const paint = (focus) => {
    hideTooltip();
    const { nodes, edges, within } = collect();
    const rows = layOut(nodes, edges).flatMap((layer) => {
      const wide = Math.max(4, Math.floor((frame.clientWidth - 20) / (boxWidth + gapX)));
      const found = [];
      for (let i = 0; i < layer.length; i += wide) found.push(layer.slice(i, i + wide));
      return found.length ? found : [];
    });
    const widest = Math.max(...rows.map((row) => row.length));
    const width = Math.max(widest * (boxWidth + gapX) + 40, (frame.clientWidth - 2) / zoom);
    rows.forEach((row, i) => row.forEach((node, j) => {
      node.x = width / 2 + (j - row.length / 2) * (boxWidth + gapX) + gapX / 2;
      node.y = 12 + i * (boxHeight + gapY);
    }));
    const height = rows.length * (boxHeight + gapY) + 10;
    const most = Math.max(1, ...edges.map((edge) => edge.sent));
    const curve = (edge) => {
      const x1 = edge.from.x + boxWidth / 2, x2 = edge.to.x + boxWidth / 2;
      const down = edge.from.y < edge.to.y;
      const y1 = edge.from.y + (down ? boxHeight : 0), y2 = edge.to.y + (down ? 0 : boxHeight);
      const bend = Math.max(24, Math.abs(y2 - y1) * 0.45) * (down ? 1 : -1);
      return `M${x1},${y1}C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`;
    };
    const lines = edges.filter((edge) => !edge.count).map((edge) => element("svg:path", { d: curve(edge), class: "edge" }));
    const ribbons = edges.filter((edge) => edge.count).sort((a, b) => b.sent - a.sent).map((edge) => element("svg:path", {
      d: curve(edge), class: `ribbon stroke-${deviceClass[devices[[...edge.targets][0]]]}`, "stroke-width": 2 + 16 * Math.sqrt(edge.sent / most),
      onpointermove: (event) => showTooltip([`${formatBytes(edge.sent)} in ${formatCount(edge.count)} ${edge.count === 1 ? "transfer" : "transfers"}`, `${shorten(edge.from.part.name, 50)} → ${shorten(edge.to.part.name, 50)}`, `to ${[...edge.targets].map((d) => devices[d]).join(", ")}`], event), onpointerleave: hideTooltip }));
    picture.replaceChildren(...lines, ...ribbons, ...nodes.sort((a, b) => a.y - b.y || a.x - b.x).map(drawNode));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("width", width * zoom);
    picture.setAttribute("height", height * zoom);
    const opened = [...open].filter((part) => part !== root);
    trail.replaceChildren("Open: ", ...(opened.length ? opened.slice(-12).flatMap((part) => [element("button", { type: "button", title: `Close ${part.name}`, onclick: () => close(part) }, `${label(part)} ✕`), " "]) : ["the whole graph"]));
    const sentNow = edges.reduce((sum, edge) => sum + edge.count, 0);
    caption.textContent = `${formatCount(nodes.length)} parts of ${formatCount(opCount)} ops. ` + (devices.length < 2 || !step.sent.op.length ? "Nothing crosses between devices." :
      sentNow ? `Ribbons are transfers, as wide as the root of their bytes (widest ${formatBytes(most)}), coloured by where they go.` + (within ? ` ${formatBytes(within)} more cross inside closed parts.` : "") : `${formatBytes(within)} cross inside closed parts: open them to see where.`);
    if (focus) {
      const node = nodes.find((other) => other.part === chosen);
      node?.element.focus({ preventScroll: true });
      if (node) frame.scrollTo({ left: node.x * zoom - frame.clientWidth / 2 + boxWidth / 2, top: node.y * zoom - frame.clientHeight / 2, behavior: "instant" });
    } else frame.scrollLeft = (width * zoom - frame.clientWidth) / 2;
  };
  const scaleTo = (factor) => { zoom = Math.min(2, Math.max(0.3, zoom * factor)); paint(false); };
  const tools = element("div", { class: "tools", role: "group", "aria-label": "Size" },
    element("button", { type: "button", "aria-label": "Enlarge", onclick: () => scaleTo(1.25) }, "+"), element("button", { type: "button", "aria-label": "Reduce", onclick: () => scaleTo(0.8) }, "−"),
    element("button", { type: "button", onclick: () => { open.clear(); open.add(root); chosen = null; paint(false); } }, "Close all"));
  const legend = element("ul", { class: "legend" }, ...devices.map((name) => element("li", {}, element("i", { class: `swatch ${deviceClass[name]}` }), name)));
  bodyOf("placement").append(element("div", { class: "row" }, trail, tools), frame, legend, caption);
  paint(false);
  const reveal = (op) => {
    let part = root;
    while (opsOf(part).length > 1 && canOpen(part)) {
      open.add(part);
      part = innerParts(part).find((inner) => opsOf(inner).includes(op));
    }
    chosen = part;
    paint(true);
    byId("placement").scrollIntoView({ block: "start" });
  };
  return { paint: () => paint(false), reveal };
};
