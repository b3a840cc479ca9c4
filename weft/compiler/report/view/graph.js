// The graph of a phase: scopes that fold, layers of nodes, and movement by keyboard.
"use strict";
// Scopes are open at first while no more boxes than these are shown.
const MOST_AT_FIRST = 70, MOST_BOXES = 3000, MOST_BENDS = 6000;
const CHARACTER = 6.7, LINE = 14, PADDING = 12, GAP = 18, BETWEEN = 30, LONGEST = 44, SWEEPS = 6;
const zoom = { factor: 1 };

// The scopes around each node from the outside in, and which of them are closed.
function foldable(phase) {
  if (phase.around) return phase;
  const paths = [];
  phase.scopes.forEach((scope, number) =>
    paths.push([...(scope.parent < 0 ? [] : paths[scope.parent]), number]));
  phase.around = phase.nodes.map(node => node.scope < 0 ? [] : paths[node.scope]);
  phase.paths = paths;
  phase.sizes = phase.scopes.map(() => 0);
  const children = phase.scopes.map(() => 0);
  phase.around.forEach(path => path.forEach(scope => { phase.sizes[scope] += 1; }));
  phase.nodes.forEach(node => { if (node.scope >= 0) children[node.scope] += 1; });
  phase.scopes.forEach(scope => { if (scope.parent >= 0) children[scope.parent] += 1; });
  phase.closed = new Set(phase.scopes.keys());
  let boxes = phase.nodes.filter(node => node.scope < 0).length
    + phase.scopes.filter(scope => scope.parent < 0).length;
  const byDepth = [...phase.scopes.keys()].sort((a, b) => paths[a].length - paths[b].length);
  for (const scope of byDepth) {
    const parent = phase.scopes[scope].parent, seen = parent < 0 || !phase.closed.has(parent);
    if (!seen || boxes - 1 + children[scope] > MOST_AT_FIRST) continue;
    phase.closed.delete(scope);
    boxes += children[scope] - 1;
  }
  return phase;
}

// The boxes of a phase: nodes, and closed scopes in place of the nodes inside them.
function boxesOf(phase) {
  const numbers = new Map(), boxes = [], of = [];
  phase.nodes.forEach((node, number) => {
    const scope = phase.around[number].find(one => phase.closed.has(one));
    const key = scope === undefined ? `n${number}` : `s${scope}`;
    if (!numbers.has(key)) {
      numbers.set(key, boxes.length);
      boxes.push(scope === undefined
        ? { key, kind: node.kind, lines: node.lines, node: number, members: [], inputs: new Set() }
        : { key, kind: "scope", lines: [`▸ ${phase.scopes[scope].title}`, `${phase.sizes[scope]} nodes`],
            scope, members: [], inputs: new Set() });
    }
    of.push(numbers.get(key));
    boxes[of[number]].members.push(number);
  });
  phase.nodes.forEach((node, number) => node.inputs.forEach(used => {
    if (of[used] !== of[number]) boxes[of[number]].inputs.add(of[used]);
  }));
  boxes.forEach(box => { box.users = []; });
  boxes.forEach((box, number) => box.inputs.forEach(used => boxes[used].users.push(number)));
  return boxes;
}

// The layer of each box: below what it reads; what reads nothing is just above its first user.
function layersOf(boxes) {
  const depth = boxes.map(() => -1), open = new Set();
  const visit = number => {
    if (depth[number] >= 0 || open.has(number)) return Math.max(depth[number], 0);
    open.add(number);
    let deepest = -1;  // closed scopes can read from each other: that edge is left out here
    for (const used of boxes[number].inputs) if (!open.has(used)) deepest = Math.max(deepest, visit(used));
    open.delete(number);
    return depth[number] = deepest + 1;
  };
  boxes.forEach((_, number) => visit(number));
  boxes.forEach((box, number) => {
    if (!box.inputs.size && box.users.length) {
      depth[number] = Math.max(0, Math.min(...box.users.map(user => depth[user])) - 1);
    }
  });
  return depth;
}

// Positions of boxes, and the points of each edge; an edge over several layers has a bend in each.
function layout(boxes) {
  const depth = layersOf(boxes), layers = [];
  const put = (item, layer) => { (layers[layer] ??= []).push(item); item.layer = layer; return item; };
  const items = boxes.map((box, number) => {
    const lines = box.lines.map(line => line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line);
    return put({ box, lines, above: [], below: [],
      width: Math.max(...lines.map(line => line.length)) * CHARACTER + PADDING,
      height: lines.length * LINE + PADDING }, depth[number]);
  });
  let bends = 0;
  const edges = [], join = (from, to) => { from.below.push(to); to.above.push(from); };
  boxes.forEach((box, number) => box.inputs.forEach(used => {
    const edge = [items[used]], span = depth[number] - depth[used];
    if (bends + span < MOST_BENDS) for (let layer = depth[used] + 1; layer < depth[number]; layer++, bends++) {
      edge.push(put({ width: 6, height: 0, above: [], below: [] }, layer));
    }
    edge.push(items[number]);
    if (span > 0) for (let n = 1; n < edge.length; n++) join(edge[n - 1], edge[n]);
    edges.push(edge);
  }));
  arrange(layers);
  let y = PADDING;
  for (const layer of layers) {
    const height = Math.max(...layer.map(item => item.height));
    for (const item of layer) { item.y = y; if (!item.box) item.height = height; }
    y += height + BETWEEN;
  }
  const left = Math.min(...items.map(item => item.x - item.width / 2)) - PADDING;
  for (const layer of layers) for (const item of layer) item.x -= left;
  const width = Math.max(...items.map(item => item.x + item.width / 2)) + PADDING;
  return { items, edges, layers, width, height: y };
}

const mean = (items, otherwise) => items.length
  ? items.reduce((sum, item) => sum + item.x, 0) / items.length : otherwise;

// Order and place each layer by the mean of its neighbours, down and up in turns.
function arrange(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const item of layer) { item.x = x + item.width / 2; x += item.width + GAP; }
    for (const item of layer) item.x -= x / 2;
  }
  for (let sweep = 0; sweep < 2 * SWEEPS; sweep++) {
    const side = sweep % 2 ? "below" : "above", orders = sweep < SWEEPS;
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      for (const item of layer) item.wish = mean(item[side], item.x);
      if (orders) layer.sort((a, b) => a.wish - b.wish);
      let right = -Infinity;
      for (const item of layer) {
        item.x = Math.max(item.wish, right + item.width / 2);
        right = item.x + item.width / 2 + GAP;
      }
      const shift = layer.reduce((sum, item) => sum + item.wish - item.x, 0) / layer.length;
      for (const item of layer) item.x += shift;
    }
  }
}

function curve(edge) {
  let path = "", x, y;
  edge.forEach((item, n) => {
    const top = item.y, bottom = item.y + item.height;
    if (n === 0) { [x, y] = [item.x, bottom]; path = `M${x.toFixed(1)} ${y.toFixed(1)}`; return; }
    const middle = (y + top) / 2;
    path += ` C${x.toFixed(1)} ${middle.toFixed(1)} ${item.x.toFixed(1)} ${middle.toFixed(1)} ${item.x.toFixed(1)} ${top.toFixed(1)}`;
    if (!item.box) path += ` V${bottom.toFixed(1)}`;
    [x, y] = [item.x, bottom];
  });
  return path;
}

function boxElement(item, phase) {
  const { box } = item, said = box.kind === "scope"
    ? `${phase.scopes[box.scope].title}, ${phase.sizes[box.scope]} nodes, folded` : box.lines.join(", ");
  return element("g", { class: `node ${box.kind}`, role: "button", tabindex: -1, "data-key": box.key,
    "aria-label": said, "aria-expanded": box.kind === "scope" ? "false" : null },
  element("title", {}, box.lines.join("\n")),
  element("rect", { x: item.x - item.width / 2, y: item.y, width: item.width, height: item.height, rx: 4 }),
  ...item.lines.map((line, n) => element("text", { x: item.x, y: item.y + PADDING + n * LINE + 3 }, line)));
}

function graph() {
  const phase = foldable(facts.phases[state.phase]);
  const drawing = element("div", { class: "drawing" }), side = element("div", { class: "side" });
  const redraw = key => {
    const boxes = boxesOf(phase);
    if (boxes.length > MOST_BOXES) {
      drawing.replaceChildren(element("p", { class: "dim" },
        `${boxes.length} boxes are too many to draw: fold scopes, or see the text.`));
      return;
    }
    draw(drawing, phase, boxes, choose);
    mark(drawing, phase);
    if (key) focusBox(drawing, key);
  };
  const choose = (box, unfolds) => {
    if (box.kind === "scope" && unfolds) return fold(box.scope, false);
    state.box = box.key;
    side.replaceChildren(box.kind === "scope" ? scopePanel(phase, box) : nodePanel(phase, box.node));
    for (const one of drawing.querySelectorAll(".chosen")) one.classList.remove("chosen");
    drawing.querySelector(`[data-key="${box.key}"]`)?.classList.add("chosen");
  };
  const fold = (scope, closes) => {
    phase.closed[closes ? "add" : "delete"](scope);
    const first = phase.around.findIndex(path => path.includes(scope));
    const inner = phase.around[first].find(one => phase.closed.has(one));
    const key = closes ? `s${scope}` : inner === undefined ? `n${first}` : `s${inner}`;
    redraw(key);
    tell(`${phase.scopes[scope].title} ${closes ? "folded" : "unfolded"}`);
    choose(boxesOf(phase).find(box => box.key === key), false);
  };
  Object.assign(graphView, { phase, drawing, redraw, fold, choose });
  const scale = by => () => { zoom.factor = by ? zoom.factor * by : fitting(drawing); resize(drawing); };
  const controls = element("div", { class: "controls" },
    picker("phase", Object.keys(facts.phases), state.phase, name => show("Graph", { phase: name, box: null })),
    element("button", { onclick: () => { phase.closed.clear(); redraw(); } }, "unfold all"),
    element("button", { onclick: () => { phase.closed = new Set(phase.scopes.keys()); redraw(); } }, "fold all"),
    element("button", { onclick: scale(1 / 1.25), "aria-label": "smaller" }, "−"),
    element("button", { onclick: scale(1.25), "aria-label": "larger" }, "+"),
    element("button", { onclick: scale(0) }, "fit"),
    element("span", { class: "dim" }, "arrows move, Enter opens, F folds, / searches"));
  side.append(element("p", { class: "dim" }, "Choose a node."));
  const text = element("details", { ontoggle: event => {
    if (event.target.open && event.target.children.length === 1) event.target.append(textOf(phase.text));
  } }, element("summary", {}, "text of the phase"));
  redraw();
  queueMicrotask(() => {
    const wished = state.box && boxesOf(phase).find(box => box.key === state.box);
    if (wished) { focusBox(drawing, wished.key); choose(wished, false); }
    else if (drawing.placed) {
      drawing.scrollLeft = drawing.placed.layers[0][0].x * zoom.factor - drawing.clientWidth / 2;
    }
  });
  return element("div", {}, controls, element("div", { class: "split" }, drawing, side), text);
}
const graphView = {};

function draw(drawing, phase, boxes, choose) {
  const placed = layout(boxes), byKey = new Map(placed.items.map(item => [item.box.key, item]));
  const svg = element("svg", { class: "graph", viewBox: `0 0 ${placed.width} ${placed.height}`, role: "group",
    "aria-label": `graph of ${boxes.length} boxes` },
  ...placed.edges.map(edge => element("path", { class: "edge", d: curve(edge) })),
  ...placed.items.map(item => boxElement(item, phase)));
  svg.querySelector(".node")?.setAttribute("tabindex", 0);
  const at = event => byKey.get(event.target.closest("[data-key]")?.dataset.key);
  svg.addEventListener("click", event => { const item = at(event); if (item) choose(item.box, false); });
  svg.addEventListener("dblclick", event => { const item = at(event); if (item) choose(item.box, true); });
  svg.addEventListener("keydown", event => {
    const item = at(event);
    if (!item) return;
    const row = placed.layers[item.layer].filter(one => one.box), column = row.indexOf(item);
    const next = { ArrowUp: () => placed.items[[...item.box.inputs][0]],
      ArrowDown: () => placed.items[item.box.users[0]],
      ArrowLeft: () => row[column - 1], ArrowRight: () => row[column + 1] }[event.key]?.();
    if (next) { event.preventDefault(); focusBox(drawing, next.box.key); choose(next.box, false); }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(item.box, true); }
    else if (event.key === "f" || event.key === "F") {
      const scope = item.box.kind === "scope" ? phase.scopes[item.box.scope].parent : phase.nodes[item.box.node].scope;
      if (scope >= 0) graphView.fold(scope, true);
    }
  });
  drawing.replaceChildren(svg);
  drawing.placed = placed;
  resize(drawing);
}

function fitting(drawing) {
  return Math.min(1, drawing.clientWidth / (drawing.placed.width + 2));
}

function resize(drawing) {
  const svg = drawing.querySelector("svg");
  svg?.setAttribute("width", drawing.placed.width * zoom.factor);
  svg?.setAttribute("height", drawing.placed.height * zoom.factor);
}

function focusBox(drawing, key) {
  const found = drawing.querySelector(`[data-key="${key}"]`);
  if (!found) return;
  for (const one of drawing.querySelectorAll('[tabindex="0"]')) one.setAttribute("tabindex", -1);
  found.setAttribute("tabindex", 0);
  found.focus({ preventScroll: true });
  found.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// Mark the boxes that the search finds; returns the numbers of the nodes found.
function mark(drawing, phase) {
  const asked = search.value.trim() !== "";
  const found = asked ? [...phase.nodes.keys()].filter(number => {
    const node = phase.nodes[number];
    return wanted(`${node.lines.join(" ")} ${node.names.join(" ")}`);
  }) : [];
  const keys = new Set(found.map(number => {
    const scope = phase.around[number].find(one => phase.closed.has(one));
    return scope === undefined ? `n${number}` : `s${scope}`;
  }));
  for (const node of drawing.querySelectorAll(".node")) node.classList.toggle("found", keys.has(node.dataset.key));
  tell(asked ? `${found.length} of ${phase.nodes.length} nodes; Enter goes to the next` : "");
  return found;
}

// Unfold what is around the next node that the search finds, and go there.
function nextFound() {
  const { phase, drawing, redraw, choose } = graphView, found = mark(drawing, phase);
  if (!found.length) return;
  const number = found.find(one => one > (graphView.last ?? -1)) ?? found[0];
  graphView.last = number;
  phase.around[number].forEach(scope => phase.closed.delete(scope));
  redraw(`n${number}`);
  choose(boxesOf(phase).find(box => box.key === `n${number}`), false);
  search.focus();
}

function scopePanel(phase, box) {
  const symbols = box.members.map(number => phase.nodes[number].kernel).filter(Boolean);
  const seconds = symbols.reduce((sum, symbol) => {
    const kernel = kernels.find(one => one.symbol === symbol);
    return kernel ? sum + kernel.seconds / kernel.calls : sum;
  }, 0);
  return element("div", {}, element("h2", {}, phase.scopes[box.scope].title),
    element("p", {}, `${box.members.length} nodes`
      + (symbols.length ? `, ${symbols.length} calls of kernels, about ${us(seconds)} us` : "")),
    element("button", { class: "framed", onclick: () => graphView.fold(box.scope, false) }, "unfold"));
}

// The kernels that compute a node: its own, or those of later phases with the same names.
function kernelsOf(node) {
  const symbols = node.kernel ? [node.kernel] : facts.phases.lowered.nodes
    .filter(one => one.kernel && one.names.some(name => node.names.includes(name))).map(one => one.kernel);
  return [...new Set(symbols)].map(symbol => kernels.find(one => one.symbol === symbol)).filter(Boolean);
}

function nodePanel(phase, number) {
  const node = phase.nodes[number], links = (title, numbers) => numbers.length ? element("p", {}, `${title}: `,
    ...numbers.slice(0, 8).map(other => element("button", { class: "framed", onclick: () => {
      phase.around[other].forEach(scope => phase.closed.delete(scope));
      graphView.redraw(`n${other}`);
      graphView.choose(boxesOf(phase).find(box => box.key === `n${other}`), false);
    } }, phase.nodes[other].lines[0])), numbers.length > 8 ? ` and ${numbers.length - 8} more` : null) : null;
  const users = phase.nodes.flatMap((other, at) => other.inputs.includes(number) ? [at] : []);
  const why = node.names.filter(name => facts.decisions?.[name]).map(name => facts.decisions[name]);
  const found = kernelsOf(node);
  return element("div", {}, element("h2", {}, node.lines[0]),
    ...node.lines.slice(1).map(line => element("p", { class: "type" }, line)),
    node.names.length ? element("p", { class: "dim" }, `from ${node.names.slice(0, 6).join(", ")}`) : null,
    links("reads", node.inputs), links("read by", users),
    ...(why.length ? [element("h3", {}, "Algorithm"), element("pre", {}, [...new Set(why)].join("\n"))] : []),
    ...(found.length ? [element("h3", {}, "Kernel"), kernelPanel(found[0], found.length > 1
      ? `one of ${found.length} kernels with a part of this node` : "")]
      : node.names.length ? [element("p", { class: "dim" }, "No kernel has its name: passes replaced or removed it.")] : []));
}
