// The tree of blocks and tensors, with their sizes.

const parents = new Map(); // block or tensor -> the block that it is in
const sizeOf = (node) => (node.members ? node.bytes : node.tied ? 0 : node.bytes);
const titleOf = (node) => node.label.replace(/(.)[/._]$/, "$1") || "model";
const SHOWN = 40; // members of a block that are shown at once

function pathOf(node) {
  const parts = [];
  for (let at = node; at; at = parents.get(at)) parts.unshift(at.label);
  return parts.join("").replace(/[/.]$/, "");
}

function adopt(block) {
  const devices = new Set();
  for (const member of block.members) {
    parents.set(member, block);
    if (member.members) adopt(member);
    for (const device of member.devices) devices.add(device);
  }
  block.devices = [...devices].sort();
}

// Where tensors were, as far as the file records it; the CPU needs no word.
const deviceTags = (node) => (node.devices.length > 3 ? [`${count(node.devices.length)} devices`] : node.devices)
  .filter((device) => !/\bcpu(:[\d*]+)?$/i.test(device)).map((device) => el("span", { class: "tag" }, device.replace(/^.*device:/, "")));

let root = null;
let focused = null;

function buildWeights(data) {
  const blocks = data.sections.map(({ group, tree }) => ({ ...tree, label: data.sections.length > 1 || !tree.label ? `${group}/` : tree.label }));
  root = blocks.length === 1 ? { ...blocks[0], label: "" } : { label: "", members: blocks, bytes: blocks.reduce((n, one) => n + one.bytes, 0) };
  if (!blocks.length) return;
  adopt(root);
  document.getElementById("weights").hidden = false;
  document.getElementById("rule").textContent =
    `Areas are bytes. ${data.sampled ? `Figures of ${plural(data.sampled, "tensor")} of more than ${count(data.limit)} elements are those of a sample: runs of 4,096 elements at equal distances. The others are read whole.` : "Histograms and figures are of all elements."}` +
    (data.unlisted ? ` The ${count(data.unlisted)} smallest tensors are in the sums, and not listed.` : "");
  focusOn(root);
  const search = document.getElementById("search");
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => showTree(search.value.trim().toLowerCase()), 120);
  });
  let width = document.getElementById("map").clientWidth;
  new ResizeObserver(() => {
    const now = document.getElementById("map").clientWidth;
    if (now !== width) treemap(focused, openNode);
    width = now;
  }).observe(document.getElementById("map"));
}

function openNode(node) {
  if (node.members) return focusOn(node);
  focusOn(parents.get(node));
  const row = document.querySelector(`#tree [data-name="${CSS.escape(node.name)}"]`);
  row?.click();
  row?.scrollIntoView({ block: "center" });
}

function focusOn(block) {
  focused = block;
  const steps = [];
  for (let at = block; at; at = parents.get(at)) steps.unshift(at);
  document.getElementById("path").replaceChildren(...steps.flatMap((step, i) => {
    const label = step === root ? "all" : titleOf(step);
    const part = step === block ? el("b", {}, label) : button({ class: "link", onclick: () => focusOn(step) }, label);
    return i ? [el("span", { class: "dim" }, " › "), part] : [part];
  }));
  treemap(block, openNode);
  showTree("");
}

function showTree(term) {
  const place = document.getElementById("tree");
  const head = el("p", { class: "row head dim", "aria-hidden": "true" }, ["name", "dtype, shape", "elements", "size", "share"].map((title, i) => el("span", { class: i > 1 && i < 4 ? "number" : "" }, title)));
  if (!term) return place.replaceChildren(head, ...rowsOf(focused.members, 0));
  const found = [];
  const look = (block) => block.members.forEach((one) => {
    if (one.members) look(one);
    else if (found.length < 5 * SHOWN && one.name.toLowerCase().includes(term)) found.push(one);
  });
  look(focused);
  place.replaceChildren(head, ...(found.length ? found.map((one) => tensorRow(one, 0, one.name)) : [el("p", { class: "nothing" }, "No tensor has this in its name.")]));
}

function rowsOf(members, depth) {
  const rows = members.slice(0, SHOWN).map((one) => (one.members ? blockRow(one, depth) : tensorRow(one, depth, one.label)));
  if (members.length > SHOWN) {
    const more = button({ class: "quiet", onclick: () => more.replaceWith(...rowsOf(members.slice(SHOWN), depth)) }, `${count(members.length - SHOWN)} more`);
    rows.push(more);
  }
  return rows;
}

const dtypesOf = (block) => Object.entries(block.dtypes).sort((a, b) => b[1] - a[1]).map(([dtype]) => dtype).join(", ");

function sizes(node) {
  return [el("span", { class: "number" }, bytes(node.tied ? 0 : node.bytes)),
    bar(sizeOf(node) / (root.bytes || 1))];
}

function indent(row, depth) {
  row.style.setProperty("--depth", depth);
  return row;
}

function blockRow(block, depth) {
  const row = indent(button({ class: "row block", role: "treeitem", "aria-expanded": "false", onclick: toggle },
    el("span", { class: "label" }, titleOf(block)),
    el("span", { class: "what dim" }, `${dtypesOf(block)} · ${plural(block.tensors, "tensor")}`, deviceTags(block)),
    el("span", { class: "number" }, count(block.elements)), sizes(block)), depth);
  const inside = el("div", { role: "group", hidden: true });
  function toggle() {
    const isOpen = row.getAttribute("aria-expanded") === "true";
    row.setAttribute("aria-expanded", String(!isOpen));
    inside.hidden = isOpen;
    if (!inside.childElementCount) {
      inside.append(...rowsOf(block.members, depth + 1));
      if (block.unlisted) inside.append(indent(el("p", { class: "row dim" }, `${plural(block.unlisted, "smaller tensor")} not listed`), depth + 1));
    }
  }
  return el("div", {}, row, inside);
}

function tensorRow(tensor, depth, label) {
  const known = tensor.statistics;
  const isBad = Boolean(known?.nan || known?.infinite);
  const row = indent(button({ class: "row leaf", role: "treeitem", "aria-expanded": "false", onclick: toggle },
    el("span", { class: "label" }, label),
    el("span", { class: "what" }, el("span", { class: "dim" }, `${tensor.dtype} `), tensor.shape.length ? tensor.shape.join("×") : "scalar",
      deviceTags(tensor), tensor.tied && el("span", { class: "tag" }, "tied"), tensor.role && el("span", { class: "tag" }, "part"),
      isBad && el("span", { class: "tag failed" }, known.nan ? "NaN" : "infinite")),
    el("span", { class: "spark" }, known && histogram(known, 96, 18)), sizes(tensor)), depth);
  row.dataset.name = tensor.name;
  const inside = el("div", { hidden: true });
  function toggle() {
    const isOpen = row.getAttribute("aria-expanded") === "true";
    row.setAttribute("aria-expanded", String(!isOpen));
    inside.hidden = isOpen;
    if (!inside.childElementCount) inside.append(indent(tensorPanel(tensor), depth));
  }
  return el("div", {}, row, inside);
}
