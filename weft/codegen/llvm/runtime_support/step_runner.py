"""``weft_run_steps``: makes the kernel calls of a program one by one and reads the clock between.

Profiles use it, as a call from Python takes longer than many kernels.
``weft.runtime.devices.cpu.stepper`` lays out its arguments. A kernel is called with as many
arguments as the next larger form has: in the calling conventions of all supported machines the
caller removes arguments, so a function may be given more than it takes.
"""

from __future__ import annotations

from weft.runtime.devices.cpu.stepper import FORMS, RUN_STEPS
from weft.target import CpuTarget


def _form(count: int) -> str:
    """The block that calls ``%function`` with ``count`` integers from ``%args``."""
    loads = "\n".join(
        f"  %at{count}.{i} = getelementptr i64, ptr %args, i64 {i}\n"
        f"  %a{count}.{i} = load i64, ptr %at{count}.{i}" for i in range(count))
    values = ", ".join(f"i64 %a{count}.{i}" for i in range(count))
    return f"call{count}:\n{loads}\n  call void %function({values})\n  br label %next"


def _choices() -> str:
    """Branch to the smallest form that has enough arguments."""
    lines = []
    for number, count in enumerate(FORMS[:-1]):
        following = f"try{number + 1}" if number + 2 < len(FORMS) else f"call{FORMS[-1]}"
        lines += [f"try{number}:", f"  %fits{count} = icmp sle i64 %count, {count}",
                  f"  br i1 %fits{count}, label %call{count}, label %{following}"]
    return "\n".join(lines)


def _tick(target: CpuTarget) -> tuple[str, str]:
    """Declarations, and the code that reads ``%tick``.

    The time stamp counter of x86 takes some cycles, where the clock may take a microsecond in a
    virtual machine. Other machines may forbid programs to read their counters.
    """
    if target.arch == "x86_64":
        return ("declare i64 @llvm.readcyclecounter()",
                "  %tick = call i64 @llvm.readcyclecounter()")
    return "", """  %status = call i32 %clock(i32 1, ptr %now)
  %seconds = load i64, ptr %now
  %part.at = getelementptr i64, ptr %now, i64 1
  %part = load i64, ptr %part.at
  %whole = mul i64 %seconds, 1000000000
  %tick = add i64 %whole, %part"""


def step_runner_text(target: CpuTarget) -> str:
    """LLVM IR of ``weft_run_steps``; ``times`` are ticks of a constant length."""
    declarations, tick = _tick(target)
    return f"""
{declarations}

define void @{RUN_STEPS}(ptr %steps, i64 %number, ptr %clock, ptr %times) nounwind {{
entry:
  %now = alloca [2 x i64]
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %record = phi ptr [ %steps, %entry ], [ %record.next, %next ]
{tick}
  %time.at = getelementptr i64, ptr %times, i64 %i
  store i64 %tick, ptr %time.at
  %more = icmp slt i64 %i, %number
  br i1 %more, label %load, label %done
load:
  %function = load ptr, ptr %record
  %count.at = getelementptr i64, ptr %record, i64 1
  %count = load i64, ptr %count.at
  %args = getelementptr i64, ptr %record, i64 2
  br label %try0
{_choices()}
{chr(10).join(map(_form, FORMS))}
next:
  %record.next = getelementptr i64, ptr %args, i64 %count
  %i.next = add nsw i64 %i, 1
  br label %step
done:
  ret void
}}
"""
