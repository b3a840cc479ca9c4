"""Conversion of torch dtypes to weft dtypes, and of tensors to arrays."""

from __future__ import annotations

import numpy as np
import torch

from weft.ir.dtype import DType
from weft.runtime.ndarray import from_dlpack
from weft.support.errors import UnsupportedModelError

_NAMES: dict[torch.dtype, str] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.bool: "bool",
}


def has_dtype(dtype: torch.dtype) -> bool:
    """Whether weft supports the dtype."""
    return dtype in _NAMES


def dtype_of(dtype: torch.dtype, what: str, where: object = None) -> DType:
    """The weft dtype of a torch dtype; ``what`` names the tensor in the error message.

    Raises ``UnsupportedModelError`` for an unsupported dtype.
    """
    name = _NAMES.get(dtype)
    if name is None:
        raise UnsupportedModelError(f"{what} has unsupported dtype {dtype}", where=where,
                                    expected=f"one of {', '.join(_NAMES.values())}")
    return DType.parse(name)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as an array, without a copy."""
    plain = tensor.detach()
    return from_dlpack(plain) if plain.dtype == torch.bfloat16 else plain.numpy()
