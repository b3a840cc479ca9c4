"""LLVM IR that computes sizes from their texts (``weft.runtime.sizes``)."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from weft.runtime.sizes import Size, names_in, parsed
from weft.support.errors import InternalError

_BINARY: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_COMPARE = {"max": "sgt", "min": "slt"}


class SizeWriter:
    """Appends instructions to ``lines``; ``names`` are the LLVM values of symbols."""

    def __init__(self, lines: list[str], names: Mapping[str, str]) -> None:
        self._lines = lines
        self._names = dict(names)
        self._known: dict[str, str] = {}

    def name(self, name: str, value: str) -> None:
        """Let later sizes call an LLVM value ``name``."""
        self._names[name] = value

    def knows(self, size: Size) -> bool:
        """Whether all symbols and entries in ``size`` have values."""
        return names_in(size) <= self._names.keys()

    def define(self, name: str, size: Size) -> str:
        """The value of ``size``, which later sizes may call ``name``."""
        value = self.value(size)
        self._names[name] = value
        return value

    def value(self, size: Size) -> str:
        """An LLVM value of type i64: a register or a literal."""
        return str(size) if isinstance(size, int) else self._node(parsed(size).body)

    def binary(self, operation: str, a: str, b: str) -> str:
        """The sum, difference or product (``add``, ``sub``, ``mul``) of two values."""
        return self._emit(f"{operation} i64 {a}, {b}")

    def _node(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return str(value)
            case ast.Name(id=name):
                return self._names[name]
            case ast.UnaryOp(operand=operand):
                return self._emit(f"sub i64 0, {self._node(operand)}")
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return self._quotient(self._node(left), self._node(right))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(_BINARY[type(op)], self._node(left), self._node(right))
            case ast.Call(func=ast.Name(id="floordiv"), args=[left, right]):
                return self._quotient(self._node(left), self._node(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._extremum(_COMPARE[name], [self._node(a) for a in args])
        raise InternalError("not a size", got=ast.dump(node))

    def _extremum(self, predicate: str, values: list[str]) -> str:
        best = values[0]
        for value in values[1:]:
            wins = self._emit(f"icmp {predicate} i64 {best}, {value}")
            best = self._emit(f"select i1 {wins}, i64 {best}, i64 {value}")
        return best

    def _quotient(self, a: str, b: str) -> str:
        """Division that rounds down; divisors are positive."""
        quotient = self._emit(f"sdiv i64 {a}, {b}")
        product = self._emit(f"mul i64 {quotient}, {b}")
        rounded_up = self._emit(f"icmp sgt i64 {product}, {a}")
        return self._emit(f"select i1 {rounded_up}, i64 "
                          f"{self._emit(f'sub i64 {quotient}, 1')}, i64 {quotient}")

    def _emit(self, instruction: str) -> str:
        """Equal instructions are computed once: all are in the block at the function's start."""
        found = self._known.get(instruction)
        if found is None:
            found = self._known[instruction] = f"%z{len(self._lines)}"
            self._lines.append(f"{found} = {instruction}")
        return found


class CheckedSizeWriter(SizeWriter):
    """A ``SizeWriter`` that notices results beyond 64 bits.

    ``overflows`` are values of type i1, one for each operation: whether its result is wrong. The
    module contains ``DECLARATIONS``.
    """

    DECLARATIONS = "\n".join(
        f"declare {{i64, i1}} @llvm.s{operation}.with.overflow.i64(i64, i64)"
        for operation in _BINARY.values())

    def __init__(self, lines: list[str], names: Mapping[str, str]) -> None:
        super().__init__(lines, names)
        self.overflows: dict[str, None] = {}

    def binary(self, operation: str, a: str, b: str) -> str:
        pair = self._emit(
            f"call {{i64, i1}} @llvm.s{operation}.with.overflow.i64(i64 {a}, i64 {b})")
        self.overflows[self._emit(f"extractvalue {{i64, i1}} {pair}, 1")] = None
        return self._emit(f"extractvalue {{i64, i1}} {pair}, 0")
