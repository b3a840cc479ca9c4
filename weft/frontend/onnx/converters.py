"""All converters of ONNX operators, and ``weft.onnx_converter`` for those of users.

The modules with the converters of weft, which those of users replace, are imported when a model
has one of their operators: most models have few kinds of operators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.frontend.common.user_converters import (
    C,
    UserConverter,
    attribute_names,
    most_inputs,
    required_attributes,
    typed_results,
)
from weft.frontend.onnx.node import Attributes, Node
from weft.frontend.onnx.protos import AttributeProto
from weft.frontend.onnx.registry import CONVERTERS, register
from weft.frontend.onnx.tensors import tensor_to_numpy
from weft.ir.expr import Expr
from weft.support.errors import RegistryError

# The module of the converters of each operator, which is imported when a model has the operator.
MODULES = {
    "contrib.activations": (
        "com.microsoft::BiasAdd com.microsoft::BiasGelu com.microsoft::BiasSplitGelu "
        "com.microsoft::FastGelu com.microsoft::Gelu com.microsoft::QuickGelu"
    ),
    "contrib.group_query": "com.microsoft::GroupQueryAttention com.microsoft::RotaryEmbedding",
    "contrib.matmuls": (
        "com.microsoft::FusedConv com.microsoft::FusedGemm com.microsoft::FusedMatMul "
        "com.microsoft::FusedMatMulActivation com.microsoft::TransposeMatMul"
    ),
    "contrib.multi_head": "com.microsoft::Attention com.microsoft::MultiHeadAttention",
    "contrib.n_bits": "com.microsoft::GatherBlockQuantized com.microsoft::MatMulNBits",
    "contrib.norms": (
        "SimplifiedLayerNormalization com.microsoft::EmbedLayerNormalization "
        "com.microsoft::GroupNorm com.microsoft::SimplifiedLayerNormalization "
        "com.microsoft::SkipGroupNorm com.microsoft::SkipLayerNormalization "
        "com.microsoft::SkipSimplifiedLayerNormalization"
    ),
    "ml.features": (
        "ai.onnx.ml::ArrayFeatureExtractor ai.onnx.ml::Binarizer ai.onnx.ml::FeatureVectorizer "
        "ai.onnx.ml::Imputer ai.onnx.ml::LabelEncoder ai.onnx.ml::Normalizer "
        "ai.onnx.ml::OneHotEncoder ai.onnx.ml::Scaler ai.onnx.ml::ZipMap"
    ),
    "ml.linear": "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor",
    "ml.svm": "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor",
    "ml.trees": "ai.onnx.ml::TreeEnsembleClassifier ai.onnx.ml::TreeEnsembleRegressor",
    "ops.activation": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu LogSoftmax Mish PRelu Selu Shrink Softmax "
        "Softplus Softsign ThresholdedRelu"
    ),
    "ops.cast": "BitCast Cast CastLike",
    "ops.constant": "Constant ConstantOfShape Expand Range Shape Size",
    "ops.control": "If Loop",
    "ops.conv": "Conv",
    "ops.conv_volume": "ConvTranspose",
    "ops.determinant": "Det",
    "ops.einsum": "Einsum",
    "ops.elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
        "BitwiseXor Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual Identity "
        "IsInf IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Neg Not Or Pow Reciprocal Relu "
        "Round Sigmoid Sign Sin Sinh Sqrt Sub Sum Tan Tanh Where Xor"
    ),
    "ops.fold": "Col2Im",
    "ops.gather": (
        "GatherElements GatherND OneHot ReverseSequence Scatter ScatterElements ScatterND "
        "TensorScatter"
    ),
    "ops.gradient": "ai.onnx.preview.training::Gradient",
    "ops.grid": "GridSample",
    "ops.index": "Concat Gather Pad Slice Split",
    "ops.integer": "ConvInteger MatMulInteger QLinearConv QLinearMatMul",
    "ops.linear": "Gemm MatMul",
    "ops.norm": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
        "LpNormalization MeanVarianceNormalization"
    ),
    "ops.order": "CumProd CumSum EyeLike Hardmax Tile TopK Trilu",
    "ops.pool": "AveragePool GlobalAveragePool GlobalMaxPool LpPool MaxPool",
    "ops.qlinear": (
        "com.microsoft::DequantizeLinear com.microsoft::DynamicQuantizeMatMul "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::QGemm com.microsoft::QLinearAdd "
        "com.microsoft::QLinearAveragePool com.microsoft::QLinearConcat "
        "com.microsoft::QLinearGlobalAveragePool com.microsoft::QLinearLeakyRelu "
        "com.microsoft::QLinearMul com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid "
        "com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere com.microsoft::QuantizeLinear"
    ),
    "ops.quantize": "DequantizeLinear QuantizeLinear",
    "ops.random": (
        "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform "
        "RandomUniformLike"
    ),
    "ops.recurrent": "GRU LSTM RNN",
    "ops.reduce": "ArgMax ArgMin ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
    "ops.reduce_derived": (
        "GlobalLpPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
    ),
    "ops.resize": "Resize Upsample",
    "ops.scan": "Scan",
    "ops.search": "Compress NonZero Unique",
    "ops.sequence": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt "
        "SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "SplitToSequence"
    ),
    "ops.shape": "Flatten Reshape Squeeze Transpose Unsqueeze",
    "ops.space": "DepthToSpace SpaceToDepth",
    "ops.spectrum": "DFT MelWeightMatrix STFT",
    "ops.text_counts": "TfIdfVectorizer",
    "ops.training": (
        "ai.onnx.preview.training::Adagrad ai.onnx.preview.training::Adam "
        "ai.onnx.preview.training::Momentum"
    ),
    "ops.unpool": "MaxUnpool",
    "ops.vision": "DeformConv NonMaxSuppression RoiAlign",
}

CONVERTERS.load_lazily({f"weft.frontend.onnx.{module}": names for module, names in MODULES.items()})

_MANY = 1 << 20


def onnx_converter(name: str, *, since: int = 1) -> Callable[[C], C]:
    """Register the decorated function as the converter of an ONNX operator.

    ``name`` is ``"domain::Operator"``, without a domain for ONNX's own operators; the converter is
    used from opset ``since`` of the domain on, and replaces weft's of the same opset. The function
    is ``convert(node, *inputs, **attributes)``: inputs as typed expressions, ``None`` for omitted
    ones; attributes, its keyword-only parameters, as numbers, texts, tuples of them, and arrays.
    It returns the result, or a sequence of results, as expressions. ``weft.torch_converter`` is the
    same for torch (docs/tutorials/add_converter.md).
    """
    if not name or name.endswith("::"):
        raise RegistryError("not the name of an operator", got=repr(name),
                            expected='such as "my.domain::Twice"')

    def wrap(function: C) -> C:
        register(name, _converter(function), since=since, attributes=attribute_names(function),
                 outputs=_MANY)
        return function

    return wrap


def _converter(function: UserConverter) -> Callable[[Node], Sequence[Expr]]:
    most, required = most_inputs(function), required_attributes(function)

    @functools.wraps(function)
    def convert(node: Node) -> Sequence[Expr]:
        inputs = [node.input(i) if node.has_input(i) else None for i in range(len(node.inputs))]
        if most is not None:
            if len(inputs) > most:
                raise node.fail("more inputs than the converter takes", expected=str(most),
                                got=str(len(inputs)))
            inputs += [None] * (most - len(inputs))
        given = {name: _value(node, name) for name in node.attrs.values}
        for name in required:
            if name not in given:
                raise node.fail(f"attribute {name!r} is missing")
        return typed_results(function(node, *inputs, **given), node.op, node.span)

    return convert


def _value(node: Node, name: str) -> Any:
    """An attribute in the type that the file gives it."""
    attrs: Attributes = node.attrs
    kind = attrs.values[name].type
    if kind == AttributeProto.TENSOR:
        tensor = attrs.tensor(name)
        return None if tensor is None else tensor_to_numpy(tensor, node.folder, str(node.span))
    readers: dict[int, Callable[[], Any]] = {
        AttributeProto.INT: lambda: attrs.integer(name, 0),
        AttributeProto.INTS: lambda: attrs.integers(name),
        AttributeProto.FLOAT: lambda: attrs.number(name, 0.0),
        AttributeProto.FLOATS: lambda: attrs.numbers(name),
        AttributeProto.STRING: lambda: attrs.text(name, ""),
        AttributeProto.STRINGS: lambda: attrs.texts(name),
    }
    if kind not in readers:
        raise node.fail(f"attribute {name!r} is neither a number, a text nor a tensor")
    return readers[kind]()
