"""Strategies and schedules for CPUs, one folder per operator family; importing registers them."""

from weft.strategy.cpu import default
from weft.strategy.cpu.attention import legalize as attention_legalize
from weft.strategy.cpu.attention import strategy as attention
from weft.strategy.cpu.common import stages as staged
from weft.strategy.cpu.convolution import direct as conv
from weft.strategy.cpu.convolution import layouts
from weft.strategy.cpu.convolution import legalize as conv_legalize
from weft.strategy.cpu.depthwise import blocked as depthwise_conv
from weft.strategy.cpu.gemm import strategy as gemm
from weft.strategy.cpu.pooling import schedule as pool
from weft.strategy.cpu.winograd import applies as winograd_choice
from weft.strategy.cpu.winograd import schedule as winograd

__all__ = [
    "attention",
    "attention_legalize",
    "conv",
    "conv_legalize",
    "default",
    "depthwise_conv",
    "gemm",
    "layouts",
    "pool",
    "staged",
    "winograd",
    "winograd_choice",
]
