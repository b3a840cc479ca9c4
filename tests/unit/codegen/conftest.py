"""Compiled functions beside the evaluator that defines their meaning."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from weft.codegen import CPU_BACKEND
from weft.codegen.llvm.build import build_object
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.runtime.sizes import evaluate as size_at
from weft.target import CpuTarget, Target
from weft.tir.buffer import Buffer
from weft.tir.eval import evaluate
from weft.tir.expr import Var
from weft.tir.func import PrimFunc

Argument = np.ndarray | int


class Compiled:
    """A function in machine code, called with arrays and sizes."""

    def __init__(self, func: PrimFunc, target: Target, support: bytes) -> None:
        self.func = func
        self.object = build_object(func, target).object
        self.library = CPU_BACKEND.load([self.object, support], target)

    def __call__(self, *arguments: Argument) -> None:
        pointers: list[ctypes._SimpleCData] = []
        for param, value in zip(self.func.params, arguments, strict=True):
            if isinstance(param, Buffer):
                assert isinstance(value, np.ndarray)
                pointers.append(ctypes.c_void_p(value.ctypes.data))
            else:
                pointers.append(ctypes.c_int64(int(value)))
        names = {p.name: int(v) for p, v in zip(self.func.params, arguments, strict=True)
                 if isinstance(p, Var)}
        scratch = aligned(size_at(self.func.attrs.get("workspace_bytes", 0), names))
        if "workspace_bytes" in self.func.attrs:
            pointers.append(ctypes.c_void_p(scratch.ctypes.data))
        kinds = [type(p) for p in pointers]
        ctypes.CFUNCTYPE(None, *kinds)(self.library.address(self.func.name))(*pointers)


def aligned(size: int) -> np.ndarray:
    """Bytes that start on a cache line, filled with a pattern that is NaN as a float."""
    raw = np.full(size + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


class Compiler:
    def __init__(self) -> None:
        self.target = CpuTarget.host()
        self.support = build_runtime_support(self.target).object

    def compile(self, func: PrimFunc) -> Compiled:
        return Compiled(func, self.target, self.support)

    def both(
        self, func: PrimFunc, inputs: Sequence[Argument], outputs: Sequence[np.ndarray]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Compiled and evaluated outputs, each from the same start."""
        found, expected = ([o.copy() for o in outputs] for _ in range(2))
        self.compile(func)(*inputs, *found)
        evaluate(func, *inputs, *expected)
        return list(zip(found, expected, strict=True))

    def check(
        self, func: PrimFunc, inputs: Sequence[Argument], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Compiled outputs, which must equal the evaluator's bit for bit (NaN equals NaN)."""
        pairs = self.both(func, inputs, outputs)
        for found, expected in pairs:
            assert_same_bits(found, expected, str(func))
        return [found for found, _ in pairs]


def assert_same_bits(found: np.ndarray, expected: np.ndarray, message: str = "") -> None:
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=message)
        return
    a, b = (x.astype(np.float64) for x in (found, expected))
    np.testing.assert_array_equal(a, b, err_msg=message)
    real = ~np.isnan(b)
    np.testing.assert_array_equal(np.signbit(a[real]), np.signbit(b[real]), err_msg=message)


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    return Compiler()
