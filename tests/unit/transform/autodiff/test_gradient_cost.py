"""Time and memory of gradients: linear in the program and in its computation."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import check_example, parse_program
from weft import op
from weft.ir.expr import Function, Let, Var, const, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.support.errors import OptionError
from weft.transform.analysis import reference
from weft.transform.autodiff.checkpoint.checkpoint_loops import CheckpointLoops
from weft.transform.autodiff.reverse.gradient import Gradient

V = "Tensor[(2,), float64]"
I = "Tensor[(), int32]"  # noqa: E741
WIDTH = 256  # of states beside which closures are small
LOOP = f"""
    def @main(%x: {V}, %w: {V}, %n: {I}) {{
      let %loop = fn (%k: {I}, %acc: {V}) -> {V} {{
        if (less(%k, %n)) {{ %loop(add(%k, 1), tanh(multiply(%acc, %w))) }}
        else {{ multiply(%acc, %x) }}
      }};
      %loop(0, exp(%x))
    }}"""
RECURSION = f"""
    def @main(%x: {V}, %w: {V}, %n: {I}) {{
      let %grow = fn (%k: {I}) -> {V} {{
        if (less_equal(%k, 0)) {{ %x }}
        else {{ let %r = %grow(subtract(%k, 1)); tanh(multiply(%r, %w)) }}
      }};
      %grow(%n)
    }}"""
NTH = f"""
    import "prelude"
    def @numbers(%n: {I}, %x: {V}) -> List[{V}] {{
      if (less_equal(%n, 0)) {{ Nil() }} else {{ Cons(%x, @numbers(subtract(%n, 1), tanh(%x))) }}
    }}
    def @main(%x: {V}, %w: {V}, %n: {I}) {{
      let %xs = @numbers(%n, %x);
      multiply(%w, add(@hd(%xs), @nth(%xs, subtract(%n, 1))))
    }}"""


def _operations(mod: IRModule, count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of operators that the gradient of ``mod`` runs."""
    ran: Counter[str] = Counter()
    original = reference.evaluate_call

    def counted(call, args):
        ran[call.op.name] += 1
        return original(call, args)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "evaluate_call", counted)
        reference.evaluate(mod, [np.full(2, 0.5), np.full(2, 0.9), np.int32(count)])
    return sum(ran.values())


@pytest.mark.parametrize("text", [LOOP, RECURSION, NTH], ids=["loop", "recursion", "list"])
def test_time_is_linear_in_that_of_the_function(text, monkeypatch):
    mod = parse_program(text)
    after = Gradient()(mod)
    small, large = (_operations(after, n, monkeypatch) for n in (20, 40))
    assert large < 2.1 * small
    assert large < 6 * _operations(mod, 40, monkeypatch)


def test_an_example_of_checkpoints():
    check_example(CheckpointLoops(every=(8,)))
    with pytest.raises(OptionError, match="two steps"):
        CheckpointLoops(every=(1,))(parse_program(LOOP))


@pytest.mark.parametrize("every", [(4,), (3, 2)])
def test_checkpoints_keep_gradients(every, monkeypatch):
    mod = parse_program(LOOP)
    sparse, plain = Gradient()(CheckpointLoops(every=every)(mod)), Gradient()(mod)
    for count in (0, 1, 5, 12, 13):
        inputs = [np.full(2, 0.5), np.full(2, 0.9), np.int32(count)]
        _, expected = reference.evaluate(plain, inputs)
        np.testing.assert_allclose(reference.evaluate(sparse, inputs)[1], expected, rtol=1e-12)
    small, large = (_operations(sparse, n, monkeypatch) for n in (24, 48))
    assert large < 2.1 * small


@pytest.mark.slow
def test_checkpoints_bound_memory():
    mod = parse_program(LOOP.replace("(2,)", f"({WIDTH},)"))
    plain, sparse = (weft.compile(Gradient()(m)) for m in (mod, CheckpointLoops(every=(32,))(mod)))
    assert _peak(sparse, 1000) < _peak(plain, 1000) / 3


def _peak(module, count: int) -> int:
    """Bytes of the tape, whose tensors are Python objects."""
    inputs = [np.full(WIDTH, 0.5), np.full(WIDTH, 0.9), np.int32(count)]
    module(*inputs)
    gc.collect()
    tracemalloc.start()
    module(*inputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _chain(length: int) -> Function:
    x = var("x", (2,))
    y = x
    for _ in range(length):
        y = op.tanh(op.add(y, x))
    return Function((x,), y)


def _lets(length: int) -> Function:
    x = var("x", (2,))
    names = [x, *(Var(f"v{i}") for i in range(length))]
    body = names[-1]
    for before, name in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
        body = Let(name, op.tanh(before), body)
    return Function((x,), body)


def _squares(depth: int) -> Function:
    x = var("x", (2,))
    y = x
    for _ in range(depth):
        y = op.multiply(y, y)
    return Function((x,), y)


@pytest.mark.parametrize(("make", "length"), [(_chain, 600), (_lets, 600), (_squares, 60)])
def test_the_program_is_linear(make, length):
    sizes = [_size(make(n)) for n in (length // 2, length)]
    assert sizes[1] < 2.1 * sizes[0]
    assert sizes[1] < 10 * length


@pytest.mark.slow
def test_a_chain_of_20_000_operators():
    """``python -m benchmarks.ir_scaling`` does this, and every other pass, at 100,000."""
    assert _size(_chain(10_000)) < 70_000


def _size(fn: Function) -> int:
    after = Gradient()(infer_type(IRModule.from_expr(fn)))
    return sum(1 for _ in post_order(after["main"]))


def _encoder(layers: int) -> Function:
    """A transformer encoder of the sizes of BERT-base, whose weights are parameters."""
    params = [var("x", (128, 768))]

    def weight(*shape: int) -> Var:
        params.append(var(f"w{len(params)}", shape))
        return params[-1]

    def linear(x, inputs, outputs):
        return op.add(op.nn.dense(x, weight(outputs, inputs)), weight(outputs))

    def heads(x):
        return op.transpose(op.reshape(x, newshape=(128, 12, 64)), axes=(1, 0, 2))

    x = params[0]
    for _ in range(layers):
        q, k, v = (heads(linear(x, 768, 768)) for _ in range(3))
        scores = op.nn.softmax(op.multiply(op.nn.batch_matmul(q, k), const(0.125)))
        mixed = op.nn.batch_matmul(scores, op.transpose(v, axes=(0, 2, 1)))
        joined = op.reshape(op.transpose(mixed, axes=(1, 0, 2)), newshape=(128, 768))
        x = op.nn.layer_norm(op.add(x, linear(joined, 768, 768)), weight(768), weight(768))
        hidden = op.tanh(linear(x, 768, 3072))
        x = op.nn.layer_norm(op.add(x, linear(hidden, 3072, 768)), weight(768), weight(768))
    return Function(tuple(params), op.sum(x))


@pytest.mark.slow
def test_the_gradient_of_an_encoder_is_made_in_two_seconds():
    mod = infer_type(IRModule.from_expr(_encoder(12)))
    start = time.process_time()
    after = Gradient(cotangent="scalar")(mod)
    assert time.process_time() - start < 2
    assert len(after["main"].body.fields[1].fields) == len(mod["main"].params)
