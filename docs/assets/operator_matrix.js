// The table of docs/operator-matrix.md: filters operators by name, framework, opset and state.
(function () {
  "use strict";

  const STATES = { s: "symbolic", d: "decomposed", r: "refused", ".": "unknown" };
  const FRAMEWORKS = [
    ["", "every framework"],
    ["torch", "PyTorch"],
    ["tensorflow", "TensorFlow"],
    ["caffe2", "Caffe2"],
  ];
  const CHOICES = [
    ["", "every state"],
    ["supported", "supported"],
    ["symbolic", "symbolic"],
    ["decomposed", "decomposed"],
    ["partly", "partly refused"],
    ["refused", "refused"],
  ];
  const SHOWN = 200;

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  function framework(name) {
    const domain = name.split("::")[0];
    if (domain === "tf" || domain === "tf_complex") return "tensorflow";
    return domain === "caffe2" ? "caffe2" : "torch";
  }

  function stateOf(letter) {
    return { state: STATES[letter.toLowerCase()], partly: /[SD]/.test(letter) };
  }

  function fits(letter, wanted) {
    const { state, partly } = stateOf(letter);
    if (wanted === "supported") return state === "symbolic" || state === "decomposed";
    return wanted === "partly" ? partly : state === wanted;
  }

  function select(label, options) {
    const made = element("select", {});
    for (const [value, text] of options) made.append(element("option", { value, textContent: text }));
    return [made, element("label", {}, label, made)];
  }

  function start(place, data) {
    const text = element("input", { type: "search", placeholder: "conv, aten::topk …", autocomplete: "off" });
    const [from, fromLabel] = select("From", FRAMEWORKS);
    const [opset, opsetLabel] = select(
      "Opset",
      [["", "every opset"]].concat(data.opsets.map((number) => [String(number), String(number)]))
    );
    const [state, stateLabel] = select("State", CHOICES);
    const count = element("p", { className: "matrix-count" });
    count.setAttribute("aria-live", "polite");
    const head = element("tr", {});
    const body = element("tbody", {});
    const more = element("button", { type: "button", className: "md-button", textContent: "Show all" });
    let all = false;

    function columns() {
      return opset.value === "" ? data.opsets.map((_, index) => index) : [data.opsets.indexOf(Number(opset.value))];
    }

    function matching(shown) {
      const wanted = text.value.trim().toLowerCase();
      return data.operators.filter(
        ([name, letters]) =>
          name.toLowerCase().includes(wanted) &&
          (from.value === "" || framework(name) === from.value) &&
          (state.value === "" || shown.some((index) => fits(letters[index], state.value)))
      );
    }

    function row([name, letters, remark], shown) {
      const line = element("tr", {}, element("th", { scope: "row" }, element("code", { textContent: name })));
      for (const index of shown) {
        const { state: said, partly } = stateOf(letters[index]);
        const title = said === "unknown" ? "not known" : said + (partly ? ", partly refused" : "");
        const mark = said === "unknown" ? "" : (said === "refused" ? "–" : said[0].toUpperCase()) + (partly ? "*" : "");
        const cell = element("td", { className: `is-${said}`, textContent: mark });
        cell.title = `opset ${data.opsets[index]}: ${title}`;
        cell.setAttribute("aria-label", title);
        line.append(cell);
      }
      line.append(element("td", { className: "matrix-remark", textContent: remark }));
      return line;
    }

    function show() {
      const shown = columns();
      const found = matching(shown);
      const visible = all ? found : found.slice(0, SHOWN);
      head.replaceChildren(
        element("th", { textContent: "operator" }),
        ...shown.map((index) => element("th", { textContent: data.opsets[index] })),
        element("th", { textContent: "refused, and why" })
      );
      body.replaceChildren(...visible.map((operator) => row(operator, shown)));
      more.hidden = visible.length === found.length;
      count.textContent = `${found.length} of ${data.operators.length} operators`;
      remember();
    }

    // The address keeps the filters, so that a link to a result can be sent.
    function remember() {
      const kept = new URLSearchParams();
      for (const [key, field] of [["name", text], ["from", from], ["opset", opset], ["state", state]]) {
        if (field.value) kept.set(key, field.value);
      }
      const query = kept.toString();
      if (location.protocol !== "file:") history.replaceState(null, "", query ? `?${query}` : location.pathname);
    }

    const asked = new URLSearchParams(location.search);
    text.value = asked.get("name") || "";
    for (const [key, field] of [["from", from], ["opset", opset], ["state", state]]) {
      const value = asked.get(key) || "";
      if ([...field.options].some((option) => option.value === value)) field.value = value;
    }
    for (const field of [text, from, opset, state]) {
      field.addEventListener("input", () => {
        all = false;
        show();
      });
    }
    more.addEventListener("click", () => {
      all = true;
      show();
    });
    place.replaceChildren(
      element("div", { className: "matrix-filters" }, element("label", {}, "Name", text), fromLabel, opsetLabel, stateLabel),
      count,
      element("div", { className: "matrix-scroll" }, element("table", { className: "matrix" }, element("thead", {}, head), body)),
      more
    );
    show();
  }

  function main() {
    const place = document.getElementById("operator-matrix");
    const data = document.getElementById("operator-data");
    if (place && data) start(place, JSON.parse(data.textContent));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", main);
  else main();
})();
