"""Gradients of calls with symbolic sizes have the values of those for fixed sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.op.harness import flatten, make_call, output_types, parameters_of
from tests.unit.op.symbolic_cases import symbolic_case
from tests.unit.transform.helpers import parse_program
from weft import op
from weft.ir.expr import Call, Expr, Function, Tuple, Var, var
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.ir.shape import substitute_dim
from weft.ir.substitution import substitute_symbols
from weft.ir.types import TupleType
from weft.ir.typing.infer import infer_expr, infer_type
from weft.support.errors import PassError, WeftError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.gradient import Gradient

# Operators whose gradients need fixed sizes of some axes: repeated letters, taps of a kernel, the
# part of a head that turns, blocks.
FIXED = {"einsum", "nn.conv1d", "nn.conv2d", "nn.conv3d", "image.dilation2d", "nn.rotary_embedding",
         "nn.rotary_from_frequencies", "nn.sparse_dense"}
# Dynamic operators become static ones before differentiation, if their operands are known.
NAMES = sorted(name for name in OPS if OPS.get(name).gradient_rule is not None
               and not name.startswith("dyn."))


def _gradient_program(call: Call) -> tuple[IRModule, list[Var]]:
    """A program from the arguments and the gradient of the result to those of the arguments."""
    results = [Var(f"dy{n}", t) for n, t in enumerate(output_types(call.checked_type))]
    dy: Expr = Tuple(tuple(results)) if isinstance(call.checked_type, TupleType) else results[0]
    gradients = call.op.gradient_rule(call, call, dy)  # type: ignore[attr-defined]
    function = Function((*parameters_of(call), *results), Tuple(tuple(gradients)))
    return infer_type(IRModule.from_expr(function)), results


@pytest.mark.parametrize("name", NAMES)
def test_gradients_at_symbolic_sizes(name: str) -> None:
    operator, refused = OPS.get(name), []
    for one in operator.cases:
        symbolic = symbolic_case(operator, one)
        fixed = make_call(operator, one, symbolic.arrays)
        types = output_types(fixed.checked_type)
        if not symbolic.sizes or not all(t.dtype.is_float for t in types):
            continue
        try:
            expected, _ = _gradient_program(fixed)
        except PassError:
            continue  # some attributes have no gradient
        try:
            program, _ = _gradient_program(symbolic.call)
        except WeftError as error:
            if "is not of layout" not in str(error):  # the block of a layout is a number
                refused.append(str(error))
            continue
        rng = np.random.default_rng(0)
        arriving = [rng.uniform(-1, 1, t.concrete_shape).astype(t.dtype.numpy) for t in types]
        inputs: list[Any] = [*flatten(symbolic.arrays), *arriving]
        for found, wanted in zip(_leaves(evaluate(program, inputs)),
                                 _leaves(evaluate(expected, inputs)), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert not refused or name in FIXED, "\n".join(refused)


@pytest.mark.parametrize(("call", "shapes"), [
    (lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), strides=(2, 2)),
     [("n", 4, 6, 6), (3, 4, 3, 3)]),
    (lambda x: op.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2)), [("n", 2, 5, 6)]),
    (lambda x: op.nn.avg_pool2d(x, pool_size=(3, 3), padding=(1, 1)), [("n", 2, 5, 6)]),
    (op.nn.batch_matmul, [("n", "m", 4), ("n", "k", 4)]),
    (op.nn.dense, [("n", "m", 4), (3, 4)]),
], ids=["conv2d", "max_pool2d", "avg_pool2d", "batch_matmul", "dense"])
def test_gradients_at_symbolic_batches(call: Any, shapes: list[tuple[Any, ...]]) -> None:
    """A symbolic batch, also of size 0 and 1, where other sizes are fixed."""
    params = tuple(var(f"x{n}", shape) for n, shape in enumerate(shapes))
    body = infer_expr(call(*params))
    program, _ = _gradient_program(body)
    for batch in (0, 1, 3):
        sizes = {"n": batch, "m": 2, "k": 5}
        rng = np.random.default_rng(batch)
        inputs = [rng.uniform(-1, 1, [sizes.get(d, d) for d in shape]).astype(np.float32)
                  for shape in (*shapes, _dims(body.checked_type, sizes))]
        fixed, _ = _gradient_program(substitute_symbols(Function(params, body), sizes).body)
        for found, wanted in zip(_leaves(evaluate(program, inputs)),
                                 _leaves(evaluate(fixed, inputs)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


IMAGES = """
    def @main(%x: Tensor[(n, 3, h{3..}, w{3..}), float32], %w: Tensor[(4, 3, 3, 3), float32],
              %v: Tensor[(4, 1, 3, 2), float32]) {
      %0 = nn.relu(nn.conv2d(%x, %w, padding=(1, 1), strides=(2, 1)));
      %1 = nn.conv2d(%0, %v, padding=(3, 2, 1, 0), dilation=(1, 2), groups=4);
      %2 = nn.max_pool2d(%1, pool_size=(3, 2), strides=(2, 2), padding=(1, 0), ceil_mode=True);
      %3 = nn.avg_pool2d(%2, pool_size=(2, 2), strides=(1, 2), padding=(1, 1));
      %4 = nn.avg_pool2d(%2, pool_size=(2, 1), strides=(2, 1), count_include_pad=True);
      %5 = mean(take(%x, 1, axis=2), axis=(1, 2));
      %6 = image.resize2d(image.resize2d(%1, size=(7, 2*w), method="cubic"), size=(9, 5));
      (exp(mean(%3, axis=(1, 2, 3))), tanh(sum(%4)), strided_slice(%1, begin=(0, 1, 0, 0),
       end=(1, 3, 2, 2)), %5, %6)
    }"""


def test_images_of_symbolic_size():
    program = Gradient()(parse_program(IMAGES))
    for sizes in ({"n": 1, "h": 3, "w": 4}, {"n": 2, "h": 8, "w": 9}, {"n": 3, "h": 7, "w": 6}):
        _check_images(program, sizes, lambda p, i: evaluate(p, i)[1])


FEW = """
    def @main(%x: Tensor[(1, 2, h{3..}, w{3..}), float32], %w: Tensor[(4, 2, 3, 3), float32]) {
      %0 = nn.conv2d(%x, %w, padding=(1, 1), strides=(2, 1));
      nn.avg_pool2d(nn.max_pool2d(%0, pool_size=(2, 2), strides=(2, 2), padding=(1, 0)),
                    pool_size=(1, 2))
    }"""


@pytest.mark.slow
def test_compiled_images_of_symbolic_size():
    program = weft.compile(Gradient()(parse_program(FEW)))
    for sizes in ({"h": 3, "w": 4}, {"h": 13, "w": 9}, {"h": 16, "w": 18}):
        _check_images(program, sizes, lambda p, i: p(*i)[-2:], FEW)


def _check_images(
    program: Any, sizes: dict[str, int], gradients: Any, text: str = IMAGES
) -> None:
    fixed = Gradient()(substitute_symbols(parse_program(text), sizes))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, p.checked_type.concrete_shape).astype(np.float32)
              for p in fixed["main"].params]
    for found, wanted in zip(gradients(program, inputs), evaluate(fixed, inputs)[1], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def _dims(type_: Any, sizes: dict[str, int]) -> list[Any]:
    return [substitute_dim(d, sizes) for d in type_.shape]


def _leaves(value: Any) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [np.asarray(value)]
