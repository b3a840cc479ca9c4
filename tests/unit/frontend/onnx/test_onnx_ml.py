"""Operators of classic machine learning compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import assert_same, run_weft, some
from weft.frontend.onnx import from_onnx
from weft.support.errors import InvalidModelError, UnsupportedModelError


def ml_model(op: str, arrays: list[np.ndarray], outputs: list[str], **attrs: Any) -> Any:
    inputs = [helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype),
                                            a.shape) for i, a in enumerate(arrays)]
    results = [helper.make_tensor_value_info(
        f"y{i}", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
        for i, kind in enumerate(outputs)]
    node = helper.make_node(op, [i.name for i in inputs], [r.name for r in results],
                            domain="ai.onnx.ml", **attrs)
    return helper.make_model(
        helper.make_graph([node], "one", inputs, results), ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)])


def assert_agrees(op: str, *arrays: np.ndarray, outputs: tuple[str, ...] = ("float32",),
                  compiled: bool = False, **attrs: Any) -> None:
    model = ml_model(op, list(arrays), list(outputs), **attrs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    assert_same(run_weft(model, feeds, compiled=compiled), run_onnxruntime(model, feeds), 1e-5)


def forest(seed: int, features: int, classes: int, depth: int, trees: int, side: str,
           modes: tuple[str, ...] = ("BRANCH_LEQ",), low: float = -1.0) -> dict[str, Any]:
    """Random complete trees, and the weights of their leaves."""
    rng = np.random.default_rng(seed)
    count, leaves = 2 ** (depth + 1) - 1, 2**depth
    nodes: dict[str, Any] = {name: [] for name in (
        "treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
        "missing_value_tracks_true")}
    weights: dict[str, Any] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        for n in range(count):
            is_leaf = n >= count - leaves
            row = (tree, n, 0 if is_leaf else int(rng.integers(features)),
                   "LEAF" if is_leaf else modes[int(rng.integers(len(modes)))],
                   float(np.float32(rng.uniform(-1, 1))), 0 if is_leaf else 2 * n + 1,
                   0 if is_leaf else 2 * n + 2, int(rng.integers(2)))
            for values, value in zip(nodes.values(), row, strict=True):
                values.append(value)
            for label in range(classes) if is_leaf else ():
                one = (tree, n, label, float(np.float32(rng.uniform(low, 1))))
                for values, value in zip(weights.values(), one, strict=True):
                    values.append(value)
    return {**{f"nodes_{name}": values for name, values in nodes.items()},
            **{f"{side}_{name}": values for name, values in weights.items()}}


X = some(7, 5)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_trees_of_several_classes(post):
    assert_agrees("TreeEnsembleClassifier", X, outputs=("int64", "float32"), post_transform=post,
                  classlabels_int64s=[4, 7, 9], **forest(1, 5, 3, 3, 4, "class"))


@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
def test_trees_with_one_score_for_two_classes(post, low):
    """Weights that are not negative are probabilities."""
    attrs = forest(2, 5, 1, 2, 3, "class", low=low)
    attrs["class_weights"] = [w / 3 for w in attrs["class_weights"]]
    if low == 0 and post == "LOGISTIC":
        return  # no trainer writes it
    assert_agrees("TreeEnsembleClassifier", X, outputs=("int64", "float32"), post_transform=post,
                  classlabels_int64s=[3, 8], **attrs)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_trees_of_several_targets_with_missing_values(aggregate):
    x = some(9, 5, seed=3)
    x[::2, 1] = np.nan
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    assert_agrees("TreeEnsembleRegressor", x, n_targets=2, aggregate_function=aggregate,
                  base_values=[0.5, -1.0], compiled=True,
                  **forest(4, 5, 2, 3, 5, "target", modes=modes))


@pytest.mark.parametrize("kind", ["MAX", "L1", "L2"])
def test_features_are_scaled_and_normalised(kind):
    x = np.abs(X)
    x[2] = 0
    assert_agrees("Normalizer", x, norm=kind)
    assert_agrees("Scaler", X, offset=[0.1, 0.2, 0.3, 0.4, 0.5],
                  scale=[2.0, 1.0, 0.5, 3.0, 0.1])


def test_missing_values_are_imputed():
    x = X.copy()
    x[1, 2] = np.nan
    assert_agrees("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0],
                  replaced_value_float=float("nan"))
    ints = np.array([[1, -1], [-1, 4]], np.int64)
    assert_agrees("Imputer", ints, outputs=("int64",), imputed_value_int64s=[7, 8],
                  replaced_value_int64=-1)


def test_categories_and_labels_are_encoded():
    x = np.array([[1, 4], [9, 2]], np.int64)
    assert_agrees("OneHotEncoder", x, cats_int64s=[1, 2, 4], zeros=1)
    assert_agrees("LabelEncoder", x, outputs=("float32",), keys_int64s=[1, 2, 4],
                  values_floats=[0.5, 1.5, 2.5], default_float=-1.0)
    keys = np.array([1.5, np.nan, 2.5], np.float32)
    assert_agrees("LabelEncoder", keys, outputs=("int64",), keys_floats=[np.nan, 1.5],
                  values_int64s=[3, 4], default_int64=-9)
    assert_agrees("FeatureVectorizer", X, X[:, :2], inputdimensions=[5, 2])
    for data in (X, X[0]):
        assert_agrees("ArrayFeatureExtractor", data, np.array([4, 1], np.int64))


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_models(post):
    rng = np.random.default_rng(5)
    weights, bias = rng.uniform(-1, 1, 15).tolist(), rng.uniform(-1, 1, 3).tolist()
    assert_agrees("LinearRegressor", X, coefficients=weights, intercepts=bias, targets=3)
    assert_agrees("LinearClassifier", X, outputs=("int64", "float32"), coefficients=weights,
                  intercepts=bias, classlabels_ints=[2, 5, 6], post_transform=post)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_regression_by_support_vectors(kind):
    rng = np.random.default_rng(6)
    assert_agrees("SVMRegressor", X, coefficients=rng.uniform(-1, 1, 4).tolist(),
                  kernel_params=[0.4, 0.1, 3.0], kernel_type=kind, n_supports=4, rho=[0.3],
                  support_vectors=rng.uniform(-1, 1, 20).tolist())


@pytest.mark.parametrize(("kind", "counts"), [("RBF", [2, 3]), ("POLY", [1, 3, 2, 2])])
def test_classification_by_support_vectors(kind, counts):
    rng = np.random.default_rng(7)
    classes, vectors = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    assert_agrees("SVMClassifier", some(40, 5, seed=8), outputs=("int64", "float32"),
                  classlabels_ints=list(range(3, 3 + classes)), kernel_type=kind,
                  coefficients=rng.uniform(-1, 1, (classes - 1) * vectors).tolist(),
                  kernel_params=[0.4, 0.1, 3.0], rho=rng.uniform(-0.3, 0.3, pairs).tolist(),
                  support_vectors=rng.uniform(-1, 1, vectors * 5).tolist(),
                  vectors_per_class=counts)


def test_a_map_from_classes_to_scores_is_read_as_their_array():
    model = ml_model("ZipMap", [X], ["float32"], classlabels_int64s=list(range(5)))
    entry = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(
        TensorProto.FLOAT, []))
    result = helper.make_value_info("y0", helper.make_sequence_type_proto(entry))
    model.graph.output[0].CopyFrom(result)
    found = run_weft(model, {"x0": X})
    rows = run_onnxruntime(model, {"x0": X})[0]
    np.testing.assert_array_equal(found[0], np.array([list(row.values()) for row in rows]))


def test_strings_are_refused():
    model = ml_model("LinearClassifier", [X], ["int64", "float32"], coefficients=[0.0] * 10,
                     intercepts=[0.0, 0.0], classlabels_strings=["a", "b"])
    with pytest.raises(UnsupportedModelError, match="class labels are strings"):
        from_onnx(model)


@pytest.mark.parametrize(("name", "change", "message"), [
    ("nodes_truenodeids", [99, 3, 5, 0, 0, 0, 0], "no node"),
    ("nodes_featureids", [7, 0, 0, 0, 0, 0, 0], "out of range"),
    ("nodes_truenodeids", [1, 0, 5, 0, 0, 0, 0], "does not lead to"),
    ("target_nodeids", [70, 4, 5, 6], "no node"),
    ("nodes_values", [0.0], "in number"),
])
def test_damaged_trees_are_named(name, change, message):
    attrs = {**forest(7, 5, 1, 2, 1, "target"), name: change}
    with pytest.raises(InvalidModelError, match=message):
        from_onnx(ml_model("TreeEnsembleRegressor", [X], ["float32"], n_targets=1, **attrs))


def test_an_opset_may_be_imported_twice():
    """As skl2onnx does."""
    model = ml_model("Normalizer", [X], ["float32"], norm="L1")
    model.opset_import.add(domain="", version=17)
    assert_same(run_weft(model, {"x0": X}), run_onnxruntime(model, {"x0": X}), 1e-5)
