"""Converters of ensembles of trees: all trees of all samples go down one level at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.ml.naming import (
    POST_TRANSFORMS,
    as_float,
    both_classes,
    class_labels,
    classic,
    floats,
    indices,
    labelled,
    transformed,
)
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.ir.expr import Constant, Expr
from weft.support.dataclass import dataclass

_LEAF = "LEAF"
_MODES = {"BRANCH_LEQ": op.less_equal, "BRANCH_LT": op.less, "BRANCH_GTE": op.greater_equal,
          "BRANCH_GT": op.greater, "BRANCH_EQ": op.equal, "BRANCH_NEQ": op.not_equal}
_OF_NODES = ("nodes_falsenodeids", "nodes_featureids", "nodes_hitrates",
             "nodes_missing_value_tracks_true", "nodes_modes", "nodes_nodeids", "nodes_treeids",
             "nodes_truenodeids", "nodes_values", "base_values")
_AGGREGATES = ("SUM", "AVERAGE")


@dataclass(frozen=True, slots=True)
class _Forest:
    """The nodes of all trees in one row; the children of a leaf are itself."""

    roots: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    features: np.ndarray
    values: np.ndarray
    modes: tuple[str, ...]
    tracks: np.ndarray
    depth: int
    positions: dict[tuple[int, int], int]

    @property
    def is_leaf(self) -> np.ndarray:
        """Which nodes are leaves."""
        return np.array([mode == _LEAF for mode in self.modes])


def _forest(node: Node, width: int) -> _Forest:
    modes = node.attrs.texts("nodes_modes") or ()
    count = len(modes)
    unknown = sorted(set(modes) - {*_MODES, _LEAF})
    if not count or unknown:
        raise node.fail("unknown modes of nodes", got=", ".join(unknown) or "none",
                        expected=", ".join((*_MODES, _LEAF)))
    trees, ids = (indices(node, f"nodes_{n}ids", count) for n in ("tree", "node"))
    positions = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    if len(positions) < count:
        raise node.fail("a node is given twice")
    is_leaf = np.array([mode == _LEAF for mode in modes])
    sides = [_children(node, name, trees, positions, is_leaf)
             for name in ("nodes_truenodeids", "nodes_falsenodeids")]
    features = indices(node, "nodes_featureids", count)
    if not ((features >= 0) & (features < width))[~is_leaf].all():
        raise node.fail("a feature is out of range", expected=f"0 to {width - 1}",
                        got=str(features.max()))
    values = floats(node, "nodes_values")
    tracks = indices(node, "nodes_missing_value_tracks_true")
    if len(values) != count or len(tracks) not in (0, count):
        raise node.fail("the values of nodes differ from them in number",
                        expected=str(count), got=f"{len(values)}, {len(tracks)}")
    roots = _roots(node, trees, sides)
    return _Forest(roots, sides[0], sides[1], np.where(is_leaf, 0, features), values, modes,
                   tracks if len(tracks) else np.zeros(len(trees), np.int64),
                   _depth(node, roots, sides, is_leaf), positions)


def _children(node: Node, name: str, trees: np.ndarray, positions: dict[tuple[int, int], int],
              is_leaf: np.ndarray) -> np.ndarray:
    ids = indices(node, name, len(trees))
    try:
        return np.array([i if leaf else positions[tree, child] for i, (tree, child, leaf) in
                         enumerate(zip(trees.tolist(), ids.tolist(), is_leaf, strict=True))],
                        np.int64)
    except KeyError as error:
        raise node.fail("a branch leads to no node", got=str(error)) from None


def _roots(node: Node, trees: np.ndarray, sides: Sequence[np.ndarray]) -> np.ndarray:
    """The first node of each tree, which no other node of it leads to."""
    own = np.arange(len(trees))
    led_to = {int(c) for side in sides for i, c in zip(own, side, strict=True) if c != i}
    roots = [int(i) for i in own if int(i) not in led_to]
    if len(roots) != len(set(trees.tolist())):
        raise node.fail("a tree has no root, or several", got=f"{len(roots)} roots",
                        expected=f"{len(set(trees.tolist()))} trees")
    return np.array(roots, np.int64)


def _depth(node: Node, roots: np.ndarray, sides: Sequence[np.ndarray], is_leaf: np.ndarray) -> int:
    """The longest way to a leaf; a circle is an error."""
    level, depth = set(roots.tolist()), 0
    reached = set(level)
    while any(not is_leaf[i] for i in level):
        if depth > len(is_leaf):
            raise node.fail("the branches of a tree form a circle")
        level = {int(side[i]) for i in level if not is_leaf[i] for side in sides}
        reached |= level
        depth += 1
    if len(reached) < len(is_leaf):
        raise node.fail("a tree has nodes that its root does not lead to",
                        got=f"{len(is_leaf) - len(reached)} nodes")
    return depth


def _leaves(node: Node, forest: _Forest) -> Expr:
    """The leaf that each sample reaches in each tree: [samples, trees]."""
    x = as_float(node)
    first = Constant(forest.roots.reshape(1, -1), span=node.span)
    zeros = node.call(op.cast, node.call(op.zeros_like, node.call(
        op.strided_slice, x, begin=(0,), end=(1,), axes=(1,))), dtype="int64")
    at = node.call(op.add, zeros, first)
    for _ in range(forest.depth):
        at = _step(node, forest, x, at)
    return at


def _step(node: Node, forest: _Forest, x: Expr, at: Expr) -> Expr:
    def look_up(table: np.ndarray) -> Expr:
        return node.call(op.take, Constant(table, span=node.span), at, axis=0)

    value = node.call(op.gather, x, look_up(forest.features), axis=1)
    threshold = look_up(forest.values)
    kinds = sorted(set(forest.modes) - {_LEAF})
    goes: Expr = node.call(_MODES[kinds[0]], value, threshold)
    for kind in kinds[1:]:
        is_kind = look_up(np.array([mode == kind for mode in forest.modes]))
        goes = node.call(op.where, is_kind, node.call(_MODES[kind], value, threshold), goes)
    if forest.tracks.any():
        tracks = node.call(op.logical_and, node.call(op.isnan, value),
                           look_up(forest.tracks.astype(bool)))
        goes = node.call(op.logical_or, goes, tracks)
    return node.call(op.where, goes, look_up(forest.yes), look_up(forest.no))


def _weights(node: Node, forest: _Forest, side: str, columns: int) -> np.ndarray:
    """What each node adds to each target: [nodes, targets]."""
    weights = floats(node, f"{side}_weights")
    count = len(weights)
    targets = indices(node, f"{side}_ids", count, columns)
    trees, ids = (indices(node, f"{side}_{n}ids", count) for n in ("tree", "node"))
    table = arrays.zeros((len(forest.modes), columns), np.float32)
    try:
        rows = [forest.positions[key] for key in zip(trees.tolist(), ids.tolist(), strict=True)]
    except KeyError as error:
        raise node.fail("a weight is that of no node", got=str(error)) from None
    np.add.at(table.reshape(-1), np.array(rows, np.int64) * columns + targets, weights)
    return table


def _summed(node: Node, side: str, columns: int) -> Expr:
    """The sums of the weights of the leaves, and the base values: [samples, targets]."""
    width = node.shape()[-1]
    if node.rank() != 2 or not isinstance(width, int):
        raise node.unsupported("samples with an unknown number of features")
    forest = _forest(node, width)
    table = Constant(_weights(node, forest, side, columns), span=node.span)
    each = node.call(op.take, table, _leaves(node, forest), axis=0)
    total = node.call(op.sum, each, axis=(1,))
    if side == "target" and node.attrs.text("aggregate_function", "SUM") == "AVERAGE":
        total = node.call(op.divide, total, node.scalar_like(len(forest.roots), total))
    base = floats(node, "base_values")
    if len(base) and len(base) not in (1, columns):
        raise node.fail("the base values do not fit the targets", expected=str(columns),
                        got=str(len(base)))
    return node.call(op.add, total, Constant(base, span=node.span)) if len(base) else total


@converts(classic("TreeEnsembleRegressor"), attributes=(
    *_OF_NODES, "n_targets", "target_ids", "target_nodeids", "target_treeids", "target_weights"),
    only={"aggregate_function": _AGGREGATES, "post_transform": POST_TRANSFORMS})  # fmt: skip
def tree_ensemble_regressor(node: Node) -> Expr:
    scores = _summed(node, "target", node.attrs.integer("n_targets", 1))
    return transformed(node, scores, node.attrs.text("post_transform", "NONE"))


@converts(classic("TreeEnsembleClassifier"), attributes=(
    *_OF_NODES, "class_ids", "class_nodeids", "class_treeids", "class_weights",
    "classlabels_int64s", "classlabels_strings"),
    only={"post_transform": POST_TRANSFORMS}, outputs=2)  # fmt: skip
def tree_ensemble_classifier(node: Node) -> Sequence[Expr]:
    """The label of the highest score, and the scores.

    Where the trees give one score for two classes, it is that of the second one. The first one has
    what is left of 1 if no weight is negative, else the negative score.
    """
    labels = class_labels(node)
    kind = node.attrs.text("post_transform", "NONE")
    ids = indices(node, "class_ids", None, len(labels))
    if len(labels) != 2 or ids.any():
        scores = _summed(node, "class", len(labels))
        best = node.call(op.argmax, scores, axis=(1,))
        return labelled(node, best, labels), transformed(node, scores, kind)
    score = _summed(node, "class", 1)
    is_probability = bool((floats(node, "class_weights") >= 0).all())
    limit = node.scalar_like(0.5 if is_probability else 0, score)
    best = node.call(op.squeeze, node.call(op.greater, score, limit), axis=(1,))
    found = both_classes(node, score, kind, is_probability=is_probability)
    return labelled(node, node.call(op.cast, best, dtype="int64"), labels), found
