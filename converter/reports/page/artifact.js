// All that is known of one artifact.

function timings(steps, total) {
  const timed = (steps ?? []).filter((step) => step.seconds !== null);
  return el("section", { class: "wide" }, el("h4", {}, "What was done", el("span", { class: "number" }, seconds(total))),
    el("ol", { class: "steps" }, (steps ?? []).map((step) =>
      el("li", {}, el("b", {}, step.name), el("span", {}, step.text),
        timed.includes(step) ? bar(Math.min(1, step.seconds / (total || 1))) : el("span"),
        el("span", { class: "number" }, step.seconds === null ? "" : seconds(step.seconds))))));
}

function panel(artifact, known) {
  const graphs = Object.entries(known.verification?.graphs ?? {});
  const weights = known.verification?.weights;
  return el("div", { class: "panel" },
    known.error && el("section", { class: "wide fault" },
      el("h4", {}, known.exit_code ? `Exit ${known.exit_code}: ${artifact.failure}` : known.status,
        el("span", { class: "tag failed" }, known.error.type)),
      el("pre", {}, known.error.message)),
    listed("Not supported", known.gaps, (gap) => [button({ class: "link", onclick: () => toggle("gap", gap.what) }, gap.what), dim(gap.count > 1 ? `×${count(gap.count)}` : "")]),
    facts("Source", [["path", known.source], ["output", known.output], ["size", bytes(artifact.bytes)],
      ["variant", known.variant], ["recognised by", known.evidence],
      ["weights", known.tensors ? `${plural(known.tensors, "tensor")}, ${bytes(known.weight_bytes)}` : ""],
      ["digest", known.source_digest], ["weights digest", known.weights_digest]]),
    facts("Recorded", [...pairs(known.recorded), ...onDevices(known.devices), ...pairs(known.distribution)]),
    facts("Verified", [["level", LEVELS[artifact.verified]],
      ["weights", weights ? `${plural(weights.tensors, "tensor")}, ${bytes(weights.bytes)}, equal bit for bit` : ""]]),
    facts("Graph", (known.graphs ?? []).filter((graph) => !graph.more).map((graph) =>
      [graph.signature || "main", `${plural(graph.nodes, "node")}, opset ${graph.opset}${graph.exporter ? `, by ${graph.exporter}` : ""}`])),
    listed("Normalised", known.normalisations, (one) => [el("b", {}, one.name), ` ×${count(one.count)}`, dim(one.detail)]),
    listed("Warnings", known.warnings, (text) => text),
    listed("Findings", known.findings, (one) => [el("b", {}, one.kind), ` ${one.subject}`, dim(`in ${one.where}`)]),
    listed("Left out", known.left_out, (one) => [el("b", {}, one.name), dim(one.reason)]),
    graphs.map(([signature, report]) => comparison(signature, report)),
    timings(known.steps, artifact.seconds),
    el("p", { class: "wide dim" }, [known.host && `on ${known.host}`, known.started && new Date(known.started * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC",
      known.attempts > 1 && `${known.attempts} attempts`].filter(Boolean).join(" · ")));
}
