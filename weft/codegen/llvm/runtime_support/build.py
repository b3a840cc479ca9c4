"""Builds the runtime support object: thread pool, calls from Python, FMA peak meter.

A library links against no other library. System functions that it needs are passed to it as
pointers when it is loaded.
"""

from __future__ import annotations

import functools

from weft.codegen.llvm.build import ObjectCode, build_text
from weft.codegen.llvm.emit.func import function_attributes
from weft.codegen.llvm.runtime_support import python_call, step_runner
from weft.codegen.llvm.runtime_support.thread_pool import thread_pool_text
from weft.codegen.llvm.target_machine import data_layout
from weft.target import CpuTarget

# Independent FMA chains: enough to saturate two FMA units with a latency of 4 or 5 cycles.
_CHAINS = 12


def _peak(target: CpuTarget) -> str:
    """``weft_fma_peak(n)``: a loop of ``n`` iterations of independent vector FMAs."""
    kind = f"<{target.lanes('float32')} x float>"
    fma = f"@llvm.fma.v{target.lanes('float32')}f32"
    phis = "\n".join(
        f"  %a{i} = phi {kind} [ splat (float 0x3FF{i:X}000000000000), %entry ], [ %b{i}, %loop ]"
        for i in range(_CHAINS)
    )
    steps = "\n".join(
        f"  %b{i} = call {kind} {fma}({kind} %a{i}, {kind} %x, {kind} %y)" for i in range(_CHAINS)
    )
    sums = ["  %s0 = fadd " + kind + " %b0, %b1"]
    sums += [f"  %s{i} = fadd {kind} %s{i - 1}, %b{i + 1}" for i in range(1, _CHAINS - 1)]
    joined = "\n".join(sums)
    return f"""
declare {kind} {fma}({kind}, {kind}, {kind})

define float @weft_fma_peak(i64 %rounds) {function_attributes(target)} {{
entry:
  %n = sitofp i64 %rounds to float
  %scale = fdiv float 0.5, %n
  %x1 = insertelement {kind} poison, float %scale, i64 0
  %x = shufflevector {kind} %x1, {kind} poison, <{target.lanes("float32")} x i32> zeroinitializer
  %y = fadd {kind} %x, splat (float 1.0)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
{phis}
{steps}
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %rounds
  br i1 %more, label %loop, label %exit, !llvm.loop !0
exit:
{joined}
  %result = extractelement {kind} %s{_CHAINS - 2}, i64 0
  ret float %result
}}

define i64 @weft_fma_peak_flops() nounwind {{
  ret i64 {_CHAINS * 2 * target.lanes("float32")}
}}

!0 = distinct !{{!0, !1}}
!1 = !{{!"llvm.loop.unroll.disable"}}
"""


def runtime_support_text(target: CpuTarget) -> str:
    """LLVM IR of the runtime support, with the vector width of ``target``."""
    head = f'target datalayout = "{data_layout(target)}"\ntarget triple = "{target.triple}"\n'
    return head + thread_pool_text(target) + python_call.TEXT + step_runner.TEXT + _peak(target)


@functools.lru_cache(maxsize=8)
def build_runtime_support(target: CpuTarget) -> ObjectCode:
    """The object that defines the runtime functions; each library links it once."""
    return build_text("weft_runtime", runtime_support_text(target), target)
