"""Dimensions of tensor types: integers, symbolic dimensions, and ``Any``.

A symbolic dimension is a polynomial in named symbols kept in normal form, so that two dimensions
unify when their normal forms are equal (``2*n + 1`` with ``n + n + 1``). Two kinds of terms are
atoms of the polynomial: quotients that do not divide exactly (``floordiv(n, 2)``), and the larger
or smaller of two dimensions whose ranges overlap (``max(n - 3, 0)``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft.ir import intervals
from weft.ir.intervals import Bounds
from weft.ir.size_range import name_of, range_of
from weft.ir.size_syntax import parse_size
from weft.runtime.sizes import MAX_SIZE
from weft.support.dataclass import dataclass
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

# A monomial is a sorted tuple of atoms (with repetition); an atom is a symbol's text, a quotient,
# or an extreme of several dimensions.
Atom: TypeAlias = "str | FloorDivAtom | ExtremeAtom"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True, slots=True)
class FloorDivAtom:
    numerator: SymDim
    denominator: int

    def __str__(self) -> str:
        return f"floordiv({self.numerator}, {self.denominator})"


@dataclass(frozen=True, slots=True)
class ExtremeAtom:
    """The largest (``is_max``) or smallest of two or more dimensions, sorted by their text."""

    is_max: bool
    operands: tuple[int | SymDim, ...]

    @property
    def function(self) -> str:
        """``max`` or ``min``."""
        return "max" if self.is_max else "min"

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.operands))})"


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
                if isinstance(atom, str):
                    found.add(atom)
                else:
                    found.update(*(d.symbols() for d in _operands(atom) if isinstance(d, SymDim)))
        return frozenset(found)

    def __add__(self, other: Dim) -> Dim:
        return dim_add(self, other) if _is_dim(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return dim_sub(self, other) if _is_dim(other) else NotImplemented

    def __rsub__(self, other: Dim) -> Dim:
        return dim_sub(other, self) if _is_dim(other) else NotImplemented

    def __mul__(self, other: Dim) -> Dim:
        return dim_mul(self, other) if _is_dim(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return dim_floordiv(self, other) if _is_dim(other) else NotImplemented

    def __neg__(self) -> Dim:
        return dim_mul(self, -1)

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
# An attribute of this type is a size that the sizes of the inputs determine.
KnownDim: TypeAlias = int | SymDim


def _is_dim(value: object) -> bool:
    """Whether the arithmetic of dimensions takes a value; Python reports others (floats)."""
    return isinstance(value, (int, SymDim, AnyDim))


def _operands(atom: FloorDivAtom | ExtremeAtom) -> tuple[KnownDim, ...]:
    return (atom.numerator,) if isinstance(atom, FloorDivAtom) else atom.operands


def as_dim(value: object) -> Dim:
    """A number, a text of ``weft.ir.size_syntax``, ``"?"`` or ``None`` (any), or a ``Dim``."""
    if isinstance(value, (SymDim, AnyDim)):
        return value
    if value is None or value == "?":
        return ANY
    if isinstance(value, str):
        dim = parse_size(value, SymDim.symbol)
        if at_least(dim, 0) and fits_int64(dim):
            return dim
    elif isinstance(value, bool):
        pass
    elif hasattr(value, "__index__"):
        size = value.__index__()
        if 0 <= size <= MAX_SIZE:
            return size
    raise TypeInferenceError(
        f"not a dimension: {value!r}",
        expected='a size >= 0 in int64, a symbol such as "batch", or None for any size',
    )


def fits_int64(dim: Dim) -> bool:
    """Whether the numbers in a dimension are at most ``MAX_SIZE``, as machine code needs."""
    if isinstance(dim, AnyDim):
        return True
    return all(abs(coefficient) <= MAX_SIZE for coefficient in _terms(dim).values())


def as_shape(values: Sequence[object]) -> Shape:
    """Integers, names of sizes, dimensions and ``None`` (any size) as a shape."""
    return tuple(as_dim(v) for v in values)


def _terms(dim: int | SymDim) -> dict[Monomial, int]:
    return {(): dim} if isinstance(dim, int) else dict(dim.terms)


def dim_add(a: Dim, b: Dim) -> Dim:
    """The sum of two dimensions, in canonical form."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    total = _terms(a)
    for monomial, coefficient in _terms(b).items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return _without_exact_quotients(total)


def dim_sub(a: Dim, b: Dim) -> Dim:
    """The difference of two dimensions, in canonical form."""
    return dim_add(a, dim_mul(b, -1))


def dim_mul(a: Dim, b: Dim) -> Dim:
    """The product of two dimensions, in canonical form."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    product: dict[Monomial, int] = {}
    for m, c in _terms(a).items():
        for n, d in _terms(b).items():
            key = tuple(sorted(m + n, key=_atom_key))
            product[key] = product.get(key, 0) + c * d
    return _without_exact_quotients(product)


def _without_exact_quotients(terms: dict[Monomial, int]) -> Dim:
    """The sum of terms, where exact quotients have the least denominators.

    ``4*floordiv(n, 4)`` is ``n`` if that stands for multiples of 4, and ``2*floordiv(n, 4)`` is
    ``floordiv(n, 2)``.
    """
    for monomial, coefficient in terms.items():
        for atom in monomial:
            common = _common_factor(atom, coefficient)
            if common > 1 and isinstance(atom, FloorDivAtom):
                rest = list(monomial)
                rest.remove(atom)
                factor = SymDim.from_terms({tuple(rest): coefficient // common})
                reduced = dim_floordiv(atom.numerator, atom.denominator // common)
                others = SymDim.from_terms({m: c for m, c in terms.items() if m != monomial})
                return dim_add(dim_mul(factor, reduced), others)
    return SymDim.from_terms(terms)


def _common_factor(atom: Atom, coefficient: int) -> int:
    """The common factor of an exact quotient's denominator and coefficient; 1 for others."""
    if not isinstance(atom, FloorDivAtom) or multiple_of(atom.numerator) % atom.denominator:
        return 1
    return math.gcd(coefficient, atom.denominator)


def dim_floordiv(a: Dim, b: Dim) -> Dim:
    """The quotient of two dimensions, rounded down."""
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise TypeInferenceError("division of a dimension by zero", got=f"{a} // 0")
        return a // b
    if a == b:
        return 1
    if isinstance(b, SymDim):
        return _divided_by_monomial(a, b)
    if b == 1:
        return a
    if b == 0:
        raise TypeInferenceError("division of a dimension by zero", got=f"{a} // 0")
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        quotient, remainder = divmod(coefficient, b)
        whole[monomial] = quotient
        rest[monomial] = remainder
    return dim_add(SymDim.from_terms(whole), _rest_quotient(rest, b))


def _rest_quotient(terms: Mapping[Monomial, int], b: int) -> Dim:
    """``terms // b`` in normal form, for coefficients in ``[0, b)``."""
    exact: Dim = 0
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in terms.items():
        # A multiple of ``b`` leaves the sum: floordiv(h + 1, 2) is floordiv(h, 2) for an even h.
        if monomial and coefficient * _multiple_of_monomial(monomial) % b == 0:
            common = math.gcd(coefficient, b)
            quotient = _quotient(SymDim(((monomial, 1),)), b // common)
            exact = dim_add(exact, dim_mul(quotient, coefficient // common))
        else:
            rest[monomial] = coefficient
    left = SymDim.from_terms(rest)
    if not isinstance(left, SymDim):
        return exact  # 0 <= left < b, so it adds nothing to the quotient
    common = math.gcd(b, *(c for monomial, c in left.terms if monomial))
    if common > 1:  # the fraction of the constant is less than one step
        left = SymDim.from_terms({m: c // common for m, c in left.terms})
        return dim_add(exact, dim_floordiv(left, b // common))
    return dim_add(exact, _quotient(left, b))


def _quotient(dim: Dim, b: int) -> Dim:
    """``dim // b``: an atom, where quotients of quotients have one denominator."""
    if b == 1 or not isinstance(dim, SymDim):
        return dim_floordiv(dim, b)
    terms = dict(dim.terms)
    constant = terms.pop((), 0)
    if isinstance(constant, int) and len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        inner = monomial[0]
        if coefficient == len(monomial) == 1 and isinstance(inner, FloorDivAtom):
            scaled = dim_add(inner.numerator, constant * inner.denominator)
            return dim_floordiv(scaled, inner.denominator * b)
    return SymDim((((FloorDivAtom(dim, b),), 1),))


def _divided_by_monomial(a: KnownDim, b: SymDim) -> Dim:
    """``a // b`` if ``b`` is a product that divides every term of ``a``, else ``?``."""
    if len(b.terms) != 1:
        return ANY
    ((divisor, scale),) = b.terms
    quotient: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return ANY
            rest.remove(atom)
        if coefficient % scale:
            return ANY
        quotient[tuple(rest)] = coefficient // scale
    return SymDim.from_terms(quotient)


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger of two dimensions."""
    return _extreme(a, b, is_max=True)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller of two dimensions."""
    return _extreme(a, b, is_max=False)


def _extreme(a: Dim, b: Dim, *, is_max: bool) -> Dim:
    if isinstance(a, AnyDim) or isinstance(b, AnyDim):
        return ANY
    low, high = bounds_of(dim_sub(a, b))
    if low is not None and low >= 0:
        return a if is_max else b
    if high is not None and high <= 0:
        return b if is_max else a
    parts = {*_parts(a, is_max=is_max), *_parts(b, is_max=is_max)}
    numbers = {part for part in parts if isinstance(part, int)}
    if len(numbers) > 1:
        parts = (parts - numbers) | {max(numbers) if is_max else min(numbers)}
    operands = tuple(sorted(parts, key=str))
    return SymDim((((ExtremeAtom(is_max, operands),), 1),))


def _parts(dim: KnownDim, *, is_max: bool) -> tuple[KnownDim, ...]:
    """The operands of an extreme of the same kind, or the dimension itself."""
    if isinstance(dim, SymDim) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        atom = monomial[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(atom, ExtremeAtom) \
                and atom.is_max == is_max:
            return atom.operands
    return (dim,)


def dim_product(shape: Shape) -> Dim:
    """The number of elements of a tensor of this shape."""
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
    low, high = bounds_of(dim_sub(a, b))
    is_apart = (low is not None and low > 0) or (high is not None and high < 0)
    return False if is_apart else None


def may_be_equal(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are equal, or one of them is unknown (``?``).

    Symbolic ones must be equal for all sizes: nothing checks them once kernels are compiled.
    """
    return isinstance(a, AnyDim) or isinstance(b, AnyDim) or dims_equal(a, b) is True


def at_least(dim: Dim, bound: int) -> bool:
    """Whether a dimension may be ``bound`` or more; false only if it is known to be less."""
    high = bounds_of(dim)[1]
    return high is None or high >= bound


def bounds_of(dim: Dim) -> Bounds:
    """The least and greatest values by the ranges of the symbols; ``None``: unbounded."""
    if isinstance(dim, int):
        return dim, dim
    if isinstance(dim, AnyDim):
        return 0, None
    total: Bounds = (0, 0)
    for monomial, coefficient in dim.terms:
        bounds: Bounds = (coefficient, coefficient)
        for atom in monomial:
            bounds = intervals.of_product(bounds, _atom_bounds(atom))
        total = intervals.of_sum(total, bounds)
    return total


def _atom_bounds(atom: Atom) -> Bounds:
    if isinstance(atom, str):
        return intervals.of_symbol(atom)
    parts = [bounds_of(d) for d in _operands(atom)]
    if isinstance(atom, FloorDivAtom):
        return intervals.of_quotient(parts[0], atom.denominator)
    return intervals.of_extreme(parts, is_max=atom.is_max)


def multiple_of(dim: Dim) -> int:
    """The largest number known to divide a dimension; 0 for 0."""
    if isinstance(dim, int):
        return abs(dim)
    if isinstance(dim, AnyDim):
        return 1
    return math.gcd(*(coefficient * _multiple_of_monomial(monomial)
                      for monomial, coefficient in dim.terms))


def _multiple_of_monomial(monomial: Monomial) -> int:
    return math.prod(_multiple_of_atom(atom) for atom in monomial)


def _multiple_of_atom(atom: Atom) -> int:
    if isinstance(atom, str):
        return range_of(atom).multiple
    if isinstance(atom, FloorDivAtom):
        whole = multiple_of(atom.numerator)
        return whole // atom.denominator if whole % atom.denominator == 0 else 1
    return 1


def may_be_multiple(dim: Dim, factor: int) -> bool:
    """Whether a dimension is a multiple of ``factor``, or unknown.

    A symbolic one must be so for all sizes in the ranges of its symbols.
    """
    return isinstance(dim, AnyDim) or multiple_of(dim) % factor == 0


def may_be_at_least(dim: Dim, bound: Dim) -> bool:
    """Whether a dimension is ``bound`` or more for all sizes, or one of them is unknown."""
    difference = dim_sub(dim, bound)
    if isinstance(difference, AnyDim):
        return True
    low, _ = bounds_of(difference)
    return low is not None and low >= 0


def substitute_dim(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """``dim`` with ``values`` for symbols, by their text or by their name without the range."""
    if not isinstance(dim, SymDim):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        product: Dim = coefficient
        for atom in monomial:
            product = dim_mul(product, _substitute_atom(atom, values))
        total = dim_add(total, product)
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        found = values.get(atom, values.get(name_of(atom)))
        return SymDim.symbol(atom) if found is None else found
    operands = [substitute_dim(d, values) for d in _operands(atom)]
    if isinstance(atom, FloorDivAtom):
        return dim_floordiv(operands[0], atom.denominator)
    total = operands[0]
    for operand in operands[1:]:
        total = _extreme(total, operand, is_max=atom.is_max)
    return total
