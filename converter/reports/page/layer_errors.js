// Errors of layers in the order of the model, on a logarithmic scale, and the noise of each.

function layerErrors(list) {
  const layers = (list ?? []).filter((one) => !one.more);
  if (!layers.length) return null;
  const rest = (list ?? []).find((one) => one.more)?.more;
  const wrong = layers.filter((one) => !one.passed).length;
  return el("figure", { class: "layer-errors" },
    el("figcaption", {}, el("b", {}, "Error by layer"), el("span", { class: "dim" }, ` ${plural(layers.length, "layer")}, largest difference of each as a fraction of its output's scale; line: noise of rounding`),
      wrong > 0 && el("span", { class: "tag failed" }, plural(wrong, "differs", "differ")), rest && el("span", { class: "dim" }, ` and ${count(rest)} more in the manifest`)),
    errorPlot(layers),
    el("details", {}, el("summary", {}, "All layers"), el("ol", { class: "layer-list" }, layers.map((one) => el("li", {},
      el("span", { class: `mark-${one.passed ? "good" : "bad"}` }, one.passed ? "✓" : "✕"), el("b", {}, one.layer), dim(one.class_name),
      el("span", { class: "number" }, one.error === null ? "not finite" : figure(one.error)), el("span", { class: "number dim" }, one.noise === null ? "" : `noise ${figure(one.noise)}`))))));
}

function errorPlot(layers) {
  const [width, height, left, top, low] = [900, 230, 58, 10, 26];
  const values = layers.flatMap((one) => [one.error, one.noise]).filter((value) => value > 0);
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
  layers.forEach((one, i) => {
    if (one.noise > 0) parts.push(svg("line", { class: "noise", x1: x(i) - half, x2: x(i) + half, y1: y(one.noise), y2: y(one.noise) }));
  });
  layers.forEach((one, i) => parts.push(
    svg("line", { class: one.passed ? "stem" : "stem wrong", x1: x(i), x2: x(i), y1: zero, y2: y(one.error) }),
    svg("circle", { class: one.passed ? "dot" : "dot wrong", cx: x(i), cy: y(one.error), r: one.passed ? 3.2 : 4.5 },
      svg("title", {}, `${one.layer} (${one.class_name}): ${one.error === null ? "not finite" : figure(one.error)}${one.noise === null ? "" : `, noise ${figure(one.noise)}`}`))));
  parts.push(svg("text", { x: left, y: height - 6, "text-anchor": "start" }, clipped(layers[0].layer)), svg("text", { x: width - 2, y: height - 6, "text-anchor": "end" }, clipped(layers.at(-1).layer)));
  return svg("svg", { class: "error-plot", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Errors of ${layers.length} layers, the largest ${figure(Math.max(...layers.map((one) => one.error ?? Infinity)))}` }, parts);
}

const clipped = (name) => (name.length > 40 ? `${name.slice(0, 39)}…` : name);
