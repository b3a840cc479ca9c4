"""Writes one basic block as a Python function over NumPy arrays.

An instruction becomes one or more assignments to names used once, so a name never changes its
value. The function reads the registers that the block needs at its start, for all lanes or for the
active ones, and stores the ones that live on at its end; all others exist only inside it.
"""

from __future__ import annotations

import numpy as np

from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.ptx.module import (
    CANONICAL,
    NUMPY,
    WIDTHS,
    Address,
    Immediate,
    Instruction,
    Operand,
    PtxFunction,
    Register,
    Sink,
    Symbol,
    Vector,
)

SPECIAL_PREFIXES = (
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid",
    "%clock", "%globaltimer", "%lanemask", "%cluster", "%ncluster", "%is_explicit_cluster",
    "%dynamic_smem_size", "%total_smem_size", "%gridid", "%envreg", "%aggr_smem_size",
)  # fmt: skip


class KernelNames:
    """What the blocks of one function share: register numbers, constants, memory sites."""

    def __init__(self, function: PtxFunction, symbols: dict[str, Symbol]) -> None:
        self.function = function
        self.symbols = symbols
        self.numbers = {name: index for index, name in enumerate(function.registers)}
        self.widths = [WIDTHS[kind] for kind in function.registers.values()]
        self.constants: dict[str, np.ndarray] = {}
        self.sites: list[Instruction] = []

    def constant(self, bits: int, kind: str) -> str:
        """The name of a one-element array with these bits."""
        width = WIDTHS[kind]
        bits &= (1 << width) - 1
        name = f"k_{kind}_{bits:x}"
        if name not in self.constants:
            if kind == "pred":
                array = np.array([bits != 0])
            else:
                array = np.array([bits], dtype=CANONICAL[width]).view(NUMPY[kind])
            array.flags.writeable = False
            self.constants[name] = array
        return name

    def site(self, instruction: Instruction) -> int:
        """The number of an instruction that may fault."""
        self.sites.append(instruction)
        return len(self.sites) - 1


class BlockWriter:
    """Collects the lines of one block."""

    def __init__(self, names: KernelNames) -> None:
        self.names = names
        self.lines: list[str] = []
        self.instruction: Instruction | None = None
        self.reads: list[int] = []  # registers read from the file
        self.known: dict[tuple[int, str], str] = {}  # (register, numpy type) -> Python name
        self.current: dict[int, str] = {}  # register -> numpy type of its latest value
        self.guard: str | None = None
        self.may_defer = False  # whether the block never uses what the instruction loads
        self.temporaries = 0

    # names and lines

    def temporary(self, expression: str) -> str:
        """A new name for the value of ``expression``."""
        self.temporaries += 1
        name = f"t{self.temporaries}"
        self.lines.append(f"{name} = {expression}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fail(self, what: str) -> CudaEmulationError:
        """The error of an instruction that the emulator does not know."""
        instruction = self.instruction
        assert instruction is not None
        return CudaEmulationError(
            f"{what}: {instruction.name}",
            where=f"{self.names.function.name}, PTX line {instruction.line}"
            + (f", source line {instruction.source}" if instruction.source else ""))

    def site(self) -> int:
        """The number by which run-time errors find this instruction."""
        assert self.instruction is not None
        return self.names.site(self.instruction)

    # reading

    def read(self, operand: Operand, kind: str) -> str:
        """The value of ``operand`` as ``kind``: a wider register gives its low bits."""
        match operand:
            case Immediate(value, float_width):
                return self._immediate(value, float_width, kind)
            case Register(name, negated):
                if name.startswith(SPECIAL_PREFIXES) and name not in self.names.numbers:
                    return self._special(name, kind)
                value = self._register(name, kind)
                return f"(~{value})" if negated else value
            case Symbol(name):
                if name == "WARP_SZ":
                    return self.names.constant(32, kind)
                return self.temporary(f"x.symbol({name!r}, {NUMPY[kind]!r})")
            case Address(base, offset):
                value = self.read(base, kind)
                return self.temporary(f"{value} + {self.names.constant(offset, kind)}")
            case Vector(elements):
                return self._packed(elements, kind)
            case Sink():
                return self.names.constant(0, kind)
            case _:
                raise self.fail("operand form not supported")

    def _immediate(self, value: int, float_width: int, kind: str) -> str:
        if float_width == 32 and kind == "f64":
            value = int(np.uint32(value).view(np.float32).astype(np.float64).view(np.uint64))
        elif float_width == 64 and kind == "f32":
            value = int(np.uint64(value).view(np.float64).astype(np.float32).view(np.uint32))
        return self.names.constant(value, kind)

    def _special(self, name: str, kind: str) -> str:
        value = self.temporary(f"x.special({name!r})")
        return self._converted(value, "u8" if WIDTHS[kind] == 64 else "u4", kind, 32)

    def _register(self, name: str, kind: str) -> str:
        number = self.names.numbers.get(name)
        if number is None:
            raise self.fail(f"undeclared register {name}")
        width = self.names.widths[number]
        wanted = NUMPY[kind]
        found = self.known.get((number, wanted))
        if found is not None and WIDTHS[kind] == width:
            return found
        if number not in self.current:
            self.reads.append(number)
            self.current[number] = CANONICAL[width]
            self.known[number, CANONICAL[width]] = f"r{number}"
        held = self.current[number]
        value = self.known[number, held]
        if WIDTHS[kind] == width:
            if held == wanted:
                return value
            view = self.temporary(f"{value}.view({wanted})")
            self.known[number, wanted] = view
            return view
        if WIDTHS[kind] > width or kind == "pred" or width == 1:
            raise self.fail(f"register {name} of {width} bits read as .{kind}")
        bits = self._bits(number, held, value, width)
        return self._converted(bits, CANONICAL[width], kind, width)

    def _bits(self, number: int, held: str, value: str, width: int) -> str:
        if held == CANONICAL[width]:
            return value
        bits = self.known.get((number, CANONICAL[width]))
        if bits is None:
            bits = self.temporary(f"{value}.view({CANONICAL[width]})")
            self.known[number, CANONICAL[width]] = bits
        return bits

    def _converted(self, value: str, _held: str, kind: str, _width: int) -> str:
        canonical = CANONICAL[WIDTHS[kind]]
        value = f"{value}.astype({canonical})"
        if NUMPY[kind] != canonical:
            value += f".view({NUMPY[kind]})"
        return self.temporary(value)

    def _packed(self, elements: tuple[Operand, ...], kind: str) -> str:
        """``mov.b32 %r, {%rs1, %rs2}``: elements from the low bits up."""
        part = WIDTHS[kind] // len(elements)
        canonical = CANONICAL[WIDTHS[kind]]
        terms = []
        for index, element in enumerate(elements):
            value = f"{self.read(element, f'b{part}')}.astype({canonical})"
            shift = self.names.constant(part * index, kind)
            terms.append(f"({value} << {shift})" if index else value)
        return self.temporary(" | ".join(terms))

    # writing

    def write(self, operand: Operand, kind: str, expression: str) -> None:
        """Assign a value of ``kind`` to a register, extended to its width, under the guard."""
        if isinstance(operand, Sink):
            self.line(expression)
            return
        if isinstance(operand, Vector):
            self._unpack(operand.elements, kind, expression)
            return
        if not isinstance(operand, Register):
            raise self.fail("destination is not a register")
        number = self.names.numbers.get(operand.name)
        if number is None:
            raise self.fail(f"undeclared register {operand.name}")
        width = self.names.widths[number]
        held = NUMPY[kind]
        if WIDTHS[kind] != width:
            if WIDTHS[kind] > width or width == 1 or kind == "pred":
                raise self.fail(f"register {operand.name} of {width} bits written as .{kind}")
            held = f"i{width // 8}" if kind[0] == "s" else f"u{width // 8}"
            source = f"({expression})"
            if NUMPY[kind][0] == "f":
                source += f".view({CANONICAL[WIDTHS[kind]]})"
            expression = f"{source}.astype({held})"
        if self.guard is not None:
            old = self._register(operand.name, _kind_of(held))
            expression = f"where({self.guard}, {expression}, {old})"
        value = self.temporary(expression)
        self.forget(number)
        self.current[number] = held
        self.known[number, held] = value

    def forget(self, number: int) -> None:
        """Drop what is known of a register: another value takes its place."""
        for key in [key for key in self.known if key[0] == number]:
            del self.known[key]

    def _unpack(self, elements: tuple[Operand, ...], kind: str, expression: str) -> None:
        """``mov.b32 {%rs1, %rs2}, %r``."""
        part = WIDTHS[kind] // len(elements)
        value = self.temporary(expression)
        for index, element in enumerate(elements):
            if not isinstance(element, Sink):
                shift = self.names.constant(part * index, kind)
                low = f"({value} >> {shift})" if index else value
                self.write(element, f"b{part}", f"{low}.astype({CANONICAL[part]})")

    # the whole function

    def written(self) -> list[int]:
        """Registers that the block assigns."""
        return [number for number, held in self.current.items()
                if self.known.get((number, held)) != f"r{number}"]

    def source(self, name: str, live: int, result: str) -> str:
        """The text of the function: read, compute, store what is ``live``, return ``result``."""
        reads = [f"r{number} = R[{number}]" for number in self.reads]
        gathers = [f"r{number} = gather(R[{number}], i)" for number in self.reads]
        stores, scatters = [], []
        for number in self.written():
            if not live >> number & 1:
                continue
            width = self.names.widths[number]
            value = self._bits(number, self.current[number],
                               self.known[number, self.current[number]], width)
            stores.append(f"R[{number}] = {value}")
            scatters.append(f"scatter(R, {number}, {value}, i)")
        lines = [f"def {name}(x, R):", " i = x.index"]
        lines += _either(reads, gathers)
        lines += [f" {line}" for line in self.lines]
        lines += _either(stores, scatters)
        lines.append(f" return {result}")
        return "\n".join(lines)


def _either(full: list[str], partial: list[str]) -> list[str]:
    if not full:
        return []
    return [" if i is None:", *(f"  {line}" for line in full),
            " else:", *(f"  {line}" for line in partial)]


def _kind_of(held: str) -> str:
    return next(kind for kind, numpy in NUMPY.items() if numpy == held)


def gather(register: np.ndarray, index: np.ndarray) -> np.ndarray:
    """The values of the lanes in ``index``; a value that all lanes share stays one element."""
    return register if register.shape[0] == 1 else register[index]


class RegisterFile(list):
    """The registers of all lanes: arrays of one element or of one per lane."""

    def __init__(self, widths: list[int], lanes: int, poison: int) -> None:
        super().__init__(
            np.array([poison & ((1 << width) - 1)], dtype=CANONICAL[width])
            if width > 1 else np.array([False]) for width in widths)
        self.lanes = lanes


def scatter(registers: RegisterFile, number: int, value: np.ndarray, index: np.ndarray) -> None:
    """Store ``value`` for the lanes in ``index`` alone; arrays may be shared, so make a new one."""
    old = registers[number]
    new = np.empty(registers.lanes, dtype=old.dtype)
    new[:] = old
    new[index] = value
    registers[number] = new
