"""Converters of what prepares features and labels."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.onnx.ml.naming import as_float, classic, floats, indices
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Constant, Expr


@converts(classic("ArrayFeatureExtractor"))
def array_feature_extractor(node: Node) -> Expr:
    """Take elements of the last axis at the given indices; a vector is a single row."""
    positions = reshape_to(node, node.input(1), (-1,))
    x = node.input(0) if node.rank() > 1 else reshape_to(node, node.input(0), (1, -1))
    return node.call(op.take, x, positions, axis=max(node.rank(), 2) - 1, mode="clip")


@converts(classic("Binarizer"), attributes=("threshold",))
def binarizer(node: Node) -> Expr:
    """1 above the threshold, else 0."""
    x = node.input(0)
    above = node.call(op.greater, x, node.scalar_like(node.attrs.number("threshold", 0.0), x))
    return node.call(op.cast, above, dtype=node.dtype().name)


@converts(classic("Scaler"), attributes=("offset", "scale"))
def scaler(node: Node) -> Expr:
    """(x - offset) * scale, with one number for all features or one for each."""
    x = as_float(node)
    offset, scale = floats(node, "offset"), floats(node, "scale")
    width = node.shape()[-1]
    for name, values in (("offset", offset), ("scale", scale)):
        if len(values) not in (1, width):
            raise node.fail(f"attribute {name!r} has the wrong length", expected=f"1 or {width}",
                            got=str(len(values)))
    moved = node.call(op.subtract, x, Constant(offset, span=node.span))
    return node.call(op.multiply, moved, Constant(scale, span=node.span))


@converts(classic("Normalizer"), only={"norm": ("MAX", "L1", "L2")})
def normalizer(node: Node) -> Expr:
    """Each row divided by its norm; rows of norm 0 stay."""
    x = as_float(node)
    norm = node.attrs.text("norm", "MAX")
    axis = node.rank() - 1
    if norm == "MAX":
        size = node.call(op.max, x, axis=(axis,), keepdims=True)
    elif norm == "L1":
        size = node.call(op.sum, node.call(op.abs, x), axis=(axis,), keepdims=True)
    else:
        squares = node.call(op.sum, node.call(op.multiply, x, x), axis=(axis,), keepdims=True)
        size = node.call(op.sqrt, squares)
    zero, one = node.scalar_like(0, x), node.scalar_like(1, x)
    size = node.call(op.where, node.call(op.equal, size, zero), one, size)
    return node.call(op.divide, x, size)


@converts(classic("OneHotEncoder"), attributes=("cats_int64s", "cats_strings", "zeros"))
def one_hot_encoder(node: Node) -> Expr:
    """A new last axis with 1 at the category; others are rows of zeros."""
    if node.attrs.texts("cats_strings"):
        raise node.unsupported("its categories are strings, which are no tensors",
                               help="encode the categories as integers before the model")
    if not node.attrs.flag("zeros", default=True):
        raise node.unsupported("unknown categories are errors (zeros=0), not rows of zeros")
    categories = indices(node, "cats_int64s")
    x = node.call(op.cast, node.input(0), dtype="int64")
    each = node.call(op.expand_dims, x, axis=node.rank())
    hit = node.call(op.equal, each, Constant(categories, span=node.span))
    return node.call(op.cast, hit, dtype="float32")


@converts(classic("Imputer"), attributes=(
    "imputed_value_floats", "imputed_value_int64s", "replaced_value_float",
    "replaced_value_int64"))  # fmt: skip
def imputer(node: Node) -> Expr:
    """Values that stand for missing ones, replaced; NaN may be such a value."""
    x = node.input(0)
    if node.dtype().is_float:
        values: np.ndarray = floats(node, "imputed_value_floats")
        missing = node.attrs.number("replaced_value_float", 0.0)
    else:
        values = indices(node, "imputed_value_int64s")
        missing = node.attrs.integer("replaced_value_int64", 0)
    if len(values) not in (1, node.shape()[-1]):
        raise node.fail("the imputed values do not fit the features", got=str(len(values)),
                        expected=f"1 or {node.shape()[-1]}")
    is_missing = node.call(op.isnan, x) if np.isnan(missing) else \
        node.call(op.equal, x, node.scalar_like(missing, x))
    given = Constant(values.astype(node.dtype().numpy), span=node.span)
    return node.call(op.where, is_missing, given, x)


@converts(classic("FeatureVectorizer"), attributes=("inputdimensions",))
def feature_vectorizer(node: Node) -> Expr:
    """The inputs joined along the features, as float32."""
    parts = [as_float(node, i) for i in range(max(1, len(node.inputs)))]
    return node.tuple_call(op.concatenate, parts, axis=1)


_SIDES = ("int64s", "floats", "strings")


@converts(classic("LabelEncoder"), since=2, attributes=(
    *(f"{side}_{kind}" for side in ("keys", "values") for kind in _SIDES), "keys_tensor",
    "values_tensor", "default_int64", "default_float", "default_string",
    "default_tensor"))  # fmt: skip
def label_encoder(node: Node) -> Expr:
    """The value of the key that equals an element, or the default."""
    keys, values = _side(node, "keys"), _side(node, "values")
    if len(keys) != len(values) or not len(keys):
        raise node.fail("keys and values differ in number", got=f"{len(keys)} and {len(values)}")
    if "default_tensor" in node.attrs:
        raise node.unsupported("its default is a tensor")
    default = node.attrs.integer("default_int64", -1) if values.dtype.kind == "i" \
        else node.attrs.number("default_float", -0.0)
    x = node.input(0)
    result: Expr = Constant(np.asarray(default, values.dtype), span=node.span)
    each = node.call(op.expand_dims, x, axis=node.rank())
    line = Constant(keys.astype(node.dtype().numpy), span=node.span)
    hit = node.call(op.equal, each, line)
    if keys.dtype.kind == "f" and np.isnan(keys).any() and node.opset >= 4:
        # From that version of the domain on NaN is a key, which equals NaN.
        both = node.call(op.logical_and, node.call(op.isnan, each), node.call(op.isnan, line))
        hit = node.call(op.logical_or, hit, both)
    first = node.call(op.argmax, node.call(op.cast, hit, dtype="int32"), axis=(-1,))
    found = node.call(op.take, Constant(values, span=node.span), first, axis=0)
    return node.call(op.where, node.call(op.any, hit, axis=(-1,)), found, result)


def _side(node: Node, side: str) -> np.ndarray:
    if f"{side}_tensor" in node.attrs or node.attrs.texts(f"{side}_strings") is not None:
        raise node.unsupported(f"its {side} are a tensor or strings, which have no kernels",
                               help="map strings to integers before the model")
    numbers = node.attrs.integers(f"{side}_int64s")
    return np.array(numbers, np.int64) if numbers is not None else floats(node, f"{side}_floats")


@converts(classic("ZipMap"), attributes=("classlabels_int64s", "classlabels_strings"))
def zip_map(node: Node) -> Expr:
    """The scores themselves, a column per class: a compiled model has arrays, not dictionaries."""
    return node.input(0)
