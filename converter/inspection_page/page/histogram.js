// Histograms and figures of a tensor's elements.

// A small histogram; heights are square roots of counts, so that small bands can be seen.
function histogram(statistics, width, height, labelled = false) {
  const bands = statistics.histogram;
  if (!bands.length) return null;
  const most = Math.sqrt(Math.max(...bands));
  if (bands.length === 1) return svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `All are ${figure(statistics.minimum)}` },
    svg("rect", { x: width / 2 - 2, y: 0, width: 4, height }));
  const step = width / bands.length;
  const bars = bands.map((n, i) => {
    if (!n) return null;
    const tall = Math.max(1, (height * Math.sqrt(n)) / most);
    return svg("rect", { x: i * step, y: height - tall, width: Math.max(step - (step > 4 ? 1 : 0.25), 0.5), height: tall },
      labelled && svg("title", {}, `${count(n)} elements from ${figure(edge(statistics, i))} to ${figure(edge(statistics, i + 1))}`));
  });
  const { minimum: low, maximum: high } = statistics;
  const zero = low < 0 && high > 0 ? (width * -low) / (high - low) : null;
  return svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `Histogram from ${figure(low)} to ${figure(high)}` },
  bars, zero !== null && svg("line", { x1: zero, x2: zero, y1: 0, y2: height }));
}

const edge = (statistics, i) =>
  statistics.minimum + ((statistics.maximum - statistics.minimum) * i) / statistics.histogram.length;

function tensorPanel(tensor) {
  const known = tensor.statistics;
  const of = known?.absolute ? "absolute value" : "";
  const figures = known ? [
    [`smallest ${of}`, known.minimum], [`largest ${of}`, known.maximum], ["mean", known.mean], ["deviation", known.deviation],
  ].map(([key, value]) => [key, value === null ? "" : figure(value)]) : [];
  const shown = [
    ["dtype", tensor.dtype], ["shape", tensor.shape.length ? tensor.shape.join(" × ") : "scalar"],
    ["elements", count(tensor.elements)], ["size", bytes(tensor.bytes)], ...figures,
    ["zeros", known?.elements ? `${share(known.zeros, known.elements)} (${count(known.zeros)})` : ""],
    ["NaN", known?.nan ? count(known.nan) : ""], ["infinite", known?.infinite ? count(known.infinite) : ""],
    ["sample", known?.sampled ? `${count(known.elements)} elements` : ""],
    ["device", tensor.devices.join(", ")], ["tied to", tensor.tied], ["part", tensor.role], ["recorded", tensor.notes],
  ].filter(([, value]) => value);
  return el("div", { class: "tensor-panel" },
    el("p", { class: "full-name" }, tensor.name),
    known?.histogram.length ? el("figure", {}, histogram(known, 480, 96, true),
      el("figcaption", {}, el("span", {}, figure(known.minimum)), el("span", { class: "dim" }, "heights are square roots of counts"), el("span", {}, figure(known.maximum)))) : null,
    el("dl", { class: "figures" }, shown.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))));
}
