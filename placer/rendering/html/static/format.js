// Numbers as people read them: the same rules as placer/rendering/quantities.py.
const threeDigits = (n) => n >= 99.95 ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2);
const scaled = (n, base, units) => {
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) { n /= base; i += 1; }
  return [n, units[i], i];
};
const formatCount = (n) => n.toLocaleString("en-US");
const formatBytes = (bytes) => {
  if (bytes === null || bytes === undefined) return "unknown";
  const [n, unit, power] = scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return power ? `${threeDigits(n)} ${unit}` : `${bytes} B`;
};
const formatFlops = (flops) => {
  const [n, prefix, power] = scaled(flops, 1000, ["", "k", "M", "G", "T", "P", "E"]);
  return `${power ? threeDigits(n) : Math.round(n)} ${prefix}FLOP`;
};
// Times are picoseconds in the data.
const formatTime = (picoseconds) => {
  const seconds = picoseconds / 1e12;
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (seconds >= 0.9995 * size) return `${threeDigits(seconds / size)} ${unit}`;
  }
  if (picoseconds > 0 && picoseconds < 5e3) return "<0.01 µs";
  return picoseconds ? `${threeDigits(seconds / 1e-6)} µs` : "0 s";
};
const formatShare = (part, whole) => {
  if (!(whole > 0)) return "–";
  const share = (100 * part / whole).toFixed(1);
  return part > 0 && share === "0.0" ? "<0.1%" : `${share}%`;
};
const kindName = (kind) => kind.replace("_", " ");

// Elements: every text goes through textContent, so no name is ever read as markup.
const element = (tag, attributes = {}, ...children) => {
  const made = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
};
const byId = (id) => document.getElementById(id);
const bodyOf = (id) => byId(id)?.querySelector(".body") ?? null;

// One part of a name keeps both its ends.
const shortenPart = (part, width) => {
  if (part.length <= width) return part;
  const head = Math.ceil((width - 1) / 2);
  return `${part.slice(0, head)}…${part.slice(part.length - (width - 1 - head))}`;
};
// The end of a long name says most: its front gives way, first the call nodes that every exported
// model has, then whole parts.
const shorten = (whole, width) => {
  if (whole.length <= width) return whole;
  const name = whole.replace(/^((Stateful)?PartitionedCall(_\d+)?\/)+/, "…/");
  if (name.length <= width) return name;
  const cut = name.indexOf("/", name.length - width);
  return cut >= 0 && name.length - cut > width / 2 ? `…${name.slice(cut)}` : `…${name.slice(name.length - width + 1)}`;
};
