// What is shown, all of it in the address: any view is a link, and the browser's Back goes back.

const FACETS = [
  ["outcome", "Outcome", (a) => [a.outcome]],
  ["failure", "Failed because", (a) => (a.failure ? [a.failure] : [])],
  ["verified", "Verified", (a) => [LEVELS[a.verified] ?? a.verified]],
  ["format", "Format", (a) => [a.format || "unknown"]],
  ["made", "Written by", (a) => [a.made || "not recorded"]],
  ["device", "Device recorded", (a) => (a.devices.length ? a.devices : ["none"])],
];
const OTHERS = {
  gap: (a) => a.gaps,
  weights: (a) => [a.weights],
};
const VALUES = { ...OTHERS, ...Object.fromEntries(FACETS.map(([key, , values]) => [key, values])) };
const DEFAULTS = { q: "", sort: "name", open: "", theme: "" };
for (const key of Object.keys(VALUES)) DEFAULTS[key] = "";

let state = { ...DEFAULTS };

function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1));
  state = { ...DEFAULTS };
  for (const key of Object.keys(DEFAULTS)) if (found.get(key)) state[key] = found.get(key);
}

// Go to another view; `quietly` leaves no step for Back, as while one types.
function go(changes, quietly = false) {
  const wanted = { ...state, ...changes };
  const address = new URLSearchParams();
  for (const [key, value] of Object.entries(wanted)) {
    if (value !== DEFAULTS[key]) address.set(key, value);
  }
  const hash = `#${address}`;
  if (quietly) location.replace(hash);
  else location.hash = hash;
}

const toggle = (key, value) => go({ [key]: state[key] === value ? "" : value, open: "" });

function searched(artifact) {
  artifact.text ??= [
    artifact.name, artifact.format, artifact.made, artifact.outcome, artifact.failure,
    artifact.message, ...artifact.devices, ...artifact.gaps,
  ].join("\n").toLowerCase();
  return artifact.text;
}

// Whether an artifact is in the view, one filter left out of account.
function fits(artifact, terms, except) {
  for (const [key, values] of Object.entries(VALUES)) {
    if (key !== except && state[key] && !values(artifact).includes(state[key])) return false;
  }
  return terms.every((term) => searched(artifact).includes(term));
}

const terms = () => state.q.toLowerCase().split(/\s+/).filter(Boolean);
