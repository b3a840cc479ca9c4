"""Strategies and schedules for NVIDIA GPUs, one folder per operator family."""

from weft.strategy.cuda import default
from weft.strategy.cuda.attention import legalize as attention_legalize
from weft.strategy.cuda.attention import strategy as attention
from weft.strategy.cuda.convolution import strategy as convolution
from weft.strategy.cuda.gemm import strategy as gemm
from weft.strategy.cuda.scan import strategy as scan_strategy
from weft.strategy.cuda.scatter import strategy as scatter_strategy
from weft.strategy.cuda.search import strategy as search_strategy
from weft.strategy.cuda.sort import strategy as sort_strategy

__all__ = [
    "attention", "attention_legalize", "convolution", "default", "gemm", "scan_strategy",
    "scatter_strategy", "search_strategy", "sort_strategy",
]
