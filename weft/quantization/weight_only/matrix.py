"""One matrix in blocks by one method, with its error, and wider where the error is too large."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from weft.quantization.options import QuantizationOptions
from weft.quantization.weight_only.awq import channel_scales
from weft.quantization.weight_only.gptq import gptq
from weft.quantization.weight_only.gram import Gram, relative_error
from weft.quantization.weight_only.scales import groups_of
from weft.support.dataclass import dataclass
from weft.topi.nn.block_encode import encoding_of, quantize_blocks
from weft.topi.nn.block_formats import block_format
from weft.topi.nn.block_quantized import dequantized

METHODS = ("round", "search", "gptq", "awq")
WIDER = "int8_g32"  # what layers that lose too much have
_GROUP = re.compile(r"_g(\d+)")
_GROUPS = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """Blocks of a matrix (times ``factors`` of its columns), and their relative error."""

    blocks: np.ndarray
    format: str
    error: float
    factors: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Quantizer:
    """How matrices become blocks: a method of ``METHODS`` and the name of a format.

    Methods that need data fall back on the search of scales for layers without it.
    """

    method: str
    format: str
    options: QuantizationOptions

    def __post_init__(self) -> None:
        encoding_of(self.format)

    def factors(self, matrices: Sequence[np.ndarray], gram: Gram | None) -> np.ndarray | None:
        """Factors for the columns of matrices that read one tensor; ``None`` for most methods."""
        if self.method != "awq" or gram is None or not matrices:
            return None
        format = self.fitting(matrices[0].shape[1])
        return None if format is None else channel_scales(matrices, format, gram)

    def fitting(self, depth: int, format: str | None = None) -> str | None:
        """The format, or that of smaller groups, whose blocks divide ``depth``."""
        name = format or self.format
        found = _GROUP.search(name)
        if depth % block_format(name).elements == 0:
            return name
        if found is None:
            return None
        smaller = [g for g in _GROUPS if g < int(found[1]) and depth % g == 0]
        return _GROUP.sub(f"_g{smaller[-1]}", name) if smaller else None

    def quantized(self, matrix: np.ndarray, gram: Gram | None, factors: np.ndarray | None = None
                  ) -> tuple[QuantizedMatrix | None, str]:
        """A matrix in blocks, ``None`` if it is to stay, and why it is wider than asked for."""
        depth, bound = matrix.shape[1], self.options.max_error
        format = self.fitting(depth)
        if format is None:
            size = block_format(self.format).elements
            smallest = _GROUPS[0] if _GROUP.search(self.format) else size
            return None, f"K = {depth} is not a multiple of {smallest}"
        made = self._in(format, matrix, gram, factors)
        if bound is None or made.error <= bound:
            return made, ""
        reason = f"error {made.error:.3f} above {bound:g}"
        wider = self.fitting(depth, WIDER)
        if wider is not None and block_format(wider).nbytes > block_format(format).nbytes \
                * block_format(wider).elements / block_format(format).elements:
            made = self._in(wider, matrix, gram, factors)
            if made.error <= bound:
                return made, reason
        return None, reason

    def _in(self, format: str, matrix: np.ndarray, gram: Gram | None,
            factors: np.ndarray | None) -> QuantizedMatrix:
        values = matrix if factors is None else matrix * factors
        if self.method == "gptq" and gram is not None:
            values, groups = gptq(matrix, format, gram, damping=self.options.damping,
                                  act_order=self.options.act_order)
        else:
            weights = None if gram is None else gram.diagonal
            if weights is not None and factors is not None:
                weights = weights / factors ** 2
            groups = groups_of(values, format, search=self.method != "round", weights=weights)
        blocks = quantize_blocks(values, format, groups.scales, groups.offsets)
        found = dequantized(blocks, block_format(format))
        if factors is not None:
            found /= factors
        return QuantizedMatrix(blocks, format, relative_error(matrix, found, gram), factors)
