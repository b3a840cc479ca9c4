// Draws the facts of a compilation. Text of the model only ever becomes text nodes and attributes.
"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const view = document.getElementById("view");
const search = document.getElementById("search");
const said = document.getElementById("said");
const state = { tab: "Summary", phase: "lowered", box: null, kernel: null, row: null,
  panes: ["decision", "tir"] };

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "title", "g", "path", "polyline", "line"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name)
                   : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child !== null));
  return made;
}

const us = seconds => seconds === null ? "" : (seconds * 1e6).toFixed(1);
const bytes = size => size < 1e3 ? `${size} B` : size < 1e6 ? `${(size / 1e3).toFixed(1)} kB`
  : `${(size / 1e6).toFixed(2)} MB`;
const percent = (part, whole) => whole ? `${(100 * part / whole).toFixed(0)} %` : "";
// The sizes of a type such as Tensor[(1, 2), float32].
const size = type => (type?.match(/\(([^)]*)\)/)?.[1] ?? "").replaceAll(", ", "×");
const wanted = text => text.toLowerCase().includes(search.value.trim().toLowerCase());

// What a screen reader is told, and shown beside the search.
function tell(words) {
  if (said.textContent !== words) said.textContent = words;
}

function picker(label, names, chosen, pick) {
  return element("select", { "aria-label": label, onchange: event => pick(event.target.value) },
    ...names.map(name => element("option", { selected: name === chosen }, name)));
}

// A table whose rows can be chosen by pointer and keyboard; ``columns`` are [head, cell, is number],
// of which the first names the row.
function table(columns, rows, choose = null, chosen = null) {
  const head = element("tr", {}, ...columns.map(([name, , number]) =>
    element("th", { scope: "col", class: number ? "n" : null }, name)));
  const body = rows.map(row => element("tr", choose ? {
    class: row === chosen ? "row chosen" : "row", tabindex: 0,
    onclick: () => choose(row), onkeydown: event => { if (event.key === "Enter") choose(row); },
  } : {}, ...columns.map(([, cell, number]) =>
    element("td", { class: number ? "n" : "name" }, String(cell(row) ?? "")))));
  return element("div", { class: "wide" }, element("table", { class: columns.some(one => one[2]) ? null : "pairs" },
    element("thead", {}, head), element("tbody", {}, ...body)));
}

// The kernels with the time of all their calls.
const kernels = (() => {
  const found = new Map();
  for (const call of facts.calls) {
    const sum = found.get(call.symbol) ?? { symbol: call.symbol, op: call.op, calls: 0, seconds: 0,
      limit: 0, flops: 0, bytes: 0, implementation: call.implementation };
    sum.calls += 1;
    for (const key of ["seconds", "flops", "bytes"]) sum[key] += call[key];
    sum.limit = call.limit === null || sum.limit === null ? null : sum.limit + call.limit;
    found.set(call.symbol, sum);
  }
  for (const kernel of facts.kernels) {
    const sum = found.get(kernel.symbol);
    if (sum) Object.assign(sum, kernel);
  }
  return [...found.values()].sort((a, b) => b.seconds - a.seconds);
})();
const total = kernels.reduce((sum, kernel) => sum + kernel.seconds, 0);

function summary() {
  const rows = [["signature", facts.signature], ["target", facts.target],
    ["whole call", `${us(facts.module_seconds)} us`],
    ["kernels", `${kernels.length}, called ${facts.calls.length} times, ${us(total)} us`],
    ["limit of the machine", facts.limit_seconds
      ? `${us(facts.limit_seconds)} us, of which the call reaches ${percent(facts.limit_seconds, facts.module_seconds)}` : "unknown"],
    ["arena", facts.arena === null ? "by the sizes of the inputs" : bytes(facts.arena)],
    ["weights", bytes(facts.weights.reduce((sum, one) => sum + one.bytes, 0))]];
  return element("div", {}, table([["fact", r => r[0]], ["value", r => r[1]]], rows),
    element("h2", {}, "Changes of plan"),
    facts.fallbacks.length ? element("pre", {}, facts.fallbacks.join("\n\n"))
      : element("p", { class: "dim" }, "None."),
    element("h2", {}, "Calls in time"), timeline());
}

// The calls of each lane in time; arrow keys go from call to call, Enter opens the kernel.
function timeline() {
  const lanes = [...new Set(facts.calls.map(call => call.lane))], height = 30, left = lanes.length > 1 ? 110 : 0;
  const end = Math.max(...facts.calls.map(c => c.start + c.seconds), 1e-12), width = 1000 - left;
  const words = call => `${call.op}, ${us(call.seconds)} us from ${us(call.start)} us`;
  const bars = facts.calls.map(call => element("rect", { class: "bar", height: height - 6,
    y: 4 + height * lanes.indexOf(call.lane), x: left + width * call.start / end,
    width: Math.max(width * call.seconds / end - 0.4, 0.4),
    onclick: () => show("Kernels", { kernel: call.symbol }) }, element("title", {}, words(call))));
  let at = -1;
  const told = element("p", { class: "dim", "aria-live": "polite" }, "Arrow keys go from call to call.");
  const move = event => {
    if (event.key === "Enter" && at >= 0) return show("Kernels", { kernel: facts.calls[at].symbol });
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    bars[at]?.classList.remove("chosen");
    at = Math.min(Math.max(at + step, 0), bars.length - 1);
    bars[at].classList.add("chosen");
    told.textContent = `call ${at + 1} of ${bars.length}: ${words(facts.calls[at])}`;
  };
  const names = left ? lanes.map((lane, n) => element("text", { x: 0, y: 22 + height * n }, lane)) : [];
  const whole = height * lanes.length + 8;
  return element("div", {}, element("svg", { viewBox: `0 0 1000 ${whole}`, width: "100%",
    height: left ? null : whole, preserveAspectRatio: left ? null : "none",
    role: "application", tabindex: 0, onkeydown: move, "aria-label": "calls of kernels in time" },
  ...names, ...bars), told);
}

// A text with the lines that the search finds marked, or those that ``marks`` says.
function textOf(whole, marks = null) {
  const made = element("pre", { tabindex: 0 }), asked = search.value.trim() !== "";
  if (!asked && !marks) made.append(whole);
  else for (const line of whole.split("\n")) {
    made.append((marks ? marks(line) : wanted(line)) ? element("mark", {}, line) : line, "\n");
  }
  return made;
}

// A kernel with two of its texts side by side.
function kernelPanel(kernel, note = "") {
  const texts = { decision: kernel.decision ?? "", ...kernel.texts }, names = Object.keys(texts);
  const pane = side => {
    const shown = names.includes(state.panes[side]) ? state.panes[side] : names[side] ?? names[0];
    const made = element("div", {});
    const fill = name => made.replaceChildren(picker(side ? "right text" : "left text", names, name,
      other => { state.panes[side] = other; fill(other); }), textOf(texts[name] ?? ""));
    fill(shown);
    return made;
  };
  const figures = [`${us(kernel.seconds)} us in ${kernel.calls} call${kernel.calls > 1 ? "s" : ""}`,
    percent(kernel.seconds, total), `${(kernel.flops / kernel.seconds / 1e9).toFixed(1)} GFLOP/s`,
    kernel.limit ? `${percent(kernel.limit, kernel.seconds)} of the limit` : ""].filter(Boolean);
  return element("div", {}, element("p", {}, element("b", {}, kernel.op), ` — ${kernel.implementation}`),
    element("p", { class: "type" }, `${(kernel.takes ?? []).join(", ")} → ${kernel.gives ?? ""}`),
    element("p", {}, figures.join(" · ")), note ? element("p", { class: "dim" }, note) : null,
    names.length ? element("div", { class: "split panes" }, pane(0), pane(1)) : null);
}

// Show where a kernel is in the graph of the last phase.
function showInGraph(kernel) {
  const phase = foldable(facts.phases.lowered);
  const number = phase.nodes.findIndex(node => node.kernel === kernel.symbol);
  phase.around[number].forEach(scope => phase.closed.delete(scope));
  show("Graph", { phase: "lowered", box: `n${number}` });
}

function kernelView() {
  const rows = kernels.filter(kernel =>
    wanted(`${kernel.op} ${kernel.implementation} ${kernel.takes} ${kernel.gives}`));
  const chosen = kernels.find(kernel => kernel.symbol === state.kernel) ?? rows[0];
  const list = table([["operators", k => `${k.op}  ${size(k.gives)}`],
    ["us", k => us(k.seconds), true], ["share", k => percent(k.seconds, total), true],
    ["calls", k => k.calls, true], ["GFLOP/s", k => (k.flops / k.seconds / 1e9).toFixed(1), true],
    ["of limit", k => k.limit ? percent(k.limit, k.seconds) : "", true]],
    rows, kernel => show("Kernels", { kernel: kernel.symbol }), chosen);
  if (!chosen) return element("p", { class: "dim" }, "No kernel is found.");
  list.classList.add("list");
  const isDrawn = facts.phases.lowered.nodes.some(node => node.kernel === chosen.symbol);
  return element("div", { class: "split" }, list, element("div", {}, isDrawn ? element("button", { class: "framed",
    onclick: () => showInGraph(chosen) }, "show in the graph") : null,
    kernelPanel(chosen)));
}

function memory() {
  const { arena, steps, buffers } = facts.memory;
  if (!buffers.length) return element("p", { class: "dim" }, "The program has no planned arena.");
  const boxes = buffers.map(one => element("rect", { class: "bar", stroke: "var(--back)",
    x: 1000 * one.first / steps, width: 1000 * (one.last - one.first + 1) / steps,
    y: 400 * (1 - (one.offset + one.size) / arena), height: Math.max(400 * one.size / arena, 0.5) },
    element("title", {}, `${bytes(one.size)} at ${one.offset}, steps ${one.first} to ${one.last}`)));
  const live = Array(steps).fill(0);
  for (const one of buffers) for (let step = one.first; step <= Math.min(one.last, steps - 1); step++) live[step] += one.size;
  const most = Math.max(...live), peak = live.indexOf(most);
  const line = live.flatMap((size, step) => [0, 1].map(end =>
    `${1000 * (step + end) / steps},${400 * (1 - size / arena)}`)).join(" ");
  return element("div", {}, element("p", {}, `At most ${bytes(most)} are live at once, in step ${peak} `
    + `(${facts.calls[peak]?.op ?? ""}): the line. `, `Temporaries in ${bytes(arena)}, without the workspaces of kernels and `
    + "without results in place: the width of a box is its live range, the height its bytes."),
  element("svg", { viewBox: "0 0 1000 400", width: "100%", role: "img",
    "aria-label": `live ranges and places of temporaries; at most ${bytes(most)} live, in step ${peak}` },
  ...boxes, element("polyline", { class: "live", points: line })),
  table([["written by", b => facts.calls[b.first]?.op ?? ""],
    ["bytes", b => bytes(b.size), true], ["offset", b => b.offset, true],
    ["first step", b => b.first, true], ["last step", b => b.last, true]],
  [...buffers].sort((a, b) => b.size - a.size).slice(0, 200)));
}

function weights() {
  const rows = facts.weights.filter(one => wanted(`${one.name} ${one.dtype} ${one.shape.join("x")}`));
  const body = rows.slice(0, 300).map(one => element("tr", {},
    element("td", { class: "name" }, one.name || "constant"),
    element("td", {}, one.histogram ? histogram(one) : ""),
    element("td", { class: "n" }, one.histogram ? one.low.toPrecision(3) : ""),
    element("td", { class: "n" }, one.histogram ? one.high.toPrecision(3) : ""),
    element("td", { class: "n" }, `${one.dtype} ${one.shape.join("×")}`),
    element("td", { class: "n" }, bytes(one.bytes)),
    element("td", { class: one.not_finite ? "n warm" : "n" }, one.histogram
      ? `${one.zeros} zeros${one.not_finite ? `, ${one.not_finite} not finite` : ""}` : "")));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {},
    ...["used by", "distribution", "least", "largest", "type", "bytes", ""].map((name, at) =>
      element("th", { scope: "col", class: at > 1 ? "n" : null }, name)))), element("tbody", {}, ...body)));
}

function histogram(one) {
  const most = Math.max(...one.histogram, 1), width = 160 / one.histogram.length;
  return element("svg", { viewBox: "0 0 160 28", width: 160, height: 28, role: "img",
    "aria-label": `from ${one.low} to ${one.high}` }, ...one.histogram.map((count, number) =>
    element("rect", { class: "bar", x: number * width, width: width - 0.5,
      y: 28 * (1 - count / most), height: 28 * count / most })));
}

// Two compilations or runs: facts of both, kernels by operators, and texts with their differences.
function comparison() {
  const other = facts.against, rows = other.rows.filter(row => wanted(row.op));
  const chosen = other.rows.find(row => row.op === state.row);
  const pairs = [["title", facts.title, other.title], ["target", facts.target, other.target === facts.target ? "the same" : other.target],
    ["whole call, us", us(facts.module_seconds), us(other.module_seconds)],
    ["calls of kernels", facts.calls.length, other.calls.length],
    ["distinct kernels", facts.kernels.length, other.kernels.length],
    ["arena", facts.arena === null ? "" : bytes(facts.arena), other.arena === null ? "" : bytes(other.arena)]];
  const list = table([["operators", r => r.op], ["us here", r => us(r.one), true], ["us there", r => us(r.other), true],
    ["ratio", r => r.other ? (r.one / r.other).toFixed(2) : "", true],
    ["implementation", r => r.implementations[0] === r.implementations[1] ? r.implementations[0]
      : `${r.implementations[0] || "none"} → ${r.implementations[1] || "none"}`]],
  rows, row => show("Comparison", { row: row.op }), chosen);
  return element("div", {}, table([["", r => r[0]], ["here", r => r[1]], ["there", r => r[2]]], pairs),
    element("h2", {}, "Kernels of the same operators together"), list, chosen ? beside(chosen.op) : null);
}

// The slowest kernel of an operator on both sides; lines that the other side lacks are marked.
function beside(op) {
  const slowest = side => {
    const seconds = symbol => side.calls.filter(call => call.symbol === symbol).reduce((sum, c) => sum + c.seconds, 0);
    return side.kernels.filter(kernel => kernel.op === op).sort((a, b) => seconds(b.symbol) - seconds(a.symbol))[0];
  };
  const both = [slowest(facts), slowest(facts.against)];
  const texts = both.map(kernel => kernel ? { decision: kernel.decision, ...kernel.texts } : {});
  const names = [...new Set(texts.flatMap(Object.keys))], stage = names.includes(state.panes[0]) ? state.panes[0] : names[0];
  const lines = texts.map(one => new Set((one[stage] ?? "").split("\n")));
  return element("div", {}, element("h2", {}, op),
    picker("text", names, stage, name => show("Comparison", { panes: [name, state.panes[1]] })),
    element("div", { class: "split" }, ...both.map((kernel, side) => element("div", {},
      element("p", { class: "type" }, kernel ? kernel.gives : "no such kernel"),
      textOf(texts[side][stage] ?? "", line => !lines[1 - side].has(line))))));
}

const views = { Summary: summary, Graph: graph, Kernels: kernelView, Memory: memory,
  Weights: weights, ...(facts.against ? { Comparison: comparison } : {}) };

function show(tab, change = {}) {
  Object.assign(state, change, { tab });
  location.hash = tab;
  for (const button of document.querySelectorAll("nav button")) {
    button.setAttribute("aria-selected", button.textContent === tab);
    button.setAttribute("tabindex", button.textContent === tab ? 0 : -1);
  }
  if (change.kernel === undefined && change.row === undefined) tell("");
  view.replaceChildren(views[tab]());
}

const names = Object.keys(views), nav = document.querySelector("nav");
nav.append(...names.map(name => element("button", { role: "tab", onclick: () => show(name) }, name)));
nav.addEventListener("keydown", event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = (names.indexOf(state.tab) + step + names.length) % names.length;
  show(names[next]);
  nav.children[next].focus();
});
search.addEventListener("input", () => {
  if (state.tab === "Graph") mark(graphView.drawing, graphView.phase);
  else show(state.tab);
});
search.addEventListener("keydown", event => {
  if (event.key === "Enter" && state.tab === "Graph") nextFound();
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
});
const asked = decodeURIComponent(location.hash.slice(1));
show(names.includes(asked) ? asked : "Summary");
