"""The runtime that every library carries, as LLVM IR of weft's own: threads, a peak meter, calls.

``weft_parallel_launch`` forks and joins through the OpenMP ABI. Its three entry points are set at
load time (``weft_set_threading``), so that a library links against no OpenMP and runs serially
where there is none. Each thread takes one contiguous share of the iterations, the same for
every run: results do not depend on timing.
"""

from __future__ import annotations

import functools

from weft.codegen.llvm import python_call
from weft.codegen.llvm.build import ObjectCode, build_text
from weft.codegen.llvm.func import function_attributes
from weft.codegen.llvm.target_machine import data_layout
from weft.target import Target

_LAUNCH = """
@weft.fork = internal global ptr null
@weft.thread = internal global ptr null
@weft.team = internal global ptr null
@weft.threads = internal global i32 1

define void @weft_set_threading(ptr %fork, ptr %thread, ptr %team, i32 %count) nounwind {
  store ptr %thread, ptr @weft.thread
  store ptr %team, ptr @weft.team
  store i32 %count, ptr @weft.threads
  store ptr %fork, ptr @weft.fork
  ret void
}

define void @weft_set_num_threads(i32 %count) nounwind {
  store i32 %count, ptr @weft.threads
  ret void
}

define void @weft_parallel_launch(ptr %body, ptr %data, i64 %extent) nounwind {
entry:
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %work, label %done
work:
  %fork = load ptr, ptr @weft.fork
  %count = load i32, ptr @weft.threads
  %missing = icmp eq ptr %fork, null
  %single = icmp sle i32 %count, 1
  %one = icmp eq i64 %extent, 1
  %alone = or i1 %missing, %single
  %serial = or i1 %alone, %one
  br i1 %serial, label %here, label %team
here:
  call void %body(i64 0, i64 %extent, ptr %data)
  br label %done
team:
  %task = alloca { ptr, ptr, i64 }
  store ptr %body, ptr %task
  %data.place = getelementptr { ptr, ptr, i64 }, ptr %task, i32 0, i32 1
  store ptr %data, ptr %data.place
  %extent.place = getelementptr { ptr, ptr, i64 }, ptr %task, i32 0, i32 2
  store i64 %extent, ptr %extent.place
  call void %fork(ptr @weft.share, ptr %task, i32 %count, i32 0)
  br label %done
done:
  ret void
}

define internal void @weft.share(ptr %task) nounwind {
entry:
  %body = load ptr, ptr %task
  %data.place = getelementptr { ptr, ptr, i64 }, ptr %task, i32 0, i32 1
  %data = load ptr, ptr %data.place
  %extent.place = getelementptr { ptr, ptr, i64 }, ptr %task, i32 0, i32 2
  %extent = load i64, ptr %extent.place
  %thread.fn = load ptr, ptr @weft.thread
  %team.fn = load ptr, ptr @weft.team
  %thread.number = call i32 %thread.fn()
  %team.size = call i32 %team.fn()
  %thread = sext i32 %thread.number to i64
  %team = sext i32 %team.size to i64
  %low = mul i64 %extent, %thread
  %begin = sdiv i64 %low, %team
  %next = add i64 %thread, 1
  %high = mul i64 %extent, %next
  %end = sdiv i64 %high, %team
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %run, label %done
run:
  call void %body(i64 %begin, i64 %end, ptr %data)
  br label %done
done:
  ret void
}
"""

# Independent chains: enough to cover two units of four or five cycles latency.
_CHAINS = 12


def _peak(target: Target) -> str:
    """``weft_fma_peak(n)``: n rounds of independent multiply-adds, nothing else."""
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


def runtime_support_text(target: Target) -> str:
    """LLVM IR of the runtime support for ``target``."""
    return (
        f'target datalayout = "{data_layout(target)}"\n'
        f'target triple = "{target.triple}"\n{_LAUNCH}{python_call.TEXT}{_peak(target)}'
    )


@functools.lru_cache(maxsize=8)
def build_runtime_support(target: Target) -> ObjectCode:
    """The object that defines the launcher and the peak meter, to be linked once a library."""
    return build_text("weft_runtime", runtime_support_text(target), target)
