"""Sparse linear models under the names people look for them by."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from relvec.estimators.classifier import RelevanceVectorClassifier
from relvec.estimators.regressor import RelevanceVectorRegressor


def with_defaults(init: Callable[..., None], **defaults: Any) -> Callable[..., None]:
    """A constructor with other default values; scikit-learn reads the names of parameters from its signature."""

    @wraps(init)
    def other(self: Any, **parameters: Any) -> None:
        init(self, **(defaults | parameters))

    signature = inspect.signature(init)
    own = [p.replace(default=defaults.get(name, p.default)) for name, p in signature.parameters.items()]
    other.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return other


class SparseBayesianRegressor(RelevanceVectorRegressor):
    """Sparse Bayesian linear regression: `RelevanceVectorRegressor` with the columns of X as its basis functions.

    A relevance vector machine with ``kernel=None, basis="linear", predictive="rvm"``. Columns are centred and scaled
    inside, also those of a scipy.sparse matrix, which stays sparse. Each column has a precision of its own; precisions
    and noise maximise the evidence, and the set of columns the evidence times a prior over sets (``support_prior``),
    which no unit of a column changes. There is no threshold to choose.

    Parameters and attributes are those of `RelevanceVectorRegressor`; of most interest are `coef_`, `coef_std_`,
    `intercept_`, `selected_` and `gain_`.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianRegressor
    >>> X = np.random.default_rng(0).standard_normal((80, 500))
    >>> y = 3.0 * X[:, 7] - 2.0 * X[:, 40] + 1.0
    >>> model = SparseBayesianRegressor(noise_variance=0.01).fit(X, y)
    >>> np.flatnonzero(model.selected_).tolist(), np.round(model.coef_[model.selected_], 2).tolist()
    ([7, 40], [3.0, -2.0])
    """

    __init__ = with_defaults(RelevanceVectorRegressor.__init__, kernel=None, basis="linear", predictive="rvm")


class SparseBayesianClassifier(RelevanceVectorClassifier):
    """Sparse Bayesian linear classification: `RelevanceVectorClassifier` with the columns of X as its basis functions.

    A relevance vector machine with ``kernel=None, basis="linear", predictive="rvm", complexity_price="auto"``; columns
    are centred and scaled inside, also those of a scipy.sparse matrix, which stays sparse. A column has to gain more
    evidence than the logarithm of the number of columns, which the best of many useless ones seldom does. Parameters
    and attributes are those of `RelevanceVectorClassifier`; of most interest are `coef_`, `coef_std_`, `intercept_`,
    `selected_` and `gain_`.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianClassifier
    >>> X = np.random.default_rng(0).standard_normal((200, 30))
    >>> model = SparseBayesianClassifier().fit(X, X[:, 4] + 0.3 * X[:, 5] > 0.2)
    >>> bool(model.selected_[4]), model.coef_.shape
    (True, (30,))
    """

    __init__ = with_defaults(
        RelevanceVectorClassifier.__init__, kernel=None, basis="linear", predictive="rvm", complexity_price="auto"
    )
