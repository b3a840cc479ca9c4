"""Libraries that take any array of the standard: scikit-learn and SciPy.

In processes of their own: SciPy reads its switch when it is imported. They come with the
environment of torch.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

SCIPY = """
import numpy as np, weft
from scipy import cluster, integrate, optimize, signal, special, stats

one, points = np.linspace(0.1, 0.9, 7), np.random.default_rng(0).normal(size=(8, 3))
two = one ** 2
cases = [
    (special, "erf expit logit ndtr gammaln entr i0 digamma logsumexp softmax", (one,)),
    (special, "rel_entr gammainc xlogy", (one, two)),
    (stats, "zscore skew gmean hmean sem rankdata entropy variation iqr circmean tvar", (one,)),
    (stats, "ttest_rel zmap", (one, two)), (stats, "directional_stats", (points,)),
    (integrate, "trapezoid cumulative_trapezoid", (one,)), (optimize, "rosen", (one,)),
    (signal, "detrend", (one,)), (cluster.vq, "whiten vq", (points, points[:3])),
]
for module, names, arrays in cases:
    for name in names.split():
        given = arrays[:1] if name == "whiten" else arrays
        found, expected = (getattr(module, name)(*values) for values in (
            map(weft.tensor, given), given))
        for key in ("statistic", "mean_direction"):  # the results of stats with several fields
            found, expected = getattr(found, key, found), getattr(expected, key, expected)
        if isinstance(found, tuple):
            found, expected = found[1], expected[1]
        assert isinstance(found, weft.Tensor), name
        np.testing.assert_allclose(found.numpy(), expected, 1e-9, 1e-12, err_msg=name)
"""
SKLEARN = """
import numpy as np, sklearn, weft
from sklearn import linear_model, metrics, naive_bayes, preprocessing
from sklearn.metrics import pairwise

x = np.random.default_rng(0).normal(size=(30, 4))
labels = (x[:, 0] > 0).astype(np.int64)
others = np.where(np.arange(30) < 10, labels, 1 - labels)
one, two = np.abs(x[:, 0]) + 0.1, np.abs(x[:, 1]) + 0.1
cases = [
    (metrics, "accuracy_score f1_score precision_score jaccard_score confusion_matrix hamming_loss "
              "cohen_kappa_score balanced_accuracy_score", (labels, others)),
    (metrics, "brier_score_loss average_precision_score", (labels, one / 5)),
    (metrics, "mean_squared_error mean_absolute_error r2_score max_error mean_gamma_deviance "
              "explained_variance_score d2_tweedie_score", (one, two)),
    (metrics, "calinski_harabasz_score", (x, labels)),
    (pairwise, "cosine_similarity euclidean_distances rbf_kernel polynomial_kernel", (x, x)),
]
transformers = [preprocessing.StandardScaler(), preprocessing.MinMaxScaler(),
                preprocessing.MaxAbsScaler(), preprocessing.Normalizer(),
                preprocessing.Binarizer(), preprocessing.PolynomialFeatures(2)]
predictors = [linear_model.Ridge(solver="svd"), naive_bayes.GaussianNB()]
with sklearn.config_context(array_api_dispatch=True):
    for module, names, arrays in cases:
        for name in names.split():
            function = getattr(module, name)
            np.testing.assert_allclose(np.asarray(function(*map(weft.tensor, arrays))),
                                       function(*arrays), 1e-6, 1e-6, err_msg=name)
    for model in (*transformers, *predictors):
        use = "predict" if hasattr(model, "predict") else "transform"
        found = getattr(model.fit(weft.tensor(x), weft.tensor(labels)), use)(weft.tensor(x))
        assert isinstance(found, weft.Tensor), model
        np.testing.assert_allclose(found.numpy(), getattr(model.fit(x, labels), use)(x), 1e-8,
                                   1e-10, err_msg=str(model))
"""


@pytest.mark.sample(0.5, 1)
@pytest.mark.parametrize("program", [SCIPY, SKLEARN], ids=["scipy", "sklearn"])
def test_functions_take_tensors(program: str):
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True,
                   env={**os.environ, "SCIPY_ARRAY_API": "1"})
