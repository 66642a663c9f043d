// The page as a whole: theme, search, the panel of one op, and the views in the order of the page.
for (const node of document.querySelectorAll("[data-device]")) node.classList.add(deviceClass[node.dataset.device] ?? "device-cpu");

const views = [];
const theme = (name) => {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("placer-theme", name); } catch { /* a page from a file may have no storage */ }
  for (const view of views) view.paint();
};
let kept = null;
try { kept = localStorage.getItem("placer-theme"); } catch { /* see above */ }
if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
const isDark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
byId("theme").addEventListener("click", () => theme(isDark() ? "light" : "dark"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => views.forEach((view) => view.paint()));

let placement = null;
if (step) {
  const memory = memoryView();
  views.push(memory, treemapView(memory));
  placement = placementView();
  views.push(placement, scheduleView());
}
if (columns && byId("tables")) tablesView();
if (!columns || !opCount) document.querySelector(".search").hidden = true;
let resized = 0;
let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === lastWidth) return;
  lastWidth = window.innerWidth;
  clearTimeout(resized);
  resized = setTimeout(() => views.forEach((view) => view.paint()), 120);
});

// The panel of one op: what it is, what it costs, what it reads and who reads it.
const panel = byId("details");
let opener = null;
const closePanel = () => { panel.hidden = true; opener?.focus?.({ preventScroll: true }); };
const listOps = (title, ops) => ops.length ? element("div", {}, element("h3", {}, `${title} (${formatCount(ops.length)})`),
  element("ul", { class: "names" }, ...ops.slice(0, 30).map((op) => element("li", {}, opButton(op, 44), " ", element("small", {}, devices[step.device[op]]))), ops.length > 30 ? element("li", {}, `and ${formatCount(ops.length - 30)} more`) : null)) : null;
const showDetails = (op) => {
  if (panel.hidden) opener = document.activeElement;
  const reads = [...new Set(step.reads.slice(readOffset[op], readOffset[op + 1]))];
  const readBy = [...new Set(readers.slice(readerOffset[op], readerOffset[op + 1]))];
  const facts = [["Type", opType(op)], ["Device", devices[step.device[op]]], ["Time", `${formatTime(step.seconds[op])} from ${formatTime(step.start[op])}`], ["Work", formatFlops(step.flops[op])],
    ["Accessed", formatBytes(step.bytes_accessed[op])], ["Output", formatBytes(step.output_bytes[op])], ["Resident", formatBytes(step.persistent_bytes[op])], ["Temporary", formatBytes(step.temporary_bytes[op])],
    ["In the order", `${formatCount(positionOf[op] + 1)} of ${formatCount(opCount)}`]];
  const sent = step.sent.op.flatMap((producer, row) => producer === op ? [`${formatBytes(step.sent.bytes[row])} to ${devices[step.sent.target[row]]} (${step.sent.kind[row]})`] : []);
  panel.replaceChildren(element("button", { type: "button", class: "close", "aria-label": "Close", onclick: closePanel }, "✕"),
    element("h2", { tabindex: -1 }, opName(op)), element("dl", {}, ...facts.flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)])),
    element("div", { class: "tools" }, element("button", { type: "button", onclick: () => placement.reveal(op) }, "Show in the placement"), element("button", { type: "button", onclick: () => byId("memory").scrollIntoView() }, "Memory then"), element("button", { type: "button", onclick: () => byId("schedule").scrollIntoView() }, "Schedule then")),
    ...(sent.length ? [element("h3", {}, "Sent"), element("ul", { class: "names" }, ...sent.map((text) => element("li", {}, text)))] : []), ...[listOps("Reads", reads), listOps("Read by", readBy)].filter(Boolean));
  panel.hidden = false;
  panel.scrollTop = 0;
  panel.querySelector("h2").focus({ preventScroll: true });
};
if (step) onSelect(showDetails);

// Search: every word must be in the name or the type.
const search = byId("search");
const matches = byId("matches");
let found = [], active = -1, texts = null;
const textOf = () => texts ??= Array.from({ length: opCount }, (_, op) => `${opName(op)} ${opType(op)}`.toLowerCase());
const closeSearch = () => { matches.hidden = true; search.setAttribute("aria-expanded", "false"); search.removeAttribute("aria-activedescendant"); active = -1; };
const pick = (op) => { closeSearch(); if (step) selectOp(op); };
const light = (next) => {
  active = found.length ? (next + found.length) % found.length : -1;
  [...matches.children].forEach((item, i) => item.setAttribute("aria-selected", i === active));
  if (active >= 0) { search.setAttribute("aria-activedescendant", `match-${active}`); matches.children[active].scrollIntoView({ block: "nearest" }); }
};
search.addEventListener("input", () => {
  const sought = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = [];
  let count = 0;
  if (sought.length) textOf().forEach((text, op) => { if (sought.every((word) => text.includes(word))) { count += 1; if (found.length < 50) found.push(op); } });
  matches.replaceChildren(...found.map((op, i) => element("li", { id: `match-${i}`, role: "option", "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); pick(op); } },
    element("span", {}, shorten(opName(op), 60)), element("small", {}, `${opType(op)} ${devices[columns.device[op]]}`))),
    ...(count > found.length || !count && sought.length ? [element("li", { class: "note", role: "presentation" }, count ? `${formatCount(count)} ops match; the first ${found.length} are listed` : "No op has this in its name or type")] : []));
  matches.hidden = !sought.length;
  search.setAttribute("aria-expanded", String(!matches.hidden));
  active = -1;
});
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") light(active + 1);
  else if (event.key === "ArrowUp") light(active - 1);
  else if (event.key === "Enter" && found.length) pick(found[Math.max(0, active)]);
  else if (event.key === "Escape") closeSearch();
  else return;
  event.preventDefault();
});
search.addEventListener("blur", closeSearch);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); search.focus(); }
  else if (event.key === "Escape" && !panel.hidden) closePanel();
});
document.documentElement.dataset.ready = "true";
