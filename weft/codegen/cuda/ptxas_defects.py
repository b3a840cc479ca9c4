"""PTX rewritten around a defect of ``ptxas``, which the driver's compiler shares.

``ptxas`` (13.0.88 and 13.5.37, seen on an H200) computes ``zext(mul.hi.u32(a, c)) - b`` in 64 bits
by one ``IMAD.HI.U32`` whose addend has ``-b`` as its upper word, and takes the carry for the
borrow. For ``b`` with a lower word of 0 there is no carry, and the upper word of the result is
one too small. Differences of quotients, as in the sizes of adaptive windows, have this form.
"""

from __future__ import annotations

import re
from collections import Counter

_FUNCTION = re.compile(r"^\{$.*?^\}$", re.MULTILINE | re.DOTALL)
_HIGH_WORD = re.compile(r"^([ \t]*)mul\.hi\.u32(\s+)%(\w+), *([%\w]+), *([-%\w]+);", re.MULTILINE)
_EXTENDED = re.compile(r"\bcvt\.u64\.u32(\s+)(%\w+), *%(\w+);")
# The first operand of an instruction, which may have a predicate: stores have an address there.
_RESULT = re.compile(r"^\s*(?:@!?%\w+\s+)?[a-z][\w.]*\s+%(\w+),", re.MULTILINE)


def without_fused_borrow(ptx: str) -> str:
    """The PTX with high words that become 64-bit integers taken from 64-bit products.

    ``ptxas`` does not fuse a shifted product with the subtraction. The product costs the same
    instruction, and the shift is a choice of registers.
    """
    return _FUNCTION.sub(lambda body: _rewritten(body[0]), ptx)


def _rewritten(body: str) -> str:
    high_words = {found[3] for found in _HIGH_WORD.finditer(body)}
    chosen = high_words & {found[3] for found in _EXTENDED.finditer(body)}
    if not chosen:
        return body
    results = Counter(_RESULT.findall(body))
    chosen = {register for register in chosen if results[register] == 1}

    def with_product(found: re.Match[str]) -> str:
        indent, space, register, left, right = found.groups()
        product = f"{indent}mul.wide.u32{space}%product_{register}, {left}, {right};"
        return f"{found[0]}\n{product}" if register in chosen else found[0]

    def shifted(found: re.Match[str]) -> str:
        space, result, register = found.groups()
        if register not in chosen:
            return found[0]
        return f"shr.u64{space}{result}, %product_{register}, 32;"

    declared = ", ".join(f"%product_{register}" for register in sorted(chosen))
    body = _EXTENDED.sub(shifted, _HIGH_WORD.sub(with_product, body))
    return body.replace("{\n", f"{{\n\t.reg .b64 \t{declared};\n", 1) if chosen else body
