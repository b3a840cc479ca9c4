"""The gradient of a convolution's data by phases, for random geometry, against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import op
from weft.ir.expr import Function, var
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.op.nn.conv_phases import phases_along
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.gradient import Gradient


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3),
       st.integers(0, 4))
def test_every_tap_meets_its_outputs_once(
    size: int, taps: int, stride: int, dilation: int, before: int
) -> None:
    found = set()
    for phase, part in enumerate(phases_along(size, taps, stride, dilation, before)):
        for u in range(part.count):
            for j, tap in enumerate(reversed(part.taps)):
                found.add((phase + stride * u, tap, u + part.first + j * part.step))
    wanted = {(p, t, (p + before - t * dilation) // stride)
              for p in range(size) for t in range(taps)
              if (p + before - t * dilation) % stride == 0}
    assert found == wanted


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_gradients_of_random_convolutions(data: st.DataObject) -> None:
    """The dot-product test: a convolution is linear in its data and in its kernel."""
    taps, stride, dilation = (data.draw(st.integers(1, 3)) for _ in range(3))
    padding = data.draw(st.integers(0, 2))
    groups = data.draw(st.sampled_from([1, 2]))
    size = data.draw(st.integers((taps - 1) * dilation + 1, 9))
    batch = data.draw(st.integers(1, 3))
    shapes = ((batch, 4, size, size), (6, 4 // groups, taps, taps))
    x, w = (var(n, s, "float64") for n, s in zip("xw", shapes, strict=True))
    call = op.nn.conv2d(x, w, strides=(stride, stride), dilation=(dilation, dilation),
                        padding=(padding,) * 4, groups=groups)
    mod = infer_type(IRModule.from_expr(Function((x, w), op.sum(op.multiply(call, call)))))
    rng = np.random.default_rng(0)
    values = [rng.normal(size=s) for s in shapes]
    loss, grads = evaluate(Gradient()(mod), values)
    for grad, value in zip(grads, values, strict=True):
        # The loss is homogeneous of degree 2 in each operand (Euler's identity).
        np.testing.assert_allclose((grad * value).sum(), 2 * loss, rtol=1e-9)
    way = rng.normal(size=shapes[0])
    ahead, behind = (evaluate(mod, [values[0] + s * way, values[1]]) for s in (1, -1))
    np.testing.assert_allclose((grads[0] * way).sum(), (ahead - behind) / 2, rtol=1e-8,
                               atol=1e-8)
