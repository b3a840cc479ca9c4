"""Each composite equals its reference in NumPy through every surface that offers it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import Fixed
from tests.unit.compat.graphdef.helpers import run as run_graphdef
from weft.frontend.common.node import NodeBase
from weft.ir.dtype import DType
from weft.ir.expr import Function, Var
from weft.ir.module import IRModule
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.nn import functional as fn
from weft.op.composites import activations, losses, norms, pairs
from weft.transform import evaluate

SELU_ALPHA, SELU_SCALE = activations.SELU_ALPHA, activations.SELU_SCALE
X = np.float32([-80, -20, -3, -1, -0.6, -0.5, -0.1, 0, 0.1, 0.5, 0.6, 1, 2.9, 3, 6, 7, 25, 90])
RNG = np.random.default_rng(3)
ROWS, TARGETS = (RNG.uniform(-2, 2, (4, 6)).astype(np.float32) for _ in range(2))
SHARES, PROBABILITIES = (RNG.uniform(0.05, 0.95, (4, 6)).astype(np.float32) for _ in range(2))
SIGNS = np.where(TARGETS > 0, 1, -1).astype(np.float32)
POINTS = np.float32([(y, x) for y in (-2, -1, -0.0, 0.0, 1, 3) for x in (-2, -1, -0.0, 0.0, 1, 3)])
POINTS = np.concatenate([POINTS, np.float32(
    [(math.inf, 1), (-math.inf, math.inf), (1, -math.inf), (math.nan, 1), (1, math.nan)])])
Y1, X1 = np.ascontiguousarray(POINTS[:, 0]), np.ascontiguousarray(POINTS[:, 1])


@dataclass(frozen=True)
class Case:
    """A composite, its operands and numbers, and what each surface calls it.

    ``nn`` is a function of tensors, ``onnx`` operator, opset and attributes, ``torch`` a function
    of torch tensors (exported), ``graphdef`` operator and further fixed operands.
    """

    composite: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    expected: Callable[..., np.ndarray]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    nn: Callable[..., Any] | None = None
    onnx: tuple[str, int, dict[str, Any]] | None = None
    torch: Callable[[Any], Callable[..., Any]] | None = None
    graphdef: tuple[Any, ...] = ()


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


def _elu(x: np.ndarray, alpha: float = 1, scale: float = 1) -> np.ndarray:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _softplus(x: np.ndarray, beta: float = 1) -> np.ndarray:
    return np.logaddexp(0, beta * x) / beta


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hard(x: np.ndarray) -> np.ndarray:
    return np.clip(x + 3, 0, 6) / 6


def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _huber(x: np.ndarray, y: np.ndarray, delta: float) -> np.ndarray:
    size = abs(x - y)
    return np.where(size < delta, size**2 / 2, delta * (size - delta / 2))


def _bce(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -(y * np.log(p) + (1 - y) * np.log(1 - p))


def _cosine(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


A, L, N = activations, losses, norms
NONE = {"reduction": "none"}
CASES: dict[str, Case] = {
    "elu": Case(A.elu, (X,), lambda x: _elu(x, 1.5), {"alpha": 1.5}, lambda x: fn.elu(x, 1.5),
                ("Elu", 17, {"alpha": 1.5}), lambda t: lambda x: t.elu(x, 1.5)),
    "elu of 1": Case(A.elu, (X,), _elu, graphdef=("Elu",)),
    "selu": Case(A.selu, (X,), lambda x: _elu(x, SELU_ALPHA, SELU_SCALE), {}, fn.selu,
                 ("Selu", 17, {}), lambda t: t.selu, ("Selu",)),
    "celu": Case(A.celu, (X,), lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)),
                 {"alpha": 2.0}, lambda x: fn.celu(x, 2.0), ("Celu", 17, {"alpha": 2.0}),
                 lambda t: lambda x: t.celu(x, 2.0)),
    "prelu": Case(A.prelu, (X, X + 1), lambda x, s: np.where(x > 0, x, s * x), {}, None,
                  ("PRelu", 17, {})),
    "gelu": Case(A.gelu, (X,), lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))), {}, fn.gelu,
                 ("Gelu", 20, {}), lambda t: t.gelu),
    "gelu by tanh": Case(A.gelu, (X,), _tanh_gelu, {"approximate": "tanh"},
                         lambda x: fn.gelu(x, "tanh"), ("Gelu", 20, {"approximate": "tanh"}),
                         lambda t: lambda x: t.gelu(x, approximate="tanh")),
    "silu": Case(A.silu, (X,), lambda x: x / (1 + np.exp(-x)), {}, fn.silu, None,
                 lambda t: t.silu),
    "mish": Case(A.mish, (X,), lambda x: x * np.tanh(_softplus(x)), {}, fn.mish, ("Mish", 18, {}),
                 lambda t: t.mish),
    "softplus": Case(A.softplus, (X,), _softplus, {}, fn.softplus, ("Softplus", 17, {}),
                     lambda t: t.softplus, ("Softplus",)),
    "softplus of 3 x": Case(A.softplus, (X,), lambda x: _softplus(x, 3),
                            {"beta": 3.0, "threshold": 15.0}, lambda x: fn.softplus(x, 3.0, 15.0),
                            torch=lambda t: lambda x: t.softplus(x, 3.0, 15.0)),
    "logsigmoid": Case(A.logsigmoid, (X,), lambda x: -_softplus(-x), {}, fn.logsigmoid, None,
                       lambda t: t.logsigmoid),
    "softsign": Case(A.softsign, (X,), lambda x: x / (1 + abs(x)), {}, fn.softsign,
                     ("Softsign", 17, {}), lambda t: t.softsign, ("Softsign",)),
    "hardtanh": Case(A.hardtanh, (X,), lambda x: np.clip(x, -1, 1), {}, fn.hardtanh, None,
                     lambda t: t.hardtanh),
    "relu6": Case(A.relu6, (X,), lambda x: np.clip(x, 0, 6), {}, fn.relu6, None, lambda t: t.relu6,
                  ("Relu6",)),
    "hard sigmoid of ONNX": Case(A.clipped_line, (X,), lambda x: np.clip(x * 0.3 + 0.4, 0, 1),
                                 {"slope": 0.3, "offset": 0.4}, None,
                                 ("HardSigmoid", 17, {"alpha": 0.3, "beta": 0.4})),
    "hardsigmoid": Case(A.hardsigmoid, (X,), _hard, {}, fn.hardsigmoid, None,
                        lambda t: t.hardsigmoid),
    "hardswish": Case(A.hardswish, (X,), lambda x: x * _hard(x), {}, fn.hardswish,
                      ("HardSwish", 17, {}), lambda t: t.hardswish),
    "threshold": Case(A.threshold, (X,), lambda x: np.where(x > 0.5, x, 0), {"threshold": 0.5},
                      lambda x: fn.threshold(x, 0.5, 0.0), ("ThresholdedRelu", 17, {"alpha": 0.5}),
                      lambda t: lambda x: t.threshold(x, 0.5, 0.0)),
    "hardshrink": Case(A.hardshrink, (X,), lambda x: np.where(abs(x) > 0.5, x, 0), {},
                       fn.hardshrink, ("Shrink", 17, {"lambd": 0.5, "bias": 0.0}),
                       lambda t: t.hardshrink),
    "softshrink": Case(A.softshrink, (X,), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), {},
                       fn.softshrink, ("Shrink", 17, {"lambd": 0.5, "bias": 0.5}),
                       lambda t: t.softshrink),
    "shrink": Case(A.shrink, (X,), lambda x: np.sign(x) * np.where(abs(x) > 1.5, abs(x) - 0.2, 0),
                   {"lambd": 1.5, "bias": 0.2}, None, ("Shrink", 17, {"lambd": 1.5, "bias": 0.2})),
    "tanhshrink": Case(A.tanhshrink, (X,), lambda x: x - np.tanh(x), {}, fn.tanhshrink, None,
                       lambda t: t.tanhshrink),
    "atan2": Case(pairs.atan2, (Y1, X1), np.arctan2, {}, weft.atan2,
                  torch=lambda _: lambda y, x: y.atan2(x)),
    "hypot": Case(pairs.hypot, (Y1, X1), np.hypot, torch=lambda _: lambda y, x: y.hypot(x)),
    "logaddexp": Case(pairs.logaddexp, (X, X[::-1].copy()), np.logaddexp,
                      torch=lambda _: lambda x, y: x.logaddexp(y)),
    "1-norm": Case(N.p_norm, (ROWS,), lambda x: abs(x).sum(1), {"p": 1, "axes": (1,)},
                   lambda x: weft.norm(x, 1, 1), ("ReduceL1", 17, {"axes": [1], "keepdims": 0}),
                   lambda _: lambda x: x.norm(1, 1)),
    "2-norm": Case(N.p_norm, (ROWS,), lambda x: np.sqrt((x * x).sum(1)), {"axes": (1,)},
                   lambda x: weft.norm(x, 2, 1), ("ReduceL2", 17, {"axes": [1], "keepdims": 0}),
                   lambda _: lambda x: x.norm(2, 1), ("EuclideanNorm", Fixed([1]))),
    "3-norm": Case(N.p_norm, (ROWS,), lambda x: (abs(x)**3).sum(1)**(1 / 3),
                   {"p": 3, "axes": (1,)}, lambda x: weft.norm(x, 3, 1),
                   torch=lambda _: lambda x: x.norm(3, 1)),
    "largest": Case(N.p_norm, (ROWS,), lambda x: abs(x).max(1), {"p": math.inf, "axes": (1,)},
                    lambda x: weft.norm(x, math.inf, 1),
                    torch=lambda _: lambda x: x.norm(math.inf, 1)),
    "normalize": Case(N.normalize, (ROWS,), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
                      {}, fn.normalize, ("LpNormalization", 17, {"axis": 1}),
                      lambda t: t.normalize),
    "cosine similarity": Case(N.cosine_similarity, (ROWS, TARGETS), _cosine, {},
                              fn.cosine_similarity, torch=lambda t: t.cosine_similarity),
    "logsumexp": Case(N.logsumexp, (ROWS,), lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
                      {"axes": (1,)}, lambda x: weft.logsumexp(x, 1, keepdim=True),
                      ("ReduceLogSumExp", 17, {"axes": [1]}),
                      lambda _: lambda x: x.logsumexp(1, keepdim=True)),
    "squared error": Case(L.squared_error, (ROWS, TARGETS), lambda x, y: (x - y)**2, {},
                          lambda x, y: fn.mse_loss(x, y, **NONE),
                          torch=lambda t: lambda x, y: t.mse_loss(x, y, **NONE),
                          graphdef=("SquaredDifference",)),
    "absolute error": Case(L.absolute_error, (ROWS, TARGETS), lambda x, y: abs(x - y), {},
                           lambda x, y: fn.l1_loss(x, y, **NONE),
                           torch=lambda t: lambda x, y: t.l1_loss(x, y, **NONE)),
    "huber": Case(L.huber, (ROWS, TARGETS), lambda x, y: _huber(x, y, 0.7), {"delta": 0.7},
                  lambda x, y: fn.huber_loss(x, y, delta=0.7, **NONE),
                  torch=lambda t: lambda x, y: t.huber_loss(x, y, delta=0.7, **NONE)),
    "smooth l1": Case(L.smooth_l1, (ROWS, TARGETS), lambda x, y: _huber(x, y, 0.7) / 0.7,
                      {"beta": 0.7}, lambda x, y: fn.smooth_l1_loss(x, y, beta=0.7, **NONE),
                      torch=lambda t: lambda x, y: t.smooth_l1_loss(x, y, beta=0.7, **NONE)),
    "binary cross entropy": Case(
        L.binary_cross_entropy, (PROBABILITIES, SHARES), _bce, {},
        lambda x, y: fn.binary_cross_entropy(x, y, **NONE),
        torch=lambda t: lambda x, y: t.binary_cross_entropy(x, y, **NONE)),
    "binary cross entropy with logits": Case(
        L.binary_cross_entropy_with_logits, (ROWS, SHARES),
        lambda x, y: _bce(1 / (1 + np.exp(-x)), y), {},
        lambda x, y: fn.binary_cross_entropy_with_logits(x, y, **NONE),
        torch=lambda t: lambda x, y: t.binary_cross_entropy_with_logits(x, y, **NONE)),
    "kl divergence": Case(L.kl_divergence, (ROWS, SHARES), lambda x, y: y * (np.log(y) - x), {},
                          lambda x, y: fn.kl_div(x, y, **NONE),
                          torch=lambda t: lambda x, y: t.kl_div(x, y, **NONE)),
    "poisson": Case(L.poisson_nll, (ROWS, SHARES), lambda x, y: np.exp(x) - y * x, {},
                    lambda x, y: fn.poisson_nll_loss(x, y, **NONE),
                    torch=lambda t: lambda x, y: t.poisson_nll_loss(x, y, **NONE)),
    "gaussian": Case(L.gaussian_nll, (ROWS, TARGETS, SHARES),
                     lambda x, y, v: (np.log(v) + (x - y)**2 / v) / 2, {},
                     lambda x, y, v: fn.gaussian_nll_loss(x, y, v, **NONE)),
    "softmax cross entropy": Case(
        L.softmax_cross_entropy, (ROWS, SHARES), lambda x, y: -(y * _log_softmax(x)).sum(-1), {},
        lambda x, y: fn.cross_entropy(x, y, **NONE),
        torch=lambda t: lambda x, y: t.cross_entropy(x, y, **NONE),
        graphdef=("SoftmaxCrossEntropyWithLogits",)),
    "margin ranking": Case(
        L.margin_ranking, (ROWS, TARGETS, SIGNS),
        lambda x, y, s: np.maximum(-s * (x - y) + 0.5, 0), {"margin": 0.5},
        lambda x, y, s: fn.margin_ranking_loss(x, y, s, 0.5, **NONE),
        torch=lambda t: lambda x, y, s: t.margin_ranking_loss(x, y, s, 0.5, **NONE)),
    "hinge": Case(L.hinge_embedding, (ROWS, SIGNS),
                  lambda x, s: np.where(s == 1, x, np.maximum(1 - x, 0)), {},
                  lambda x, s: fn.hinge_embedding_loss(x, s, **NONE),
                  torch=lambda t: lambda x, s: t.hinge_embedding_loss(x, s, **NONE)),
    "soft margin": Case(L.soft_margin, (ROWS, SIGNS), lambda x, s: np.log1p(np.exp(-s * x)), {},
                        lambda x, s: fn.soft_margin_loss(x, s, **NONE),
                        torch=lambda t: lambda x, s: t.soft_margin_loss(x, s, **NONE)),
    "cosine embedding": Case(
        L.cosine_embedding, (ROWS, TARGETS, np.ascontiguousarray(SIGNS[:, 0])),
        lambda x, y, s: np.where(s == 1, 1 - _cosine(x, y), np.maximum(_cosine(x, y), 0)), {},
        lambda x, y, s: fn.cosine_embedding_loss(x, y, s, **NONE),
        torch=lambda t: lambda x, y, s: t.cosine_embedding_loss(x, y, s, **NONE)),
    "distance": Case(L.pairwise_distance, (ROWS, TARGETS),
                     lambda x, y: np.sqrt(((x - y + 1e-6)**2).sum(-1)), {}, fn.pairwise_distance,
                     torch=lambda t: t.pairwise_distance),
}


class _Builder(NodeBase):
    op, span = "composite", Span("<test>")  # type: ignore[assignment]


def _by_ir(case: Case) -> Any:
    types = [TensorType(a.shape, DType.of(a.dtype)) for a in case.inputs]
    params = tuple(Var(f"x{i}", t).with_type(t) for i, t in enumerate(types))
    body = _Builder().composed(case.composite, *params, **case.numbers)
    return evaluate(infer_type(IRModule({"main": Function(params, body)})), list(case.inputs))


def _by_nn(case: Case) -> Any:
    return case.nn(*map(weft.tensor, case.inputs)).numpy()


def _by_onnx(case: Case) -> Any:
    pytest.importorskip("onnx")
    from tests.unit.frontend.onnx.onnx_cases import run_weft, single

    op, opset, attrs = case.onnx
    return run_weft(*single(op, list(case.inputs), opset=opset, **attrs))[0]


@pytest.mark.torch  # as the cases that run it
def _by_torch(case: Case) -> Any:
    torch = pytest.importorskip("torch")
    from weft.frontend.torch import from_torch, torch_program

    function = case.torch(torch.nn.functional)

    class Layer(torch.nn.Module):
        def forward(self, *xs: Any) -> Any:
            return function(*xs)

    operands = tuple(map(torch.from_numpy, case.inputs))
    return evaluate(from_torch(torch_program(Layer().eval(), example_inputs=operands)),
                    list(case.inputs))


def _by_graphdef(case: Case) -> Any:
    op, *fixed = case.graphdef
    return run_graphdef(op, *case.inputs, *fixed)


SURFACES = {"nn": _by_nn, "onnx": _by_onnx, "torch": _by_torch, "graphdef": _by_graphdef}


def _pairs() -> Iterator[Any]:
    for name, case in CASES.items():
        yield pytest.param(case, _by_ir, id=f"{name}-ir")
        for surface, run in SURFACES.items():
            if getattr(case, surface):
                marks = [pytest.mark.torch] if surface == "torch" else []
                yield pytest.param(case, run, id=f"{name}-{surface}", marks=marks)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize(("case", "run"), list(_pairs()))
def test_composite(case: Case, run: Callable[[Case], Any]) -> None:
    with np.errstate(all="ignore"):
        expected = case.expected(*(a.astype(np.float64) for a in case.inputs))
    found = run(case)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_every_composite_is_in_the_table() -> None:
    """The rest are parts of other composites, or have several results."""
    parts = {"small_power", "root_of_sum", "moments", "triplet_margin"}
    defined = {name for module in (activations, losses, norms, pairs)
               for name, value in vars(module).items()
               if callable(value) and getattr(value, "__module__", "") == module.__name__
               and not name.startswith("_")}
    assert defined - parts == {case.composite.__name__ for case in CASES.values()}
