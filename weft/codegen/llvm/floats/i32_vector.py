"""Arithmetic on the bits of float32 values, all lanes at once."""

from __future__ import annotations

from weft.codegen.llvm.text.types import int_constant, splat, vector_of
from weft.codegen.llvm.text.writer import FunctionWriter
from weft.ir.dtype import int32


class I32Vector:
    """Writes instructions over ``lanes`` words of 32 bits, and over float32 in the same bits."""

    def __init__(self, out: FunctionWriter, lanes: int) -> None:
        self.out = out
        self.lanes = lanes
        kinds = (vector_of(t, lanes) for t in ("i8", "i16", "i32", "float", "half", "i1"))
        self.byte, self.short, self.word, self.float, self.half, self.flag = kinds

    def const(self, number: int) -> str:
        return splat(int_constant(number, int32), "i32", self.lanes)

    def op(self, name: str, a: str, b: str) -> str:
        return self.out.emit(f"{name} {self.word} {a}, {b}")

    def bits(self, value: str) -> str:
        return self.out.emit(f"bitcast {self.float} {value} to {self.word}")

    def real(self, bits: str) -> str:
        return self.out.emit(f"bitcast {self.word} {bits} to {self.float}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.out.emit(f"select {self.flag} {condition}, {self.word} {a}, {self.word} {b}")

    def above(self, a: str, number: int) -> str:
        return self.out.emit(f"icmp ugt {self.word} {a}, {self.const(number)}")

    def equal(self, a: str, number: int) -> str:
        return self.out.emit(f"icmp eq {self.word} {a}, {self.const(number)}")

    def is_nan(self, value: str) -> str:
        return self.out.emit(f"fcmp uno {self.float} {value}, {value}")

    def absolute(self, value: str, kind: str, suffix: str) -> str:
        name = f"llvm.fabs.{suffix}" if self.lanes == 1 else f"llvm.fabs.v{self.lanes}{suffix}"
        callee = self.out.module.declare(name, f"{kind} @({kind})")
        return self.out.emit(f"call {kind} {callee}({kind} {value})")

    def extended(self, value: str, kind: str) -> str:
        """Integers of fewer bits in words."""
        return self.out.emit(f"zext {kind} {value} to {self.word}")

    def truncated(self, word: str, kind: str) -> str:
        return self.out.emit(f"trunc {self.word} {word} to {kind}")

    def rounded(self, bits: str, dropped: int) -> str:
        """Without so many low bits, rounded to nearest, ties to even."""
        odd = self.op("and", self.op("lshr", bits, self.const(dropped)), self.const(1))
        bias = self.op("add", odd, self.const((1 << dropped - 1) - 1))
        return self.op("lshr", self.op("add", bits, bias), self.const(dropped))
