"""Kernels of external code generators: objects that are linked, or calls of Python functions."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.callbacks import Callback, Failure
from weft.ir import Function, TensorType, TupleType, Type
from weft.runtime.arena import array_at
from weft.support.errors import CodegenError, InternalError
from weft.target import Target
from weft.transform.analysis.graph import type_of
from weft.transform.external.codegen import PythonCode


def check_distinct(owners: Sequence[tuple[str, str]]) -> None:
    """Raise ``CodegenError`` if two kernels, given as (symbol, description), share a symbol."""
    seen: dict[str, str] = {}
    for symbol, owner in owners:
        if symbol in seen:
            raise CodegenError(f"two kernels define {symbol!r}", got=f"{seen[symbol]} and {owner}",
                               help="use the name of the region as the symbol of its code")
        seen[symbol] = owner


def callback_object(symbol: str, name: str, python: PythonCode, function: Function, target: Target
                    ) -> tuple[bytes, Callback]:
    """An object whose function ``symbol`` calls ``python``, and the callback that it refers to.

    The callback must live as long as the object. Errors name the function by ``name``.
    """
    inputs = [t for p in function.params for t in _tensors(type_of(p))]
    outputs = _tensors(type_of(function.body))
    errors = threading.local()
    count = len(inputs) + len(outputs)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)
    pointer = prototype(_bridge(name, python.call, inputs, outputs, errors))
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    if address is None:
        raise InternalError("a callback without an address", where=name)
    code = backend_of(target).callback_kernel(symbol, address, count, target)
    return code, Callback(name, pointer, errors)


def _bridge(name: str, call: Callable[..., Any], inputs: Sequence[TensorType],
            outputs: Sequence[TensorType], errors: threading.local) -> Callable[..., None]:
    def bridge(*addresses: int | None) -> None:
        try:
            arrays = [_array(a, t) for a, t in zip(addresses, (*inputs, *outputs), strict=True)]
            given, wanted = arrays[: len(inputs)], arrays[len(inputs) :]
            for array in given:
                array.flags.writeable = False
            made = call(*given)
            results = made if isinstance(made, (tuple, list)) else (made,)
            _fill(name, wanted, results)
        except BaseException as error:  # noqa: BLE001 - raised after compiled code has returned
            if getattr(errors, "first", None) is None:
                errors.first = Failure(time.monotonic_ns(), error)

    return bridge


def _fill(name: str, wanted: Sequence[np.ndarray], results: Sequence[Any]) -> None:
    got = [np.asarray(r) for r in results]
    if [(g.shape, g.dtype) for g in got] != [(w.shape, w.dtype) for w in wanted]:
        raise CodegenError(
            f"the Python code of {name} returned results of the wrong type",
            expected=", ".join(f"{w.dtype}{w.shape}" for w in wanted),
            got=", ".join(f"{g.dtype}{g.shape}" for g in got),
        )
    for target, array in zip(wanted, got, strict=True):
        target[...] = array


def _array(address: int | None, type_: TensorType) -> np.ndarray:
    """The memory at ``address`` as an array."""
    return array_at(address or 0, type_.concrete_shape, type_.dtype.numpy)


def _tensors(type_: Type) -> list[TensorType]:
    if isinstance(type_, TupleType):
        return [tensor for field in type_.fields for tensor in _tensors(field)]
    return [type_] if isinstance(type_, TensorType) else []
