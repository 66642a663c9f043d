// Treemap of memory, time or work by name scope; two levels at a time.
// Bruls, Huizing and van Wijk, "Squarified treemaps", doi:10.1007/978-3-7091-6783-0_4.
const squarify = (cells, x, y, width, height) => {
  const placed = [];
  let rest = cells.reduce((sum, cell) => sum + cell.value, 0);
  let start = 0;
  while (start < cells.length && rest > 0 && width > 0 && height > 0) {
    const side = Math.min(width, height);
    const scale = width * height / rest;
    let end = start, sum = 0, worst = Infinity;
    while (end < cells.length) {
      const next = sum + cells[end].value;
      const thick = next * scale / side;
      const ratio = Math.max(cells[start].value * scale / thick ** 2, thick ** 2 / (cells[end].value * scale));
      if (ratio > worst) break;
      worst = ratio; sum = next; end += 1;
    }
    const thick = sum * scale / side;
    let along = 0;
    for (let i = start; i < end; i += 1) {
      const length = cells[i].value * scale / thick;
      placed.push(width >= height
        ? { cell: cells[i], x, y: y + along, width: thick, height: length }
        : { cell: cells[i], x: x + along, y, width: length, height: thick });
      along += length;
    }
    if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
    rest -= sum; start = end;
  }
  return placed;
};

const treemapView = (memory) => {
  const mostCells = 250;
  const leastArea = 90;
  const atPeak = (device) => {
    const { peak } = memory.series(device);
    const amounts = new Float64Array(opCount);
    const { op, first, last, bytes, device: where } = step.buffers;
    for (let i = 0; i < op.length; i += 1) if (where[i] === device && first[i] <= peak && peak <= last[i]) amounts[op[i]] += bytes[i];
    return amounts;
  };
  const measures = [
    ...devices.map((name, device) => ({ name: `Memory at the peak of ${name}`, amounts: () => atPeak(device), apart: step.unused[device], format: formatBytes })),
    { name: "Busy time", amounts: () => step.seconds, format: formatTime },
    { name: "FLOPs", amounts: () => step.flops, format: formatFlops },
    { name: "Resident memory", amounts: () => step.persistent_bytes, apart: step.unused.reduce((sum, bytes) => sum + bytes, 0), format: formatBytes },
    { name: "Output bytes", amounts: () => step.output_bytes, format: formatBytes },
  ].filter((measure) => measure.amounts().some((amount) => amount > 0));
  if (!measures.length) { bodyOf("scopes").append(element("p", { class: "note" }, "Nothing here takes memory or time.")); return { paint: () => {} }; }

  let measure = measures.reduce((a, b) => b.name.startsWith("Memory") && a.name.startsWith("Memory") && total(b) > total(a) ? b : a);
  function total(m) { return m.sum ??= m.amounts().reduce((sum, amount) => sum + amount, 0); }
  let root = 0;
  const valueOf = (child) => child < 0 ? measure.amounts_[-1 - child] : measure.sums[child];
  const prepare = () => {
    measure.amounts_ ??= measure.amounts();
    measure.sums ??= sumByScope(measure.amounts_);
  };
  // A scope with one child that has any value is shown as that child.
  const opened = (child) => {
    while (child >= 0) {
      const inner = scopeChildren[child].filter((c) => valueOf(c) > 0);
      if (inner.length !== 1 || inner[0] < 0) break;
      child = inner[0];
    }
    return child;
  };
  // The largest children, as many as have room for more than a dot, and the rest as one.
  const cellsOf = (scope, area) => {
    const cells = scopeChildren[scope].filter((child) => valueOf(child) > 0).map((child) => ({ child: opened(child), value: valueOf(child) }));
    cells.sort((a, b) => b.value - a.value);
    const whole = cells.reduce((sum, cell) => sum + cell.value, 0);
    const small = cells.findIndex((cell, i) => i >= mostCells || cell.value / whole * area < leastArea);
    if (small < 0 || small >= cells.length - 1) return cells;
    const rest = cells.slice(small);
    return [...cells.slice(0, small), { rest: rest.length, value: rest.reduce((sum, cell) => sum + cell.value, 0) }];
  };
  const shareOf = (child) => {
    const counts = devices.map(() => 0);
    const visit = (c) => { if (c < 0) counts[step.device[-1 - c]] += measure.amounts_[-1 - c]; else scopeChildren[c].forEach(visit); };
    visit(child);
    return counts;
  };
  const mainDevice = (child) => { const counts = shareOf(child); return counts.indexOf(Math.max(...counts)); };
  const nameOf = (child) => child < 0 ? opName(-1 - child) : scopePath(child);
  const label = (child) => {
    const name = nameOf(child);
    const outer = root ? scopePath(root) + "/" : "";
    return name.startsWith(outer) ? name.slice(outer.length) : name;
  };
  const picture = element("svg:svg", { class: "treemap", role: "group", "aria-label": "Treemap by name scope" });
  const crumbs = element("nav", { class: "crumbs", "aria-label": "Name scope shown" });
  const caption = element("p", { class: "note" });
  const note = (cell) => [cell.rest ? `${formatCount(cell.rest)} smaller ones` : nameOf(cell.child), `${measure.format(cell.value)}, ${formatShare(cell.value, measure.sums[root])} of what is shown`,
    ...(cell.rest ? [] : [cell.child < 0 ? opType(-1 - cell.child) : "scope: click to enter", devices[mainDevice(cell.child)]])];
  const enter = (scope) => { root = scope; paint(); };
  const act = (cell) => { if (cell.rest) return; if (cell.child < 0) selectOp(-1 - cell.child); else enter(cell.child); };
  const drawCell = ({ cell, x, y, width, height }, level) => {
    if (width < 2 || height < 2) return null;
    const device = cell.rest ? 0 : mainDevice(cell.child);
    const inside = !cell.rest && cell.child >= 0 && level === 0 && width > 60 && height > 44;
    const group = element("svg:g", { class: `cell level-${level}`, tabindex: level === 0 ? 0 : null, role: level === 0 ? "button" : null, "aria-label": note(cell).join(", "),
      onclick: (event) => { event.stopPropagation(); act(cell); }, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(cell); } },
      onpointermove: (event) => { event.stopPropagation(); showTooltip(note(cell), event); }, onpointerleave: hideTooltip },
    element("svg:rect", { x: x + 0.5, y: y + 0.5, width: Math.max(1, width - 1), height: Math.max(1, height - 1), rx: 2, class: cell.rest ? "rest" : deviceClass[devices[device]] }));
    if (inside) {
      for (const inner of squarify(cellsOf(cell.child, (width - 4) * (height - 20)), x + 2, y + 18, width - 4, height - 20)) {
        const drawn = drawCell(inner, 1);
        if (drawn) group.append(drawn);
      }
    }
    const letters = Math.floor((width - 10) / 7);
    if (letters >= (cell.rest ? 14 : level ? 7 : 4) && height > 15 && (level === 0 || height > 20)) {
      const own = cell.rest ? `${formatCount(cell.rest)} smaller` : level ? nameOf(cell.child).split("/").pop() : label(cell.child);
      const value = ` ${measure.format(cell.value)}`;
      group.append(element("svg:text", { x: x + 5, y: y + 13 }, own.length + value.length <= letters ? own : (level ? shortenPart : shorten)(own, letters),
        own.length + value.length <= letters ? element("svg:tspan", { class: "value" }, value) : null));
    }
    return group;
  };
  const paint = () => {
    prepare();
    const width = picture.clientWidth || 800;
    const height = Math.max(260, Math.min(440, width * 0.5));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.style.height = `${height}px`;
    hideTooltip();
    picture.replaceChildren(...squarify(cellsOf(root, width * height), 0, 0, width, height).map((cell) => drawCell(cell, 0)).filter(Boolean));
    const path = [];
    for (let scope = root; scope > 0; scope = columns.scope_parent[scope]) path.unshift(scope);
    crumbs.replaceChildren(element("button", { type: "button", onclick: () => enter(0), disabled: root === 0 }, "everything"),
      ...path.flatMap((scope) => [" / ", element("button", { type: "button", onclick: () => enter(scope), disabled: scope === root }, columns.strings[columns.scope_name[scope]])]));
    caption.textContent = `${measure.format(measure.sums[root])} in all${measure.apart ? `, beside ${measure.format(measure.apart)} loaded and not used` : ""}${devices.length > 1 ? "; coloured by the device that holds most of it" : ""}.`;
  };
  const choose = element("label", {}, "Show ", element("select", { onchange: (event) => { measure = measures[event.target.selectedIndex]; root = 0; paint(); } },
    ...measures.map((m) => element("option", { selected: m === measure }, m.name))));
  bodyOf("scopes").append(element("div", { class: "row" }, choose, crumbs), picture, caption);
  picture.addEventListener("keydown", (event) => {
    if (event.key === "Backspace" || event.key === "Escape") { event.preventDefault(); enter(Math.max(0, columns.scope_parent[root])); }
  });
  paint();
  return { paint };
};
