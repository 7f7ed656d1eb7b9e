// The page of a verification.

const page = parsed(document.querySelector("script.verification"));
const nameOf = (path) => path.replace(/[/\\]+$/, "").split(/[/\\]/).pop() || path;

function answer(graphs) {
  const different = page.weights?.different.length + page.weights?.unlisted || 0;
  const failed = graphs.filter(({ report }) => report.status === "failed");
  if (failed.length) return ["bad", `It is not the same model: ${failed[0].report.reason}`];
  if (different) return ["bad", `${plural(different, "tensor")} of the source ${different === 1 ? "is" : "are"} changed or missing.`];
  const idle = graphs.filter(({ report }) => report.status !== "passed");
  const weights = page.weights?.equal ? `${plural(page.weights.equal, "tensor")} ${page.weights.equal === 1 ? "is" : "are"} equal bit for bit` : "";
  if (idle.length) return ["gap", [weights, `the graph was not compared: ${idle[0].report.reason}`].filter(Boolean).join("; ")];
  if (graphs.length) return ["good", `Both compute the same${weights ? `, and ${weights}` : ""}.`];
  return weights ? ["good", `${weights}. The converted artifact has no graph to run.`] : ["gap", "Nothing was compared."];
}

function buildVerdict(graphs) {
  const [kind, text] = answer(graphs);
  const reports = graphs.map(({ report }) => report);
  const outputs = reports.flatMap((report) => report.outputs);
  const layers = reports.flatMap((report) => report.layer_errors.filter((one) => !one.more));
  const same = (list) => `${count(list.filter((one) => one.passed).length)} of ${count(list.length)}`;
  const worst = outputs.map((one) => one.max_rel ?? Infinity);
  const ranges = reports.map((report) => report.coverage).filter((one) => one?.ranges);
  const sum = (key) => ranges.reduce((n, one) => n + one[key], 0);
  const tiles = [
    [LEVELS[page.level] ?? page.level, page.required ? `verified (required: ${LEVELS[page.required] ?? page.required})` : "verified"],
    [page.weights && count(page.weights.equal), "weights equal"],
    [outputs.length ? same(outputs) : null, "outputs same"],
    [layers.length ? same(layers) : null, "layers same"],
    [worst.length ? figure(Math.max(...worst) === Infinity ? null : Math.max(...worst)) : null, "largest difference, of scale"],
    [ranges.length ? `${count(sum("reached"))} of ${count(sum("ranges"))}` : null, "ranges reached"],
  ].filter(([value]) => value !== null && value !== undefined);
  document.getElementById("verdict").append(
    el("p", { class: "registry dim" }, `compared with ${page.source}`),
    el("h1", {}, nameOf(page.converted)),
    el("p", { class: `answer ${kind}` }, el("span", { class: `mark-${kind}` }, { good: "✓", gap: "–", bad: "✕" }[kind]), text),
    el("dl", { class: "tiles" }, tiles.map(([value, title]) => el("div", {}, el("dt", {}, title), el("dd", {}, value)))));
  document.getElementById("foot").append(el("p", {},
    `convert ${page.tool}, ${new Date(page.written * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC. This page is one file: it loads nothing and sends nothing.`));
}

function buildLayers(graphs) {
  const shown = graphs.map(({ name, report }) => [name, layerErrors(report.layer_errors)]).filter(([, plot]) => plot);
  if (!shown.length) return;
  document.getElementById("layers").hidden = false;
  document.getElementById("layer-plots").append(...shown.map(([name, plot]) =>
    el("section", { class: "wide" }, graphs.length > 1 && el("h4", {}, name), plot)),
  el("div", { class: "wide terms" },
    el("p", {}, "Against float64: root mean square of the difference to the converted graph evaluated in float64. Where both are small, it says which model is nearer the exact result; where the graph itself is wrong, the source is far from it."),
    el("p", {}, "Noise: what rounding changes when nothing that matters does, such as the order of sums, the number of threads, and the last bit of weights. Allowed: root mean square of a difference that rounding explains. Where outputs agree, layers may differ by more than outputs: the noise of so many values is measured in few runs.")));
}

function buildOutputs(graphs) {
  if (!graphs.length) return;
  document.getElementById("outputs").hidden = false;
  document.getElementById("comparisons").append(...graphs.map(({ name, report }) => comparison(graphs.length > 1 ? name : "", { ...report, layer_errors: [] })));
}

function buildWeights() {
  const place = document.getElementById("tensors");
  const found = page.weights;
  if (!found) return place.append(el("p", { class: "wide dim" }, "Not compared: the converted artifact keeps none as the source has them."));
  place.append(el("p", { class: "wide" }, `${plural(found.equal, "tensor")} equal, bit for bit; ${count(found.different.length + found.unlisted)} different.`));
  if (found.different.length) place.append(el("section", { class: "wide fault" }, el("h4", {}, "Different"),
    el("ul", { class: "lines" }, found.different.map((name) => el("li", {}, name)), found.unlisted > 0 && el("li", {}, `and ${count(found.unlisted)} more`))));
}

const runtime = (one) => one && [["runtime", `${one.name} ${one.version}`], ["device", one.device], ...pairs(one.versions)];
const bounds = (found) => Object.entries(found).map(([name, value]) => `${name ? `${name}: ` : ""}${value}`).join(", ");

function buildFacts(graphs) {
  const { options } = page;
  const [first] = graphs;
  const inputs = graphs.flatMap(({ name, report }) => report.cases.map((one) => [`${graphs.length > 1 ? `${name}: ` : ""}${one.name}`,
    Object.entries(one.inputs).map(([input, { dtype, shape }]) => `${input} ${dtype} ${shape.join("×") || "scalar"}`).join(", ")]));
  document.getElementById("recorded").append(...[
    facts("Artifacts", [["source", page.source], ["converted", page.converted]]),
    facts("Options", [["seed", options.seed], ["inputs", options.inputs], ["device", options.device], ["atol", bounds(options.atol)], ["rtol", bounds(options.rtol)]]),
    first?.report.source && facts("Source ran in", runtime(first.report.source)),
    first?.report.converted && facts("Converted ran in", runtime(first.report.converted)),
    facts("Inputs", inputs),
    listed("Refused by the source's framework", graphs.flatMap(({ report }) => report.skipped), (text) => text),
  ].filter(Boolean));
}

async function begin() {
  showTheme("");
  document.getElementById("theme").addEventListener("click", () => showTheme(nextTheme()));
  const graphs = await Promise.all([...document.querySelectorAll("script.packed-graph")].map((node) => unpack(node.textContent)));
  buildVerdict(graphs);
  buildLayers(graphs);
  buildOutputs(graphs);
  buildWeights();
  buildFacts(graphs);
  document.getElementById("contents").append(...[...document.querySelectorAll(".part:not([hidden])")].map((part) =>
    button({ class: "link", onclick: () => part.scrollIntoView() }, part.querySelector("h2").textContent)));
  document.documentElement.dataset.built = Math.round(performance.now());
}

begin();
