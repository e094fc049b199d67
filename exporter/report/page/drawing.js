"use strict";
// Draws a graph from its layout: boxes, lines, the colours of origins and errors.

const ORIGINS = [
  ["as-is", "written as is", "One ONNX operator for one operator of the model."],
  ["composed", "composed", "Several ONNX operators write one operator of the model."],
  ["recognised", "recognised", "An optimization wrote one operator for several, or rewrote it."],
  ["folded", "folded", "Computed ahead of time, merged into another operator, or not needed."],
  ["unsupported", "not supported", "The opset cannot express it."],
];
const MOST_SEEN = 56; // Boxes that are seen at first.
const UNSUPPORTED = ORIGINS.length - 1;

function originOf(node) {
  return node.origin < 0 ? ["interface", "input or output of the model"] : ORIGINS[node.origin];
}

// The class of an error, by its share of the tolerance.
function errorClass(share) {
  if (share === undefined) return "error-none";
  if (share > 1) return "error-outside";
  return share > 0.1 ? "error-high" : share > 1e-3 ? "error-middle" : "error-low";
}

class GraphDrawing {
  // `shares` has the error of nodes by their place, as a share of the tolerance.
  constructor(picture, title, shares) {
    this.tree = makeTree(picture);
    this.title = title;
    this.shares = shares || new Map();
    this.unfolded = firstUnfolded(this.tree, MOST_SEEN);
    this.known = new Map();
    this.selected = null;
    this.byError = false;
    this.scene = drawn("g", {});
    this.legend = element("ul", { class: "legend", "aria-label": "Colours" });
    GraphDrawing.count = (GraphDrawing.count || 0) + 1;
    this.arrow = `arrow-${GraphDrawing.count}`;
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
    const paths = found.links.map((link) =>
      drawn("path", {
        class: "line",
        d: curve(link),
        "marker-end": link.to.joint || link.to.port !== undefined || link.to.open ? null : `url(#${this.arrow})`,
      }),
    );
    const boxes = found.cells.map((cell) => this.cell(cell, found, x, y));
    const marks = found.marks.map(({ to, maker }) => {
      const node = this.tree.nodes[maker];
      return drawn(
        "path",
        { class: "mark", d: `M${to.x + to.width / 2} ${to.y} v-9 m-3 0 h6` },
        drawn("title", {}, `also reads ${node.operator} ${node.name}, further up`),
      );
    });
    group.append(...paths, ...boxes, ...marks);
    return group;
  }

  cell(cell, found, x, y) {
    if (cell.port !== undefined)
      return drawn("circle", { class: "port", cx: cell.x + 4, cy: cell.y + (cell.last ? 4 : 0), r: 3 });
    const { item } = cell;
    this.places.set(item.id, { x: x + cell.x, y: y + cell.y, width: cell.width, height: cell.height });
    const group = item.isModule
      ? drawn("g", { class: `module ${cell.open ? "open" : "folded"}`, "data-id": item.id })
      : this.node(cell, item);
    this.boxes.set(item.id, group);
    if (!item.isModule) return group;
    group.append(
      drawn("title", {}, `${item.path || item.name}${item.kind ? ` (${item.kind})` : ""}`),
      drawn("rect", { x: cell.x, y: cell.y, width: cell.width, height: cell.height, rx: 8 }),
    );
    if (cell.open) {
      group.append(
        drawn(
          "text",
          { x: cell.x + 24, y: cell.y + 17, class: "title" },
          clipped(item.name, Math.max(6, Math.floor((cell.width - 34) / 7.6))),
        ),
        this.sign(cell.x + 12, cell.y + 13, "−"),
      );
      const inside = found.inner.get(item.id);
      return drawn("g", {}, group, this.module(inside, cell, x + cell.x, y + cell.y));
    }
    group.append(
      drawn("text", { x: cell.x + 24, y: cell.y + 20, class: "title" }, clipped(item.name, 30)),
      drawn("text", { x: cell.x + 12, y: cell.y + 36, class: "note" }, clipped(noteOf(item), 34)),
    );
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
    return groups
      .filter(([, count]) => count)
      .map(([name, count]) => {
        const width = ((cell.width - 24) * count) / total;
        x += width;
        return drawn("rect", {
          class: `part ${name}`,
          x: x - width,
          y: cell.y + cell.height - 8,
          width,
          height: 4,
          rx: 1,
        });
      });
  }

  errorsIn(module) {
    const counts = new Map();
    const visit = (item) => {
      if (item.isModule) item.children.forEach(visit);
      else {
        const name = errorClass(this.shares.get(item.place));
        counts.set(name, (counts.get(name) || 0) + 1);
      }
    };
    visit(module);
    return ["error-outside", "error-high", "error-middle", "error-low", "error-none"].map((name) => [
      name,
      counts.get(name) || 0,
    ]);
  }

  node(cell, node) {
    const kind = this.byError ? errorClass(this.shares.get(node.place)) : originOf(node)[0];
    const note = noteOfNode(node),
      title = node.origin < 0 ? node.name : node.operator;
    return drawn(
      "g",
      { class: `node ${kind}`, "data-id": node.id },
      drawn("title", {}, `${node.operator} ${node.name}\n${node.results}`),
      drawn("rect", {
        x: cell.x,
        y: cell.y,
        width: cell.width,
        height: cell.height,
        rx: node.origin < 0 ? cell.height / 2 : 4,
      }),
      drawn("text", { x: cell.x + cell.width / 2, y: cell.y + (note ? 16 : 18), class: "title" }, clipped(title, 26)),
      note ? drawn("text", { x: cell.x + cell.width / 2, y: cell.y + 30, class: "note" }, note) : null,
    );
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
      for (const module of around.slice(1))
        if (!this.unfolded.has(module.id)) {
          at = module;
          break;
        }
      return this.places.get(at.id);
    };
    const own = this.places.get(item.id);
    if (!own) return;
    const line = (from, to) =>
      from &&
      to &&
      drawn("path", {
        class: "near",
        d: arc(from.x + from.width / 2, from.y + from.height, to.x + to.width / 2, to.y),
      });
    const lines = [
      ...this.tree.makers[item.place].map((place) => line(shown(place), own)),
      ...this.tree.readers[item.place].map((place) => line(own, shown(place))),
    ];
    this.scene.append(...lines.filter(Boolean));
  }

  drawLegend() {
    const counts = this.tree.modules[0].counts;
    const entries = this.byError
      ? [
          ["error-low", "up to 0.1 % of the tolerance"],
          ["error-middle", "up to 10 %"],
          ["error-high", "up to 100 %"],
          ["error-outside", "outside"],
          ["error-none", "not compared"],
        ]
      : ORIGINS.map(([name, text, meaning], code) =>
          counts[code] ? [name, `${text} (${counts[code].toLocaleString("en")})`, meaning] : null,
        ).filter(Boolean);
    this.legend.replaceChildren(
      ...entries.map(([name, text, meaning]) =>
        element("li", { title: meaning }, element("span", { class: `swatch ${name}` }), text),
      ),
    );
  }

  item(id) {
    return id === null ? null : id[0] === "m" ? this.tree.modules[id.slice(1)] : this.tree.nodes[id.slice(1)];
  }
}

function arc(x1, y1, x2, y2) {
  return `M${x1} ${y1} C${x1} ${y1 + 40} ${x2} ${y2 - 40} ${x2} ${y2}`;
}

// A line from the foot of one cell to the head of another one, in the gap between their rows.
function curve({ from, to, x1, x2 }) {
  if (from.joint) x1 = from.x + 2;
  if (to.joint) x2 = to.x + 2;
  const begin = from.joint ? from.y : from.y + from.height,
    middle = (from.bottom + to.top) / 2;
  const end = to.top - (to.joint ? 0 : 5);
  return `M${x1} ${begin} V${from.bottom} C${x1} ${middle} ${x2} ${middle} ${x2} ${end} V${to.y}`;
}
