"use strict";
// The picture of a graph: drawn from its layout, panned, zoomed, folded and searched.

const ORIGINS = [
  ["as-is", "written as is", "One ONNX operator for one operator of the model."],
  ["composed", "composed", "Several ONNX operators write one operator of the model."],
  ["recognised", "recognised", "An optimization wrote one operator for several, or rewrote it."],
  ["folded", "folded", "Computed ahead of time, merged into another operator, or not needed."],
  ["unsupported", "not supported", "The opset cannot express it."],
];
const UNSUPPORTED = ORIGINS.length - 1;
const MOST_SEEN = 56; // Boxes that are seen at first.
const MOST_UNFOLDED = 2500; // Nodes that "Unfold all" shows.

function originOf(node) {
  return node.origin < 0 ? ["interface", "input or output of the model"] : ORIGINS[node.origin];
}

// The class of an error, by its share of the tolerance.
function errorClass(share) {
  if (share === undefined) return "error-none";
  if (share > 1) return "error-outside";
  return share > 0.1 ? "error-high" : share > 1e-3 ? "error-middle" : "error-low";
}

class GraphView {
  // `shares` has the error of nodes by their place, as a share of the tolerance.
  constructor(picture, title, shares) {
    this.tree = makeTree(picture);
    this.title = title;
    this.shares = shares || new Map();
    this.unfolded = firstUnfolded(this.tree, MOST_SEEN);
    this.known = new Map();
    this.selected = null;
    this.view = { x: 0, y: 0, scale: 1 };
    this.byError = false;
    this.build();
  }

  build() {
    this.scene = drawn("g", {});
    GraphView.count = (GraphView.count || 0) + 1;
    this.arrow = `url(#arrow-${GraphView.count})`;
    this.canvas = drawn("svg", {
      class: "graph", tabindex: 0, role: "application",
      "aria-label": `${this.title}. Arrow keys select boxes, Enter folds and unfolds, plus and minus zoom, 0 shows the whole graph.`,
    }, drawn("defs", {}, drawn("marker", { id: `arrow-${GraphView.count}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      drawn("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }))), this.scene);
    this.details = element("div", { class: "details", "aria-live": "polite" });
    this.found = element("output", { class: "quiet" });
    const button = (text, label, action) => element("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
    this.search = element("input", { type: "search", placeholder: "Find an operator or module", "aria-label": "Find an operator or module", onkeydown: (event) => { if (event.key === "Enter") this.find(); } });
    const tools = [
      this.search, this.found, element("span", { class: "spring" }),
      button("−", "Zoom out", () => this.zoom(1 / 1.3)), button("+", "Zoom in", () => this.zoom(1.3)),
      button("Fit", "Show the whole graph", () => this.fit(true)),
      button("Fold all", "Fold all modules", () => this.setUnfolded(new Set(["m0"]))),
      button("Unfold all", "Unfold modules", () => this.unfoldAll()),
    ];
    if (this.shares.size) {
      tools.splice(2, 0, element("label", {}, "Colour ", element("select", { onchange: (event) => { this.byError = event.target.value === "error"; this.draw(); } },
        element("option", { value: "origin" }, "by origin"), element("option", { value: "error" }, "by error"))));
    }
    this.legend = element("ul", { class: "legend", "aria-label": "Colours" });
    this.body = element("div", { class: "graph-box" }, element("div", { class: "tools" }, tools), this.legend, this.canvas, this.details);
    this.listen();
  }

  listen() {
    const held = new Map();
    let moved = 0, apart = 0;
    const middle = () => { const all = [...held.values()]; return { x: all.reduce((s, p) => s + p.x, 0) / all.length, y: all.reduce((s, p) => s + p.y, 0) / all.length }; };
    const spread = () => { const [a, b] = [...held.values()]; return b ? Math.hypot(a.x - b.x, a.y - b.y) : 0; };
    this.canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, { x: event.clientX, y: event.clientY }); moved = 0; apart = spread(); });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) return;
      const before = middle();
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      const after = middle();
      moved += Math.abs(after.x - before.x) + Math.abs(after.y - before.y);
      if (moved > 4) this.canvas.setPointerCapture(event.pointerId);
      this.view.x += after.x - before.x;
      this.view.y += after.y - before.y;
      const now = spread();
      if (apart && now) this.zoom(now / apart, after);
      apart = now;
      this.move();
    });
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, (event) => { held.delete(event.pointerId); apart = spread(); });
    this.canvas.addEventListener("click", (event) => {
      const box = event.target.closest("[data-id]");
      if (box && moved <= 4) this.select(box.dataset.id, event.detail > 1 || event.target.closest(".fold") !== null);
    });
    // Without a modifier the wheel scrolls the page.
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), { x: event.clientX, y: event.clientY });
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const keys = {
      ArrowDown: () => this.step(1), ArrowRight: () => this.step(1), ArrowUp: () => this.step(-1), ArrowLeft: () => this.step(-1),
      Enter: () => this.select(this.selected, true), " ": () => this.select(this.selected, true),
      "+": () => this.zoom(1.3), "=": () => this.zoom(1.3), "-": () => this.zoom(1 / 1.3), 0: () => this.fit(true), Escape: () => this.select(null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  // Boxes that can be selected, from top to bottom.
  seen(module = this.tree.modules[0], found = []) {
    for (const child of module.children) {
      found.push(child.id);
      if (this.unfolded.has(child.id)) this.seen(child, found);
    }
    return found;
  }

  step(by) {
    const seen = this.seen();
    const at = seen.indexOf(this.selected);
    const next = at < 0 ? 0 : Math.min(seen.length - 1, Math.max(0, at + by));
    this.select(seen[next]);
    this.centre(seen[next]);
  }

  item(id) {
    return id === null ? null : id[0] === "m" ? this.tree.modules[id.slice(1)] : this.tree.nodes[id.slice(1)];
  }

  select(id, folds) {
    const item = this.item(id);
    this.selected = id;
    if (folds && item && item.isModule && !item.cut) {
      if (!this.unfolded.delete(id)) this.unfolded.add(id);
      this.known.clear();
      const before = this.places.get(id);
      this.draw();
      const after = this.places.get(id);
      this.view.x += (before.x - after.x) * this.view.scale;
      this.view.y += (before.y - after.y) * this.view.scale;
      this.move();
    } else {
      if (!this.places.has(id)) this.draw();
      this.drawChosen();
    }
    this.describe(item);
  }

  setUnfolded(unfolded) {
    this.unfolded = unfolded;
    this.known.clear();
    this.draw();
    this.fit();
  }

  unfoldAll() {
    const all = new Set(["m0"]);
    let count = 0;
    for (const module of [...this.tree.modules].sort((a, b) => a.depth - b.depth)) {
      if (module.cut || count + module.children.length > MOST_UNFOLDED) continue;
      if (module.parent >= 0 && !all.has(`m${module.parent}`)) continue;
      all.add(module.id);
      count += module.children.length;
    }
    this.setUnfolded(all);
  }

  // Unfolds what a node or module is in, and brings it to the middle.
  reveal(id) {
    for (const module of above(this.tree, this.item(id))) this.unfolded.add(module.id);
    this.known.clear();
    this.draw();
    this.select(id);
    if (this.view.scale < 0.6) this.view.scale = 0.8;
    this.centre(id);
  }

  find() {
    const text = this.search.value.trim().toLowerCase();
    if (!text) return;
    const { modules, nodes } = this.tree;
    const hits = [
      ...modules.slice(1).filter((module) => `${module.name} ${module.path} ${module.kind}`.toLowerCase().includes(text)),
      ...nodes.filter((node) => `${node.operator} ${node.name} ${node.sources}`.toLowerCase().includes(text)),
    ].map((item) => item.id);
    const at = hits.indexOf(this.selected) + 1;
    this.found.textContent = hits.length ? `${(at % hits.length) + 1} of ${hits.length}` : "not found";
    if (hits.length) this.reveal(hits[at % hits.length]);
  }

  draw() {
    const root = layout(this.tree, this.tree.modules[0], this.unfolded, this.known);
    this.size = root;
    this.places = new Map();
    this.boxes = new Map();
    this.scene.replaceChildren(this.module(root, { x: 0, y: 0 }, 0, 0));
    this.drawChosen();
    this.drawLegend();
    this.move();
  }

  // Draws an unfolded module; `corner` is relative to the module around it, `x` and `y` to the picture.
  module(found, corner, x, y) {
    const group = drawn("g", { transform: `translate(${corner.x} ${corner.y})` });
    const paths = found.links.map((link) => drawn("path", { class: "line", d: curve(link), "marker-end": link.to.joint || link.to.port !== undefined || link.to.open ? null : this.arrow }));
    const boxes = found.cells.map((cell) => this.cell(cell, found, x, y));
    const marks = found.marks.map(({ to, maker }) => {
      const node = this.tree.nodes[maker];
      return drawn("path", { class: "mark", d: `M${to.x + to.width / 2} ${to.y} v-9 m-3 0 h6` }, drawn("title", {}, `also reads ${node.operator} ${node.name}, further up`));
    });
    group.append(...paths, ...boxes, ...marks);
    return group;
  }

  cell(cell, found, x, y) {
    if (cell.port !== undefined) return drawn("circle", { class: "port", cx: cell.x + 4, cy: cell.y + (cell.last ? 4 : 0), r: 3 });
    const { item } = cell;
    this.places.set(item.id, { x: x + cell.x, y: y + cell.y, width: cell.width, height: cell.height });
    const group = item.isModule ? drawn("g", { class: `module ${cell.open ? "open" : "folded"}`, "data-id": item.id }) : this.node(cell, item);
    this.boxes.set(item.id, group);
    if (!item.isModule) return group;
    group.append(drawn("title", {}, `${item.path || item.name}${item.kind ? ` (${item.kind})` : ""}`),
      drawn("rect", { x: cell.x, y: cell.y, width: cell.width, height: cell.height, rx: 8 }));
    if (cell.open) {
      group.append(drawn("text", { x: cell.x + 24, y: cell.y + 17, class: "title" }, clipped(item.name, Math.max(6, Math.floor((cell.width - 34) / 7.6)))), this.sign(cell.x + 12, cell.y + 13, "−"));
      const inside = found.inner.get(item.id);
      return drawn("g", {}, group, this.module(inside, cell, x + cell.x, y + cell.y));
    }
    group.append(drawn("text", { x: cell.x + 24, y: cell.y + 20, class: "title" }, clipped(item.name, 30)),
      drawn("text", { x: cell.x + 12, y: cell.y + 36, class: "note" }, clipped(noteOf(item), 34)));
    if (!item.cut) group.append(this.sign(cell.x + 12, cell.y + 16, "+"));
    group.append(...this.bar(item, cell));
    return group;
  }

  sign(x, y, text) {
    return drawn("g", { class: "fold" }, drawn("circle", { cx: x, cy: y, r: 7 }), drawn("text", { x, y: y + 4 }, text));
  }

  // The colours of the nodes in a folded module, as a bar at its foot.
  bar(module, cell) {
    const groups = this.byError ? this.errorsIn(module) : module.counts.map((count, code) => [ORIGINS[code][0], count]);
    const total = groups.reduce((sum, [, count]) => sum + count, 0);
    let x = cell.x + 12;
    return groups.filter(([, count]) => count).map(([name, count]) => {
      const width = (cell.width - 24) * count / total;
      x += width;
      return drawn("rect", { class: `part ${name}`, x: x - width, y: cell.y + cell.height - 8, width, height: 4, rx: 1 });
    });
  }

  errorsIn(module) {
    const counts = new Map();
    const visit = (item) => {
      if (item.isModule) item.children.forEach(visit);
      else { const name = errorClass(this.shares.get(item.place)); counts.set(name, (counts.get(name) || 0) + 1); }
    };
    visit(module);
    return ["error-outside", "error-high", "error-middle", "error-low", "error-none"].map((name) => [name, counts.get(name) || 0]);
  }

  node(cell, node) {
    const kind = this.byError ? errorClass(this.shares.get(node.place)) : originOf(node)[0];
    const note = noteOfNode(node), title = node.origin < 0 ? node.name : node.operator;
    return drawn("g", { class: `node ${kind}`, "data-id": node.id },
      drawn("title", {}, `${node.operator} ${node.name}\n${node.results}`),
      drawn("rect", { x: cell.x, y: cell.y, width: cell.width, height: cell.height, rx: node.origin < 0 ? cell.height / 2 : 4 }),
      drawn("text", { x: cell.x + cell.width / 2, y: cell.y + (note ? 16 : 18), class: "title" }, clipped(title, 26)),
      note ? drawn("text", { x: cell.x + cell.width / 2, y: cell.y + 30, class: "note" }, note) : null);
  }

  // Marks the selected box, with lines from what the node reads and to what reads it, wherever they are.
  drawChosen() {
    for (const old of this.scene.querySelectorAll(".near, .chosen")) {
      if (old.classList.contains("near")) old.remove();
      else old.classList.remove("chosen");
    }
    const box = this.boxes.get(this.selected);
    if (box) box.classList.add("chosen");
    const item = this.item(this.selected);
    if (!item || item.isModule) return;
    const shown = (place) => {
      let at = this.tree.nodes[place];
      const around = above(this.tree, at).reverse();
      for (const module of around.slice(1)) if (!this.unfolded.has(module.id)) { at = module; break; }
      return this.places.get(at.id);
    };
    const own = this.places.get(item.id);
    if (!own) return;
    const line = (from, to) => from && to && drawn("path", { class: "near", d: `M${from.x + from.width / 2} ${from.y + from.height} C${from.x + from.width / 2} ${from.y + from.height + 40} ${to.x + to.width / 2} ${to.y - 40} ${to.x + to.width / 2} ${to.y}` });
    const lines = [...this.tree.makers[item.place].map((place) => line(shown(place), own)), ...this.tree.readers[item.place].map((place) => line(own, shown(place)))];
    this.scene.append(...lines.filter(Boolean));
  }

  drawLegend() {
    const counts = this.tree.modules[0].counts;
    const entries = this.byError
      ? [["error-low", "up to 0.1 % of the tolerance"], ["error-middle", "up to 10 %"], ["error-high", "up to 100 %"], ["error-outside", "outside"], ["error-none", "not compared"]]
      : ORIGINS.map(([name, text, meaning], code) => counts[code] ? [name, `${text} (${counts[code].toLocaleString("en")})`, meaning] : null).filter(Boolean);
    this.legend.replaceChildren(...entries.map(([name, text, meaning]) => element("li", { title: meaning }, element("span", { class: `swatch ${name}` }), text)));
  }

  describe(item) {
    if (!item) { this.details.replaceChildren(); return; }
    const rows = item.isModule
      ? [["module", item.path || item.name || "the model"], ["class", item.kind], ["nodes", String(item.size)], ["origins", item.counts.map((count, code) => count ? `${count} ${ORIGINS[code][1]}` : "").filter(Boolean).join(", ")], ["", item.cut ? "The report leaves out the nodes of this module, to stay small." : ""]]
      : [["operator", item.operator], ["name", item.name], ["module", this.tree.modules[item.parent].path], ["made from", item.sources], ["result", item.results], ["arguments", item.attributes], ["line", item.line], ["origin", originOf(item)[1]], ["error", this.shares.has(item.place) ? `${short(this.shares.get(item.place))} of the tolerance` : ""]];
    const near = (title, places) => places.length ? [element("dt", {}, title), element("dd", {}, places.slice(0, 12).map((place) => element("button", { type: "button", class: "link", onclick: () => this.reveal(`n${place}`) }, this.tree.nodes[place].operator + (this.tree.nodes[place].name ? ` ${this.tree.nodes[place].name}` : ""))), places.length > 12 ? ` and ${places.length - 12} more` : "")] : [];
    this.details.replaceChildren(element("dl", {}, rows.filter(([, text]) => text).map(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]),
      item.isModule ? [] : [near("reads", this.tree.makers[item.place]), near("read by", this.tree.readers[item.place])]));
  }

  frame() {
    const { width, height } = this.canvas.getBoundingClientRect();
    return { width: width || 800, height: height || 500 };
  }

  // Shows the whole graph; at first not smaller than what can be read.
  fit(whole) {
    const { width, height } = this.frame();
    const scale = Math.min(1.2, (width - 24) / this.size.width, (height - 24) / this.size.height);
    const readable = Math.min(1, Math.max(0.55, (width - 24) / this.size.width));
    this.view.scale = whole ? scale : Math.max(scale, Math.min(readable, 0.85));
    this.view.x = (width - this.size.width * this.view.scale) / 2;
    this.view.y = Math.max(12, (height - this.size.height * this.view.scale) / 2);
    this.move();
  }

  zoom(by, at) {
    const box = this.canvas.getBoundingClientRect();
    const x = at ? at.x - box.left : box.width / 2, y = at ? at.y - box.top : box.height / 2;
    const scale = Math.min(3, Math.max(0.02, this.view.scale * by));
    this.view.x = x - (x - this.view.x) * scale / this.view.scale;
    this.view.y = y - (y - this.view.y) * scale / this.view.scale;
    this.view.scale = scale;
    this.move();
  }

  centre(id) {
    const place = this.places.get(id);
    if (!place) return;
    const { width, height } = this.frame();
    this.view.x = width / 2 - (place.x + place.width / 2) * this.view.scale;
    this.view.y = height / 2 - (place.y + Math.min(place.height, height / this.view.scale) / 2) * this.view.scale;
    this.move();
  }

  move() {
    const { x, y, scale } = this.view;
    this.scene.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${scale.toFixed(4)})`);
  }
}

// A line from the foot of one cell to the head of another one, in the gap between their rows.
function curve({ from, to, x1, x2 }) {
  if (from.joint) x1 = from.x + 2;
  if (to.joint) x2 = to.x + 2;
  const begin = from.joint ? from.y : from.y + from.height, middle = (from.bottom + to.top) / 2;
  return `M${x1} ${begin} V${from.bottom} C${x1} ${middle} ${x2} ${middle} ${x2} ${to.top - (to.joint ? 0 : 5)} V${to.y}`;
}
