"""All strategies for CPUs; importing this module registers them."""

from weft.strategy.cpu import default
from weft.strategy.cpu.attention import legalize as attention_legalize
from weft.strategy.cpu.attention import strategy as attention
from weft.strategy.cpu.convolution import layouts as conv_layouts
from weft.strategy.cpu.convolution import legalize as conv_legalize
from weft.strategy.cpu.convolution import strategy as conv
from weft.strategy.cpu.gemm import block_quantized, grouped
from weft.strategy.cpu.gemm import strategy as gemm
from weft.strategy.cpu.gemm import variants as gemm_variants
from weft.strategy.cpu.linalg import strategy as linalg
from weft.strategy.cpu.pooling import strategy as pooling
from weft.strategy.cpu.resampling import strategy as resampling
from weft.strategy.cpu.sort import strategy as sort
from weft.strategy.cpu.spectrum import strategy as spectrum
from weft.strategy.cpu.winograd import strategy as winograd

__all__ = [
    "attention", "attention_legalize", "block_quantized", "conv", "conv_layouts",
    "conv_legalize", "default", "gemm",
    "gemm_variants", "grouped", "linalg", "pooling", "resampling", "sort", "spectrum", "winograd",
]
