"""The host code that makes the launches of a program: one call from Python for all of them.

It is generated once for a machine, as an object that the runtime links without LLVM. A launch
record has three words: the address of a ``CUlaunchConfig``, the ``CUfunction``, and the address of
the pointers to the arguments (``weft.runtime.devices.cuda.launch_records`` writes them).
"""

from __future__ import annotations

import functools

from weft.codegen.llvm.build import build_text
from weft.runtime.devices.cuda.launch_records import LAUNCH_ALL, RECORD_WORDS
from weft.target import CpuTarget

_TEXT = f"""
define i32 @{LAUNCH_ALL}(ptr %records, i64 %count, ptr %launch, ptr %at) nounwind {{
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %next, label %done
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %launched ]
  %first = mul nsw i64 %i, {RECORD_WORDS}
  %config.at = getelementptr ptr, ptr %records, i64 %first
  %function.at = getelementptr ptr, ptr %config.at, i64 1
  %arguments.at = getelementptr ptr, ptr %config.at, i64 2
  %config = load ptr, ptr %config.at
  %function = load ptr, ptr %function.at
  %arguments = load ptr, ptr %arguments.at
  %status = call i32 %launch(ptr %config, ptr %function, ptr %arguments, ptr null)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %launched, label %failed
launched:
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %done
failed:
  store i64 %i, ptr %at
  ret i32 %status
done:
  ret i32 0
}}
"""


def launcher_object(target: CpuTarget) -> bytes:
    """The object for a host."""
    return _built(target)


@functools.lru_cache(maxsize=8)
def _built(target: CpuTarget) -> bytes:
    header = f'target triple = "{target.triple}"\n'
    return build_text(LAUNCH_ALL, header + _TEXT, target).object
