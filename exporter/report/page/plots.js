"use strict";
// Plots: bars of stages, errors by depth, and bars by opset. Each is drawn for the width that it has.

function resizing(draw) {
  const box = element("div", { class: "plot" });
  let width = 0;
  const redraw = () => {
    const now = Math.round(box.getBoundingClientRect().width) || 600;
    if (now !== width) {
      width = now;
      box.replaceChildren(draw(width));
    }
  };
  new ResizeObserver(redraw).observe(box);
  return { box, redraw };
}

// One bar for each row: label, value, text.
function bars(title, rows, kind) {
  const most = Math.max(...rows.map((row) => row.value), 1e-12);
  return resizing((width) => {
    const step = 30,
      label = Math.min(130, width * 0.3),
      room = width - label - 84;
    return drawn(
      "svg",
      {
        width,
        height: rows.length * step + 4,
        role: "img",
        "aria-label": `${title}: ${rows.map((row) => `${row.label} ${row.text}`).join(", ")}`,
      },
      rows.map((row, place) => {
        const y = place * step + 4,
          length = Math.max(2, (room * row.value) / most);
        return [
          drawn("text", { x: label - 10, y: y + 15, class: "end" }, clipped(row.label, Math.floor(label / 7))),
          drawn("rect", { x: label, y, width: room, height: 20, rx: 3, class: "track" }),
          drawn("rect", { x: label, y, width: length, height: 20, rx: 3, class: kind }),
          drawn("text", { x: label + room + 8, y: y + 15, class: "value" }, row.text),
        ];
      }),
    );
  });
}

const EXACT = -17; // The power of ten at which equal results are drawn.

function power(value) {
  value = numeric(value);
  return value > 0 ? (Number.isFinite(value) ? Math.max(EXACT, Math.log10(value)) : Infinity) : EXACT;
}

// Errors of intermediate results by their place in the graph. `lines` are tolerances: name and value.
function scatter(title, points, lines, axis, onselect) {
  const finite = points.map((point) => point.y).filter((y) => Number.isFinite(y) && y > EXACT);
  const levels = [...finite, ...lines.map((line) => power(line.value))];
  const low = Math.floor(Math.min(-1, ...levels)) - 1,
    high = Math.ceil(Math.max(...levels, low + 3)) + 0.4;
  const last = Math.max(1, ...points.map((point) => point.x));
  return resizing((width) => {
    const height = Math.max(240, Math.min(360, width * 0.42)),
      left = 58,
      right = 14,
      top = 12,
      bottom = 44;
    const x = (value) => left + ((width - left - right) * value) / last;
    const y = (value) => top + ((height - top - bottom) * (high - Math.min(high, Math.max(low, value)))) / (high - low);
    const ticks = [];
    const step = Math.ceil((high - low) / 8);
    for (let at = Math.ceil(high - 1); at > low; at -= step) ticks.push(at);
    const worst = new Map();
    const buckets = Math.floor((width - left - right) / 6);
    for (const point of points) {
      const bucket = Math.round((point.x / last) * buckets);
      if (point.y > (worst.get(bucket) ?? -Infinity)) worst.set(bucket, point.y);
    }
    const trend = [...worst]
      .sort((a, b) => a[0] - b[0])
      .map(
        ([bucket, value], place) =>
          `${place ? "L" : "M"}${x((bucket / buckets) * last).toFixed(1)} ${y(value).toFixed(1)}`,
      )
      .join("");
    const show = (point) => ({
      class: `point ${errorClass(point.share)}`,
      cx: x(point.x).toFixed(1),
      cy: y(point.y).toFixed(1),
      r: point.share > 1 ? 5 : 3.5,
      onclick: () => onselect(point),
    });
    return drawn(
      "svg",
      { width, height, role: "img", "aria-label": title },
      ticks.map((at) => [
        drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(at), y2: y(at) }),
        drawn("text", { class: "end", x: left - 8, y: y(at) + 4 }, at === 0 ? "1" : `1e${at}`),
      ]),
      drawn("text", { class: "end", x: left - 8, y: y(low) + 4 }, "equal"),
      drawn("line", { class: "axis", x1: left, x2: width - right, y1: y(low), y2: y(low) }),
      drawn("path", { class: "trend", d: trend }),
      lines.map((line) => [
        drawn("line", {
          class: "tolerance",
          x1: left,
          x2: width - right,
          y1: y(power(line.value)),
          y2: y(power(line.value)),
        }),
        drawn("text", { class: "tolerance-name", x: left + 6, y: y(power(line.value)) - 6 }, line.name),
      ]),
      points.map((point) => drawn("circle", show(point), drawn("title", {}, point.text))),
      drawn("text", { class: "name", x: left, y: height - 12 }, "first operator"),
      drawn("text", { class: "name end", x: width - right, y: height - 12 }, "last operator"),
      drawn(
        "text",
        { class: "name", x: (left + width - right) / 2, y: height - 12, "text-anchor": "middle" },
        width > 480 ? "depth, in order of execution" : "",
      ),
      drawn(
        "text",
        {
          class: "name",
          transform: `translate(12 ${(height - bottom) / 2 + top}) rotate(-90)`,
          "text-anchor": "middle",
        },
        axis,
      ),
    );
  });
}

// Bars by opset, stacked: `groups` has a class for each part.
function columns(title, rows, groups, format) {
  const totals = rows.map((row) => row.parts.reduce((sum, part) => sum + (part || 0), 0));
  const most = Math.max(...totals, 1e-12);
  const named = (total) => (total ? format(total) : "none");
  return resizing((width) => {
    const height = 190,
      bottom = 28,
      top = 24,
      room = width / Math.max(1, rows.length),
      thick = Math.min(46, room * 0.68);
    const scale = (height - top - bottom) / most;
    return drawn(
      "svg",
      {
        width,
        height,
        role: "img",
        "aria-label": `${title}: ${rows.map((row, place) => `opset ${row.label} ${named(totals[place])}`).join(", ")}`,
      },
      drawn("line", { class: "axis", x1: 0, x2: width, y1: height - bottom, y2: height - bottom }),
      rows.map((row, place) => {
        const x = place * room + (room - thick) / 2;
        let y = height - bottom;
        const parts = row.parts.map((part, index) => {
          const size = (part || 0) * scale;
          y -= size;
          return size ? drawn("rect", { class: groups[index], x, y, width: thick, height: size }) : null;
        });
        return [
          parts,
          drawn(
            "text",
            {
              class: "value",
              x: x + thick / 2,
              y: totals[place] ? y - 6 : height - bottom - 8,
              "text-anchor": "middle",
            },
            totals[place] ? format(totals[place]) : "–",
          ),
          drawn(
            "text",
            { class: row.asked ? "asked" : "name", x: x + thick / 2, y: height - 9, "text-anchor": "middle" },
            row.label,
          ),
        ];
      }),
    );
  });
}
