"use strict";
// Putting things on the page: always as text, never as markup.

// What text could do to the page besides being read: control characters, and those that turn its
// direction, are shown by their numbers.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) =>
  String(text).replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function make(namespace, tag, attributes, children) {
  const element = namespace
    ? document.createElementNS(namespace, tag)
    : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
  return element;
}

const el = (tag, attributes = {}, ...children) => make(null, tag, attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  make("http://www.w3.org/2000/svg", tag, attributes, children);
const button = (attributes, ...children) => el("button", { type: "button", ...attributes }, ...children);

// A bar of a share; widths are set through the object model, which the page's policy allows.
function bar(share, kind = "") {
  const filled = el("i");
  filled.style.width = `${Math.max(share > 0 ? 1.5 : 0, 100 * share)}%`;
  return el("span", { class: `meter ${kind}`, "aria-hidden": "true" }, filled);
}

const count = (n) => n.toLocaleString("en");
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) [n, i] = [n / 1024, i + 1];
  return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

function seconds(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1) return `${Math.round(n * 1000)} ms`;
  if (n < 100) return `${n.toFixed(1)} s`;
  const minutes = Math.round(n / 60);
  return minutes < 100 ? `${minutes} min` : `${(n / 3600).toFixed(1)} h`;
}

function figure(n) {
  if (n === null || n === undefined) return "not finite";
  if (n === 0) return "0";
  return Math.abs(n) >= 1e-3 && Math.abs(n) < 1e5 ? String(Number(n.toPrecision(4))) : n.toExponential(1);
}

const share = (part, whole) => {
  const percent = (100 * part) / whole;
  if (part && percent < 0.1) return "<0.1%";
  if (part < whole && percent > 99.9) return ">99.9%";
  return `${Number(percent.toFixed(1))}%`;
};
