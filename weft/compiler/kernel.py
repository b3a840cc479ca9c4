"""One kernel from its function to object code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from weft.codegen.llvm.build import build_object
from weft.compiler import kernel_dump
from weft.ir.expr import Call, Function
from weft.ir.op import Op
from weft.ir.visitor import post_order
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.registry import STRATEGIES
from weft.support import trace
from weft.support.config import config
from weft.target import Target
from weft.tir.verify import verify_func


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What is known of a kernel beside its code."""

    symbol: str
    implementation: str
    flops: int
    bytes_moved: int
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    facts: KernelFacts
    object_code: bytes

    def to_bytes(self) -> bytes:
        """The form in which caches and workers pass a kernel on."""
        head = json.dumps(asdict(self.facts)).encode()
        return len(head).to_bytes(4, "little") + head + self.object_code

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> BuiltKernel:
        size = int.from_bytes(data[:4], "little")
        facts = KernelFacts(**json.loads(bytes(data[4 : 4 + size])))
        return BuiltKernel(facts, bytes(data[4 + size :]))


def lower_kernel(name: str, function: Function, target: Target) -> LoweredKernel:
    """The loop program of a kernel, checked as the configuration asks."""
    with trace.span(f"lower {name}", "kernel"):
        lowered = lower_function(function, target, name)
    if config.verify >= 2:
        verify_func(lowered.func)
    return lowered


def build_kernel(name: str, function: Function, target: Target, number: int = 0) -> BuiltKernel:
    """Lower and generate code; ``name`` becomes the symbol, ``number`` names dumped files."""
    lowered = lower_kernel(name, function, target)
    if kernel_dump.is_wanted():
        kernel_dump.show_kernel(number, lowered, target)
    with trace.span(f"codegen {name}", "kernel"):
        code = build_object(lowered.func, target)
    facts = KernelFacts(code.symbol, lowered.implementation, lowered.flops, lowered.bytes_moved,
                        int(lowered.func.attrs.get("workspace_bytes", 0)))
    return BuiltKernel(facts, code.object)


def is_self_contained(function: Function, target: Target) -> bool:
    """Whether weft's own sources determine the code: no operator or strategy of a user.

    Only such kernels may be cached, or built by a process that has not run the user's program.
    """
    operators = (node.op for node in post_order(function.body) if isinstance(node, Call))
    return all(_is_own(op, target) for op in operators if isinstance(op, Op))


def _is_own(op: Op, target: Target) -> bool:
    strategy = STRATEGIES.find(f"{target.kind}:{op.name}")
    makers = [op.compute, strategy]
    return all(getattr(m, "__module__", "").startswith("weft.") for m in makers if m is not None)
