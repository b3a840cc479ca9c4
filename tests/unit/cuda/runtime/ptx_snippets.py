"""Small PTX kernels for tests: one thread per element, one instruction to test."""

from __future__ import annotations

import numpy as np

from weft.testing.cuda import DeviceMemory, EmulationOptions, launch, load_ptx

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
_BYTES = {"f32": 4, "s32": 4, "u32": 4, "b32": 4, "f64": 8, "s64": 8, "u64": 8, "b64": 8,
          "f16": 2, "b16": 2, "s16": 2, "u16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "pred": 4}


def upload(memory: DeviceMemory, array: np.ndarray) -> int:
    """The address of a copy of ``array``."""
    array = np.ascontiguousarray(array)
    address = memory.allocate(array.nbytes)
    memory.view(address, array.nbytes)[:] = array.reshape(-1).view(np.uint8)
    return address


def download(memory: DeviceMemory, address: int, like: np.ndarray) -> np.ndarray:
    """The array at ``address``."""
    return memory.view(address, like.nbytes).view(like.dtype).reshape(like.shape).copy()


def kernel(body: str, params: int = 1, extra: str = "", top: str = "") -> str:
    """A kernel of ``params`` pointers %rd1.. with %tid.x in %r0 and the global index in %r1."""
    declared = ", ".join(f".param .u64 p{at}" for at in range(params))
    loads = "\n".join(f"ld.param.u64 %rd{at + 1}, [p{at}];" for at in range(params))
    return f"""{HEADER}{top}
.visible .entry k({declared})
{{
.reg .pred %p<10>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>;
.reg .f32 %f<40>; .reg .f64 %fd<10>;
{extra}
{loads}
mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
mad.lo.s32 %r1, %r2, %r3, %r0;
{body}
ret;
}}
"""


def _register(kind: str, at: int) -> str:
    width = _BYTES[kind]
    return {2: f"%rs{at}", 4: f"%r{at + 10}", 8: f"%rd{at + 10}"}[width]


def run_instruction(
    name: str, kinds: tuple[str, ...], inputs: tuple[np.ndarray, ...], result: str,
    tail: str = "",
) -> np.ndarray:
    """``name d, a, b...`` for each element; inputs have the types ``kinds``, d that of ``result``.

    ``tail`` is further operands. Predicates come and go as 32-bit integers.
    """
    count = inputs[0].shape[0]
    lines, operands = [], []
    for at, kind in enumerate(kinds):
        width, register = _BYTES[kind], _register(kind, at + 1)
        lines.append(f"mul.wide.u32 %rd8, %r1, {width}; add.s64 %rd9, %rd{at + 1}, %rd8;")
        lines.append(f"ld.global.b{8 * width} {register}, [%rd9];")
        if kind == "pred":
            lines.append(f"setp.ne.b32 %p{at + 1}, {register}, 0;")
            register = f"%p{at + 1}"
        operands.append(register)
    target = "%p0" if result == "pred" else _register(result, 0)
    lines.append(f"{name} {target}, {', '.join(operands)}{tail};")
    if result == "pred":
        lines.append("selp.b32 %r50, 1, 0, %p0;")
        target = "%r50"
    width = _BYTES[result]
    out = len(kinds) + 1
    lines.append(f"mul.wide.u32 %rd8, %r1, {width}; add.s64 %rd9, %rd{out}, %rd8;")
    lines.append(f"st.global.b{8 * width} [%rd9], {target};")
    memory = DeviceMemory()
    addresses = [upload(memory, value) for value in inputs]
    answer = np.zeros(count, dtype=f"u{width}")
    addresses.append(upload(memory, answer))
    module = load_ptx(kernel("\n".join(lines), out))
    launch(module, "k", (1,), (count,), addresses, memory)
    return download(memory, addresses[-1], answer)


def run(text: str, arrays: list[np.ndarray], *, grid: int = 1, block: int = 32,
        **options: object) -> list[np.ndarray]:
    """Launch kernel ``k`` on copies of ``arrays``; what they are afterwards."""
    memory = DeviceMemory()
    addresses = [upload(memory, array) for array in arrays]
    launch(load_ptx(text), "k", (grid,), (block,), addresses, memory,
           options=EmulationOptions(**options))  # type: ignore[arg-type]
    return [download(memory, address, array)
            for address, array in zip(addresses, arrays, strict=True)]
