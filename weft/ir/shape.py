"""Dimensions of tensor types: integers, symbolic dimensions, and ``Any``.

A symbolic dimension is a polynomial in named symbols kept in normal form, so that two
dimensions unify when their normal forms are equal (``2*n + 1`` with ``n + n + 1``).
Quotients that do not divide exactly are atoms of the polynomial (``n // 2``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.support.errors import TypeInferenceError


@dataclass(frozen=True, slots=True)
class AnyDim:
    """A dimension known only at run time; two of them are never known to be equal."""

    def __add__(self, other: Dim) -> AnyDim:
        """Arithmetic with an unknown dimension gives an unknown dimension."""
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __add__

    def __str__(self) -> str:
        return "?"


ANY = AnyDim()

# A monomial is a sorted tuple of atoms (with repetition); an atom is a symbol's name or a quotient.
Atom: TypeAlias = "str | FloorDivAtom"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True, slots=True)
class FloorDivAtom:
    numerator: SymDim
    denominator: int

    def __str__(self) -> str:
        return f"floordiv({self.numerator}, {self.denominator})"


def _atom_key(atom: Atom) -> str:
    return str(atom)


@dataclass(frozen=True, slots=True)
class SymDim:
    """Sum of ``coefficient * monomial``; terms are sorted, coefficients are never zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def symbol(name: str) -> SymDim:
        return SymDim((((name,), 1),))

    @staticmethod
    def from_terms(terms: Mapping[Monomial, int]) -> Dim:
        kept = {m: c for m, c in terms.items() if c != 0}
        if not kept:
            return 0
        if set(kept) == {()}:
            return kept[()]
        ordered = sorted(kept.items(), key=lambda t: (-len(t[0]), [_atom_key(a) for a in t[0]]))
        return SymDim(tuple(ordered))

    def symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= {atom} if isinstance(atom, str) else atom.numerator.symbols()
        return frozenset(found)

    def __add__(self, other: Dim) -> Dim:
        return dim_add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return dim_add(self, dim_mul(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return dim_add(other, dim_mul(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return dim_mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return dim_floordiv(self, other)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            magnitude = abs(coefficient)
            if magnitude != 1 or not factors:
                factors.insert(0, str(magnitude))
            term = "*".join(factors)
            if not text:
                text = f"-{term}" if coefficient < 0 else term
            else:
                text += f" - {term}" if coefficient < 0 else f" + {term}"
        return text


Dim: TypeAlias = "int | SymDim | AnyDim"
Shape: TypeAlias = "tuple[Dim, ...]"


def as_dim(value: object) -> Dim:
    """``3``, ``"n"`` (a symbol), ``"?"`` or ``None`` (any), or a ``Dim`` unchanged."""
    if isinstance(value, (SymDim, AnyDim)):
        return value
    if value is None or value == "?":
        return ANY
    if isinstance(value, str):
        if value.isidentifier():
            return SymDim.symbol(value)
    elif isinstance(value, bool):
        pass
    elif hasattr(value, "__index__"):
        size = value.__index__()
        if size >= 0:
            return size
    raise TypeInferenceError(
        f"not a dimension: {value!r}",
        expected='a size >= 0, a symbol such as "batch", or None for any size',
    )


def as_shape(values: Sequence[object]) -> Shape:
    return tuple(as_dim(v) for v in values)


def _terms(dim: int | SymDim) -> dict[Monomial, int]:
    return {(): dim} if isinstance(dim, int) else dict(dim.terms)


def dim_add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    total = _terms(a)
    for monomial, coefficient in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return SymDim.from_terms(total)


def dim_sub(a: Dim, b: Dim) -> Dim:
    return dim_add(a, dim_mul(b, -1))


def dim_mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    product: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        for n, d in _terms(b).items():
            key = tuple(sorted(m + n, key=_atom_key))
            product[key] = product.get(key, 0) + c * d
    return SymDim.from_terms(product)


def dim_floordiv(a: Dim, b: Dim) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise TypeInferenceError("division of a dimension by zero", got=f"{a} // 0")
        return a // b
    if a == b:
        return 1
    if isinstance(b, SymDim):
        return ANY
    if b == 1:
        return a
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        quotient, remainder = divmod(coefficient, b)
        whole[monomial] = quotient
        rest[monomial] = remainder
    left = SymDim.from_terms(rest)
    exact = SymDim.from_terms(whole)
    if isinstance(left, SymDim):
        return dim_add(exact, SymDim((((FloorDivAtom(left, b),), 1),)))
    return exact  # 0 <= left < b, so it adds nothing to the quotient


def dim_product(shape: Shape) -> Dim:
    total: Dim = 1
    for dim in shape:
        total = dim_mul(total, dim)
    return total


def dims_equal(a: Dim, b: Dim) -> bool | None:
    """True or False if that is known, ``None`` if only run time can tell."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return None
    if a == b:
        return True
    difference = dim_sub(a, b)
    return False if isinstance(difference, int) else None


def substitute_dim(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    if not isinstance(dim, SymDim):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        product: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, str):
                product = dim_mul(product, values.get(atom, SymDim.symbol(atom)))
            else:
                numerator = substitute_dim(atom.numerator, values)
                product = dim_mul(product, dim_floordiv(numerator, atom.denominator))
        total = dim_add(total, product)
    return total
