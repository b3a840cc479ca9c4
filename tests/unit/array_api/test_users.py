"""Libraries that take any array of the standard: scikit-learn and SciPy.

In processes of their own: SciPy reads its switch when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCIPY = """
import numpy as np, weft, scipy.special as special, scipy.stats as stats, scipy.integrate as area
value = np.linspace(0.1, 0.9, 7)
for function in (special.erf, special.expit, special.logsumexp, special.softmax, special.gammaln,
                 special.entr, stats.zscore, stats.skew, stats.gmean, stats.sem, stats.rankdata,
                 stats.entropy, area.trapezoid, area.cumulative_trapezoid):
    found = function(weft.tensor(value))
    assert isinstance(found, weft.Tensor), function
    np.testing.assert_allclose(found.numpy(), function(value), rtol=1e-10, atol=1e-14)
"""
SKLEARN = """
import numpy as np, sklearn, weft
from sklearn import metrics, preprocessing
from sklearn.metrics import pairwise

x = np.random.default_rng(0).normal(size=(30, 4))
labels = (x[:, 0] > 0).astype(np.int64)
others = np.where(np.arange(30) < 10, labels, 1 - labels)
cases = [*[(f, labels, others) for f in (metrics.accuracy_score, metrics.f1_score,
                                         metrics.confusion_matrix)],
         *[(f, x[:, 0], x[:, 1]) for f in (metrics.mean_squared_error, metrics.r2_score)],
         *[(f, x, x) for f in (pairwise.cosine_similarity, pairwise.euclidean_distances,
                               pairwise.rbf_kernel)]]
estimators = [preprocessing.StandardScaler(), preprocessing.MinMaxScaler(),
              preprocessing.Normalizer(), preprocessing.PolynomialFeatures(2)]
with sklearn.config_context(array_api_dispatch=True):
    for function, one, other in cases:
        found = function(weft.tensor(one), weft.tensor(other))
        np.testing.assert_allclose(np.asarray(found), function(one, other), rtol=1e-6, atol=1e-6,
                                   err_msg=function.__name__)
    for estimator in estimators:
        found = estimator.fit(weft.tensor(x)).transform(weft.tensor(x))
        assert isinstance(found, weft.Tensor), estimator
        np.testing.assert_allclose(found.numpy(), estimator.fit(x).transform(x), rtol=1e-10,
                                   atol=1e-12, err_msg=type(estimator).__name__)
"""


@pytest.mark.parametrize(("package", "program"), [("scipy", SCIPY), ("sklearn", SKLEARN)],
                         ids=["scipy", "sklearn"])
def test_functions_take_tensors(package: str, program: str):
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True,
                   env={**os.environ, "SCIPY_ARRAY_API": "1"})
