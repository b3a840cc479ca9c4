"""The foreign machines: their targets, and what runs a program for each."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.targets.driver import ENTRY, driver_objects, inputs_of
from tests.targets.mapped import run_mapped
from tests.targets.models import Model
from weft.codegen.elf.linker import link_program, link_shared
from weft.codegen.llvm.helpers.build import helper_objects
from weft.runtime.devices.cpu.host import host_features
from weft.runtime.devices.cpu.host import machine as host_machine
from weft.support.errors import LinkerError
from weft.target import CpuTarget

# Reads standard input, writes standard output: what ``driver`` imports, for node.
_NODE = """
const fs = require("fs");
const view = () => new Uint8Array(machine.exports.memory.buffer);
const module_ = new WebAssembly.Module(fs.readFileSync(process.argv[2]));
const machine = new WebAssembly.Instance(module_, {env: {
  read: (at, size) => fs.readSync(0, view(), at >>> 0, size >>> 0),
  write: (at, size) => fs.writeSync(1, view(), at >>> 0, size >>> 0)}});
machine.exports.run_models();
"""


@dataclass(frozen=True)
class Machine:
    """A machine by name; ``run`` gives what a program writes when it reads some bytes.

    Without ``run``, libraries are mapped into this process's children.
    """

    name: str
    target: str
    run: Callable[[Path, bytes], bytes] | None
    needs: str  # the program or package that runs it

    @property
    def cpu(self) -> CpuTarget:
        return CpuTarget.of(self.target)


def _qemu(program: str, cpu: str) -> Callable[[Path, bytes], bytes]:
    return lambda path, data: _output([program, "-cpu", cpu, str(path)], data)


def _node(path: Path, data: bytes) -> bytes:
    script = path.with_suffix(".cjs")
    script.write_text(_NODE)
    return _output(["node", str(script), str(path)], data)


def _output(command: Sequence[str], data: bytes) -> bytes:
    done = subprocess.run(command, input=data, capture_output=True, timeout=3600, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(command[:3])} ended with {done.returncode}: "
                       + done.stderr.decode(errors="replace")[-2000:], done.stdout)
    return done.stdout


class RunError(Exception):
    """A program that ended early; ``output`` is what it wrote before."""

    def __init__(self, message: str, output: bytes) -> None:
        super().__init__(message)
        self.output = output


def _wasmtime(path: Path, data: bytes) -> bytes:
    import wasmtime as wt

    config = wt.Config()
    config.wasm_relaxed_simd_deterministic = True
    store = wt.Store(wt.Engine(config))
    module = wt.Module.from_file(store.engine, str(path))
    left, written = memoryview(data), bytearray()

    def read(at: int, size: int) -> int:
        nonlocal left
        part, left = left[:size], left[size:]
        memory.write(store, part, at)
        return len(part)

    def write(at: int, size: int) -> int:
        written.extend(memory.read(store, at, at + size))
        return size

    kinds = wt.FuncType([wt.ValType.i32(), wt.ValType.i32()], [wt.ValType.i32()])
    offers = {"read": read, "write": write}
    functions = [wt.Func(store, kinds, offers[i.name]) for i in module.imports]
    instance = wt.Instance(store, module, functions)
    memory = instance.exports(store)["memory"]
    try:
        instance.exports(store)[ENTRY](store)
    except (wt.Trap, wt.WasmtimeError) as error:
        raise RunError(str(error), bytes(written)) from error
    return bytes(written)


MAPPING = "an x86-64 processor with AVX2"
MACHINES = {m.name: m for m in (
    Machine("aarch64", "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72",
            _qemu("qemu-aarch64", "cortex-a72"), "qemu-aarch64"),
    Machine("aarch64-sve2", "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v2",
            _qemu("qemu-aarch64", "max"), "qemu-aarch64"),
    Machine("armv7", "llvm -mtriple=armv7-unknown-linux-gnueabihf -mcpu=cortex-a7",
            _qemu("qemu-arm", "cortex-a7"), "qemu-arm"),
    Machine("riscv64", "llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic",
            _qemu("qemu-riscv64", "rv64"), "qemu-riscv64"),
    Machine("riscv64-v", "llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic -mattr=+v",
            _qemu("qemu-riscv64", "rv64,v=true,vlen=128"), "qemu-riscv64"),
    Machine("wasm32", "llvm -mtriple=wasm32-unknown-unknown -mcpu=generic", _wasmtime, "wasmtime"),
    Machine("wasm32-node", "llvm -mtriple=wasm32-unknown-unknown -mcpu=generic", _node, "node"),
    Machine("wasm32-simd", "llvm -mtriple=wasm32-unknown-unknown -mcpu=simd", _wasmtime,
            "wasmtime"),
    Machine("wasm32-simd-node", "llvm -mtriple=wasm32-unknown-unknown -mcpu=simd", _node, "node"),
    Machine("windows", "llvm -mtriple=x86_64-pc-windows-msvc -mcpu=haswell", None, MAPPING),
    Machine("macos", "llvm -mtriple=x86_64-apple-macosx11.0 -mcpu=haswell", None, MAPPING),
    Machine("cortex-m4", "llvm -mtriple=thumbv7em-none-eabihf -mcpu=cortex-m4",
            _qemu("qemu-arm", "cortex-a7"), "qemu-arm"),  # which has the instructions of both
)}


def run_models(models: Sequence[Model], machine: Machine) -> bytes:
    """What the program of ``driver`` writes for these models.

    Models of Python functions may need a C math library; theirs is that of ``zig cc``.
    """
    target = machine.cpu
    if machine.run is None:
        library = link_shared([m.object for m in models], target.platform,
                              [f"{m.name}_run" for m in models])
        output, status = run_mapped(library, models, target.platform.object_format)
        if status:
            raise RunError(f"the process ended with {status}", output)
        return output
    objects = [*driver_objects(models, target), *(m.object for m in models)]
    objects += helper_objects(objects, target, has_c_library=False)
    with tempfile.TemporaryDirectory(prefix="weft-target-") as folder:
        path = Path(folder) / "program"
        if any(m.needs_math for m in models):
            _link_with_math(objects, target, path)
        else:
            path.write_bytes(link_program(objects, target.platform, ENTRY))
        path.chmod(0o755)
        return machine.run(path, inputs_of(models))


def _link_with_math(objects: Sequence[bytes], target: CpuTarget, path: Path) -> None:
    names = [path.with_name(f"{number}.o") for number in range(len(objects))]
    for name, code in zip(names, objects, strict=True):
        name.write_bytes(code)
    is_wasm = target.arch == "wasm32"
    system = "wasm32-wasi" if is_wasm else "arm-linux-musleabihf" if target.arch == "arm" \
        else f"{target.arch}-linux-musl"
    options = ["-mexec-model=reactor", f"-Wl,--export={ENTRY}"] if is_wasm else [
        "-static", "-Wl,-z,norelro", f"-Wl,--entry={ENTRY}"]
    done = subprocess.run([sys.executable, "-m", "ziglang", "cc", "-target", system, *options,
                           "-o", str(path), *map(str, names), "-lm"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkerError("the program could not be linked", notes=[done.stderr[-500:]])


def is_here(machine: Machine) -> bool:
    """Whether this computer can run programs of the machine."""
    if machine.needs == MAPPING:
        return host_machine() == "x86_64" and set(machine.cpu.features) <= host_features()
    if machine.needs == "wasmtime":
        import importlib.util

        return importlib.util.find_spec("wasmtime") is not None
    return shutil.which(machine.needs) is not None
