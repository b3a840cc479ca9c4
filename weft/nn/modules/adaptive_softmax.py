"""AdaptiveLogSoftmaxWithLoss: rare classes in clusters of smaller projections."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn.modules.containers import ModuleList, Sequential
from weft.nn.modules.linear import Linear
from weft.nn.modules.module import Module, ModuleError


class AdaptiveOutput(NamedTuple):
    """The log-probability of each target, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over many classes sorted by falling frequency (Grave et al. 2017).

    The head has the classes below ``cutoffs[0]`` and one for each cluster; the cluster ``i`` of
    classes between two cutoffs has a projection to ``in_features / div_value**(i + 1)``.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        bounds = [int(c) for c in cutoffs]
        if (not bounds or bounds != sorted(set(cutoffs)) or bounds[0] <= 0
                or bounds[-1] > n_classes - 1):
            raise ModuleError("the cutoffs do not divide the classes", got=list(cutoffs),
                              expected=f"rising integers between 1 and {n_classes - 1}")
        made = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*bounds, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = bounds[0], len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            size = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, size, bias=False, **made),
                                        Linear(size, high - low, bias=False, **made)))

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        for layer in self.modules():
            if isinstance(layer, Linear):
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveOutput:
        """``input_`` (N, in_features) and classes (N), or one example without N."""
        if target_.ndim > 1 or input_.ndim != target_.ndim + 1:
            raise ModuleError("AdaptiveLogSoftmaxWithLoss: input and target do not fit",
                              expected="(N, in_features) and (N), or (in_features) and ()",
                              got=f"{tuple(input_.shape)} and {tuple(target_.shape)}")
        has_batch = target_.ndim == 1
        x = input_ if has_batch else input_.reshape((1, -1))
        labels = target_.cpu().numpy().reshape(-1)  # the rows of each cluster depend on the values
        if len(labels) != x.shape[0] or (labels < 0).any() or (labels >= self.n_classes).any():
            raise ModuleError("AdaptiveLogSoftmaxWithLoss: wrong targets",
                              expected=f"{x.shape[0]} classes of 0 to {self.n_classes - 1}",
                              got=f"{len(labels)}, of {labels.min()} to {labels.max()}"
                              if len(labels) else "none")
        cluster = np.searchsorted(self.cutoffs, labels, side="right")
        columns = np.where(cluster == 0, labels, self.shortlist_size + cluster - 1)
        output = _picked(F.log_softmax(self.head(x), 1), columns)
        output = output + self._tails(x, labels, cluster)
        loss = (-output).mean()
        return AdaptiveOutput(output if has_batch else output.reshape(()), loss)

    def _tails(self, x: Tensor, labels: np.ndarray, cluster: np.ndarray) -> Tensor:
        """The log-probability of each target within its cluster; 0 for those of the head."""
        parts = [call("zeros", shape=(int((cluster == 0).sum()),), dtype=x.dtype.name)]
        rows = [np.flatnonzero(cluster == 0)]
        for i, low in enumerate(self.cutoffs[:-1]):
            chosen = np.flatnonzero(cluster == i + 1)
            if len(chosen):
                logits = self.tail[i](call("take", x, chosen.astype(np.int64), axis=0))
                parts.append(_picked(F.log_softmax(logits, 1), labels[chosen] - low))
                rows.append(chosen)
        order = np.argsort(np.concatenate(rows)).astype(np.int64)
        joined = call("concatenate", *parts, axis=0) if len(parts) > 1 else parts[0]
        return call("take", joined, order, axis=0)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            column = self.shortlist_size + i
            parts.append(F.log_softmax(tail(input), 1) + head[:, column : column + 1])
        return call("concatenate", *parts, axis=1)

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of each example."""
        return self.log_prob(input).argmax(1)


def _picked(logs: Tensor, columns: np.ndarray) -> Tensor:
    """The element of each row at its column."""
    found = call("gather", logs, columns.astype(np.int64).reshape(-1, 1), axis=1)
    return found.reshape((-1,))
