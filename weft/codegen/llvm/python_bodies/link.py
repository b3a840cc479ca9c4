"""Links Python bodies, compiled by numba, into the module of the kernel that calls them.

numba uses its own calling convention (each array is passed as eleven or more arguments, the result
is a status) and its own symbol names. The wrapper written here has the kernel's convention: a
function of pointers and run-time values under the body's symbol. Sizes and strides that are known
at compile time are constants in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from llvmlite import binding as llvm

from weft.codegen.ir_text.types import float_constant, int_constant, value_type
from weft.codegen.ir_text.writer import FunctionWriter, ModuleWriter
from weft.codegen.llvm.python_bodies.numba_compile import NumbaCode, compile_body, raising_line
from weft.codegen.llvm.target_machine import data_layout, target_machine
from weft.ir.dtype import DType, float64, int64
from weft.support.errors import CodegenError, InternalError
from weft.support.function_digest import plain_function
from weft.support.user_code import location_of
from weft.target import CpuTarget
from weft.tir.python_function import ArrayParam, PythonFunction, Scalar

_RAISED = "weft.python.raised"
# Functions of the C math library that compiled Python may call.
MATH_SYMBOLS = frozenset(
    name + suffix
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "copysign",
                 "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fmod", "hypot", "ldexp",
                 "lgamma", "log", "log10", "log1p", "log2", "nextafter", "pow", "remainder",
                 "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "floor", "ceil", "trunc", "rint",
                 "nearbyint", "round", "fma", "fmin", "fmax")
    for suffix in ("", "f"))
_MEMORY_SYMBOLS = frozenset(["memcpy", "memset", "memmove"])
# numba counts references to arrays. These arrays are views of memory that numba does not own, so
# the counting functions are replaced by empty ones.
_REFERENCE_COUNT = re.compile(r"^define [^\n]*@NRT_(incref|decref)\(.*?^}\n",
                              re.MULTILINE | re.DOTALL)
_NO_COUNT = "define internal void @NRT_{}(ptr %p) alwaysinline {{\n  ret void\n}}\n"


def link_python_functions(
    text: str, functions: Mapping[str, PythonFunction], target: CpuTarget
) -> str:
    """The module ``text`` with definitions of the Python functions that it declares."""
    module = llvm.parse_assembly(text)
    for symbol, function in functions.items():
        module.link_in(llvm.parse_assembly(python_function_ir(function, target)))
        module.get_function(symbol).linkage = "internal"
    return str(module)


def python_function_ir(function: PythonFunction, target: CpuTarget) -> str:
    """LLVM IR that defines ``void @symbol(arrays..., run-time values...)``; deterministic.

    Raises ``CodegenError`` with the line of the Python code if numba cannot compile the body, or if
    the body may raise an exception, allocates memory, or needs the interpreter. All architectures
    of targets are little-endian, as numba's host; code with sizes of 64 bits runs on 32 bits, too.
    """
    code = compile_body(function, target)
    module = llvm.parse_assembly(assembled(function, code, data_layout(target), target.triple))
    for value in (*module.functions, *module.global_variables):
        # Internal functions are removed once they are inlined.
        if not value.is_declaration and value.name != function.symbol:
            value.linkage = "internal"
    rename_symbols(module, function.symbol)  # first: the optimiser derives labels from these names
    _optimize(module, target)
    check_closed(function, module)
    return str(module)


def assembled(function: PythonFunction, code: NumbaCode, layout: str, triple: str) -> str:
    """Numba's module, retargeted, with the wrapper that has the kernel's calling convention."""
    text = re.sub(r"^target (datalayout|triple) = .*\n", "", code.text, flags=re.MULTILINE)
    text = _REFERENCE_COUNT.sub(lambda found: _NO_COUNT.format(found[1]), text)
    body = llvm.parse_assembly(code.text).get_function(code.entry)
    types = [str(argument.type) for argument in body.arguments]
    entry = _Entry(function, code.entry, types).text()
    return (f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n'
            f"{text}\ndeclare void @{_RAISED}() noreturn\n{entry}\n")


class _Entry:
    """Writes the wrapper that translates the kernel's calling convention to numba's."""

    def __init__(self, function: PythonFunction, callee: str, types: list[str]) -> None:
        self.function = function
        self.callee = callee
        self.types = types
        self.out = FunctionWriter(ModuleWriter(function.symbol, CpuTarget.host()))
        self.params: list[str] = []

    def text(self) -> str:
        function, out = self.function, self.out
        pointers = [self._param(p) for p in function.arrays]
        operands = [out.alloca("ptr", 8), out.alloca("ptr", 8)]  # the result, the exception
        for pointer, param in zip(pointers, function.arrays, strict=True):
            operands += self._array(pointer, param)
        operands += map(self._scalar, function.scalars)
        if len(operands) != len(self.types):
            raise InternalError("numba's calling convention differs from the expected one",
                                expected=len(operands), got=len(self.types))
        arguments = ", ".join(f"{t} {v}" for t, v in zip(self.types, operands, strict=True))
        status = out.emit(f'call i32 @"{self.callee}"({arguments})')
        # numba functions return 0, or -2 for None; other codes are exceptions.
        flags = [out.emit(f"icmp ne i32 {status}, {code}") for code in (0, -2)]
        flag = out.emit(f"and i1 {', '.join(flags)}")
        out.do(f"br i1 {flag}, label %raised, label %done")
        out.start_block("raised")
        out.do(f"call void @{_RAISED}()")
        out.do("unreachable")
        out.start_block("done")
        out.do("ret void")
        return out.text(f"define void @{function.symbol}({', '.join(self.params)}) nounwind")

    def _param(self, param: ArrayParam) -> str:
        name = f"%p{len(self.params)}"
        access = "" if param.is_written else " readonly"
        self.params.append(f"ptr noalias{access} align {param.dtype.itemsize} {name}")
        return name

    def _value(self, dtype: DType) -> str:
        """Add a parameter for a run-time value."""
        name = f"%p{len(self.params)}"
        self.params.append(f"{value_type(dtype)} {name}")
        return name

    def _array(self, pointer: str, param: ArrayParam) -> Iterator[str]:
        """Fields of numba's array struct: meminfo and parent (null), element count, item size,
        data, sizes, strides in bytes.
        """
        sizes = [self._value(int64) if size is None else str(size) for size in param.shape]
        stride = str(param.dtype.itemsize)
        strides: list[str] = []
        for size in reversed(sizes):
            strides.insert(0, stride)
            stride = self.out.emit(f"mul i64 {stride}, {size}")
        # After the loop, ``stride`` is the size of the whole array in bytes.
        count = self.out.emit(f"udiv i64 {stride}, {param.dtype.itemsize}")
        yield from ("null", "null", count, str(param.dtype.itemsize), pointer, *sizes, *strides)

    def _scalar(self, scalar: Scalar) -> str:
        if isinstance(scalar, DType):
            return self._value(scalar)
        if isinstance(scalar, float):
            return float_constant(scalar, float64)
        return int_constant(int(scalar), int64)


def _optimize(module: llvm.ModuleRef, target: CpuTarget) -> None:
    # numba has already vectorised. This inlines the body into the wrapper, whose constants then
    # fold sizes and bounds checks, and remove exceptions that cannot be raised.
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(target_machine(target), options)
    builder.getModulePassManager().run(module, builder)


def check_closed(function: PythonFunction, module: llvm.ModuleRef) -> None:
    """Raise ``CodegenError`` for bodies that allocate, raise, or call the interpreter."""
    body = plain_function(function.body)
    allowed = MATH_SYMBOLS | _MEMORY_SYMBOLS
    values = (*module.functions, *module.global_variables)
    needed = sorted(v.name for v in values if v.is_declaration
                    and not v.name.startswith("llvm.") and v.name not in allowed)
    if not needed:
        return
    if any(name.startswith("NRT_") for name in needed):
        raise CodegenError(f"{body.__name__} allocates memory", where=location_of(body),
                           help="take arrays to work in as scratch=[(shape, dtype), ...], and "
                                "write loops where NumPy would make a new array")
    if _RAISED in needed and "numba_gil_ensure" not in needed:
        raise CodegenError(f"{body.__name__} may raise an exception",
                           where=location_of(body, raising_line(body)),
                           help="compiled code cannot raise; check sizes in the type relation, "
                                "and report bad data by a marker in an output")
    raise CodegenError(f"{body.__name__} needs the Python interpreter", where=location_of(body),
                       got=", ".join(needed))


def rename_symbols(module: llvm.ModuleRef, symbol: str) -> None:
    """Replace numba's names, which contain a per-process counter, by deterministic ones."""
    module.name = symbol
    values = (*module.functions, *module.global_variables)
    own = [v for v in values if not v.is_declaration and v.name != symbol]
    for number, value in enumerate(own):
        value.name = f"{symbol}.{number}"
