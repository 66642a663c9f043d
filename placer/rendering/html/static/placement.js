// The placement as the layers of the model, in the order of its depth: forward on the left, backward
// and updates on the right of every box, coloured by device; ribbons are what crosses between devices.
const placementView = () => {
  const body = bodyOf("placement");
  if (!opCount) { body.append(element("p", { class: "note" }, "There are no ops.")); return { paint: () => {}, reveal: () => {} }; }
  const tree = layerTree();
  const { root } = tree;
  const sent = step.sent;
  const narrow = window.innerWidth < 760;
  const mostPairs = narrow ? 5 : 12;
  const mostNodes = narrow ? 30 : 46;
  const canOpen = (node) => node.inner.length > 1;
  const open = new Set([root]);
  let shown = null;
  let chosen = null;

  // To begin with, groups are opened where bytes cross in them, then those with most of the model, as
  // long as it stays readable.
  const crossing = new Map();
  const countCrossings = () => {
    for (let row = 0; row < sent.op.length; row += 1) {
      if (tree.readerOf[row] < 0) continue;
      const above = new Set();
      for (let node = tree.nodeOf[sent.op[row]]; node; node = node.parent) above.add(node);
      let node = tree.nodeOf[tree.readerOf[row]];
      while (!above.has(node)) node = node.parent;
      for (; node; node = node.parent) crossing.set(node, (crossing.get(node) ?? 0) + (sent.bytes[row] ?? 0));
    }
  };
  const openFirst = (size, least, most) => {
    const closed = new Set();
    const visit = (node) => { if (open.has(node)) node.inner.forEach(visit); else closed.add(node); };
    visit(root);
    while (true) {
      const next = [...closed].filter((node) => canOpen(node) && size(node) > least && closed.size + node.inner.length <= most).sort((a, b) => size(b) - size(a) || a.level - b.level)[0];
      if (!next) return;
      open.add(next);
      closed.delete(next);
      next.inner.forEach((inner) => closed.add(inner));
    }
  };
  const openAtFirst = () => {
    const whole = crossing.get(root) ?? 0;
    openFirst((node) => crossing.get(node) ?? 0, 0.02 * whole, mostNodes);
    openFirst((node) => tree.opsOf(node).length, 0.3 * opCount, mostNodes / 2);
  };

  const own = (node) => {
    if (node.op === null) return node.name;
    const outer = node.parent.op === null ? node.name.slice(0, -1 - opName(node.op).split("/").pop().length) : "";
    const kept = outer && !groupHas(node.parent, outer) ? outer.split("/").pop() : node.name.split("/").pop();
    return kept;
  };
  // An op that lies alone in a scope of its own is called as that scope.
  const groupHas = (group, scope) => (group.scopes ??= group.inner.reduce((found, inner) => {
    if (inner.op !== null) { const path = inner.name.slice(0, Math.max(0, inner.name.lastIndexOf("/"))); found.set(path, (found.get(path) ?? 0) + 1); }
    return found;
  }, new Map())).get(scope) > 1 || scope.split("/").pop() === group.name.split("/").pop();
  const sum = (counts) => counts.reduce((a, b) => a + b, 0);
  const onlyDevice = (node) => {
    const found = new Set(fillsOf(node).map((part) => part.device));
    return found.size === 1 ? [...found][0] : -1;
  };
  const labelOf = (node) => {
    if (node.shown) return { head: measureText(headOf(node), true) + 30 };
    const [forward, backward, update] = node.counts.map(sum);
    const lanes = [];
    if (forward || !backward && !update) lanes.push(node.op !== null && forward <= 1 ? opType(node.op) : `${formatCount(forward)} ${forward === 1 ? "op" : "ops"}`);
    if (backward || update) lanes.push(backward ? `${formatCount(backward + update)} backward` : `${formatCount(update)} update`);
    return { title: `${canOpen(node) ? "▸ " : ""}${shortenPart(own(node), 38)}`, lanes, device: devices[onlyDevice(node)], inside: node.inside > 0.005 * (crossing.get(root) ?? 0) ? `⇄ ${formatBytes(node.inside)} inside` : "" };
  };
  const headOf = (node) => `▾ ${shortenPart(own(node), 60)}  ${formatCount(tree.opsOf(node).length)} ops`;
  const describe = (node) => [node.name || "everything",
    ...["forward", "backward", "update"].flatMap((name, pass) => node.counts?.[pass].some(Boolean) ? [`${name}: ${devices.flatMap((device, d) => node.counts[pass][d] ? [`${formatCount(node.counts[pass][d])} on ${device}`] : []).join(", ")}`] : []),
    ...(node.folds ? [`${formatCount(node.folds)} constants and variables${node.resident ? `, ${formatBytes(node.resident)} kept` : ""}`] : []),
    ...(node.seconds ? [`busy for ${formatTime(node.seconds)}`] : []),
    ...(node.inside ? [`${formatBytes(node.inside)} cross inside`] : []),
    node.shown ? "Enter closes it" : canOpen(node) ? "Enter opens it" : "Enter shows the op"];

  const picture = element("svg:svg", { class: "layers", role: "group", "aria-label": "Layers of the model" });
  const view = new Viewport(picture, {
    label: "Layers of the model. Arrow keys go from layer to layer, Enter opens and closes, Backspace closes what is around, plus, minus and 0 change the size.",
    paintOverview: (context, scale) => {
      for (const node of shown.closed) {
        const { x, y, width, height } = node;
        for (const part of fillsOf(node)) { context.fillStyle = deviceColour(part.device); context.fillRect((x + part.from * width) * scale, y * scale, Math.max(1, part.share * width * scale), Math.max(1.5, height * scale)); }
      }
      context.strokeStyle = colour("text");
      for (const ribbon of shown.ribbons) {
        context.lineWidth = 1.2;
        context.beginPath();
        for (const point of ribbon.points) context.lineTo(point.x * scale, point.y * scale);
        context.stroke();
      }
    },
  });

  // What of a box belongs to which device, by the bytes that its ops write: forward left, the other
  // passes right.
  const fillsOf = (node) => {
    const sides = [node.written[0], node.written[1].map((bytes, d) => bytes + node.written[2][d])].filter((counts) => sum(counts));
    if (!sides.length) sides.push(devices.map((_, d) => tree.opsOf(node).filter((op) => step.device[op] === d).length));
    return sides.flatMap((counts, side) => {
      let from = side / sides.length;
      return counts.flatMap((count, device) => {
        if (count < 0.02 * sum(counts)) return [];
        const part = { device, from, share: count / sum(counts.filter((other) => other >= 0.02 * sum(counts))) / sides.length };
        from += part.share;
        return [part];
      });
    });
  };
  const act = (node) => {
    if (node.shown) { open.delete(node); chosen = node; paint(true); }
    else if (canOpen(node)) { open.add(node); chosen = node.inner[0]; paint(true); }
    else selectOp(node.op);
  };
  const close = (node) => { if (!node?.parent) return; open.delete(node); chosen = node; paint(true); };
  const step_ = (node, dx, dy) => {
    const middle = (other) => [other.x + other.width / 2, other.y + (other.shown ? headHeight / 2 : other.height / 2)];
    const [x, y] = middle(node);
    const near = [...shown.closed, ...shown.opened.filter((other) => other !== root)].map((other) => {
      const [ox, oy] = middle(other);
      const along = (ox - x) * dx + (oy - y) * dy, across = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
      return { other, along, cost: along + (dy ? 0.35 : 3) * across };
    }).filter((found) => found.along > 4).sort((a, b) => a.cost - b.cost)[0];
    if (near) choose(near.other);
  };
  const choose = (node) => {
    if (chosen?.element) { chosen.element.classList.remove("chosen"); chosen.element.setAttribute("tabindex", -1); }
    chosen = node;
    node.element.classList.add("chosen");
    node.element.setAttribute("tabindex", 0);
    node.element.focus({ preventScroll: true });
    const { frame, zoom } = view;
    const [left, top] = [node.x * zoom, node.y * zoom];
    if (left < frame.scrollLeft || top < frame.scrollTop || left + node.width * zoom > frame.scrollLeft + frame.clientWidth || top + boxHeight * zoom > frame.scrollTop + frame.clientHeight) view.show(node.x + node.width / 2, node.y + Math.min(node.height, 100) / 2);
  };
  const onKey = (node, event) => {
    const moves = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] };
    const others = { Enter: () => act(node), " ": () => act(node), Backspace: () => close(node.parent), "+": () => view.scale(1.25), "=": () => view.scale(1.25), "-": () => view.scale(0.8), "0": () => view.fit(),
      Home: () => choose(shown.closed[0]), End: () => choose(shown.closed[shown.closed.length - 1]) };
    if (moves[event.key]) step_(node, ...moves[event.key]);
    else if (others[event.key]) others[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const drawNode = (node) => {
    const { x, y, width, height } = node;
    const isOpen = Boolean(node.shown);
    const parts = [];
    if (isOpen) {
      parts.push(element("svg:rect", { x, y, width, height: headHeight, rx: 8, class: "head" }), element("svg:text", { x: x + 12, y: y + 17 }, headOf(node)));
    } else {
      const { title, lanes, device, inside } = labelOf(node);
      for (const part of fillsOf(node)) parts.push(element("svg:rect", { x: x + part.from * width, y, width: part.share * width, height, class: deviceClass[devices[part.device]] }));
      if (lanes.length > 1) parts.push(element("svg:path", { d: `M${x + width / 2},${y + 22}V${y + boxHeight}`, class: "between" }));
      parts.push(element("svg:rect", { x, y, width, height, rx: 5, class: "outline" }),
        element("svg:svg", { x, y, width: width - 4, height }, element("svg:text", { x: 8, y: 16 }, title), device ? element("svg:text", { x: width - 12, y: 16, class: "value end" }, device) : null,
          ...lanes.map((text, i) => element("svg:text", { x: 8 + i * width / lanes.length, y: 32, class: "value" }, text)),
          inside ? element("svg:text", { x: 8, y: 49, class: "value" }, inside) : null));
    }
    node.element = element("svg:g", { class: `part${isOpen ? " opened" : canOpen(node) ? " closed" : ""}${node === chosen ? " chosen" : ""}`, tabindex: -1, role: "button", "data-name": node.name,
      "aria-expanded": isOpen || canOpen(node) ? String(isOpen) : null, "aria-label": describe(node).join(", "),
      onclick: (event) => { event.stopPropagation(); act(node); }, onkeydown: (event) => onKey(node, event),
      onpointermove: (event) => { if (!event.buttons) showTooltip(describe(node), event); }, onpointerleave: hideTooltip }, ...parts);
    return node.element;
  };
  // Forward flows leave and enter on the left half of a box, backward ones on the right.
  const twoSided = step.layers.pass.includes("1");
  const port = (node, back) => {
    const middle = node.x + node.width / 2;
    if (!twoSided) return middle;
    if (node.shown) return middle + (back ? 10 : -10);
    const [forward, ...others] = node.counts.map(sum);
    return forward && (others[0] || others[1]) ? middle + (back ? 0.25 : -0.25) * node.width : middle;
  };
  const curve = (points) => points.reduce((path, { x, y }, i) => {
    if (!i) return `M${x},${y}`;
    const middle = (points[i - 1].y + y) / 2;
    return `${path}C${points[i - 1].x},${middle} ${x},${middle} ${x},${y}`;
  }, "");
  const pathOf = (flow) => {
    const [upper, lower] = flow.reversed ? [flow.to, flow.from] : [flow.from, flow.to];
    const back = flow.reversed || flow.key === "back";
    const inner = flow.points.length > 3 || flow.at ? flow.points.slice(1, -1) : [];
    const ends = flow.ends.length === 1 ? (flow.reversed ? [...flow.ends[0]].reverse() : flow.ends[0]) : [upper, lower];
    const points = [{ x: port(upper, back), y: upper.y + upper.height }, ...inner, { x: port(lower, back), y: lower.y }];
    if (ends[0] !== upper) points.unshift({ x: port(ends[0], back), y: ends[0].y + ends[0].height });
    if (ends[1] !== lower) points.push({ x: port(ends[1], back), y: ends[1].y });
    return curve(flow.reversed ? points.reverse() : points);
  };
  const arrow = element("svg:defs", {}, ...devices.map((name, d) => element("svg:marker", { id: `arrow-${d}`, viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto" }, element("svg:path", { d: "M0,0L10,5L0,10z", class: deviceClass[name] }))));
  const tellRibbon = (ribbon) => [`${formatBytes(ribbon.bytes)} in ${formatCount(ribbon.count)} ${ribbon.count === 1 ? "transfer" : "transfers"}`,
    ...ribbon.ends.slice(0, 6).map(([from, to]) => `${shorten(from.name, 44)} → ${shorten(to.name, 44)}`), ribbon.ends.length > 6 ? `and ${ribbon.ends.length - 6} more` : null, `to ${[...ribbon.targets].map((d) => devices[d]).join(", ")}`].filter(Boolean);
  const caption = element("p", { class: "note" });
  const paint = (focus = false) => {
    hideTooltip();
    shown = shownOf(tree, open);
    const { width, height } = layOutLayers(tree, shown, labelOf);
    const most = Math.max(1, ...shown.ribbons.map((ribbon) => ribbon.bytes));
    const opened = shown.opened.filter((node) => node !== root);
    const around = opened.map(({ x, y, width, height }) => element("svg:rect", { x, y, width, height, rx: 8, class: "around" }));
    const flows = shown.opened.flatMap((node) => node.drawn);
    const lines = flows.filter((flow) => !flow.count).map((flow) => element("svg:path", { d: pathOf(flow), class: `edge ${flow.key}` }));
    const ribbons = shown.ribbons.sort((a, b) => b.bytes - a.bytes).map((ribbon) => element("svg:path", { d: pathOf(ribbon), class: `ribbon stroke-${deviceClass[devices[[...ribbon.targets][0]]]}`, "stroke-width": 2.5 + 11 * Math.sqrt(ribbon.bytes / most), "marker-end": `url(#arrow-${[...ribbon.targets][0]})`,
      onpointermove: (event) => showTooltip(tellRibbon(ribbon), event), onpointerleave: hideTooltip }));
    const labels = shown.ribbons.filter((ribbon) => ribbon.at).map((ribbon) => {
      const wide = measureText(ribbon.label, true) + 12;
      return element("svg:g", { class: "bytes", onpointermove: (event) => showTooltip(tellRibbon(ribbon), event), onpointerleave: hideTooltip },
        element("svg:rect", { x: ribbon.at.x - wide / 2, y: ribbon.at.y - 9, width: wide, height: 18, rx: 9, class: `stroke-${deviceClass[devices[[...ribbon.targets][0]]]}` }), element("svg:text", { x: ribbon.at.x, y: ribbon.at.y + 4 }, ribbon.label));
    });
    picture.replaceChildren(arrow, ...around, ...lines, ...ribbons, ...[...opened, ...shown.closed].sort((a, b) => a.rank - b.rank || a.level - b.level).map(drawNode), ...labels);
    view.resize(width, height);
    const within = shown.closed.reduce((total, node) => total + node.inside, 0);
    caption.textContent = `${formatCount(shown.closed.length)} boxes for ${formatCount(opCount)} ops, in the order of the model's depth; constants and variables lie with their readers. ` + (devices.length < 2 || !sent.op.length ? "Nothing crosses between devices." :
      `Ribbons are what crosses between devices, coloured by where it goes${within ? `; ${formatBytes(within)} more cross inside closed boxes (⇄)` : ""}.`);
    const first = chosen?.element?.isConnected ? chosen : shown.closed[0];
    first?.element.setAttribute("tabindex", 0);
    if (focus && first) choose(first);
  };
  const look = () => view.fitReadable(shown.ribbons.filter((ribbon) => ribbon.at).map((ribbon) => ({ ...ribbon.at, weight: ribbon.bytes })));
  const fill = () => { open.clear(); open.add(root); openAtFirst(); };

  // The cut in words: what goes from which device to which.
  const pairs = new Map();
  for (let row = 0; row < sent.op.length; row += 1) {
    if (sent.kind[row] === "control") continue;
    const key = `${devices[sent.source[row]]} → ${devices[sent.target[row]]}`;
    if (!pairs.has(key)) pairs.set(key, { key, source: sent.source[row], target: sent.target[row], bytes: 0, rows: [] });
    const pair = pairs.get(key);
    pair.bytes += sent.bytes[row] ?? 0;
    pair.rows.push(row);
  }
  const showRow = (row) => { reveal(sent.op[row]); };
  const cut = element("ul", { class: "cut", "aria-label": "Transfers between devices" }, ...[...pairs.values()].sort((a, b) => b.bytes - a.bytes).slice(0, mostPairs).map((pair) => {
    const largest = pair.rows.reduce((a, b) => (sent.bytes[b] ?? 0) > (sent.bytes[a] ?? 0) ? b : a);
    return element("li", {}, element("button", { type: "button", title: `Show the largest: ${sentName(largest)}`, onclick: () => showRow(largest) },
      element("i", { class: `swatch ${deviceClass[devices[pair.source]]}` }), `${devices[pair.source]} → `, element("i", { class: `swatch ${deviceClass[devices[pair.target]]}` }), `${devices[pair.target]} `,
      element("b", {}, formatBytes(pair.bytes)), element("small", {}, ` ${formatCount(pair.rows.length)} ${pair.rows.length === 1 ? "tensor" : "tensors"}`)));
  }));
  if (pairs.size > mostPairs) cut.append(element("li", { class: "note" }, `and ${formatCount(pairs.size - mostPairs)} more pairs of devices`));
  view.tools.append(view.tool("Open the layers with transfers, as at first", "Cut", () => { chosen = null; fill(); paint(); look(); }), view.tool("Close everything", "Close all", () => { open.clear(); open.add(root); chosen = null; paint(); look(); }));
  const legend = element("ul", { class: "legend" }, ...devices.map((name) => element("li", {}, element("i", { class: `swatch ${deviceClass[name]}` }), name)));
  body.append(element("div", { class: "row" }, cut.childElementCount ? cut : legend, view.tools), view.node, ...(cut.childElementCount ? [legend] : []), caption);
  countCrossings();
  fill();
  paint();
  look();
  const reveal = (op) => {
    for (let node = tree.nodeOf[op].parent; node; node = node.parent) open.add(node);
    chosen = tree.nodeOf[op];
    paint(true);
    view.show(chosen.x + chosen.width / 2, chosen.y + chosen.height / 2);
    byId("placement").scrollIntoView({ block: "start" });
  };
  return { paint: () => paint(), reveal };
};
