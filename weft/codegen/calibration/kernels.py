"""Micro-kernels as LLVM IR: each is bound by the one thing that it measures.

All loops count down an ``i64``. Vectors are of integers where only memory counts, so that no sum
waits for a floating-point latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.codegen.llvm.emit.func import function_attributes
from weft.codegen.llvm.target_machine import data_layout
from weft.target import CpuTarget

LINE = 64  # bytes
CHAIN_STEPS, SLOW_CHAIN_STEPS, CHASE_STEPS = 64, 48, 16
SHARE_CHAINS = 200  # of one iteration of a parallel loop
_UNROLLED = 8  # vectors of one iteration of a memory loop
_FMAS_PER_LINE = 16  # of the loop that consumes a stream as slowly as a GEMM does
_LATENCY_STEPS = 16


def module_text(target: CpuTarget, widths: Sequence[int]) -> str:
    """A module with all micro-kernels, for vectors of ``widths`` bits."""
    head = f'target datalayout = "{data_layout(target)}"\ntarget triple = "{target.triple}"\n'
    attributes = function_attributes(target)
    parts = [_chain(attributes), _chase(attributes), _parallel(attributes)]
    for width in widths:
        chains = fma_chains(target)
        parts += [_fma(f"fma_{width}", width, chains, 1, target, attributes),
                  _fma(f"fma_latency_{width}", width, 1, _LATENCY_STEPS, target, attributes),
                  _load(width, attributes), _store(width, attributes)]
        parts += [_vectors(name, width, target, attributes)
                  for name in ("mixed", "shuffle", "divide")]
        parts.append(_gather(width, attributes))
    parts += [_slow_chain(max(widths), target, attributes),
              _stream(max(widths), target, attributes)]
    return head + _declarations(target, widths) + "\n".join(parts) + _NO_UNROLLING


def fma_chains(target: CpuTarget) -> int:
    """Independent accumulators: enough for four ports with a latency of four cycles."""
    return 12 if target.vector_registers == 16 else 24


def fma_count(target: CpuTarget, *, latency: bool) -> int:
    """Multiply-adds of one iteration of ``fma_*`` and ``fma_latency_*``."""
    return _LATENCY_STEPS if latency else fma_chains(target)


_NO_UNROLLING = """
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
"""


def _declarations(target: CpuTarget, widths: Sequence[int]) -> str:
    lines = ["declare void @weft_parallel_launch(ptr, ptr, i64)",
             "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"]
    if target.has_fma:
        lines += [f"declare {_floats(w)} @llvm.fma.v{w // 32}f32"
                  f"({_floats(w)}, {_floats(w)}, {_floats(w)})" for w in widths]
    lines += [f"declare {_floats(w)} @llvm.masked.gather.v{w // 32}f32.v{w // 32}p0"
              f"(<{w // 32} x ptr>, i32, <{w // 32} x i1>, {_floats(w)})" for w in widths]
    return "\n".join(lines) + "\n"


def _floats(width: int) -> str:
    return f"<{width // 32} x float>"


def _loop(header: str, phis: Iterable[str], body: Iterable[str], result: str, attributes: str,
          entry: Iterable[str] = ()) -> str:
    """A function whose loop runs ``%n`` times; ``result`` is the text of its ``ret``."""
    lines = "\n  ".join([*phis])
    steps = "\n  ".join(body)
    start = "\n  ".join(entry)
    return f"""
define {header} {attributes} {{
entry:
  {start}
  br label %loop
loop:
  %i = phi i64 [ %n, %entry ], [ %i.next, %loop ]
  {lines}
  {steps}
  %i.next = add nsw i64 %i, -1
  %more = icmp sgt i64 %i.next, 0
  br i1 %more, label %loop, label %exit, !llvm.loop !0
exit:
  {result}
}}
"""


def _chain_steps(count: int) -> list[str]:
    """Alternating dependent additions and exclusive ors: one cycle each on every CPU."""
    steps, last = [], "%x"
    for number in range(count):
        name = "%x.next" if number == count - 1 else f"%x{number}"
        operation, operand = ("add", "%a") if number % 2 == 0 else ("xor", "%b")
        steps.append(f"{name} = {operation} i64 {last}, {operand}")
        last = name
    return steps


def _chain(attributes: str) -> str:
    """``chain(n, a, b)``: the clock, by ``CHAIN_STEPS`` dependent integer operations."""
    return _loop("i64 @chain(i64 %n, i64 %a, i64 %b)",
                 ["%x = phi i64 [ %n, %entry ], [ %x.next, %loop ]"], _chain_steps(CHAIN_STEPS),
                 "ret i64 %x.next", attributes)


def _slow_chain(width: int, target: CpuTarget, attributes: str) -> str:
    """``vector_chain(n, a, b, c)``: the clock while vector units work beside the chain."""
    kind, count = _floats(width), 12
    phis = ["%x = phi i64 [ %n, %entry ], [ %x.next, %loop ]"]
    phis += [f"%v{i} = phi {kind} [ %c, %entry ], [ %w{i}, %loop ]" for i in range(count)]
    steps = _chain_steps(SLOW_CHAIN_STEPS)
    steps += [line for i in range(count)
              for line in _multiply_add(f"%w{i}", f"%v{i}", "%c", width, target)]
    total, lines = _sum([f"%w{i}" for i in range(count)], kind, "fadd")
    return _loop(f"i64 @vector_chain(i64 %n, i64 %a, i64 %b, {kind} %c)".replace(
        f"{kind} %c", "ptr %p"), phis, steps,
        "\n  ".join([*lines, f"store {kind} {total}, ptr %p", "ret i64 %x.next"]), attributes,
        [f"%c = load {kind}, ptr %p"])


def _multiply_add(result: str, value: str, factor: str, width: int, target: CpuTarget) -> list[str]:
    """``result = value * factor + factor``, as one instruction where there is one."""
    kind = _floats(width)
    if target.has_fma:
        operands = f"{kind} {value}, {kind} {factor}, {kind} {factor}"
        return [f"{result} = call {kind} @llvm.fma.v{width // 32}f32({operands})"]
    return [f"{result}.p = fmul {kind} {value}, {factor}",
            f"{result} = fadd {kind} {result}.p, {factor}"]


def _fma(name: str, width: int, chains: int, steps: int, target: CpuTarget, attributes: str) -> str:
    """``fma_*(n, p)``: ``chains`` independent sequences of ``steps`` multiply-adds."""
    kind = _floats(width)
    phis = [f"%v{i} = phi {kind} [ %c{i}, %entry ], [ %w{i}.{steps - 1}, %loop ]"
            for i in range(chains)]
    body = [line for i in range(chains) for s in range(steps)
            for line in _multiply_add(f"%w{i}.{s}", f"%w{i}.{s - 1}" if s else f"%v{i}", "%c",
                                      width, target)]
    results = [f"%w{i}.{steps - 1}" for i in range(chains)]
    return _chained(name, kind, phis, body, results, attributes)


def _chained(name: str, kind: str, phis: Sequence[str], body: Sequence[str],
             results: Sequence[str], attributes: str, *setup: str) -> str:
    """A loop of independent chains, each from another value ``%cI`` of ``%c``, and their sum."""
    entry = [f"%c = load {kind}, ptr %p", *setup]
    entry += [f"%c{i} = fadd {kind} %c, splat (float 0x3FE{i:02X}00000000000)"
              for i in range(len(results))]
    total, lines = _sum(results, kind, "fadd")
    return _loop(f"void @{name}(i64 %n, ptr %p)", phis, body,
                 "\n  ".join([*lines, f"store {kind} {total}, ptr %p", "ret void"]), attributes,
                 entry)


def _vectors(name: str, width: int, target: CpuTarget, attributes: str) -> str:
    """``NAME_*(n, p)``: independent instructions of one kind on vectors.

    Those of ``mixed`` are multiply-adds and as many operations on integers. ``shuffle`` exchanges
    lanes of two registers at all distances, as transposes in registers do.
    """
    kind, chains, lanes = _floats(width), fma_chains(target), width // 32
    whole = f"<{lanes} x i32>"
    phis, body = [], []
    for i in range(chains):
        value, result = f"%v{i}", f"%w{i}"
        phis.append(f"{value} = phi {kind} [ %c{i}, %entry ], [ {result}, %loop ]")
        if name == "divide":
            body.append(f"{result} = fdiv {kind} %c, {value}")
        elif name == "shuffle":
            distance = 1 << i % (lanes.bit_length() - 1)
            picks = ", ".join(f"i32 {n if not n & distance else lanes + (n ^ distance)}"
                              for n in range(lanes))
            body.append(f"{result} = shufflevector {kind} {value}, {kind} %c, {whole} <{picks}>")
        elif i % 2:
            body += [f"{result}.a = bitcast {kind} {value} to {whole}",
                     f"{result}.b = add {whole} {result}.a, %d",
                     f"{result} = bitcast {whole} {result}.b to {kind}"]
        else:
            body += _multiply_add(result, value, "%c", width, target)
    return _chained(f"{name}_{width}", kind, phis, body, [f"%w{i}" for i in range(chains)],
                    attributes, f"%d = bitcast {kind} %c to {whole}")


def _gather(width: int, attributes: str) -> str:
    """``gather_*(n, p)``: elements of as many lines, from the first-level cache, as one vector."""
    kind, lanes = _floats(width), width // 32
    whole, each = f"<{lanes} x i32>", ", ".join(f"i64 {n * (LINE + 4)}" for n in range(lanes))
    mask, callee = ", ".join(["i1 true"] * lanes), f"@llvm.masked.gather.v{lanes}f32.v{lanes}p0"
    operands = f"<{lanes} x ptr> %at, i32 4, <{lanes} x i1> <{mask}>, {kind} zeroinitializer"
    body = ["%o = and i64 %i, 15", "%s = shl i64 %o, 2", "%q = getelementptr i8, ptr %p, i64 %s",
            f"%at = getelementptr i8, ptr %q, <{lanes} x i64> <{each}>",
            f"%g = call {kind} {callee}({operands})",
            f"%b = bitcast {kind} %g to {whole}", f"%w = xor {whole} %v, %b"]
    return _loop(f"void @gather_{width}(i64 %n, ptr %p)",
                 [f"%v = phi {whole} [ zeroinitializer, %entry ], [ %w, %loop ]"], body,
                 f"store volatile {whole} %w, ptr %p, align 4\n  ret void", attributes)


def _sum(names: Sequence[str], kind: str, operation: str) -> tuple[str, list[str]]:
    lines, total = [], names[0]
    for number, name in enumerate(names[1:]):
        lines.append(f"%s{number} = {operation} {kind} {total}, {name}")
        total = f"%s{number}"
    return total, lines


def _chase(attributes: str) -> str:
    """``chase(n, p)``: latency, by loads whose address is the result of the one before."""
    steps = [f"%x{i + 1} = load ptr, ptr %x{i}" for i in range(CHASE_STEPS)]
    return _loop("ptr @chase(i64 %n, ptr %p)",
                 [f"%x0 = phi ptr [ %p, %entry ], [ %x{CHASE_STEPS}, %loop ]"], steps,
                 f"ret ptr %x{CHASE_STEPS}", attributes)


def _parallel(attributes: str) -> str:
    """``fork_join(n, extent)``: ``n`` parallel loops; an iteration takes a few microseconds."""
    chain = "\n  ".join(_chain_steps(CHAIN_STEPS))
    return f"""
define internal void @share(i64 %begin, i64 %end, ptr %data) {attributes} {{
entry:
  %end.of.chain = alloca i64
  %count = sub i64 %end, %begin
  %n = mul i64 %count, {SHARE_CHAINS}
  %a = load volatile i64, ptr %data
  %b = load volatile i64, ptr %data
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %x = phi i64 [ %n, %entry ], [ %x.next, %loop ]
  {chain}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %exit, !llvm.loop !0
exit:
  store volatile i64 %x.next, ptr %end.of.chain
  ret void
}}
""" + _loop("void @fork_join(i64 %n, i64 %extent)", [],
            ["call void @weft_parallel_launch(ptr @share, ptr %data, i64 %extent)"], "ret void",
            attributes, ["%data = alloca [4 x i64], align 64"])


def _sweep(name: str, step: int, phis: Sequence[str], body: Sequence[str], result: str,
           attributes: str, entry: Sequence[str] = (), more: str = "") -> str:
    """A function that reads ``%bytes`` from ``%p``, ``%n`` times, ``step`` bytes per iteration."""
    carried = [line.split(" = ")[0] for line in phis]
    kinds = [line.split(" = phi ")[1].rpartition(" [")[0].split(" [")[0] for line in phis]
    outer = "\n  ".join(f"{c}.o = phi {k} [ zeroinitializer, %entry ], [ {c}.n, %next ]"
                        for c, k in zip(carried, kinds, strict=True))
    inner = "\n  ".join(f"{c} = phi {k} [ {c}.o, %outer ], [ {c}.n, %loop ]"
                        for c, k in zip(carried, kinds, strict=True))
    steps, start = "\n  ".join(body), "\n  ".join(entry)
    return f"""
define void @{name}(i64 %n, ptr %p, i64 %bytes{more}) {attributes} {{
entry:
  {start}
  br label %outer
outer:
  %i = phi i64 [ %n, %entry ], [ %i.next, %next ]
  {outer}
  br label %loop
loop:
  %at = phi i64 [ 0, %outer ], [ %at.next, %loop ]
  {inner}
  {steps}
  %at.next = add nuw nsw i64 %at, {step}
  %more = icmp slt i64 %at.next, %bytes
  br i1 %more, label %loop, label %next, !llvm.loop !0
next:
  %i.next = add nsw i64 %i, -1
  %again = icmp sgt i64 %i.next, 0
  br i1 %again, label %outer, label %exit
exit:
  {result}
}}
"""


def _load(width: int, attributes: str) -> str:
    """``load_*(n, p, bytes)``: sequential vector loads."""
    kind, size = f"<{width // 32} x i32>", width // 8
    phis = [f"%a{i} = phi {kind} []" for i in range(_UNROLLED)]
    body = []
    for i in range(_UNROLLED):
        body += [f"%o{i} = add nuw nsw i64 %at, {i * size}",
                 f"%q{i} = getelementptr i8, ptr %p, i64 %o{i}",
                 f"%l{i} = load {kind}, ptr %q{i}, align {size}",
                 f"%a{i}.n = xor {kind} %a{i}, %l{i}"]
    total, lines = _sum([f"%a{i}.n" for i in range(_UNROLLED)], kind, "xor")
    result = "\n  ".join([*lines, f"store volatile {kind} {total}, ptr %p, align {size}",
                          "ret void"])
    return _sweep(f"load_{width}", _UNROLLED * size, phis, body, result, attributes)


def _store(width: int, attributes: str) -> str:
    """``store_*(n, p, bytes)``: sequential vector stores of the first vector at ``p``."""
    kind, size = f"<{width // 32} x i32>", width // 8
    body = []
    for i in range(_UNROLLED):
        body += [f"%o{i} = add nuw nsw i64 %at, {i * size}",
                 f"%q{i} = getelementptr i8, ptr %p, i64 %o{i}",
                 f"store {kind} %c, ptr %q{i}, align {size}"]
    return _sweep(f"store_{width}", _UNROLLED * size, [], body, "ret void", attributes,
                  [f"%c = load {kind}, ptr %p, align {size}"])


def _stream(width: int, target: CpuTarget, attributes: str) -> str:
    """``stream(n, p, bytes, ahead)``: a line, its prefetch, and the arithmetic of a GEMM."""
    kind, size, count = _floats(width), width // 8, _FMAS_PER_LINE
    phis = [f"%v{i} = phi {kind} []" for i in range(count)]
    body = ["%f = add nuw nsw i64 %at, %ahead", "%g = getelementptr i8, ptr %p, i64 %f",
            "call void @llvm.prefetch.p0(ptr %g, i32 0, i32 3, i32 1)",
            "%q = getelementptr i8, ptr %p, i64 %at", f"%c = load {kind}, ptr %q, align {size}"]
    for i in range(count):
        lines = _multiply_add(f"%v{i}.n", f"%v{i}", "%c", width, target)
        body += lines
    total, lines = _sum([f"%v{i}.n" for i in range(count)], kind, "fadd")
    result = "\n  ".join([*lines, f"store volatile {kind} {total}, ptr %p, align {size}",
                          "ret void"])
    return _sweep("stream", LINE, phis, body, result, attributes, more=", i64 %ahead")
