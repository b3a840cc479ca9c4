"""The dtypes of blocks: an element of such a tensor is a block, several numbers with their scales.

A block holds neighbours of the last axis, so a matrix of (N, K) numbers in ``q4_0`` has the type
``Tensor[(N, K / 32), q4_0]``. Names say all of it: those of GGUF, and those of groups
(``int4_g64_f32_z``: codes of 4 bits, 64 of them, a float32 scale, an offset).
"""

from __future__ import annotations

import functools
import re

import numpy as np

# Numbers and bytes of a block.
GGUF_BLOCKS = {
    "q8_0": (32, 34), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176),
    "q6_k": (256, 210), "iq4_nl": (32, 18)}
GROUPS = (16, 32, 64, 128, 256)
CODES = ("int4", "int8", "nf4", "fp8_e4m3", "fp8_e5m2")
GROUPED_NAME = re.compile(
    rf"({'|'.join(CODES)})_g({'|'.join(map(str, GROUPS))})(_f32)?(_z)?")


@functools.cache
def block_size(name: str) -> tuple[int, int] | None:
    """The numbers and the bytes of a block; ``None`` for a name that is no format of blocks."""
    if name in GGUF_BLOCKS:
        return GGUF_BLOCKS[name]
    match = GROUPED_NAME.fullmatch(name)
    if match is None or (match[4] and not match[1].startswith("int")):
        return None
    elements, bits = int(match[2]), 4 if match[1].endswith("4") else 8
    return elements, (4 if match[3] else 2) * (2 if match[4] else 1) + elements * bits // 8


@functools.cache
def block_array_dtype(name: str) -> np.dtype:
    """How NumPy holds blocks: records of bytes, whose only field says the format."""
    size = block_size(name)
    assert size is not None
    return np.dtype([(name, np.uint8, (size[1],))])


def block_name(dtype: np.dtype) -> str | None:
    """The format of an array's blocks; ``None`` for other arrays."""
    names = dtype.names
    is_block = names is not None and len(names) == 1 and block_size(names[0]) is not None
    return names[0] if is_block and names and dtype == block_array_dtype(names[0]) else None
