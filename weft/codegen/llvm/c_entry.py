"""LLVM IR of the functions that C programs call: checks, sizes of arrays, the call of the program.

Symbolic sizes are the last parameters of every function, as int64. The caller passes pointers to
the inputs and to the states in two arrays, ``weft_main`` wants them in one, with the address of the
sizes at its end: the entry function makes that array on its stack.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from weft.codegen.llvm.program_text import preamble
from weft.codegen.llvm.size_code import CheckedSizeWriter
from weft.runtime.manifest import MAIN_SYMBOL, Manifest, SymbolSpec, TensorSpec
from weft.runtime.sizes import Size
from weft.target import CpuTarget

# Symbols of a C artifact: the constants, and what follows the name of the model.
WEIGHTS = "weft_weights"
RUN, WORKSPACE, INPUT_BYTES, OUTPUT_BYTES = "run", "workspace_size", "input_bytes", "output_bytes"
INIT_STATES = "init_states"
_ALIGNMENT = 64

SERIAL_LOOPS = """
define void @weft_parallel_launch(ptr %body, ptr %data, i64 %extent) nounwind {
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %work, label %done
work:
  call void %body(i64 0, i64 %extent, ptr %data)
  br label %done
done:
  ret void
}
"""


_MEMORY = """\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""


def c_functions(manifest: Manifest) -> tuple[str, ...]:
    """What follows ``NAME_`` in the names of the functions; ``NAME_run`` is the first."""
    sizes = (INPUT_BYTES, OUTPUT_BYTES) if manifest.symbols else ()
    return (RUN, WORKSPACE, *sizes, *([INIT_STATES] if manifest.states else []))


def c_entry_text(name: str, manifest: Manifest, target: CpuTarget) -> str:
    """The LLVM module with the functions of ``c_functions``.

    Parallel loops run serially, because threads would need state.
    """
    bits = target.pointer_bits
    functions = [_workspace_size(f"{name}_{WORKSPACE}", manifest, bits)]
    if manifest.symbols:
        functions += [_array_bytes(f"{name}_{INPUT_BYTES}", manifest, manifest.inputs, bits),
                      _array_bytes(f"{name}_{OUTPUT_BYTES}", manifest, manifest.outputs, bits)]
    if manifest.states:
        functions.append(_init_states(f"{name}_{INIT_STATES}", manifest))
    functions.append(_run(f"{name}_{RUN}", manifest, bits))
    declarations = [f"@{WEIGHTS} = external constant i8, align {_ALIGNMENT}",
                    f"declare i32 @{MAIN_SYMBOL}(ptr, ptr, ptr, ptr)",
                    *([CheckedSizeWriter.DECLARATIONS] if manifest.symbols else []),
                    *([_MEMORY] if manifest.states else [])]
    return "\n".join([preamble(target), "", *declarations, SERIAL_LOOPS, *functions])


def _workspace_size(name: str, manifest: Manifest, bits: int) -> str:
    body = _Body(manifest, bits)
    body.check_sizes()
    body.end(f"ret i{bits} {body.word(body.arena_bytes())}")
    return body.function(f"i{bits}", name, [],
                         {"wrong": f"ret i{bits} 0"} if manifest.symbols else {})


def _array_bytes(name: str, manifest: Manifest, ports: Sequence[TensorSpec], bits: int) -> str:
    body = _Body(manifest, bits)
    body.check_sizes()
    # All sizes are computed before the branch: the writer computes equal terms once.
    values = [body.word(body.nbytes(port)) for port in ports]
    cases = " ".join(f"i32 {n}, label %array{n}" for n in range(len(ports)))
    body.end(f"switch i32 %index, label %wrong [{cases}]")
    return body.function(f"i{bits}", name, ["i32 %index"], {
        **{f"array{n}": f"ret i{bits} {value}" for n, value in enumerate(values)},
        "wrong": f"ret i{bits} 0"})


def _init_states(name: str, manifest: Manifest) -> str:
    """Write the first values of the states: those of the block of constants, else zeros."""
    lines = ["%none = icmp eq ptr %states, null", "br i1 %none, label %null, label %arrays",
             "arrays:"]
    for number in range(len(manifest.states)):
        here, following = f"%state{number}", f"state{number}.given"
        lines += [f"{here}.at = getelementptr ptr, ptr %states, i64 {number}",
                  f"{here} = load ptr, ptr {here}.at",
                  f"{here}.null = icmp eq ptr {here}, null",
                  f"br i1 {here}.null, label %null, label %{following}", f"{following}:"]
    for number, state in enumerate(manifest.states):
        if manifest.initial:
            first, size = f"%first{number}", f"i64 {state.nbytes}, i1 false"
            lines += [
                f"{first} = getelementptr i8, ptr @{WEIGHTS}, i64 {manifest.initial[number]}",
                f"call void @llvm.memcpy.p0.p0.i64(ptr %state{number}, ptr {first}, {size})"]
        else:
            lines.append(f"call void @llvm.memset.p0.i64(ptr %state{number}, i8 0, "
                         f"i64 {state.nbytes}, i1 false)")
    lines += ["ret i32 0", "null:", "ret i32 1"]
    text = "\n".join(line if line.endswith(":") else f"  {line}" for line in lines)
    return f"define i32 @{name}(ptr %states) nounwind {{\n{text}\n}}\n"


def _run(name: str, manifest: Manifest, bits: int) -> str:
    body = _Body(manifest, bits)
    inputs = body.arguments()
    body.check_sizes()
    arrays = [("%inputs", "in", manifest.inputs), ("%outputs", "out", manifest.outputs),
              *([("%states", "state", manifest.states)] if manifest.states else [])]
    for array, _, ports in arrays:
        if ports:
            body.check_pointer(array, 1)
    body.check_pointer("%workspace", body.arena_bytes())
    for array, prefix, ports in arrays:
        body.check_arrays(array, prefix, ports)
    body.check_alignment("%workspace")
    body.pass_arguments(inputs)
    body.lines.append(f"%status = call i32 @{MAIN_SYMBOL}(ptr {inputs}, ptr %outputs, "
                      f"ptr @{WEIGHTS}, ptr %workspace)")
    body.end("ret i32 %status")
    states = ["ptr %states"] if manifest.states else []
    return body.function(
        "i32", name, ["ptr %inputs", "ptr %outputs", *states, "ptr %workspace"],
        {"null": "ret i32 1", "unaligned": "ret i32 2",
         **({"wrong": "ret i32 3"} if manifest.symbols else {})})


class _Body:
    """The instructions of a function; the symbols are its parameters ``%size0``, ``%size1``, ...

    A failed check jumps to the block ``null``, ``unaligned`` or ``wrong``. The blocks between are
    in sequence, so each value is known in all that follow.
    """

    def __init__(self, manifest: Manifest, bits: int) -> None:
        self.lines: list[str] = []
        self._manifest = manifest
        self._bits = bits  # of an address
        self._writer = CheckedSizeWriter(self.lines, {
            symbol.name: f"%size{n}" for n, symbol in enumerate(manifest.symbols)})

    def function(self, result: str, name: str, params: Sequence[str], ends: dict[str, str]) -> str:
        """The definition; ``ends`` are the blocks, of one instruction, that only jumps reach."""
        sizes = [f"i64 %size{n}" for n in range(len(self._manifest.symbols))]
        blocks = [line for label, end in ends.items() for line in (f"{label}:", end)]
        text = "\n".join(line if line.endswith(":") else f"  {line}"
                         for line in [*self.lines, *blocks])
        return f"define {result} @{name}({', '.join([*params, *sizes])}) nounwind {{\n{text}\n}}\n"

    def end(self, instruction: str) -> None:
        """The last instruction before the ``ends``."""
        self.lines.append(instruction)

    def check_sizes(self) -> None:
        """Go on if the symbols are in their ranges and all memory has a size that exists.

        An axis of ``n - 3`` elements may be negative although ``n`` is in its range, that of an
        intermediate result too, and the size of an array may exceed 64 bits.
        """
        manifest = self._manifest
        if not manifest.symbols:
            return
        self._require([test for n, symbol in enumerate(manifest.symbols)
                       for test in self._range_tests(f"%size{n}", symbol)], "wrong")
        ports = (*manifest.inputs, *manifest.outputs)
        axes = [size for port in ports for size in port.shape if isinstance(size, str)]
        tests = [self._emit(f"icmp sge i64 {self._writer.value(size)}, 0")
                 for size in dict.fromkeys((*axes, *manifest.nonnegative))]
        tests.append(self._emit(f"icmp sge i64 {self.arena_bytes()}, 0"))
        for port in ports:
            self.nbytes(port)
        tests += [self._emit(f"xor i1 {flag}, true") for flag in self._writer.overflows]
        if self._bits < 64:  # larger arrays cannot exist
            sizes = (self.arena_bytes(), *map(self.nbytes, ports))
            tests += [self._emit(f"icmp ult i64 {size}, {1 << self._bits - 1}")
                      for size in dict.fromkeys(sizes)]
        self._require(tests, "wrong")

    def check_pointer(self, pointer: str, nbytes: Size) -> None:
        """Go on unless the pointer to ``nbytes`` bytes is null; to no bytes, it may be null."""
        if nbytes == 0:
            return
        is_given = self._emit(f"icmp ne ptr {pointer}, null")
        if isinstance(nbytes, str):
            is_empty = self._emit(f"icmp eq i64 {nbytes}, 0")
            is_given = self._emit(f"or i1 {is_given}, {is_empty}")
        self._require([is_given], "null")

    def check_arrays(self, array: str, prefix: str, ports: Sequence[TensorSpec]) -> None:
        """Go on unless one of the pointers in an array is null."""
        for number, port in enumerate(ports):
            nbytes = self.nbytes(port)
            if nbytes != 0:
                self.check_pointer(self._load(array, prefix, number), nbytes)

    def check_alignment(self, pointer: str) -> None:
        """Go on if the address is a multiple of the alignment."""
        address = self._emit(f"ptrtoint ptr {pointer} to i64")
        rest = self._emit(f"and i64 {address}, {_ALIGNMENT - 1}")
        self._require([self._emit(f"icmp eq i64 {rest}, 0")], "unaligned")

    def nbytes(self, port: TensorSpec) -> Size:
        """The size of an array: a number, or the register with it."""
        fixed = port.numpy_dtype.itemsize
        factors = []
        for size in port.shape:
            if isinstance(size, int):
                fixed *= size
            else:
                factors.append(self._writer.value(size))
        if not factors or fixed == 0:
            return fixed
        return functools.reduce(lambda a, b: self._writer.binary("mul", a, b), factors, str(fixed))

    def word(self, size: Size) -> Size:
        """A size that was checked, as ``size_t``."""
        if self._bits == 64 or isinstance(size, int):
            return size
        return self._emit(f"trunc i64 {size} to i{self._bits}")

    def arena_bytes(self) -> Size:
        """The size of the workspace: a number, or the register with it."""
        manifest = self._manifest
        if isinstance(manifest.arena_bytes, int):
            return manifest.arena_bytes
        for number, size in enumerate(manifest.sizes):
            self._writer.define(f"_{number}", size)
        return self._writer.value(manifest.arena_bytes)

    def arguments(self) -> str:
        """Where ``weft_main`` gets the inputs from; memory on the stack is taken at the start."""
        manifest = self._manifest
        extra = len(manifest.states) + bool(manifest.symbols)
        if not extra:
            return "%inputs"
        if manifest.symbols:
            self.lines.append(f"%sizes = alloca [{len(manifest.symbols)} x i64]")
        self.lines.append(f"%arguments = alloca [{len(manifest.inputs) + extra} x ptr]")
        return "%arguments"

    def pass_arguments(self, array: str) -> None:
        """Fill the array of ``arguments``: inputs, states, the address of the sizes."""
        manifest = self._manifest
        if array == "%inputs":
            return
        pointers = [*(self._load("%inputs", "in", n) for n in range(len(manifest.inputs))),
                    *(self._load("%states", "state", n) for n in range(len(manifest.states)))]
        if manifest.symbols:
            pointers.append("%sizes")
        for number in range(len(manifest.symbols)):
            self._store("i64", f"%size{number}", "%sizes", number)
        for number, pointer in enumerate(pointers):
            self._store("ptr", pointer, array, number)

    def _range_tests(self, size: str, symbol: SymbolSpec) -> list[str]:
        tests = [self._emit(f"icmp sge i64 {size}, {symbol.low}")]
        if symbol.high is not None:
            tests.append(self._emit(f"icmp sle i64 {size}, {symbol.high}"))
        if symbol.multiple > 1:
            rest = self._emit(f"urem i64 {size}, {symbol.multiple}")
            tests.append(self._emit(f"icmp eq i64 {rest}, 0"))
        return tests

    def _require(self, tests: Sequence[str], otherwise: str) -> None:
        good = functools.reduce(lambda a, b: self._emit(f"and i1 {a}, {b}"), tests)
        following = f"next{len(self.lines)}"
        self.lines.extend([f"br i1 {good}, label %{following}, label %{otherwise}",
                           f"{following}:"])

    def _load(self, array: str, prefix: str, number: int) -> str:
        """The pointer in an array of pointers; a second call gives the same register."""
        value = f"%{prefix}{number}"
        load = f"{value} = load ptr, ptr {value}.at"
        if load not in self.lines:
            self.lines.extend([f"{value}.at = getelementptr ptr, ptr {array}, i64 {number}", load])
        return value

    def _store(self, type_: str, value: str, array: str, number: int) -> None:
        at = self._emit(f"getelementptr {type_}, ptr {array}, i64 {number}")
        self.lines.append(f"store {type_} {value}, ptr {at}")

    def _emit(self, instruction: str) -> str:
        name = f"%c{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name
