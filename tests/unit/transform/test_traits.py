"""Passes act on the traits of an operator, so they treat a user's operator like a built-in one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from weft import op, te
from weft.ir import (
    OPS,
    Attrs,
    Commutativity,
    Constant,
    DType,
    Function,
    Homogeneity,
    MixedPrecision,
    NarrowFloatCompute,
    NoAttrs,
    Op,
    OpPattern,
    OpTraits,
    TensorType,
    Var,
    const,
    define_op,
    infer_type,
    op_case,
    parse,
)
from weft.ir.analysis import op_counts
from weft.ir.attrs import attr
from weft.ir.module import IRModule
from weft.ir.op import Case
from weft.ir.rewrite.matcher import match
from weft.ir.rewrite.pattern import any_, var_
from weft.ir.traits import (
    CONTINUOUS,
    MATMUL,
    RESHAPE,
    ZERO_GRADIENT,
)
from weft.ir.typing.relations import broadcast_binary, identity_relation
from weft.op.layout_inference import join_layouts, keep_layout
from weft.support.errors import RegistryError, WeftError
from weft.transform import (
    ComputeInFloat32,
    ConvertLayout,
    EliminateCommonSubexpr,
    EliminateIdentity,
    FoldConstant,
    FuseOps,
    Gradient,
    Recompute,
    SimplifyExpr,
    ToMixedPrecision,
)
from weft.transform.analysis.reference import evaluate
from weft.transform.passes.fold_scale_axis import BackwardFoldScaleAxis
from weft.transform.rules.scale_links import carried_operand

_CASES: tuple[Case, ...] = (op_case((2, 3)),)


@pytest.fixture(autouse=True)
def only_built_in_operators_afterwards():
    """Remove the operators that a test registers."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        OPS.remove(name)


@dataclass(frozen=True, kw_only=True)
class OutDtypeAttrs(Attrs):
    out_dtype: DType | None = attr(None, "dtype of the result")


def _unary(
    name: str,
    traits: OpTraits,
    pattern: OpPattern = OpPattern.ELEMWISE,
    attrs: type[Attrs] = NoAttrs,
) -> Op:
    """``mine.<name>``: an elementwise operator that returns its argument."""
    full = f"mine.{name}"

    def compute(x: te.Tensor, attrs):
        """Its argument."""
        return te.compute(x.shape, lambda *i: x[i])

    operator = define_op(full, relation=identity_relation, pattern=pattern, inputs=("x",),
                         attrs=attrs, traits=traits)(compute)
    operator.spec(np.copy, *_CASES)
    return operator


def _binary(name: str, traits: OpTraits) -> Op:
    full = f"mine.{name}"

    def compute(x: te.Tensor, y: te.Tensor, attrs):
        """The sum."""
        return te.compute(x.shape, lambda *i: x[i] + y[i])

    operator = define_op(full, relation=broadcast_binary(), pattern=OpPattern.BROADCAST,
                         traits=traits)(compute)
    operator.spec(np.add, op_case((2, 3), (2, 3)))
    return operator


def _calls(mod: IRModule, name: str) -> int:
    return op_counts(mod).get(name, 0)


def _typed(body: str, params: str = "%x: Tensor[(2, 3), float32]") -> IRModule:
    return infer_type(parse(f"def @main({params}) {{ {body} }}"))


@pytest.mark.parametrize(("commutative", "dtype", "calls"), [
    (Commutativity.NONE, "float32", 2), (Commutativity.BITWISE, "float32", 1),
    (Commutativity.NUMERIC, "float32", 2), (Commutativity.NUMERIC, "int32", 1),
])
def test_common_subexpressions_exchange_operands_of_commutative_operators(
    commutative, dtype, calls
):
    operator = _binary(f"join_{commutative.name.lower()}", OpTraits(commutative=commutative))
    type_ = f"Tensor[(2, 3), {dtype}]"
    mod = _typed(f"multiply({operator.name}(%x, %y), {operator.name}(%y, %x))",
                 f"%x: {type_}, %y: {type_}")
    assert _calls(EliminateCommonSubexpr()(mod), operator.name) == calls


def test_patterns_exchange_operands_of_commutative_operators():
    yes = _binary("join_bitwise", OpTraits(commutative=Commutativity.BITWISE))
    no = _binary("join_none", OpTraits())
    x, y = _typed("%x", "%x: Tensor[(2, 3), float32]")["main"].params[0], any_("y")
    assert match(yes(y, var_("x")), yes(x, x + x)) is not None
    assert match(no(y, var_("x")), no(x, x + x)) is None


def test_a_reshape_needs_no_kernel_and_merges_with_other_reshapes():
    view = _unary("view", RESHAPE, OpPattern.INJECTIVE)
    mod = _typed(f"exp({view.name}(%x))")
    assert "primitive=True" in str(FuseOps()(mod))
    kernel = str(FuseOps()(mod)).split("primitive=True")[1].split("}")[0]
    assert view.name not in kernel
    assert _calls(SimplifyExpr()(mod), view.name) == 0
    merged = SimplifyExpr()(_typed(f"{view.name}(reshape(%x, newshape=(3, 2)))"))
    assert op_counts(merged) == {"reshape": 1}


def test_an_annotation_is_kept_though_it_reshapes_nothing():
    traits = OpTraits(is_reshape=True, is_annotation=True)
    assert not traits.is_removable_reshape
    assert RESHAPE.is_removable_reshape
    mark = _unary("mark", traits, OpPattern.OPAQUE)
    assert _calls(SimplifyExpr()(_typed(f"{mark.name}(%x)")), mark.name) == 1


def test_an_identity_at_the_same_type_is_eliminated():
    same = _unary("same", OpTraits(is_identity_at_same_type=True))
    other = _unary("other", OpTraits())
    mod = _typed(f"{other.name}({same.name}(%x))")
    assert op_counts(EliminateIdentity()(mod)) == {other.name: 1}


def test_a_creation_operator_is_folded_whatever_its_size():
    small = FoldConstant(max_bytes=1, max_growth=0)
    made = _unary("made", OpTraits(is_creation=True))
    other = _unary("other", OpTraits())
    mod = _typed(f"{made.name}(2f) + {other.name}(2f)")
    assert op_counts(small(mod)) == {"add": 1, other.name: 1}


def test_an_operator_with_zero_gradient_needs_no_rule():
    step = _unary("step", ZERO_GRADIENT)
    grad = Gradient()(_typed(f"multiply({step.name}(%x), %x)"))
    assert _calls(grad, step.name) >= 1
    ruleless = _unary("other", OpTraits())
    with pytest.raises(WeftError, match="gradient"):
        Gradient()(_typed(f"multiply({ruleless.name}(%x), %x)"))


def test_a_gradient_rule_wins_over_a_derivative_of_zero():
    step = _unary("straight_through", ZERO_GRADIENT)
    step.gradient(lambda _call, _y, dy: [dy * const(3.0)])
    mod = _typed(f"multiply({step.name}(%x), const([2], (1,), float32))")
    x = np.ones((2, 3), np.float32)
    _, (grad,) = evaluate(Gradient()(mod), [x])
    np.testing.assert_array_equal(grad, 6 * x)


@pytest.mark.parametrize(("trait", "inputs", "attrs", "fits"), [
    (OpTraits(commutative=Commutativity.BITWISE), ("x",), NoAttrs, False),
    (OpTraits(commutative=Commutativity.NUMERIC), ("x", "y", "z"), NoAttrs, False),
    (OpTraits(commutative=Commutativity.NUMERIC), ("x", "y"), NoAttrs, True),
    (OpTraits(is_reshape=True), ("x", "shape"), NoAttrs, False),
    (OpTraits(is_reshape=True), ("*xs",), NoAttrs, False),
    (OpTraits(is_identity_at_same_type=True), (), NoAttrs, False),
    (OpTraits(is_identity_at_same_type=True), ("x", "pad_value"), NoAttrs, True),
    (OpTraits(homogeneity=Homogeneity.POSITIVE), ("*xs",), NoAttrs, False),
    (OpTraits(mixed_precision=MixedPrecision.ALWAYS), ("x",), NoAttrs, False),
    (OpTraits(narrow_floats=NarrowFloatCompute.ACCUMULATOR), ("x",), NoAttrs, False),
    (MATMUL, ("x",), OutDtypeAttrs, True),
])
def test_traits_must_fit_the_inputs_and_attributes(trait, inputs, attrs, fits):
    def compute(*args):
        """Unused."""

    define = define_op("mine.checked", attrs=attrs, relation=identity_relation, inputs=inputs,
                       traits=trait)
    if fits:
        assert define(compute).inputs == inputs
        return
    with pytest.raises(RegistryError, match="does not fit operator 'mine\\.checked'"):
        define(compute)
    assert "mine.checked" not in OPS


def test_recompute_keeps_expensive_values():
    cheap, dear = _unary("cheap", OpTraits()), _unary("dear", OpTraits(is_expensive=True))
    for operator, calls in ((cheap, 2), (dear, 1)):
        graph = _typed(f"%0 = {operator.name}(%x); multiply(nn.softmax(nn.softmax(%0)), %0)")
        assert _calls(Recompute(distance=2)(graph), operator.name) == calls


@pytest.mark.parametrize(("homogeneity", "passes"), [
    (Homogeneity.NONE, False), (Homogeneity.POSITIVE, True), (Homogeneity.ANY_SCALE, True),
])
def test_scales_pass_through_homogeneous_operators(homogeneity, passes):
    operator = _unary(f"scaled_{homogeneity.name.lower()}", OpTraits(homogeneity=homogeneity))
    call = _typed(f"{operator.name}(%x)")["main"].body
    assert (carried_operand(call) is not None) == passes


@pytest.mark.parametrize(("homogeneity", "scale", "products"), [
    (Homogeneity.POSITIVE, 2, 0), (Homogeneity.POSITIVE, -2, 1), (Homogeneity.ANY_SCALE, -2, 0),
    (Homogeneity.NONE, 2, 1),
])
def test_a_scale_folds_into_weights_through_a_homogeneous_operator(homogeneity, scale, products):
    operator = _unary(f"scaled_{homogeneity.name.lower()}", OpTraits(homogeneity=homogeneity))
    x = Var("x", TensorType((2, 3), DType.of("float32")))
    weight = Constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    scaled = operator(op.nn.dense(x, weight)) * const(float(scale))
    mod = infer_type(IRModule({"main": Function((x,), scaled)}))
    assert _calls(BackwardFoldScaleAxis()(mod), "multiply") == products


@pytest.mark.parametrize("conversion", list(MixedPrecision))
def test_mixed_precision_obeys_the_trait(conversion):
    operator = _unary(f"mixed_{conversion.name.lower()}", OpTraits(mixed_precision=conversion),
                      attrs=OutDtypeAttrs)
    mod = _typed(f"{operator.name}(nn.dense(%x, %w))",
                 "%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]")
    call = ToMixedPrecision()(mod)["main"].body
    in_low = call.op.name == "cast"  # the result of the function keeps its type
    assert in_low == (conversion is not MixedPrecision.NEVER)
    overruled = ToMixedPrecision(never=(operator.name,))(mod)["main"].body
    assert overruled.op is operator


@pytest.mark.parametrize("compute", [NarrowFloatCompute.AS_STORED, NarrowFloatCompute.FLOAT32])
def test_kernels_on_narrow_floats_obey_the_trait(compute):
    operator = _unary(f"narrow_{compute.name.lower()}", OpTraits(narrow_floats=compute))
    mod = FuseOps()(_typed(f"{operator.name}(%x)", "%x: Tensor[(2, 3), float16]"))
    casts = _calls(ComputeInFloat32()(mod), "cast")
    assert casts == (2 if compute is NarrowFloatCompute.FLOAT32 else 0)


def test_declared_traits_are_those_that_differ_from_the_default():
    assert dict(OpTraits().declared()) == {}
    assert dict(replace(CONTINUOUS, is_expensive=True).declared()) == {
        "is_expensive": "yes", "narrow_floats": "float32"}
    assert dict(OPS.get("nn.matmul").traits.declared()) == dict(MATMUL.declared())


def test_convert_layout_passes_through_operators_of_a_user_with_layout_inference():
    unary, binary = _unary("passes", OpTraits()), _binary("joins", OpTraits())
    unary.layout(keep_layout)
    binary.layout(join_layouts)
    image = "Tensor[(1, 2, 4, 4), float32]"
    kernel = "Tensor[(2, 2, 1, 1), float32]"
    mod = _typed(f"%0 = {unary.name}(nn.conv2d(%x, %w)); {binary.name}(nn.conv2d(%0, %w), %0)",
                 f"%x: {image}, %w: {kernel}")
    after = ConvertLayout(layouts=("nn.conv2d:NHWC",))(mod)
    assert _calls(after, "transpose") == 2  # of the input and the result alone
