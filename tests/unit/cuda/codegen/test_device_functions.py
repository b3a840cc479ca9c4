"""Device functions: every one is assembled, and calls with wrong operands are refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from weft.codegen.cuda.device_functions import (
    DEVICE_FUNCTIONS,
    DeviceFunction,
    Kind,
    Operand,
    device_function,
    emit_device_call,
)
from weft.codegen.cuda.device_functions.record import REGISTERS
from weft.support.errors import CodegenError, LoweringError
from weft.tir.buffer import buffer
from weft.tir.expr import call, const

POINTERS = {Kind.SHARED: "ptr addrspace(3)", Kind.GLOBAL: "ptr addrspace(1)",
            Kind.TENSOR_MAP: "ptr"}


class Lines:
    """A writer of function bodies."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def emit(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.do(f"{name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append("  " + instruction)


def type_of(operand: Operand) -> str:
    if operand.kind in POINTERS:
        return POINTERS[operand.kind]
    register = REGISTERS[operand.kind][0]
    return register if operand.count == 1 else f"<{operand.count} x {register}>"


def kernel_of(function: DeviceFunction) -> str:
    """A kernel that calls ``function`` once on its arguments and stores the result."""
    out, params, operands = Lines(), [], []
    for number, operand in enumerate(function.operands):
        type_, value = type_of(operand), f"%p{number}"
        if operand.kind is Kind.IMMEDIATE:
            operands.append(("i32", "24" if function.name.startswith("setmaxnreg") else "1"))
            continue
        if operand.count > 1:
            params.append(f"ptr addrspace(1) {value}")
            value = out.emit(f"load {type_}, ptr addrspace(1) {value}")
        else:
            params.append(f"{type_} {value}")
        operands.append((type_, value))
    result_type = None if function.result is None else type_of(function.result)
    result = emit_device_call(out, function, operands, result_type)
    if result_type is not None:
        params.append("ptr addrspace(1) %out")
        out.do(f"store {result_type} {result}, ptr addrspace(1) %out")
    body = "\n".join(out.lines)
    head = f"define ptx_kernel void @k_{function.name}({', '.join(params)})"
    return f"{head} {{\n{body}\n  ret void\n}}"


def ptx_of(arch: str, functions: list[DeviceFunction]) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = "\n".join(['target triple = "nvptx64-nvidia-cuda"', *map(kernel_of, functions)])
    features = "+ptx86" if arch == "sm_90a" else "+ptx80"
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=arch, features=features, opt=3)
    return machine.emit_assembly(llvm.parse_assembly(text))


def assembler() -> Path:
    nvidia = pytest.importorskip("nvidia", reason="the CUDA assembler is not installed")
    found = Path(next(iter(nvidia.__path__))) / "cu13" / "bin" / "ptxas"
    if not found.exists():
        pytest.skip("the CUDA assembler is not installed")
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_every_function_is_assembled(arch: str, tmp_path: Path):
    ptxas = assembler()
    functions = [f for f in (DEVICE_FUNCTIONS.get(name) for name in DEVICE_FUNCTIONS)
                 if arch == "sm_90a" or f.capability == (8, 0)]
    assert len(functions) > 60
    source = tmp_path / "k.ptx"
    source.write_text(ptx_of(arch, functions))
    done = subprocess.run([ptxas, "-arch", arch, "-o", tmp_path / "k.cubin", source],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_product_is_one_instruction_on_registers():
    ptx = ptx_of("sm_80", [device_function("mma_m16n8k16_f32_f16")])
    assert ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {") == 1


def test_calls_check_their_operands():
    product = device_function("mma_m16n8k16_f32_bf16")
    sums, a, b = (buffer(n, (s,), t) for n, s, t in
                  (("c", 4, "float32"), ("a", 8, "bfloat16"), ("b", 4, "bfloat16")))
    whole = [call(f"{x.dtype}x{n}", "reinterpret", x.load(0)) for x, n in
             ((sums, 4), (a, 8), (b, 4))]
    assert product("float32x4", *whole).dtype.lanes == 4
    with pytest.raises(LoweringError, match="3 operands"):
        product("float32x4", *whole[:2])
    with pytest.raises(LoweringError, match="operand b of mma"):
        product("float32x4", whole[0], whole[1], whole[1])
    with pytest.raises(LoweringError, match="has a result"):
        product(None, *whole)


def test_an_immediate_must_be_a_literal():
    with pytest.raises(CodegenError, match="must be a literal"):
        emit_device_call(Lines(), device_function("cp_async_wait"), [("i32", "%n")])
    assert device_function("cp_async_wait")(None, const(1)).name == "cp_async_wait"
