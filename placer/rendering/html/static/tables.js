// Tables of any length: sorted and filtered as numbers, drawn only where they are seen.
const tableRowHeight = 29;

// `columns` are { head, text(row), sort(row), number, cell(row) }; `rows` is an array of numbers.
const lazyTable = (label, heads, rows, { filterText, choices = [] }) => {
  let sorted = rows, shown = rows, order = null, falling = true, words = "", choice = -1;
  const count = element("span", { class: "count", role: "status" });
  const head = element("tr");
  const body = element("tbody");
  const box = element("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": label },
    element("table", { class: "lazy", "aria-rowcount": rows.length }, element("thead", {}, head), body));
  const spacer = (height) => { const cell = element("td", { colspan: heads.length }); cell.style.height = `${height}px`; cell.style.padding = "0"; cell.style.border = "0"; return element("tr", { "aria-hidden": "true" }, cell); };
  const paint = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / tableRowHeight) - 8);
    const last = Math.min(shown.length, first + Math.ceil(box.clientHeight / tableRowHeight) + 20);
    body.replaceChildren(spacer(first * tableRowHeight), ...shown.slice(first, last).map((row, i) => element("tr", { "aria-rowindex": first + i + 2 },
      ...heads.map((h) => element("td", { class: h.number ? "number" : null }, h.cell ? h.cell(row) : h.text(row))))), spacer((shown.length - last) * tableRowHeight));
    count.textContent = shown.length === rows.length ? formatCount(rows.length) : `${formatCount(shown.length)} of ${formatCount(rows.length)}`;
  };
  const update = () => {
    const sought = words.toLowerCase().split(/\s+/).filter(Boolean);
    shown = sorted.filter((row) => (choice < 0 || choices[choice].keep(row)) && (!sought.length || ((text) => sought.every((word) => text.includes(word)))(filterText(row).toLowerCase())));
    box.scrollTop = 0;
    paint();
  };
  const sortBy = (h) => {
    falling = order === h ? !falling : Boolean(h.number);
    order = h;
    const keys = new Map(rows.map((row) => [row, h.sort ? h.sort(row) : h.text(row)]));
    const sign = falling ? -1 : 1;
    sorted = [...rows].sort((a, b) => { const x = keys.get(a), y = keys.get(b); return (x < y ? -sign : x > y ? sign : 0) || a - b; });
    head.replaceChildren(...heads.map((other) => element("th", { scope: "col", class: other.number ? "number" : null, "aria-sort": other !== order ? null : falling ? "descending" : "ascending" },
      element("button", { type: "button", onclick: () => sortBy(other) }, other.head, other === order ? (falling ? " ↓" : " ↑") : ""))));
    update();
  };
  const input = element("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${label}`, oninput: (event) => { words = event.target.value; update(); } });
  const select = choices.length > 1 ? element("select", { "aria-label": "Only", onchange: (event) => { choice = event.target.selectedIndex - 1; update(); } }, element("option", {}, "all"), ...choices.map((c) => element("option", {}, c.name))) : null;
  let frame = 0;
  box.addEventListener("scroll", () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(paint); });
  const node = element("div", {}, element("div", { class: "row" }, element("div", { class: "filters" }, input, select), count), box);
  return { node, start: () => sortBy(heads.find((h) => h.first) ?? heads[0]) };
};

const deviceCell = (device) => element("span", {}, element("i", { class: `swatch ${deviceClass[devices[device]]}` }), devices[device]);
const opTable = () => {
  const rows = Array.from({ length: opCount }, (_, op) => op);
  const heads = [{ head: "Op", text: opName, cell: (op) => step ? opButton(op, 60) : element("span", { title: opName(op) }, shorten(opName(op), 80)) }];
  const numberHead = (head, column, format, first) => ({ head, number: true, first, text: (op) => format(column[op]), sort: (op) => column[op] });
  if (step) heads.push(numberHead("Time", step.seconds, formatTime, true));
  heads.push({ head: "Device", text: (op) => devices[columns.device[op]], cell: (op) => deviceCell(columns.device[op]) });
  if (step) heads.push({ head: "Type", text: opType }, numberHead("FLOPs", step.flops, formatFlops), numberHead("Accessed", step.bytes_accessed, formatBytes),
    numberHead("Output", step.output_bytes, formatBytes), numberHead("Resident", step.persistent_bytes, formatBytes), numberHead("Start", step.start, formatTime));
  return lazyTable("Ops", heads, rows, { filterText: (op) => `${opName(op)} ${opType(op)} ${devices[columns.device[op]]}`, choices: devices.map((name, d) => ({ name, keep: (op) => columns.device[op] === d })) });
};
const transferTable = () => {
  const sent = plan.transfers;
  const heads = [{ head: "Tensor", text: (i) => sent[i].tensor, cell: (i) => element("span", { title: sent[i].tensor }, shorten(sent[i].tensor, 60)) },
    { head: "Bytes", number: true, first: true, text: (i) => formatBytes(sent[i].bytes), sort: (i) => sent[i].bytes ?? -1 },
    { head: "From", text: (i) => sent[i].from }, { head: "To", text: (i) => sent[i].to }, { head: "Kind", text: (i) => sent[i].kind }, { head: "Arrives in", text: (i) => `${sent[i].memory} memory` }];
  const kinds = [...new Set(sent.map((row) => row.kind))];
  return lazyTable("Transfers", heads, sent.map((_, i) => i), { filterText: (i) => `${sent[i].tensor} ${sent[i].from} ${sent[i].to} ${sent[i].kind}`, choices: kinds.map((kind) => ({ name: kind, keep: (i) => sent[i].kind === kind })) });
};
// Groups with `parents` (0 has none) count what is in the groups below them too, as a report does.
const sumTable = (label, names, groupOf, parents = []) => {
  const sums = names.map(() => ({ ops: 0, seconds: 0, flops: 0, accessed: 0, resident: 0 }));
  for (let op = 0; op < opCount; op += 1) {
    const sum = sums[groupOf[op]];
    sum.ops += 1; sum.seconds += step.seconds[op]; sum.flops += step.flops[op]; sum.accessed += step.bytes_accessed[op]; sum.resident += step.persistent_bytes[op];
  }
  const whole = sums.reduce((all, sum) => all + sum.seconds, 0);
  for (let inner = parents.length - 1; inner > 0; inner -= 1) {
    const outer = sums[parents[inner]];
    if (parents[inner]) for (const key of Object.keys(outer)) outer[key] += sums[inner][key];
  }
  const numberHead = (head, key, format, first) => ({ head, number: true, first, text: (i) => format(sums[i][key]), sort: (i) => sums[i][key] });
  const heads = [{ head: label, text: (i) => names[i], cell: (i) => element("span", { title: names[i] }, shorten(names[i], 60)) }, numberHead("Time", "seconds", formatTime, true), numberHead("Ops", "ops", formatCount),
    { head: "Share", number: true, text: (i) => formatShare(sums[i].seconds, whole), sort: (i) => sums[i].seconds }, numberHead("FLOPs", "flops", formatFlops), numberHead("Accessed", "accessed", formatBytes), numberHead("Resident", "resident", formatBytes)];
  return lazyTable(`${label}s`, heads, names.map((_, i) => i).filter((i) => sums[i].ops), { filterText: (i) => names[i] });
};
const variableTable = () => {
  const names = Object.keys(plan.variables);
  return lazyTable("Variables", [{ head: "Variable", text: (i) => names[i] }, { head: "Device", text: (i) => plan.variables[names[i]] }], names.map((_, i) => i), { filterText: (i) => `${names[i]} ${plan.variables[names[i]]}` });
};
const tablesView = () => {
  const typeNumbers = step ? [...new Set(step.op_type)] : [];
  const typeIndex = new Map(typeNumbers.map((number, i) => [number, i]));
  const tabs = [
    ["Ops", opCount, opTable],
    plan?.transfers.length ? ["Transfers", plan.transfers.length, transferTable] : null,
    step ? ["Op types", typeNumbers.length, () => sumTable("Op type", typeNumbers.map((n) => step.strings[n]), step.op_type.map((n) => typeIndex.get(n)))] : null,
    step ? ["Name scopes", columns.scope_parent.length - !columns.scope.includes(0), () => sumTable("Name scope", columns.scope_parent.map((_, s) => scopePath(s) || "(no scope)"), columns.scope, columns.scope_parent)] : null,
    plan && Object.keys(plan.variables).length ? ["Variables", Object.keys(plan.variables).length, variableTable] : null,
  ].filter(Boolean);
  const panel = element("div", { role: "tabpanel", id: "table-panel", tabindex: -1 });
  const buttons = tabs.map(([name, count], i) => element("button", { type: "button", role: "tab", "aria-controls": "table-panel", onclick: () => choose(i), onkeydown: (event) => {
    const by = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[event.key];
    if (by) { choose((i + by) % tabs.length); buttons[(i + by) % tabs.length].focus(); event.preventDefault(); }
  } }, name, " ", element("small", {}, formatCount(count))));
  const made = [];
  const choose = (chosen) => {
    buttons.forEach((button, i) => { button.setAttribute("aria-selected", i === chosen); button.tabIndex = i === chosen ? 0 : -1; });
    const fresh = !made[chosen];
    made[chosen] ??= tabs[chosen][2]();
    panel.replaceChildren(made[chosen].node);
    panel.setAttribute("aria-label", tabs[chosen][0]);
    if (fresh) made[chosen].start();
  };
  bodyOf("tables").append(element("div", { class: "tabs", role: "tablist", "aria-label": "Tables" }, ...buttons), panel);
  choose(0);
};
