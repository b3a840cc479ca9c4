"""Strategies and schedule families for CPUs; importing a module registers what it holds."""

from weft.strategy.cpu import (
    attention,
    attention_choice,
    conv,
    conv_legalize,
    default,
    dense,
    depthwise_conv,
    layouts,
    matmul,
    pool,
    staged,
    winograd,
    winograd_choice,
)

__all__ = [
    "attention",
    "attention_choice",
    "conv",
    "conv_legalize",
    "default",
    "dense",
    "depthwise_conv",
    "layouts",
    "matmul",
    "pool",
    "staged",
    "winograd",
    "winograd_choice",
]
