"use strict";
// Makes elements. Texts become text nodes, so that no name of a model is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// A number of a report; infinity is text in JSON.
function numeric(value) {
  return value === "Infinity" ? Infinity : value === "NaN" ? NaN : value;
}

function short(value) {
  value = numeric(value);
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "not a number";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e4 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

function seconds(value) {
  if (value >= 1) return `${value.toFixed(2)} s`;
  return value >= 1e-3 ? `${short(value * 1e3)} ms` : `${short(value * 1e6)} µs`;
}

function bytes(value) {
  if (value === null || value === undefined) return "unknown";
  for (const [unit, size] of [
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ]) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${value} bytes`;
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// A table in a box that scrolls by itself, so that the page never does. Cells are text or elements; `numbers`
// and `wide` are the columns of numbers, and of names that should not be broken into short lines.
function table(caption, heads, rows, options) {
  const { numbers = [], wide = [] } = options || {};
  const kind = (place) => (numbers.includes(place) ? "number" : wide.includes(place) ? "wide" : null);
  const cell = (tag, content, place) =>
    element(
      tag,
      {
        class: kind(place),
        scope: tag === "th" ? "col" : null,
        // Narrow screens show a row as a list with these names.
        "data-name": tag === "td" ? heads[place] : null,
      },
      content,
    );
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    element(
      "table",
      {},
      element("caption", { class: "hidden" }, caption),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          heads.map((head, place) => cell("th", head, place)),
        ),
      ),
      element(
        "tbody",
        {},
        rows.map((row) =>
          element(
            "tr",
            {},
            row.map((content, place) => cell("td", content, place)),
          ),
        ),
      ),
    ),
  );
}
