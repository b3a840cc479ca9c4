"""Copying and filling of memory."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.llvm.helpers.text import HelperText, function


def _loop(word: str, step: str) -> str:
    """Run ``step``, which may use the counter ``%i``, for ``%n`` bytes."""
    return f"""entry:
  %none = icmp eq {word} %n, 0
  br i1 %none, label %done, label %loop
loop:
  %i = phi {word} [ 0, %entry ], [ %i.next, %loop ]
{step}
  %i.next = add {word} %i, 1
  %more = icmp ult {word} %i.next, %n
  br i1 %more, label %loop, label %done
done:
"""


def _copy_step(word: str, at: str = "%i") -> str:
    return f"""  %from = getelementptr i8, ptr %b, {word} {at}
  %to = getelementptr i8, ptr %a, {word} {at}
  %byte = load i8, ptr %from
  store i8 %byte, ptr %to"""


def _memcpy(word: str) -> str:
    """Copy by the size of a pointer where both addresses are multiples of it, else by bytes."""
    size = int(word[1:]) // 8
    return function("ptr", "memcpy", f"ptr noalias %a, ptr noalias %b, {word} %n", f"""start:
  %pa = ptrtoint ptr %a to {word}
  %pb = ptrtoint ptr %b to {word}
  %both = or {word} %pa, %pb
  %low = and {word} %both, {size - 1}
  %even = icmp eq {word} %low, 0
  %part = and {word} %n, -{size}
  %words = select i1 %even, {word} %part, {word} 0
  %some = icmp ne {word} %words, 0
  br i1 %some, label %fast, label %rest
fast:
  %w = phi {word} [ 0, %start ], [ %w.next, %fast ]
  %wfrom = getelementptr i8, ptr %b, {word} %w
  %wto = getelementptr i8, ptr %a, {word} %w
  %value = load {word}, ptr %wfrom
  store {word} %value, ptr %wto
  %w.next = add {word} %w, {size}
  %w.more = icmp ult {word} %w.next, %words
  br i1 %w.more, label %fast, label %rest
rest:
  %all = icmp uge {word} %words, %n
  br i1 %all, label %done, label %loop
loop:
  %i = phi {word} [ %words, %rest ], [ %i.next, %loop ]
{_copy_step(word)}
  %i.next = add {word} %i, 1
  %more = icmp ult {word} %i.next, %n
  br i1 %more, label %loop, label %done
done:
  ret ptr %a""")


def _memmove(word: str) -> str:
    """From the end, if the destination lies behind the source."""
    step = f"""  %left = sub {word} %n, %i
  %back = sub {word} %left, 1
  %at = select i1 %behind, {word} %back, {word} %i
{_copy_step(word, "%at")}"""
    body = _loop(word, step).replace("entry:\n", "entry:\n  %behind = icmp ugt ptr %a, %b\n")
    return function("ptr", "memmove", f"ptr %a, ptr %b, {word} %n", body + "  ret ptr %a")


def _memset(word: str) -> str:
    step = f"  %to = getelementptr i8, ptr %a, {word} %i\n  store i8 %byte, ptr %to"
    body = _loop(word, step).replace("entry:\n", "entry:\n  %byte = trunc i32 %c to i8\n")
    return function("ptr", "memset", f"ptr %a, i32 %c, {word} %n", body + "  ret ptr %a")


def _pattern(size: int) -> HelperText:
    """A fill with a pattern of ``size`` bytes, which LLVM recognises loops as on macOS."""

    def text(word: str) -> str:
        step = f"""  %place = and {word} %i, {size - 1}
  %from = getelementptr i8, ptr %b, {word} %place
  %to = getelementptr i8, ptr %a, {word} %i
  %byte = load i8, ptr %from
  store i8 %byte, ptr %to"""
        return function("void", f"memset_pattern{size}", f"ptr %a, ptr %b, {word} %n",
                        _loop(word, step) + "  ret void")

    return text


def _calls(name: str, target: str, arguments: str, parameters: str) -> HelperText:
    """A function of the ABI of Arm that is another name of one of C."""

    def text(word: str) -> str:
        given = parameters.format(word=word)
        kinds = ", ".join(p.rsplit(" ", 1)[0] for p in arguments.format(word=word).split(", "))
        return f"declare ptr @{target}({kinds})\n" + function(
            "void", name, given, f"  call ptr @{target}({arguments.format(word=word)})\n  ret void")

    return text


def _nothing(name: str) -> HelperText:
    return lambda _: function("void", name, "", "  ret void")


_COPY = "ptr %a, ptr %b, {word} %n"
MEMORY: Mapping[str, HelperText] = {
    # Unwinding tables of Arm name it, although no code unwinds.
    **{f"__aeabi_unwind_cpp_pr{n}": _nothing(f"__aeabi_unwind_cpp_pr{n}") for n in (0, 1)},
    # Of macOS: a fill with zeros.
    **{name: _calls(name, "memset", "ptr %a, i32 0, {word} %n", "ptr %a, {word} %n")
       for name in ("__bzero", "bzero")},
    **{f"memset_pattern{size}": _pattern(size) for size in (4, 8, 16)},
    "memcpy": _memcpy, "memmove": _memmove, "memset": _memset,
    **{f"__aeabi_{name}{size}": _calls(f"__aeabi_{name}{size}", name, _COPY, _COPY)
       for name in ("memcpy", "memmove") for size in ("", "4", "8")},
    **{f"__aeabi_memset{size}": _calls(f"__aeabi_memset{size}", "memset",
                                       "ptr %a, i32 %c, {word} %n", "ptr %a, {word} %n, i32 %c")
       for size in ("", "4", "8")},
    **{f"__aeabi_memclr{size}": _calls(f"__aeabi_memclr{size}", "memset",
                                       "ptr %a, i32 0, {word} %n", "ptr %a, {word} %n")
       for size in ("", "4", "8")},
}
