"""Parsing of types, dimensions, attribute values and constants."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir.dtype import USUAL_DTYPES, DType
from weft.ir.expr import Constant
from weft.ir.shape import (
    ANY,
    AnyDim,
    Dim,
    KnownDim,
    SymDim,
    dim_add,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_mul,
    fits_int64,
)
from weft.ir.size_range import is_reserved
from weft.ir.symbol import name_of, range_of
from weft.ir.text.lexer import Tokens
from weft.ir.text.values import SCALAR_SUFFIXES, numbers_array
from weft.ir.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from weft.ir.visitor import Routine, run_routine
from weft.support.errors import TypeInferenceError, WeftError
from weft.support.suggestion import did_you_mean

_EXTREMES = {"max": dim_max, "min": dim_min}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)([a-z]\w*)?")
_DTYPE_OF_SUFFIX = {suffix: name for name, suffix in SCALAR_SUFFIXES.items()}
_WORDS = {
    "True": True,
    "False": False,
    "None": None,
    "inf": float("inf"),
    "nan": float("nan"),
}


class TypeParser:
    """Parses types; ``type_vars`` are the type parameters in scope, by name."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.type_vars: dict[str, TypeVar] = {}

    def type_(self) -> Type:
        """One type, nested to any depth."""
        return run_routine(self._any_type())

    def _any_type(self) -> Routine[Type]:
        tokens = self.tokens
        if tokens.at("("):
            return (yield self._tuple())
        name = tokens.expect_kind("name", "a type, such as Tensor[(2, 3), float32]")
        if name == "Tensor":
            return self._tensor()
        if name == "fn":
            return (yield self._function())
        if name == "ref":
            tokens.expect("(")
            inner = yield self._any_type()
            tokens.expect(")")
            return RefType(inner)
        if name == "_":
            return IncompleteType()
        if name in self.type_vars:
            return self.type_vars[name]
        scalar = _dtype_named(name)
        if scalar is not None:
            return TensorType((), scalar)
        args: list[Type] = []
        if tokens.accept("["):
            args = yield self._types("]")
        return TypeCall(GlobalTypeVar(name), tuple(args))

    def _types(self, closing: str) -> Routine[list[Type]]:
        found: list[Type] = []
        while not self.tokens.accept(closing):
            found.append((yield self._any_type()))
            if not self.tokens.at(closing):
                self.tokens.expect(",")
        return found

    def type_args(self) -> tuple[Type, ...]:
        """``[A, B]`` after a callee."""
        self.tokens.expect("[")
        return tuple(run_routine(self._types("]")))

    def _tuple(self) -> Routine[Type]:
        self.tokens.expect("(")
        fields = yield self._types(")")
        # ``(A)`` is a parenthesised type, ``(A,)`` a tuple of one.
        single = len(fields) == 1 and self.tokens.following(-2) != ","
        return fields[0] if single else TupleType(tuple(fields))

    def _tensor(self) -> Type:
        tokens = self.tokens
        tokens.expect("[")
        shape = self.shape()
        tokens.expect(",")
        dtype = self.dtype()
        tokens.expect("]")
        return TensorType(shape, dtype)

    def dtype(self) -> DType:
        """An element type by name."""
        if self.tokens.kind == "name":
            found = _dtype_named(self.tokens.text)
            if found is not None:
                self.tokens.next()
                return found
        return self.tokens.fail("unknown dtype", expected="a dtype, such as float32",
                                help=did_you_mean(self.tokens.text, USUAL_DTYPES))

    def _function(self) -> Routine[Type]:
        outer = dict(self.type_vars)
        generics = self.generics()
        self.tokens.expect("(")
        args = yield self._types(")")
        self.tokens.expect("->")
        result = yield self._any_type()
        self.type_vars = outer
        return FuncType(tuple(args), result, generics)

    def generics(self) -> tuple[TypeVar, ...]:
        """``[T, U]``: new type parameters, in scope from here."""
        if not self.tokens.accept("["):
            return ()
        made = []
        while not self.tokens.accept("]"):
            name = self.tokens.expect_kind("name", "the name of a type parameter")
            made.append(TypeVar(name))
            self.type_vars[name] = made[-1]
            if not self.tokens.at("]"):
                self.tokens.expect(",")
        return tuple(made)

    def shape(self) -> tuple[Dim, ...]:
        """``(2, n, ?)``; a single dimension needs no comma."""
        self.tokens.expect("(")
        dims: list[Dim] = []
        while not self.tokens.accept(")"):
            dims.append(self.dim())
            if not self.tokens.at(")"):
                self.tokens.expect(",")
        return tuple(dims)

    def dim(self) -> Dim:
        """A sum of products of sizes and symbols, or ``?``."""
        start = self.tokens.offset
        total = self._sum()
        if isinstance(total, int) and total < 0:
            self.tokens.fail("a dimension is negative", expected=">= 0", got=total, offset=start)
        if not fits_int64(total):
            self.tokens.fail("a dimension beyond int64", got=total, offset=start)
        return total

    def _sum(self) -> Dim:
        total = self._dim_term()
        while self.tokens.at("+") or self.tokens.at("-"):
            sign = 1 if self.tokens.next() == "+" else -1
            total = dim_add(total, dim_mul(sign, self._dim_term()))
        return total

    def known_dim(self) -> KnownDim:
        """A sum of products of sizes and symbols, which may be negative."""
        start = self.tokens.offset
        total = self._sum()
        if isinstance(total, AnyDim):
            self.tokens.fail("an attribute cannot be ?", expected="a size or a symbol",
                             offset=start)
        return total

    def _dim_term(self) -> Dim:
        product = self._dim_factor()
        while self.tokens.accept("*"):
            product = dim_mul(product, self._dim_factor())
        return product

    def _extreme(self, choose: Callable[[Dim, Dim], Dim]) -> Dim:
        """The operands of ``max(n - 3, 0)``."""
        self.tokens.expect("(")
        total = self._sum()
        while not self.tokens.accept(")"):
            self.tokens.expect(",")
            total = choose(total, self._sum())
        return total

    def _symbol(self) -> SymDim:
        tokens = self.tokens
        if is_reserved(name_of(tokens.text)):
            tokens.fail("a dtype or a value cannot be the name of a size", got=tokens.text)
        try:
            range_of(tokens.text)
        except TypeInferenceError as error:
            tokens.fail(error.what, expected=error.expected, got=error.got)
        return SymDim.symbol(tokens.next())

    def _dim_factor(self) -> Dim:
        tokens = self.tokens
        if tokens.accept("?"):
            return ANY
        if tokens.accept("-"):
            return dim_mul(-1, self._dim_factor())
        if tokens.kind == "number" and tokens.text.isdigit():
            return int(tokens.next())
        if tokens.at("floordiv") and tokens.following() == "(":
            tokens.next()
            tokens.expect("(")
            numerator = self._sum()
            tokens.expect(",")
            offset = tokens.offset
            divisor = tokens.expect_kind("number", "the divisor")
            if not divisor.isdigit() or not int(divisor):
                tokens.fail("a dimension is divided by a number above 0", got=divisor,
                            offset=offset)
            tokens.expect(")")
            return dim_floordiv(numerator, int(divisor))
        if tokens.text in _EXTREMES and tokens.following() == "(":
            return self._extreme(_EXTREMES[tokens.next()])
        if tokens.kind == "sized" or (tokens.kind == "name" and "." not in tokens.text):
            return self._symbol()
        return tokens.fail("expected a dimension", expected="a size, a symbol, or ?")


def _dtype_named(name: str) -> DType | None:
    try:
        return DType.parse(name)
    except WeftError:
        return None


def parse_value(tokens: Tokens) -> Any:
    """The value of an attribute: number, string, list (read as a tuple), dictionary, or word."""
    if tokens.kind == "string":
        return string_value(tokens)
    if tokens.at("[") or tokens.at("("):
        closing = "]" if tokens.next() == "[" else ")"
        items = []
        while not tokens.accept(closing):
            items.append(parse_value(tokens))
            if not tokens.at(closing):
                tokens.expect(",")
        return tuple(items)
    if tokens.accept("{"):
        return _dictionary(tokens)
    if _starts_dim(tokens):
        return TypeParser(tokens).known_dim()
    if tokens.accept("-"):
        value = parse_value(tokens)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
        return tokens.fail("expected a number after the minus sign")
    if tokens.kind == "number":
        return _plain_number(tokens)
    if tokens.at("bytes") and tokens.following() == "(":
        return _bytes(tokens)
    if tokens.kind == "name" and (tokens.text in _WORDS or _dtype_named(tokens.text)):
        word = tokens.next()
        return _WORDS.get(word, word)
    return tokens.fail("invalid attribute value",
                       expected='a number, a symbol, "text", [..], True, None')


def _starts_dim(tokens: Tokens) -> bool:
    """Whether the value is a symbolic size: ``n``, ``-n + 1``, ``2*n``, ``max(n, 4)``."""
    if tokens.kind == "number" or tokens.at("-"):
        ahead = 1 + tokens.at("-")
        follows_number = tokens.kind == "number" or tokens.following()[0].isdigit()
        if follows_number:
            return tokens.following(ahead) in ("*", "+", "-")
        return tokens.following() not in _WORDS
    if tokens.kind != "name":
        return tokens.kind == "sized"
    if tokens.at("bytes") and tokens.following() == "(":
        return False
    return "." not in tokens.text and tokens.text not in _WORDS and not _dtype_named(tokens.text)


def _bytes(tokens: Tokens) -> bytes:
    """``bytes("aGVsbG8=")``: raw bytes in base64."""
    tokens.next()
    tokens.expect("(")
    offset = tokens.offset
    text = string_value(tokens)
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        tokens.fail("invalid base64", got=text, offset=offset)
    tokens.expect(")")
    return value


def _dictionary(tokens: Tokens) -> dict[str, Any]:
    result: dict[str, Any] = {}
    while not tokens.accept("}"):
        key = string_value(tokens)
        tokens.expect(":")
        result[key] = parse_value(tokens)
        if not tokens.at("}"):
            tokens.expect(",")
    return result


def string_value(tokens: Tokens) -> str:
    """A quoted string."""
    text = tokens.text
    if tokens.kind != "string":
        tokens.fail("unexpected token", expected="a string")
    try:
        value = json.loads(text, strict=False)
    except json.JSONDecodeError:
        tokens.fail("invalid escape sequence in the string")
    tokens.next()
    return str(value)


def _plain_number(tokens: Tokens) -> int | float:
    digits, suffix = _split_number(tokens)
    if suffix:
        tokens.fail("a number in an attribute takes no suffix", expected=digits)
    tokens.next()
    return int(digits) if digits.isdigit() else float(digits)


def _split_number(tokens: Tokens) -> tuple[str, str]:
    match = _NUMBER.fullmatch(tokens.text)
    if match is None:
        tokens.fail("invalid number")
    return match[1], match[2] or ""


def parse_scalar(tokens: Tokens) -> Constant:
    """``1f``, ``-2``, ``3i64``, ``True``: a constant of rank 0."""
    span = tokens.span()
    if tokens.at("True") or tokens.at("False"):
        return Constant(np.array(tokens.next() == "True"), span=tokens.since(span))
    sign = "-" if tokens.accept("-") else ""
    if tokens.kind != "number":
        tokens.fail("expected a number after the minus sign")
    digits, suffix = _split_number(tokens)
    if not suffix and not digits.isdigit():
        suffix = "f"
    name = _DTYPE_OF_SUFFIX.get(suffix)
    if name is None:
        tokens.fail("unknown suffix of a number", expected="f, f64, f16, bf16, i64, i8, u8, ..")
    data = _numbers(tokens, [sign + digits], (), DType.parse(name))
    tokens.next()
    return Constant(data, span=tokens.since(span))


def parse_constant(tokens: Tokens, types: TypeParser) -> Constant:
    """``const([1, 2], (2,), float32)`` or, with the bytes in base64, ``const("..", ..)``."""
    span = tokens.span()
    start = tokens.offset
    tokens.expect("const")
    tokens.expect("(")
    content = string_value(tokens) if tokens.kind == "string" else _number_list(tokens)
    tokens.expect(",")
    shape = types.shape()
    tokens.expect(",")
    dtype = types.dtype()
    if not tokens.at(")"):
        tokens.expect(")")
    if not all(isinstance(d, int) for d in shape):
        tokens.fail("the shape of a constant must be static", offset=start)
    sizes = tuple(int(d) for d in shape)  # type: ignore[arg-type]
    if isinstance(content, str):
        data = decode_array(tokens, content, sizes, dtype, start)
    else:
        data = _numbers(tokens, content, sizes, dtype)
    tokens.next()
    return Constant(data, span=tokens.since(span))


def _number_list(tokens: Tokens) -> list[str]:
    tokens.expect("[")
    numbers = []
    while not tokens.accept("]"):
        sign = "-" if tokens.accept("-") else ""
        if tokens.kind == "number":
            numbers.append(sign + _split_number(tokens)[0])
            tokens.next()
        elif tokens.text in ("inf", "nan", "True", "False"):
            numbers.append(sign + tokens.next())
        else:
            tokens.fail("invalid number")
        if not tokens.at("]"):
            tokens.expect(",")
    return numbers


def _numbers(
    tokens: Tokens, numbers: list[str], shape: tuple[int, ...], dtype: DType
) -> np.ndarray:
    try:
        flat = numbers_array(numbers, dtype.numpy)
    except (ValueError, OverflowError):
        tokens.fail("number out of range of its dtype", expected=f"numbers of {dtype}")
    try:
        return flat.reshape(shape)
    except ValueError:
        tokens.fail("wrong number of elements for the shape", expected=shape, got=len(numbers))


def decode_array(
    tokens: Tokens, text: str, shape: tuple[int, ...], dtype: DType, offset: int
) -> np.ndarray:
    """An array from base64; raises ``ParseError`` if its size does not match the shape."""
    try:
        data = base64.b64decode(text, validate=True)
        return np.frombuffer(data, dtype.numpy).reshape(shape)
    except (binascii.Error, ValueError):
        tokens.fail("wrong number of bytes for the type of a constant",
                    expected=TensorType(shape, dtype), got=f"{len(text)} characters of base64",
                    offset=offset)
