"""Division of integers."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.llvm.helpers.text import HelperText, function


def _divide(bits: int) -> HelperText:
    """``weft.udivN(n, d)`` gives quotient and remainder: shift and subtract.

    64 bits are divided by an instruction where both numbers have 32.
    """

    def text(_: str) -> str:
        kind, pair = f"i{bits}", f"{{ i{bits}, i{bits} }}"
        short = "" if bits == 32 else """  %both = or i64 %n, %d
  %high = lshr i64 %both, 32
  %small = icmp eq i64 %high, 0
  br i1 %small, label %short, label %long
short:
  %n32 = trunc i64 %n to i32
  %d32 = trunc i64 %d to i32
  %q32 = udiv i32 %n32, %d32
  %p32 = mul i32 %q32, %d32
  %r32 = sub i32 %n32, %p32
  %q64 = zext i32 %q32 to i64
  %r64 = zext i32 %r32 to i64
  %s1 = insertvalue { i64, i64 } poison, i64 %q64, 0
  %s2 = insertvalue { i64, i64 } %s1, i64 %r64, 1
  ret { i64, i64 } %s2
"""
        start = "  br label %long\n" if bits == 32 else short
        return function(pair, f"weft.udiv{bits}", f"{kind} %n, {kind} %d", f"""entry:
{start}long:
  br label %loop
loop:
  %i = phi i32 [ 0, %long ], [ %i.next, %loop ]
  %left = phi {kind} [ %n, %long ], [ %left.next, %loop ]
  %q = phi {kind} [ 0, %long ], [ %q.next, %loop ]
  %r = phi {kind} [ 0, %long ], [ %r.next, %loop ]
  %top = lshr {kind} %left, {bits - 1}
  %out = icmp slt {kind} %r, 0
  %r.twice = shl {kind} %r, 1
  %r.with = or {kind} %r.twice, %top
  %left.next = shl {kind} %left, 1
  %fits = icmp uge {kind} %r.with, %d
  %goes = or i1 %out, %fits
  %r.less = sub {kind} %r.with, %d
  %r.next = select i1 %goes, {kind} %r.less, {kind} %r.with
  %bit = zext i1 %goes to {kind}
  %q.twice = shl {kind} %q, 1
  %q.next = or {kind} %q.twice, %bit
  %i.next = add i32 %i, 1
  %more = icmp ult i32 %i.next, {bits}
  br i1 %more, label %loop, label %done
done:
  %p1 = insertvalue {pair} poison, {kind} %q.next, 0
  %p2 = insertvalue {pair} %p1, {kind} %r.next, 1
  ret {pair} %p2""")

    return text


def _division(name: str, bits: int, *, signed: bool, gives: str) -> HelperText:
    """A division by ``weft.udivN``; ``gives`` is ``quotient``, ``remainder`` or ``both``."""

    def text(_: str) -> str:
        kind, pair = f"i{bits}", f"{{ i{bits}, i{bits} }}"
        lines = [f"  %sn = ashr {kind} %n, {bits - 1}", f"  %sd = ashr {kind} %d, {bits - 1}"] \
            if signed else []
        n, d = ("%n", "%d")
        if signed:
            for v in "nd":
                lines += [f"  %x{v} = xor {kind} %{v}, %s{v}", f"  %a{v} = sub {kind} %x{v}, %s{v}"]
            n, d = "%an", "%ad"
        lines += [f"  %u = call {pair} @weft.udiv{bits}({kind} {n}, {kind} {d})",
                  f"  %q0 = extractvalue {pair} %u, 0", f"  %r0 = extractvalue {pair} %u, 1"]
        q, r = "%q0", "%r0"
        if signed:
            lines += [f"  %sq = xor {kind} %sn, %sd", f"  %qx = xor {kind} %q0, %sq",
                      f"  %q1 = sub {kind} %qx, %sq", f"  %rx = xor {kind} %r0, %sn",
                      f"  %r1 = sub {kind} %rx, %sn"]
            q, r = "%q1", "%r1"
        if gives == "both":
            lines += [f"  %p1 = insertvalue {pair} poison, {kind} {q}, 0",
                      f"  %p2 = insertvalue {pair} %p1, {kind} {r}, 1", f"  ret {pair} %p2"]
        else:
            lines.append(f"  ret {kind} {q if gives == 'quotient' else r}")
        result = pair if gives == "both" else kind
        return f"declare {pair} @weft.udiv{bits}({kind}, {kind})\n" + function(
            result, name, f"{kind} %n, {kind} %d", "\n".join(lines))

    return text


DIVISION: Mapping[str, HelperText] = {
    "weft.udiv32": _divide(32), "weft.udiv64": _divide(64),
    **{f"__{sign}{what}{size}3": _division(f"__{sign}{what}{size}3", bits, signed=not sign,
                                           gives=gives)
       for sign in ("", "u") for what, gives in (("div", "quotient"), ("mod", "remainder"))
       for size, bits in (("si", 32), ("di", 64))},
    **{f"__aeabi_{name}": _division(f"__aeabi_{name}", bits, signed=signed, gives=gives)
       for name, bits, signed, gives in (
           ("ldivmod", 64, True, "both"), ("uldivmod", 64, False, "both"),
           ("idivmod", 32, True, "both"), ("uidivmod", 32, False, "both"),
           ("idiv", 32, True, "quotient"), ("uidiv", 32, False, "quotient"))},
}
