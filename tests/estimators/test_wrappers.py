"""Error bars and relevance through scikit-learn's pipelines and wrappers."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_friedman1
from sklearn.feature_selection import SelectFromModel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVC, RVR, GPClassifier, GPRegressor, plot


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 2))
    return X, np.exp(1.0 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=80))


@pytest.mark.parametrize("model", [GPRegressor(), RVR(width=2.0), RVR(width=2.0, predictive="augmented")], ids=str)
def test_intervals_reach_through_a_pipeline(rows, model):
    X, y = rows
    pipe = make_pipeline(StandardScaler(), model).fit(X, y)
    found = pipe.predict(X[:9], return_interval=0.8)
    assert_allclose(found[:, 0], pipe.predict(X[:9]))
    assert_allclose(found[:, 1:], pipe[-1].predict_interval(pipe[0].transform(X[:9]), 0.8))
    narrow = pipe.predict(X[:9], return_interval=0.8, noise=False)
    assert np.all(np.diff(narrow[:, 1:]) < np.diff(found[:, 1:]))


def test_intervals_reach_through_a_transformed_target(rows):
    X, y = rows
    inner = RVR(width=2.0).fit(X, np.log(y))
    wrapped = TransformedTargetRegressor(RVR(width=2.0), func=np.log, inverse_func=np.exp).fit(X, y)
    found = wrapped.predict(X[:9], return_interval=0.9)
    assert_allclose(found[:, 1:], np.exp(inner.predict_interval(X[:9], 0.9)))


def test_intervals_of_several_outputs_and_of_counts(rows):
    X, y = rows
    both = RVR(width=2.0).fit(X, np.column_stack([y, -y]))
    assert both.predict(X[:5], return_interval=0.9).shape == (5, 2, 3)
    counts = RVR(width=2.0, likelihood="poisson").fit(X, np.round(y))
    assert_allclose(counts.predict(X[:5], return_interval=0.9)[:, 1:], counts.predict_interval(X[:5], 0.9))


@pytest.mark.parametrize("options", [{"return_std": True}, {"return_cov": True}])
def test_an_interval_is_asked_for_alone(rows, options):
    with pytest.raises(ValueError, match="ask for return_interval alone"):
        RVR(width=2.0).fit(*rows).predict(rows[0], return_interval=0.9, **options)


def test_select_from_model_keeps_the_inputs_that_matter():
    X, y = make_friedman1(150, n_features=12, noise=0.5, random_state=0)
    chosen = SelectFromModel(GPRegressor()).fit(X, y)
    assert chosen.get_support().tolist() == [True] * 5 + [False] * 7


@pytest.mark.parametrize("model", [GPRegressor(), GPClassifier()], ids=str)
def test_relevance_that_was_not_learned_is_not_drawn(model):
    """A constant function has no slope: equal bars would claim that all inputs matter."""
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X[:, 0] > 0 if is_classifier(model) else X[:, 0] ** 2 + 0.1 * rng.normal(size=40)
    model.fit(X, y)
    display = plot.FeatureRelevanceDisplay.from_estimator(model, ax=plot.new_figure().subplots())
    assert "slope" in display.meaning and int(np.argmax(display.relevance)) == 0
    model.fitted_ = replace(model.fitted_, feature_relevance=np.full(3, 1 / 3))
    with pytest.raises(ValueError, match="pass X and y"):
        plot.FeatureRelevanceDisplay.from_estimator(model)


NOISE = "of the target&#x27;s variance"  # no claim of a share explained, which rows held out do not reach


@pytest.mark.parametrize(("model", "score"), [(GPRegressor(), NOISE), (GPClassifier(), "log loss")])
def test_a_notebook_shows_the_noise_of_a_process_and_which_inputs_matter(rows, model, score):
    X, y = rows
    X = np.c_[X, np.random.default_rng(5).normal(size=len(X))]
    line = model.fit(X, y > y.mean() if is_classifier(model) else y)._repr_html_().rsplit("<pre>", 1)[1]
    assert (
        score in line
        and "explained" not in line
        and "inputs by relevance" in line
        and f"{len(model.vectors_)} vectors kept" in line
    )
    assert ("x3" in line) == (model.feature_relevance_[2] > 0.01)


@pytest.mark.parametrize("model", [RVR(width=2.0), RVC(width=2.0)], ids=str)
def test_a_notebook_shows_what_was_fitted(rows, model):
    X, y = rows
    assert "kept" not in model._repr_html_()
    model.fit(X, y > y.mean() if is_classifier(model) else y)
    page = model._repr_html_()
    kept = sum(name != "bias" for name in model.atoms_)
    assert f"{kept} functions kept; 2 inputs" in page and model.status_ in page
    assert "functions kept" in model._repr_mimebundle_()["text/html"]
    line = page.rsplit("<pre>", 1)[1]
    assert ("noise" in line) == is_regressor(model)
    assert "relevance" not in line  # one width has learned none
    model.fitted_ = replace(model.fitted_, width=np.array([1.0, 2.0]), feature_relevance=np.array([0.2, 0.8]))
    assert "inputs by relevance: x2, x1" in model._repr_html_()
