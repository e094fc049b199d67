"use strict";
// Layered layout of a graph whose modules fold. Each unfolded module is laid out by itself and is then a box
// in the layout of the module around it. An edge that crosses the border of a module passes a port there.

const GAP = { x: 18, y: 30, border: 14, header: 26 };
const MOST_PORTS = 8;
const LONGEST_EDGE = 8; // Ranks that a line crosses; a longer edge is a short mark at its reader.

// The tree of modules, with what is drawn between the children of each.
function makeTree(picture) {
  const modules = picture.modules.map(([name, path, kind, parent, counts, cut], place) => ({
    id: `m${place}`,
    place,
    name,
    path,
    kind,
    parent,
    counts,
    cut,
    children: [],
    size: 0,
    isModule: true,
  }));
  const nodes = picture.nodes.map(([operator, name, module, origin, sources, results, line, attributes], place) => ({
    id: `n${place}`,
    place,
    operator,
    name,
    parent: module,
    origin,
    sources,
    results,
    line,
    attributes,
    isModule: false,
  }));
  for (const module of modules)
    Object.assign(module, {
      lines: new Map(),
      enters: new Set(),
      leaves: new Set(),
      depth: module.parent < 0 ? 0 : modules[module.parent].depth + 1,
    });
  const placed = new Set();
  for (const node of nodes) {
    let item = node;
    while (true) {
      const above = modules[item.parent];
      above.children.push(item);
      if (item.parent === 0 || placed.has(above.id)) break;
      placed.add(above.id);
      item = above;
    }
    for (let at = node.parent; at >= 0; at = modules[at].parent) modules[at].size += 1;
  }
  const tree = { modules, nodes, makers: nodes.map(() => []), readers: nodes.map(() => []) };
  for (const [maker, reader] of picture.edges) {
    tree.makers[reader].push(maker);
    tree.readers[maker].push(reader);
    addLines(tree, nodes[maker], nodes[reader]);
  }
  return tree;
}

function above(tree, item) {
  const found = [];
  for (let at = item.parent; at >= 0; at = tree.modules[at].parent) found.push(tree.modules[at]);
  return found;
}

// The parts of one edge: out of the modules of its maker, across, and into the modules of its reader.
function addLines(tree, maker, reader) {
  const out = above(tree, maker),
    into = above(tree, reader);
  while (out.length > 1 && into.length > 1 && out[out.length - 2] === into[into.length - 2]) {
    out.pop();
    into.pop();
  }
  const common = out.pop();
  into.pop();
  let from = maker,
    to = reader;
  for (const module of out) {
    addLine(module, from, null, maker);
    module.leaves.add(maker.place);
    from = module;
  }
  for (const module of into) {
    addLine(module, null, to, maker);
    module.enters.add(maker.place);
    to = module;
  }
  addLine(common, from, to, maker);
}

// A part between two children of a module; null is the module's border.
function addLine(module, from, to, maker) {
  const key = `${from ? from.id : ""} ${to ? to.id : ""} ${maker.place}`;
  if (!module.lines.has(key)) module.lines.set(key, { from, to, maker: maker.place });
}

function textWidth(text, size) {
  return text.length * size * 0.58;
}

function clipped(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function boxOf(item) {
  if (item.isModule) {
    const title = clipped(item.name || "model", 30),
      note = clipped(noteOf(item), 34);
    return { width: Math.max(110, textWidth(title, 13), textWidth(note, 11)) + 28, height: 50 };
  }
  const note = noteOfNode(item);
  return {
    width:
      Math.max(64, textWidth(clipped(item.origin < 0 ? item.name : item.operator, 26), 12), textWidth(note, 10)) + 20,
    height: note ? 38 : 28,
  };
}

function noteOf(module) {
  const count = module.counts.reduce((a, b) => a + b, 0) || module.size;
  return (module.kind ? `${module.kind} · ` : "") + counted(count, "node");
}

// What stands below the operator: the module of a node that is its only one, or the result.
function noteOfNode(node) {
  const end = node.name.lastIndexOf("/");
  return clipped(end > 0 && node.origin >= 0 ? node.name.slice(0, end) : resultOf(node), 30);
}

function resultOf(node) {
  return node.results.startsWith("float32[") ? node.results.slice(7) : node.results;
}

// Lays out a module: sizes, and positions of its children relative to its own corner.
// Layouts are kept in `known` until a module inside folds or unfolds.
function layout(tree, module, unfolded, known) {
  if (known.has(module.id)) return known.get(module.id);
  const cells = new Map();
  const inner = new Map();
  for (const child of module.children) {
    const open = child.isModule && unfolded.has(child.id);
    if (open) inner.set(child.id, layout(tree, child, unfolded, known));
    const box = open ? inner.get(child.id) : boxOf(child);
    cells.set(child.id, { id: child.id, item: child, open, width: box.width, height: box.height });
  }
  if (module.parent >= 0) {
    for (const maker of module.enters) addPort(cells, portOf(module, maker, false), maker, false);
    for (const maker of module.leaves) addPort(cells, portOf(module, maker, true), maker, true);
  }
  const lines = [...module.lines.values()]
    .map((line) => ({
      from: cells.get(line.from ? line.from.id : portOf(module, line.maker, false)),
      to: cells.get(line.to ? line.to.id : portOf(module, line.maker, true)),
      maker: line.maker,
    }))
    .filter((line) => line.from && line.to);
  const ranks = ranked([...cells.values()], lines);
  const { rows, links, marks } = routed(ranks, lines);
  order(rows, links);
  const size = position(rows, links, inner, module.parent >= 0);
  const found = { ...size, cells: [...cells.values()], links, marks, inner };
  known.set(module.id, found);
  return found;
}

// The port of a module for the results of a node; a module with many of them has one port for all.
function portOf(module, maker, leaves) {
  const makers = leaves ? module.leaves : module.enters;
  return `${leaves ? "o" : "i"}${makers.size > MOST_PORTS ? "*" : maker}`;
}

function addPort(cells, id, maker, last) {
  cells.set(id, { id, port: maker, width: 8, height: 4, last });
}

// Each cell below everything that it reads; what reads nothing just above its first reader.
function ranked(cells, lines) {
  const place = new Map(cells.map((cell, index) => [cell.id, cell.port === undefined ? index : cell.last ? 1e9 : -1]));
  const sorted = [...lines].sort((a, b) => place.get(a.from.id) - place.get(b.from.id));
  const entered = cells.some((cell) => cell.port !== undefined && !cell.last);
  for (const cell of cells) cell.rank = entered && cell.port === undefined ? 1 : 0;
  for (const line of sorted) line.to.rank = Math.max(line.to.rank, line.from.rank + 1);
  const read = new Set(lines.map((line) => line.to.id));
  const first = new Map();
  for (const line of lines) first.set(line.from.id, Math.min(first.get(line.from.id) ?? Infinity, line.to.rank));
  for (const cell of cells) {
    if (cell.port === undefined && !read.has(cell.id) && first.has(cell.id))
      cell.rank = Math.max(cell.rank, first.get(cell.id) - 1);
  }
  const bottom = Math.max(0, ...cells.filter((cell) => !cell.last).map((cell) => cell.rank)) + 1;
  for (const cell of cells) if (cell.last) cell.rank = bottom;
  return cells;
}

// Rows of cells, with joints where a line crosses a row. Lines that begin at one place share their joints,
// and those that end at one place too are one line.
function routed(cells, lines) {
  const rows = [];
  const add = (cell) => (rows[cell.rank] = rows[cell.rank] || []).push(cell);
  cells.forEach(add);
  const links = [],
    marks = [],
    joints = new Map(),
    known = new Set();
  for (const line of lines) {
    const begin = line.from.open ? `${line.from.id} ${line.maker}` : line.from.id;
    const whole = `${begin} ${line.to.id} ${line.to.open ? line.maker : ""}`;
    if (known.has(whole)) continue;
    known.add(whole);
    if (line.to.rank - line.from.rank > LONGEST_EDGE) {
      marks.push({ to: line.to, maker: line.maker });
      continue;
    }
    let from = line.from;
    for (let rank = line.from.rank + 1; rank < line.to.rank; rank += 1) {
      const key = `${begin} ${rank}`;
      if (!joints.has(key)) {
        const joint = { id: `j${key}`, rank, width: 4, height: 0, joint: true };
        joints.set(key, joint);
        add(joint);
        links.push({ from, to: joint, maker: line.maker });
      }
      from = joints.get(key);
    }
    links.push({ from, to: line.to, maker: line.maker });
  }
  for (let rank = 0; rank < rows.length; rank += 1) rows[rank] = rows[rank] || [];
  return { rows, links, marks };
}

function neighbours(links) {
  const up = new Map(),
    down = new Map();
  const add = (map, key, value) => (map.has(key) ? map.get(key).push(value) : map.set(key, [value]));
  for (const link of links) {
    add(down, link.from.id, link.to);
    add(up, link.to.id, link.from);
  }
  return { up, down };
}

// Fewer crossings: cells move to the mean place of what they are linked with, row by row, down and up.
function order(rows, links) {
  const { up, down } = neighbours(links);
  const number = (row) =>
    row.forEach((cell, index) => {
      cell.at = index;
    });
  rows.forEach(number);
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const upwards = sweep % 2 === 1;
    for (const row of upwards ? [...rows].reverse() : rows) {
      for (const cell of row) {
        const linked = (upwards ? down : up).get(cell.id);
        cell.mean = linked ? linked.reduce((sum, other) => sum + other.at, 0) / linked.length : cell.at;
      }
      row.sort((a, b) => a.mean - b.mean || a.at - b.at);
      number(row);
    }
  }
}

// Where a link meets a cell: at the port of an unfolded module, else in the middle.
function meets(cell, maker, inner, below) {
  if (cell.open) {
    const id = portOf(cell.item, maker, below);
    const port = inner.get(cell.id).cells.find((other) => other.id === id);
    if (port) return cell.x + port.x + port.width / 2;
  }
  return cell.x + cell.width / 2;
}

// Coordinates: rows from top to bottom; in a row, each cell near the middle of its neighbours.
function position(rows, links, inner, hasBorder) {
  const { up, down } = neighbours(links);
  for (const row of rows) {
    let x = 0;
    for (const cell of row) {
      cell.x = x;
      x += cell.width + gap(cell);
    }
    const shift = x / 2;
    for (const cell of row) cell.x -= shift;
  }
  for (let sweep = 0; sweep < 10; sweep += 1) {
    const upwards = sweep % 2 === 1;
    for (const row of upwards ? [...rows].reverse() : rows) settle(row, upwards ? down : up);
  }
  const left = Math.min(0, ...rows.flat().map((cell) => cell.x));
  const right = Math.max(80, ...rows.flat().map((cell) => cell.x + cell.width));
  let y = hasBorder ? GAP.header : 0;
  for (const row of rows) {
    const height = Math.max(0, ...row.map((cell) => cell.height));
    for (const cell of row) {
      cell.x += GAP.border - left;
      cell.top = y;
      cell.bottom = y + height;
      cell.y = cell.joint || cell.last ? y : y + (height - cell.height) / 2;
      if (cell.joint) cell.height = height;
    }
    y += height + (row.every((cell) => cell.port !== undefined) ? GAP.y / 2 : GAP.y);
  }
  const size = { width: right - left + 2 * GAP.border, height: y - GAP.y + (hasBorder ? 8 : 0) };
  for (const row of rows)
    for (const cell of row) {
      if (cell.port !== undefined) {
        cell.y = cell.last ? size.height - 4 : 0;
        cell.top = cell.y;
        cell.bottom = cell.y + 4;
      }
    }
  for (const link of links) {
    link.x1 = meets(link.from, link.maker, inner, true);
    link.x2 = meets(link.to, link.maker, inner, false);
  }
  return size;
}

function gap(cell) {
  return cell.joint || cell.port !== undefined ? 10 : GAP.x;
}

// Two placements keep the order and the gaps: packed from the left, and from the right. Their mean does too.
function settle(row, linked) {
  const wanted = row.map((cell) => {
    const others = linked.get(cell.id);
    if (!others) return cell.x;
    return others.reduce((sum, other) => sum + other.x + other.width / 2, 0) / others.length - cell.width / 2;
  });
  const fromLeft = [...wanted],
    fromRight = [...wanted];
  for (let i = 1; i < row.length; i += 1)
    fromLeft[i] = Math.max(wanted[i], fromLeft[i - 1] + row[i - 1].width + gap(row[i - 1]));
  for (let i = row.length - 2; i >= 0; i -= 1)
    fromRight[i] = Math.min(wanted[i], fromRight[i + 1] - row[i].width - gap(row[i]));
  row.forEach((cell, i) => {
    cell.x = (fromLeft[i] + fromRight[i]) / 2;
  });
}

// The modules that are unfolded at first: outer ones, as long as few boxes are seen.
function firstUnfolded(tree, most) {
  const unfolded = new Set(["m0"]);
  let seen = tree.modules[0].children.length;
  let level = tree.modules[0].children.filter((child) => child.isModule);
  while (level.length) {
    const next = [];
    for (const module of level) {
      if (module.cut || seen + module.children.length > most) continue;
      unfolded.add(module.id);
      seen += module.children.length - 1;
      next.push(...module.children.filter((child) => child.isModule));
    }
    level = next;
  }
  return unfolded;
}
