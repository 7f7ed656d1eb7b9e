// Facts of artifacts, and evidence of their comparison.

const LEVELS = { none: "not verified", smoke: "ran alone", weights: "weights", cpu: "outputs, CPU", device: "outputs, device" };

function facts(title, pairs) {
  const kept = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  if (!kept.length) return null;
  return el("section", {}, el("h4", {}, title),
    el("dl", { class: "facts" }, kept.map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])));
}

function listed(title, entries, line) {
  if (!entries?.length) return null;
  return el("section", {}, el("h4", {}, title, el("span", { class: "number" }, count(entries.length))),
    el("ul", { class: "lines" }, entries.map((entry) =>
      el("li", {}, entry.more ? `and ${count(entry.more)} more, in the report as JSON lines` : line(entry)))));
}

const dim = (text) => (text ? el("span", { class: "dim" }, ` ${text}`) : null);
const plain = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
const pairs = (found) => Object.entries(found ?? {}).map(([key, value]) => [key, plain(value)]);
const onDevices = (found) => Object.entries(found ?? {}).map(([device, n]) => [`on ${device}`, typeof n === "number" ? plural(n, "part") : n]);
const ran = (runtime) => (runtime ? `${runtime.name} ${runtime.version} on ${runtime.device}` : "");

function comparison(signature, report) {
  const between = report.converted && report.source ? `${ran(report.converted)} beside ${ran(report.source)}` : "";
  const first = report.first_difference;
  return el("section", { class: "wide comparison" },
    el("h4", {}, ["Outputs", signature && !signature.startsWith("in ") && "of", signature].filter(Boolean).join(" "), el("span", { class: `tag ${report.status.replace(" ", "-")}` }, report.status)),
    el("p", { class: "dim" }, [between, report.seed === null || report.seed === undefined ? "" : `seed ${report.seed}`,
      report.cases?.length ? plural(report.cases.length, "set") + " of inputs" : "", report.seconds ? seconds(report.seconds) : ""].filter(Boolean).join(" · ")),
    report.reason && el("p", { class: "reason" }, report.reason),
    (report.notes ?? []).filter((note) => !note.more).map((note) => el("p", { class: "dim" }, note)),
    report.lacking && el("p", {}, "It takes: ", el("code", {}, report.lacking)),
    first && el("p", { class: "problem" }, `First difference: layer ${first.layer} (${first.class_name})`,
      first.last_equal ? `; ${first.last_equal} before it still agrees` : ""),
    el("div", { class: "measures" }, report.outputs.filter((one) => !one.more).map(measured)),
    layerErrors(report.layer_errors),
    coverage(report.coverage),
    report.device && onDevice(report.device));
}

// What the inputs reach inside the graph: both sides of activations, bounds, parts of tables.
function coverage(found) {
  if (!found?.ranges) return null;
  const missing = (found.missing ?? []).filter((one) => typeof one === "string");
  return el("div", { class: "coverage" }, el("h5", {}, "Coverage"),
    el("p", {}, `The inputs reach ${count(found.reached)} of ${plural(found.ranges, "range")} of values that decide what the graph computes.`),
    bar(found.reached / found.ranges, found.reached < found.ranges ? "gap" : "good"),
    missing.length > 0 && el("p", { class: "dim" }, "Not reached, and so not verified: ", missing.join("; "), found.ranges - found.reached > missing.length && ` and ${count(found.ranges - found.reached - missing.length)} more`));
}

function onDevice(device) {
  return el("div", {}, el("h5", {}, `On ${device.device}`, el("span", { class: `tag ${device.status.replace(" ", "-")}` }, device.status)),
    device.reason && el("p", { class: "reason" }, device.reason),
    Object.entries(device.pairs ?? {}).filter(([, all]) => Array.isArray(all)).map(([pair, all]) =>
      [el("h6", {}, pair), el("div", { class: "measures" }, all.filter((one) => !one.more).map(measured))]));
}
