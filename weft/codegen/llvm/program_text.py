"""LLVM IR around the kernels: ``weft_main``, its segments, and kernels that call Python.

``int32 weft_main(ptr inputs, ptr outputs, ptr constants, ptr arena)`` makes the launches of a
program in order; ``inputs`` and ``outputs`` are arrays of pointers. It is a sequence of calls with
branches around them, so it is written as text directly rather than as a loop program.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.codegen.launch import Launch, LaunchGuard, LaunchJump, LaunchPath, LaunchProgram, Loop
from weft.codegen.llvm.size_code import SizeWriter
from weft.codegen.llvm.target_machine import data_layout
from weft.runtime.manifest import MAIN_SYMBOL, Argument, CountSpec, SizeTest, VariantSpec
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

# What ``weft_main`` returns where a kernel counts more elements than its bound allows.
MISCOUNTED = 1

_BASE = {"const": "constants", "arena": "arena"}


def main_text(program: LaunchProgram, target: CpuTarget) -> str:
    """The LLVM module that defines ``weft_main``."""
    return functions_text({MAIN_SYMBOL: program}, target)


def functions_text(programs: Mapping[str, LaunchProgram], target: CpuTarget) -> str:
    """The LLVM module that defines a function for each program, by its symbol."""
    signatures: dict[str, str] = {}
    functions = [_function(symbol, program, signatures) for symbol, program in programs.items()]
    declarations = [f"declare void @{symbol}({types})" for symbol, types in signatures.items()]
    return "\n".join([preamble(target), *declarations, *functions])


def kernel_text(symbol: str, program: LaunchProgram, target: CpuTarget, *, has_workspace: bool
                ) -> str:
    """The LLVM module of a kernel that makes the launches of a program without constants.

    It takes the addresses of the inputs, of the outputs, and with ``has_workspace`` of the arena.
    """
    names = [*(f"%in{n}" for n in range(program.num_inputs)),
             *(f"%out{n}" for n in range(program.num_outputs))]
    lines = [f"%ports = alloca ptr, i64 {max(len(names), 1)}"]
    for number, name in enumerate(names):
        lines += [f"%at{number} = getelementptr ptr, ptr %ports, i64 {number}",
                  f"store ptr {name}, ptr %at{number}"]
    arena = "%arena" if has_workspace else "null"
    lines += [f"%outputs = getelementptr ptr, ptr %ports, i64 {program.num_inputs}",
              f"call i32 @{symbol}_steps(ptr %ports, ptr %outputs, ptr null, ptr {arena})",
              "ret void"]
    params = ", ".join(f"ptr {name}" for name in [*names, *["%arena"] * has_workspace])
    body = "\n".join(f"  {line}" for line in lines)
    return "\n".join([functions_text({f"{symbol}_steps": program}, target),
                      f"define void @{symbol}({params}) {{", body, "}", ""])


def _function(symbol: str, program: LaunchProgram, signatures: dict[str, str]) -> str:
    num_outputs = program.num_outputs + bool(program.counts)
    lines = [*_load_ports("inputs", "in", program.num_inputs + program.num_states),
             *_load_ports("outputs", "out", num_outputs)]
    sizes = _SizeTable(lines, program)
    writer = _LaunchWriter(lines, signatures, sizes.values, program.num_inputs)
    blocks = _Blocks(lines, writer.address)
    jumps = deque(program.jumps)
    for at, launch in enumerate(program.launches):
        while jumps and jumps[0].at == at:
            blocks.jump(jumps.popleft())
        blocks.enter(launch.path)
        writer.launch(launch)
        for number, count in enumerate(program.counts):
            if count.at == at:
                sizes.count(number, count, writer.address(count.counts))
    for jump in jumps:
        blocks.jump(jump)
    blocks.enter(())
    lines.append("ret i32 0")
    if program.counts:
        lines += ["miscounted:", f"ret i32 {MISCOUNTED}"]
    body = "\n".join(line if line.endswith(":") else f"  {line}" for line in lines)
    head = f"define i32 @{symbol}(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena)"
    return "\n".join(["", f"{head} {{", body, "}", ""])


def callback_text(symbol: str, address: int, num_args: int, target: CpuTarget) -> str:
    """A kernel that passes its arguments to the function at an address of this process."""
    arguments = ", ".join(f"ptr %a{n}" for n in range(num_args))
    return "\n".join([
        preamble(target), f"define void @{symbol}({arguments}) {{",
        f"  call void inttoptr (i64 {address} to ptr)({arguments})", "  ret void", "}", ""])


def preamble(target: CpuTarget) -> str:
    """The first lines of an LLVM module: the layout of data and the machine."""
    return f'target datalayout = "{data_layout(target)}"\ntarget triple = "{target.triple}"'


class _Blocks:
    """Opens and closes the basic blocks of branches and loops."""

    def __init__(self, lines: list[str], address: Callable[[Argument], str]) -> None:
        self._lines = lines
        self._address = address  # emits the address of a condition
        self._open: list[tuple[LaunchGuard | Loop, str]] = []

    def enter(self, path: LaunchPath) -> None:
        """Leave the branches and loops that are not on ``path``, enter the others."""
        common = 0
        while common < min(len(path), len(self._open)) \
                and self._open[common][0] == path[common]:
            common += 1
        while len(self._open) > common:
            _, label = self._open.pop()
            self._lines += [f"br label %{label}", f"{label}:"]
        for scope in path[common:]:
            after = self._branch(scope) if isinstance(scope, LaunchGuard) else self._loop(scope)
            self._open.append((scope, after))

    def jump(self, jump: LaunchJump) -> None:
        """Go back to the start of a loop; the rest of the block is unreachable."""
        self.enter(jump.path)
        # LLVM requires a label after a terminator, even for code that is never reached.
        self._lines += [f"br label %loop{jump.loop.number}", f"in{len(self._lines)}.gone:"]

    def _branch(self, guard: LaunchGuard) -> str:
        address = self._address(guard.condition)
        number = len(self._lines)
        inside, after = f"in{number}.then", f"in{number}.after"
        taken, other = (inside, after) if guard.expected else (after, inside)
        self._lines += [f"%flag{number} = load i8, ptr {address}",
                        f"%is{number} = icmp ne i8 %flag{number}, 0",
                        f"br i1 %is{number}, label %{taken}, label %{other}", f"{inside}:"]
        return after

    def _loop(self, loop: Loop) -> str:
        head = f"loop{loop.number}"
        self._lines += [f"br label %{head}", f"{head}:"]
        return f"{head}.after"


def _load_ports(array: str, prefix: str, count: int) -> list[str]:
    lines = []
    for index in range(count):
        lines.append(f"%{prefix}.at{index} = getelementptr ptr, ptr %{array}, i64 {index}")
        lines.append(f"%{prefix}{index} = load ptr, ptr %{prefix}.at{index}")
    return lines


class _SizeTable:
    """Writes the values of the table of sizes, each as soon as its symbols are known.

    ``values`` are those of the entries so far.
    """

    def __init__(self, lines: list[str], program: LaunchProgram) -> None:
        self._lines = lines
        self._hidden = f"%out{program.num_outputs}"
        self._writer = SizeWriter(lines, dict(_load_symbols(lines, program)))
        self._pending = dict(enumerate(program.sizes))
        self.values: dict[int, str] = {}
        self._define()

    def count(self, number: int, count: CountSpec, address: str) -> None:
        """Read a counted size, which the launch before has written to ``address``.

        The block is one that every run passes, so all later launches may use the size.
        """
        name = f"%count{number}"
        self._lines += [
            f"{name}.at = getelementptr i64, ptr {address}, i64 {count.which}",
            f"{name} = load i64, ptr {name}.at",
            f"{name}.wrong = icmp ugt i64 {name}, {self._writer.value(count.bound)}",
            f"br i1 {name}.wrong, label %miscounted, label %counted{number}",
            f"counted{number}:",
            f"{name}.out = getelementptr i64, ptr {self._hidden}, i64 {number}",
            f"store i64 {name}, ptr {name}.out"]
        self._writer.name(count.name, name)
        self._define()

    def _define(self) -> None:
        for number, size in list(self._pending.items()):
            if self._writer.knows(size):
                self.values[number] = self._writer.define(f"_{number}", size)
                del self._pending[number]


def _load_symbols(lines: list[str], program: LaunchProgram) -> Iterator[tuple[str, str]]:
    """The symbols of the inputs and their LLVM values."""
    if program.symbols:
        behind = program.num_inputs + program.num_states
        lines.append(f"%sizes.at = getelementptr ptr, ptr %inputs, i64 {behind}")
        lines.append("%sizes = load ptr, ptr %sizes.at")
    for number, name in enumerate(program.symbols):
        lines.append(f"%size.at{number} = getelementptr i64, ptr %sizes, i64 {number}")
        lines.append(f"%size{number} = load i64, ptr %size.at{number}")
        yield name, f"%size{number}"


@dataclass(frozen=True, slots=True)
class _LaunchWriter:
    """Writes calls of kernels; collects the parameter types of each in ``signatures``."""

    lines: list[str]
    signatures: dict[str, str]
    sizes: Mapping[int, str]
    num_inputs: int

    def launch(self, launch: Launch) -> None:
        """Call the kernel, or the first variant that takes the sizes."""
        done = f"step{len(self.lines)}.done"
        for variant in launch.variants:
            taken = self._takes(variant)
            number = len(self.lines)
            self.lines.extend([f"br i1 {taken}, label %v{number}.run, label %v{number}.not",
                               f"v{number}.run:"])
            self._call(variant.kernel, variant.args)
            self.lines.extend([f"br label %{done}", f"v{number}.not:"])
        self._call(launch.symbol, launch.args)
        if launch.variants:
            self.lines.extend([f"br label %{done}", f"{done}:"])

    def _call(self, symbol: str, args: Sequence[Argument]) -> None:
        types = ["i64" if kind == "size" else "ptr" for kind, _ in args]
        self.signatures[symbol] = ", ".join(types)
        values = [f"{type_} {self.address(argument)}"
                  for type_, argument in zip(types, args, strict=True)]
        self.lines.append(f"call void @{symbol}({', '.join(values)})")

    def _takes(self, variant: VariantSpec) -> str:
        tests = [each for test in variant.tests for each in self._tests(test)]
        return functools.reduce(lambda a, b: self._emit(f"and i1 {a}, {b}"), tests)

    def _tests(self, test: SizeTest) -> Iterator[str]:
        size = self.sizes[test.size]
        yield self._emit(f"icmp sge i64 {size}, {test.low}")
        if test.high is not None:
            yield self._emit(f"icmp sle i64 {size}, {test.high}")
        if test.multiple > 1:
            rest = self._emit(f"urem i64 {size}, {test.multiple}")
            yield self._emit(f"icmp eq i64 {rest}, 0")

    def address(self, argument: Argument) -> str:
        """The value of an argument: an address, or a size."""
        kind, value = argument
        if kind == "input":
            return f"%in{value}"
        if kind == "state":
            return f"%in{self.num_inputs + value}"
        if kind == "output":
            return f"%out{value}"
        if kind == "size":
            return self.sizes[value]
        if kind == "slot":
            return self._emit(f"getelementptr i8, ptr %arena, i64 {self.sizes[value]}")
        return self._emit(f"getelementptr i8, ptr %{_BASE[kind]}, i64 {value}")

    def _emit(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name
