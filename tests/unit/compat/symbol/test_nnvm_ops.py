"""Every operator of NNVM computes what NumPy says, and is inferred, compiled and saved."""

from __future__ import annotations

import numpy as np
import pytest

from weft.compat.symbol import Graph, Variable, op, to_module
from weft.compat.symbol.operator import NNVM_OPS
from weft.ir import assert_structural_equal
from weft.transform import evaluate

RNG = np.random.default_rng(2)
ROWS = (2, 3, 4)
IMAGE = (1, 4, 6, 6)

UNARY = {
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "negative": np.negative,
    "flatten": lambda x: x.reshape(len(x), -1), "copy": np.copy, "block_grad": np.copy,
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "abs": np.abs, "trunc": np.trunc,
    "zeros_like": np.zeros_like, "ones_like": np.ones_like, "dropout": np.copy,
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
          "pow": np.power}
REDUCE = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean}


def softmax(x):
    exps = np.exp(x - x.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


# Operator, shapes of the inputs, attributes, and what NumPy says.
CASES: list[tuple] = [
    *((name, [ROWS], {}, ref) for name, ref in UNARY.items()),
    *((f"{kind}_{name}", [ROWS, ROWS], {}, ref) for name, ref in BINARY.items()
      for kind in ("elemwise", "broadcast")),
    ("broadcast_add", [ROWS, (4,)], {}, np.add),
    *((f"__{name}_symbol__", [ROWS, ROWS], {}, ref) for name, ref in BINARY.items()),
    *((f"__{name}_scalar__", [ROWS], {"scalar": 1.5}, lambda x, ref=ref: ref(x, np.float32(1.5)))
      for name, ref in BINARY.items()),
    *((f"__r{name}_scalar__", [ROWS], {"scalar": 1.5},
       lambda x, ref=BINARY[name]: ref(np.float32(1.5), x)) for name in ("sub", "div", "pow")),
    *((name, [ROWS], {"axis": (0, 2), "keepdims": True},
       lambda x, ref=ref: ref(x, axis=(0, 2), keepdims=True)) for name, ref in REDUCE.items()),
    ("sum", [ROWS], {}, np.sum),
    ("max", [ROWS], {"axis": (1,), "exclude": True}, lambda x: x.max((0, 2))),
    ("argmax", [ROWS], {"axis": (1,)}, lambda x: x.argmax(1).astype("int32")),
    ("argmin", [ROWS], {"axis": (2,)}, lambda x: x.argmin(2).astype("int32")),
    ("softmax", [ROWS], {}, softmax),
    ("log_softmax", [ROWS], {}, lambda x: np.log(softmax(x))),
    ("leaky_relu", [ROWS], {"alpha": 0.1}, lambda x: np.where(x > 0, x, 0.1 * x)),
    ("prelu", [ROWS, (3,)], {}, lambda x, a: np.where(x > 0, x, a[:, None] * x)),
    ("clip", [ROWS], {"a_min": 0.8, "a_max": 1.2}, lambda x: np.clip(x, 0.8, 1.2)),
    ("cast", [ROWS], {"dtype": "int32"}, lambda x: x.astype("int32")),
    ("reshape", [ROWS], {"shape": (4, 6)}, lambda x: x.reshape(4, 6)),
    ("reshape_like", [ROWS, (6, 4)], {}, lambda x, like: x.reshape(like.shape)),
    ("transpose", [ROWS], {"axes": (2, 0, 1)}, lambda x: x.transpose(2, 0, 1)),
    ("transpose", [ROWS], {}, np.transpose),
    ("expand_dims", [ROWS], {"axis": 1, "num_newaxis": 2}, lambda x: x[:, None, None]),
    ("squeeze", [(1, 3, 1)], {"axis": (0,)}, lambda x: x[0]),
    ("concatenate", [ROWS, ROWS, ROWS], {"axis": 1}, lambda *x: np.concatenate(x, 1)),
    ("elemwise_sum", [ROWS, ROWS, ROWS], {}, lambda *x: sum(x)),
    ("split", [ROWS], {"indices_or_sections": (1,), "axis": 2}, lambda x: np.split(x, [1], 2)),
    ("zeros", [], {"shape": (2, 3)}, lambda: np.zeros((2, 3), np.float32)),
    ("ones", [], {"shape": (2, 3), "dtype": "int32"}, lambda: np.ones((2, 3), np.int32)),
    ("full", [], {"shape": (2, 3), "fill_value": 2.5}, lambda: np.full((2, 3), 2.5, np.float32)),
    ("matmul", [(4, 3), (4, 5)], {"transpose_a": True}, lambda x, y: x.T @ y),
    ("pad", [ROWS], {"pad_width": ((0, 0), (1, 2), (0, 1)), "pad_value": 3.0},
     lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1)), constant_values=3)),
    ("broadcast_to", [(1, 4)], {"shape": ROWS}, lambda x: np.broadcast_to(x, ROWS)),
    ("take", [ROWS, ("int32", [2, 0])], {"axis": 1}, lambda x, i: x[:, i]),
    ("strided_slice", [ROWS], {"begin": (0, 1, 0), "end": (2, 3, 4), "stride": (1, 1, 2)},
     lambda x: x[:, 1:3, ::2]),
    ("_assign", [ROWS, ROWS], {}, lambda _, y: (y, y)),
    ("dense", [(2, 4), (3, 4), (3,)], {"units": 3}, lambda x, w, b: x @ w.T + b),
    ("batch_norm", [IMAGE, (4,), (4,), (4,), (4,)], {},
     lambda x, g, b, m, v: (x - m[:, None, None])
     / np.sqrt(v[:, None, None] + 1e-5) * g[:, None, None] + b[:, None, None]),
    ("conv2d", [IMAGE, (2, 4, 1, 1), (2,)], {"channels": 2, "kernel_size": (1, 1)},
     lambda x, w, b: np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + b[:, None, None]),
    ("max_pool2d", [IMAGE], {"pool_size": (2, 2), "strides": (2, 2)},
     lambda x: x.reshape(1, 4, 3, 2, 3, 2).max((3, 5))),
    ("avg_pool2d", [IMAGE], {"pool_size": (2, 2), "strides": (2, 2)},
     lambda x: x.reshape(1, 4, 3, 2, 3, 2).mean((3, 5))),
    ("global_max_pool2d", [IMAGE], {}, lambda x: x.max((2, 3), keepdims=True)),
    ("global_avg_pool2d", [IMAGE], {}, lambda x: x.mean((2, 3), keepdims=True)),
    ("upsampling", [IMAGE], {"scale": 2}, lambda x: x.repeat(2, 2).repeat(2, 3)),
    ("lrn", [IMAGE], {"size": 1}, lambda x: x / (2 + 1e-4 * x * x) ** 0.75),
    ("l2_normalize", [IMAGE], {"eps": 1e-6},
     lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
]


def test_every_operator_has_a_case():
    assert {name for name, *_ in CASES} == set(NNVM_OPS)


@pytest.mark.parametrize(("name", "shapes", "attrs", "reference"), CASES,
                         ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_an_operator_is_what_numpy_says(name, shapes, attrs, reference):
    arrays = [np.asarray(s[1], s[0]) if isinstance(s[0], str)
              else RNG.uniform(0.5, 1.5, s).astype(np.float32) for s in shapes]
    inputs = [Variable(f"x{i}", shape=a.shape, dtype=a.dtype.name) for i, a in enumerate(arrays)]
    symbol = getattr(op, name)(*inputs, name="y", **attrs)
    mod = to_module(symbol.entries)
    got, expected = evaluate(mod, arrays), reference(*arrays)
    many = isinstance(expected, (tuple, list))
    for one, other in zip(got if many else [got], expected if many else [expected], strict=True):
        assert one.dtype == np.asarray(other).dtype or one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    again = Graph.from_json(Graph(symbol).json()).symbol
    assert_structural_equal(to_module(again.entries), mod)
    shapes_found = Graph(symbol).apply("InferShape").attrs["shape"]
    assert shapes_found[-len(symbol):] == [np.shape(e) for e in (
        expected[:len(symbol)] if many else [expected])]
