"""Tensors computed by a CUDA kernel of another compiler: PTX text, or a ``numba.cuda.jit`` kernel.

The kernel becomes a launch of the program: it runs in order with weft's own kernels, over the same
memory, and is exported with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from weft.ir.dtype import DType, handle
from weft.support.errors import OperatorError
from weft.support.file_content import digest_of
from weft.support.function_digest import function_digest, plain_function
from weft.support.suggestion import did_you_mean
from weft.support.user_code import location_of
from weft.te.tensor import ExternOp, Index, Tensor, as_shape
from weft.tir import Buffer, Call, Evaluate, PrimExpr, Stmt, StringImm, Var, const, int_value
from weft.tir.foreign_kernel import ForeignKernel, cuda_options, ptx_entries
from weft.tir.python_function import ArrayParam, Scalar
from weft.tir.transform.gpu.thread_axes import BLOCK_TAGS, THREAD_TAGS, bound_loop

# What a kernel takes: a tensor, or a scalar.
Operand: TypeAlias = "Tensor | PrimExpr | float"
_POINTERS = ("u64", "b64", "s64")
_FLOATS = {"f32": "float32", "f64": "float64"}
_INTEGERS = tuple(f"{sign}{bits}" for sign in "usb" for bits in (8, 16, 32, 64))


def device_kernel(shapes: Sequence[Sequence[Index]], inputs: Sequence[Tensor],
                  kernel: str | Callable[..., Any], dtypes: Sequence[DType | str], *,
                  grid: Index | Sequence[Index], block: int | Sequence[int],
                  scalars: Sequence[PrimExpr | float] = (), order: Sequence[int] | None = None,
                  shared_bytes: int = 0, entry: str | None = None, name: str | None = None
                  ) -> tuple[Tensor, ...]:
    """Tensors of ``shapes`` and ``dtypes`` that a CUDA kernel writes.

    ``kernel`` is a function decorated with ``numba.cuda.jit``, which gets arrays, or PTX text with
    the kernel ``entry`` (the only one, if not given), which gets addresses. It takes the inputs,
    the outputs and the scalars (numbers, or sizes such as ``x.shape[0]``), or these in ``order``:
    ``order=(1, 0)`` for the second first. ``grid`` counts blocks, in sizes of the tensors, and
    ``block`` threads, x first; ``shared_bytes`` is dynamic shared memory. Tensors are dense and
    row-major, and outputs uninitialised.

    Raises ``OperatorError`` for PTX without the kernel and for arguments that do not fit it, and
    when the kernel is built, for what numba or ``ptxas`` rejects.
    """
    types = tuple((as_shape(s), DType.of(d)) for s, d in zip(shapes, dtypes, strict=True))
    arrays = [*((t.shape, t.dtype) for t in inputs), *types]
    positions = _positions(order, len(arrays) + len(scalars))
    blocks, threads = _three(grid, "grid"), _three(block, "block")
    if any(int_value(n) is None for n in threads):
        raise OperatorError("the number of threads in a block is not a constant", got=block)
    kinds = [_kind(arrays, len(inputs), scalars, i) for i in positions]
    if isinstance(kernel, str):
        record = _ptx_kernel(kernel, entry, kinds, shared_bytes)
    else:
        record = _python_kernel(kernel, kinds, shared_bytes)
    widths = ptx_entries(kernel)[record.entry] if isinstance(kernel, str) else None

    def build(sources: tuple[Buffer, ...], targets: tuple[Buffer, ...]) -> Stmt:
        buffers = [*sources, *targets]
        operands: list[PrimExpr] = []
        for number, i in enumerate(positions):
            if i >= len(buffers):
                value = scalars[i - len(buffers)]
                operands.append(_constant(value, None if widths is None else widths[number]))
            elif widths is None:
                operands += _array(buffers[i])
            else:
                operands.append(_address(buffers[i]))
        return _launch(record, operands, blocks, threads)

    label = name or record.entry
    return ExternOp(label, tuple(inputs), types, build, kernels=(record,)).outputs


def _positions(order: Sequence[int] | None, count: int) -> Sequence[int]:
    if order is None:
        return range(count)
    if not all(0 <= i < count for i in order):
        raise OperatorError("the order of a kernel's arguments names an unknown one",
                            expected=f"indices below {count}: inputs, outputs, scalars",
                            got=tuple(order))
    return order


def _three(sizes: Index | Sequence[Index], what: str) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    given = as_shape(sizes if isinstance(sizes, Sequence) else (sizes,))
    if not 1 <= len(given) <= 3:
        raise OperatorError(f"the {what} of a kernel has one to three sizes", got=sizes)
    x, y, z = (*given, const(1), const(1))[:3]
    return x, y, z


def _kind(arrays: Sequence[tuple[tuple[PrimExpr, ...], DType]], inputs: int,
          scalars: Sequence[PrimExpr | float], i: int) -> ArrayParam | Scalar:
    """What the kernel gets as argument ``i`` of inputs, outputs and scalars."""
    if i < len(arrays):
        shape, dtype = arrays[i]
        return ArrayParam(dtype, tuple(map(int_value, shape)), i >= inputs)
    value = scalars[i - len(arrays)]
    if isinstance(value, PrimExpr):
        return value.dtype
    if isinstance(value, bool | int | float):
        return value
    raise OperatorError("a scalar of a kernel is a number or a size", got=f"{value!r}")


def _ptx_kernel(text: str, entry: str | None, kinds: Sequence[ArrayParam | Scalar],
                shared_bytes: int) -> ForeignKernel:
    entries = ptx_entries(text)
    if not entries:
        raise OperatorError("the PTX text has no kernel", expected=".entry NAME(...)",
                            got=text.strip()[:80] or "an empty text")
    if entry is None and len(entries) > 1:
        raise OperatorError("the PTX text has several kernels", got=", ".join(entries),
                            help="name one: entry=...")
    name = entry or next(iter(entries))
    if name not in entries:
        raise OperatorError(f"the PTX text has no kernel {name}", expected=", ".join(entries),
                            help=did_you_mean(name, list(entries)))
    wanted = entries[name]
    if len(wanted) != len(kinds):
        raise OperatorError(f"the kernel {name} takes another number of arguments",
                            expected=f"{len(wanted)}: {', '.join(wanted)}",
                            got=f"{len(kinds)} inputs, outputs and scalars")
    for number, (kind, type_) in enumerate(zip(kinds, wanted, strict=True)):
        if not _fits(kind, type_):
            raise OperatorError(f"the kernel {name} cannot take argument {number}",
                                expected=f"a .{type_} parameter", got=_described(kind))
    digest = digest_of(f"{shared_bytes} {text}".encode()).hex()
    return ForeignKernel(f"{name}_{digest[:16]}", text, name, tuple(kinds), shared_bytes)


def _fits(kind: ArrayParam | Scalar, type_: str) -> bool:
    if isinstance(kind, ArrayParam):
        return type_ in _POINTERS
    if isinstance(kind, float):
        return type_ in _FLOATS
    return type_ in _INTEGERS or (type_ in _FLOATS and not isinstance(kind, DType))


def _described(kind: ArrayParam | Scalar) -> str:
    if isinstance(kind, ArrayParam):
        return f"the address of a {kind.dtype} tensor"
    return f"a size of {kind}" if isinstance(kind, DType) else repr(kind)


def _python_kernel(kernel: Callable[..., Any], kinds: Sequence[ArrayParam | Scalar],
                   shared_bytes: int) -> ForeignKernel:
    function = plain_function(kernel)
    options = getattr(kernel, "targetoptions", {})
    if options.get("device"):
        raise OperatorError(f"{function.__name__} is a device function, not a kernel",
                            where=location_of(function), help="decorate it with numba.cuda.jit")
    expected = len(inspect.signature(function).parameters)
    if expected != len(kinds):
        raise OperatorError(f"{function.__name__} takes another number of arguments",
                            where=location_of(function),
                            expected=f"{len(kinds)}: inputs, outputs, scalars",
                            got=f"{function.__name__}{inspect.signature(function)}")
    if options.get("link"):
        raise OperatorError(f"{function.__name__} links files, which weft does not",
                            where=location_of(function), got=options["link"],
                            help="write what they define in Python, or give PTX text that has it")
    facts = chain(map(repr, kinds), [str(shared_bytes)], cuda_options(kernel))
    symbol = f"{function.__name__.strip('<>')}_{function_digest(function, *facts)[:16]}"
    return ForeignKernel(symbol, kernel, function.__name__, tuple(kinds), shared_bytes)


def _constant(value: PrimExpr | float, type_: str | None) -> PrimExpr:
    if isinstance(value, PrimExpr):
        return value
    if type_ in _FLOATS:
        return const(float(value), _FLOATS[type_])
    return const(value, "float64") if isinstance(value, float) else const(int(value), "int64")


def _address(buffer: Buffer) -> PrimExpr:
    return Call(handle, "address_of", (buffer.load(*(const(0) for _ in buffer.shape)),))


def _array(buffer: Buffer) -> Iterator[PrimExpr]:
    """The fields of numba's array: two null pointers, the count and size of elements, the address,
    the sizes, and the strides in bytes.
    """
    strides: list[PrimExpr] = []
    stride: PrimExpr = const(buffer.dtype.itemsize)
    count: PrimExpr = const(1)
    for size in reversed(buffer.shape):
        strides.insert(0, stride)
        stride, count = stride * size, count * size
    yield from (const(0), const(0), count, const(buffer.dtype.itemsize), _address(buffer))
    yield from (*buffer.shape, *strides)


def _launch(record: ForeignKernel, operands: Sequence[PrimExpr], blocks: Sequence[PrimExpr],
            threads: Sequence[PrimExpr]) -> Stmt:
    body: Stmt = Evaluate(Call(handle, "call_extern", (StringImm(record.symbol), *operands)))
    axes = [*zip(THREAD_TAGS, threads, strict=True), *zip(BLOCK_TAGS, blocks, strict=True)]
    for tag, extent in axes:
        body = bound_loop(Var(tag), extent, tag, body)
    return body
