"""Rows that come in parts: partial_fit and merge give what fit gives on all rows at once."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import relvec.export.model_file
from relvec import RVR, GammaPrior
from relvec.basis import KernelBasis, Polynomial
from relvec.design import summarise
from relvec.export import model_file
from relvec.kernels import Gaussian

RNG = np.random.default_rng(5)
X = RNG.uniform(-5.0, 5.0, size=(300, 2))
Y = np.sinc(X[:, 0] / np.pi) + 0.3 * X[:, 1] + 0.1 * RNG.standard_normal(300)
W = RNG.uniform(0.2, 3.0, size=300)
CENTRES = RNG.uniform(-5.0, 5.0, size=(40, 2))
GRID = KernelBasis(Gaussian(2.0), centres=CENTRES)


def grid_model(**parameters):
    return RVR(kernel=None, basis=[GRID, "linear"], **parameters)


def in_parts(model, bounds, X=X, Y=Y, W=None):
    for first, last in pairwise(bounds):
        part = slice(first, last)
        model.partial_fit(X[part], Y[part], None if W is None else W[part], refit=last == bounds[-1])
    return model


def assert_same(model, other, rtol=1e-8):
    assert model.atoms_ == other.atoms_
    assert np.allclose(model.log_marginal_likelihood_, other.log_marginal_likelihood_, rtol=rtol, atol=rtol)
    assert np.allclose(model.noise_variance_, other.noise_variance_, rtol=1e-5)
    mean, std = model.predict(X, return_std=True)
    mean_of_other, std_of_other = other.predict(X, return_std=True)
    assert np.allclose(mean, mean_of_other, atol=1e-5 * np.abs(mean).max())
    assert np.allclose(std, std_of_other, rtol=1e-4)


@parametrize_with_checks([RVR(kernel=None, basis="linear", forgetting=0.9)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("bounds", [[0, 300], [0, 10, 300], [0, 1, 2, 77, 150, 299, 300]])
@pytest.mark.parametrize("weights", [None, W], ids=["plain", "weighted"])
def test_parts_give_the_model_of_all_rows(bounds, weights):
    batch = grid_model().fit(X, Y, weights)
    parts = in_parts(grid_model(), bounds, W=weights)
    assert_same(parts, batch)
    assert parts.n_samples_seen_ == batch.n_samples_seen_ == 300
    assert 3 < len(batch.atoms_) < 40


@given(
    st.lists(st.integers(1, 299), max_size=6, unique=True),
    st.integers(0, 2**31),
    st.sampled_from(["linear", "quadratic", lambda X: np.column_stack([np.sin(X), np.cos(X)]), GRID]),
    st.booleans(),
    st.sampled_from([1.0, 1e-120, 1e130]),
)
@settings(max_examples=15)
def test_any_parts_in_any_order(cuts, seed, basis, intercept, unit):
    rng = np.random.default_rng(seed)
    order, weights = rng.permutation(300), rng.integers(0, 3, size=300).astype(float)
    weights[order[0]] = 1.0
    model = RVR(kernel=None, basis=basis, fit_intercept=intercept)
    batch = clone(model).fit(X, unit * Y, weights)
    parts = in_parts(clone(model), [0, *sorted(cuts), 300], X[order], unit * Y[order], weights[order])
    assert parts.atoms_ == batch.atoms_
    assert np.isclose(parts.log_marginal_likelihood_, batch.log_marginal_likelihood_, rtol=1e-8, atol=1e-6)
    assert np.allclose(parts.predict(X) / unit, batch.predict(X) / unit, atol=1e-5)


def test_every_call_leaves_a_model():
    model = grid_model()
    for n in (100, 200, 300):
        model.partial_fit(X[n - 100 : n], Y[n - 100 : n])
        assert_same(model, grid_model().fit(X[:n], Y[:n]))


def test_several_outputs_and_other_solvers():
    many = np.column_stack([Y, X[:, 1] ** 2, np.full(300, 7.0)])
    with pytest.warns(ConvergenceWarning, match="output 2: CONSTANT_TARGET"):
        batch = grid_model().fit(X, many)
    with pytest.warns(ConvergenceWarning, match="output 2: CONSTANT_TARGET") as caught:
        parts = in_parts(grid_model(), [0, 50, 300], Y=many)
    assert caught[0].filename == __file__
    assert_same(parts, batch)
    for solver, prior in (("mackay", None), ("em", GammaPrior(a=1e-3, b=1e-3, c=1e-3, d=1e-3))):
        model = RVR(kernel=None, basis="quadratic", solver=solver, hyperprior=prior, tol=1e-3)
        assert_same(in_parts(clone(model), [0, 50, 300]), clone(model).fit(X, Y), rtol=1e-7)
    fixed = RVR(kernel=None, basis="quadratic", noise_variance=0.02)
    assert_same(in_parts(clone(fixed), [0, 50, 300]), clone(fixed).fit(X, Y))


def test_digits_that_a_gram_matrix_would_lose():
    x = 1.0 + 1e-7 * RNG.uniform(-1.0, 1.0, size=(200, 1))  # the powers of x are nearly the same: condition 1e8
    y = 1e14 * (x - 1.0) ** 2
    powers = Polynomial(2).bind(x)
    Phi = np.column_stack([powers(x), y])
    parts = [summarise(powers, x[i::4], y[i::4], np.ones(50)) for i in range(4)]
    R = parts[0].merged(parts[1]).merged(parts[2].merged(parts[3])).R
    true, ours = np.linalg.svd(Phi, compute_uv=False), np.linalg.svd(R, compute_uv=False)
    gram = np.sqrt(np.abs(np.linalg.eigvalsh(Phi.T @ Phi)[::-1]))
    assert np.abs(ours / true - 1.0).max() < 1e-3 < np.abs(gram / true - 1.0).max()


def test_what_is_told_of_features_and_slopes():
    model, batch = RVR(kernel=None, basis=GRID), RVR(kernel=None, basis=GRID).fit(X, Y, W)
    assert np.allclose(in_parts(model, [0, 100, 300], W=W).feature_relevance_, batch.feature_relevance_)
    assert model.width_ == 2.0 and model.relevance_.size == 0
    linear = in_parts(RVR(kernel=None, basis="linear"), [0, 100, 300])
    assert np.allclose(linear.coef_, RVR(kernel=None, basis="linear").fit(X, Y).coef_)


def test_forgetting_is_a_weight_that_fades():
    ages = np.repeat([2, 1, 0], 100)
    batch = grid_model().fit(X, Y, W * 0.7**ages)
    parts = in_parts(grid_model(forgetting=0.7), [0, 100, 200, 300], W=W)
    assert_same(parts, batch)
    changed = np.where(ages == 0, Y + 5.0, Y)
    faded = in_parts(grid_model(forgetting=1e-4), [0, 100, 200, 300], Y=changed)
    assert abs(np.mean(faded.predict(X[200:]) - changed[200:])) < 0.1
    for wrong in (0.0, 1.5, -1, "no", np.nan):
        with pytest.raises(ValueError, match="forgetting must be above 0"):
            grid_model(forgetting=wrong).partial_fit(X, Y)


def test_merged_parts_are_the_whole():
    batch = grid_model().fit(X, Y, W)
    models = [grid_model().partial_fit(X[i::3], Y[i::3], W[i::3]) for i in range(3)]
    merged = models[0].merge(*models[1:])
    assert_same(merged, batch)
    assert merged.n_samples_seen_ == 300 and models[0].n_samples_seen_ == 100
    assert_same(models[0].merge(models[1]).partial_fit(X[2::3], Y[2::3], W[2::3]), batch)
    with pytest.raises(ValueError, match="only fitted models whose rows can come in parts"):
        merged.merge(grid_model())
    assert grid_model().fit(X[::2], Y[::2]).merge(grid_model().fit(X[1::2], Y[1::2])).n_samples_seen_ == 300
    with pytest.raises(ValueError, match="only rows of the same basis functions"):
        merged.merge(RVR(kernel=None, basis="linear").partial_fit(X, Y))
    with pytest.raises(ValueError, match=r"shape \(n,\) and of shape \(n, 1\)"):
        merged.merge(grid_model().partial_fit(X, Y[:, None]))


def test_merge_compares_names_of_features():
    pd = pytest.importorskip("pandas")
    model = RVR(kernel=None, basis="linear")
    table = pd.DataFrame(X, columns=["a", "b"])
    one, other = (clone(model).partial_fit(t, Y) for t in (table, table.rename(columns={"a": "c"})))
    assert one.merge(one).feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="different names"):
        one.merge(other)
    with pytest.raises(ValueError, match="feature names"):
        one.partial_fit(table[["b", "a"]], Y)


@pytest.mark.parametrize("keep", [lambda m: pickle.loads(pickle.dumps(m)), lambda m: saved(m)], ids=["pickle", "save"])
def test_a_kept_model_goes_on(keep):
    model = in_parts(grid_model(warm_start=True), [0, 100, 200])
    again = keep(model).partial_fit(X[200:], Y[200:])
    assert_same(again, model.partial_fit(X[200:], Y[200:]))
    assert again.n_samples_seen_ == 300


def saved(model):
    return model_file.loads(model_file.dumps(model))


def test_rows_without_weight_count_for_nothing():
    weights = np.where(np.arange(300) < 100, 0.0, 1.0)
    model = grid_model().partial_fit(X, Y, weights)
    assert_same(model, grid_model().fit(X[100:], Y[100:]))
    assert model.n_samples_seen_ == 200
    with pytest.raises(ValueError, match=r"non-zero|positive weight"):
        model.partial_fit(X, Y, np.zeros(300))


def test_the_first_rows_may_be_few():
    model = RVR(kernel=None, basis="linear")
    with pytest.warns(ConvergenceWarning, match="CONSTANT_TARGET"):
        model.partial_fit(X[:1], Y[:1])
    assert model.predict(X[:1]) == pytest.approx(Y[:1])
    assert_same(model.partial_fit(X[1:], Y[1:]), clone(model).fit(X, Y))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RVR(), "known before any row"),
        (RVR(width=2.0), "known before any row"),
        (RVR(kernel=None, basis=KernelBasis("gaussian", centres=CENTRES)), "width in numbers"),
        (RVR(kernel=None, basis=KernelBasis(Gaussian(2.0))), "known before any row"),
        (RVR(kernel=None, basis=KernelBasis(Gaussian(2.0), n_random=3)), "known before any row"),
        (RVR(kernel="precomputed"), "known before any row"),
        (RVR(kernel=None, basis="linear", likelihood="poisson"), "likelihood='gaussian'"),
        (RVR(kernel=None, basis="linear", predictive="process"), "predictive='rvm'"),
        (RVR(kernel=None, basis="nonsense"), "only for a basis"),
    ],
)
def test_not_available(model, message):
    assert not hasattr(model, "partial_fit") and not hasattr(model, "merge")
    with pytest.raises(AttributeError, match="partial_fit") as error:
        model.partial_fit(X, Y)
    assert message in str(error.value.__cause__)
    assert not hasattr(relvec.RVC(), "partial_fit")


def test_what_is_refused_leaves_the_model_as_it_was():
    model = grid_model()
    with pytest.raises(NotFittedError):
        model.partial_fit(X[:100], Y[:100], refit=False).predict(X)
    model.partial_fit(X[100:200], Y[100:200])
    before = model.log_marginal_likelihood_
    for block, y, message in (
        (X[:, :1], Y, "1 features"),
        (X, np.column_stack([Y, Y]), r"y had the shape \(n,\)"),
        (np.where(X > 4.9, np.nan, X), Y, "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(block, y)
    with pytest.raises(ValueError, match="only rows of the same basis functions"):
        model.set_params(fit_intercept=False).partial_fit(X, Y)
    model.set_params(fit_intercept=True)
    assert model.log_marginal_likelihood_ == before and model.n_samples_seen_ == 200
    assert_same(model.partial_fit(X[200:], Y[200:]), grid_model().fit(X, Y))


def test_fit_begins_anew_and_partial_fit_goes_on(monkeypatch):
    model = grid_model().partial_fit(X[:100], Y[:100])
    assert_same(model.fit(X[:200], Y[:200]), grid_model().partial_fit(X[:200], Y[:200]))
    assert_same(model.partial_fit(X[200:], Y[200:]), grid_model().fit(X, Y))
    with pytest.raises(ValueError, match="basis function 35 is not finite"):
        RVR(kernel=None, basis=Polynomial(9)).partial_fit(1e40 * X, Y)
    switched = RVR(width=2.0).fit(X, Y).set_params(kernel=None, width="auto", basis="linear")
    with pytest.raises(ValueError, match="kept nothing of its rows"):
        switched.partial_fit(X, Y)
    monkeypatch.setattr("relvec.estimators.incremental.MAX_SUMMARY_SIZE", 100)
    with pytest.raises(ValueError, match="more than 100 numbers to keep"):
        grid_model().fit(X, Y).partial_fit(X, Y)


def test_fewer_rows_than_functions_stand_for_themselves():
    few = summarise(GRID.bind(X), X[:10], Y[:10, None], np.ones(10))
    assert few.R.shape == (10, 41)
    more = few.merged(summarise(GRID.bind(X), X[10:41], Y[10:41, None], np.ones(31)))
    assert more.R.shape == (41, 41) and np.all(np.tril(more.R, -1) == 0.0)
    Phi = np.column_stack([GRID.bind(X)(X[:41]), Y[:41]])
    assert np.allclose(more.R.T @ more.R, Phi.T @ Phi)
