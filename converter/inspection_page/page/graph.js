// The graph: blocks that open in their place, nodes, and the dtypes and shapes between them.

const FAMILIES = [
  ["io", /^(input|output)$/],
  ["product", /^(Conv|Gemm|MatMul|Einsum|ConvTranspose|QLinear|ConvInteger|MatMulInteger|FusedConv)/],
  ["state", /^(LSTM|GRU|RNN|Scan|Loop|If)$/],
  ["norm", /Normalization|^(Softmax|LogSoftmax|Dropout)$/],
  ["active", /^(Relu|Sigmoid|Tanh|Gelu|Elu|Selu|LeakyRelu|PRelu|Clip|HardS|Softplus|Softsign|Erf|Mish|Swish|Celu)/],
  ["pool", /Pool|^Reduce/],
  ["move", /^(Transpose|Reshape|Slice|Concat|Split|Squeeze|Unsqueeze|Gather|Expand|Pad|Flatten|Tile|Cast|Shape|Identity|Constant|Resize)/],
];
const familyOf = (op) => FAMILIES.find(([, pattern]) => pattern.test(op))?.[0] ?? "other";
const HEADER = 26, INSET = 16, MANY = 700; // opened members that are still drawn at once

function buildGraph(data, place) {
  const blocks = [];
  const grow = ([label, kind, members], parent) => {
    const block = { label, kind, parent, number: blocks.length, members: [], links: new Map(), nodes: 0, isOpen: false };
    blocks.push(block);
    block.members = members.map((one) => {
      const member = Array.isArray(one) ? grow(one, block) : { ...data.items[one], item: one, parent: block, nodes: data.items[one].count ?? 1 };
      block.nodes += member.nodes;
      // A block of one node is that node, under the block's name.
      if (member.members?.length === 1 && !member.members[0].members) {
        return Object.assign(member.members[0], { parent: block, layer: member.label, kind: member.kind });
      }
      return member;
    });
    block.members.forEach((member) => { if (!member.members) leaves[member.item] = member; });
    block.members.forEach((member, i) => { member.place = i; });
    block.first = Math.min(...block.members.map(firstOf));
    return block;
  };
  const firstOf = (member) => member.first ?? (member.computed || member.op === "input" ? member.item : Infinity);
  const leaves = [];
  const top = grow(data.tree, null);
  top.isOpen = true;
  const ancestors = (node) => { const all = []; for (let at = node; at; at = at.parent) all.unshift(at); return all; };
  const lines = leaves.map(ancestors);
  for (const [a, b, value] of data.edges) {
    const [x, y] = [lines[a], lines[b]];
    let i = 0;
    while (x[i + 1] && x[i + 1] === y[i + 1]) i += 1;
    // Constants that blocks share are no flow between them.
    if (!data.values[value][1] && (x[i + 2] || y[i + 2])) continue;
    const [from, to] = [x[i + 1].place, y[i + 1].place];
    const key = `${from} ${to}`;
    const link = x[i].links.get(key) ?? { from, to, values: new Set() };
    link.values.add(value);
    x[i].links.set(key, link);
    // Ports, where a value crosses the border of a block.
    for (const one of y.slice(i + 2)) one.isFed = true;
    for (const one of x.slice(i + 2)) one.isRead = true;
  }
  if (top.members.length === 1 && top.members[0].members) top.members[0].isOpen = true;
  openSmall(top);

  const side = el("aside", { class: "node-panel", "aria-live": "polite" }, el("p", { class: "dim" }, "Open a block with a click, or Enter. A node shows its values here."));
  const typeOf = (link) => {
    const types = new Set([...link.values].map((value) => data.values[value][0]));
    return link.values.size > 1 ? `${link.values.size} values${types.size === 1 ? ` ${[...types][0]}` : ""}` : [...types][0];
  };
  blocks.forEach((block) => block.links.forEach((link) => { link.text = shortType(typeOf(link)); link.wide = widthOf(link.text, TINY); }));
  const canvas = el("div", { class: "canvas", tabindex: "0", "aria-label": "Graph" });
  let zoom = 1, drawn = null;
  const scale = () => { const s = drawn; s.drawing.setAttribute("width", s.width * zoom); s.drawing.setAttribute("height", s.height * zoom); };
  const draw = (kept) => {
    drawn = drawGraph(top, (member, isKey) => choose(member, isKey));
    canvas.replaceChildren(drawn.drawing);
    scale();
    if (kept) {
      const now = drawn.drawing.querySelector(`[data-key="${kept.key}"]`);
      if (now) {
        const at = now.getBoundingClientRect();
        canvas.scrollTop += at.top - kept.top;
        canvas.scrollLeft += at.left + at.width / 2 - kept.middle;
        now.focus({ preventScroll: true });
      }
    } else canvas.scrollLeft = Math.max(0, (canvas.scrollWidth - canvas.clientWidth) / 2);
  };
  const choose = (member) => {
    if (!member.members) {
      canvas.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
      canvas.querySelector(`[data-key="${keyOf(member)}"]`)?.classList.add("chosen");
      return side.replaceChildren(nodePanel(member));
    }
    const at = canvas.querySelector(`[data-key="${keyOf(member)}"]`).getBoundingClientRect();
    member.isOpen = !member.isOpen;
    draw({ key: keyOf(member), top: at.top, middle: at.left + at.width / 2 });
  };
  const setAll = (isOpen) => {
    blocks.slice(1).forEach((one) => { one.isOpen = false; });
    if (isOpen) {
      let total = top.members.length;
      for (const one of blocks.slice(1)) {
        if (!one.parent.isOpen || total + one.members.length > MANY) continue;
        one.isOpen = true;
        total += one.members.length;
      }
    } else openSmall(top);
    draw();
  };
  const zoomTo = (value) => { zoom = Math.min(2, Math.max(0.15, value)); scale(); };
  place.append(
    el("div", { class: "graph-bar" },
      el("ul", { class: "legend" }, FAMILIES.map(([name]) => el("li", {}, el("i", { class: `swatch op-${name}` }), NAMES[name])), el("li", {}, el("i", { class: "swatch op-other" }), NAMES.other)),
      el("div", { class: "tools" },
        button({ class: "quiet expand", onclick: () => setAll(true) }, "open all"), button({ class: "quiet collapse", onclick: () => setAll(false) }, "close all"),
        button({ class: "quiet", "aria-label": "smaller", onclick: () => zoomTo(zoom / 1.25) }, "−"), button({ class: "quiet", "aria-label": "larger", onclick: () => zoomTo(zoom * 1.25) }, "+"),
        button({ class: "quiet", onclick: () => zoomTo((canvas.clientWidth - 8) / drawn.width) }, "fit width"))),
    el("div", { class: "graph-box" }, canvas, side));
  draw();
  zoomTo(Math.min(1, Math.max(0.6, (canvas.clientWidth - 8) / drawn.width)));
  canvas.scrollLeft = Math.max(0, (canvas.scrollWidth - canvas.clientWidth) / 2);
}

const NAMES = { io: "inputs, outputs", product: "products", state: "recurrence, control", norm: "normalization", active: "activations",
  pool: "pooling, reductions", move: "layout", other: "others" };

// A block that is nearly all of its parent is opened: what remains to be seen is inside.
function openSmall(top) {
  let block = top;
  for (;;) {
    const inner = block.members.filter((one) => one.members);
    if (inner.length !== 1 || inner[0].nodes < 0.6 * top.nodes) return;
    block = inner[0];
    block.isOpen = true;
  }
}

const keyOf = (member) => (member.members ? `b${member.number}` : `n${member.item}`);

function opsOf(block, counts = new Map()) {
  for (const member of block.members) {
    if (member.members) opsOf(member, counts);
    else counts.set(member.op, (counts.get(member.op) ?? 0) + member.nodes);
  }
  return counts;
}

const measureText = document.createElement("canvas").getContext("2d");

function widthOf(text, font) {
  measureText.font = font;
  return measureText.measureText(text).width;
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const LABEL = "600 12px system-ui, sans-serif", SMALL = "11px system-ui, sans-serif", TINY = "10px system-ui, sans-serif";

function textsOf(member) {
  if (!member.members) {
    const name = visible(member.op === "input" || member.op === "output" ? member.name : member.name?.split("/").at(-1) ?? "");
    const isPlain = name === member.op || name.replace(/_\d+$/, "") === member.op;
    const about = member.layer ? member.layer + (member.kind && member.kind !== member.op ? ` · ${member.kind}` : "") : member.count ? plural(member.count, "node") : member.op === "input" || member.op === "output" ? name
      : member.weights ? clip(member.weights.map(([weight]) => weight.split(/[/.]/).at(-1)).join(", "), 30) : isPlain ? "" : name;
    return [clip(member.op, 30), clip(visible(about), 32)];
  }
  const ops = [...opsOf(member)].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([op, n]) => (n > 1 ? `${n} ${op}` : op)).join(", ");
  const label = clip(visible(member.label.replace(/_$/, "")), 34) + (member.kind ? ` · ${visible(member.kind)}` : "");
  return [label, clip(`${plural(member.nodes, "node")}: ${ops}`, 44)];
}

function place(block) {
  for (const member of block.members) {
    member.texts ??= textsOf(member);
    if (member.isOpen) place(member);
    else member.size = [Math.max(70, widthOf(member.texts[0], LABEL), widthOf(member.texts[1], SMALL)) + 24, member.texts[1] ? 42 : 28];
  }
  const spans = block.members.map((member) => [...member.size]);
  for (const link of block.links.values()) {
    for (const i of [link.from, link.to]) spans[i][0] = Math.max(spans[i][0], link.wide + 4);
  }
  const found = layOut(spans, [...block.links.values()], block.members.map((member) => member.first ?? member.item));
  block.found = found;
  let [left, right] = [0, found.width];
  for (const link of found.forward) {
    if (!link.text) continue;
    link.label = labelPlace(link);
    left = Math.min(left, link.label.x - (link.label.anchor === "middle" ? link.wide / 2 : 0));
    right = Math.max(right, link.label.x + (link.label.anchor === "middle" ? link.wide / 2 : link.wide));
  }
  const header = block.parent ? HEADER : 4;
  const head = block.parent ? widthOf(block.texts[0], LABEL) + 50 : 0;
  block.shift = [INSET - left + Math.max(0, (head - right + left) / 2), header + INSET];
  block.size = [Math.max(right - left, head) + 2 * INSET, found.height + header + 2 * INSET];
}

// A label is placed where its edge is clear of others: near the end that has no other edges.
function labelPlace(link) {
  const { cells } = link;
  const [isSplit, isJoin] = [cells[0].down.length > 1, cells.at(-1).up.length > 1];
  const middle = Math.floor((cells.length - 1) / 2);
  const [i, part] = isSplit && isJoin ? [middle, 0.5] : isJoin ? [0, 0.3] : isSplit ? [cells.length - 2, 0.7] : [middle, 0.5];
  const [a, b] = [cells[i], cells[i + 1]];
  const apart = isSplit || isJoin;
  return { x: a.x + (b.x - a.x) * part + (apart ? 0 : 6), y: a.bottom + (b.top - a.bottom) * part + 3, anchor: apart ? "middle" : "start" };
}

function drawGraph(top, choose) {
  place(top);
  const drawing = svg("svg", { class: "graph", viewBox: `0 0 ${top.size[0]} ${top.size[1]}` },
    svg("defs", {}, svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0.5L8 4L0 7.5z" }))),
    drawMembers(top, choose));
  return { drawing, width: top.size[0], height: top.size[1] };
}

function drawMembers(block, choose) {
  const { cells, forward, back } = block.found;
  const parts = [];
  for (const link of forward) {
    parts.push(svg("path", { class: "edge", d: curve(link.cells), "marker-end": "url(#head)" }));
  }
  for (const link of back) {
    const [a, b] = [cells[link.from], cells[link.to]];
    const x = Math.max(a.x + a.width / 2, b.x + b.width / 2) + 14;
    parts.push(svg("path", { class: "edge back", "marker-end": "url(#head)", d: `M${a.x + a.width / 2} ${a.bottom - 8}C${x} ${a.bottom} ${x} ${b.top} ${b.x + b.width / 2} ${b.top + 8}` }));
  }
  block.members.forEach((member, i) => parts.push(drawMember(member, cells[i], choose)));
  for (const link of forward) {
    if (link.text) parts.push(svg("text", { class: "shape", x: link.label.x, y: link.label.y, "text-anchor": link.label.anchor }, link.text));
  }
  block.members.forEach((member, i) => {
    if (member.isFed && block.parent) parts.push(svg("circle", { class: "port", cx: cells[i].x, cy: cells[i].top, r: 3 }));
    if (member.isRead && block.parent) parts.push(svg("circle", { class: "port", cx: cells[i].x, cy: cells[i].bottom, r: 3 }));
  });
  return svg("g", { transform: `translate(${block.shift[0]} ${block.shift[1]})` }, parts);
}

// float32 is what is expected; other dtypes are said.
const shortType = (text) => clip(visible(text).replace(/float32 /, ""), 32);

function curve(cells) {
  let d = `M${cells[0].x} ${cells[0].bottom}`;
  for (let i = 1; i < cells.length; i++) {
    const [a, b] = [cells[i - 1], cells[i]];
    const middle = (a.bottom + b.top) / 2;
    d += `C${a.x} ${middle} ${b.x} ${middle} ${b.x} ${b.top}`;
    if (b.isDummy && b.bottom > b.top) d += `L${b.x} ${b.bottom}`;
  }
  return d;
}

function drawMember(member, cell, choose) {
  const isBlock = Boolean(member.members);
  const kind = isBlock ? (member.isOpen ? "block opened" : "block") : `node op-${familyOf(member.op)}`;
  const act = () => choose(member);
  const [width, height] = member.size;
  const texts = member.isOpen
    ? [svg("text", { class: "name", x: 12, y: 18 }, `− ${member.texts[0]}`), drawMembers(member, choose)]
    : [svg("text", { class: "name", x: width / 2, y: member.texts[1] ? 18 : 18.5, "text-anchor": "middle" }, (isBlock ? "+ " : "") + member.texts[0]),
      member.texts[1] && svg("text", { class: "about", x: width / 2, y: 33, "text-anchor": "middle" }, member.texts[1])];
  const box = svg("rect", { width, height: member.isOpen ? HEADER : height, rx: 7, class: "handle" });
  const shape = svg("g", { class: "handles", tabindex: "0", role: "button", "data-key": keyOf(member), "aria-label": `${member.texts.join(" ")}`,
    ...(isBlock ? { "aria-expanded": String(member.isOpen) } : {}), onclick: act,
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } } },
  box, texts[0], !member.isOpen && texts[1], svg("title", {}, isBlock ? member.label : member.name ?? member.op));
  return svg("g", { class: kind, transform: `translate(${cell.x - width / 2} ${cell.top})` },
    member.isOpen && svg("rect", { class: "frame", width, height, rx: 9 }), shape, member.isOpen && texts[1]);
}

function nodePanel(node) {
  const values = (title, list) => list?.length ? el("section", {}, el("h4", {}, title),
    el("ul", { class: "values" }, list.map(([name, type]) => el("li", {}, el("code", {}, name), el("span", { class: "dim" }, ` ${type}`))))) : null;
  return el("div", {}, el("h3", {}, node.op), el("p", { class: "full-name" }, node.name ?? ""),
    values("Inputs", node.in), values("Weights", node.weights),
    facts("Attributes", Object.entries(node.attributes ?? {})), values("Outputs", node.out),
    node.count && el("p", { class: "dim" }, `${count(node.count)} nodes of a deep block, drawn as one.`));
}
