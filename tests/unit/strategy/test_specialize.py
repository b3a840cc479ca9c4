"""Functions for a part of the sizes: symbols with smaller ranges, products as one symbol."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.ir.expr import Expr, Function, Var, const, var
from weft.ir.shape import as_dim
from weft.ir.symbol import SizeRange
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.strategy.size_vars import symbols_of
from weft.strategy.specialize import are_one_axis, rounds_alike, specialize
from weft.strategy.variants import SizeCondition, product_of

ROWS = product_of(["batch", "seq"])


def tensor(name: str, *shape: object) -> Var:
    return var(name, tuple(map(as_dim, shape)), "float32")


def function(params: list[Var], body: Expr) -> Function:
    typed = infer_expr(body)
    return Function(tuple(params), typed, typed.checked_type, attrs={"primitive": True})


X, W = tensor("x", "batch", "seq", 16), tensor("w", 8, 16)
SCALE, RESIDUAL = tensor("scale", 8), tensor("r", "batch", "seq", 8)
DENSE = op.nn.dense(X, W)
FLAT = tensor("flat", "batch*seq", 16)


@pytest.mark.parametrize(("params", "body"), [
    ([X, W], DENSE),
    ([X, W, SCALE, RESIDUAL], op.add(op.multiply(op.nn.relu(DENSE), SCALE), RESIDUAL)),
    ([FLAT, W], op.nn.dense(FLAT, W)),
    ([FLAT], op.nn.softmax(FLAT)),
    ([X], op.exp(op.add(X, const(np.ones((1, 1, 1), np.float32))))),
])
def test_rows_of_two_axes_become_one_symbol(params: list[Var], body: Expr) -> None:
    general = function(params, body)
    made = specialize(general, (SizeCondition(ROWS, SizeRange(1, 8)),))
    assert made is not None
    assert symbols_of(made.function) == ("batch_seq{1..8}",)
    assert made.sizes == {"batch_seq": ROWS}


@pytest.mark.parametrize(("params", "body"), [
    ([X], op.nn.softmax(X, axis=1)),
    ([X], op.transpose(X, axes=(1, 0, 2))),
    ([X, tensor("m", "seq", 1)], op.add(X, tensor("m", "seq", 1))),
    ([X, tensor("m", "batch", 1, 16)], op.add(X, tensor("m", "batch", 1, 16))),
    ([tensor("a", "batch", "seq")], op.nn.dense(tensor("a", "batch", "seq"),
                                                tensor("b", 4, "seq"))),
    ([X], op.reshape(X, newshape=(ROWS, 16))),
    ([X], op.sum(X, axis=(2,))),
])
def test_axes_that_a_function_tells_apart_stay(params: list[Var], body: Expr) -> None:
    general = function(params, body)
    assert not are_one_axis(general, ("batch", "seq"))
    assert specialize(general, (SizeCondition(ROWS, SizeRange(1, 8)),)) is None
    one = specialize(general, (SizeCondition(ROWS, SizeRange(1, 1)),))
    assert one is not None
    assert symbols_of(one.function) == ()


def test_conditions_on_several_symbols_join() -> None:
    general = function([X, W], DENSE)
    batch, seq = product_of(["batch"]), product_of(["seq"])
    made = specialize(general, (SizeCondition(batch, SizeRange(2, 4)),
                                SizeCondition(seq, SizeRange(1, 1))))
    assert made is not None
    assert symbols_of(made.function) == ("batch{2..4}",)
    made = specialize(general, (SizeCondition(batch, SizeRange(1, 1)),
                                SizeCondition(ROWS, SizeRange(2, 8))))
    assert made is not None
    assert symbols_of(made.function) == ("seq{2..8}",)
    result = made.function.body.checked_type
    assert isinstance(result, TensorType)
    assert str(result.shape[0]) == "1"


TEXT = """
def @main(%x: Tensor[(batch, seq, 64), float32], %w: Tensor[(96, 64), float32],
          %r: Tensor[(batch, seq, 96), float32]) {
  nn.softmax(add(nn.relu(nn.dense(%x, %w)), %r), axis=1)
}"""


def test_programs_choose_variants_by_products_and_several_symbols(tmp_path) -> None:
    model = weft.compile(weft.parse(TEXT), specialize=[
        {"batch": 1, "seq": 1}, {"batch*seq": (1, 6)}, {"batch": (8, 64), "seq": (2, 3)}])
    [dense] = [step for step in model.manifest.steps if "nn.dense" in step.op]
    names = [[model.manifest.sizes[test.size] for test in v.tests] for v in dense.variants]
    assert names[:3] == [["batch", "seq"], ["batch*seq"], ["batch", "seq"]]
    kernels = {variant.kernel: number for number, variant in enumerate(dense.variants)}
    model.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    w = rng().standard_normal((96, 64), np.float32)
    expected = {(1, 1): 0, (2, 3): 1, (6, 1): 1, (1, 6): 1, (8, 2): 2, (9, 3): 2}
    for batch, seq in [*expected, (7, 1), (3, 3), (0, 5), (8, 4)]:
        x = rng().standard_normal((batch, seq, 64), np.float32)
        r = rng().standard_normal((batch, seq, 96), np.float32)
        wanted = np.maximum(x @ w.T, 0) + r
        wanted = np.exp(wanted - wanted.max(1, keepdims=True)) if wanted.size else wanted
        wanted = wanted / wanted.sum(1, keepdims=True)
        for each in (model, loaded):
            np.testing.assert_allclose(each(x, w, r), wanted, rtol=1e-4, atol=1e-5)
        used = model.profile(x, w, r, repeat=1).steps
        [symbol] = [step.call.symbol for step in used if "nn.dense" in step.call.op]
        if (batch, seq) in expected:
            assert kernels[symbol] == expected[batch, seq]
        else:
            assert kernels.get(symbol, 3) >= 3


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize("size", ["batch+seq", "2*batch", "batch*batch", "batch*", "4", "batch*n"])
def test_other_sizes_are_refused(size: str) -> None:
    with pytest.raises(weft.WeftError, match="specialize"):
        weft.compile(weft.parse(TEXT), specialize={size: [1]})


@pytest.mark.parametrize(("body", "expected"), [
    (op.exp(X), True), (op.transpose(op.sort(X)), True), (op.max(X), True),
    (op.argmin(X), True), (op.nn.max_pool1d(X, pool_size=(2,)), True), (op.sum(X), False),
    (op.nn.relu(op.nn.softmax(X)), False), (op.nn.dense(X, W), False)],
    ids=["exp", "sort", "max", "argmin", "pool", "sum", "softmax", "dense"])
def test_what_rounds_alike_at_all_sizes(body: Expr, expected: bool) -> None:
    assert rounds_alike(function([X], body)) is expected
