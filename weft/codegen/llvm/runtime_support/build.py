"""Builds the runtime support object: thread pool, calls from Python, meters of the machine.

A library links against no other library. System functions that it needs are passed to it as
pointers when it is loaded.
"""

from __future__ import annotations

import functools

from weft.codegen.llvm.build import ObjectCode, build_text
from weft.codegen.llvm.emit.func import function_attributes
from weft.codegen.llvm.runtime_support import python_call
from weft.codegen.llvm.runtime_support.step_runner import step_runner_text
from weft.codegen.llvm.runtime_support.thread_pool import thread_pool_text
from weft.codegen.llvm.target_machine import data_layout
from weft.runtime.devices.cpu.rates import READ
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


def _read(target: CpuTarget) -> str:
    """``weft_read(data, units, rounds)``: vector loads of ``units`` x 4096 bytes, in order."""
    lanes = target.lanes("float32")
    kind, loads = f"<{lanes} x float>", 8
    phis = "\n".join(f"  %s{i} = phi {kind} [ zeroinitializer, %entry ], [ %t{i}, %step ]"
                     for i in range(loads))
    steps = "\n".join(
        f"  %p{i} = getelementptr {kind}, ptr %here, i64 {i}\n"
        f"  %v{i} = load {kind}, ptr %p{i}\n  %t{i} = fadd {kind} %s{i}, %v{i}"
        for i in range(loads))
    sums = "\n".join(f"  %u{i} = fadd {kind} %{'t0' if i == 1 else f'u{i - 1}'}, %t{i}"
                     for i in range(1, loads))
    step_bytes = loads * lanes * 4
    return f"""
define float @{READ}(ptr %data, i64 %units, i64 %rounds) {function_attributes(target)} {{
entry:
  %bytes = mul i64 %units, 4096
  br label %step
step:
  %round = phi i64 [ 0, %entry ], [ %round.next, %step ]
  %at = phi i64 [ 0, %entry ], [ %at.next, %step ]
{phis}
  %here = getelementptr i8, ptr %data, i64 %at
{steps}
  %behind = add i64 %at, {step_bytes}
  %is.end = icmp sge i64 %behind, %bytes
  %at.next = select i1 %is.end, i64 0, i64 %behind
  %add = zext i1 %is.end to i64
  %round.next = add i64 %round, %add
  %more = icmp slt i64 %round.next, %rounds
  br i1 %more, label %step, label %exit
exit:
{sums}
  %result = extractelement {kind} %u{loads - 1}, i64 0
  ret float %result
}}
"""


def runtime_support_text(target: CpuTarget) -> str:
    """LLVM IR of the runtime support, with the vector width of ``target``."""
    head = f'target datalayout = "{data_layout(target)}"\ntarget triple = "{target.triple}"\n'
    meters = _peak(target) + _read(target)
    calls = python_call.TEXT + step_runner_text(target)
    return head + thread_pool_text(target) + calls + meters


@functools.lru_cache(maxsize=8)
def build_runtime_support(target: CpuTarget) -> ObjectCode:
    """The object that defines the runtime functions; each library links it once."""
    return build_text("weft_runtime", runtime_support_text(target), target)
