"use strict";
// The sections of the page, from the facts.

function showReport(facts) {
  const page = document.getElementById("main");
  const sections = [
    ["summary", "Summary", summary],
    ["problems", "Why nothing was written", problems],
    ["written", "Asked and written", written],
    ["graph", "Graph", graph],
    ["parity", "Parity", parity],
    ["opsets", "Across opsets", acrossOpsets],
    ["stages", "Stages", stages],
    ["decisions", "Valid for", decisions],
  ];
  const links = [];
  const late = [];
  const shared = { reveal: () => {}, find: () => {} };
  for (const [id, title, make] of sections) {
    const content = make(facts, late, shared);
    if (!content) continue;
    if (id === "summary") {
      page.append(content);
      continue;
    }
    page.append(
      element(
        "section",
        { id, "aria-labelledby": `${id}-title` },
        element("h2", { id: `${id}-title` }, title),
        content,
      ),
    );
    links.push(element("a", { href: `#${id}` }, title));
  }
  document.querySelector("nav").append(...links);
  page.append(
    element(
      "footer",
      {},
      Object.entries(facts.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(" · "),
    ),
  );
  themes();
  for (const draw of late) draw();
}

// The theme of the system, or the one that is chosen.
function themes() {
  const names = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const stored = () => {
    try {
      return localStorage.getItem("opsetta-theme");
    } catch {
      return null;
    }
  };
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
    try {
      localStorage.setItem("opsetta-theme", next);
    } catch {
      /* Files may have no storage. */
    }
  });
}

function agreement(outputs, worst, parity) {
  if (!outputs.length) return "The results were not compared.";
  return worst > 1
    ? `An output differs from ${parity.against}: ${short(worst)} times what is tolerated.`
    : `Every output agrees with ${parity.against}; the largest error is ${short(worst * 100)} % of the tolerance.`;
}

function summary(facts) {
  const { parity, written, problems } = facts;
  const outputs = parity ? parity.outputs : [];
  const worst = outputs.reduce((most, output) => Math.max(most, numeric(output.share)), 0);
  const [state, text] = !written
    ? ["bad", problems.length ? "not written" : "failed"]
    : !outputs.length
      ? ["none", "not compared"]
      : worst > 1
        ? ["bad", "differs"]
        : ["good", "agrees"];
  const tiles = written
    ? [
        [`${written.nodes.toLocaleString("en")}`, "ONNX nodes"],
        [bytes(written.weight_bytes), `in ${counted(written.weights, "weight")}`],
        ...(outputs.length
          ? [
              [
                short(Math.max(...outputs.map((output) => numeric(output.error)))),
                `largest error of ${counted(outputs.length, "output")}`,
              ],
            ]
          : []),
        [seconds(facts.stages.reduce((sum, stage) => sum + stage.seconds, 0)), "to export"],
      ]
    : [
        [String(problems.length), problems.length === 1 ? "problem" : "problems"],
        [seconds(facts.stages.reduce((sum, stage) => sum + stage.seconds, 0)), "until it failed"],
      ];
  const sentence = written
    ? `Written at opset ${facts.asked.opset}. ${agreement(outputs, worst, parity)}`
    : `Opset ${facts.asked.opset} was asked for, and no file can be written. The table below says what to do.`;
  return element(
    "div",
    { class: "hero" },
    element(
      "div",
      { class: "headline" },
      element("h1", {}, facts.title),
      element("span", { class: "pill opset" }, `opset ${facts.asked.opset}`),
      element("span", { class: `pill ${state}` }, text),
    ),
    element("p", {}, sentence),
    element(
      "ul",
      { class: "tiles" },
      tiles.map(([value, label]) => element("li", {}, element("strong", {}, value), element("span", {}, label))),
    ),
  );
}

function problems(facts, late, shared) {
  if (!facts.problems.length) return null;
  return table(
    "What is not supported",
    ["operator or stage", "where", "reason", "what to do"],
    facts.problems.map((problem) => [
      facts.before && problem.places.length
        ? element(
            "button",
            {
              type: "button",
              class: "link",
              title: "Show it in the graph",
              onclick: () => shared.find(problem.subject),
            },
            problem.subject,
          )
        : element("code", {}, problem.subject),
      element(
        "ul",
        { class: "places" },
        problem.places.map((place) => element("li", {}, element("code", {}, place))),
      ),
      element("span", { class: "lines" }, problem.reason),
      element("strong", {}, problem.remedy),
    ]),
  );
}

function list(rows) {
  return element(
    "dl",
    { class: "facts" },
    rows.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
}

function written(facts) {
  const asked = element("div", {}, element("h3", {}, "Asked"), list(Object.entries(facts.asked)));
  if (!facts.written)
    return element(
      "div",
      { class: "pair" },
      asked,
      element("div", {}, element("h3", {}, "Written"), element("p", { class: "quiet" }, "Nothing.")),
    );
  const { written } = facts;
  return [
    element(
      "div",
      { class: "pair" },
      asked,
      element(
        "div",
        {},
        element("h3", {}, "Written"),
        list([
          [
            "opsets",
            Object.entries(written.opsets)
              .map(([domain, version]) => `${domain} ${version}`)
              .join(", "),
          ],
          ["IR version", String(written.ir_version)],
          ["nodes", written.nodes.toLocaleString("en")],
          ["weights", `${written.weights.toLocaleString("en")}, ${bytes(written.weight_bytes)}`],
        ]),
      ),
    ),
    long(
      "Inputs and outputs",
      ["kind", "name", "type"],
      written.interface.map((value) => [value.kind, element("code", {}, value.name), element("code", {}, value.type)]),
      8,
    ),
  ];
}

// A table of many rows shows the first ones, and the others when asked.
function long(caption, heads, rows, most, options) {
  if (rows.length <= most) return table(caption, heads, rows, options);
  return element(
    "div",
    {},
    table(caption, heads, rows.slice(0, most), options),
    element(
      "details",
      {},
      element("summary", {}, `${counted(rows.length - most, "more row")}`),
      table(`${caption}, continued`, heads, rows.slice(most), options),
    ),
  );
}

function stages(facts, late) {
  if (!facts.stages.length) return null;
  const time = bars(
    "Time",
    facts.stages.map((stage) => ({ label: stage.name, value: stage.seconds, text: seconds(stage.seconds) })),
    "bar",
  );
  const known = facts.stages.filter((stage) => stage.memory !== null);
  const memory = bars(
    "Memory",
    known.map((stage) => ({ label: stage.name, value: stage.memory, text: bytes(stage.memory) })),
    "bar second",
  );
  late.push(() => {
    time.redraw();
    memory.redraw();
  });
  return element(
    "div",
    { class: "pair" },
    element("div", {}, element("h3", {}, "Time"), time.box),
    known.length ? element("div", {}, element("h3", {}, "Memory of the process"), memory.box) : null,
  );
}

function decisions(facts) {
  const { restrictions, specializations } = facts;
  if (!restrictions.length && !specializations.length) return null;
  const parts = [];
  if (restrictions.length)
    parts.push(
      element("h3", {}, "Sizes"),
      table(
        "Conditions on sizes",
        ["condition", "line", "reason"],
        restrictions.map((entry) => [
          element("code", {}, entry.condition),
          element("code", {}, entry.line),
          entry.reason,
        ]),
      ),
    );
  if (specializations.length)
    parts.push(
      element("h3", {}, "Decisions that are fixed at those of the example"),
      element("p", { class: "notice" }, "The model is wrong for inputs that decide otherwise."),
      table(
        "Fixed decisions",
        ["line", "code", "kind", "value"],
        specializations.map((entry) => [
          element("code", {}, entry.line),
          element("code", {}, entry.code),
          entry.kind,
          entry.value === null ? "that of the example" : String(entry.value),
        ]),
      ),
    );
  return parts;
}
