"""NumPy references of operators compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import op
from weft.ir.op import Op

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
F = torch.nn.functional
RNG = np.random.default_rng(3)


def r(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def i(*shape: int, high: int) -> np.ndarray:
    return RNG.integers(0, high, shape)


# operator, attributes, arguments, the same in torch
SAME: list[tuple[Op, dict[str, Any], list[np.ndarray], Callable[..., Any]]] = [
    (op.nn.conv1d, {"strides": (2,), "padding": (1,), "dilation": (2,), "groups": 2},
     [r(2, 4, 11), r(6, 2, 3)],
     lambda x, w: F.conv1d(x, w, stride=2, padding=1, dilation=2, groups=2)),
    (op.nn.conv3d, {"strides": (1, 2, 1), "padding": (1, 0, 1)},
     [r(1, 3, 4, 5, 4), r(2, 3, 3, 2, 3)],
     lambda x, w: F.conv3d(x, w, stride=(1, 2, 1), padding=(1, 0, 1))),
    (op.nn.conv1d_transpose, {"strides": (3,), "padding": (1,), "output_padding": (2,),
                              "dilation": (2,)}, [r(2, 4, 5), r(4, 3, 3)],
     lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=1, output_padding=2, dilation=2)),
    (op.nn.conv2d_transpose, {"strides": (2, 3), "padding": (1, 0), "output_padding": (1, 0),
                              "groups": 2}, [r(2, 4, 3, 4), r(4, 3, 3, 4)],
     lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 0), output_padding=(1, 0),
                                     groups=2)),
    (op.nn.conv3d_transpose, {"strides": (2, 1, 2)}, [r(1, 2, 2, 3, 2), r(2, 3, 2, 2, 3)],
     lambda x, w: F.conv_transpose3d(x, w, stride=(2, 1, 2))),
    (op.nn.conv2d_backward_weight, {"kernel_size": (3, 2), "strides": (2, 1), "padding": (1, 0)},
     [r(2, 3, 3, 4), r(2, 4, 5, 5)],
     lambda dy, x: torch.nn.grad.conv2d_weight(x, (3, 4, 3, 2), dy, stride=(2, 1), padding=(1, 0))),
    (op.nn.max_pool3d, {"pool_size": (2, 3, 2), "strides": (2, 2, 1), "padding": (1, 1, 0),
                        "ceil_mode": True}, [r(1, 2, 4, 6, 5)],
     lambda x: F.max_pool3d(x, (2, 3, 2), (2, 2, 1), (1, 1, 0), ceil_mode=True)),
    (op.nn.avg_pool1d, {"pool_size": (3,), "strides": (2,), "padding": (1,), "ceil_mode": True,
                        "count_include_pad": True}, [r(2, 3, 8)],
     lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True)),
    (op.nn.avg_pool3d, {"pool_size": (2, 2, 3), "strides": (1, 2, 2), "padding": (1, 0, 1)},
     [r(1, 2, 3, 4, 6)],
     lambda x: F.avg_pool3d(x, (2, 2, 3), (1, 2, 2), (1, 0, 1), count_include_pad=False)),
    (op.nn.adaptive_avg_pool2d, {"output_size": (3, 5)}, [r(2, 3, 7, 4)],
     lambda x: F.adaptive_avg_pool2d(x, (3, 5))),
    (op.nn.adaptive_max_pool3d, {"output_size": (2, 3, 2)}, [r(1, 2, 5, 4, 6)],
     lambda x: F.adaptive_max_pool3d(x, (2, 3, 2))),
    (op.nn.group_norm, {"num_groups": 3, "epsilon": 1e-3}, [r(2, 6, 4, 3), r(6), r(6)],
     lambda x, g, b: F.group_norm(x, 3, g, b, eps=1e-3)),
    (op.nn.instance_norm, {}, [r(2, 3, 5, 4), r(3), r(3)],
     lambda x, g, b: F.instance_norm(x, weight=g, bias=b)),
    (op.nn.rms_norm, {}, [r(3, 4, 7), r(7)], lambda x, w: F.rms_norm(x, (7,), w, 1e-5)),
    (op.nn.l2_normalize, {"eps": 1e-24}, [r(3, 5, 2)], lambda x: F.normalize(x, dim=1)),
    (op.nn.prelu, {}, [r(2, 3, 4), r(3)], F.prelu),
    (op.nn.nll_loss, {}, [r(5, 4), i(5, high=4), r(4, low=0.1)], F.nll_loss),
    (op.nn.nll_loss, {"reduction": "none", "ignore_index": 1}, [r(2, 3, 4), i(2, 4, high=3), r(3)],
     lambda x, t, w: F.nll_loss(x, t, w, reduction="none", ignore_index=1)),
    (op.nn.depth_to_space, {"block_size": 2, "mode": "CRD"}, [r(1, 12, 3, 2)],
     lambda x: F.pixel_shuffle(x, 2)),
    (op.nn.mirror_pad, {"pad_width": ((0, 0), (0, 0), (2, 1), (1, 2)), "mode": "REFLECT"},
     [r(1, 2, 4, 4)], lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect")),
    (op.image.resize1d, {"size": (9,)}, [r(1, 2, 4)],
     lambda x: F.interpolate(x, 9, mode="linear")),
    (op.image.resize2d, {"size": (7, 3), "method": "cubic"}, [r(1, 2, 5, 6)],
     lambda x: F.interpolate(x, (7, 3), mode="bicubic")),
    (op.image.resize2d, {"size": (3, 4), "antialias": True, "cubic_exclude": True},
     [r(1, 2, 8, 9)], lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True)),
    (op.image.resize2d, {"size": (5, 7), "method": "nearest_neighbor", "rounding_method": "floor",
                         "coordinate_transformation_mode": "asymmetric"}, [r(1, 2, 4, 3)],
     lambda x: F.interpolate(x, (5, 7), mode="nearest")),
    (op.image.resize3d, {"size": (3, 5, 4), "coordinate_transformation_mode": "align_corners"},
     [r(1, 1, 2, 3, 4)],
     lambda x: F.interpolate(x, (3, 5, 4), mode="trilinear", align_corners=True)),
    (op.image.affine_grid, {"target_shape": (3, 4)}, [r(2, 2, 3)],
     lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=True).permute(0, 3, 1, 2)),
    *((op.image.grid_sample,
       {"method": method, "padding_mode": padding, "align_corners": align},
       [r(2, 3, 4, 5), r(2, 2, 3, 4, low=-2.2, high=2.2)],
       lambda x, g, m=method, p=padding, a=align: F.grid_sample(
           x, g.permute(0, 2, 3, 1), mode=m, padding_mode=p, align_corners=a))
      for method in ("nearest", "bilinear", "bicubic")
      for padding in ("zeros", "border", "reflection") for align in (True, False)),
    (op.image.grid_sample, {"layout": "NCDHW"},
     [r(1, 2, 3, 4, 3), r(1, 3, 2, 2, 3, low=-1.3, high=1.3)],
     lambda x, g: F.grid_sample(x, g.permute(0, 2, 3, 4, 1), align_corners=True)),
]


@pytest.mark.parametrize("one", SAME, ids=lambda one: f"{one[0].name}-{len(one[1])}")
def test_the_reference_means_the_same(one: Any) -> None:
    operator, attrs, arrays, same = one
    record = operator.attrs_type.make(attrs)
    found = operator.reference(*arrays, **dict(record.items()))
    expected = same(*(torch.from_numpy(a) for a in arrays)).numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
