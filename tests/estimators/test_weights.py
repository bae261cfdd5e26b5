"""What a fit says of weights that look like shares, and of labels that may be missing."""

import warnings

import numpy as np
import pandas as pd
import pytest

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor

X = np.random.default_rng(0).normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=60)
REGRESSORS = (RVR, GPRegressor, SparseBayesianRegressor)
CLASSIFIERS = (RVC, GPClassifier, SparseBayesianClassifier)


@pytest.mark.parametrize("make", [*REGRESSORS, *CLASSIFIERS])
def test_weights_that_look_like_shares_are_told_with_the_factor_that_makes_them_counts(make):
    y = Y if make in REGRESSORS else Y > 0
    with pytest.warns(UserWarning, match=r"multiply sample_weight by 60, so that they sum to the number of rows"):
        make().fit(X, y, np.full(60, 1 / 60))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(X, y, np.full(60, 1.0))
        make().fit(X, y, np.where(np.arange(60) % 3, 0.0, 1.0))  # rows that are absent are none


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_nullable_labels_keep_their_kind(make):
    y = (Y > 0).astype(int)
    for labels, kind in ((pd.Series(y, dtype="Int64"), "i"), (pd.Series(y > 0, dtype="boolean"), "b")):
        model = make().fit(X, labels)
        assert model.classes_.dtype.kind == model.predict(X[:3]).dtype.kind == kind
    with pytest.raises(ValueError, match="y has no label in row 0"):
        make().fit(X, pd.Series([None, *y[1:]], dtype="Int64"))
