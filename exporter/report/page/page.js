"use strict";
// The sections of the page, from the facts.

function showReport(facts) {
  const page = document.getElementById("main");
  const sections = [
    ["summary", "Summary", summary], ["problems", "Why nothing was written", problems], ["written", "Asked and written", written],
    ["graph", "Graph", graph], ["parity", "Parity", parity], ["opsets", "Across opsets", acrossOpsets],
    ["stages", "Stages", stages], ["decisions", "Valid for", decisions],
  ];
  const links = [];
  const late = [];
  const shared = { reveal: () => {}, find: () => {} };
  for (const [id, title, make] of sections) {
    const content = make(facts, late, shared);
    if (!content) continue;
    if (id === "summary") { page.append(content); continue; }
    page.append(element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), content));
    links.push(element("a", { href: `#${id}` }, title));
  }
  document.querySelector("nav").append(...links);
  page.append(element("footer", {}, Object.entries(facts.versions).map(([name, version]) => `${name} ${version}`).join(" · ")));
  themes();
  for (const draw of late) draw();
}

// The theme of the system, or the one that is chosen.
function themes() {
  const names = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("opsetta-theme"); } catch { return null; } };
  const show = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[name];
    button.setAttribute("aria-label", `Theme: ${name}. Change it.`);
    button.dataset.name = name;
  };
  const fromAddress = new URLSearchParams(location.search).get("theme");
  show(names.includes(fromAddress) ? fromAddress : names.includes(stored()) ? stored() : "auto");
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(button.dataset.name) + 1) % names.length];
    show(next);
    try { localStorage.setItem("opsetta-theme", next); } catch { /* Files may have no storage. */ }
  });
}

function summary(facts) {
  const { parity, written, problems } = facts;
  const outputs = parity ? parity.outputs : [];
  const worst = outputs.reduce((most, output) => Math.max(most, numeric(output.share)), 0);
  const [state, text] = !written
    ? ["bad", problems.length ? "not written" : "failed"]
    : !outputs.length ? ["none", "not compared"] : worst > 1 ? ["bad", "differs"] : ["good", "agrees"];
  const tiles = written ? [
    [`${written.nodes.toLocaleString("en")}`, "ONNX nodes"],
    [bytes(written.weight_bytes), `in ${counted(written.weights, "weight")}`],
    ...(outputs.length ? [[short(Math.max(...outputs.map((output) => numeric(output.error)))), `largest error of ${counted(outputs.length, "output")}`]] : []),
    [seconds(facts.stages.reduce((sum, stage) => sum + stage.seconds, 0)), "to export"],
  ] : [
    [String(problems.length), problems.length === 1 ? "problem" : "problems"],
    [seconds(facts.stages.reduce((sum, stage) => sum + stage.seconds, 0)), "until it failed"],
  ];
  const sentence = written
    ? `Written at opset ${facts.asked.opset}. ${outputs.length ? (worst > 1 ? `An output differs from ${parity.against}: ${short(worst)} times what is tolerated.` : `Every output agrees with ${parity.against}; the largest error is ${short(worst * 100)} % of the tolerance.`) : "The results were not compared."}`
    : `Opset ${facts.asked.opset} was asked for, and no file can be written. The table below says what to do.`;
  return element("div", { class: "hero" },
    element("div", { class: "headline" }, element("h1", {}, facts.title), element("span", { class: "pill opset" }, `opset ${facts.asked.opset}`), element("span", { class: `pill ${state}` }, text)),
    element("p", {}, sentence),
    element("ul", { class: "tiles" }, tiles.map(([value, label]) => element("li", {}, element("strong", {}, value), element("span", {}, label)))));
}

function problems(facts, late, shared) {
  if (!facts.problems.length) return null;
  return table("What is not supported", ["operator or stage", "where", "reason", "what to do"], facts.problems.map((problem) => [
    facts.before && problem.places.length ? element("button", { type: "button", class: "link", title: "Show it in the graph", onclick: () => shared.find(problem.subject) }, problem.subject) : element("code", {}, problem.subject), element("ul", { class: "places" }, problem.places.map((place) => element("li", {}, element("code", {}, place)))), element("span", { class: "lines" }, problem.reason), element("strong", {}, problem.remedy)]));
}

function list(rows) {
  return element("dl", { class: "facts" }, rows.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function written(facts) {
  const asked = element("div", {}, element("h3", {}, "Asked"), list(Object.entries(facts.asked)));
  if (!facts.written) return element("div", { class: "pair" }, asked, element("div", {}, element("h3", {}, "Written"), element("p", { class: "quiet" }, "Nothing.")));
  const { written } = facts;
  return [
    element("div", { class: "pair" }, asked, element("div", {}, element("h3", {}, "Written"), list([
      ["opsets", Object.entries(written.opsets).map(([domain, version]) => `${domain} ${version}`).join(", ")], ["IR version", String(written.ir_version)],
      ["nodes", written.nodes.toLocaleString("en")], ["weights", `${written.weights.toLocaleString("en")}, ${bytes(written.weight_bytes)}`]]))),
    long("Inputs and outputs", ["kind", "name", "type"], written.interface.map((value) => [value.kind, element("code", {}, value.name), element("code", {}, value.type)]), 8),
  ];
}

// A table of many rows shows the first ones, and the others when asked.
function long(caption, heads, rows, most, options) {
  if (rows.length <= most) return table(caption, heads, rows, options);
  return element("div", {}, table(caption, heads, rows.slice(0, most), options),
    element("details", {}, element("summary", {}, `${counted(rows.length - most, "more row")}`), table(`${caption}, continued`, heads, rows.slice(most), options)));
}

function graph(facts, late, shared) {
  if (!facts.before) return null;
  const shares = new Map();
  for (const node of facts.parity ? facts.parity.nodes : []) {
    if (node.position >= 0) shares.set(node.position, Math.max(shares.get(node.position) || 0, numeric(node.share)));
  }
  const pictures = [[facts.source === "file" ? "read" : "captured", facts.before, shares], ...(facts.after ? [["written", facts.after, new Map()]] : [])];
  const views = pictures.map(([name, picture, errors]) => ({ name, picture, view: new GraphView(picture, `The ${name} graph`, errors) }));
  const panels = views.map(({ name, view, picture }) => element("div", { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}` }, view.body,
    picture.left_out ? element("p", { class: "notice" }, `The graph is large: ${counted(picture.left_out, "node")} of deep modules are left out of this page.`) : null));
  const tabs = views.map(({ name, picture }, place) => element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: () => show(place) },
    `${name[0].toUpperCase()}${name.slice(1)} `, element("span", { class: "quiet" }, counted(nodesOf(picture), "node"))));
  const drawnOnce = new Set();
  const show = (place) => {
    panels.forEach((panel, at) => { panel.hidden = at !== place; });
    tabs.forEach((tab, at) => { tab.setAttribute("aria-selected", String(at === place)); tab.tabIndex = at === place ? 0 : -1; });
    if (!drawnOnce.has(place)) { drawnOnce.add(place); views[place].view.draw(); views[place].view.fit(); }
  };
  for (const tab of tabs) tab.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    const next = (tabs.indexOf(tab) + 1) % tabs.length;
    show(next);
    tabs[next].focus();
  });
  const options = new URLSearchParams(location.search);
  late.push(() => {
    show(views.length - 1);
    if (options.get("graph") === "before") show(0);
    if (options.has("unfold")) views.forEach(({ view }) => { if (view.size) view.unfoldAll(); });
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
    element("p", { class: "quiet" }, "Drag to move. Zoom with two fingers, the buttons, or Ctrl and the wheel. Click + to unfold a module."),
    element("div", { class: "tabs", role: "tablist", "aria-label": "Graphs" }, tabs), panels,
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
  const rows = facts.before.modules.filter(([, path], place) => path || place === 0).map(([, path, kind, , counts]) => {
    const written = after.get(path);
    return [element("code", {}, path || "the model"), kind, String(sum(counts)), written ? String(sum(written)) : "", String(counts[3]), written ? String(written[1]) : ""];
  });
  const shown = table("Modules", ["module", "class", "captured nodes", "ONNX nodes", "folded", "composed ONNX nodes"], rows.slice(0, MOST_MODULES), { numbers: [2, 3, 4, 5] });
  return rows.length > MOST_MODULES ? [shown, element("p", { class: "quiet" }, `and ${counted(rows.length - MOST_MODULES, "more module")}`)] : shown;
}

function parity(facts, late, shared) {
  const found = facts.parity;
  if (!found) return null;
  const parts = [];
  if (found.note) parts.push(element("p", { class: "notice" }, `Not everything was compared: ${found.note}`));
  if (found.outputs.length) parts.push(element("h3", {}, `Outputs against ${found.against}`), errors("Outputs", found.outputs, shared, 8));
  if (found.nodes.length) {
    parts.push(element("h3", {}, "Intermediate results"), element("p", { class: "quiet" },
      facts.source === "file" ? "Each point is a value that has the same name in both graphs, on random inputs. Click a point to find it in the graph."
        : "Each point is the result of one operator. For the comparison every result is an output of the model, so operators that are recognised as one in the written model run one by one here. Click a point to find it in the graph."),
      plotOfErrors(found, late, shared));
    const first = found.nodes.find((node) => numeric(node.share) > 1);
    if (first) parts.push(element("p", { class: "notice" }, "The first result outside the tolerance is ", linkTo(first, shared), `(${first.operator}${first.module ? ` in ${first.module}` : ""}).`));
    const worst = [...found.nodes].sort((a, b) => numeric(b.share) - numeric(a.share)).slice(0, 12);
    parts.push(element("h3", {}, "Worst intermediate results"), errors("Worst intermediate results", worst, shared, 12));
  }
  if (Object.keys(found.tolerances).length) {
    parts.push(element("p", { class: "quiet" }, `A difference of a + r·|expected| is tolerated: ${Object.entries(found.tolerances).map(([kind, [relative, absolute]]) => relative || absolute ? `${kind} a = ${absolute}, r = ${relative}` : `${kind} none`).join("; ")}.`));
  }
  return parts.length ? parts : null;
}

function linkTo(row, shared) {
  return row.position >= 0 ? element("button", { type: "button", class: "link", onclick: () => shared.reveal(row.position) }, row.name) : element("code", {}, row.name);
}

function errors(caption, rows, shared, most) {
  const places = rows.some((row) => row.operator) ? [["operator", (row) => row.operator], ["module", (row) => row.module]] : [];
  const kinds = [["result", (row) => linkTo(row, shared)], ...places, ["type", (row) => element("code", {}, row.type)],
    ["largest error", (row) => row.problem || short(row.error)], ["relative", (row) => short(row.relative)],
    ["of the tolerance", (row) => element("span", { class: numeric(row.share) > 1 ? "outside" : null }, numeric(row.share) === Infinity ? "not equal" : `${short(numeric(row.share) * 100)} %`)]];
  return long(caption, kinds.map(([name]) => name), rows.map((row) => kinds.map(([, cell]) => cell(row))), most, { numbers: [2, 3, 4].map((place) => place + places.length) });
}

function plotOfErrors(found, late, shared) {
  const text = (node) => `${node.name}: ${node.operator}${node.module ? ` in ${node.module}` : ""}\nlargest error ${short(node.error)}, ${short(numeric(node.share) * 100)} % of the tolerance`;
  const points = (value) => found.nodes.map((node, x) => ({ x, y: power(value(node)), share: numeric(node.share), text: text(node), position: node.position }));
  const choose = (point) => { if (point.position >= 0) shared.reveal(point.position); };
  const lines = Object.entries(found.tolerances).filter(([, [, absolute]]) => absolute).map(([kind, [, absolute]]) => ({ name: `absolute tolerance of ${kind}`, value: absolute }));
  const plots = {
    share: () => scatter("Errors by depth, as a share of the tolerance", points((node) => node.share), [{ name: "tolerance", value: 1 }], "error / tolerance", choose),
    error: () => scatter("Largest absolute errors by depth", points((node) => node.error), lines, "largest error", choose),
  };
  const place = element("div", {});
  const show = (name) => { const plot = plots[name](); place.replaceChildren(plot.box); plot.redraw(); };
  late.push(() => show("share"));
  const choice = (name, label, checked) => element("label", {}, element("input", { type: "radio", name: "measure", value: name, checked, onchange: () => show(name) }), ` ${label}`);
  return [element("div", { class: "tools", role: "group", "aria-label": "Measure" }, choice("share", "share of the tolerance", true), choice("error", "largest absolute error", false)), place];
}

function acrossOpsets(facts, late) {
  const rows = facts.opsets;
  if (!rows.length) return null;
  const asked = String(facts.asked.opset);
  const labelled = (parts) => rows.map((row) => ({ label: String(row.opset), asked: String(row.opset) === asked, parts: row.nodes === null ? [] : parts(row) }));
  const plots = rows.every((row) => row.nodes === null) ? [] : [
    ["ONNX nodes", columns("ONNX nodes by opset", labelled((row) => [row.nodes - row.composed - row.recognised, row.composed, row.recognised]), ["as-is", "composed", "recognised"], (value) => value.toLocaleString("en"))],
  ];
  if (rows.some((row) => row.latency !== null)) {
    plots.push(["Median run in onnxruntime, one thread", columns("Median run by opset", labelled((row) => [row.latency || 0]), ["bar"], seconds)]);
  }
  late.push(() => plots.forEach(([, plot]) => plot.redraw()));
  const legend = element("ul", { class: "legend" }, ORIGINS.slice(0, 3).map(([name, text, meaning]) => element("li", { title: meaning }, element("span", { class: `swatch ${name}` }), text)));
  return [
    plots.length ? element("div", { class: "pair" }, plots.map(([title, plot], place) => element("div", {}, element("h3", {}, title), plot.box, place ? null : legend))) : null,
    table("The model across opsets", ["opset", "ONNX nodes", "composed", "recognised", "median run", "note"], rows.map((row) => [
      String(row.opset) === asked ? element("strong", {}, `${row.opset} (asked)`) : String(row.opset),
      row.nodes === null ? "–" : row.nodes.toLocaleString("en"), row.nodes === null ? "" : String(row.composed), row.nodes === null ? "" : String(row.recognised), row.latency === null ? "" : seconds(row.latency), row.note]), { numbers: [1, 2, 3, 4] }),
  ];
}

function stages(facts, late) {
  if (!facts.stages.length) return null;
  const time = bars("Time", facts.stages.map((stage) => ({ label: stage.name, value: stage.seconds, text: seconds(stage.seconds) })), "bar");
  const known = facts.stages.filter((stage) => stage.memory !== null);
  const memory = bars("Memory", known.map((stage) => ({ label: stage.name, value: stage.memory, text: bytes(stage.memory) })), "bar second");
  late.push(() => { time.redraw(); memory.redraw(); });
  return element("div", { class: "pair" }, element("div", {}, element("h3", {}, "Time"), time.box),
    known.length ? element("div", {}, element("h3", {}, "Memory of the process"), memory.box) : null);
}

function decisions(facts) {
  const { restrictions, specializations } = facts;
  if (!restrictions.length && !specializations.length) return null;
  const parts = [];
  if (restrictions.length) parts.push(element("h3", {}, "Sizes"), table("Conditions on sizes", ["condition", "line", "reason"], restrictions.map((entry) => [element("code", {}, entry.condition), element("code", {}, entry.line), entry.reason])));
  if (specializations.length) parts.push(element("h3", {}, "Decisions that are fixed at those of the example"), element("p", { class: "notice" }, "The model is wrong for inputs that decide otherwise."), table("Fixed decisions", ["line", "code", "kind", "value"], specializations.map((entry) => [element("code", {}, entry.line), element("code", {}, entry.code), entry.kind, entry.value === null ? "that of the example" : String(entry.value)])));
  return parts;
}
