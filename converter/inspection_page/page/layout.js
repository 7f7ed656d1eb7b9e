// Layered layout of the members of one block: longest paths, dummies on long edges, barycentres.
// Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.

const GAP_X = 26, GAP_Y = 40, DUMMY = 10;

// Order members so that edges go down; those of a circle that go up are returned apart. A circle is
// opened at its member of the least rank.
function orderMembers(n, links, ranks) {
  const after = Array.from({ length: n }, () => []);
  const waiting = new Array(n).fill(0);
  for (const link of links) { after[link.from].push(link); waiting[link.to] += 1; }
  const order = [], done = new Array(n).fill(false), back = new Set();
  const ready = [];
  for (let i = n - 1; i >= 0; i--) if (!waiting[i]) ready.push(i);
  const byRank = Array.from({ length: n }, (_, i) => i).sort((a, b) => ranks[a] - ranks[b]);
  let next = 0;
  while (order.length < n) {
    if (!ready.length) {
      while (done[byRank[next]]) next += 1;
      ready.push(byRank[next]);
    }
    const one = ready.pop();
    if (done[one]) continue;
    done[one] = true;
    order.push(one);
    for (const link of after[one]) {
      if (done[link.to]) back.add(link);
      else if (--waiting[link.to] === 0) ready.push(link.to);
    }
  }
  return { order, back };
}

// Return the place of each member and the points of each link. `sizes` are [width, height].
function layOut(sizes, links, ranks) {
  const n = sizes.length;
  const { order, back } = orderMembers(n, links, ranks);
  const forward = links.filter((link) => !back.has(link));
  const layer = new Array(n).fill(0);
  const into = Array.from({ length: n }, () => []), from = Array.from({ length: n }, () => []);
  for (const link of forward) { into[link.to].push(link); from[link.from].push(link); }
  for (const one of order) for (const link of into[one]) layer[one] = Math.max(layer[one], layer[link.from] + 1);
  // A node without inputs is placed just above the node that reads it.
  for (const one of [...order].reverse()) {
    if (!into[one].length && from[one].length) layer[one] = Math.min(...from[one].map((link) => layer[link.to])) - 1;
  }
  const layers = Array.from({ length: Math.max(0, ...layer) + 1 }, () => []);
  const cells = sizes.map(([width, height]) => ({ width, height, up: [], down: [], x: 0 }));
  for (const one of order) layers[layer[one]].push(cells[one]);
  for (const link of forward) {
    let before = cells[link.from];
    link.cells = [before];
    for (let i = layer[link.from] + 1; i <= layer[link.to]; i++) {
      const cell = i === layer[link.to] ? cells[link.to] : { width: DUMMY, height: 0, up: [], down: [], x: 0, isDummy: true };
      if (cell.isDummy) layers[i].push(cell);
      before.down.push(cell);
      cell.up.push(before);
      link.cells.push(cell);
      before = cell;
    }
  }
  arrange(layers);
  let y = 0, width = 0;
  for (const cellsHere of layers) {
    const height = Math.max(0, ...cellsHere.map((cell) => cell.height));
    for (const cell of cellsHere) {
      cell.top = y + (height - cell.height) / 2;
      cell.bottom = cell.top + cell.height;
      if (cell.isDummy) [cell.top, cell.bottom] = [y, y + height];
      width = Math.max(width, cell.x + cell.width / 2);
    }
    y += height + GAP_Y;
  }
  const least = Math.min(0, ...cells.map((cell) => cell.x - cell.width / 2));
  for (const cell of layers.flat()) cell.x -= least;
  return { cells, forward, back: [...back], width: width - least, height: Math.max(y - GAP_Y, 0) };
}

const mean = (cells) => cells.reduce((sum, cell) => sum + cell.x, 0) / cells.length;

function arrange(layers) {
  for (const cells of layers) pack(cells);
  for (let sweep = 0; sweep < 6; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const cells of isDown ? layers : [...layers].reverse()) {
      for (const cell of cells) {
        const beside = isDown ? cell.up : cell.down;
        cell.wish = beside.length ? mean(beside) : cell.x;
      }
      if (sweep < 4) cells.sort((a, b) => a.wish - b.wish);
      settle(cells);
    }
  }
}

function pack(cells) {
  const width = cells.reduce((sum, cell) => sum + cell.width + GAP_X, -GAP_X);
  let x = -width / 2;
  for (const cell of cells) { cell.x = x + cell.width / 2; x += cell.width + GAP_X; }
}

// Cells go where they wish, in their order and without overlap: groups of them move together.
function settle(cells) {
  const groups = [];
  for (const cell of cells) {
    let group = { cells: [cell], width: cell.width, wish: cell.wish - cell.width / 2, weight: 1 };
    while (groups.length) {
      const before = groups.at(-1);
      if (before.wish + before.width + GAP_X <= group.wish) break;
      groups.pop();
      const offset = before.width + GAP_X;
      const weight = before.weight + group.weight;
      group = { cells: [...before.cells, ...group.cells], width: offset + group.width, weight,
        wish: (before.wish * before.weight + (group.wish - offset) * group.weight) / weight };
    }
    groups.push(group);
  }
  for (const group of groups) {
    let x = group.wish;
    for (const cell of group.cells) { cell.x = x + cell.width / 2; x += cell.width + GAP_X; }
  }
}
