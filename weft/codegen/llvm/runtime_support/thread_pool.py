"""``weft_parallel_launch``: fork-join parallel loops on a thread pool, written in LLVM IR.

The launching thread publishes the loop, opens a gate, and works on the loop itself; workers that
enter before the gate closes participate. Each participant owns a fixed share of the iterations, so
that consecutive loops find their data in the caches of the same cores. A participant claims chunks
of its own share first, and then steals chunks from the others, so that the work of a descheduled
thread is taken over. The join waits only for chunks in progress, not for workers that never
started. Results do not depend on which thread runs an iteration.

A pool runs one loop at a time. A loop that another Python thread launches meanwhile takes the next
pool; if all pools are busy, it runs serially in its own thread.

``weft.runtime.devices.cpu.thread_pool`` allocates the pool and defines the layout of its fields.
The gate is one 64-bit word: the loop number in the upper half, the bit ``CLOSED``, and the number
of workers inside.
"""

from __future__ import annotations

from weft.runtime.devices.cpu.thread_pool import CLOSED, FIELD_BYTES, LineField, PoolField
from weft.target import CpuTarget

# Chunks per share. Small chunks keep the wait at the join short; claiming one takes a few ns.
_CHUNKS = 8


def thread_pool_text(target: CpuTarget) -> str:
    """LLVM IR of the launcher and of the worker's main loop."""
    declaration, relax = _relax(target)
    return (f"{declaration}\n{_STATE}{_LAUNCH}{_SERVE}{_TAKE_PART}"
            f"{_WORKER.format(relax=relax)}{_JOIN.format(relax=relax)}{_SPIN.format(relax=relax)}")


def _relax(target: CpuTarget) -> tuple[str, str]:
    """Declaration and call of the CPU's spin-wait hint; empty if it has none."""
    if target.arch == "x86_64":
        return "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    if target.arch == "aarch64":
        return "declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"
    return "", ""


def _at(name: str, field: PoolField) -> str:
    return f"  %{name} = getelementptr i8, ptr %pool, i64 {field}"


def _load(name: str, field: PoolField, kind: str = "i64") -> str:
    return f"{_at(name + '.at', field)}\n  %{name} = load {kind}, ptr %{name}.at"


def _line(name: str, number: str) -> str:
    """Pointer to the cache line of participant ``%number``: the next iteration of its share."""
    return (f"  %{name}.bytes = mul i64 %{number}, {FIELD_BYTES}\n"
            f"  %{name}.offset = add i64 %{name}.bytes, {PoolField.LINES}\n"
            f"  %{name} = getelementptr i8, ptr %pool, i64 %{name}.offset")


_STATE = """
@weft.pool = internal global ptr null
@weft.threads = internal global i32 1

define void @weft_set_thread_pool(ptr %pool, i32 %count) nounwind {
  store i32 %count, ptr @weft.threads
  store ptr %pool, ptr @weft.pool
  ret void
}
"""

_LAUNCH = f"""
define void @weft_parallel_launch(ptr %body, ptr %data, i64 %extent) nounwind {{
entry:
  %first = load ptr, ptr @weft.pool
  %threads = load i32, ptr @weft.threads
  %no.pool = icmp eq ptr %first, null
  %single = icmp sle i32 %threads, 1
  %alone = or i1 %no.pool, %single
  %short = icmp sle i64 %extent, 1
  %serial = or i1 %alone, %short
  br i1 %serial, label %here, label %look
look:
  %pool = phi ptr [ %first, %entry ], [ %next, %another ]
{_load("workers", PoolField.WORKERS)}
  %empty = icmp eq i64 %workers, 0
  br i1 %empty, label %another, label %lock
lock:
{_at("busy", PoolField.BUSY)}
  %locked = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %locked, 1
  br i1 %mine, label %team, label %another
another:
{_load("next", PoolField.NEXT, "ptr")}
  %last = icmp eq ptr %next, null
  br i1 %last, label %here, label %look
team:
  %wanted = sext i32 %threads to i64
  %most = add i64 %workers, 1
  %fewer = call i64 @llvm.smin.i64(i64 %wanted, i64 %most)
  %count = call i64 @llvm.smin.i64(i64 %fewer, i64 %extent)
  call void @weft.serve(ptr %pool, ptr %body, ptr %data, i64 %extent, i64 %count)
  store atomic i32 0, ptr %busy release, align 4
  ret void
here:
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %run, label %done
run:
  call void %body(i64 0, i64 %extent, ptr %data)
  br label %done
done:
  ret void
}}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""

# The launching thread: publish the loop, wake workers, work, join. No wake-up is lost: a worker
# sets its asleep flag and then checks the gate again; this thread opens the gate and then reads the
# flags.
# A plain store may open the gate, because no worker changes it between two loops. The fields of the
# loop are stored before, and workers read them after the compare-exchange by which they enter.
_SERVE = f"""
define internal void @weft.serve(ptr %pool, ptr %body, ptr %data, i64 %extent, i64 %count)
    nounwind {{
entry:
{_at("body.at", PoolField.BODY)}
  store ptr %body, ptr %body.at
{_at("data.at", PoolField.DATA)}
  store ptr %data, ptr %data.at
{_at("extent.at", PoolField.EXTENT)}
  store i64 %extent, ptr %extent.at
{_at("count.at", PoolField.COUNT)}
  store i64 %count, ptr %count.at
  br label %share
share:
  %i = phi i64 [ 0, %entry ], [ %i.next, %share ]
  %low = mul i64 %extent, %i
  %begin = udiv i64 %low, %count
{_line("next.at", "i")}
  store atomic i64 %begin, ptr %next.at monotonic, align 8
  %i.next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %share, label %open
open:
{_at("gate", PoolField.GATE)}
  %before = load atomic i64, ptr %gate monotonic, align 8
  %last = lshr i64 %before, 32
  %number = add i64 %last, 1
  %opened = shl i64 %number, 32
  store atomic i64 %opened, ptr %gate seq_cst, align 8
{_load("post", PoolField.POST, "ptr")}
  br label %see
see:
  %w = phi i64 [ 1, %open ], [ %w.next, %seen ]
{_line("own", "w")}
  %asleep.at = getelementptr i8, ptr %own, i64 {LineField.ASLEEP}
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %seen
wake:
  %was = atomicrmw xchg ptr %asleep.at, i32 0 seq_cst
  %still = icmp ne i32 %was, 0
  br i1 %still, label %post.it, label %seen
post.it:
  %semaphore = getelementptr i8, ptr %own, i64 {LineField.SEMAPHORE}
  %posted = call i32 %post(ptr %semaphore)
  br label %seen
seen:
  %w.next = add nuw nsw i64 %w, 1
  %others = icmp ult i64 %w.next, %count
  br i1 %others, label %see, label %work
work:
  call void @weft.take_part(ptr %pool, i64 0)
  %closed = atomicrmw or ptr %gate, i64 {CLOSED} acq_rel
  %inside = and i64 %closed, {CLOSED - 1}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %done, label %join
join:
  call void @weft.join(ptr %pool)
  br label %done
done:
  ret void
}}
"""

# A participant claims a chunk by an atomic addition, which may run past the end of the share; hence
# the second test. The load before it lets participants pass over finished shares without acquiring
# their cache lines for writing.
_TAKE_PART = f"""
define internal void @weft.take_part(ptr %pool, i64 %self) nounwind {{
entry:
{_load("body", PoolField.BODY, "ptr")}
{_load("data", PoolField.DATA, "ptr")}
{_load("extent", PoolField.EXTENT)}
{_load("count", PoolField.COUNT)}
  %parts = mul i64 %count, {_CHUNKS}
  %part = udiv i64 %extent, %parts
  %chunk = call i64 @llvm.smax.i64(i64 %part, i64 1)
  %invited = icmp ult i64 %self, %count
  br i1 %invited, label %share, label %done
share:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %sum = add i64 %self, %i
  %beyond = icmp uge i64 %sum, %count
  %wrapped = sub i64 %sum, %count
  %owner = select i1 %beyond, i64 %wrapped, i64 %sum
  %owner.next = add i64 %owner, 1
  %high = mul i64 %extent, %owner.next
  %end = udiv i64 %high, %count
{_line("next.at", "owner")}
  br label %look
look:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %left = icmp slt i64 %seen, %end
  br i1 %left, label %claim, label %next
claim:
  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %got = icmp slt i64 %first, %end
  br i1 %got, label %run, label %next
run:
  %full = add i64 %first, %chunk
  %last = call i64 @llvm.smin.i64(i64 %full, i64 %end)
  call void %body(i64 %first, i64 %last, ptr %data)
  br label %look
next:
  %i.next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %share, label %done
done:
  ret void
}}
"""

# The main loop of a worker thread; ``%own`` is its cache line.
# ``%served`` is the last loop in which the worker took part; while it stays open for the others, it
# is not entered again. In ``rouse``, the worker has seen a new loop after it set its asleep flag.
# If the launcher has taken the flag meanwhile, it posts the semaphore, and the worker must wait for
# that post, or its next sleep would end at once. A signal interrupts the wait.
_WORKER = f"""
define ptr @weft_worker(ptr %own) nounwind {{{{
entry:
  %pool.at = getelementptr i8, ptr %own, i64 {LineField.POOL}
  %pool = load ptr, ptr %pool.at
  %self.at = getelementptr i8, ptr %own, i64 {LineField.NUMBER}
  %self = load i64, ptr %self.at
  %asleep = getelementptr i8, ptr %own, i64 {LineField.ASLEEP}
  %semaphore = getelementptr i8, ptr %own, i64 {LineField.SEMAPHORE}
{_at("gate", PoolField.GATE)}
{_load("wait", PoolField.WAIT, "ptr")}
  br label %loop
loop:
  %served = phi i64 [ 0, %entry ], [ %served, %sleep ], [ %served, %enter ], [ %number, %leave ]
{_load("spins", PoolField.SPINS)}
  br label %poll
poll:
  %n = phi i64 [ 0, %loop ], [ %n.next, %relax ]
  %seen = load atomic i64, ptr %gate acquire, align 8
  %open = call i1 @weft.is_new(i64 %seen, i64 %served)
  br i1 %open, label %enter, label %relax
relax:
  {{relax}}
  %n.next = add i64 %n, 1
  %patient = icmp slt i64 %n.next, %spins
  br i1 %patient, label %poll, label %tire
tire:
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %look = load atomic i64, ptr %gate seq_cst, align 8
  %missed = call i1 @weft.is_new(i64 %look, i64 %served)
  br i1 %missed, label %rouse, label %sleep
rouse:
  %was = atomicrmw xchg ptr %asleep, i32 0 seq_cst
  %awake = icmp ne i32 %was, 0
  br i1 %awake, label %enter, label %sleep
sleep:
  %woken = call i32 %wait(ptr %semaphore)
  %broken = icmp ne i32 %woken, 0
  br i1 %broken, label %sleep, label %loop
enter:
  %given = phi i64 [ %seen, %poll ], [ %look, %rouse ]
  %number = lshr i64 %given, 32
  %more = add i64 %given, 1
  %swap = cmpxchg ptr %gate, i64 %given, i64 %more acq_rel monotonic
  %entered = extractvalue {{{{ i64, i1 }}}} %swap, 1
  br i1 %entered, label %leave, label %loop
leave:
  call void @weft.take_part(ptr %pool, i64 %self)
  %gone = atomicrmw sub ptr %gate, i64 1 release
  br label %loop
}}}}

define internal i1 @weft.is_new(i64 %gate, i64 %served) nounwind {{{{
  %number = lshr i64 %gate, 32
  %new = icmp ne i64 %number, %served
  %bit = and i64 %gate, {CLOSED}
  %open = icmp eq i64 %bit, 0
  %is = and i1 %new, %open
  ret i1 %is
}}}}
"""

# Wait until all workers have left the gate. After some spins yield: a worker may need this core.
# The acquiring load pairs with the release by which a worker leaves: its results are visible here.
_JOIN = f"""
define internal void @weft.join(ptr %pool) nounwind {{{{
entry:
{_at("gate", PoolField.GATE)}
{_load("spins", PoolField.SPINS)}
{_load("give_way", PoolField.YIELD, "ptr")}
  br label %poll
poll:
  %n = phi i64 [ 0, %entry ], [ %n.next, %again ]
  %seen = load atomic i64, ptr %gate acquire, align 8
  %inside = and i64 %seen, {CLOSED - 1}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %done, label %wait
wait:
  {{relax}}
  %n.next = add i64 %n, 1
  %tired = icmp sgt i64 %n.next, %spins
  br i1 %tired, label %lend, label %again
lend:
  %lent = call i32 %give_way()
  br label %again
again:
  br label %poll
done:
  ret void
}}}}
"""

# What an idle worker does, for a clock.
_SPIN = """
define void @weft_spin(i64 %count) nounwind {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n.next, %loop ]
  {relax}
  %n.next = add i64 %n, 1
  %more = icmp slt i64 %n.next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
