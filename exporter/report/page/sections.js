"use strict";
// The sections with pictures: the graphs, parity, and the opsets.

const COMPARED_FILE = "Each point is a value that has the same name in both graphs, on random inputs.";
const COMPARED_CAPTURE =
  "Each point is the result of one operator. For the comparison every result is an output of the model, so " +
  "operators that are recognised as one in the written model run one by one here.";

function graph(facts, late, shared) {
  if (!facts.before) return null;
  const shares = new Map();
  for (const node of facts.parity ? facts.parity.nodes : []) {
    if (node.position >= 0) shares.set(node.position, Math.max(shares.get(node.position) || 0, numeric(node.share)));
  }
  const pictures = [
    [facts.source === "file" ? "read" : "captured", facts.before, shares],
    ...(facts.after ? [["written", facts.after, new Map()]] : []),
  ];
  const views = pictures.map(([name, picture, errors]) => ({
    name,
    picture,
    view: new GraphView(picture, `The ${name} graph`, errors),
  }));
  const panels = views.map(({ name, view, picture }) =>
    element(
      "div",
      { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}` },
      view.body,
      picture.left_out
        ? element(
            "p",
            { class: "notice" },
            `The graph is large: ${counted(picture.left_out, "node")} of deep modules are left out of this page.`,
          )
        : null,
    ),
  );
  const tabs = views.map(({ name, picture }, place) =>
    element(
      "button",
      { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => show(place) },
      `${name[0].toUpperCase()}${name.slice(1)} `,
      element("span", { class: "quiet" }, counted(nodesOf(picture), "node")),
    ),
  );
  const drawnOnce = new Set();
  const show = (place) => {
    panels.forEach((panel, at) => {
      panel.hidden = at !== place;
    });
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === place));
      tab.tabIndex = at === place ? 0 : -1;
    });
    if (!drawnOnce.has(place)) {
      drawnOnce.add(place);
      views[place].view.draw();
      views[place].view.fit();
    }
  };
  for (const tab of tabs)
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const next = (tabs.indexOf(tab) + 1) % tabs.length;
      show(next);
      tabs[next].focus();
    });
  const options = new URLSearchParams(location.search);
  late.push(() => {
    show(views.length - 1);
    if (options.get("graph") === "before") show(0);
    if (options.has("unfold"))
      views.forEach(({ view }) => {
        if (view.size) view.unfoldAll();
      });
  });
  shared.reveal = (position) => {
    show(0);
    views[0].view.reveal(`n${position}`);
    views[0].view.body.scrollIntoView({ block: "nearest" });
  };
  shared.find = (operator) => {
    const plain = operator.replace(/^aten::/, "").split(".")[0];
    const place = facts.before.nodes.findIndex(([name, , , origin]) => name === plain && origin === UNSUPPORTED);
    if (place >= 0) shared.reveal(place);
  };
  return [
    element(
      "p",
      { class: "quiet" },
      "Drag to move. Zoom with two fingers, the buttons, or Ctrl and the wheel. Click + to unfold a module.",
    ),
    element("div", { class: "tabs", role: "tablist", "aria-label": "Graphs" }, tabs),
    panels,
    element("details", {}, element("summary", {}, "The modules as a table"), moduleTable(facts)),
  ];
}

function nodesOf(picture) {
  return picture.modules[0][4].reduce((sum, count) => sum + count, 0);
}

const MOST_MODULES = 300;

function moduleTable(facts) {
  const sum = (counts) => counts.reduce((total, count) => total + count, 0);
  const after = new Map(facts.after ? facts.after.modules.map(([, path, , , counts]) => [path, counts]) : []);
  const rows = facts.before.modules
    .filter(([, path], place) => path || place === 0)
    .map(([, path, kind, , counts]) => {
      const written = after.get(path);
      return [
        element("code", {}, path || "the model"),
        kind,
        String(sum(counts)),
        written ? String(sum(written)) : "",
        String(counts[3]),
        written ? String(written[1]) : "",
      ];
    });
  const shown = table(
    "Modules",
    ["module", "class", "captured nodes", "ONNX nodes", "folded", "composed ONNX nodes"],
    rows.slice(0, MOST_MODULES),
    { numbers: [2, 3, 4, 5] },
  );
  return rows.length > MOST_MODULES
    ? [shown, element("p", { class: "quiet" }, `and ${counted(rows.length - MOST_MODULES, "more module")}`)]
    : shown;
}

function parity(facts, late, shared) {
  const found = facts.parity;
  if (!found) return null;
  const parts = [];
  if (found.note) parts.push(element("p", { class: "notice" }, `Not everything was compared: ${found.note}`));
  if (found.outputs.length)
    parts.push(element("h3", {}, `Outputs against ${found.against}`), errors("Outputs", found.outputs, shared, 8));
  if (found.nodes.length) {
    parts.push(
      element("h3", {}, "Intermediate results"),
      element(
        "p",
        { class: "quiet" },
        facts.source === "file" ? COMPARED_FILE : COMPARED_CAPTURE,
        " Click a point to find it in the graph.",
      ),
      plotOfErrors(found, late, shared),
    );
    const first = found.nodes.find((node) => numeric(node.share) > 1);
    if (first)
      parts.push(
        element(
          "p",
          { class: "notice" },
          "The first result outside the tolerance is ",
          linkTo(first, shared),
          `(${first.operator}${first.module ? ` in ${first.module}` : ""}).`,
        ),
      );
    const worst = [...found.nodes].sort((a, b) => numeric(b.share) - numeric(a.share)).slice(0, 12);
    parts.push(
      element("h3", {}, "Worst intermediate results"),
      errors("Worst intermediate results", worst, shared, 12),
    );
  }
  if (Object.keys(found.tolerances).length) {
    parts.push(
      element(
        "p",
        { class: "quiet" },
        `A difference of a + r·|expected| is tolerated: ${Object.entries(found.tolerances)
          .map(([kind, [relative, absolute]]) =>
            relative || absolute ? `${kind} a = ${absolute}, r = ${relative}` : `${kind} none`,
          )
          .join("; ")}.`,
      ),
    );
  }
  return parts.length ? parts : null;
}

function linkTo(row, shared) {
  return row.position >= 0
    ? element("button", { type: "button", class: "link", onclick: () => shared.reveal(row.position) }, row.name)
    : element("code", {}, row.name);
}

function errors(caption, rows, shared, most) {
  const places = rows.some((row) => row.operator)
    ? [
        ["operator", (row) => row.operator],
        ["module", (row) => element("code", {}, row.module)],
      ]
    : [];
  const kinds = [
    ["result", (row) => linkTo(row, shared)],
    ...places,
    ["type", (row) => element("code", {}, row.type)],
    ["largest error", (row) => row.problem || short(row.error)],
    ["relative", (row) => short(row.relative)],
    [
      "of the tolerance",
      (row) =>
        element(
          "span",
          { class: numeric(row.share) > 1 ? "outside" : null },
          numeric(row.share) === Infinity ? "not equal" : `${short(numeric(row.share) * 100)} %`,
        ),
    ],
  ];
  return long(
    caption,
    kinds.map(([name]) => name),
    rows.map((row) => kinds.map(([, cell]) => cell(row))),
    most,
    { numbers: [2, 3, 4].map((place) => place + places.length), wide: [0, 1 + places.length] },
  );
}

function plotOfErrors(found, late, shared) {
  const text = (node) =>
    `${node.name}: ${node.operator}${node.module ? ` in ${node.module}` : ""}\n` +
    `largest error ${short(node.error)}, ${short(numeric(node.share) * 100)} % of the tolerance`;
  const points = (value) =>
    found.nodes.map((node, x) => ({
      x,
      y: power(value(node)),
      share: numeric(node.share),
      text: text(node),
      position: node.position,
    }));
  const choose = (point) => {
    if (point.position >= 0) shared.reveal(point.position);
  };
  const lines = Object.entries(found.tolerances)
    .filter(([, [, absolute]]) => absolute)
    .map(([kind, [, absolute]]) => ({ name: `absolute tolerance of ${kind}`, value: absolute }));
  const plots = {
    share: () =>
      scatter(
        "Errors by depth, as a share of the tolerance",
        points((node) => node.share),
        [{ name: "tolerance", value: 1 }],
        "error / tolerance",
        choose,
      ),
    error: () =>
      scatter(
        "Largest absolute errors by depth",
        points((node) => node.error),
        lines,
        "largest error",
        choose,
      ),
  };
  const place = element("div", {});
  const show = (name) => {
    const plot = plots[name]();
    place.replaceChildren(plot.box);
    plot.redraw();
  };
  late.push(() => show("share"));
  const choice = (name, label, checked) =>
    element(
      "label",
      {},
      element("input", { type: "radio", name: "measure", value: name, checked, onchange: () => show(name) }),
      ` ${label}`,
    );
  return [
    element(
      "div",
      { class: "tools", role: "group", "aria-label": "Measure" },
      choice("share", "share of the tolerance", true),
      choice("error", "largest absolute error", false),
    ),
    place,
  ];
}

function acrossOpsets(facts, late) {
  const rows = facts.opsets;
  if (!rows.length) return null;
  const asked = String(facts.asked.opset);
  const labelled = (parts) =>
    rows.map((row) => ({
      label: String(row.opset),
      asked: String(row.opset) === asked,
      parts: row.nodes === null ? [] : parts(row),
    }));
  const plots = rows.every((row) => row.nodes === null)
    ? []
    : [
        [
          "ONNX nodes",
          columns(
            "ONNX nodes by opset",
            labelled((row) => [row.nodes - row.composed - row.recognised, row.composed, row.recognised]),
            ["as-is", "composed", "recognised"],
            (value) => value.toLocaleString("en"),
          ),
        ],
      ];
  if (rows.some((row) => row.latency !== null)) {
    plots.push([
      "Median run in onnxruntime, one thread",
      columns(
        "Median run by opset",
        labelled((row) => [row.latency || 0]),
        ["bar"],
        seconds,
      ),
    ]);
  }
  late.push(() => plots.forEach(([, plot]) => plot.redraw()));
  const legend = element(
    "ul",
    { class: "legend" },
    ORIGINS.slice(0, 3).map(([name, text, meaning]) =>
      element("li", { title: meaning }, element("span", { class: `swatch ${name}` }), text),
    ),
  );
  return [
    plots.length
      ? element(
          "div",
          { class: "pair" },
          plots.map(([title, plot], place) =>
            element("div", {}, element("h3", {}, title), plot.box, place ? null : legend),
          ),
        )
      : null,
    table(
      "The model across opsets",
      ["opset", "ONNX nodes", "composed", "recognised", "median run", "note"],
      rows.map((row) => [
        String(row.opset) === asked ? element("strong", {}, `${row.opset} (asked)`) : String(row.opset),
        row.nodes === null ? "–" : row.nodes.toLocaleString("en"),
        row.nodes === null ? "" : String(row.composed),
        row.nodes === null ? "" : String(row.recognised),
        row.latency === null ? "" : seconds(row.latency),
        row.note,
      ]),
      { numbers: [1, 2, 3, 4] },
    ),
  ];
}
