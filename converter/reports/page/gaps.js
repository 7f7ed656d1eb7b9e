// Unsupported features of the registry, those that block most artifacts first; and copies.

const FIRST = 6; // lines of gaps before "all"

function buildGaps() {
  const place = document.getElementById("gaps");
  if (!shared.gaps.length) return;
  place.hidden = false;
  place.append(el("h2", { id: "gaps-heading" }, "Not supported"), el("p", { class: "lead" }, gapSentence()));
  const most = Math.max(...shared.gaps.map(([, models]) => models));
  const lines = shared.gaps.map(([what, models, met, unblocked], i) => gapLine(i, word(what), models, met, unblocked, most));
  const head = el("tr", {}, ["", "not supported", "blocks", "occurs", "with those above, frees"].map((text, i) =>
    el("th", { scope: "col", class: ["rank", "", "", "met", ""][i] }, text)));
  place.append(el("table", { class: "gaps" }, el("thead", {}, head), folded("tbody", lines)));
}

function gapSentence() {
  const [first] = shared.gaps;
  const half = shared.gaps.findIndex(([, , , unblocked]) => unblocked * 2 >= shared.blocked) + 1;
  const blocked = plural(shared.blocked, "artifact");
  if (shared.gaps.length === 1) return `One unsupported feature keeps ${blocked} from being complete.`;
  const most = half === 1 ? "The first of them alone" : `The first ${half}`;
  return `${plural(shared.gaps.length, "unsupported feature")} keep ${blocked} from being complete. ` +
    `${most} would free ${count(shared.gaps[half - 1][3] ?? first[3])} of them.`;
}

function gapLine(i, what, models, met, unblocked, most) {
  const name = button({ class: "gap-name", onclick: () => toggle("gap", what) }, what);
  name.dataset.gap = what;
  return el("tr", {},
    el("td", { class: "rank" }, String(i + 1)),
    el("th", { scope: "row" }, name),
    el("td", { class: "models" }, bar(models / most, "gap"), count(models)),
    el("td", { class: "met" }, count(met)),
    el("td", { class: "frees" }, bar(unblocked / shared.blocked, "good"), `${count(unblocked)} of ${count(shared.blocked)}`));
}

// A table's body of which the first lines show, and a line that unfolds the rest.
function folded(tag, lines, first = FIRST) {
  const body = el(tag, {}, lines.slice(0, first));
  const rest = lines.slice(first);
  if (!rest.length) return body;
  const last = el("tr", { class: "unfold" }, el("td", { colspan: "5" }, button({ class: "quiet", onclick: () => {
    last.replaceWith(...rest);
    rest[0].querySelector("button")?.focus();
    updateGaps();
  } }, `all ${count(lines.length)}`)));
  body.append(last);
  return body;
}

function updateGaps() {
  for (const name of document.querySelectorAll(".gap-name")) {
    name.setAttribute("aria-pressed", String(state.gap === name.dataset.gap));
  }
  for (const name of document.querySelectorAll(".copies-name")) {
    name.setAttribute("aria-pressed", String(state.weights === name.dataset.weights));
  }
}

function buildCopies() {
  const place = document.getElementById("copies");
  const groups = shared.copies
    .map(([size, places]) => ({ size, all: places.map((i) => artifacts[i]) }))
    .filter((group) => group.size > 0)
    .sort((a, b) => b.size * (b.all.length - 1) - a.size * (a.all.length - 1));
  if (!groups.length) return;
  const saved = groups.reduce((sum, group) => sum + group.size * (group.all.length - 1), 0);
  place.hidden = false;
  place.append(
    el("h2", { id: "copies-heading" }, "The same weights"),
    el("p", { class: "lead" }, `${plural(groups.length, "set")} of weights ${groups.length === 1 ? "is" : "are"} there more than once, bit for bit: ${bytes(saved)} could be stored once.`),
    el("table", { class: "gaps" }, folded("tbody", groups.map(({ size, all }) => {
      const name = button({ class: "copies-name", onclick: () => toggle("weights", all[0].weights) },
        all[0].name, el("span", { class: "dim" }, ` and ${plural(all.length - 1, "copy", "copies")}`));
      name.dataset.weights = all[0].weights;
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "size" }, bytes(size)));
    }), 3)));
}
