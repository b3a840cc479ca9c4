"""Parse PTX text: the grammar that NVPTX and libnvvm print, and inline assembly inside it.

Source: PTX ISA 8.x and 9.0, "Syntax", "Directives", "Instruction operands".
"""

from __future__ import annotations

from dataclasses import replace

from weft.testing.cuda.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Parameter,
    PtxFunction,
    PtxModule,
    Register,
    SourceLine,
    Symbol,
    Variable,
    Vector,
)
from weft.testing.cuda.ptx.operand_parser import TokenReader, tokenize

_LINKAGE = frozenset((".visible", ".weak", ".extern", ".common"))
_SPACES = frozenset((".shared", ".global", ".const", ".local"))
_SIZES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4,
    "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
    "b128": 16, "pred": 1,
}  # fmt: skip


def parse(text: str) -> PtxModule:
    """The module in ``text``. Raises CudaEmulationError at what does not parse."""
    return _Parser(text).module()


class _Parser(TokenReader):
    def __init__(self, text: str) -> None:
        super().__init__(text, tokenize(text))
        self.target = ""
        self.functions: dict[str, PtxFunction] = {}
        self.variables: dict[str, Variable] = {}
        self.files: dict[str, str] = {}

    def module(self) -> PtxModule:
        while self.token.kind != "end":
            self._top_level()
        return PtxModule(self.functions, self.variables, self.target, self.text)

    def _top_level(self) -> None:
        external = False
        while self.token.text in _LINKAGE:
            external = external or self.token.text == ".extern"
            self.advance()
        word = self.token.text
        if word == ".target":
            self.advance()
            self.target = self.expect_word()
            while self.accept(","):
                self.advance()
        elif word in {".version", ".address_size"}:
            self.advance()
            self.advance()
        elif word == ".file":
            self._file()
        elif word == ".section":
            self._skip_braces()
        elif word in _SPACES:
            variable = self.variable(external)
            self.variables[variable.name] = variable
        elif word in {".entry", ".func"}:
            self._function()
        elif word == ".alias":
            self.skip_statement()
        else:
            self.fail("unknown PTX directive")

    def _file(self) -> None:
        self.advance()
        number = self.token.text
        self.advance()
        self.files[number] = self.token.text.strip('"')
        self.advance()
        while self.accept(","):
            self.advance()

    def _skip_braces(self) -> None:
        while self.token.text != "{":
            self.advance()
        depth = 0
        while True:
            depth += {"{": 1, "}": -1}.get(self.token.text, 0)
            self.advance()
            if depth == 0:
                return

    def skip_statement(self) -> None:
        while not self.accept(";"):
            self.advance()

    # variables and parameters

    def variable(self, external: bool) -> Variable:
        space = self.token.text[1:]
        line = self.token.line
        self.advance()
        name, alignment, nbytes, element = self.declarator()
        initial = b""
        if self.accept("="):
            initial = self._initial(element)
        self.expect(";")
        if initial and len(initial) > nbytes:
            self.fail_at(line, f"the initial value of {name} has more bytes than the variable")
        return Variable(name, space, alignment, nbytes, initial, external)

    def declarator(self) -> tuple[str, int, int, int]:
        """Name, alignment, bytes and bytes of an element of a declaration after its space."""
        alignment, element, count = 0, 0, 1
        while self.token.text.startswith(".") and self.token.kind == "word":
            word = self.token.text[1:]
            self.advance()
            if word == "align":
                alignment = self.expect_int()
            elif word == "ptr":
                alignment = alignment or 0
                self._pointer_attributes()
            elif word in {"v2", "v4"}:
                count *= int(word[1])
            elif word in _SIZES:
                element = _SIZES[word]
            elif word not in {"attribute", "texref", "samplerref", "surfref"}:
                self.fail(f"unknown attribute .{word} of a declaration")
        name = self.expect_word()
        while self.accept("["):
            if self.accept("]"):
                count = 0
                continue
            count *= self.expect_int()
            self.expect("]")
        return name, alignment or element, element * count, element

    def _pointer_attributes(self) -> None:
        while self.token.text in {".global", ".shared", ".const", ".local", ".param", ".align"}:
            aligned = self.token.text == ".align"
            self.advance()
            if aligned:
                self.expect_int()

    def _initial(self, element: int) -> bytes:
        items = [self.token] if not self.accept("{") else None
        if items is not None:
            return self._constant().to_bytes(element, "little")
        data = bytearray()
        while not self.accept("}"):
            data += (self._constant() & ((1 << 8 * element) - 1)).to_bytes(element, "little")
            self.accept(",")
        return bytes(data)

    def _constant(self) -> int:
        if self.token.kind == "float":
            value = int("0x" + self.token.text[2:], 0)
            self.advance()
            return value
        return self.expect_int()

    def _parameters(self) -> tuple[Parameter, ...]:
        parameters: list[Parameter] = []
        offset = 0
        if not self.accept("("):
            return ()
        while not self.accept(")"):
            if self.token.text not in {".param", ".reg"}:
                self.fail("expected a parameter")
            self.advance()
            name, alignment, nbytes, _ = self.declarator()
            offset = -(-offset // max(alignment, 1)) * max(alignment, 1)
            parameters.append(Parameter(name, offset, nbytes, alignment))
            offset += nbytes
            self.accept(",")
        return tuple(parameters)

    # functions

    def _function(self) -> None:
        entry = self.token.text == ".entry"
        self.advance()
        results = () if entry else self._parameters()
        name = self.expect_word()
        function = PtxFunction(name, entry, self._parameters(), results)
        while self.token.text not in {"{", ";"}:
            self._performance_directive(function)
        if self.accept(";"):
            return
        self.expect("{")
        _Body(self, function).parse()
        self.functions[name] = function

    def _performance_directive(self, function: PtxFunction) -> None:
        word = self.expect_word()[1:]
        values: list[int] = []
        while self.token.kind == "number":
            values.append(self.expect_int())
            if not self.accept(","):
                break
        if self.token.kind == "string":
            self.advance()
            self.accept(";")
        function.directives[word] = tuple(values)


class _Body:
    """The statements of one function; ``{`` inside opens a scope with names of its own."""

    def __init__(self, parser: _Parser, function: PtxFunction) -> None:
        self.parser = parser
        self.function = function
        self.scopes: list[dict[str, str]] = [{}]
        self.scope_starts: list[int] = [0]
        self.scope_labels: list[dict[str, str]] = [{}]
        self.opened = 0
        self.source: SourceLine | None = None

    def parse(self) -> None:
        reader = self.parser
        while True:
            if reader.accept("}"):
                if not self._close():
                    return
            elif reader.accept("{"):
                self._open()
            else:
                self._statement()

    def _open(self) -> None:
        self.opened += 1
        self.scopes.append({})
        self.scope_labels.append({})
        self.scope_starts.append(len(self.function.body))

    def _close(self) -> bool:
        self.scopes.pop()
        labels, start = self.scope_labels.pop(), self.scope_starts.pop()
        if not self.scopes:
            return False
        if labels:
            body = self.function.body
            for index in range(start, len(body)):
                operands = tuple(
                    Symbol(labels[item.name])
                    if isinstance(item, Symbol) and item.name in labels else item
                    for item in body[index].operands)
                body[index] = replace(body[index], operands=operands)
        return True

    def _statement(self) -> None:
        reader = self.parser
        token = reader.token
        if token.text == ".reg":
            self._registers()
        elif token.text in _SPACES:
            self.function.variables.append(reader.variable(external=False))
        elif token.text == ".param":
            self._local_parameter()
        elif token.text == ".loc":
            self._location()
        elif token.text in {".pragma", ".callprototype"}:
            reader.skip_statement()
        elif token.text == ".branchtargets":
            reader.fail("a .branchtargets without a label")
        elif token.kind == "word" and reader.peek().text == ":":
            self._label()
        elif reader.accept(";"):
            return
        else:
            self._instruction()

    def _registers(self) -> None:
        reader = self.parser
        reader.advance()
        kind = reader.expect_word()[1:]
        if kind not in _SIZES:
            reader.fail(f"unknown register type .{kind}")
        while True:
            name = reader.expect_word()
            if reader.accept("<"):
                for number in range(reader.expect_int()):
                    self._declare(f"{name}{number}", kind)
                reader.expect(">")
            else:
                self._declare(name, kind)
            if not reader.accept(","):
                break
        reader.expect(";")

    def _declare(self, name: str, kind: str) -> None:
        unique = name
        if len(self.scopes) > 1:
            unique = f"{name}@{self.opened}"
            self.scopes[-1][name] = unique
        self.function.registers[unique] = kind

    def _local_parameter(self) -> None:
        """Space for the arguments of a call: a variable of its own."""
        reader = self.parser
        reader.advance()
        name, alignment, nbytes, _ = reader.declarator()
        reader.expect(";")
        unique = f"{name}@{self.opened}"
        self.scopes[-1][name] = unique
        self.function.variables.append(Variable(unique, "param", alignment, nbytes))

    def _location(self) -> None:
        reader = self.parser
        reader.advance()
        file, line = str(reader.expect_int()), reader.expect_int()
        reader.expect_int()
        self.source = SourceLine(reader.files.get(file, file), line) if line else None
        while reader.accept(","):
            reader.expect_word()
            while reader.token.kind == "number" or reader.token.text == "+" or (
                reader.token.kind == "word" and reader.token.text.startswith("$L__info")
            ):
                reader.advance()

    def _label(self) -> None:
        reader = self.parser
        name = reader.expect_word()
        reader.expect(":")
        if reader.token.text == ".branchtargets":
            reader.advance()
            targets = [reader.expect_word()]
            while reader.accept(","):
                targets.append(reader.expect_word())
            reader.expect(";")
            self.function.tables[name] = tuple(targets)
            return
        unique = name
        if len(self.scopes) > 1:
            unique = f"{name}@{self.opened}"
            self.scope_labels[-1][name] = unique
        if unique in self.function.labels:
            reader.fail(f"the label {name} is defined twice")
        self.function.labels[unique] = len(self.function.body)

    def _instruction(self) -> None:
        reader = self.parser
        line = reader.token.line
        guard = None
        if reader.accept("@"):
            negated = reader.accept("!")
            guard = Register(self._renamed(reader.expect_word()), negated)
        parts = reader.expect_word().split(".")
        operands: list[Operand] = []
        while not reader.accept(";"):
            operands.append(self._scoped(reader.operand()))
            if not reader.accept(","):
                reader.expect(";")
                break
        self.function.body.append(Instruction(
            parts[0], tuple(parts[1:]), tuple(operands), guard, line, self.source))

    def _renamed(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def _scoped(self, operand: Operand) -> Operand:
        match operand:
            case Register(name):
                return replace(operand, name=self._renamed(name))
            case Symbol(name):
                renamed = self._renamed(name)
                if renamed in self.function.registers:
                    return Register(renamed)
                return Symbol(renamed)
            case Address(base, _, coordinates):
                base = self._scoped(base)
                assert isinstance(base, Register | Symbol | Immediate)
                return replace(operand, base=base,
                               coordinates=tuple(self._scoped(item) for item in coordinates))
            case Vector(elements):
                return Vector(tuple(self._scoped(item) for item in elements))
            case Pair(first, second):
                return Pair(self._scoped(first), self._scoped(second))
            case _:
                return operand
