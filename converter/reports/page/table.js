// The table of artifacts: as many rows as are looked at, and one of them opened.

const PAGE = 100; // rows put on the page at a time
const COLUMNS = [
  ["name", "Artifact", "text"], ["format", "Format", "text"], ["made", "Written by", "text"],
  ["error", "Verified", "number"], ["bytes", "Size", "number"], ["seconds", "Time", "number"],
];
const NOT_BEGUN = new Set(["pending", "skipped"]);
const MARKS = { good: "✓", gap: "!", bad: "✕", wait: "·" };

let view = []; // the artifacts in the view, sorted
let first = 0; // which of them has the first row
let shown = 0; // how many of them have rows, from there on
const body = document.getElementById("rows");

function sorted(found) {
  const falling = state.sort.startsWith("-");
  const key = state.sort.replace(/^-/, "");
  const kind = COLUMNS.find(([column]) => column === key)?.[2] ?? "text";
  const sign = falling ? -1 : 1;
  const text = new Intl.Collator("en", { numeric: true });
  return found.sort((a, b) => {
    const [x, y] = [a[key], b[key]];
    if (kind === "text") return sign * text.compare(x, y) || a.number - b.number;
    if (x === null || y === null) return (x === null) - (y === null) || a.number - b.number;
    return sign * (x - y) || a.number - b.number;
  });
}

function updateTable() {
  const wanted = terms();
  view = artifacts.filter((artifact) => fits(artifact, wanted));
  if (state.sort !== "name") sorted(view); // by name they are already
  showFrom(0);
  document.getElementById("count").textContent = view.length === artifacts.length
    ? `all ${count(view.length)}` : `${count(view.length)} of ${count(artifacts.length)}`;
  updateHead();
  updateChips();
}

function showFrom(place) {
  body.replaceChildren();
  [first, shown] = [place, 0];
  showMore(PAGE);
}

function showMore(n) {
  const rows = view.slice(first + shown, first + shown + n).map(rowOf);
  body.append(...rows);
  shown += rows.length;
  document.getElementById("more").hidden = first + shown >= view.length;
  document.getElementById("earlier").hidden = first === 0;
  if (!view.length) body.append(el("tr", {}, el("td", { colspan: "6", class: "nothing" }, "No artifact is so.")));
}

function showEarlier() {
  const rows = view.slice(Math.max(0, first - PAGE), first).map(rowOf);
  body.prepend(...rows);
  [first, shown] = [first - rows.length, shown + rows.length];
  document.getElementById("earlier").hidden = first === 0;
}

// A cell without content is not shown where cells are not in columns.
function cell(kind, content) {
  return content ? el("td", { class: kind }, content) : el("td", { class: `${kind} absent` }, "–");
}

function rowOf(artifact) {
  const kind = kindOf(artifact.outcome);
  const open = button({ class: "open", "aria-expanded": "false", title: visible(artifact.name),
    onclick: () => go({ open: state.open === artifact.name ? "" : artifact.name }, true) }, parted(artifact.name));
  const message = artifact.message || artifact.gaps.slice(0, 3).join(" · ") + (artifact.gaps.length > 3 ? ` · and ${artifact.gaps.length - 3} more` : "");
  const row = el("tr", { class: "artifact" },
    el("th", { scope: "row" },
      el("span", { class: `mark-${kind}`, title: artifact.outcome }, MARKS[kind], el("span", { class: "unseen" }, artifact.outcome)),
      el("div", {}, open, message && el("p", { class: `note ${kind}` }, artifact.failure ? `${artifact.failure}: ${message}` : message))),
    cell("", artifact.format && el("span", { class: "clamped" }, artifact.format)),
    cell("", artifact.made && el("span", { class: "clamped" }, artifact.made)),
    cell("", verdict(artifact)),
    cell("number", artifact.bytes !== null && bytes(artifact.bytes)),
    cell("number", !NOT_BEGUN.has(artifact.outcome) && seconds(artifact.seconds)));
  row.dataset.name = artifact.name;
  return row;
}

// The folders of a name are shown small above its last part, by which people know it.
function parted(name) {
  const end = name.lastIndexOf("/") + 1;
  return [end > 0 && el("span", { class: "folder" }, name.slice(0, end)), el("span", { class: "base" }, name.slice(end))];
}

function verdict(artifact) {
  const level = artifact.verified === "none" ? null : LEVELS[artifact.verified];
  const differs = artifact.failure === "verification failed" && artifact.error !== null;
  const most = artifact.error === null ? null : el("span", { class: "dim" }, ` ${figure(artifact.error)}`);
  if (differs) return [el("span", { class: "differs" }, "differs"), most];
  return level || most ? [level, most] : null;
}

function updateHead() {
  const [key, falling] = [state.sort.replace(/^-/, ""), state.sort.startsWith("-")];
  document.getElementById("head").replaceChildren(el("tr", {}, COLUMNS.map(([column, title, kind]) =>
    el("th", { scope: "col", class: kind, "aria-sort": column !== key ? "none" : falling ? "descending" : "ascending" },
      button({ onclick: () => sortBy(column, kind) }, title, el("span", { "aria-hidden": "true" }, column !== key ? "" : falling ? " ↓" : " ↑"))))));
}

// The first click on figures puts the largest first.
function sortBy(column, kind) {
  const [once, twice] = kind === "number" ? [`-${column}`, column] : [column, `-${column}`];
  go({ sort: state.sort === once ? twice : once }, true);
  requestAnimationFrame(() => document.querySelector(`#head [aria-sort]:not([aria-sort=none]) button`)?.focus());
}

function updateChips() {
  const place = document.getElementById("chips");
  const titles = { gap: "not supported", weights: "weights", ...Object.fromEntries(FACETS.map(([key, title]) => [key, title.toLowerCase()])) };
  const chips = Object.keys(VALUES).filter((key) => state[key]).map((key) =>
    button({ class: "chip", onclick: () => go({ [key]: "" }) }, el("span", { class: "dim" }, `${titles[key]} `), state[key], el("span", { "aria-hidden": "true" }, " ×"), el("span", { class: "unseen" }, "remove this filter")));
  if (chips.length > 1) chips.push(button({ class: "quiet", onclick: () => go({ ...DEFAULTS, sort: state.sort, theme: state.theme }) }, "clear all"));
  place.replaceChildren(...chips);
}

async function updateOpen(scrolls) {
  body.querySelectorAll("tr.opened").forEach((row) => row.remove());
  body.querySelectorAll("[aria-expanded=true]").forEach((one) => one.setAttribute("aria-expanded", "false"));
  const artifact = byName.get(state.open);
  const place = artifact ? view.indexOf(artifact) : -1;
  if (place < 0) return;
  if (place < first || place >= first + shown) showFrom(Math.max(0, place - 10));
  const row = body.querySelectorAll("tr.artifact")[place - first];
  row.querySelector(".open").setAttribute("aria-expanded", "true");
  const cell = el("td", { colspan: "6" }, "…");
  row.after(el("tr", { class: "opened" }, cell));
  try {
    cell.replaceChildren(panel(artifact, await detailsOf(artifact)));
  } catch (error) {
    cell.replaceChildren(el("p", { class: "problem" }, `The details cannot be unpacked here: ${error}`));
  }
  if (scrolls) row.scrollIntoView({ block: "start" });
}
