"""Strategies and schedule families for CPUs; importing a module registers what it holds."""

from weft.strategy.cpu import (
    conv2d,
    default,
    dense,
    depthwise_conv2d,
    layouts,
    matmul,
    pool,
    winograd,
)

__all__ = [
    "conv2d",
    "default",
    "dense",
    "depthwise_conv2d",
    "layouts",
    "matmul",
    "pool",
    "winograd",
]
