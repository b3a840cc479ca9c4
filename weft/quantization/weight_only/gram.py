"""What calibration keeps of the data of a layer: the second moments of its inputs."""

from __future__ import annotations

import numpy as np

from weft.support.dataclass import dataclass


@dataclass(slots=True)
class Gram:
    """The mean of ``x x^T`` over the rows ``x`` of a layer's data, and of ``|x|``; sums till
    ``mean``.
    """

    products: np.ndarray  # [K, K] float32
    magnitudes: np.ndarray  # [K] float64
    rows: int = 0

    @staticmethod
    def zeros(size: int) -> Gram:
        return Gram(np.zeros((size, size), np.float32), np.zeros(size))

    def add(self, data: np.ndarray) -> None:
        """Add the rows of ``data`` [..., K]."""
        rows = data.reshape(-1, data.shape[-1]).astype(np.float32)
        self.products += rows.T @ rows
        self.magnitudes += np.abs(rows).sum(0)
        self.rows += len(rows)

    @property
    def diagonal(self) -> np.ndarray:
        """The mean square of each input, float32 [K]."""
        return np.maximum(self.products.diagonal(), 0) / max(self.rows, 1)

    def norm(self, matrix: np.ndarray) -> float:
        """The Frobenius norm of ``data @ matrix.T``, for ``matrix`` [N, K]."""
        return float(np.sqrt(max(np.vdot(matrix @ self.products, matrix), 0.0)))


def relative_error(original: np.ndarray, quantised: np.ndarray, gram: Gram | None) -> float:
    """The error of a layer's output where its data is known, else that of its weight."""
    def norm(matrix: np.ndarray) -> float:
        return float(np.linalg.norm(matrix)) if gram is None else gram.norm(matrix)

    whole = norm(original)
    return norm(quantised - original) / whole if whole else 0.0
