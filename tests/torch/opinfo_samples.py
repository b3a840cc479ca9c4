"""PyTorch's own operator samples, each as a function of tensors alone.

The operators are those of ``torch.testing._internal.common_methods_invocations.op_db`` in the
torch wheel.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "int64": torch.int64,
                                  "bool": torch.bool, "float16": torch.float16,
                                  "bfloat16": torch.bfloat16, "float64": torch.float64,
                                  "int8": torch.int8, "uint8": torch.uint8,
                                  "int16": torch.int16, "int32": torch.int32,
                                  "complex64": torch.complex64, "complex128": torch.complex128}
SEED = 0


@dataclass(frozen=True)
class Sample:
    """``call`` takes the tensors among the arguments, and gives the leaves of the result."""

    name: str
    call: Callable[..., tuple[Any, ...]]
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Any, ...]  # of the arguments, and their structure
    spec: Any

    def fresh(self) -> list[torch.Tensor]:
        """The tensors in memory of their own, with their strides, as leaves of autograd."""
        return [_copy(t) for t in self.tensors]


@cache
def operators() -> dict[str, Any]:
    """Every operator that has samples for the CPU, by its full name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as invocations
    # Random operators set a seed around each call, which no traced graph can hold.
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {op.full_name: op for op in invocations.op_db}


def supports(op: Any, dtype: str, *, gradients: bool) -> bool:
    """Whether the operator has samples of the element type, with gradients or without."""
    if not op.supports_dtype(DTYPES[dtype], "cpu"):
        return False
    moves = DTYPES[dtype].is_floating_point or DTYPES[dtype].is_complex
    return not gradients or (moves and op.supports_autograd
                             and DTYPES[dtype] in op.supported_backward_dtypes("cpu"))


def samples(op: Any, dtype: str, count: int, *, gradients: bool) -> Iterator[Sample]:
    """The first ``count`` samples, equal in every process."""
    seed_all()
    made = op.sample_inputs("cpu", DTYPES[dtype], requires_grad=gradients)
    for number, sample in enumerate(itertools.islice(made, count)):
        yield _as_function(op, sample, number)


def seed_all() -> None:
    """Start every generator of random numbers that samples and operators draw from."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the one that the samples of torch draw from


def _as_function(op: Any, sample: Any, number: int) -> Sample:
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> tuple[Any, ...]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        result = op(first, *args, **kwargs)
        return tuple(pytree.tree_leaves(result))

    return Sample(f"sample {number}", call, tuple(leaves[p] for p in places), tuple(leaves), spec)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if tensor.layout != torch.strided or type(tensor) is not torch.Tensor:
        own = plain.clone()
    else:
        storage = plain.untyped_storage().clone()
        own = torch.empty(0, dtype=plain.dtype).set_(  # type: ignore[call-overload]
            storage, plain.storage_offset(), plain.size(), plain.stride())
        own = own.conj() if plain.is_conj() else own
    return own.requires_grad_(tensor.requires_grad)
