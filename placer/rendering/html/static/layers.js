// Layers of a small directed graph: cycles broken, longest paths, crossings reduced by medians.
// Sugiyama, Tagawa and Toda, doi:10.1109/TSMC.1981.4308636; Eades and Wormald, doi:10.1007/BF01187020.

// `nodes` have `rank` (where they lie in graph order) and get `layer` and `place` within it.
// An edge that goes back in rank (a scope may both feed and read another) orders nothing.
const layOut = (nodes, edges) => {
  const forward = edges.filter((edge) => edge.from.rank < edge.to.rank);
  const incoming = new Map(nodes.map((node) => [node, []]));
  const outgoing = new Map(nodes.map((node) => [node, []]));
  for (const edge of forward) { incoming.get(edge.to).push(edge.from); outgoing.get(edge.from).push(edge.to); }
  const ordered = [...nodes].sort((a, b) => a.rank - b.rank);
  for (const node of ordered) node.layer = incoming.get(node).reduce((most, from) => Math.max(most, from.layer + 1), 0);
  // What only feeds later layers (weights, constants) moves next to its first reader.
  for (const node of [...ordered].reverse()) {
    const next = outgoing.get(node);
    if (next.length && !incoming.get(node).length) node.layer = next.reduce((least, to) => Math.min(least, to.layer - 1), Infinity);
  }
  const layers = [];
  for (const node of ordered) (layers[node.layer] ??= []).push(node);
  for (let i = 0; i < layers.length; i += 1) layers[i] ??= [];
  const place = (layer) => layer.forEach((node, i) => { node.place = i - (layer.length - 1) / 2; });
  layers.forEach(place);
  for (let round = 0; round < 6; round += 1) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const node of layer) {
        const near = (down ? incoming : outgoing).get(node).map((other) => other.place).sort((a, b) => a - b);
        node.wish = near.length ? near[Math.floor(near.length / 2)] : node.place;
      }
      layer.sort((a, b) => a.wish - b.wish || a.rank - b.rank);
      place(layer);
    }
  }
  return layers;
};
