"""Functions of ``weft.nn.functional`` equal torch's, with gradients, on seeded samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft
from weft.nn import functional as fn

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-1.5, 1.5, shape).astype(np.float32)


def whole(*shape: int, high: int = 5, dtype: type = np.int64) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 1.5, shape).astype(np.float32)


def logs(*shape: int) -> np.ndarray:
    x = floats(*shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


_, PLACES = torch.nn.functional.max_pool2d(torch.tensor(floats(2, 3, 6, 6)), 2,
                                           return_indices=True)
LABELS = np.int64([[2, 0, -1, 1], [-1, 2, 3, 0], [0, 1, 2, 3]])
# name, operands (float arrays get gradients), keywords
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("unfold", (floats(2, 3, 5, 6), (2, 3)), {"dilation": (1, 2), "padding": 1, "stride": (2, 1)}),
    ("unfold", (floats(3, 5, 6), 2), {}),
    ("fold", (floats(2, 12, 20), (5, 6), 2), {}),
    ("fold", (floats(12, 9), (5, 6), (2, 3)), {"padding": 1, "stride": 2}),
    ("max_unpool2d", (floats(2, 3, 3, 3), PLACES.numpy(), 2), {}),
    ("max_unpool2d", (floats(2, 3, 3, 3), PLACES.numpy(), 2), {"output_size": (7, 6)}),
    ("max_unpool1d", (floats(3, 4), np.int64([[0, 3, 4, 7]] * 3), 2), {}),
    ("fractional_max_pool2d", (floats(2, 3, 7, 8), 2),
     {"output_size": (4, 5), "_random_samples": positive(2, 3, 2) / 2, "return_indices": True}),
    ("fractional_max_pool3d", (floats(2, 2, 6, 5, 4), (2, 1, 2)),
     {"output_ratio": (0.5, 0.5, 0.5), "_random_samples": positive(2, 2, 3) / 2}),
    ("pdist", (floats(5, 4),), {"p": 3.0}), ("pdist", (floats(4, 3),), {"p": math.inf}),
    ("cosine_similarity", (floats(1, 2, 3), floats(2, 1, 3)), {"dim": -2}),
    ("pairwise_distance", (floats(4, 3), floats(3)), {"p": 1.0, "keepdim": True}),
    ("normalize", (np.float32([[3.0, 0.0, 4.0]]),), {"p": 0.0, "dim": -1}),
    ("normalize", (floats(3, 4),), {"p": 1.5, "dim": 0}),
    ("grid_sample", (floats(2, 3, 4, 5), floats(2, 3, 4, 2)),
     {"padding_mode": "reflection", "align_corners": True}),
    ("grid_sample", (floats(2, 3, 4, 5), floats(2, 3, 4, 2)),
     {"mode": "bicubic", "padding_mode": "border"}),
    ("grid_sample", (floats(1, 2, 3, 4, 3), floats(1, 2, 2, 3, 3)), {}),
    ("affine_grid", (floats(2, 2, 3), (2, 1, 3, 4)), {"align_corners": False}),
    ("affine_grid", (floats(1, 3, 4), (1, 1, 2, 3, 4)), {"align_corners": True}),
    ("interpolate", (floats(1, 2, 7, 9),),
     {"size": (4, 5), "mode": "bilinear", "antialias": True}),
    ("interpolate", (floats(1, 2, 9, 6),),
     {"size": (4, 8), "mode": "bicubic", "antialias": True, "align_corners": True}),
    ("interpolate", (floats(1, 2, 5),),
     {"scale_factor": 1.7, "mode": "linear", "recompute_scale_factor": True}),
    ("upsample_bilinear", (floats(1, 2, 3, 4), (5, 6)), {}),
    ("pad", (floats(1, 1, 4, 4), (-1, 1, -2, 1)), {"mode": "circular"}),
    ("pad", (floats(1, 2, 4, 4), (1, 1, -1, 3)), {"mode": "reflect"}),
    ("pad", (floats(1, 2, 4, 4), (-4, 5)), {"mode": "constant", "value": 1.5}),
    ("pad", (np.array([[True, False]]), (1, 1)), {}),
    ("pad", (whole(2, 3, dtype=np.int32), (1, 0, 0, 2)), {"value": 7}),
    ("avg_pool2d", (whole(1, 2, 5, 6, high=50) - 20, 3), {"padding": 1, "ceil_mode": True,
                                                          "stride": 2}),
    ("avg_pool1d", (whole(2, 7, high=50) - 20, 3), {"padding": 1, "count_include_pad": False}),
    ("lp_pool2d", (floats(2, 3, 6, 6), math.inf, 2), {}),
    ("lp_pool1d", (positive(2, 3, 6), 3, 2), {}),
    ("embedding", (whole(2, 3), floats(5, 4)), {"padding_idx": -1, "scale_grad_by_freq": True}),
    ("embedding_bag", (whole(7), floats(5, 4), np.int64([0, 3, 3, 7])),
     {"include_last_offset": True, "mode": "sum", "per_sample_weights": floats(7)}),
    ("embedding_bag", (whole(3, 4), floats(5, 4)), {"padding_idx": 1, "mode": "max"}),
    ("embedding_bag", (whole(6, dtype=np.int32), floats(5, 4), np.int32([0, 2])),
     {"padding_idx": 2}),
    ("multilabel_margin_loss", (floats(3, 4), LABELS), {}),
    ("multilabel_margin_loss", (floats(4), LABELS[0]), {"reduction": "none"}),
    ("multi_margin_loss", (floats(5), np.int64(2)), {"p": 2, "weight": positive(5)}),
    ("mse_loss", (floats(3, 4), floats(3, 4)), {"weight": positive(3, 4)}),
    ("l1_loss", (floats(3, 4), floats(3, 4)), {"weight": positive(3, 4), "reduction": "sum"}),
    ("huber_loss", (floats(3, 4), floats(3, 4)), {"weight": positive(3, 4), "delta": 0.5}),
    ("gaussian_nll_loss", (floats(3, 4), floats(3, 4), 0.3), {"full": True}),
    ("gaussian_nll_loss", (floats(3, 2, 2), floats(3, 2, 2), positive(3, 1, 2)), {}),
    ("poisson_nll_loss", (whole(4), whole(4)), {"full": True}),
    ("kl_div", (logs(3, 4), logs(3, 4)), {"log_target": True, "reduction": "batchmean"}),
    ("kl_div", (np.log(positive(2, 3)), np.float32([[0.2, -0.5, 0.4], [1.0, 0.3, 2.0]])),
     {"reduction": "none"}),
    ("softmax", (np.float32(3.0),), {}), ("log_softmax", (np.float32(3.0), 0), {}),
    ("softmin", (np.float32(3.0), -1), {}), ("prelu", (np.float32(-3.0), np.float32([0.5])), {}),
    ("cross_entropy", (floats(4, 6, 3), whole(4, 3)),
     {"ignore_index": 2, "weight": positive(6), "label_smoothing": 0.2}),
    ("linear_cross_entropy", (floats(4, 3), floats(6, 3), whole(4)), {"linear_bias": floats(6)}),
    ("linear_cross_entropy", (floats(4, 3), floats(6, 2, 3), whole(4, 2)), {"reduction": "none"}),
    ("tanhshrink", (whole(5),), {}),
    ("conv_tbc", (floats(6, 2, 3), floats(3, 3, 4), floats(4)), {"pad": 1}),
    ("pixel_shuffle", (floats(0, 8, 2, 3), 2), {}),
    ("max_pool1d_with_indices", (floats(1, 2, 6), 2), {}),
    ("ctc_loss", (logs(7, 3, 5), whole(3, 3, high=4) + 1),
     {"input_lengths": (7, 5, 6), "target_lengths": (3, 0, 2)}),
    ("ctc_loss", (logs(6, 3, 5), whole(5, high=4)),
     {"input_lengths": np.int64([6, 6, 1]), "target_lengths": np.int64([2, 1, 2]), "blank": 4,
      "reduction": "sum", "zero_infinity": True}),
    ("ctc_loss", (logs(6, 5), whole(2, high=4) + 1), {"input_lengths": np.int64(6),
                                                      "target_lengths": np.int64(2)}),
]


def as_torch(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def as_weft(value: Any) -> Any:
    return weft.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def differentiated(values: list[Any]) -> list[Any]:
    """The tensors of floats among the operands require gradients."""
    return [v.requires_grad_() if hasattr(v, "dtype") and v.dtype.is_floating_point else v
            for v in values]


def several(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def compare(mine: Any, theirs: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Results and gradients of two functions of the same operands are close."""
    ours, other = (differentiated([to(a) for a in args]) for to in (as_weft, as_torch))
    got = several(mine(*ours, **{k: as_weft(v) for k, v in named.items()}))
    want = several(theirs(*other, **{k: as_torch(v) for k, v in named.items()}))
    for x, y in zip(got, want, strict=True):
        assert x.dtype == str(y.dtype)
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-4, 1e-5)
    if not want[0].requires_grad or not want[0].numel():
        return
    slopes = RNG.uniform(0.5, 1.5, tuple(want[0].shape)).astype(np.float32)
    got[0].backward(weft.tensor(slopes))
    want[0].backward(torch.tensor(slopes))
    for x, y in zip(ours, other, strict=True):
        if isinstance(y, torch.Tensor) and y.grad is not None:
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-4, 1e-4)


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_a_function_equals_torchs(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    name, args, named = case
    compare(getattr(fn, name), getattr(torch.nn.functional, name), args, named)


def test_attention_of_several_heads_with_every_option() -> None:
    size, heads, batch = 6, 2, 3
    q, k, v = floats(4, batch, size), floats(5, batch, size), floats(5, batch, size)
    weights = [floats(size, size) for _ in range(4)]
    padding = np.array([[False] * 4 + [True]] * batch)

    def attend(functional: Any, convert: Any) -> Any:
        def call(*given: Any) -> Any:
            return functional.multi_head_attention_forward(
                *given[:3], size, heads, None, given[3], given[4], given[5], True, 0.0, given[6],
                None, key_padding_mask=convert(padding),
                attn_mask=convert(padding[:1].repeat(4, 0)),
                use_separate_proj_weight=True, q_proj_weight=given[7], k_proj_weight=given[8],
                v_proj_weight=given[9])
        return call

    compare(attend(fn, as_weft), attend(torch.nn.functional, as_torch),
            (q, k, v, floats(3 * size), floats(1, 1, size), floats(1, 1, size), *weights), {})


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32])
def test_labels_are_integers_of_any_width(name: str, dtype: type) -> None:
    x = weft.tensor(floats(4, 10), requires_grad=True)
    getattr(fn, name)(x, weft.tensor(np.array([1, 2, 3, 9], dtype))).backward()
    y = torch.tensor(x.detach().numpy(), requires_grad=True)
    getattr(torch.nn.functional, name)(y, torch.tensor([1, 2, 3, 9])).backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-5, 1e-6)


def test_older_arguments_of_reductions_warn() -> None:
    x, y = floats(3), floats(3)
    with pytest.warns(DeprecationWarning, match="reduction='sum'"):
        found = fn.mse_loss(weft.tensor(x), weft.tensor(y), size_average=False)
    np.testing.assert_allclose(found.numpy(), ((x - y)**2).sum(), 1e-5)
    with pytest.warns(DeprecationWarning, match="reduction='none'"):
        assert fn.l1_loss(weft.tensor(x), weft.tensor(y), reduce=False).shape == (3,)


def test_forms_that_write_their_input() -> None:
    x = weft.tensor([-1.0, 2.0])
    assert fn.relu_(x) is x
    assert x.tolist() == [0.0, 2.0]


BAD: list[tuple[Any, str]] = [
    (lambda: fn.unfold(weft.ones(1, 1, 2, 2), 3), "larger than the padded image"),
    (lambda: fn.fold(weft.ones(1, 5, 4), 3, 2), "columns do not fit"),
    (lambda: fn.max_unpool2d(weft.ones(1, 1, 2, 2), weft.ones(1, 1, 2, 2, dtype="int64"), 2,
                             output_size=(9, 9)), "output_size does not fit"),
    (lambda: fn.pad(weft.ones(1, 1, 3), (4, 0), "reflect"), "does not fit the axis"),
    (lambda: fn.pad(weft.ones(2), (-2, -1)), "crop more"),
    (lambda: fn.ctc_loss(weft.ones(3, 1, 4), weft.ones(1, 2, dtype="int64"), (3,), (2,), blank=4),
     "blank is not a class"),
    (lambda: fn.interpolate(weft.ones(1, 1, 4), size=0), "a size is 0"),
    (lambda: fn.nll_loss(weft.ones(2, 3), weft.ones(3, dtype="int64")), "does not fit"),
    (lambda: fn.mse_loss(weft.ones(2), weft.ones(2), reduction="avg"), "unknown reduction"),
    (lambda: fn.embedding_bag(weft.ones(2, dtype="int64"), weft.ones(3, 4)), "offsets"),
    (lambda: fn.affine_grid(weft.ones(1, 2, 2), (1, 1, 2, 2)), "theta does not fit"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[m for _, m in BAD])
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(weft.WeftError, match=message):
        call()
