"""Artifacts for WebAssembly: in a sandbox under Python, in node, and in a browser."""

from __future__ import annotations

import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import op  # noqa: F401 - defines the operators
from weft.compiler.build.common_nets import mobilenet_v2
from weft.export.loaders import write_loader
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.devices.wasm.sandbox import Sandbox, sandboxed
from weft.runtime.run_control import RunControl
from weft.support.errors import ArtifactError, MissingToolError, OptionError

wasmtime = pytest.importorskip("wasmtime")
pytest.importorskip("ziglang")
NODE, CHROMIUM = shutil.which("node"), shutil.which("chromium")
TARGET = "llvm -mtriple=wasm32-unknown-unknown -mcpu="
TEXT = """
def @main(%x: Tensor[(n{0..4096}, 64), float32], %total: Tensor[(64,), float32]) {
  (nn.softmax(nn.dense(%x, %x)), add(%total, sum(%x, axis=(0,))), cast(%x, dtype="int64"))
}"""
X = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)


def compiled(target: str = "cpu") -> weft.Executable:
    return weft.compile(weft.parse(TEXT), state={"output1": "total"}, target=target)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with code with and without SIMD."""
    path = tmp_path_factory.mktemp("wasm") / "net.weft"
    compiled(f"{TARGET}generic").export(path, levels=["generic", "simd"])
    return path


@pytest.fixture(scope="module")
def wanted() -> list[np.ndarray]:
    """What the second of two calls gives, and the state after it."""
    module = compiled()
    module(X)
    return [*module(X), module.state["total"].copy()]


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_sandbox_runs_all_sizes_and_keeps_state(whole: Path, wanted: list[np.ndarray]) -> None:
    module = weft.load(whole, sandbox=True)
    assert module.manifest.target.cpu == "simd"
    module(X)
    for found, one in zip([*module(X), module.state["total"]], wanted, strict=True):
        close(found, one)
    assert module(X[:0])[0].shape == (0, 0)
    large = np.random.default_rng(1).standard_normal((2000, 64)).astype(np.float32)
    close(module(large)[0], compiled()(large)[0])  # memory grows
    out = [np.empty((5, 5), np.float32), np.empty((5, 64), np.int64)]
    module(X, out=out)
    close(out[0], wanted[0])
    with pytest.raises(OptionError, match="no limits"):
        module.run(None, {"x": X}, RunControl(timeout=1.0))


def test_what_a_sandbox_refuses(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                ) -> None:
    compiled().export(tmp_path / "native.weft")
    with pytest.raises(ArtifactError, match="no code for a sandbox"):
        weft.load(tmp_path / "native.weft", sandbox=True)
    file = ArtifactFile(whole)
    module = sandboxed(file, file.contents.entries["main"])
    assert isinstance(module.launcher, Sandbox)
    outside = """(module (memory (export "memory") 1) (func (export "weft_main"))
                 (global (export "__heap_base") i32 (i32.const 99999999)))"""
    for text, message in (('(module (import "env" "system" (func)))', "imports"),
                          ("(module)", "weft_main"), (outside, "heap at 99999999")):
        monkeypatch.setattr(ArtifactFile, "code", lambda *_, text=text: wasmtime.wat2wasm(text))
        with pytest.raises(ArtifactError, match="no module for this sandbox") as info:
            weft.load(whole, sandbox=True)
        assert message in str(info.value)
    trap = ('(module (memory (export "memory") 1) (global (export "__heap_base") i32 (i32.const 0))'
            '(func (export "weft_main") (param i32 i32 i32 i32) (result i32) unreachable))')
    monkeypatch.setattr(ArtifactFile, "code", lambda *_: wasmtime.wat2wasm(trap))
    with pytest.raises(ArtifactError, match="in the sandbox failed"):
        weft.load(whole, sandbox=True)(X)
    monkeypatch.setitem(__import__("sys").modules, "wasmtime", None)
    with pytest.raises(MissingToolError, match="needs the wasmtime package"):
        weft.load(whole, sandbox=True)


SCRIPT = """
import { readFileSync } from "node:fs";
import { load } from "./weft_loader.js";
const data = readFileSync("net.weft"), floats = readFileSync("x");
const x = new Float32Array(floats.buffer.slice(floats.byteOffset, floats.byteOffset + 1280));
const net = await load(data);
net.run([x], { n: 5 });
const [y, cast] = net.run([x], { n: 5 });
const errors = [];
const refused = async (body) => {
  try { await body(); errors.push("accepted"); } catch (error) { errors.push(error.message); }
};
const changed = (at, byte) => { const copy = new Uint8Array(data); copy[at] ^= byte; return copy; };
await refused(() => net.run([x], { n: 4 }));
await refused(() => net.run([x], { n: 4097 }));
await refused(() => net.run([x], {}));
await refused(() => net.run([new Float64Array(320)], { n: 5 }));
await refused(() => load(data, { entry: "other" }));
await refused(() => load(data.subarray(0, 5000)));
await refused(() => load(changed(0, 1)));
await refused(() => load(changed(data.indexOf("facts"), 1)));
await refused(() => load(changed(data.lastIndexOf("\\0asm") + 99, 1)));
await refused(() => load(readFileSync("native.weft")));
console.log(JSON.stringify({ y: [...y], cast: [...cast].map(Number), total: [...net.state("total")],
  cpu: net.manifest.target.cpu, errors }));
"""


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_node_runs_the_file(whole: Path, wanted: list[np.ndarray], tmp_path: Path) -> None:
    write_loader(tmp_path, "js")
    shutil.copy(whole, tmp_path / "net.weft")
    compiled().export(tmp_path / "native.weft", portable=False)
    (tmp_path / "x").write_bytes(X.tobytes())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.js").write_text(SCRIPT)
    done = subprocess.run([NODE, "run.js"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    close(np.reshape(found["y"], (5, 5)), wanted[0])
    close(np.reshape(found["cast"], (5, 64)), wanted[1])
    close(np.array(found["total"]), wanted[2])
    assert found["cpu"] == "simd"
    assert [line.partition(":")[0] for line in found["errors"]] == [
        "wrong size", "wrong size", "wrong size", "wrong size", "no such entry", "truncated",
        "not an artifact", "damaged", "damaged", "other machine"]


PAGE = """<!doctype html><title>weft</title><body><script type="module">
import { load } from "./weft_loader.js";
const bytes = async (name) => (await fetch(name)).arrayBuffer();
let result;
try {
  const net = await load(await bytes("net.weft"));
  const [y] = net.run([new Float32Array(await bytes("x"))], { n: 5 });
  result = JSON.stringify([...y]);
} catch (error) {
  result = String(error);
}
await fetch("/result", { method: "POST", body: result });
</script>"""


class _Server(http.server.SimpleHTTPRequestHandler):
    """Serves files, and keeps what a page posts."""

    posted: queue.Queue[str] = queue.Queue()

    def do_POST(self) -> None:
        self.posted.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server of the files in ``tmp_path``."""
    handler = functools.partial(_Server, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_page_runs_the_file(whole: Path, wanted: list[np.ndarray], tmp_path: Path, served: str
                              ) -> None:
    write_loader(tmp_path, "js")
    shutil.copy(whole, tmp_path / "net.weft")
    (tmp_path / "x").write_bytes(X.tobytes())
    (tmp_path / "index.html").write_text(PAGE)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
               f"--user-data-dir={tmp_path / 'profile'}", f"{served}/index.html"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            found = _Server.posted.get(timeout=120)
        finally:
            browser.kill()
    assert found.startswith("["), found
    close(np.reshape(json.loads(found), (5, 5)), wanted[0])


@pytest.mark.parametrize("cpu", ["generic", "simd"])
def test_mobilenet_is_small_without_its_weights(tmp_path: Path, cpu: str) -> None:
    """What a browser loads beside the weights: code, description and loader."""
    path = tmp_path / "net.weft"
    weft.compile(mobilenet_v2(), target=TARGET + cpu).export(path, portable=False)
    with zipfile.ZipFile(path) as archive:
        sizes = {one.filename: one.file_size for one in archive.infolist()}
    weights = sizes.pop("constants.bin")
    loader = sum(file.stat().st_size for file in write_loader(tmp_path, "js"))
    print(f"{sizes} and a loader of {loader} bytes, beside {weights} bytes of weights")
    assert sum(sizes.values()) + loader < 300_000
