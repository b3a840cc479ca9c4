"""Reverse-mode differentiation against slopes measured on the reference interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.unit.transform.helpers import check_example, parse_program
from weft.ir.module import IRModule
from weft.ir.op import OPS, define_op
from weft.ir.types import TensorType
from weft.ir.typing.relations import identity_relation
from weft.ir.verify import verify_module
from weft.ir.visitor import post_order
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.autodiff.reverse.gradient import Gradient, gradient

STEP = 1e-5


def _inputs(fn, seed):
    rng = np.random.default_rng(seed)
    found = []
    for param in fn.params:
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        low, high = (0.2, 1.8) if type_.dtype.is_float else (0, 3)
        found.append(np.asarray(rng.uniform(low, high, type_.concrete_shape), type_.dtype.numpy))
    return found


def _total(value):
    return sum(map(_total, value)) if isinstance(value, tuple) else float(np.sum(value))


def check_slopes(text: str, *, seed: int = 0, tolerance: float = 1e-5) -> IRModule:
    """Gradients of a float64 program against central differences of the sum of its result."""
    mod = parse_program(text.replace("float32", "float64"))
    after = Gradient()(mod)
    verify_module(after)
    inputs = _inputs(mod["main"], seed)
    value, grads = evaluate(after, inputs)
    np.testing.assert_allclose(_total(value), _total(evaluate(mod, inputs)), rtol=1e-9)
    grads = iter(grads)
    rng = np.random.default_rng(seed + 1)
    for position, x in enumerate(inputs):
        if not np.issubdtype(x.dtype, np.floating):
            continue
        grad = next(grads)
        assert grad.shape == x.shape
        assert grad.dtype == x.dtype
        for _ in range(4):
            direction = rng.standard_normal(x.shape)
            ahead, behind = list(inputs), list(inputs)
            ahead[position] = np.asarray(x + STEP * direction)
            behind[position] = np.asarray(x - STEP * direction)
            slope = (_total(evaluate(mod, ahead)) - _total(evaluate(mod, behind))) / (2 * STEP)
            scale = max(1.0, abs(slope))
            assert abs(float(np.sum(grad * direction)) - slope) <= tolerance * scale
    return after


@pytest.mark.parametrize("pass_", [Gradient(), ExpandForGradient()], ids=str)
def test_example(pass_):
    if isinstance(pass_, ExpandForGradient):
        check_example(pass_)
    else:
        from tests.unit.transform.helpers import example_of
        from weft.ir.structural import assert_structural_equal

        before, after = example_of(Gradient)
        assert_structural_equal(pass_(before), after)


X = "%x: Tensor[(2, 3), float32]"
XY = "%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]"
V = "%x: Tensor[(2, 3), float32], %v: Tensor[(3,), float32]"
IMAGE = "%x: Tensor[(2, 4, 6, 5), float32]"


@pytest.mark.parametrize(
    ("params", "body"),
    [
        (XY, "add(multiply(%x, %y), divide(%x, %y))"),
        (V, "multiply(subtract(%x, %v), maximum(%x, %v))"),
        (V, "power(%x, minimum(%v, %x))"),
        (X, "nn.leaky_relu(subtract(%x, const([1.0], (1,), float32)), alpha=0.1)"),
        (X, "clip(%x, a_min=0.5, a_max=1.5)"),
        (XY, "where(greater(%x, %y), exp(%x), tanh(%y))"),
        (X, 'cast(exp(%x), dtype="float32")'),
        (X, "sum(exp(%x), axis=(0,))"),
        (X, "mean(exp(%x), axis=(1,), keepdims=True)"),
        (X, "mean(exp(%x))"),
        (X, "max(exp(%x), axis=(1,))"),
        (X, "min(exp(%x), axis=(0,), exclude=True)"),
        (X, "prod(%x, axis=(1,))"),
        (X, "exp(reshape(%x, newshape=(3, 2)))"),
        (X, "exp(nn.batch_flatten(expand_dims(%x, axis=1)))"),
        (X, "tanh(expand_dims(%x, axis=-1, num_newaxis=2))"),
        (X, "tanh(squeeze(expand_dims(%x, axis=1), axis=(1,)))"),
        (X, "exp(transpose(%x, axes=(1, 0)))"),
        (V, "multiply(broadcast_to(%v, shape=(2, 3)), %x)"),
        (V, "exp(strided_slice(%x, begin=(0, 2), end=(2, 0), strides=(1, -1)))"),
        (IMAGE, "exp(strided_slice(%x, begin=(1, 4), end=(6, 0), strides=(2, -2), axes=(2, 3)))"),
        (XY, "exp(concatenate((%x, tanh(%y)), axis=1))"),
        (V, "nn.dense(exp(%x), exp(reshape(%v, newshape=(1, 3))))"),
        (XY, "nn.dense(exp(%x), %y)"),
        (XY, "nn.dense(expand_dims(exp(%x), axis=0), %y)"),
        (XY, 'nn.dense(exp(transpose(%x)), %y, weight_layout="KN")'),
        (XY, "nn.matmul(exp(%x), %y, transpose_b=True)"),
        (XY, "nn.softmax(multiply(%x, %y), axis=0)"),
        (V, "nn.bias_add(exp(%x), exp(%v))"),
        (V, "nn.layer_norm(exp(%x), %v, exp(%v))"),
        (V, "nn.pad(exp(%x), sum(%v), pad_width=((1, 0), (0, 2)))"),
        (X, "full(sum(exp(%x)), shape=(2, 2))"),
        (IMAGE, 'layout_transform(exp(%x), src_layout="NCHW", dst_layout="NHWC")'),
    ],
)  # fmt: skip
def test_operators(params, body):
    check_slopes(f"def @main({params}) {{ {body} }}", tolerance=1e-4)


@pytest.fixture(autouse=True)
def without_gradient():
    """An operator without a gradient rule."""
    @define_op("mine.without_gradient", relation=identity_relation, inputs=("x",))
    def made(x, _attrs):
        """The argument."""
        return x

    yield made
    OPS.remove("mine.without_gradient")


def test_a_cast_to_lower_precision_passes_the_gradient_on():
    mod = parse_program(
        'def @main(%x: Tensor[(3,), float32]) { cast(exp(cast(%x, dtype="float64")), '
        'dtype="float32") }')
    x = np.asarray([0.0, 1.0, 2.0], np.float32)
    value, (grad,) = evaluate(Gradient()(mod), [x])
    np.testing.assert_allclose(grad, value, rtol=1e-6)


@pytest.mark.parametrize("axis", ["None", "0", "1"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take(axis, mode):
    check_slopes(f"""
        def @main(%x: Tensor[(2, 3), float32], %i: Tensor[(2, 2), int32]) {{
          exp(take(%x, multiply(%i, %i), axis={axis}, mode="{mode}"))
        }}""", tolerance=1e-4)


@pytest.mark.parametrize(
    "attrs",
    [
        "padding=(1, 1)",
        "strides=(2, 2), padding=(1, 0, 0, 1)",
        "strides=(1, 2), dilation=(2, 1), padding=(2, 1)",
        "strides=(3, 2)",
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions(attrs, groups):
    check_slopes(f"""
        def @main({IMAGE}, %w: Tensor[(2, {4 // groups}, 3, 2), float32]) {{
          exp(multiply(nn.conv2d(%x, %w, {attrs}, groups={groups}), 0.1f64))
        }}""", tolerance=1e-4)


def test_convolution_in_another_layout():
    check_slopes("""
        def @main(%x: Tensor[(1, 5, 5, 2), float32], %w: Tensor[(3, 3, 2, 3), float32]) {
          exp(multiply(nn.conv2d(%x, %w, data_layout="NHWC", kernel_layout="HWIO"), 0.1f64))
        }""", tolerance=1e-4)


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    "attrs",
    [
        "pool_size=(2, 2), strides=(2, 2)",
        "pool_size=(3, 3), strides=(2, 2), padding=(1, 1)",
        "pool_size=(3, 2), strides=(2, 1), padding=(1, 0, 0, 1), ceil_mode=True",
        "pool_size=(2, 2), dilation=(2, 2)",
    ],
)
def test_pools(kind, attrs):
    check_slopes(f"def @main({IMAGE}) {{ exp(nn.{kind}_pool2d(tanh(%x), {attrs})) }}",
                 tolerance=1e-4)


def test_sharing_tuples_and_lets():
    after = check_slopes("""
        def @main(%x: Tensor[(2, 4), float32]) {
          let %a = exp(%x);
          let %p = split(multiply(%a, %a), indices_or_sections=2, axis=1);
          %0 = (%p.0, tanh(%p.1), %a);
          (multiply(%0.0, %0.1), %0.2)
        }""")
    names = [n.op.name for n in post_order(after["main"]) if hasattr(n, "op")]
    assert names.count("exp") == 1  # the forward value is used by the sweep, not computed again


def test_branches():
    check_slopes("""
        def @main(%x: Tensor[(3,), float32], %y: Tensor[(3,), float32]) {
          %0 = exp(%x);
          %1 = if (less(sum(%x), sum(%y))) {
            if (less(sum(%0), sum(%y))) { multiply(%0, %y) } else { tanh(multiply(%0, %0)) }
          } else { %y };
          multiply(%1, %0)
        }""", seed=3)


@pytest.mark.parametrize("start", [0, 1, 3])
def test_loops_are_recursion(start):
    check_slopes(f"""
        def @main(%x: Tensor[(2,), float32], %w: Tensor[(2,), float32]) {{
          let %loop = fn (%k: Tensor[(), int32], %acc: Tensor[(2,), float32])
              -> Tensor[(2,), float32] {{
            if (less(%k, 3)) {{ %loop(add(%k, 1), tanh(multiply(%acc, %w))) }}
            else {{ multiply(%acc, %x) }}
          }};
          %loop({start}, exp(%x))
        }}""")


def test_closures_and_global_functions():
    after = check_slopes("""
        def @main(%x: Tensor[(2,), float32], %w: Tensor[(2,), float32]) {
          let %step = fn (%y: Tensor[(2,), float32]) { (multiply(%y, %w), exp(%y)) };
          %0 = %step(%x);
          %1 = @twice(%0.1);
          multiply(%0.0, @twice(%1))
        }
        def @twice(%x: Tensor[(2,), float32]) { multiply(tanh(%x), 2f64) }""")
    assert list(after.functions) == ["main", "twice", "twice_vjp"]


def test_a_gradient_of_a_gradient():
    text = "def @main(%x: Tensor[(3,), float64]) { multiply(exp(%x), tanh(%x)) }"
    once = gradient(parse_program(text)["main"])
    x = np.asarray([0.1, 0.5, 0.9])
    from weft.ir.expr import Function, TupleGetItem

    slope = Function(once.params, TupleGetItem(TupleGetItem(once.body, 1), 0))
    twice = gradient(slope)
    _, (second,) = evaluate(twice, [x])
    t, e = np.tanh(x), np.exp(x)
    d1, d2 = 1 - t * t, -2 * t * (1 - t * t)
    np.testing.assert_allclose(second, e * t + 2 * e * d1 + e * d2, rtol=1e-9)


def test_wanted_parameters():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %i: Tensor[(2,), int32], %y: Tensor[(2,), float32]) {
          multiply(%x, %y)
        }""")
    fn = Gradient(with_respect_to=("y",))(mod)["main"]
    assert len(fn.body.fields[1].fields) == 1
    with pytest.raises(PassError, match="cannot differentiate with respect to %i"):
        Gradient(with_respect_to=("i",))(mod)


def test_symbolic_sizes():
    mod = parse_program("def @main(%x: Tensor[(n, 2), float32]) { multiply(exp(%x), %x) }")
    x = np.asarray([[0.5, 1.0], [np.inf, 0.0]], np.float32)
    _, (grad,) = evaluate(Gradient()(mod), [x])
    np.testing.assert_allclose(grad, np.exp(x) * (1 + x), rtol=1e-6)


def test_what_has_no_gradient_is_listed():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 8), float32]) { mine.without_gradient(tanh(%x)) }""")
    with pytest.raises(PassError, match=r"missing gradient of mine\.without_gradient"):
        Gradient()(mod)


def test_long_chains():
    from weft import op
    from weft.ir.expr import Function, var

    x = var("x", (2,))
    y = x
    for _ in range(3000):
        y = op.add(op.tanh(y), x)
    fn = gradient(Function((x,), y))
    assert sum(1 for _ in post_order(fn)) < 60_000


UNREACHED = """
    def @main(%x: Tensor[(3,), float32], %y: Tensor[(3,), float32], %z: Tensor[(3,), float32]) {
      %0 = argmax(exp(tanh(%y)));
      sum(multiply(%x, cast(%0, dtype="float32")))
    }"""


def test_a_parameter_without_derivative_is_an_error_on_request():
    mod = parse_program(UNREACHED)
    _, (_, dy, dz) = evaluate(Gradient()(mod), [np.ones(3, np.float32)] * 3)
    assert not dy.any()
    assert not dz.any()
    with pytest.raises(PassError) as error:
        Gradient(unused="error")(mod)
    assert "%y, %z" in error.value.what
    text = "\n".join(error.value.notes)
    assert "%z: the result does not use it" in text
    assert re.search(r"argmax at .*:3:\d+.*; its operand is exp\(tanh\(%y\)\)", text)
    Gradient(unused="error", with_respect_to=("x",))(mod)


def test_cotangents():
    mod = parse_program("""
        def @main(%cotangent: Tensor[(3,), float32]) { multiply(%cotangent, %cotangent) }""")
    x, dy = np.asarray([1, 2, 3], np.float32), np.asarray([1, 0, 5], np.float32)
    after = Gradient(cotangent="parameter")(mod)
    assert [p.name for p in after["main"].params] == ["cotangent", "cotangent_"]
    _, (grad,) = evaluate(after, [x, dy])
    np.testing.assert_allclose(grad, 2 * x * dy)
    with pytest.raises(PassError, match="needs a cotangent"):
        Gradient(cotangent="scalar")(mod)
    with pytest.raises(OptionError, match="cotangent"):
        Gradient(cotangent="twos")(mod)


def test_auxiliary_results_are_returned_only():
    mod = parse_program("""
        def @main(%x: Tensor[(3,), float32]) { %0 = exp(%x); (sum(%0), %0, argmax(%0)) }""")
    x = np.asarray([1, 2, 3], np.float32)
    (value, aux, place), (grad,) = evaluate(Gradient(cotangent="scalar", has_aux=True)(mod), [x])
    np.testing.assert_allclose(grad, np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(value, aux.sum(), rtol=1e-6)
    assert place == 2
    with pytest.raises(PassError, match="has_aux"):
        Gradient(has_aux=True)(parse_program("def @main(%x: Tensor[(3,), float32]) { exp(%x) }"))


def test_missing_gradients_are_listed_with_their_lines():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 8), float32]) {
          %0 = mine.without_gradient(tanh(%x));
          add(%0, mine.without_gradient(%x))
        }""")
    with pytest.raises(PassError) as error:
        Gradient()(mod)
    places = re.findall(r"mine.without_gradient at .*:(\d+):\d+", "\n".join(error.value.notes))
    assert sorted(places) == ["3", "4"]
