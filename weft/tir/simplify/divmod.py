"""Floor division and modulo of linear sums.

With ``total = divisor * quotient + rest``, if ``0 <= rest < divisor`` then the quotient and the
rest are the results: ``(i*16 + j) // 16`` is ``i`` where ``0 <= j < 16``.

These rules hold for mathematical integers, so they apply only to exact sums, which cannot overflow
(``weft.tir.simplify.facts``).
"""

from __future__ import annotations

import math

from weft.tir import expr as x
from weft.tir.expr import IntImm, PrimExpr
from weft.tir.simplify.facts import Facts, linear_of_canonical, product_atom, product_factors
from weft.tir.simplify.linear import Linear
from weft.tir.visitor import post_order

# Operations of index arithmetic; a load, a cast or a selection is data.
_INDEX_NODES = (x.Var, x.IntImm, x.Add, x.Sub, x.Mul, x.FloorDiv, x.FloorMod, x.Min, x.Max)


def floordiv(facts: Facts, total: Linear, divisor: int) -> Linear:
    """``total // divisor`` for a positive constant divisor."""
    quotient, rest = total.split_by(divisor)
    if not (facts.is_exact(total) and facts.is_exact(rest)):
        return Linear.of_atom(x.FloorDiv(total.to_expr(), IntImm(divisor, x.int64)))
    period = _period(facts, rest, divisor)
    if period is not None:
        return Linear(quotient.terms, quotient.const + period)
    narrowed = _narrow(facts, rest, divisor)
    if narrowed is not None:
        coarse, _, scale = narrowed
        return quotient.plus(floordiv(facts, coarse, divisor // scale))
    inner = _flatten_quotient(facts, rest, divisor)
    if inner is not None:
        return quotient.plus(floordiv(facts, *inner))
    return quotient.plus(Linear.of_atom(x.FloorDiv(rest.to_expr(), IntImm(divisor, x.int64))))


def floormod(facts: Facts, total: Linear, divisor: int) -> Linear:
    """``total % divisor`` for a positive constant divisor."""
    _, rest = _drop_inner_mod(facts, total, divisor).split_by(divisor)
    if not (facts.is_exact(total) and facts.is_exact(rest)):
        return Linear.of_atom(x.FloorMod(total.to_expr(), IntImm(divisor, x.int64)))
    period = _period(facts, rest, divisor)
    if period is not None:
        return Linear(rest.terms, rest.const - period * divisor)
    narrowed = _narrow(facts, rest, divisor)
    if narrowed is not None:
        coarse, fine, scale = narrowed
        return fine.plus(floormod(facts, coarse, divisor // scale), scale)
    reduced = Linear({a: c % divisor for a, c in rest.terms.items()}, rest.const)
    rest = reduced if facts.is_exact(reduced) else rest
    period = _period(facts, rest, divisor)
    if period is not None:
        return Linear(rest.terms, rest.const - period * divisor)
    return Linear.of_atom(x.FloorMod(rest.to_expr(), IntImm(divisor, x.int64)))


def _period(facts: Facts, rest: Linear, divisor: int) -> int | None:
    """The quotient of ``rest`` if its bounds allow only one; else ``None``."""
    low, high = facts.of_sum(rest)
    if isinstance(low, float) or isinstance(high, float) or low // divisor != high // divisor:
        return None
    return low // divisor


def _narrow(facts: Facts, rest: Linear, divisor: int) -> tuple[Linear, Linear, int] | None:
    """``rest == scale * coarse + fine`` with ``scale | divisor`` and ``0 <= fine < scale``."""
    scales = {math.gcd(c, divisor) for c in rest.terms.values()}
    for scale in sorted(scales, reverse=True):
        if scale > 1:
            coarse, fine = rest.split_by(scale)
            low, high = facts.of_sum(fine)
            if low >= 0 and high < scale:
                return coarse, fine, scale
    return None


def _flatten_quotient(facts: Facts, rest: Linear, divisor: int) -> tuple[Linear, int] | None:
    """``(a // c + k) // divisor`` is ``(a + k*c) // (c * divisor)``."""
    if len(rest.terms) != 1:
        return None
    ((atom, coefficient),) = rest.terms.items()
    if type(atom) is not x.FloorDiv or coefficient != 1:
        return None
    inner = x.int_value(atom.b)
    if inner is None or inner <= 0:
        return None
    numerator = linear_of_canonical(atom.a)
    moved = Linear(numerator.terms, numerator.const + rest.const * inner)
    is_number = facts.is_exact(numerator) and facts.is_exact(moved)
    return (moved, inner * divisor) if is_number and inner * divisor < 2**63 else None


def _drop_inner_mod(facts: Facts, total: Linear, divisor: int) -> Linear:
    """``total``, congruent modulo ``divisor``, with ``a`` for ``a % c`` where it divides ``c``."""
    for atom, coefficient in total.terms.items():
        if type(atom) is x.FloorMod:
            inner = x.int_value(atom.b)
            if inner is None or inner <= 0 or inner * coefficient % divisor:
                continue
            dividend = linear_of_canonical(atom.a)
            bare = total.plus(Linear.of_atom(atom), -coefficient).plus(dividend, coefficient)
            if facts.is_exact(dividend) and facts.is_exact(bare):
                return _drop_inner_mod(facts, bare, divisor)
    return total


def split_symbolic(facts: Facts, total: Linear, divisor: PrimExpr) -> tuple[Linear, Linear] | None:
    """Quotient and remainder by a symbolic divisor; ``None`` unless the rest is provably
    in ``[0, divisor)``.
    """
    whole, rest = Linear.of_const(0), total
    for atom, coefficient in total.terms.items():
        factors = product_factors(atom)
        if divisor in factors:
            factors.remove(divisor)
            others = Linear.of_atom(product_atom(tuple(factors))) if factors else Linear.of_const(1)
            whole = whole.plus(others, coefficient)
            rest = rest.plus(Linear.of_atom(atom), -coefficient)
    if not all(map(facts.is_exact, (total, whole, rest))) or any(
            facts.product_of(product_factors(atom)) is None for atom in total.terms):
        return None
    below = Linear.of_atom(divisor).plus(rest, -1)
    below = Linear(below.terms, below.const - 1)
    if facts.is_not_negative(rest) and facts.is_not_negative(below):
        return whole, rest
    return None


def recombine(facts: Facts, total: Linear) -> Linear:
    """``a // c * (m*c) + a % c * m`` is ``a * m``; ``a * m - a // c * (m*c)`` is ``a % c * m``.

    One digit higher, ``a // c % d * (m*c) + a % c * m`` is ``a % (c*d) * m``.
    """
    for atom, coefficient in total.terms.items():
        if type(atom) is x.FloorMod:
            merged_digits = _join_digits(facts, total, atom, coefficient)
            if merged_digits is not None:
                return recombine(facts, merged_digits)
        if type(atom) is x.Mul:
            merged = _join_symbolic(facts, total, atom, coefficient)
            if merged is not None:
                return recombine(facts, merged)
        if type(atom) is not x.FloorDiv:
            continue
        divisor = x.int_value(atom.b)
        if divisor is None or divisor <= 0 or coefficient % divisor:
            continue
        factor = coefficient // divisor
        without = total.plus(Linear.of_atom(atom), -coefficient)
        numerator = linear_of_canonical(atom.a)
        remainder = _remainder_in(facts, without, numerator, divisor, factor)
        if remainder is not None:
            merged = without.plus(Linear.of_atom(remainder), -factor).plus(numerator, factor)
            return recombine(facts, merged)
        if all(without.terms.get(a) == -factor * c for a, c in numerator.terms.items()):
            rest = Linear.of_atom(x.FloorMod(atom.a, atom.b))
            return recombine(facts, without.plus(numerator, factor).plus(rest, -factor))
    return total


def _join_symbolic(facts: Facts, total: Linear, atom: x.Mul, coefficient: int) -> Linear | None:
    """``total`` with ``a // d * d * m + a % d * m`` merged into ``a * m`` for a symbolic ``d``.

    It is 0 for ``d == 0``, so ``d`` is positive or a size: loops over 0 elements compute nothing.
    A divisor that is a sum has its product expanded: ``a // (n + 1) * n + a // (n + 1)``.
    """
    factors = product_factors(atom)
    for quotient in (f for f in factors if type(f) is x.FloorDiv):
        if x.int_value(quotient.b) is not None:
            merged = _join_scaled(total, factors, quotient, coefficient)
            if merged is not None:
                return merged
            continue
        if not _may_divide(facts, quotient.b):
            continue
        divisor = linear_of_canonical(quotient.b)
        first, scale = next(iter(divisor.terms.items()))
        others = _without(factors, [quotient, *product_factors(first)])
        if others is None or coefficient % scale:
            continue
        factor = coefficient // scale
        product = _times(divisor, [quotient, *others])
        remainder = product_atom((x.FloorMod(quotient.a, quotient.b), *others))
        if total.terms.get(remainder) == factor and all(
                total.terms.get(term) == c * factor for term, c in product.terms.items()):
            merged = total.plus(product, -factor).plus(Linear.of_atom(remainder), -factor)
            return merged.plus(_times(linear_of_canonical(quotient.a), others), factor)
    return None


def _join_scaled(
    total: Linear, factors: list[PrimExpr], quotient: x.FloorDiv, coefficient: int
) -> Linear | None:
    """``total`` with ``a // 16 * 16 * m + a % 16 * m`` merged into ``a * m``, ``m`` symbolic."""
    divisor = x.int_value(quotient.b) or 0
    others = _without(factors, [quotient])
    if others is None or divisor <= 0 or coefficient % divisor:
        return None
    factor = coefficient // divisor
    remainder = product_atom((x.FloorMod(quotient.a, quotient.b), *others))
    if total.terms.get(remainder) != factor:
        return None
    merged = total.plus(Linear.of_atom(product_atom(tuple(factors))), -coefficient)
    merged = merged.plus(Linear.of_atom(remainder), -factor)
    return merged.plus(_times(linear_of_canonical(quotient.a), others), factor)


def _may_divide(facts: Facts, divisor: PrimExpr) -> bool:
    """Whether a divisor is positive, or index arithmetic that is not negative."""
    low, _ = facts.interval(divisor)
    return low > 0 or (low == 0 and all(
        isinstance(e, _INDEX_NODES) and e not in facts.bound for e in post_order(divisor)))


def _times(total: Linear, factors: list[PrimExpr]) -> Linear:
    """``total`` multiplied by atoms."""
    if not factors:
        return total
    rest = Linear.of_atom(product_atom(tuple(factors)), total.const)
    product = rest if total.const else Linear.of_const(0)
    for term, c in total.terms.items():
        product = product.plus(Linear.of_atom(product_atom((term, *factors))), c)
    return product


def _without(factors: list[PrimExpr], taken: list[PrimExpr]) -> list[PrimExpr] | None:
    """``factors`` without ``taken``; ``None`` if ``factors`` lacks one of these."""
    rest = list(factors)
    for factor in taken:
        if factor not in rest:
            return None
        rest.remove(factor)
    return rest


def _remainder_in(
    facts: Facts, total: Linear, numerator: Linear, divisor: int, factor: int
) -> x.FloorMod | None:
    """The term ``factor * (n % divisor)`` of ``total`` whose ``n`` is congruent to ``numerator``.

    A remainder has its coefficients reduced, so it need not show the numerator itself.
    """
    for atom, coefficient in total.terms.items():
        if type(atom) is not x.FloorMod or coefficient != factor:
            continue
        if x.int_value(atom.b) == divisor and _is_congruent(
                facts, numerator, linear_of_canonical(atom.a), divisor):
            return atom
    return None


def _is_congruent(facts: Facts, a: Linear, b: Linear, divisor: int) -> bool:
    """Whether two sums are known to be congruent modulo ``divisor``."""
    difference = a.plus(b, -1)
    if difference.is_const and difference.const == 0:
        return True
    difference = _drop_inner_mod(facts, difference, divisor)
    is_multiple = all(c % divisor == 0 for c in (difference.const, *difference.terms.values()))
    return is_multiple and facts.is_exact(a) and facts.is_exact(b)


def _join_digits(facts: Facts, total: Linear, atom: x.FloorMod, coefficient: int) -> Linear | None:
    """``total`` with the digits ``a // c % d`` and ``a % c`` merged into ``a % (c * d)``.

    A constant may be added to the quotient: ``a // c + k`` is ``(a + k * c) // c``.
    """
    quotient, digits = linear_of_canonical(atom.a), x.int_value(atom.b)
    if len(quotient.terms) != 1 or digits is None or digits <= 0:
        return None
    (high, times), = quotient.terms.items()
    if type(high) is not x.FloorDiv or times != 1:
        return None
    divisor = x.int_value(high.b)
    if divisor is None or divisor <= 0 or coefficient % divisor or divisor * digits >= 2**63:
        return None
    factor = coefficient // divisor
    dividend = linear_of_canonical(high.a)
    numerator = dividend.plus(Linear.of_const(quotient.const * divisor))
    if not all(map(facts.is_exact, (quotient, dividend, numerator))):
        return None
    low = _remainder_in(facts, total, numerator, divisor, factor)
    if low is None:
        return None
    # Simplify again: the merged digits may be simpler than each one.
    joined = floormod(facts, numerator, divisor * digits)
    return total.plus(Linear.of_atom(atom), -coefficient).plus(
        Linear.of_atom(low), -factor).plus(joined, factor)
