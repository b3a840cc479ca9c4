"""The pipeline makes of a program with symbolic sizes the kernels that it makes of fixed ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.strategy.kernels import WIDE_CPU
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir import IRModule, infer_type, parse, parse_pipeline
from weft.ir.expr import Constant, Expr, Function, const, var
from weft.ir.shape import SymDim
from weft.ir.substitution import substitute_symbols
from weft.ir.visitor import free_vars, post_order
from weft.transform.analysis.graph import is_primitive

B, S = SymDim.symbol("b"), SymDim.symbol("s")


def _weight(*shape: int) -> Constant:
    return const(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32))


def _heads(x: Expr) -> Expr:
    rows = op.add(op.nn.dense(x, _weight(64, 64)), _weight(64))
    split = op.reshape(rows, newshape=(0, -1, 4, 16))
    return op.reshape(op.transpose(split, axes=(0, 2, 1, 3)), newshape=(B * 4, S, 16))


def _transformer_block() -> Expr:
    x = var("x", (B, S, 64))
    h = op.nn.layer_norm(x, _weight(64), _weight(64))
    q, k, v = (_heads(h) for _ in range(3))
    scores = op.multiply(op.nn.batch_matmul(q, k), const(np.float32(0.25)))
    mixed = op.nn.batch_matmul(op.nn.softmax(scores, axis=-1), v, transpose_b=False)
    back = op.transpose(op.reshape(mixed, newshape=(B, 4, S, 16)), axes=(0, 2, 1, 3))
    y = op.add(x, op.nn.dense(op.reshape(back, newshape=(0, 0, -1)), _weight(64, 64)))
    h = op.nn.layer_norm(y, _weight(64), _weight(64))
    return op.add(y, op.nn.dense(op.nn.relu(op.nn.dense(h, _weight(256, 64))), _weight(64, 256)))


def _images() -> Expr:
    x: Expr = var("x", (B, 3, 16, 16))
    for inputs, outputs in ((3, 16), (16, 32)):
        x = op.nn.conv2d(x, _weight(outputs, inputs, 3, 3), padding=(1, 1))
        x = op.nn.relu(op.add(op.multiply(x, _weight(outputs, 1, 1)), _weight(outputs, 1, 1)))
        x = op.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    return op.nn.softmax(op.nn.dense(op.nn.batch_flatten(op.nn.global_avg_pool2d(x)),
                                     _weight(10, 32)))


def _kernels(mod: IRModule) -> list[int]:
    """The numbers of nodes of the kernels."""
    lowered = run_pipeline(mod, CompileOptions.make(WIDE_CPU))
    found = [fn for fn in post_order(lowered["main"]) if is_primitive(fn)]
    return sorted(sum(1 for _ in post_order(fn)) for fn in found)


@pytest.mark.parametrize("model", [_transformer_block, _images])
def test_kernels_of_symbolic_and_fixed_programs(model: Callable[[], Expr]) -> None:
    result = model()
    mod = infer_type(IRModule.from_expr(Function(free_vars(result), result)))
    fixed = substitute_symbols(mod, {"b": 4, "s": 32})
    assert _kernels(mod) == _kernels(fixed)


def test_symbolic_reshapes_cancel() -> None:
    text = """
    def @main(%x: Tensor[(b, s, 8), float32]) {
      let %flat = reshape(%x, newshape=[-1, 8]);
      let %back = reshape(reshape(%flat, newshape=[b, 8*s]), newshape=[b, s, 8]);
      tanh(strided_slice(%back, begin=[0], end=[s], axes=[1]))
    }
    """
    mod = parse_pipeline("to_graph_normal_form,simplify_expr")(infer_type(parse(text)))
    assert "reshape" not in str(mod)
    assert "strided_slice" not in str(mod)
