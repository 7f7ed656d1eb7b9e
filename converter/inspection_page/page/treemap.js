// A squarified treemap: areas are bytes. Bruls, Huizing, van Wijk, "Squarified Treemaps", 2000.

const HUES = 8;

function squarify(entries, x, y, width, height) {
  const placed = [];
  let rest = entries.filter((one) => one.size > 0).sort((a, b) => b.size - a.size);
  let left = rest.reduce((sum, one) => sum + one.size, 0);
  while (rest.length && width > 0 && height > 0) {
    const isWide = width >= height;
    const side = isWide ? height : width;
    const scale = (width * height) / left;
    let row = 0, sum = 0, worst = Infinity;
    while (row < rest.length) {
      const next = sum + rest[row].size;
      const thick = (next * scale) / side;
      const sizes = [rest[0].size, rest[row].size].map((size) => (size * scale) / thick);
      const ratio = Math.max(...sizes.map((long) => Math.max(long / thick, thick / long)));
      if (ratio > worst) break;
      [sum, worst] = [next, ratio];
      row += 1;
    }
    const thick = (sum * scale) / side;
    let at = isWide ? y : x;
    for (const one of rest.slice(0, row)) {
      const long = (one.size * scale) / thick;
      placed.push(isWide ? { ...one, x, y: at, width: thick, height: long } : { ...one, x: at, y, width: long, height: thick });
      at += long;
    }
    if (isWide) [x, width] = [x + thick, width - thick];
    else [y, height] = [y + thick, height - thick];
    rest = rest.slice(row);
    left -= sum;
  }
  return placed;
}

// The members of a block, and in those that have room, theirs.
function treemap(block, open) {
  const place = document.getElementById("map");
  const width = place.clientWidth || 1000;
  const height = width < 600 ? 220 : 300;
  const tiles = [];
  const cover = (members, x, y, w, h, depth, hue) => {
    const sized = members.map((node, i) => ({ node, size: sizeOf(node), hue: hue ?? i % HUES }));
    for (const tile of squarify(sized, x, y, w, h)) {
      const inner = tile.node.members && depth < 3 && tile.width > 90 && tile.height > 60;
      tiles.push({ ...tile, inner, depth });
      if (inner) cover(tile.node.members, tile.x + 3, tile.y + 19, tile.width - 6, tile.height - 22, depth + 1, tile.hue);
    }
  };
  cover(block.members, 0, 0, width, height, 0, null);
  const total = sizeOf(block) || 1;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": "Sizes of blocks; the tree below has the same blocks" },
  tiles.map((tile) => {
    const gap = Math.min(1, tile.width / 8, tile.height / 8);
    const [w, h] = [tile.width - 2 * gap, tile.height - 2 * gap];
    const fits = Math.floor((w - 10) / 6.7);
    const label = visible(titleOf(tile.node));
    const text = label.length <= fits ? label : `${label.slice(0, Math.max(fits - 1, 0))}…`;
    const sub = `${bytes(sizeOf(tile.node))} · ${share(sizeOf(tile.node), total)}`;
    return svg("g", { class: `tile hue-${tile.hue} depth-${tile.depth}`, transform: `translate(${tile.x + gap} ${tile.y + gap})`, onclick: () => open(tile.node) },
      svg("rect", { width: Math.max(w, 0), height: Math.max(h, 0), rx: Math.min(4, w / 4, h / 4) }),
      svg("title", {}, `${tile.node.name ?? pathOf(tile.node)}: ${sub}`),
      fits > 2 && h > 15 && svg("text", { x: 6, y: 13.5 }, text),
      !tile.inner && h > 32 && sub.length <= fits && svg("text", { class: "sub", x: 6, y: 28 }, sub));
  }));
  place.replaceChildren(drawing);
}
