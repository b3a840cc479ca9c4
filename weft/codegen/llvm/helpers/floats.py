"""Rounding of floats, fused multiply-add, and conversions between floats and 64-bit integers."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.llvm.helpers.text import HelperText, function


def _rounding(name: str, kind: str) -> HelperText:
    """Rounding of floats without instructions for it; large numbers are integers already."""

    def text(_: str) -> str:
        integer, digits = ("i32", 23) if kind == "float" else ("i64", 52)
        suffix = "f32" if kind == "float" else "f64"
        limit = f"0x{(1023 + digits) << 52:016X}"
        if name == "rint":
            value = f"  %up = fadd {kind} %size, {limit}\n  %whole = fsub {kind} %up, {limit}\n"
        else:
            value = (f"  %int = fptosi {kind} %size to {integer}\n"
                     f"  %whole = sitofp {integer} %int to {kind}\n")
        signed = f"  %near = call {kind} @llvm.copysign.{suffix}({kind} %whole, {kind} %x)\n"
        last = "%near"
        if name in ("floor", "ceil"):
            order, step = ("ogt", "fsub") if name == "floor" else ("olt", "fadd")
            signed += (f"  %off = fcmp {order} {kind} %near, %x\n"
                       f"  %moved = {step} {kind} %near, 1.0\n"
                       f"  %with = select i1 %off, {kind} %moved, {kind} %near\n"
                       f"  %kept = call {kind} @llvm.copysign.{suffix}({kind} %with, {kind} %x)\n")
            last = "%kept"
        symbol = name + ("f" if kind == "float" else "")
        return (f"declare {kind} @llvm.copysign.{suffix}({kind}, {kind})\n"
                f"declare {kind} @llvm.fabs.{suffix}({kind})\n" + function(
                    kind, symbol, f"{kind} %x",
                    f"  %size = call {kind} @llvm.fabs.{suffix}({kind} %x)\n"
                    f"  %small = fcmp olt {kind} %size, {limit}\n"
                    "  br i1 %small, label %round, label %same\nround:\n"
                    f"{value}{signed}  ret {kind} {last}\nsame:\n  ret {kind} %x"))

    return text


def _add_odd(_: str) -> str:
    """``a + b`` rounded to odd: an inexact sum is the neighbour with an odd significand.

    Rounding such a sum again to fewer bits rounds once (Boldo and Melquiond, 2008).
    """
    return function("double", "weft.add.odd", "double %a, double %b", """  %s = fadd double %a, %b
  %bb = fsub double %s, %a
  %aa = fsub double %s, %bb
  %ea = fsub double %a, %aa
  %eb = fsub double %b, %bb
  %e = fadd double %ea, %eb
  %inexact = fcmp one double %e, 0.0
  %bits = bitcast double %s to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %moves = and i1 %inexact, %even
  %ebits = bitcast double %e to i64
  %signs = xor i64 %ebits, %bits
  %opposed = icmp slt i64 %signs, 0
  %step = select i1 %opposed, i64 -1, i64 1
  %moved = add i64 %bits, %step
  %chosen = select i1 %moves, i64 %moved, i64 %bits
  %r = bitcast i64 %chosen to double
  ret double %r""")


def _fmaf(_: str) -> str:
    """The product is exact in double; the sum is rounded to odd, then to float."""
    return "declare double @weft.add.odd(double, double)\n" + function(
        "float", "fmaf", "float %x, float %y, float %z", """  %a = fpext float %x to double
  %b = fpext float %y to double
  %c = fpext float %z to double
  %p = fmul double %a, %b
  %s = call double @weft.add.odd(double %p, double %c)
  %r = fptrunc double %s to float
  ret float %r""")


def _split(name: str) -> str:
    """The upper and lower half of a significand (Dekker)."""
    return f"""  %{name}.c = fmul double %{name}, 134217729.0
  %{name}.d = fsub double %{name}.c, %{name}
  %{name}.h = fsub double %{name}.c, %{name}.d
  %{name}.l = fsub double %{name}, %{name}.h
"""


def _two_sum(a: str, b: str, total: str, error: str) -> str:
    return f"""  %{total} = fadd double %{a}, %{b}
  %{total}.b = fsub double %{total}, %{a}
  %{total}.a = fsub double %{total}, %{total}.b
  %{total}.ea = fsub double %{a}, %{total}.a
  %{total}.eb = fsub double %{b}, %{total}.b
  %{error} = fadd double %{total}.ea, %{total}.eb
"""


def _unit(name: str) -> str:
    """``%NAME.f`` in [1, 2) with the sign of ``%NAME``, and ``%NAME.e``, its exponent."""
    return f"""  %{name}.a = call double @llvm.fabs.f64(double %{name})
  %{name}.tiny = fcmp olt double %{name}.a, 0x0010000000000000
  %{name}.up = fmul double %{name}, 0x4350000000000000
  %{name}.n = select i1 %{name}.tiny, double %{name}.up, double %{name}
  %{name}.off = select i1 %{name}.tiny, i64 1077, i64 1023
  %{name}.bits = bitcast double %{name}.n to i64
  %{name}.raw = lshr i64 %{name}.bits, 52
  %{name}.low = and i64 %{name}.raw, 2047
  %{name}.e = sub i64 %{name}.low, %{name}.off
  %{name}.m = and i64 %{name}.bits, -9218868437227405313
  %{name}.o = or i64 %{name}.m, 4607182418800017408
  %{name}.f = bitcast i64 %{name}.o to double
"""


def _power(name: str, exponent: str) -> str:
    """``%NAME``: 2 to the power of a normal exponent."""
    return f"""  %{name}.b = add i64 %{exponent}, 1023
  %{name}.s = shl i64 %{name}.b, 52
  %{name} = bitcast i64 %{name}.s to double
"""


def _fma_sum() -> str:
    """``%vh + %rest``, the sum of the scaled product and the scaled addend; ``%near`` rounds it."""
    return f"""  %d.low = call i64 @llvm.smax.i64(i64 %d, i64 -110)
{_power("zp", "d.low")}  %w = fmul double %z.f, %zp
  %a = fadd double %x.f, 0.0
  %b = fadd double %y.f, 0.0
  %uh = fmul double %a, %b
{_split("a")}{_split("b")}  %hh = fmul double %a.h, %b.h
  %e1 = fsub double %hh, %uh
  %hl = fmul double %a.h, %b.l
  %e2 = fadd double %e1, %hl
  %lh = fmul double %a.l, %b.h
  %e3 = fadd double %e2, %lh
  %ll = fmul double %a.l, %b.l
  %ul = fadd double %e3, %ll
{_two_sum("w", "ul", "th", "tl")}{_two_sum("uh", "th", "vh", "vl")}\
  %rest = call double @weft.add.odd(double %tl, double %vl)
  %near = fadd double %vh, %rest
"""


def _fma_rounding() -> str:
    """``%r2``: the sum with its exponent.

    A denormal result is rounded once by adding a number ``%m`` whose last digit is that of denormal
    numbers.
    """
    return f"""  %nbits = bitcast double %near to i64
  %nraw = lshr i64 %nbits, 52
  %nexp = and i64 %nraw, 2047
  %rexp = add i64 %nexp, %e
  %nfrac = and i64 %nbits, 4503599627370495
  %power = icmp eq i64 %nfrac, 0
  %limit = select i1 %power, i64 2, i64 1
  %is.small = icmp slt i64 %rexp, %limit
  %me = sub i64 -1022, %e
  %me.low = call i64 @llvm.smax.i64(i64 %me, i64 -1000)
  %me.in = call i64 @llvm.smin.i64(i64 %me.low, i64 1000)
{_power("m1", "me.in")}  %m = call double @llvm.copysign.f64(double %m1, double %near)
{_two_sum("m", "vh", "mh", "ml")}\
  %left = call double @weft.add.odd(double %ml, double %rest)
  %cut = fadd double %mh, %left
  %back = fsub double %cut, %m
  %odd = call double @llvm.copysign.f64(double %back, double %near)
  %r = select i1 %is.small, double %odd, double %near
  %e.low = call i64 @llvm.smax.i64(i64 %e, i64 -2040)
  %e.in = call i64 @llvm.smin.i64(i64 %e.low, i64 2040)
  %half = ashr i64 %e.in, 1
  %other = sub i64 %e.in, %half
{_power("p1", "half")}{_power("p2", "other")}  %r1 = fmul double %r, %p1
  %r2 = fmul double %r1, %p2
"""


def _fma(_: str) -> str:
    """Scaled operands, an exact product, two exact sums, and one rounding of what is left.

    Boldo and Melquiond, "Emulation of FMA and Correctly Rounded Sums", 2008. An addend more than
    2**110 times as small as the product only breaks a tie, one as large is the result.
    """
    return """declare double @weft.add.odd(double, double)
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
""" + function("double", "fma", "double %x, double %y, double %z", f"""  %p = fmul double %x, %y
  %plain = fadd double %p, %z
  %xy = fmul double %x, 0.0
  %yy = fmul double %y, 0.0
  %zz = fmul double %z, 0.0
  %xyz = fadd double %xy, %yy
  %all = fadd double %xyz, %zz
  %finite = fcmp oeq double %all, 0.0
  %xnot = fcmp one double %x, 0.0
  %ynot = fcmp one double %y, 0.0
  %znot = fcmp one double %z, 0.0
  %xynot = and i1 %xnot, %ynot
  %nots = and i1 %xynot, %znot
  %hard = and i1 %nots, %finite
  br i1 %hard, label %scaled, label %simple
simple:
  %product = fcmp oeq double %xyz, 0.0
  %kept = select i1 %product, double %z, double %plain
  %sum.or.z = select i1 %finite, double %plain, double %kept
  %small = fcmp oeq double %z, 0.0
  %p.alone = and i1 %small, %xynot
  %easy = select i1 %p.alone, double %p, double %sum.or.z
  ret double %easy
scaled:
{_unit("x")}{_unit("y")}{_unit("z")}  %e = add i64 %x.e, %y.e
  %d = sub i64 %z.e, %e
  %large = icmp sgt i64 %d, 110
  br i1 %large, label %addend, label %sum
addend:
  ret double %z
sum:
{_fma_sum()}{_fma_rounding()}  ret double %r2""")


def _integer_to_float(name: str, kind: str, *, signed: bool) -> HelperText:
    """The upper 32 bits, the last of them set if one below is, as a float; then the scale."""

    def text(_: str) -> str:
        if kind == "double":  # both halves are exact, and the sum rounds once
            upper = "sitofp" if signed else "uitofp"
            return function("double", name, "i64 %x", f"""  %s = ashr i64 %x, 32
  %hi = trunc i64 %s to i32
  %lo = trunc i64 %x to i32
  %h = {upper} i32 %hi to double
  %l = uitofp i32 %lo to double
  %hs = fmul double %h, 4294967296.0
  %r = fadd double %hs, %l
  ret double %r""")
        size = """  %sign = ashr i64 %x, 63
  %flip = xor i64 %x, %sign
  %m = sub i64 %flip, %sign
""" if signed else "  %sign = add i64 0, 0\n  %m = add i64 %x, 0\n"
        return "declare i64 @llvm.ctlz.i64(i64, i1)\n" + function(
            "float", name, "i64 %x", f"""{size}  %lz0 = call i64 @llvm.ctlz.i64(i64 %m, i1 false)
  %lz = and i64 %lz0, 63
  %top = shl i64 %m, %lz
  %hi = lshr i64 %top, 32
  %lo = trunc i64 %top to i32
  %any = icmp ne i32 %lo, 0
  %sticky = zext i1 %any to i32
  %h = trunc i64 %hi to i32
  %hs = or i32 %h, %sticky
  %f = uitofp i32 %hs to float
  %e = sub i64 159, %lz
  %e32 = trunc i64 %e to i32
  %eb = shl i32 %e32, 23
  %p = bitcast i32 %eb to float
  %r = fmul float %f, %p
  %rb = bitcast float %r to i32
  %s32 = trunc i64 %sign to i32
  %sb = and i32 %s32, -2147483648
  %all = or i32 %rb, %sb
  %v = bitcast i32 %all to float
  ret float %v""")

    return text


def _float_to_integer(name: str, kind: str, *, signed: bool) -> HelperText:
    """The significand moved by the exponent, without instructions for floats."""
    bits, digits, bias = (32, 23, 127) if kind == "float" else (64, 52, 1023)

    def text(_: str) -> str:
        wide = f"  %w = zext i{bits} %b to i64\n" if bits == 32 else "  %w = add i64 %b, 0\n"
        last = ("  %r = select i1 %less, i64 0, i64 %v\n  %n = sub i64 0, %r\n"
                "  %minus = icmp ne i64 %sg, 0\n  %q = select i1 %minus, i64 %n, i64 %r\n") \
            if signed else "  %q = select i1 %less, i64 0, i64 %v\n"
        return function("i64", name, f"{kind} %x", f"""  %b = bitcast {kind} %x to i{bits}
{wide}  %sg = lshr i64 %w, {bits - 1}
  %es = lshr i64 %w, {digits}
  %e = and i64 %es, {2 * bias + 1}
  %m0 = and i64 %w, {(1 << digits) - 1}
  %m = or i64 %m0, {1 << digits}
  %up = sub i64 %e, {bias + digits}
  %down = sub i64 {bias + digits}, %e
  %isup = icmp sge i64 %up, 0
  %upm = and i64 %up, 63
  %downm = and i64 %down, 63
  %a = shl i64 %m, %upm
  %c = lshr i64 %m, %downm
  %v = select i1 %isup, i64 %a, i64 %c
  %less = icmp slt i64 %e, {bias}
{last}  ret i64 %q""")

    return text


_CONVERSIONS = (  # of compiler-rt, of Arm, the type of the float, whether integers have a sign
    ("__floatdisf", "__aeabi_l2f", "float", True),
    ("__floatundisf", "__aeabi_ul2f", "float", False),
    ("__floatdidf", "__aeabi_l2d", "double", True),
    ("__floatundidf", "__aeabi_ul2d", "double", False))
_TO_INTEGER = (
    ("__fixsfdi", "__aeabi_f2lz", "float", True), ("__fixunssfdi", "__aeabi_f2ulz", "float", False),
    ("__fixdfdi", "__aeabi_d2lz", "double", True),
    ("__fixunsdfdi", "__aeabi_d2ulz", "double", False))
FLOATS: Mapping[str, HelperText] = {
    **{name + ("f" if kind == "float" else ""): _rounding(name, kind)
       for name in ("floor", "ceil", "trunc", "rint") for kind in ("float", "double")},
    "weft.add.odd": _add_odd, "fmaf": _fmaf, "fma": _fma,
    **{name: _integer_to_float(name, kind, signed=signed)
       for *names, kind, signed in _CONVERSIONS for name in names},
    **{name: _float_to_integer(name, kind, signed=signed)
       for *names, kind, signed in _TO_INTEGER for name in names},
}
