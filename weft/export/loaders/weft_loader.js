// Loads and runs artifacts of weft (.weft files) that hold code for WebAssembly: in browsers, node,
// workers. A module without dependencies.
//
//   import { load } from "./weft_loader.js";
//   const net = await load(await (await fetch("net.weft")).arrayBuffer());
//   const [y] = net.run([x], { batch: 2 });       // typed arrays; a value for each symbolic size
//
// Checksums are verified before code is compiled. Every error is a WeftError with a code.

export class WeftError extends Error {
  constructor(code, message) {
    super(`${code}: ${message}`);
    this.name = "WeftError";
    this.code = code;
  }
}

const HEAD_VERSION = 4, MANIFEST_VERSION = 3, ALIGNMENT = 64, PAGE = 65536;
const HEAD = "artifact.json", CONSTANTS = "constants.bin";
const DTYPES = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bfloat16: Uint16Array,
  bool: Uint8Array, int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
// Feature -> the sections of a module that is valid where the engine has it.
const FEATURES = {
  "atomics": "010401600000030201000504010301010a0b0109004100fe1002001a0b",
  "bulk-memory": "0104016000000302010005030100010a0e010c00410041004100fc0a00000b",
  "bulk-memory-opt": "0104016000000302010005030100010a0e010c00410041004100fc0a00000b",
  "nontrapping-fptoint": "010401600000030201000a0c010a004300000000fc001a0b",
  "relaxed-simd": "0105016000017b030201000a0f010d004101fd0f4102fd0ffd80020b",
  "sign-ext": "010401600000030201000a080106004100c01a0b",
  "simd128": "0105016000017b030201000a0a0108004100fd0ffd620b",
};
const FIRST = "0061736d01000000"; // of every module

function hasFeature(name) {
  const bytes = (FIRST + FEATURES[name]).match(/../g).map((two) => parseInt(two, 16));
  return WebAssembly.validate(new Uint8Array(bytes));
}

const fail = (code, message) => { throw new WeftError(code, message); };
const damaged = (message) => fail("damaged", message);

// ---- the archive: an uncompressed zip file ----

function members(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u16 = (at) => view.getUint16(at, true), u32 = (at) => view.getUint32(at, true);
  if (bytes.length < 22) fail("truncated", `the file ends after ${bytes.length} bytes`);
  if (u32(0) !== 0x04034b50) fail("not an artifact", "the file does not start as one");
  let end = bytes.length - 22;
  const least = Math.max(0, end - 65535);
  while (u32(end) !== 0x06054b50 || u16(end + 20) !== bytes.length - end - 22)
    if (end-- <= least) fail("truncated", "the file has no end: it was not written whole");
  let at = u32(end + 16);
  const stop = at + u32(end + 12), found = new Map();
  if (stop > end) damaged("the directory of the archive");
  while (at < stop) {
    if (stop - at < 46 || u32(at) !== 0x02014b50) damaged("the directory of the archive");
    const size = u32(at + 24), header = u32(at + 42), length = u16(at + 28);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + length));
    if (u16(at + 10) || u16(at + 8) & 1 || size !== u32(at + 20) || header + 30 > stop)
      damaged(`the member ${name}`);
    const start = header + 30 + u16(header + 26) + u16(header + 28);
    if (u32(header) !== 0x04034b50 || start + size > stop || found.has(name))
      damaged(`the member ${name}`);
    found.set(name, bytes.subarray(start, start + size));
    at += 46 + length + u16(at + 30) + u16(at + 32);
  }
  return found;
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The text of a head on one line, as it is signed by its own checksum: without that one.
function headText(text) {
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const line = tokens.map((t) => (t === "," ? ", " : t === ":" ? ": " : t)).join("");
  const own = `"${HEAD}": "[0-9a-f]*"`;
  return line.replace(new RegExp(`("checksums": \\{)${own}(?:, )?`), "$1")
    .replace(new RegExp(`("checksums": \\{[^}]*), ${own}`), "$1");
}

async function readFile(bytes) {
  const found = members(bytes);
  if (!found.has(HEAD))
    fail(found.has("manifest.json") ? "other format" : "not an artifact", `there is no ${HEAD}`);
  let head;
  const text = new TextDecoder().decode(found.get(HEAD));
  try { head = JSON.parse(text); } catch { damaged(HEAD); }
  if (head?.format !== "weft artifact") fail("not an artifact", "another kind of file");
  if (head.version !== HEAD_VERSION)
    fail("other format", `version ${head.version} of the format, not ${HEAD_VERSION}`);
  if (head.checksums?.[HEAD] !== await sha256(new TextEncoder().encode(headText(text))))
    damaged(`${HEAD} has another checksum`);
  const read = async (name) => {
    const data = found.get(name) ?? damaged(`the member ${name} is missing`);
    if (head.checksums[name] !== await sha256(data)) damaged(`${name} has another checksum`);
    return data;
  };
  return { head, read };
}

// ---- sizes: + - * // max min floordiv over symbols ----

function evaluate(size, names) {
  if (typeof size === "number") return size;
  const tokens = size.match(/\d+|[^\W\d]\w*|\/\/|[-+*(),]/gu) ?? [];
  let at = 0;
  const next = (token) => tokens[at] === token && (at += 1) > 0;
  const need = (token) => next(token) || damaged(`the size ${size}`);
  const divide = (a, b) => (b > 0 ? Math.floor(a / b) : fail("wrong size", `${a} // ${b}`));
  const primary = () => {
    const token = tokens[at++];
    if (token === "-") return -primary();
    if (token === "(") { const value = sum(); need(")"); return value; }
    if (/^\d/.test(token ?? "")) return Number(token);
    if (["max", "min", "floordiv"].includes(token) && next("(")) {
      const values = [sum()];
      while (next(",")) values.push(sum());
      need(")");
      return token === "floordiv" ? divide(...values) : Math[token](...values);
    }
    return names.get(token) ?? damaged(`the size ${size}`);
  };
  const product = () => {
    let value = primary();
    for (;;)
      if (next("*")) value *= primary();
      else if (next("//")) value = divide(value, primary());
      else return value;
  };
  const sum = () => {
    let value = product();
    for (;;)
      if (next("+")) value += product();
      else if (next("-")) value -= product();
      else return value;
  };
  const value = sum();
  if (at < tokens.length || !Number.isSafeInteger(value)) fail("wrong size", size);
  return value;
}

// ---- programs ----

function missing(target) {
  if (target.kind && target.kind !== "cpu") return "a target of another kind";
  if (!target.triple.startsWith("wasm32")) return target.triple;
  return target.features.find((name) => !FEATURES[name] || !hasFeature(name));
}

async function choose(file, entry) {
  const point = file.head.entries[entry] ?? fail("no such entry", entry);
  if (point.signature) fail("unsupported", "the model has a program for each set of input shapes");
  let best = null, reason = "no native code";
  for (const folder of point.programs) {
    const text = new TextDecoder().decode(await file.read(`${folder}/manifest.json`));
    const manifest = JSON.parse(text), lacks = missing(manifest.target);
    if (lacks) reason = lacks;
    else if (!best || manifest.target.features.length > best.manifest.target.features.length)
      best = { folder, manifest };
  }
  if (!best) fail("other machine", `the file has code for ${reason}, not for this engine`);
  const { manifest } = best;
  if (manifest.format_version !== MANIFEST_VERSION) fail("other format", "of the native code");
  for (const name of ["vm", "counts", "devices", "arenas"])
    if (manifest[name] && Object.keys(manifest[name]).length)
      fail("unsupported", `the program has ${name}, which weft.load runs`);
  return best;
}

// An entry point of a file (ArrayBuffer or Uint8Array); see Program.
export async function load(data, { entry = "main" } = {}) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  const file = await readFile(bytes), { folder, manifest } = await choose(file, entry);
  const constants = await file.read(CONSTANTS);
  const { instance } = await WebAssembly.instantiate(await file.read(`${folder}/lib.so`), {});
  if (!instance.exports.weft_main) fail("missing symbol", "weft_main");
  return new Program(manifest, instance.exports, constants);
}

// A program in memory of its own. `inputs`, `outputs` and `states` are its arrays by name, dtype and
// shape. A state is kept from run to run; `state(name)` is a copy of it.
export class Program {
  #exports; #base; #top; #states;

  constructor(manifest, exports, constants) {
    this.manifest = manifest;
    ({ inputs: this.inputs, outputs: this.outputs } = manifest);
    this.states = manifest.states ?? [];
    this.symbols = manifest.symbols ?? [];
    this.#exports = exports;
    this.#top = exports.__heap_base.value;
    this.#base = this.#take(constants.length);
    this.#bytes(this.#base, constants.length).set(constants);
    this.#states = this.states.map((spec, n) => {
      const size = this.#size(spec, new Map()), at = this.#take(size);
      const first = manifest.initial?.[n];
      if (first === undefined) this.#bytes(at, size).fill(0);
      else this.#bytes(at, size).set(constants.subarray(first, first + size));
      return at;
    });
  }

  // The outputs, as typed arrays: of arrays in the order of `inputs`, at values of the symbols.
  run(arrays, sizes = {}) {
    const names = this.#names(sizes), top = this.#top;
    if (arrays.length !== this.inputs.length)
      fail("wrong size", `the program has ${this.inputs.length} inputs`);
    try {
      const given = this.inputs.map((spec, n) => {
        const size = this.#size(spec, names), array = arrays[n], Kind = DTYPES[spec.dtype];
        if (!(array instanceof Kind)) fail("wrong size", `${spec.name} is no ${Kind.name}`);
        if (array.byteLength !== size)
          fail("wrong size", `${spec.name} has ${size} bytes, not ${array.byteLength}`);
        const at = this.#take(size);
        this.#bytes(at, size).set(new Uint8Array(array.buffer, array.byteOffset, size));
        return at;
      });
      const results = this.outputs.map((spec) => this.#take(this.#size(spec, names)));
      const symbols = this.#take(8 * this.symbols.length);
      const arena = this.#take(evaluate(this.manifest.arena_bytes, names));
      const inputs = this.#pointers([...given, ...this.#states, symbols]);
      const outputs = this.#pointers(results);
      const view = new DataView(this.#exports.memory.buffer);
      this.symbols.forEach(({ name }, n) =>
        view.setBigInt64(symbols + 8 * n, BigInt(names.get(name)), true));
      const status = this.#exports.weft_main(inputs, outputs, this.#base, arena);
      if (status) fail("failed", `the program returned ${status}`);
      return this.outputs.map((spec, n) => this.#copy(spec, results[n], names));
    } finally {
      this.#top = top;
    }
  }

  state(name) {
    const n = this.states.findIndex((spec) => spec.name === name);
    if (n < 0) fail("wrong size", `the program has no state ${name}`);
    return this.#copy(this.states[n], this.#states[n], new Map());
  }

  // The symbols, and the table of sizes that follows from them.
  #names(sizes) {
    const names = new Map();
    for (const { name, low, high, multiple } of this.symbols) {
      const value = sizes[name];
      if (!Number.isSafeInteger(value) || value < low || (high !== null && value > high) ||
          value % multiple)
        fail("wrong size", `the size ${name} cannot be ${value}`);
      names.set(name, value);
    }
    (this.manifest.sizes ?? []).forEach((size, n) => names.set(`_${n}`, evaluate(size, names)));
    for (const size of this.manifest.nonnegative ?? [])
      if (evaluate(size, names) < 0) fail("wrong size", `${size} is negative`);
    return names;
  }

  #size(spec, names) {
    const Kind = DTYPES[spec.dtype] ?? fail("unsupported", spec.dtype);
    return spec.shape.reduce((all, size) => {
      const value = evaluate(size, names);
      return value < 0 ? fail("wrong size", spec.name) : all * value;
    }, Kind.BYTES_PER_ELEMENT);
  }

  #take(size) {
    const at = Math.ceil(this.#top / ALIGNMENT) * ALIGNMENT, end = at + size;
    const { memory } = this.#exports, more = Math.ceil((end - memory.buffer.byteLength) / PAGE);
    try {
      if (more > 0) memory.grow(more);
    } catch {
      fail("no memory", `${size} bytes`);
    }
    this.#top = end;
    return at;
  }

  #bytes(at, size) { return new Uint8Array(this.#exports.memory.buffer, at, size); }

  #pointers(addresses) {
    const at = this.#take(4 * addresses.length);
    new Uint32Array(this.#exports.memory.buffer, at, addresses.length).set(addresses);
    return at;
  }

  #copy(spec, at, names) {
    const size = this.#size(spec, names);
    return new DTYPES[spec.dtype](this.#exports.memory.buffer.slice(at, at + size));
  }
}
