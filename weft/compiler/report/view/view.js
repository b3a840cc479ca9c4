// Draws the facts of a compilation. Text of the model only ever becomes text nodes; the drawings of
// graphs come from weft, which escapes it.
"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const view = document.getElementById("view");
const search = document.getElementById("search");
const state = { tab: "Summary", phase: "lowered", kernel: null, stage: "decision", sort: "seconds" };

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "title", "g"].includes(name);
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

// A table whose rows can be chosen by pointer and keyboard; ``columns`` are [head, cell, is number].
function table(columns, rows, choose = null, chosen = null) {
  const head = element("tr", {}, ...columns.map(([name, , number]) =>
    element("th", { scope: "col", class: number ? "n" : null }, name)));
  const body = rows.map(row => element("tr", choose ? {
    class: row === chosen ? "row chosen" : "row", tabindex: 0,
    onclick: () => choose(row), onkeydown: event => { if (event.key === "Enter") choose(row); },
  } : {}, ...columns.map(([, cell, number]) =>
    element("td", { class: number ? "n" : "name" }, String(cell(row) ?? "")))));
  return element("div", { class: "wide" }, element("table", {},
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

function timeline() {
  const end = Math.max(...facts.calls.map(c => c.start + c.seconds), 1e-12);
  const bars = facts.calls.map(call => element("rect", { class: "bar", y: 4, height: 30,
    x: 1000 * call.start / end, width: Math.max(1000 * call.seconds / end - 0.4, 0.4),
    onclick: () => show("Kernels", { kernel: call.symbol }) },
    element("title", {}, `${call.op}\n${us(call.seconds)} us`)));
  return element("svg", { viewBox: "0 0 1000 38", width: "100%", role: "img",
    "aria-label": "calls of kernels in time" }, ...bars);
}

function graph() {
  const names = Object.keys(facts.phases);
  const pick = element("select", { "aria-label": "phase",
    onchange: event => show("Graph", { phase: event.target.value }) },
    ...names.map(name => element("option", { selected: name === state.phase }, name)));
  const phase = facts.phases[state.phase], drawing = element("div", { class: "drawing" });
  const detail = element("pre", {}, "Choose a node.");
  if (phase.svg) drawing.innerHTML = phase.svg;
  else drawing.append(element("p", { class: "dim" }, "Too large to draw; see the text."));
  for (const node of drawing.querySelectorAll(".node")) {
    const told = node.querySelector("title").textContent;
    node.setAttribute("tabindex", 0);
    const choose = () => {
      const lines = told.split("\n");
      const kernel = node.classList.contains("kernel")
        && kernels.find(one => one.op === lines[0] && one.gives === lines.at(-1));
      detail.replaceChildren(told, ...(kernel ? ["\n\n", element("button", {
        onclick: () => show("Kernels", { kernel: kernel.symbol }) }, "show the kernel")] : []));
    };
    node.addEventListener("click", choose);
    node.addEventListener("keydown", event => { if (event.key === "Enter") choose(); });
    if (search.value && wanted(told)) node.classList.add("found");
  }
  queueMicrotask(() => {
    const first = drawing.querySelector(".found") ?? drawing.querySelector(".input");
    if (first) first.scrollIntoView({ block: "center", inline: "center" });
    scrollTo(0, 0);
  });
  return element("div", {}, pick, element("div", { class: "split" }, drawing,
    element("div", {}, detail)), text(phase.text));
}

// A text with the lines that the search finds marked.
function text(whole) {
  const made = element("pre", { tabindex: 0 });
  if (!search.value.trim()) made.append(whole);
  else for (const line of whole.split("\n")) {
    made.append(wanted(line) ? element("mark", {}, line) : line, "\n");
  }
  return made;
}

function kernelView() {
  const rows = kernels.filter(kernel =>
    wanted(`${kernel.op} ${kernel.implementation} ${kernel.takes} ${kernel.gives}`));
  const chosen = kernels.find(kernel => kernel.symbol === state.kernel) ?? rows[0];
  const list = table([["us", k => us(k.seconds), true], ["share", k => percent(k.seconds, total), true],
    ["calls", k => k.calls, true], ["GFLOP/s", k => (k.flops / k.seconds / 1e9).toFixed(1), true],
    ["of limit", k => k.limit ? percent(k.limit, k.seconds) : "", true],
    ["operators", k => `${k.op}  ${size(k.gives)}`]],
    rows, kernel => show("Kernels", { kernel: kernel.symbol }), chosen);
  if (!chosen) return element("p", { class: "dim" }, "No kernel is found.");
  const texts = { decision: chosen.decision ?? "", ...chosen.texts };
  const stage = state.stage in texts ? state.stage : "decision";
  const tabs = Object.keys(texts).map(name => element("button", {
    "aria-selected": name === stage, onclick: () => show("Kernels", { stage: name }) }, name));
  list.classList.add("list");
  return element("div", { class: "split" }, list, element("div", {},
    element("h2", {}, chosen.op), element("p", {}, chosen.implementation),
    element("p", { class: "dim" }, `${(chosen.takes ?? []).join(", ")} → ${chosen.gives ?? ""}`),
    element("div", { role: "tablist" }, ...tabs), text(texts[stage])));
}

function memory() {
  const { arena, steps, buffers } = facts.memory;
  if (!buffers.length) return element("p", { class: "dim" }, "The program has no planned arena.");
  const boxes = buffers.map(one => element("rect", { class: "bar", stroke: "var(--back)",
    x: 1000 * one.first / steps, width: 1000 * (one.last - one.first + 1) / steps,
    y: 400 * (1 - (one.offset + one.size) / arena), height: Math.max(400 * one.size / arena, 0.5) },
    element("title", {}, `${bytes(one.size)} at ${one.offset}, steps ${one.first} to ${one.last}`)));
  return element("div", {}, element("p", {}, `Temporaries in ${bytes(arena)}, without the workspaces of kernels and `
    + "without results in place: the width of a box is its live range, the height its bytes."),
  element("svg", { viewBox: "0 0 1000 400", width: "100%", role: "img",
    "aria-label": "live ranges and places of temporaries" }, ...boxes),
  table([["bytes", b => bytes(b.size), true], ["offset", b => b.offset, true],
    ["first step", b => b.first, true], ["last step", b => b.last, true],
    ["written by", b => facts.calls[b.first]?.op ?? ""]],
  [...buffers].sort((a, b) => b.size - a.size).slice(0, 200)));
}

function weights() {
  const rows = facts.weights.filter(one => wanted(`${one.name} ${one.dtype} ${one.shape.join("x")}`));
  const body = rows.slice(0, 300).map(one => element("tr", {},
    element("td", { class: "name" }, one.name || "constant"),
    element("td", { class: "n" }, `${one.dtype} ${one.shape.join("×")}`),
    element("td", { class: "n" }, bytes(one.bytes)),
    element("td", { class: "n" }, one.histogram ? one.low.toPrecision(3) : ""),
    element("td", {}, one.histogram ? histogram(one) : ""),
    element("td", { class: "n" }, one.histogram ? one.high.toPrecision(3) : ""),
    element("td", { class: one.not_finite ? "n warm" : "n" }, one.histogram
      ? `${one.zeros} zeros${one.not_finite ? `, ${one.not_finite} not finite` : ""}` : "")));
  return element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {},
    ...["used by", "type", "bytes", "least", "distribution", "largest", ""].map(name =>
      element("th", { scope: "col" }, name)))), element("tbody", {}, ...body)));
}

function histogram(one) {
  const most = Math.max(...one.histogram, 1), width = 160 / one.histogram.length;
  return element("svg", { viewBox: "0 0 160 28", width: 160, height: 28, role: "img",
    "aria-label": `from ${one.low} to ${one.high}` }, ...one.histogram.map((count, number) =>
    element("rect", { class: "bar", x: number * width, width: width - 0.5,
      y: 28 * (1 - count / most), height: 28 * count / most })));
}

function comparison() {
  const other = facts.against, rows = other.rows.filter(row => wanted(row.op));
  return element("div", {}, element("p", {}, `Whole call: ${us(facts.module_seconds)} us; `
    + `${other.title}: ${us(other.module_seconds)} us. Kernels of the same operators together.`),
  table([["us here", r => us(r.one), true], ["us there", r => us(r.other), true],
    ["ratio", r => r.other ? (r.one / r.other).toFixed(2) : "", true], ["operators", r => r.op]], rows));
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
search.addEventListener("input", () => show(state.tab));
document.addEventListener("keydown", event => {
  if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
});
show(names.includes(location.hash.slice(1)) ? location.hash.slice(1) : "Summary");
