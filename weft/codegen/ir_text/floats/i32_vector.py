"""i32 bit-vector arithmetic on the bits of float32 values."""

from __future__ import annotations

from weft.codegen.ir_text.types import int_constant, splat, vector_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import int32


class I32Vector:
    """Emits instructions on vectors of ``lanes`` i32 values, and on the float32 values they encode.

    Arguments and results are LLVM operands.
    """

    def __init__(self, out: FunctionWriter, lanes: int) -> None:
        self.out = out
        self.lanes = lanes
        kinds = (vector_of(t, lanes) for t in ("i8", "i16", "i32", "float", "half", "i1"))
        self.byte, self.short, self.i32, self.float, self.half, self.flag = kinds

    def const(self, number: int) -> str:
        return splat(int_constant(number, int32), "i32", self.lanes)

    def op(self, name: str, a: str, b: str) -> str:
        return self.out.emit(f"{name} {self.i32} {a}, {b}")

    def bits(self, value: str) -> str:
        return self.out.emit(f"bitcast {self.float} {value} to {self.i32}")

    def real(self, bits: str) -> str:
        return self.out.emit(f"bitcast {self.i32} {bits} to {self.float}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.out.emit(f"select {self.flag} {condition}, {self.i32} {a}, {self.i32} {b}")

    def above(self, a: str, number: int) -> str:
        return self.out.emit(f"icmp ugt {self.i32} {a}, {self.const(number)}")

    def equal(self, a: str, number: int) -> str:
        return self.out.emit(f"icmp eq {self.i32} {a}, {self.const(number)}")

    def is_nan(self, value: str) -> str:
        return self.out.emit(f"fcmp uno {self.float} {value}, {value}")

    def absolute(self, value: str, kind: str, suffix: str) -> str:
        name = f"llvm.fabs.{suffix}" if self.lanes == 1 else f"llvm.fabs.v{self.lanes}{suffix}"
        callee = self.out.module.declare(name, f"{kind} @({kind})")
        return self.out.emit(f"call {kind} {callee}({kind} {value})")

    def extended(self, value: str, kind: str) -> str:
        """``value`` of a narrower integer type, zero-extended to i32."""
        return self.out.emit(f"zext {kind} {value} to {self.i32}")

    def truncated(self, bits: str, kind: str) -> str:
        return self.out.emit(f"trunc {self.i32} {bits} to {kind}")

    def rounded(self, bits: str, dropped: int) -> str:
        """``bits`` shifted right by ``dropped``, rounded to nearest, ties to even."""
        # One less than half a unit rounds ties down; where the kept number is odd, one more rounds
        # them up, to the even neighbour.
        odd = self.op("and", self.op("lshr", bits, self.const(dropped)), self.const(1))
        bias = self.op("add", odd, self.const((1 << dropped - 1) - 1))
        return self.op("lshr", self.op("add", bits, bias), self.const(dropped))
