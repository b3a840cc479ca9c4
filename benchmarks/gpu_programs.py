"""The programs of ``benchmarks.gpu``: their text, their work, and the same in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class GpuProgram:
    """``flops`` and ``nbytes`` are the least that a call needs.

    ``torch`` gives the same function of torch, whose module is its argument.
    """

    name: str
    inputs: tuple[tuple[str, Shape], ...]
    body: str
    flops: float
    nbytes: float
    torch: Callable[[Any], Callable[..., Any]]

    @property
    def text(self) -> str:
        """The program in weft's text form, with inputs %x0, %x1, ..."""
        params = ", ".join(f"%x{n}: Tensor[{_shape(shape)}, {dtype}]"
                           for n, (dtype, shape) in enumerate(self.inputs))
        return f"def @main({params}) {{ {self.body} }}"


def _shape(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})"


def _gemm(size: int, dtype: str, bytes_each: int) -> GpuProgram:
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[dtype]
    return GpuProgram(f"gemm_{short}_{size}", ((dtype, (size, size)),) * 2, "nn.dense(%x0, %x1)",
                      2.0 * size**3, 3.0 * bytes_each * size**2,
                      lambda torch: torch.nn.functional.linear)


_ROWS: Shape = (8192, 4096)
_BYTES = 4.0 * 8192 * 4096

PROGRAMS: tuple[GpuProgram, ...] = (
    _gemm(4096, "bfloat16", 2), _gemm(4096, "float16", 2), _gemm(2048, "float32", 4),
    GpuProgram("add_relu", (("float32", _ROWS),) * 2, "nn.relu(add(%x0, %x1))", 0.0, 3 * _BYTES,
               lambda torch: lambda a, b: torch.relu(a + b)),
    GpuProgram("softmax", (("float32", _ROWS),), "nn.softmax(%x0)", 0.0, 2 * _BYTES,
               lambda torch: lambda a: torch.softmax(a, -1)),
    GpuProgram("sum_rows", (("float32", _ROWS),), "sum(%x0, axis=[1])", 0.0, _BYTES,
               lambda _: lambda a: a.sum(1)),
    GpuProgram("transpose", (("float32", _ROWS),), "transpose(%x0, axes=[1, 0])", 0.0, 2 * _BYTES,
               lambda _: lambda a: a.T.contiguous()),
)
