// An output's differences: how many of its elements differ by how much, and how much they may.
//
// The axis is the difference in parts of the output's scale, a power of ten for each bar; left of
// it is the bar of equal elements. Bars grow with the logarithm of their count.

const LABELS = ["equal", "<1e-9", ...[9, 8, 7, 6, 5, 4, 3, 2, 1].map((n) => `1e-${n}`), "≥1"];
const [BAR, GAP, HIGH, LOW, LEFT] = [34, 6, 86, 22, 14];

// Position of a difference on the axis; equal elements have a bar of their own before it.
function along(part) {
  if (part <= 0) return BAR + GAP / 2 + LEFT;
  const decade = Math.min(Math.max(Math.log10(part) + 9, -1), 1);
  const place = part < 1e-9 ? decade : Math.min(Math.log10(part) + 9, 10);
  return LEFT + (place + 2) * (BAR + GAP) - GAP / 2;
}

function plot(measure) {
  const counts = measure.decades ?? [];
  const total = counts.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  const width = LEFT * 2 + LABELS.length * (BAR + GAP);
  const height = HIGH + LOW + 26;
  const base = HIGH + 18;
  const allowed = measure.scale > 0 ? measure.atol / measure.scale + measure.rtol : measure.atol;
  const limit = along(allowed);
  const parts = [svg("rect", { class: "beyond", x: limit, y: 14, width: width - limit, height: base - 14 })];
  counts.forEach((n, i) => {
    if (!n) return;
    const tall = Math.max(3, (HIGH * Math.log1p(n)) / Math.log1p(total));
    const x = LEFT + i * (BAR + GAP);
    const wrong = i > 0 && x >= limit - GAP;
    const kind = i === 0 ? "equal" : wrong ? "wrong" : "near";
    parts.push(
      svg("rect", { class: kind, x, y: base - tall, width: BAR, height: tall, rx: 2 },
        svg("title", {}, `${count(n)} of ${count(total)} elements`)),
      svg("text", { class: "value", x: x + BAR / 2, y: base - tall - 4 }, share(n, total)));
  });
  LABELS.forEach((label, i) => parts.push(
    svg("text", { class: "axis", x: LEFT + i * (BAR + GAP) + BAR / 2, y: base + 14 }, label)));
  parts.push(
    svg("line", { class: "base", x1: LEFT, x2: width - LEFT, y1: base, y2: base }),
    svg("line", { class: "limit", x1: limit, x2: limit, y1: 8, y2: base }),
    svg("text", { class: "limit", x: limit + 4, y: 13 }, allowed > 0 ? `allowed ${figure(allowed)}` : "must be equal"));
  const said = `${measure.name}: largest difference ${figure(measure.max_rel)} of its scale, ` +
    `${figure(allowed)} allowed; ${share(counts[0], total)} of ${count(total)} elements are equal`;
  return svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": visible(said) }, parts);
}

// Root mean squares on one logarithmic scale: who is nearer the exact result, and what is allowed.
function errorsToExact(measure) {
  const rows = [["source against float64", measure.source_error, "near"], ["converted against float64", measure.converted_error, "near"],
    ["noise of rounding", measure.noise, "gap"], ["allowed", measure.noise && measure.atol, "bad"]].filter(([, value]) => value > 0 && measure.scale > 0);
  if (!rows.length) return null;
  const powers = rows.map(([, value]) => Math.log10(value / measure.scale));
  const [least, most] = [Math.floor(Math.min(...powers)) - 0.5, Math.max(...powers)];
  return el("dl", { class: "exact" }, rows.map(([title, value, kind], i) => [el("dt", {}, title), el("dd", {}, bar((powers[i] - least) / (most - least), kind)), el("dd", { class: "number" }, figure(value / measure.scale))]));
}

function measured(measure) {
  const facts = [
    ["max abs", figure(measure.max_abs)], ["max rel", figure(measure.max_rel)],
    ["cosine", measure.cosine === null ? "–" : String(Number(measure.cosine.toFixed(9)))],
    ["scale", figure(measure.scale)], ["elements", count(measure.elements)],
    ["verdict", measure.verdict], ["atol", figure(measure.atol)], ["rtol", figure(measure.rtol)],
  ].filter(([, value]) => value);
  if (!measure.passed) facts.push(["would pass with atol", figure(measure.smallest_atol)]);
  const shape = `${measure.dtype} [${measure.shape.join(", ")}]`;
  return el("figure", { class: measure.passed ? "measure" : "measure failed" },
    el("figcaption", {},
      el("span", { class: `mark-${measure.passed ? "good" : "bad"}` }, measure.passed ? "✓" : "✕"),
      el("b", {}, measure.name), el("span", { class: "dim" }, ` ${shape}`),
      measure.says_little && el("span", { class: "tag" }, "says little: layers were compared, too")),
    measure.problems.map((problem) => el("p", { class: "problem" }, problem)),
    plot(measure),
    errorsToExact(measure),
    el("dl", { class: "figures" }, facts.map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value)))));
}
