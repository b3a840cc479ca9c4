"""``CompiledDecoder``: a compiled decoder program with its caches, as a ``Decoder``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from weft.compiler.api import compile
from weft.compiler.interchange import export_entries
from weft.ir.module import IRModule
from weft.models.architecture import Architecture, Weights
from weft.models.decoder import check_count
from weft.models.decoder_program import (
    CacheShape,
    SourceShape,
    cache_outputs,
    decoder_program,
)
from weft.models.layers import Products
from weft.models.paged_decoder import DECODE, PagedDecoder, table_of
from weft.runtime.executable import Executable
from weft.support.errors import OptionError, TargetError

BLOCK_SIZE = 64


class CompiledDecoder(PagedDecoder):
    """A decoder-only language model, compiled for this machine, with paged key and value caches.

    ``batch`` sequences of up to ``capacity`` tokens can be decoded at the same time. Sequences with
    equal beginnings share blocks of ``block_size`` tokens. ``dtype`` is that of weights,
    activations and caches; logits are float32. ``activations`` is what
    products with weights in blocks read: float32, or int8 in groups of 32. ``adapter_rank`` is the
    largest rank of adapters that the program takes as inputs. ``knobs`` are those of
    ``weft.compile``.
    """

    def __init__(self, architecture: Architecture, weights: Weights, *, capacity: int = 1024,
                 batch: int = 1, dtype: str = "float32", block_size: int = BLOCK_SIZE,
                 activations: str = "float32", adapter_rank: int = 0, **knobs: Any) -> None:
        self.architecture = architecture
        self.activations, self.adapter_rank = activations, adapter_rank
        program = decoder_executable(architecture, weights, None, capacity=capacity, batch=batch,
                                     dtype=dtype, block_size=block_size,
                                     products=Products(activations, adapter_rank), **knobs)
        super().__init__(program, vocab_size=architecture.vocab_size, capacity=capacity,
                         batch=batch, block_size=block_size)
        self.adapters = self.empty_adapters()

    def empty_adapters(self) -> dict[str, np.ndarray]:
        """The inputs for adapters by name, of adapters that change nothing."""
        return {spec.name: np.zeros(spec.concrete_shape, spec.numpy_dtype)
                for spec in self.executable.inputs
                if spec.name.endswith((".lora_a", ".lora_b"))}

    def _more_inputs(self, index: np.ndarray) -> tuple[np.ndarray, ...]:
        del index
        return tuple(self.adapters.values())

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the decoder as an artifact, which ``weft.load`` gives back with empty caches.

        It needs NumPy alone, as ``weft.generate`` does with it. ``options`` are those of
        ``Executable.export``.
        """
        if self.adapter_rank:
            raise OptionError("a decoder with inputs for adapters cannot be exported",
                              help="load the model without them, with the adapters in its weights")
        export_entries({DECODE: self.executable}, path, kind="decoder", facts=self.facts(),
                       **options)


def decoder_executable(architecture: Architecture, weights: Weights, sources: SourceShape | None, *,
                       capacity: int, batch: int, dtype: str, block_size: int,
                       products: Products | None = None, **knobs: Any) -> Executable:
    """The compiled program of a decoder, whose state are its caches."""
    _check_sizes(architecture, capacity, batch, block_size)
    table = table_of(capacity, batch, block_size)
    shape = CacheShape(table.blocks, table.block_size, table.rows.shape[1], dtype)
    program = decoder_program(architecture, weights, shape, dtype, sources, products)
    return compiled(program, state=cache_outputs(architecture), **knobs)


def compiled(program: IRModule, **knobs: Any) -> Executable:
    """``program`` compiled for this machine; ``TargetError`` for another one."""
    made = compile(program, **knobs)
    if not made.runs_here:
        raise TargetError("a decoder runs on the machine that compiles it",
                          got=made.options.target)
    return made


def _check_sizes(architecture: Architecture, capacity: int, batch: int, block_size: int) -> None:
    for name, value in (("capacity", capacity), ("batch", batch), ("block_size", block_size)):
        check_count(name, value)
    most = architecture.max_positions
    if most is not None and capacity > most:
        raise OptionError("the capacity exceeds the positions of the model",
                          expected=f"at most {most}", got=capacity)
