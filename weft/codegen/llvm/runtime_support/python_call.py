"""``PYTHON_CALL``: ``weft_main`` as a builtin function of CPython, written in LLVM IR.

A call through ctypes takes longer than many small models: ctypes needs a microsecond for the
address of one array. This function takes the array objects (``METH_FASTCALL``), checks type, dtype,
rank, sizes and layout with a few loads, and releases the GIL if the plan asks for it. Given outputs
are checked in the same way, and for memory that they share.
``weft.runtime.devices.cpu.python_call`` builds the plan and documents the results. CPython
functions belong to the stable ABI and are called through pointers in the plan, so libraries do not
link against libpython. ``weft.runtime.devices.cpu.numpy_layout`` has the offsets of the array
fields.
"""

from __future__ import annotations

from weft.runtime.arena import NBYTES, NEXT
from weft.runtime.devices.cpu import numpy_layout as layout
from weft.runtime.devices.cpu.python_call import NO_ARENA, PLAN_FIELDS, PYTHON_CALL


def _field(name: str, kind: str = "ptr", value: str | None = None) -> str:
    """Load a field of ``%plan`` as ``%value``; the default name is that of the field."""
    value = value or name
    return (f"  %{value}.at = getelementptr i64, ptr %plan, i64 {PLAN_FIELDS.index(name)}\n"
            f"  %{value} = load {kind}, ptr %{value}.at")


def _member(value: str, owner: str, offset: int, kind: str) -> str:
    """Load a member of type ``kind``, ``offset`` bytes into the object ``%owner``."""
    return (f"  %{value}.at = getelementptr i8, ptr %{owner}, i64 {offset}\n"
            f"  %{value} = load {kind}, ptr %{value}.at")


# A form describes an array by its dtype object, its bytes, its rank and its sizes. Writes the
# address and the end of each array; false if one differs from its form, or lacks a flag of %order.
_READ_ARRAYS = f"""
define internal i1 @weft.read_arrays(ptr %plan, ptr %forms, i64 %count, i32 %order, ptr %args,
                                     ptr %addresses, ptr %ends) nounwind {{
entry:
{_field("array_type")}
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %input, label %good
input:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %form = phi ptr [ %forms, %entry ], [ %form.next, %next ]
  %array.at = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %array.at
{_member("type", "array", layout.TYPE, "ptr")}
  %is.array = icmp eq ptr %type, %array_type
  br i1 %is.array, label %look, label %bad
look:
{_member("dtype", "array", layout.DTYPE, "ptr")}
{_member("ndim", "array", layout.NDIM, "i32")}
{_member("flags", "array", layout.FLAGS, "i32")}
  %wanted.dtype = load ptr, ptr %form
  %nbytes.at = getelementptr i64, ptr %form, i64 1
  %nbytes = load i64, ptr %nbytes.at
  %rank.at = getelementptr i64, ptr %form, i64 2
  %rank = load i64, ptr %rank.at
  %rank.given = sext i32 %ndim to i64
  %ordered = and i32 %flags, %order
  %same.dtype = icmp eq ptr %dtype, %wanted.dtype
  %same.rank = icmp eq i64 %rank.given, %rank
  %in.order = icmp eq i32 %ordered, %order
  %same = and i1 %same.dtype, %same.rank
  %fits = and i1 %same, %in.order
  br i1 %fits, label %sizes, label %bad
sizes:
{_member("dims", "array", layout.DIMENSIONS, "ptr")}
  %wanted = getelementptr i64, ptr %form, i64 3
  br label %size
size:
  %d = phi i64 [ 0, %sizes ], [ %d.next, %compare ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %next, label %compare
compare:
  %size.at = getelementptr i64, ptr %dims, i64 %d
  %size.given = load i64, ptr %size.at
  %size.wanted.at = getelementptr i64, ptr %wanted, i64 %d
  %size.wanted = load i64, ptr %size.wanted.at
  %equal = icmp eq i64 %size.given, %size.wanted
  %d.next = add nsw i64 %d, 1
  br i1 %equal, label %size, label %bad
next:
{_member("data", "array", layout.DATA, "ptr")}
  %address.at = getelementptr ptr, ptr %addresses, i64 %i
  store ptr %data, ptr %address.at
  %end = getelementptr i8, ptr %data, i64 %nbytes
  %end.at = getelementptr ptr, ptr %ends, i64 %i
  store ptr %end, ptr %end.at
  %form.next = getelementptr i64, ptr %wanted, i64 %rank
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %input, label %good
good:
  ret i1 true
bad:
  ret i1 false
}}
"""

# Whether bytes overlap some of the ``count`` arrays at ``addresses``.
_OVERLAPS = """
define internal i1 @weft.overlaps(ptr %first, ptr %last, ptr %addresses, ptr %ends, i64 %count)
    nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %array ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %array, label %done
array:
  %start.at = getelementptr ptr, ptr %addresses, i64 %i
  %start = load ptr, ptr %start.at
  %stop.at = getelementptr ptr, ptr %ends, i64 %i
  %stop = load ptr, ptr %stop.at
  %before = icmp ult ptr %first, %stop
  %behind = icmp ult ptr %start, %last
  %both = and i1 %before, %behind
  %i.next = add nsw i64 %i, 1
  br i1 %both, label %done, label %head
done:
  %found = phi i1 [ false, %head ], [ true, %array ]
  ret i1 %found
}
"""

# Whether the outputs at ``args`` fit, and share no memory with inputs and with each other.
_TAKE_OUTPUTS = f"""
define internal i1 @weft.take_outputs(ptr %plan, ptr %args, ptr %outputs, ptr %inputs,
                                      ptr %input_ends) nounwind {{
entry:
{_field("outputs", value="forms")}
{_field("num_inputs", "i64")}
{_field("num_outputs", "i64")}
  %ends = alloca ptr, i64 %num_outputs
  %fit = call i1 @weft.read_arrays(ptr %plan, ptr %forms, i64 %num_outputs,
                                   i32 {layout.WRITABLE_CARRAY}, ptr %args, ptr %outputs, ptr %ends)
  br i1 %fit, label %head, label %done
head:
  %i = phi i64 [ 0, %entry ], [ %i.next, %earlier ]
  %more = icmp slt i64 %i, %num_outputs
  br i1 %more, label %output, label %done
output:
  %first.at = getelementptr ptr, ptr %outputs, i64 %i
  %first = load ptr, ptr %first.at
  %last.at = getelementptr ptr, ptr %ends, i64 %i
  %last = load ptr, ptr %last.at
  %on.input = call i1 @weft.overlaps(ptr %first, ptr %last, ptr %inputs, ptr %input_ends,
                                     i64 %num_inputs)
  br i1 %on.input, label %done, label %earlier
earlier:
  %on.output = call i1 @weft.overlaps(ptr %first, ptr %last, ptr %outputs, ptr %ends, i64 %i)
  %i.next = add nsw i64 %i, 1
  br i1 %on.output, label %done, label %head
done:
  %good = phi i1 [ false, %entry ], [ true, %head ], [ false, %output ], [ false, %earlier ]
  ret i1 %good
}}
"""

# Returns null, with a Python exception set, if memory is exhausted.
_MAKE_OUTPUTS = f"""
define internal ptr @weft.make_outputs(ptr %plan, ptr %addresses) nounwind {{
entry:
{_field("makers")}
{_field("num_outputs", "i64")}
{_field("call")}
{_field("list_new")}
{_field("list_set")}
{_field("dec_ref")}
  %list = call ptr %list_new(i64 %num_outputs)
  %some = icmp ne ptr %list, null
  %any = icmp sgt i64 %num_outputs, 0
  %go = and i1 %some, %any
  br i1 %go, label %output, label %done
output:
  %i = phi i64 [ 0, %entry ], [ %i.next, %made ]
  %maker.at = getelementptr ptr, ptr %makers, i64 %i
  %maker = load ptr, ptr %maker.at
  %array = call ptr %call(ptr %maker)
  %good = icmp ne ptr %array, null
  br i1 %good, label %made, label %failed
made:
{_member("data", "array", layout.DATA, "ptr")}
  %address.at = getelementptr ptr, ptr %addresses, i64 %i
  store ptr %data, ptr %address.at
  %set = call i32 %list_set(ptr %list, i64 %i, ptr %array)
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %num_outputs
  br i1 %more, label %output, label %done
failed:
  call void %dec_ref(ptr %list)
  ret ptr null
done:
  ret ptr %list
}}
"""

# The free arenas form a linked list (``weft.runtime.arena``), which the GIL protects.
_RUN = f"""
define internal i32 @weft.run_main(ptr %plan, ptr %inputs, ptr %outputs) nounwind {{
entry:
{_field("arenas")}
{_field("arena_bytes", "i64")}
  %arena = load ptr, ptr %arenas
  %some = icmp ne ptr %arena, null
  br i1 %some, label %measure, label %none
measure:
{_member("nbytes", "arena", NBYTES, "i64")}
  %enough = icmp uge i64 %nbytes, %arena_bytes
  br i1 %enough, label %take, label %none
take:
{_member("rest", "arena", NEXT, "ptr")}
  store ptr %rest, ptr %arenas
{_field("main")}
{_field("constants")}
{_field("releases", "i64")}
  %long = icmp ne i64 %releases, 0
  br i1 %long, label %unlocked, label %locked
locked:
  %quick = call i32 %main(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena)
  br label %done
unlocked:
{_field("save_thread")}
{_field("restore_thread")}
  %thread = call ptr %save_thread()
  %slow = call i32 %main(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena)
  call void %restore_thread(ptr %thread)
  br label %done
done:
  %status = phi i32 [ %quick, %locked ], [ %slow, %unlocked ]
  %others = load ptr, ptr %arenas
  store ptr %others, ptr %rest.at
  store ptr %arena, ptr %arenas
  ret i32 %status
none:
  ret i32 {NO_ARENA}
}}
"""

_CALL = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @{PYTHON_CALL}(ptr %self, ptr %args, i64 %count) nounwind {{
entry:
{_member("plan", "self", layout.DATA, "ptr")}
{_field("num_inputs", "i64")}
{_field("num_outputs", "i64")}
  %num_all = add i64 %num_inputs, %num_outputs
  %makes = icmp eq i64 %count, %num_inputs
  %takes = icmp eq i64 %count, %num_all
  %enough = or i1 %makes, %takes
  br i1 %enough, label %read, label %decline
read:
{_field("extras")}
{_field("num_extras", "i64")}
{_field("inputs", value="forms")}
  %num_pointers = add i64 %num_inputs, %num_extras
  %inputs = alloca ptr, i64 %num_pointers
  %ends = alloca ptr, i64 %num_inputs
  %outputs = alloca ptr, i64 %num_outputs
  %behind = getelementptr ptr, ptr %inputs, i64 %num_inputs
  %extra_bytes = mul i64 %num_extras, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %behind, ptr %extras, i64 %extra_bytes, i1 false)
  %fits = call i1 @weft.read_arrays(ptr %plan, ptr %forms, i64 %num_inputs, i32 {layout.CARRAY},
                                    ptr %args, ptr %inputs, ptr %ends)
  br i1 %fits, label %choose, label %decline
choose:
  br i1 %makes, label %make, label %take
take:
  %given = getelementptr ptr, ptr %args, i64 %num_inputs
  %taken = call i1 @weft.take_outputs(ptr %plan, ptr %given, ptr %outputs, ptr %inputs, ptr %ends)
  br i1 %taken, label %run.given, label %decline
run.given:
  %given.status = call i32 @weft.run_main(ptr %plan, ptr %inputs, ptr %outputs)
  br label %number
make:
  %results = call ptr @weft.make_outputs(ptr %plan, ptr %outputs)
  %made = icmp ne ptr %results, null
  br i1 %made, label %run, label %done
run:
  %status = call i32 @weft.run_main(ptr %plan, ptr %inputs, ptr %outputs)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %done, label %failed
failed:
{_field("dec_ref")}
  call void %dec_ref(ptr %results)
  br label %number
number:
  %code = phi i32 [ %given.status, %run.given ], [ %status, %failed ]
{_field("from_long")}
  %wide = sext i32 %code to i64
  %long = call ptr %from_long(i64 %wide)
  br label %done
decline:
{_field("inc_ref")}
{_field("none")}
  call void %inc_ref(ptr %none)
  br label %done
done:
  %result = phi ptr [ %results, %make ], [ %results, %run ], [ %long, %number ],
                    [ %none, %decline ]
  ret ptr %result
}}
"""

TEXT = _READ_ARRAYS + _OVERLAPS + _TAKE_OUTPUTS + _MAKE_OUTPUTS + _RUN + _CALL
