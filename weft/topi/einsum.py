"""Einstein summation: parsing of equations, and evaluation by products of two operands."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from weft import te
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError
from weft.tir.expr import PrimExpr, const, int_value

_EQUATION = re.compile(r"[A-Za-z.,]*(->[A-Za-z.]*)?")
# The axes of ``...`` are named by digits, counted from the last one.
_MAX_BROADCAST = 10


@dataclass(frozen=True, slots=True)
class Axes:
    """Names of the axes of each input and of the output, one character each."""

    inputs: tuple[str, ...]
    output: str


def is_equation(text: str) -> bool:
    """Whether ``text`` is a well-formed equation, for any operands."""
    plain = text.replace(" ", "")
    if not _EQUATION.fullmatch(plain):
        return False
    left, _, right = plain.partition("->")
    terms = [*left.split(","), right]
    if any("." in term.replace("...", "", 1) for term in terms):
        return False
    letters = right.replace("...", "")
    return len(set(letters)) == len(letters) and set(letters) <= set(left)


def is_broadcast(name: str) -> bool:
    """Whether an axis belongs to ``...``, whose axes of size 1 broadcast."""
    return name.isdigit()


def parse(equation: str, ranks: Sequence[int]) -> Axes:
    """The axes of operands of these ranks; raises ``AttrsError`` for more than ten in ``...``."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs, widest = [], 0
    for term, rank in zip(left.split(","), ranks, strict=True):
        count = rank - len(term.replace("...", "")) if "..." in term else 0
        widest = max(widest, count)
        inputs.append(term.replace("...", _ellipsis(count)))
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        right = "..." + "".join(once)
    return Axes(tuple(inputs), right.replace("...", _ellipsis(widest)))


def _ellipsis(count: int) -> str:
    if count > _MAX_BROADCAST:
        raise AttrsError("... stands for too many axes", expected=f"{_MAX_BROADCAST} or less",
                         got=str(count))
    return string.digits[:count][::-1]


def write(inputs: Sequence[str], output: str) -> str:
    """The equation as text, from the axis names that ``parse`` returns."""
    free = [c for c in string.ascii_letters if c not in "".join((*inputs, output))]
    letters = {c: free[int(c)] for c in set("".join((*inputs, output))) if c.isdigit()}
    text = ",".join(inputs) + "->" + output
    return "".join(letters.get(c, c) for c in text)


def fresh_letter(used: str) -> str:
    """A letter that is not in ``used``."""
    return next(c for c in string.ascii_letters if c not in used)


def einsum(tensors: Sequence[te.Tensor], equation: str) -> te.Tensor:
    """The result, contracting operands from left to right; letters are summed at their last use."""
    axes = parse(equation, [t.ndim for t in tensors])
    value, names = tensors[0], axes.inputs[0]
    if len(tensors) == 1:
        return _join([(value, names)], axes.output)
    for n in range(1, len(tensors)):
        later = set(axes.output).union(*axes.inputs[n + 1:])
        joined = dict.fromkeys(names + axes.inputs[n])
        kept = axes.output if n == len(tensors) - 1 else "".join(c for c in joined if c in later)
        value = _join([(value, names), (tensors[n], axes.inputs[n])], kept)
        names = kept
    return value


def _join(operands: Sequence[tuple[te.Tensor, str]], output: str) -> te.Tensor:
    """The product of one or two operands, summed over the letters missing from ``output``."""
    sizes: dict[str, PrimExpr] = {}
    for tensor, names in operands:
        for name, size in zip(names, tensor.shape, strict=True):
            # An axis of size 1 broadcasts: another operand has the size.
            if name not in sizes or int_value(sizes[name]) == 1:
                sizes[name] = size
    inner = {n: te.reduce_axis(s, name=f"k{n}") for n, s in sizes.items() if n not in output}

    def element(*i: PrimExpr) -> PrimExpr:
        position = dict(zip(output, i, strict=True)) | {n: k.var for n, k in inner.items()}
        first, *rest = (
            tensor[tuple(const(0) if int_value(s) == 1 else position[n]
                         for n, s in zip(names, tensor.shape, strict=True))]
            for tensor, names in operands
        )
        product: PrimExpr = first * rest[0] if rest else first
        return te.sum(product, list(inner.values())) if inner else product

    return te.compute([sizes[n] for n in output], element, name="einsum")
