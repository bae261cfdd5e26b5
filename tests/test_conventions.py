"""Scikit-learn's tools around the estimators as they come: tables, pipelines, searches, weights."""

import logging

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingClassifier
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.multioutput import ClassifierChain, MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.fixes import parse_version

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=60)
LABEL = np.where(X[:, 0] + 0.3 * RNG.normal(size=60) > 0, "yes", "no")
ROUTING = {"enable_metadata_routing": True}
REGRESSORS = [RVR(), GPRegressor(), SparseBayesianRegressor()]
CLASSIFIERS = [RVC(), GPClassifier(), SparseBayesianClassifier()]
ALL = [(model, Y) for model in REGRESSORS] + [(model, LABEL) for model in CLASSIFIERS]


def name_of(value):
    return type(value).__name__ if hasattr(value, "fit") else ""


every_estimator = pytest.mark.parametrize(("model", "y"), ALL, ids=name_of)
every_regressor = pytest.mark.parametrize("model", REGRESSORS, ids=name_of)
every_classifier = pytest.mark.parametrize("model", CLASSIFIERS, ids=name_of)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def frame(library, data=X):
    module = pytest.importorskip(library)
    return module.DataFrame({name: data[:, i] for i, name in enumerate("abc")})


@pytest.mark.parametrize("library", ["pandas", "polars"])
@every_estimator
def test_tables_in(library, model, y):
    table = frame(library)
    series = pytest.importorskip(library).Series(y)
    fitted, plain = clone(model).fit(table, series), clone(model).fit(X, y)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.array_equal(fitted.predict(table), plain.predict(X))
    assert not hasattr(plain, "feature_names_in_")
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(table[["c", "b", "a"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        fitted.predict(X)


@every_regressor
def test_one_column_of_targets_as_a_table(model):
    pd = pytest.importorskip("pandas")
    assert clone(model).fit(X, pd.DataFrame({"y": Y})).predict(X).shape == (60, 1)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@every_regressor
def test_set_output(library, model):
    table = frame(library)
    steps = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), clone(model))
    steps = steps.set_output(transform=library).fit(table, Y)
    assert steps[-1].feature_names_in_[:4].tolist() == ["a", "b", "c", "a^2"]
    assert steps.predict(table).shape == (60,)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
@pytest.mark.parametrize(("model", "y"), [pair for pair in ALL if "Sparse" not in name_of(pair[0])], ids=name_of)
def test_sparse_inputs_are_refused_in_words(kind, model, y):
    with pytest.raises(TypeError, match=r"(?i)sparse.*dense"):
        clone(model).fit(kind(X), y)
    fitted = clone(model).fit(X, y)
    with pytest.raises(TypeError, match=r"(?i)sparse.*dense"):
        fitted.predict(kind(X))


# ---------------------------------------------------------------- sample weights find their way


@every_estimator
def test_weights_are_routed_through_a_pipeline(model, y):
    weight = RNG.uniform(0.5, 2.0, size=60)
    with config_context(**ROUTING):
        asking = clone(model).set_fit_request(sample_weight=True)
        steps = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asking)
        steps.fit(X, y, sample_weight=weight)
    scaled = StandardScaler().fit_transform(X)
    by_hand = clone(model).fit(scaled, y, sample_weight=weight)
    assert np.array_equal(steps[-1].predict(scaled), by_hand.predict(scaled))


def test_weights_are_routed_through_a_search():
    weight = RNG.uniform(0.5, 2.0, size=60)
    with config_context(**ROUTING):
        model = RVR(width="scale").set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"width": [1.0, 3.0]}, cv=3).fit(X, Y, sample_weight=weight)
        scores = cross_validate(model, X, Y, cv=3, params={"sample_weight": weight})["test_score"]
    best = RVR(**search.best_params_).fit(X, Y, sample_weight=weight)
    assert np.array_equal(search.best_estimator_.weights_, best.weights_)
    assert scores.shape == (3,)


@every_estimator
def test_a_weight_that_nobody_asked_for_is_an_error(model, y):
    with config_context(**ROUTING), pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
        make_pipeline(StandardScaler(), clone(model)).fit(X, y, sample_weight=np.ones(60))


# ---------------------------------------------------------------- estimators around ours


@every_regressor
def test_transformed_target(model):
    around = TransformedTargetRegressor(clone(model), func=np.log, inverse_func=np.exp).fit(X, np.exp(Y))
    assert np.allclose(around.predict(X), np.exp(clone(model).fit(X, Y).predict(X)))
    assert around.score(X, np.exp(Y)) > 0.7


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
@every_classifier
def test_calibration(model, method):
    if method == "temperature" and parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("came with scikit-learn 1.8")
    calibrated = CalibratedClassifierCV(clone(model), method=method, cv=2).fit(X, LABEL)
    assert np.allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)
    assert calibrated.score(X, LABEL) > 0.8


@every_estimator
def test_inspection(model, y):
    model = clone(model).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
    assert found[0] > 5 * abs(found[2])
    curve = partial_dependence(model, X, [0], grid_resolution=7)["average"]
    assert curve.shape == (1, 7) and np.ptp(curve) > 0.5


@every_regressor
def test_several_outputs(model):
    many = np.column_stack([Y, X[:, 1], Y**2])
    own = clone(model).fit(X, many)
    mean, std = own.predict(X, return_std=True)
    assert mean.shape == std.shape == (60, 3)
    wrapped = MultiOutputRegressor(clone(model)).fit(X, many)
    if not isinstance(model, GPRegressor):  # which chooses one kernel for all outputs
        options = {} if isinstance(model, SparseBayesianRegressor) else {"width": 2.0}
        own = clone(model).set_params(**options).fit(X, many)
        wrapped = MultiOutputRegressor(clone(model).set_params(**options)).fit(X, many)
        assert np.allclose(own.predict(X), wrapped.predict(X), atol=1e-6)
    assert wrapped.predict(X).shape == RegressorChain(clone(model)).fit(X, many).predict(X).shape == (60, 3)


@every_classifier
def test_chains_of_classes(model):
    both = np.column_stack([LABEL == "yes", X[:, 1] > 0]).astype(int)
    assert ClassifierChain(clone(model)).fit(X, both).predict(X).shape == (60, 2)


@every_regressor
def test_ensembles_of_regressors(model):
    assert BaggingRegressor(clone(model), 3, random_state=0).fit(X, Y).score(X, Y) > 0.7
    stack = StackingRegressor([("own", clone(model)), ("linear", LinearRegression())], SparseBayesianRegressor())
    assert stack.fit(X, Y).score(X, Y) > 0.8


@every_classifier
def test_ensembles_and_searches_of_classifiers(model):
    vote = VotingClassifier([("a", clone(model)), ("b", RVC(kernel="laplace", width="scale"))], voting="soft")
    assert vote.fit(X, LABEL).score(X, LABEL) > 0.8
    assert cross_val_score(clone(model), X, LABEL, cv=3, scoring="neg_log_loss").mean() > -0.6
    assert cross_val_predict(clone(model), X, LABEL, cv=3, method="predict_proba").shape == (60, 2)


@every_estimator
def test_columns_of_a_table(model, y):
    table = frame("pandas").assign(word=np.where(X[:, 2] > 0, "u", "v"))
    columns = ColumnTransformer([("n", StandardScaler(), ["a", "b"]), ("w", "drop", ["word"])])
    assert make_pipeline(columns, clone(model)).fit(table, y).score(table, y) > 0.7


# ---------------------------------------------------------------- fits that begin where others ended


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (RVR(width="scale"), Y),
        (RVC(width="scale"), LABEL),
        (RVC(width="scale"), np.digitize(Y, [0.0])),
        (RVC(multi_class="ovr", width="scale"), np.digitize(Y, [-0.5, 0.5])),
    ],
)
def test_warm_start_ends_as_good_with_fewer_steps(model, y):
    cold = clone(model).fit(X, y)
    warm = clone(model).set_params(warm_start=True).fit(X, y)
    assert np.array_equal(warm.weights_, cold.weights_)  # the first fit has nothing to start from
    again = warm.fit(X, y)
    assert np.all(again.n_iter_ <= cold.n_iter_) and np.sum(again.n_iter_) < np.sum(cold.n_iter_)
    tol = model.tol or 1e-4
    assert np.all(np.abs(again.log_marginal_likelihood_ - cold.log_marginal_likelihood_) < 3 * tol)
    assert np.all(again.certificate_ <= tol)


def test_warm_start_with_other_rows_outputs_and_kernels():
    model = RVR(warm_start=True, width="scale").fit(X[:40], Y[:40])
    grown = model.fit(X, Y)
    history = grown.history_
    assert history["size"][0] > 1  # the rows that were kept are rows again
    # another start may end at another of many maxima, but above where it began
    assert grown.status_ == "converged" and np.all(np.diff(history["objective"]) >= -1e-9)
    assert grown.log_marginal_likelihood_ > history["objective"][0]
    model.fit(X, np.column_stack([Y, X[:, 1]]))  # another number of outputs: from nothing
    assert [h["size"][0] for h in model.history_] == [0, 0]
    model.set_params(kernel="laplace").fit(X[:, :2], Y)  # other features and another kernel
    assert model.n_features_in_ == 2
    model.set_params(noise_variance=0.01).fit(X[:, :2], Y)
    assert model.noise_variance_ == pytest.approx(0.01)
    model.set_params(noise_variance=None, likelihood="poisson").fit(X[:, :2], np.round(np.exp(Y)))
    model.set_params(likelihood="gaussian").fit(X[:, :2], Y)
    assert model.noise_variance_ > 0


# ---------------------------------------------------------------- what a fit says


def test_steps_are_logged_and_nothing_is_printed(capsys, caplog):
    with caplog.at_level(logging.INFO, logger="relvec"):
        RVR(verbose=2, width="scale").fit(X, Y)
    assert "objective" in caplog.text
    out, err = capsys.readouterr()
    assert not out and not err
