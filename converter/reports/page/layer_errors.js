// Errors of layers in the order of the model: a plot on a logarithmic scale, and a table.

const LAYER_MARKS = [["difference", "dot", "largest difference"], ["source", "of-source", "source against float64"],
  ["graph", "of-graph", "converted against float64"], ["noise", "noise", "noise of rounding"], ["bound", "bound", "allowed"]];
const SHOWN_LAYERS = 200;
const known = (value) => value !== null && value !== undefined;

function layerErrors(list) {
  const layers = (list ?? []).filter((one) => !one.more);
  if (!layers.length) return null;
  const rest = (list ?? []).find((one) => one.more)?.more;
  const wrong = layers.filter((one) => !one.passed).length;
  const readout = el("p", { class: "readout dim" }, "Point at a layer for its figures.");
  return el("figure", { class: "layer-errors" },
    el("figcaption", {}, el("b", {}, "Error by layer"), dim(`${plural(layers.length, "layer")}, as fractions of the scale of each layer's output`),
      wrong > 0 && el("span", { class: "tag failed" }, plural(wrong, "differs", "differ")), rest && dim(`and ${count(rest)} more in the manifest`)),
    errorLegend(layers),
    el("div", { class: "wide-plot" }, errorPlot(layers, readout)),
    readout,
    el("details", {}, el("summary", {}, "All layers"), layerTable(layers)));
}

const errorLegend = (layers) => el("ul", { class: "legend error-legend" }, LAYER_MARKS.filter(([key]) => key === "difference" || layers.some((one) => known(valueOf(one, key)))).map(([, kind, title]) =>
  el("li", {}, svg("svg", { class: "error-plot", width: 16, height: 12, "aria-hidden": "true" }, mark(kind, 8, 6, 7)), title)));

const valueOf = (layer, key) => ({ difference: layer.error, source: layer.source_error, graph: layer.converted_error, noise: layer.noise, bound: layer.bound })[key];

// What stands for a value of a kind, around a point; lines are as wide as two halves.
function mark(kind, x, y, half) {
  if (kind === "noise" || kind === "bound") return svg("line", { class: kind, x1: x - half, x2: x + half, y1: y, y2: y });
  if (kind === "of-source") return svg("path", { class: kind, d: `M${x} ${y - 3.6}l3.4 6h-6.8z` });
  if (kind === "of-graph") return svg("path", { class: kind, d: `M${x} ${y + 3.6}l3.4 -6h-6.8z` });
  return svg("circle", { class: kind, cx: x, cy: y, r: kind === "dot wrong" ? 4.5 : 3.2 });
}

function errorPlot(layers, readout) {
  const [height, left, top, low] = [250, 58, 10, 26];
  const width = Math.min(Math.max(900, left + layers.length * 7), 12000);
  const values = layers.flatMap((one) => LAYER_MARKS.map(([key]) => valueOf(one, key))).filter((value) => value > 0);
  const bottom = Math.floor(Math.log10(Math.min(1e-8, ...values)));
  const ceiling = Math.max(bottom + 2, Math.ceil(Math.log10(Math.max(1e-5, ...values))));
  const zero = height - low; // equal outputs are on the base line
  const room = zero - 18 - top;
  // A value that is not finite is at the top.
  const y = (value) => value === null ? top : value > 0 ? top + (room * (ceiling - Math.log10(value))) / (ceiling - bottom) : zero;
  const x = (i) => left + ((width - left - 12) * (i + 0.5)) / layers.length;
  const parts = [];
  for (let power = bottom; power <= ceiling; power++) {
    const at = y(10 ** power);
    parts.push(svg("line", { class: "grid", x1: left, x2: width, y1: at, y2: at }));
    if ((power - bottom) % Math.ceil((ceiling - bottom) / 8) === 0) parts.push(svg("text", { x: left - 8, y: at + 3.5, "text-anchor": "end" }, `1e${power}`));
  }
  parts.push(svg("line", { class: "base", x1: left, x2: width, y1: zero, y2: zero }), svg("text", { x: left - 8, y: zero + 3.5, "text-anchor": "end" }, "equal"));
  const half = Math.max(1.5, (x(1) - x(0)) / 2);
  const aside = Math.min(half / 3, 6); // the errors of both models are on either side of the stem
  for (const [key, kind, move] of [["bound", "bound", 0], ["noise", "noise", 0], ["source", "of-source", -aside], ["graph", "of-graph", aside]])
    layers.forEach((one, i) => { if (valueOf(one, key) > 0) parts.push(mark(kind, x(i) + move, y(valueOf(one, key)), half)); });
  layers.forEach((one, i) => {
    const dot = mark(one.passed ? "dot" : "dot wrong", x(i), y(one.error), half);
    dot.append(svg("title", {}, visible(said(one))));
    parts.push(svg("line", { class: one.passed ? "stem" : "stem wrong", x1: x(i), x2: x(i), y1: zero, y2: y(one.error) }), dot);
  });
  parts.push(svg("text", { x: left, y: height - 6, "text-anchor": "start" }, clipped(layers[0].layer)));
  if (layers.length > 1) parts.push(svg("text", { x: width - 2, y: height - 6, "text-anchor": "end" }, clipped(layers.at(-1).layer)));
  const cursor = svg("line", { class: "cursor", y1: top, y2: zero, visibility: "hidden" });
  const worst = Math.max(...layers.map((one) => one.error ?? Infinity));
  const plot = svg("svg", { class: "error-plot", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Errors of ${layers.length} layers, the largest ${worst === Infinity ? "not finite" : figure(worst)}` }, parts, cursor);
  if (width > 900) plot.style.width = `max(100%, ${width}px)`;
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const place = ((event.clientX - box.left) * width) / box.width;
    const i = Math.min(Math.max(Math.floor(((place - left) * layers.length) / (width - left - 12)), 0), layers.length - 1);
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(i));
    cursor.setAttribute("visibility", "visible");
    readout.textContent = visible(said(layers[i]));
  });
  return plot;
}

const typeOf = (layer) => (layer.dtype ? `${layer.dtype} ${layer.shape.join("×") || "scalar"}` : "");
const said = (one) => [`${one.layer} (${one.class_name})`, one.verdict ?? "", `largest difference ${figure(one.error)}`,
  ...LAYER_MARKS.slice(1).filter(([key]) => known(valueOf(one, key))).map(([key, , title]) => `${title} ${figure(valueOf(one, key))}`)].filter(Boolean).join(" · ");
const clipped = (name) => (name.length > 40 ? `${name.slice(0, 39)}…` : name);

// In the order of the model; a column's title sorts by its figures, the largest first.
function layerTable(layers) {
  const columns = LAYER_MARKS.filter(([key]) => key === "difference" || layers.some((one) => known(valueOf(one, key))));
  const rows = el("tbody");
  const more = button({ class: "quiet", onclick: () => fill(Infinity) }, `Show all ${count(layers.length)}`);
  let sorted = null;
  const size = (one) => valueOf(one, sorted) === null && sorted === "difference" ? Infinity : valueOf(one, sorted) ?? -1;
  function fill(most) {
    const ordered = sorted ? [...layers].sort((a, b) => size(b) - size(a)) : layers;
    rows.replaceChildren(...ordered.slice(0, most).map((one) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: `mark-${one.passed ? "good" : "bad"}` }, one.passed ? "✓" : "✕"), el("b", {}, one.layer), dim(one.class_name)),
      el("td", { class: "dim" }, typeOf(one)), el("td", {}, one.verdict ?? ""),
      columns.map(([key]) => el("td", { class: "number" }, key === "difference" ? figure(one.error) : known(valueOf(one, key)) ? figure(valueOf(one, key)) : "–")))));
    more.hidden = layers.length <= most;
  }
  const sort = (key) => {
    sorted = sorted === key ? null : key;
    for (const cell of head.querySelectorAll("th[data-key]")) cell.setAttribute("aria-sort", cell.dataset.key === sorted ? "descending" : "none");
    fill(SHOWN_LAYERS);
  };
  const head = el("thead", {}, el("tr", {}, ["layer", "output", "verdict"].map((title) => el("th", { scope: "col" }, title)),
    columns.map(([key, , title]) => el("th", { scope: "col", class: "number", "data-key": key, "aria-sort": "none" }, button({ onclick: () => sort(key) }, title)))));
  fill(SHOWN_LAYERS);
  return el("div", { class: "layer-table" }, el("table", {}, head, rows), more);
}
