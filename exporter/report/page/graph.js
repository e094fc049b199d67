"use strict";
// The picture of a graph as it is used: panned, zoomed, folded, searched, with the details of what is selected.

const KEYS = "Arrow keys select boxes, Enter folds and unfolds, plus and minus zoom, 0 shows the whole graph.";
const MOST_UNFOLDED = 2500; // Nodes that "Unfold all" shows.

class GraphView extends GraphDrawing {
  constructor(picture, title, shares) {
    super(picture, title, shares);
    this.view = { x: 0, y: 0, scale: 1 };
    this.build();
  }

  build() {
    this.canvas = drawn(
      "svg",
      {
        class: "graph",
        tabindex: 0,
        role: "application",
        "aria-label": `${this.title}. ${KEYS}`,
      },
      drawn(
        "defs",
        {},
        drawn(
          "marker",
          {
            id: this.arrow,
            viewBox: "0 0 8 8",
            refX: 7,
            refY: 4,
            markerWidth: 7,
            markerHeight: 7,
            orient: "auto",
          },
          drawn("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }),
        ),
      ),
      this.scene,
    );
    this.details = element("div", { class: "details", "aria-live": "polite" });
    this.found = element("output", { class: "quiet" });
    const button = (text, label, action) =>
      element("button", { type: "button", title: label, "aria-label": label, onclick: action }, text);
    this.search = element("input", {
      type: "search",
      placeholder: "Find an operator or module",
      "aria-label": "Find an operator or module",
      onkeydown: (event) => {
        if (event.key === "Enter") this.find();
      },
    });
    const tools = [
      this.search,
      this.found,
      element("span", { class: "spring" }),
      button("−", "Zoom out", () => this.zoom(1 / 1.3)),
      button("+", "Zoom in", () => this.zoom(1.3)),
      button("Fit", "Show the whole graph", () => this.fit(true)),
      button("Fold all", "Fold all modules", () => this.setUnfolded(new Set(["m0"]))),
      button("Unfold all", "Unfold modules", () => this.unfoldAll()),
    ];
    if (this.shares.size) {
      tools.splice(
        2,
        0,
        element(
          "label",
          {},
          "Colour ",
          element(
            "select",
            {
              onchange: (event) => {
                this.byError = event.target.value === "error";
                this.draw();
              },
            },
            element("option", { value: "origin" }, "by origin"),
            element("option", { value: "error" }, "by error"),
          ),
        ),
      );
    }
    this.body = element(
      "div",
      { class: "graph-box" },
      element("div", { class: "tools" }, tools),
      this.legend,
      this.canvas,
      this.details,
    );
    this.listen();
  }

  listen() {
    const held = new Map();
    let moved = 0,
      apart = 0;
    const middle = () => {
      const all = [...held.values()];
      return { x: all.reduce((s, p) => s + p.x, 0) / all.length, y: all.reduce((s, p) => s + p.y, 0) / all.length };
    };
    const spread = () => {
      const [a, b] = [...held.values()];
      return b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      moved = 0;
      apart = spread();
    });
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
    for (const end of ["pointerup", "pointercancel"])
      this.canvas.addEventListener(end, (event) => {
        held.delete(event.pointerId);
        apart = spread();
      });
    this.canvas.addEventListener("click", (event) => {
      const box = event.target.closest("[data-id]");
      if (box && moved <= 4) this.select(box.dataset.id, event.detail > 1 || event.target.closest(".fold") !== null);
    });
    // Without a modifier the wheel scrolls the page.
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), { x: event.clientX, y: event.clientY });
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const keys = {
      ArrowDown: () => this.step(1),
      ArrowRight: () => this.step(1),
      ArrowUp: () => this.step(-1),
      ArrowLeft: () => this.step(-1),
      Enter: () => this.select(this.selected, true),
      " ": () => this.select(this.selected, true),
      "+": () => this.zoom(1.3),
      "=": () => this.zoom(1.3),
      "-": () => this.zoom(1 / 1.3),
      0: () => this.fit(true),
      Escape: () => this.select(null),
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
      ...modules
        .slice(1)
        .filter((module) => `${module.name} ${module.path} ${module.kind}`.toLowerCase().includes(text)),
      ...nodes.filter((node) => `${node.operator} ${node.name} ${node.sources}`.toLowerCase().includes(text)),
    ].map((item) => item.id);
    const at = hits.indexOf(this.selected) + 1;
    this.found.textContent = hits.length ? `${(at % hits.length) + 1} of ${hits.length}` : "not found";
    if (hits.length) this.reveal(hits[at % hits.length]);
  }

  describe(item) {
    if (!item) {
      this.details.replaceChildren();
      return;
    }
    const rows = item.isModule
      ? [
          ["module", item.path || item.name || "the model"],
          ["class", item.kind],
          ["nodes", String(item.size)],
          [
            "origins",
            item.counts
              .map((count, code) => (count ? `${count} ${ORIGINS[code][1]}` : ""))
              .filter(Boolean)
              .join(", "),
          ],
          ["", item.cut ? "The report leaves out the nodes of this module, to stay small." : ""],
        ]
      : [
          ["operator", item.operator],
          ["name", item.name],
          ["module", this.tree.modules[item.parent].path],
          ["made from", item.sources],
          ["result", item.results],
          ["arguments", item.attributes],
          ["line", item.line],
          ["origin", originOf(item)[1]],
          ["error", this.shares.has(item.place) ? `${short(this.shares.get(item.place))} of the tolerance` : ""],
        ];
    const near = (title, places) =>
      places.length
        ? [
            element("dt", {}, title),
            element(
              "dd",
              {},
              places
                .slice(0, 12)
                .map((place) =>
                  element(
                    "button",
                    { type: "button", class: "link", onclick: () => this.reveal(`n${place}`) },
                    this.tree.nodes[place].operator +
                      (this.tree.nodes[place].name ? ` ${this.tree.nodes[place].name}` : ""),
                  ),
                ),
              places.length > 12 ? ` and ${places.length - 12} more` : "",
            ),
          ]
        : [];
    this.details.replaceChildren(
      element(
        "dl",
        {},
        rows.filter(([, text]) => text).map(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]),
        item.isModule
          ? []
          : [near("reads", this.tree.makers[item.place]), near("read by", this.tree.readers[item.place])],
      ),
    );
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
    const x = at ? at.x - box.left : box.width / 2,
      y = at ? at.y - box.top : box.height / 2;
    const scale = Math.min(3, Math.max(0.02, this.view.scale * by));
    this.view.x = x - ((x - this.view.x) * scale) / this.view.scale;
    this.view.y = y - ((y - this.view.y) * scale) / this.view.scale;
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
