"""Launches of kernels of other compilers, and their code in a module of weft's."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from weft.codegen.cuda.ptxas import assemble
from weft.codegen.cuda.toolkit import find_program
from weft.runtime.devices.cuda.image import Argument, ptx_version, runs_ptx
from weft.runtime.sizes import Size
from weft.support.errors import CodegenError, OperatorError
from weft.target import CudaTarget
from weft.tir import BufferLoad, Call, Evaluate, FloatImm, PrimExpr, PrimFunc, Stmt, StringImm
from weft.tir.foreign_kernel import ForeignKernel, foreign_kernels_of
from weft.tir.visitor import stmts_of

_TARGET = re.compile(r"^\s*\.target\s+([\w]+)[^\n]*\n", re.MULTILINE)
_HEADER = re.compile(r"^\s*\.(?:version|target|address_size)\b[^\n]*\n", re.MULTILINE)
_DEBUG = re.compile(r"^\s*\.(?:file|loc)\b[^\n]*\n|^\s*\.section\s+\.debug[^{]*\{[^}]*\}\n?",
                    re.MULTILINE)
# The names that a module defines: at the start of a line, outside of functions.
_NAMED = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func(?:\s*\([^)]*\))?|"
                    r"(?:global|shared|const)\b[^;={(]*?)"
                    r"\s+([\w$]+)\s*(?=[\[(;={])", re.MULTILINE)


def foreign_launch(func: PrimFunc, body: Stmt) -> tuple[ForeignKernel, Sequence[PrimExpr]] | None:
    """The kernel that a launch consists of, with its operands; ``None`` for one of weft's own."""
    kernels = foreign_kernels_of(func)
    while not isinstance(body, Evaluate):
        inner = tuple(stmts_of(body))
        if len(inner) != 1:
            return None
        body = inner[0]
    call = body.value
    if not isinstance(call, Call) or call.name != "call_extern" \
            or not isinstance(call.args[0], StringImm):
        return None
    kernel = kernels.get(call.args[0].value)
    return None if kernel is None else (kernel, call.args[1:])


def foreign_argument(operand: PrimExpr, address: Callable[[BufferLoad], Argument],
                     size: Callable[[PrimExpr], Size]) -> Argument:
    """What the launcher passes for an operand: an address, or the bits of a number."""
    if isinstance(operand, Call) and operand.name == "address_of" \
            and isinstance(operand.args[0], BufferLoad):
        return address(operand.args[0])
    if isinstance(operand, FloatImm):
        code, bits = ("<f", "<i") if operand.dtype.itemsize == 4 else ("<d", "<q")
        return "size", struct.unpack(bits, struct.pack(code, operand.value))[0]
    return "size", size(operand)


def check_kernel(kernel: ForeignKernel, target: CudaTarget) -> None:
    """Raise ``CodegenError`` for PTX for other architectures, ``OperatorError`` for wrong PTX.

    ``ptxas`` judges the text, if it is installed.
    """
    if not isinstance(kernel.source, str):
        return
    arch = _TARGET.search(kernel.source)
    if arch is None or ptx_version(kernel.source) == (0, 0):
        raise OperatorError("the PTX text has no header", where=kernel.entry,
                           expected=".version, .target and .address_size 64")
    if not runs_ptx(arch[1], target.capability) or (
            arch[1].endswith("a") and not target.is_arch_specific):
        raise CodegenError(f"the kernel was compiled for {arch[1]}", where=kernel.entry,
                           expected=f"PTX for {target.arch} or earlier", got=arch[1],
                           help=f'compile with target="cuda -arch={arch[1]}"')
    if find_program("ptxas") is not None:
        with blamed_on_operator():
            assemble(kernel.source, target.arch)


@contextmanager
def blamed_on_operator() -> Iterator[None]:
    """Raise an ``OperatorError`` for code that a compiler refuses: no device could run it."""
    try:
        yield
    except CodegenError as error:
        raise OperatorError(error.what, where=error.where, expected=error.expected, got=error.got,
                            notes=error.notes, help=error.help) from error


def with_ptx(own: str, kernels: Iterable[ForeignKernel], target: CudaTarget) -> str:
    """One PTX module of weft's text, which may be empty, and those of other compilers.

    Kernels get their symbols as names. Raises ``OperatorError`` for other names that two texts
    define.
    """
    texts = [(k.entry, k.symbol, k.source) for k in kernels if isinstance(k.source, str)]
    if not texts:
        return own
    parts, known = [_HEADER.sub("", own)], dict.fromkeys(_NAMED.findall(own), "weft")
    for entry, symbol, text in texts:
        plain = _DEBUG.sub("", _HEADER.sub("", text))
        plain = re.sub(rf"(?<![\w$]){re.escape(entry)}(?![\w$])", symbol, plain)
        for name in _NAMED.findall(plain):
            if name in known:
                raise OperatorError(f"two PTX texts of one program define {name}", where=entry,
                                   got=f"also in {known[name]}", help="rename it in one of them")
            known[name] = entry
        parts.append(plain)
    major, minor = max(ptx_version(text) for text in (own, *(t for _, _, t in texts)))
    header = f".version {major}.{minor}\n.target {target.arch}\n.address_size 64\n"
    return header + "\n".join(part.strip("\n") for part in parts) + "\n"
