// The page: built once, and brought up to date whenever the address changes.

function buildVerdict() {
  const { summary } = shared;
  const options = summary.options ?? {};
  const { total } = shared;
  const outcomes = new Map();
  for (const { outcome } of artifacts) outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  const order = ["converted", "partial", "pending"];
  const rank = (outcome) => (order.indexOf(outcome) + 1 || 2.5);
  const parts = [...outcomes].sort((a, b) => rank(a[0]) - rank(b[0]) || b[1] - a[1]);
  const stack = el("div", { class: "stack", "aria-hidden": "true" }, parts.map(([outcome, n]) => {
    const part = el("i", { class: kindOf(outcome) });
    part.style.flexGrow = n;
    return part;
  }));
  const legend = el("ul", { class: "legend" }, parts.map(([outcome, n]) => el("li", {},
    button({ onclick: () => toggle("outcome", outcome) }, el("span", { class: `mark-${kindOf(outcome)}` }, MARKS[kindOf(outcome)]), el("b", {}, count(n)), ` ${outcome}`))));
  const tiles = [
    [bytes(shared.bytes), "of artifacts"], [count(shared.equal), "with weights equal, bit for bit"],
    [count(shared.compared), "run beside the original"], [seconds(shared.seconds), "of work"],
  ];
  const facts = [
    options.to && `to ${options.to}`, options.device && `for ${options.device}`, options.verify && `verify ${options.verify}`,
    summary.seconds ? `took ${seconds(summary.seconds)}` : null,
    new Date(shared.written * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC",
  ].filter(Boolean);
  const place = document.getElementById("verdict");
  place.append(...[
    el("p", { class: "registry" }, shared.title, options.destination && [el("span", { class: "dim" }, " → "), options.destination]),
    el("h1", {}, shared.converted === total ? `All ${count(total)} converted` : [count(shared.converted), el("span", { class: "dim" }, ` of ${count(total)} `), "converted"]),
    summary.ended && summary.ended !== "finished" && el("p", { class: "ended" }, ended(summary.ended)),
    stack, legend,
    el("dl", { class: "tiles" }, tiles.map(([value, title]) => el("div", {}, el("dt", {}, title), el("dd", {}, value)))),
    el("p", { class: "dim summary" }, facts.join(" · "))].filter(Boolean));
  const skipped = Object.entries(shared.skipped);
  document.getElementById("foot").append(
    skipped.length ? el("p", {}, `Not taken for artifacts: ${skipped.map(([reason, n]) => `${count(n)} × ${reason}`).join(", ")}.`) : "",
    el("p", {}, `convert ${shared.tool}. This page is one file: it loads nothing and sends nothing.`));
}

const ended = (how) => ({ interrupted: "Interrupted: what was not begun is pending; run it again to go on.",
  "dry run": "A dry run: nothing was converted." })[how] ?? `Stopped: ${how}`;

let last = "";

function update() {
  readAddress();
  showTheme(state.theme);
  const search = document.getElementById("search");
  if (search.value !== state.q && document.activeElement !== search) search.value = state.q;
  const key = JSON.stringify({ ...state, open: "", theme: "" });
  const isNew = key !== last;
  const isFirst = last === "";
  if (isNew) {
    last = key;
    updateTable();
    updateFacets();
    updateGaps();
  }
  return updateOpen(isFirst).then(() => { document.documentElement.dataset.ready = location.hash || "#"; });
}

function begin() {
  buildVerdict();
  buildFacets();
  buildGaps();
  buildCopies();
  document.getElementById("theme").addEventListener("click", () => go({ theme: nextTheme() }, true));
  const search = document.getElementById("search");
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go({ q: search.value, open: "" }, true), 120);
  });
  document.getElementById("skip").addEventListener("click", () => document.getElementById("artifacts-heading").focus());
  document.querySelector("#more button").addEventListener("click", () => showMore(PAGE));
  document.querySelector("#earlier button").addEventListener("click", showEarlier);
  new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && showMore(PAGE), { rootMargin: "600px" })
    .observe(document.getElementById("more"));
  addEventListener("keydown", (event) => {
    const isTyping = ["INPUT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (event.key === "/" && !isTyping) { event.preventDefault(); search.focus(); search.select(); }
    if (event.key === "Escape") { if (isTyping) search.blur(); else if (state.open) go({ open: "" }, true); }
  });
  addEventListener("hashchange", update);
  addEventListener("beforeprint", () => showMore(2000 - shown));
  if (matchMedia("(max-width: 60rem)").matches) document.getElementById("filters").open = false;
  return update();
}

begin().then(() => { document.documentElement.dataset.built = Math.round(performance.now()); });
