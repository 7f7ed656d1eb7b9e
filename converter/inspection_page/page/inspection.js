// The page of one artifact.

const page = parsed(document.querySelector("script.inspection"));

function buildVerdict(graphs) {
  const known = page.facts;
  const { weights } = known;
  const nodes = graphs.reduce((n, one) => n + one.nodes, 0);
  const tiles = [
    [count(weights.parameters), "parameters"], [bytes(weights.bytes), "of weights"], [count(weights.tensors), "tensors"],
    [Object.keys(weights.dtypes).filter((key) => key !== "…").join(", "), "dtypes"],
    [nodes ? count(nodes) : null, graphs.length > 1 ? `nodes of ${graphs.length} graphs` : "graph nodes"],
    [page.verification ? LEVELS[page.verification.reached] ?? "not verified" : null, "verified"],
  ].filter(([value]) => value);
  const path = known.source.replace(/[/\\]+$/, "");
  const end = Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1;
  document.getElementById("verdict").append(
    el("p", { class: "registry dim" }, path.slice(0, end)),
    el("h1", {}, path.slice(end) || known.source),
    el("p", {}, [known.format, known.variant].filter(Boolean).join(" · ")),
    el("dl", { class: "tiles" }, tiles.map(([value, title]) => el("div", {}, el("dt", {}, title), el("dd", {}, value)))));
  document.getElementById("foot").append(el("p", {},
    `convert ${page.tool}, ${new Date(page.written * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC. This page is one file: it loads nothing and sends nothing.`));
}

// Counts by name are said as a list.
const readable = (found) => Object.entries(found ?? {}).map(([key, value]) => [key,
  value && typeof value === "object" && !Array.isArray(value) && Object.values(value).every((n) => typeof n === "number")
    ? Object.entries(value).sort((a, b) => b[1] - a[1]).map(([name, n]) => `${name} ${count(n)}`).join(", ")
    : Array.isArray(value) ? value.map(plain).join(", ") : plain(value)]);
const specs = (list) => list.filter((one) => !one.more).map(([name, type]) => [name, type]);
const declared = (spec) => [spec.name, `${spec.dtype} ${spec.shape ? spec.shape.join("×") || "scalar" : "of any rank"}`];
const totals = (sums) => `${plural(sums.tensors, "tensor")}, ${bytes(sums.bytes)}`;

function buildFacts(graphs) {
  const known = page.facts;
  const sections = [
    facts("File", [["source", known.source], ["format", known.format], ["variant", known.variant], ["recognised by", known.evidence],
      ["written by", known.framework], ["files", known.files.count ? `${count(known.files.count)}, ${bytes(known.files.bytes)}` : ""]]),
    facts("Recorded", [...pairs(known.recorded), ...onDevices(known.devices), ...pairs(known.distribution)]),
    ...graphs.map((graph) => facts(`Inputs and outputs${graph.signature ? ` of ${graph.signature}` : ""}`, [...specs(graph.inputs).map(([n, t]) => [`→ ${n}`, t]), ...specs(graph.outputs).map(([n, t]) => [`${n} →`, t])])),
    ...(graphs.length ? [] : known.signatures.filter((one) => !one.more).map((one) => facts(`Inputs and outputs of ${one.name}`,
      [...one.inputs.filter((x) => !x.more).map(declared).map(([n, t]) => [`→ ${n}`, t]), ...one.outputs.filter((x) => !x.more).map(declared).map(([n, t]) => [`${n} →`, t])]))),
    facts("Weights", [["model", totals(known.weights)], ...Object.entries(known.leftovers).map(([group, sums]) => [group, totals(sums)])]),
    known.topology && facts(`Computation: ${known.topology.kind}`, readable(known.topology.summary)),
    facts("Encodings", Object.entries(known.encodings).map(([name, one]) => [name, one.kind ? `${one.kind} ${one.dtype} ${(one.shape ?? []).join("×")}` : plain(one)])),
    facts("Stored with the model", readable(known.user)), facts("Other files", Object.entries(known.assets).map(([name, n]) => [name, typeof n === "number" ? bytes(n) : n])),
    listed("Findings", known.findings, (one) => [el("b", {}, one.kind), ` ${one.subject}`, dim(`in ${one.where}`)]),
    listed("Normalised", known.normalisations, (one) => [el("b", {}, one.name), ` ×${count(one.count)}`, dim(one.detail)]),
    listed("A conversion leaves out", known.left_out, (one) => [el("b", {}, one.name), dim(one.reason)]),
    facts("Objects", pairs(known.opaque)),
  ];
  document.getElementById("recorded").append(...sections.filter(Boolean));
}

function buildVerification() {
  const known = page.verification;
  if (!known) return;
  const named = known.graphs ? Object.entries(known.graphs) : [["", known.graph]];
  document.getElementById("verification").hidden = false;
  document.getElementById("comparisons").append(...[
    facts("As the bundle's manifest records it", [["level", LEVELS[known.reached] ?? known.reached],
      ["weights", known.weights ? `${plural(known.weights.tensors, "tensor")}, ${bytes(known.weights.bytes)}: ${known.weights.status}` : ""]]),
    ...named.filter(([, report]) => report?.status).map(([signature, report]) => comparison(signature, report))].filter(Boolean));
}

function showGraphs(graphs) {
  const lead = document.getElementById("graph-lead");
  if (!graphs.length) {
    lead.textContent = `Not drawn: ${visible(page.reason)}`;
    return;
  }
  const place = document.getElementById("graph");
  const show = (graph) => {
    lead.textContent = `Lowered to ONNX: ${plural(graph.nodes, "node")}, opset ${graph.opset}; a single .onnx file has fewer, since what is computed of weights alone is folded. Edges carry shapes, and dtypes other than float32.` +
      (graph.merged ? ` Its deepest blocks are drawn as one node each.` : "");
    place.replaceChildren();
    buildGraph(graph, place);
  };
  if (graphs.length > 1) {
    const choice = el("select", { onchange: () => show(graphs[choice.value]), "aria-label": "Signature" },
      graphs.map((graph, i) => el("option", { value: i }, graph.signature || `graph ${i + 1}`)));
    place.before(choice);
  }
  show(graphs[0]);
}

async function begin() {
  showTheme("");
  document.getElementById("theme").addEventListener("click", () => showTheme(nextTheme()));
  const packed = (name) => Promise.all([...document.querySelectorAll(`script.packed-${name}`)].map((node) => unpack(node.textContent)));
  const [graphs, [weights]] = await Promise.all([packed("graph"), packed("weights")]);
  buildVerdict(graphs);
  buildWeights(weights);
  showGraphs(graphs);
  buildVerification();
  buildFacts(graphs);
  document.getElementById("contents").append(...[...document.querySelectorAll(".part:not([hidden])")].map((part) =>
    button({ class: "link", onclick: () => part.scrollIntoView() }, part.querySelector("h2").textContent)));
  addEventListener("keydown", (event) => {
    const search = document.getElementById("search");
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
    if (event.key === "Escape" && document.activeElement === search) search.blur();
  });
  document.documentElement.dataset.built = Math.round(performance.now());
}

begin();
