"""Task graphs for the benchmark of placement: random ones, and models by weft's own estimates.

The tasks of a model are its kernels: a convolution with what is fused into it, a pooling, a
concatenation. Their seconds are the estimates that weft decides algorithms by, on one core of this
machine, and their bytes those of the results, batch 1, float32.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from weft import op
from weft.ir import Call, infer_type, var
from weft.ir.expr import Expr, Function
from weft.ir.module import IRModule
from weft.ir.types import TensorType
from weft.runtime.device import Device
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.decision import decision_of
from weft.strategy.selection import select
from weft.target import CpuTarget
from weft.transform.placement.task_graph import Task, TaskInput

Shape = tuple[int, ...]
# What the start of a kernel costs beside its work.
_START_SECONDS = 1e-6


def devices(count: int) -> tuple[Device, ...]:
    """Simulated devices, each as fast as a core of this machine."""
    return tuple(Device("sim", number) for number in range(count))


class ModelGraph:
    """Builds the tasks of a model; values are numbers of tasks."""

    def __init__(self, on: Sequence[Device], target: CpuTarget | None = None) -> None:
        self.on = tuple(on)
        self.tasks: list[Task] = []
        self.shapes: list[Shape] = []
        self.target = CpuTarget.host() if target is None else target

    def input(self, *shape: int) -> int:
        """A value that is there from the start."""
        return self._add("input", 0.0, (), shape)

    def call(self, make: Callable[..., Expr], *values: int, weights: Sequence[Shape] = (),
             joined: bool = False) -> int:
        """The kernel of one call: ``make`` of the values and of weights."""
        shapes = (*(self.shapes[value] for value in values), *weights)
        seconds, shape, name = _estimate(self.target, make, shapes, joined)
        return self._add(name, seconds + _START_SECONDS, values, shape)

    def conv(self, x: int, channels: int, size: tuple[int, int] | int, stride: int = 1,
             padding: tuple[int, int] | int = 0, groups: int = 1) -> int:
        """A convolution with bias and rectifier in one kernel."""
        kernel = (size, size) if isinstance(size, int) else size
        pad = (padding, padding) if isinstance(padding, int) else padding
        make = _convolution(stride, pad, groups)
        return self.call(make, x, weights=[(channels, self.shapes[x][1] // groups, *kernel)])

    def same(self, x: int, channels: int, size: tuple[int, int] | int) -> int:
        """A convolution that keeps height and width."""
        kernel = (size, size) if isinstance(size, int) else size
        return self.conv(x, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2))

    def pool(self, x: int, size: int, stride: int, padding: int = 0, kind: str = "max") -> int:
        """A pooling."""
        return self.call(_pooling(kind, size, stride, padding), x)

    def concat(self, *values: int) -> int:
        """The values along the channels."""
        return self.call(_concatenation, *values, joined=True)

    def add(self, x: int, y: int) -> int:
        """A residual addition."""
        return self.call(_addition, x, y)

    def dense(self, x: int, units: int) -> int:
        """A matrix multiplication with weights."""
        return self.call(_dense, x, weights=[(units, self.shapes[x][-1])])

    def _add(self, name: str, seconds: float, values: Sequence[int], shape: Shape) -> int:
        number = len(self.tasks)
        inputs = tuple(TaskInput(one, 4 * math.prod(self.shapes[one]))
                       for one in dict.fromkeys(values))
        self.tasks.append(Task(f"{number} {name}", name, dict.fromkeys(self.on, seconds), inputs,
                               memory=4 * math.prod(shape)))
        self.shapes.append(shape)
        return number


@functools.cache
def _convolution(stride: int, padding: tuple[int, int], groups: int) -> Callable[..., Expr]:
    return lambda x, w: op.nn.conv2d(x, w, strides=[stride, stride], padding=list(padding) * 2,
                                     groups=groups)


@functools.cache
def _pooling(kind: str, size: int, stride: int, padding: int) -> Callable[..., Expr]:
    pool = op.nn.max_pool2d if kind == "max" else op.nn.avg_pool2d
    return lambda x: pool(x, pool_size=[size, size], strides=[stride, stride],
                          padding=[padding] * 4)


def _concatenation(values: Sequence[Expr]) -> Expr:
    return op.concatenate(list(values), axis=1)


def _addition(x: Expr, y: Expr) -> Expr:
    return op.add(x, y)


def _dense(x: Expr, w: Expr) -> Expr:
    return op.nn.dense(x, w)


def attention(q: Expr, k: Expr, v: Expr) -> Expr:
    """Attention of one layer, (batch, heads, length, depth)."""
    return op.nn.attention(q, k, v)


@functools.cache
def _estimate(target: CpuTarget, make: Callable[..., Any], shapes: tuple[Shape, ...],
              joined: bool) -> tuple[float, Shape, str]:
    """Seconds, shape of the result and name of the operator of a call."""
    params = [var(f"p{n}", shape) for n, shape in enumerate(shapes)]
    body = make(params) if joined else make(*params)
    call = infer_type(IRModule.from_expr(Function(tuple(params), body)))["main"].body
    type_ = call.checked_type
    if not isinstance(call, Call) or not isinstance(type_, TensorType):
        raise TypeError("a kernel is one call with a tensor as its result")
    decision = decision_of(call, target)
    seconds = select(call, target).chosen.seconds if decision is None else decision.chosen.seconds
    return (roofline_seconds(call, target) if seconds is None else seconds,
            type_.concrete_shape, str(call.op))


# Models.

def inception_v3(on: Sequence[Device]) -> list[Task]:
    """Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015."""
    g = ModelGraph(on)
    x = g.input(1, 3, 299, 299)
    x = g.same(g.conv(g.conv(x, 32, 3, 2), 32, 3), 64, 3)
    x = g.pool(g.conv(g.conv(g.pool(x, 3, 2), 80, 1), 192, 3), 3, 2)
    for pooled in (32, 64, 64):
        x = g.concat(g.conv(x, 64, 1), g.same(g.conv(x, 48, 1), 64, 5),
                     g.same(g.same(g.conv(x, 64, 1), 96, 3), 96, 3),
                     g.conv(g.pool(x, 3, 1, 1, "avg"), pooled, 1))
    x = g.concat(g.conv(x, 384, 3, 2), g.conv(g.same(g.conv(x, 64, 1), 96, 3), 96, 3, 2),
                 g.pool(x, 3, 2))
    for width in (128, 160, 160, 192):
        double = g.conv(x, width, 1)
        for size in ((7, 1), (1, 7), (7, 1)):
            double = g.same(double, width, size)
        x = g.concat(g.conv(x, 192, 1),
                     g.same(g.same(g.conv(x, width, 1), width, (1, 7)), 192, (7, 1)),
                     g.same(double, 192, (1, 7)), g.conv(g.pool(x, 3, 1, 1, "avg"), 192, 1))
    long = g.same(g.same(g.conv(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    x = g.concat(g.conv(g.conv(x, 192, 1), 320, 3, 2), g.conv(long, 192, 3, 2), g.pool(x, 3, 2))
    for _ in range(2):
        left, right = g.conv(x, 384, 1), g.same(g.conv(x, 448, 1), 384, 3)
        x = g.concat(g.conv(x, 320, 1), g.same(left, 384, (1, 3)), g.same(left, 384, (3, 1)),
                     g.same(right, 384, (1, 3)), g.same(right, 384, (3, 1)),
                     g.conv(g.pool(x, 3, 1, 1, "avg"), 192, 1))
    g.conv(g.pool(x, 8, 1, kind="avg"), 1000, 1)
    return g.tasks


def inception_v4(on: Sequence[Device], target: CpuTarget | None = None) -> list[Task]:
    """The blocks of Inception v4 (Szegedy et al., 2016), 4, 7 and 3 of them, and reductions."""
    g = ModelGraph(on, target)
    x = g.same(g.conv(g.conv(g.input(1, 3, 299, 299), 32, 3, 2), 32, 3), 64, 3)
    x = g.concat(g.pool(x, 3, 2), g.conv(x, 96, 3, 2))
    tall = g.same(g.same(g.conv(x, 64, 1), 64, (7, 1)), 64, (1, 7))
    x = g.concat(g.conv(g.conv(x, 64, 1), 96, 3), g.conv(tall, 96, 3))
    x = g.concat(g.conv(x, 192, 3, 2), g.pool(x, 3, 2))
    for _ in range(4):
        x = g.concat(g.conv(g.pool(x, 3, 1, 1, "avg"), 96, 1), g.conv(x, 96, 1),
                     g.same(g.conv(x, 64, 1), 96, 3),
                     g.same(g.same(g.conv(x, 64, 1), 96, 3), 96, 3))
    x = g.concat(g.pool(x, 3, 2), g.conv(x, 384, 3, 2),
                 g.conv(g.same(g.conv(x, 192, 1), 224, 3), 256, 3, 2))
    for _ in range(7):
        long = g.same(g.same(g.conv(x, 192, 1), 192, (1, 7)), 224, (7, 1))
        x = g.concat(g.conv(g.pool(x, 3, 1, 1, "avg"), 128, 1), g.conv(x, 384, 1),
                     g.same(g.same(g.conv(x, 192, 1), 224, (1, 7)), 256, (7, 1)),
                     g.same(g.same(long, 224, (1, 7)), 256, (7, 1)))
    tall = g.same(g.same(g.conv(x, 256, 1), 256, (1, 7)), 320, (7, 1))
    x = g.concat(g.pool(x, 3, 2), g.conv(g.conv(x, 192, 1), 192, 3, 2), g.conv(tall, 320, 3, 2))
    for _ in range(3):
        left = g.conv(x, 384, 1)
        right = g.same(g.same(g.conv(x, 384, 1), 448, (1, 3)), 512, (3, 1))
        x = g.concat(g.conv(g.pool(x, 3, 1, 1, "avg"), 256, 1), g.conv(x, 256, 1),
                     g.same(left, 256, (1, 3)), g.same(left, 256, (3, 1)),
                     g.same(right, 256, (3, 1)), g.same(right, 256, (1, 3)))
    g.conv(g.pool(x, 8, 1, kind="avg"), 1000, 1)
    return g.tasks


def resnet_50(on: Sequence[Device]) -> list[Task]:
    """He et al., 2015: almost a chain."""
    g = ModelGraph(on)
    x = g.pool(g.conv(g.input(1, 3, 224, 224), 64, 7, 2, 3), 3, 2, 1)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            short = g.conv(x, 4 * width, 1, stride) if block == 0 else x
            x = g.add(g.conv(g.conv(g.conv(x, width, 1), width, 3, stride, 1), 4 * width, 1),
                      short)
    g.conv(g.pool(x, 7, 1, kind="avg"), 1000, 1)
    return g.tasks


def bert_layers(on: Sequence[Device], layers: int = 12, length: int = 128) -> list[Task]:
    """The layers of BERT base: three products side by side, then a chain."""
    g = ModelGraph(on)
    x = g.input(length, 768)
    for _ in range(layers):
        heads = [g.call(_heads(length), g.dense(x, 768)) for _ in range(3)]
        mixed = g.call(_rows(length), g.call(attention, *heads))
        x = g.add(g.dense(mixed, 768), x)
        x = g.add(g.dense(g.dense(x, 3072), 768), x)
    return g.tasks


@functools.cache
def _heads(length: int) -> Callable[[Expr], Expr]:
    return lambda x: op.reshape(x, newshape=[1, 12, length, 64])


@functools.cache
def _rows(length: int) -> Callable[[Expr], Expr]:
    return lambda x: op.reshape(x, newshape=[length, 768])


# Graphs without a model.

def layered(on: Sequence[Device], layers: int = 30, width: int = 10, seed: int = 0) -> list[Task]:
    """Layers of tasks of 50 us to 2 ms, each of which reads up to three of the layer before."""
    chance = random.Random(seed)
    tasks: list[Task] = []
    before: list[int] = []
    for layer in range(layers):
        made = []
        for _ in range(chance.randrange(2, width + 1)):
            read = chance.sample(before, min(len(before), chance.randrange(1, 4)))
            made.append(_task(tasks, on, f"layer{layer}", chance.uniform(5e-5, 2e-3), read,
                              chance.randrange(10**4, 2 * 10**6)))
        before = made
    return tasks


def fork_join(on: Sequence[Device], branches: int = 12, length: int = 6) -> list[Task]:
    """Four times: a task, chains beside one another, and a task that joins them."""
    tasks: list[Task] = []
    last: list[int] = []
    for _ in range(4):
        start = _task(tasks, on, "fork", 1e-4, last, 10**6)
        ends = []
        for branch in range(branches):
            at = start
            for _ in range(length):
                at = _task(tasks, on, "work", 2e-4 * (1 + branch % 3), [at], 10**6)
            ends.append(at)
        last = [_task(tasks, on, "join", 1e-4, ends, 10**6)]
    return tasks


def chain(on: Sequence[Device], length: int = 400) -> list[Task]:
    """Nothing runs beside anything."""
    tasks: list[Task] = []
    for number in range(length):
        _task(tasks, on, "link", 2e-4, [number - 1] if number else [], 10**6)
    return tasks


def tree(on: Sequence[Device], leaves: int = 256) -> list[Task]:
    """A wide tree of sums."""
    tasks: list[Task] = []
    level = [_task(tasks, on, "leaf", 5e-4, [], 4 * 10**5) for _ in range(leaves)]
    while len(level) > 1:
        level = [_task(tasks, on, "sum", 1e-4, level[n:n + 2], 4 * 10**5)
                 for n in range(0, len(level), 2)]
    return tasks


def _task(tasks: list[Task], on: Sequence[Device], name: str, seconds: float,
          read: Sequence[int], nbytes: int) -> int:
    """Append a task that reads ``nbytes`` of each of ``read``."""
    inputs = tuple(TaskInput(one, nbytes) for one in read)
    tasks.append(Task(f"{len(tasks)} {name}", name, dict.fromkeys(on, seconds), inputs,
                      memory=nbytes))
    return len(tasks) - 1
