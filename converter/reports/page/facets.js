// Totals that are filters: how many artifacts of each kind are in the view, and a click for each.

const SHOWN = 7; // values of a facet before "more"
const counters = []; // of each button: what it counts, and where the number is

function buildFacets() {
  const place = document.getElementById("facets");
  for (const [key, title, values] of FACETS) {
    const totals = new Map();
    for (const artifact of artifacts) {
      for (const value of values(artifact)) totals.set(value, (totals.get(value) ?? 0) + 1);
    }
    if (!totals.size) continue;
    const sorted = [...totals].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
    const items = sorted.map(([value, total]) => facetButton(key, value, total));
    const list = el("ul", {}, items.map((item, i) => el("li", { hidden: i >= SHOWN }, item)));
    const rest = items.length - SHOWN;
    const all = rest > 0 && button({ class: "quiet", onclick: () => {
      list.querySelectorAll("li").forEach((item) => (item.hidden = false));
      all.remove();
      items[SHOWN].focus();
    } }, `${count(rest)} more`);
    place.append(el("section", { class: "facet" }, el("h3", {}, title), list, all));
  }
}

function facetButton(key, value, total) {
  const number = el("span", { class: "number" });
  const meter = bar(0, key === "outcome" ? kindOf(value) : "");
  const label = el("span", { class: "label" }, value);
  const made = button({ class: "value", title: visible(value), onclick: () => toggle(key, value) }, label, number, meter);
  counters.push({ key, value, total, made, number, meter });
  return made;
}

function updateFacets() {
  const wanted = terms();
  for (const [key, , values] of FACETS) {
    const found = new Map();
    for (const artifact of artifacts) {
      if (!fits(artifact, wanted, key)) continue;
      for (const value of values(artifact)) found.set(value, (found.get(value) ?? 0) + 1);
    }
    for (const one of counters.filter((counter) => counter.key === key)) {
      const n = found.get(one.value) ?? 0;
      one.number.textContent = count(n);
      one.meter.firstChild.style.width = `${(100 * n) / artifacts.length}%`;
      one.made.setAttribute("aria-pressed", String(state[key] === one.value));
      one.made.classList.toggle("empty", n === 0);
    }
  }
}

// Of an outcome: its colour.
const kindOf = (outcome) =>
  ({ converted: "good", "partial": "gap", pending: "wait", skipped: "wait" })[outcome] ?? "bad";
