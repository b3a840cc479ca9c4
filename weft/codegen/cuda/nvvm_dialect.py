"""LLVM IR as libnvvm takes it: the NVVM 7 dialect, with typed pointers and older instructions.

A mechanical translation, line by line, of the text that weft writes: every pointer is an ``i8``
pointer of its address space, which is cast where it is used. What the dialect lacks (``freeze``,
``fneg``, ``poison``, splats, integer and NaN-aware extrema) becomes instructions that it has
(NVVM IR Specification 2.0, CUDA 13).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from weft.support.errors import InternalError

NVVM_LAYOUT = ("e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-"
           "f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64")
_SPACE = r"(?<![\w.%@$])ptr\b(?: addrspace\((\d+)\))?"
_DEFINE = re.compile(r'define (ptx_kernel )?(.*?@([\w.$-]+)\(.*\)) nounwind'
                     r'(?: "nvvm\.reqntid"="([\d,]+)")? \{')
_GEP = re.compile(rf"  (%[\w.]+) = getelementptr (inbounds )?(.+?), {_SPACE} ([%@][\w.]+)(, .*)")
_LOAD = re.compile(rf"  (%[\w.]+) = load (.+?), {_SPACE} ([%@][\w.]+)(.*)")
_STORE = re.compile(rf"  store (.+), {_SPACE} ([%@][\w.]+)((?:, align \d+)?(?:, ![\w.]+ !\d+)*)$")
_ALLOCA = re.compile(r"  (%[\w.]+) = alloca (.+?)(, align \d+)$")
_FREEZE = re.compile(r"  (%[\w.]+) = freeze (\S+|<[^>]+>) (\S+)$")
_FNEG = re.compile(r"  (%[\w.]+) = fneg (?:contract )?(\S+|<[^>]+>) (\S+)$")
_CALL = re.compile(r"  (%[\w.]+) = call (?:nsz )?(\S+|<[^>]+>) @llvm\.(\w+)\.[\w.]+\((.*)\)$")
# Casts of vectors of half, which the code generator cannot split.
_CAST = re.compile(r"  (%[\w.]+) = (fpext|fptrunc) <(\d+) x (\w+)> (\S+) to <\d+ x (\w+)>$")
# Debug locations: the dialect has another form of them.
_DEBUG = re.compile(r",? !dbg !\d+")
_SPLAT = re.compile(r"splat \((\w+) ([^)]+)\)")
_LANES = re.compile(r"<(\d+) x ")
_CONSTANT = re.compile(r"(@constant\d+) = private unnamed_addr constant (\[.*?\]) (.*)")
_EXTREMA = {"smax": "sgt", "smin": "slt", "umax": "ugt", "umin": "ult"}
_FLOAT_EXTREMA = {"maximum": "ogt", "minimum": "olt"}
# Intrinsics that the dialect lacks and PTX has.
_ASSEMBLY = {
    "fabs": "abs.{type} $0, $1;", "rint": "cvt.rni.{type}.{type} $0, $1;",
    "trunc": "cvt.rzi.{type}.{type} $0, $1;", "floor": "cvt.rmi.{type}.{type} $0, $1;",
    "ceil": "cvt.rpi.{type}.{type} $0, $1;", "copysign": "copysign.{type} $0, $2, $1;",
}  # fmt: skip
_REGISTERS = {"float": ("f", "f32"), "double": ("d", "f64")}
_REPLACED = (*_EXTREMA, *_FLOAT_EXTREMA, *_ASSEMBLY, "abs")


def to_nvvm(text: str) -> str:
    """The module ``text`` in the NVVM 7 dialect."""
    return _Translation(text).text()


class _Translation:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.kernels: list[tuple[str, str, str]] = []  # symbol, parameter types, threads
        self.constants: dict[str, str] = {}
        self.metadata = sum(line.startswith("!") for line in self.lines)
        self._fresh = 0

    def text(self) -> str:
        out = [translated for line in self.lines for translated in self._line(line)]
        notes: list[str] = []
        for symbol, types, threads in self.kernels:
            pointer = f"void ({types})* @{symbol}"
            notes.append(f'!{{{pointer}, !"kernel", i32 1}}')
            for axis, count in zip("xyz", threads.split(","), strict=False):
                notes.append(f'!{{{pointer}, !"reqntid{axis}", i32 {count}}}')
        first = self.metadata
        names = [f"!{first + i}" for i in range(len(notes))]
        out += [f"{name} = {note}" for name, note in zip(names, notes, strict=True)]
        version = f"!{first + len(notes)}"
        out += [f"!nvvm.annotations = !{{{', '.join(names)}}}",
                f"!nvvmir.version = !{{{version}}}", f"{version} = !{{i32 2, i32 0}}"]
        return "\n".join(out) + "\n"

    def _line(self, line: str) -> Iterator[str]:
        line = _DEBUG.sub("", line)
        if line.startswith(("source_filename", "target triple", "!llvm.")) or "!DI" in line:
            return
        if line.startswith("target datalayout"):
            yield f'target datalayout = "{NVVM_LAYOUT}"'
            yield 'target triple = "nvptx64-nvidia-cuda"'
            return
        line = self._operands(line)
        if match := _CONSTANT.match(line):
            self.constants[match[1]] = match[2]
            yield f"{match[1]} = internal unnamed_addr addrspace(1) constant {match[2]} {match[3]}"
        elif line.startswith("define "):
            yield self._definition(line)
        elif line.startswith("declare "):
            if not _is_replaced(line):
                yield _pointers(line)
        else:
            yield from self._instruction(line)

    def _operands(self, line: str) -> str:
        """Constants in the older syntax."""
        line = line.replace(" poison", " undef")
        lanes = _LANES.search(line)
        if lanes is not None:
            line = _SPLAT.sub(
                lambda m: f"<{', '.join([f'{m[1]} {m[2]}'] * int(lanes[1]))}>", line)
        return line

    def _definition(self, line: str) -> str:
        match = _DEFINE.match(line)
        if match is None:
            raise InternalError("a definition that the NVVM dialect does not know", got=line)
        head = _pointers(match[2])
        if match[1]:
            types = ", ".join(_type_of(p) for p in head[head.index("(") + 1:-1].split(", ") if p)
            self.kernels.append((match[3], types, match[4] or ""))
        return f"define {head} nounwind {{"

    def _instruction(self, line: str) -> Iterator[str]:
        for pattern, rule in _RULES:
            if match := pattern.match(line):
                yield from rule(self, match)
                return
        yield _pointers(line)

    def _pointer(self, name: str, space: str | None, kind: str) -> tuple[list[str], str]:
        """The instructions that give ``name`` as a pointer to ``kind``, and its operand."""
        if name.startswith("@"):
            return self._global(name, space, kind)
        result = self._name()
        return [f"  {result} = bitcast {_byte_pointer(space)} {name} to {kind}{_suffix(space)}"], \
            result

    def _global(self, name: str, space: str | None, kind: str) -> tuple[list[str], str]:
        if name in self.constants:  # the text names constants in the generic space
            array = self.constants[name]
            made = self._name()
            return [f"  {made} = addrspacecast {array} addrspace(1)* {name} to {array}*"], made
        found = next((line for line in self.lines if line.startswith(f"{name} = ")), "")
        array = re.search(r"global (\[[^\]]*\])", found)
        if array is None:
            raise InternalError("an unknown global in LLVM IR", got=name)
        made = self._name()
        suffix = _suffix(space)
        return [f"  {made} = bitcast {array[1]}{suffix} {name} to {kind}{suffix}"], made

    def _name(self) -> str:
        self._fresh += 1
        return f"%nvvm{self._fresh}"

    def gep(self, m: re.Match[str]) -> Iterator[str]:
        result, inbounds, kind, space, pointer, indices = m.groups()
        before, base = self._pointer(pointer, space, kind)
        yield from before
        at, suffix = self._name(), _suffix(space)
        yield f"  {at} = getelementptr {inbounds or ''}{kind}, {kind}{suffix} {base}{indices}"
        element = kind[1:-1].partition(" x ")[2] if kind.startswith("[") else kind
        yield f"  {result} = bitcast {element}{suffix} {at} to {_byte_pointer(space)}"

    def load(self, m: re.Match[str]) -> Iterator[str]:
        result, kind, space, pointer, rest = m.groups()
        if kind.endswith(" x half>") and int(kind[1:].split(" ")[0]) % 2 == 0:
            yield from self._load_halves(m)
            return
        before, base = self._pointer(pointer, space, kind)
        yield from before
        yield f"  {result} = load {kind}, {kind}{_suffix(space)} {base}{rest}"

    def _load_halves(self, m: re.Match[str]) -> Iterator[str]:
        """Halves from words: the code generator cannot split loads of more than two halves."""
        result, kind, space, pointer, rest = m.groups()
        count = int(kind[1:].split(" ")[0])
        words, bits, last = f"<{count // 2} x i32>", self._name(), "undef"
        before, base = self._pointer(pointer, space, words)
        yield from before
        yield f"  {bits} = load {words}, {words}{_suffix(space)} {base}{rest}"
        for lane in range(count):
            word, short, half = (self._name() for _ in range(3))
            yield f"  {word} = extractelement {words} {bits}, i32 {lane // 2}"
            if lane % 2:
                high = self._name()
                yield f"  {high} = lshr i32 {word}, 16"
                word = high
            yield f"  {short} = trunc i32 {word} to i16"
            yield f"  {half} = bitcast i16 {short} to half"
            following = result if lane == count - 1 else self._name()
            yield f"  {following} = insertelement {kind} {last}, half {half}, i32 {lane}"
            last = following

    def store(self, m: re.Match[str]) -> Iterator[str]:
        value, space, pointer, rest = m.groups()
        kind = _type_of(value)
        before, base = self._pointer(pointer, space, kind)
        yield from before
        yield f"  store {value}, {kind}{_suffix(space)} {base}{rest}"

    def alloca(self, m: re.Match[str]) -> Iterator[str]:
        made = self._name()
        yield f"  {made} = alloca {m[2]}{m[3]}"
        yield f"  {m[1]} = bitcast {m[2]}* {made} to i8*"

    def freeze(self, m: re.Match[str]) -> Iterator[str]:
        yield f"  {m[1]} = bitcast {m[2]} {m[3]} to {m[2]}"

    def fneg(self, m: re.Match[str]) -> Iterator[str]:
        kind = m[2]
        zero = "-0.0"
        if kind.startswith("<"):
            count, _, scalar = kind[1:-1].partition(" x ")
            zero = f"<{', '.join([f'{scalar} -0.0'] * int(count))}>"
        yield f"  {m[1]} = fsub {kind} {zero}, {m[3]}"

    def cast(self, m: re.Match[str]) -> Iterator[str]:
        result, name, count, source, value, target = m.groups()
        yield from self._lanes(result, value, (name, source, target), int(count))

    def _lanes(self, result: str, value: str, conversion: tuple[str, str, str], count: int
               ) -> Iterator[str]:
        """A conversion (operation, source and target type) of each lane of a vector."""
        name, source, target = conversion
        last = "undef"
        for lane in range(count):
            part, made = self._name(), self._name()
            yield f"  {part} = extractelement <{count} x {source}> {value}, i32 {lane}"
            yield f"  {made} = {name} {source} {part} to {target}"
            following = result if lane == count - 1 else self._name()
            yield (f"  {following} = insertelement <{count} x {target}> {last}, {target} {made}, "
                   f"i32 {lane}")
            last = following

    def call(self, m: re.Match[str]) -> Iterator[str]:
        result, kind, name, arguments = m.groups()
        if name == "nvvm":
            yield m[0]
            return
        values = [_value(a) for a in _split(arguments)]
        flag = f"<{_LANES.match(kind)[1]} x i1>" if kind.startswith("<") else "i1"  # type: ignore[index]
        if name in _EXTREMA:
            test = self._name()
            a, b = values
            yield f"  {test} = icmp {_EXTREMA[name]} {kind} {a}, {b}"
            yield f"  {result} = select {flag} {test}, {kind} {a}, {kind} {b}"
        elif name in _FLOAT_EXTREMA:
            a, b = values
            test, chosen, nan, total = (self._name() for _ in range(4))
            yield f"  {test} = fcmp {_FLOAT_EXTREMA[name]} {kind} {a}, {b}"
            yield f"  {chosen} = select {flag} {test}, {kind} {a}, {kind} {b}"
            yield f"  {nan} = fcmp uno {kind} {a}, {b}"
            yield f"  {total} = fadd {kind} {a}, {b}"
            yield f"  {result} = select {flag} {nan}, {kind} {total}, {kind} {chosen}"
        elif name == "abs":
            minus, test = self._name(), self._name()
            yield f"  {minus} = sub {kind} zeroinitializer, {values[0]}" if kind.startswith("<") \
                else f"  {minus} = sub {kind} 0, {values[0]}"
            yield f"  {test} = icmp sgt {kind} {values[0]}, {minus}"
            yield f"  {result} = select {flag} {test}, {kind} {values[0]}, {kind} {minus}"
        elif kind in _REGISTERS and name in _ASSEMBLY:
            letter, suffix = _REGISTERS[kind]
            text = _ASSEMBLY[name].format(type=suffix)
            inputs = ",".join([letter] * len(values))
            operands = ", ".join(f"{kind} {v}" for v in values)
            yield f'  {result} = call {kind} asm "{text}", "={letter},{inputs}"({operands})'
        elif kind.startswith("<"):
            yield from self._by_lanes(result, kind, name, values)
        else:
            yield m[0].replace("call nsz", "call")

    def _by_lanes(self, result: str, kind: str, name: str, operands: list[str]) -> Iterator[str]:
        """A vector intrinsic as calls for each lane: the dialect has scalar ones."""
        count, _, scalar = kind[1:-1].partition(" x ")
        suffix = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
        last = "undef"
        for lane in range(int(count)):
            lanes = []
            for operand in operands:
                part = self._name()
                yield f"  {part} = extractelement {kind} {operand}, i32 {lane}"
                lanes.append(f"{scalar} {part}")
            value = self._name()
            yield from self._instruction(
                f"  {value} = call {scalar} @llvm.{name}.{suffix}({', '.join(lanes)})")
            following = result if lane == int(count) - 1 else self._name()
            yield f"  {following} = insertelement {kind} {last}, {scalar} {value}, i32 {lane}"
            last = following
        kinds = ", ".join([scalar] * len(operands))
        declaration = f"declare {scalar} @llvm.{name}.{suffix}({kinds})"
        if declaration not in self.lines and not _is_replaced(declaration):
            self.lines.append(declaration)


_Rule = Callable[[_Translation, "re.Match[str]"], Iterator[str]]
_RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = (
    (_GEP, _Translation.gep), (_LOAD, _Translation.load), (_STORE, _Translation.store),
    (_ALLOCA, _Translation.alloca), (_FREEZE, _Translation.freeze), (_FNEG, _Translation.fneg),
    (_CAST, _Translation.cast), (_CALL, _Translation.call),
)


def _is_replaced(line: str) -> bool:
    """Whether a declared intrinsic does not exist in the dialect."""
    match = re.search(r"@llvm\.(\w+)\.", line)
    is_vector = re.search(r"@llvm\.[\w.]*\.v\d+", line) is not None
    return match is not None and (is_vector or match[1] in _REPLACED)


def _suffix(space: str | None) -> str:
    return f" addrspace({space})*" if space else "*"


def _byte_pointer(space: str | None) -> str:
    return f"i8{_suffix(space)}"


def _pointers(text: str) -> str:
    return re.sub(_SPACE, lambda m: _byte_pointer(m[1]), text)


def _split(arguments: str) -> list[str]:
    """The operands of a call; commas inside vectors and parentheses do not separate."""
    parts, depth, last = [], 0, ""
    for letter in arguments:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append(last.strip())
            last = ""
        else:
            last += letter
    return [*parts, last.strip()]


def _type_of(operand: str) -> str:
    """The type at the start of ``TYPE value`` or ``TYPE attributes %name``."""
    if operand.startswith(("<", "[")):
        close = ">" if operand.startswith("<") else "]"
        return operand[:operand.index(close) + 1]
    if operand.startswith("i8 addrspace"):
        return operand[:operand.index("*") + 1]
    return operand.split(maxsplit=1)[0]


def _value(operand: str) -> str:
    return operand[len(_type_of(operand)):].strip()
