"""Sparse linear models: columns as basis functions, dense or scipy.sparse, and the prior over sets of them."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracle
from relvec import RVR, SparseBayesianClassifier, SparseBayesianRegressor, load, save
from relvec.design import DenseDesign, StandardisedDesign, centre_columns
from relvec.solvers import Sequential

TRUE = np.array([3.0, -2.0, 1.5, 0.8])


def problem(n=120, p=400, noise=0.5, seed=0, density=1.0):
    """Rows of p columns of different means and scales, four of which make the target."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * (rng.uniform(size=(n, p)) < density)
    y = X[:, [5, 17, 101, 250]] @ TRUE + 4.0 + noise * rng.standard_normal(n)
    return X, y


X, Y = problem()
SPARSE_X, SPARSE_Y = problem(density=0.3, seed=1)


@parametrize_with_checks([SparseBayesianRegressor(), SparseBayesianClassifier()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # for random targets of few rows
def test_scikit_learn_takes_them(estimator, check):
    check(estimator)


@pytest.mark.parametrize("weights", [None, np.random.default_rng(2).uniform(0.0, 2.0, 120).round()])
def test_sparse_rows_give_the_model_of_dense_rows(weights):
    dense = SparseBayesianRegressor().fit(SPARSE_X, SPARSE_Y, weights)
    rows = sparse.csr_array(SPARSE_X)
    found = SparseBayesianRegressor().fit(rows, SPARSE_Y, weights)
    assert np.array_equal(found.selected_, dense.selected_)
    for name in ("coef_", "coef_std_", "gain_", "intercept_", "log_marginal_likelihood_", "noise_variance_"):
        np.testing.assert_allclose(getattr(found, name), getattr(dense, name), rtol=1e-8, atol=1e-10)
    for got, expected in zip(found.predict(rows, True), dense.predict(SPARSE_X, True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert found.score(rows, SPARSE_Y) == pytest.approx(dense.score(SPARSE_X, SPARSE_Y))


def test_columns_of_classes_pay_for_their_number():
    rng = np.random.default_rng(1)
    rows, slopes = rng.standard_normal((200, 400)), np.zeros(400)
    slopes[[5, 50, 300]] = [2.0, -1.5, 1.5]
    y = rng.uniform(size=200) < 1.0 / (1.0 + np.exp(-rows @ slopes))
    model = SparseBayesianClassifier().fit(rows, y)
    plain = SparseBayesianClassifier(solver=Sequential(price=0.0)).fit(rows, y)
    assert np.flatnonzero(model.selected_).tolist() == [5, 50, 300] and plain.selected_.sum() > 10


def test_columns_that_separate_classes_are_not_ahead_of_the_few_that_act():
    rng = np.random.default_rng([0, 2000, 2])
    X, _, slopes = rng.standard_normal((200, 2000)), rng.standard_normal((5000, 2000)), np.zeros(2000)
    slopes[rng.choice(2000, 5, replace=False)] = rng.choice([-1.0, 1.0], 5) * rng.uniform(1.0, 2.0, 5)
    y = rng.uniform(size=200) < expit(X @ slopes)
    model = SparseBayesianClassifier().fit(X, y)
    true = SparseBayesianClassifier(solver=Sequential(price=0.0)).fit(X[:, slopes != 0.0], y)
    paid = [m.log_marginal_likelihood_ - m.selected_.sum() * np.log(2000.0) for m in (model, true)]
    assert paid[0] >= paid[1] - 1e-3 and model.selected_.sum() <= 6


def test_columns_among_gross_errors():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((150, 400))
    y = rows[:, [1, 5, 20]] @ [2.0, -1.0, 1.0] + 0.3 * rng.standard_t(2.5, 150)
    y[rng.choice(150, 12, replace=False)] += 15.0
    model = RVR(kernel=None, basis="linear", likelihood="student-t").fit(rows, y)
    assert {1, 5, 20} <= set(np.flatnonzero(model.selected_)) and model.selected_.sum() < 6
    np.testing.assert_allclose(model.coef_[[1, 5, 20]], [2.0, -1.0, 1.0], atol=0.2)


def test_sparse_classes_and_counts():
    rows = sparse.csc_matrix(SPARSE_X)
    y = SPARSE_Y > 4.0
    dense, found = SparseBayesianClassifier().fit(SPARSE_X, y), SparseBayesianClassifier().fit(rows, y)
    assert np.array_equal(found.selected_, dense.selected_) and dense.selected_[5]
    np.testing.assert_allclose(found.coef_, dense.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.predict_proba(rows), dense.predict_proba(SPARSE_X), rtol=1e-6)
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * SPARSE_X[:, 5] + 1.0))
    model = RVR(kernel=None, basis="linear", likelihood="poisson")
    np.testing.assert_allclose(
        clone(model).fit(rows, counts).predict(rows), model.fit(SPARSE_X, counts).predict(SPARSE_X), rtol=1e-6
    )


def test_kernels_do_not_take_sparse_rows():
    with pytest.raises(TypeError, match="parse"):
        RVR(width=1.0).fit(sparse.csr_array(SPARSE_X), SPARSE_Y)


def test_fifty_thousand_sparse_columns_stay_sparse():
    n, p = 500, 50_000
    rows = sparse.random(n, p, density=0.01, format="csr", random_state=0)
    rng = np.random.default_rng(0)
    rows.data = rng.standard_normal(rows.nnz) + 1.0
    columns = np.argsort(-np.diff(rows.tocsc().indptr))[:10]
    y = 3.0 * np.asarray(rows[:, columns].sum(axis=1)).ravel() + 0.3 * rng.standard_normal(n)
    tracemalloc.start()
    model = SparseBayesianRegressor().fit(rows, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(np.flatnonzero(model.selected_)) == sorted(columns)
    assert peak < 0.5 * 8 * n * p  # bytes of the dense matrix
    assert model.n_candidates_ == p + 1 and model.status_ == "converged"


def test_units_and_means_of_columns_do_not_matter():
    scale = np.geomspace(1e-6, 1e6, X.shape[1])[np.random.default_rng(0).permutation(X.shape[1])]
    plain = SparseBayesianRegressor().fit(X, Y)
    assert np.flatnonzero(plain.selected_).tolist() == [5, 17, 101, 250]
    moved = SparseBayesianRegressor().fit(X * scale + 30.0 * scale, 1e3 * Y)
    assert np.array_equal(moved.selected_, plain.selected_)
    np.testing.assert_allclose(moved.coef_ * scale, 1e3 * plain.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moved.coef_std_ * scale, 1e3 * plain.coef_std_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(moved.gain_, plain.gain_, rtol=1e-6, atol=1e-6)


def test_more_columns_than_rows_do_not_pass_through_the_target():
    wide, y = problem(n=60, p=2000)
    model = SparseBayesianRegressor().fit(wide, y)
    assert model.selected_.sum() <= 8 and 0.1 < model.noise_variance_ < 0.6
    assert np.abs(model.coef_[[5, 17, 101]] - TRUE[:3]).max() < 0.4


def test_posterior_and_gains_against_the_dense_formulas():
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(Y))
    model = SparseBayesianRegressor().fit(X, Y, weights)
    columns = np.flatnonzero(model.selected_)
    centred = X[:, columns] - weights @ X[:, columns] / weights.sum()
    Phi, beta = np.column_stack([centred, np.ones(len(Y))]), 1.0 / model.noise_variance_
    alpha = model.alpha_
    Sigma, mean = oracle.posterior(Phi, Y, alpha, beta, weights)
    np.testing.assert_allclose(model.coef_[columns], mean[:-1], rtol=1e-7)
    np.testing.assert_allclose(model.coef_std_[columns], np.sqrt(np.diag(Sigma))[:-1], rtol=1e-7)
    offset = weights @ X[:, columns] / weights.sum()
    assert model.intercept_ == pytest.approx(mean[-1] - offset @ mean[:-1], rel=1e-7)
    whole = oracle.log_evidence(Phi, Y, alpha, beta, weights)
    assert model.log_marginal_likelihood_ == pytest.approx(whole, rel=1e-9)
    for i, column in enumerate(columns):
        keep = np.arange(len(alpha)) != i
        less = oracle.log_evidence(Phi[:, keep], Y, alpha[keep], beta, weights)
        assert model.gain_[column] == pytest.approx(whole - less, rel=1e-6)
    # the variance of the function at a row, from the formulas in centred coordinates
    row = X[:1]
    phi = np.append(row[0, columns] - offset, 1.0)
    function = model.fitted_.functions[0]
    assert function.moments(row, True, noise=False)[1][0] == pytest.approx(phi @ Sigma @ phi, rel=1e-7)


def test_copies_of_rows_are_weights():
    copies = np.arange(len(Y)) % 3
    model = SparseBayesianRegressor().fit(X, Y, copies)
    repeated = SparseBayesianRegressor().fit(np.repeat(X, copies, axis=0), np.repeat(Y, copies))
    assert np.array_equal(model.selected_, repeated.selected_)
    np.testing.assert_allclose(model.coef_, repeated.coef_, rtol=1e-6, atol=1e-9)


def test_constant_and_empty_columns_are_never_selected():
    wide = np.column_stack([X, np.full(len(Y), 7.3), np.zeros(len(Y))])
    for rows in (wide, sparse.csr_array(wide)):
        model = SparseBayesianRegressor().fit(rows, Y)
        assert not model.selected_[-2:].any() and model.selected_.sum() == 4


def test_without_an_intercept_columns_are_not_centred():
    model = SparseBayesianRegressor(fit_intercept=False).fit(X + 1.0, Y - 4.0 + TRUE.sum())
    assert model.intercept_ == 0.0 and model.selected_[[5, 17, 101, 250]].all()
    np.testing.assert_allclose(model.predict(np.zeros((1, X.shape[1]))), 0.0)


def test_outputs_and_files(tmp_path):
    both = SparseBayesianRegressor(noise_variance=1e-3).fit(X, np.column_stack([Y, X[:, 3] - 2.0 + 0.1 * X[:, 5]]))
    assert both.coef_.shape == both.coef_std_.shape == both.selected_.shape == (2, X.shape[1])
    assert np.flatnonzero(both.selected_[1]).tolist() == [3, 5]
    save(both, tmp_path / "model.relvec")
    again = load(tmp_path / "model.relvec")
    assert type(again) is SparseBayesianRegressor and np.array_equal(again.predict(X), both.predict(X))
    assert np.array_equal(again.gain_, both.gain_)


def test_a_flat_prior_over_sets_has_at_least_the_evidence():
    small = X[:, [5, 17, 101, 250, *range(30, 50)]]
    flat = SparseBayesianRegressor(solver=Sequential(support_prior="flat")).fit(small, Y)
    sized = SparseBayesianRegressor().fit(small, Y)
    assert flat.log_marginal_likelihood_ >= sized.log_marginal_likelihood_ - 1e-6
    assert sized.selected_.sum() <= flat.selected_.sum()
    with pytest.raises(ValueError, match="support_prior"):
        Sequential(support_prior="small")


@pytest.mark.parametrize("constant", [True, False])
def test_implicit_columns_are_those_of_the_dense_design(constant):
    rng = np.random.default_rng(0)
    rows, weights = SPARSE_X[:30, :20] + 0.0, rng.uniform(0.5, 2.0, 30)
    Phi = np.column_stack([rows, np.ones(30)]) if constant else rows
    dense = DenseDesign(Phi * np.sqrt(weights)[:, None])
    dense = centre_columns(dense, 20) if constant else dense
    for found in (StandardisedDesign(form(rows), weights, constant) for form in (np.asarray, sparse.csc_array)):
        atoms = np.arange(found.n_atoms)[::-1]
        np.testing.assert_allclose(found.scale, dense.scale, rtol=1e-12)
        np.testing.assert_allclose(found.columns(atoms), dense.columns(atoms), atol=1e-12)
        Z, W = rng.standard_normal((30, 3)), rng.uniform(size=(30, 2))
        np.testing.assert_allclose(found.project(Z), Z.T @ dense.matrix, atol=1e-12)
        np.testing.assert_allclose(found.diagonal(W), W.T @ dense.matrix**2, atol=1e-12)
        if constant:
            np.testing.assert_allclose(found.offset, dense.offset, atol=1e-12)


def test_a_constant_enters_when_the_columns_have_lowered_the_noise():
    """Of the targets as they are its mean is a small share; of what the columns leave it is most."""
    X, y = make_regression(80, 20, n_informative=4, noise=5.0, random_state=0)
    model = SparseBayesianRegressor().fit(X, y)
    line = LinearRegression().fit(X[:, model.selected_], y)
    assert model.status_ == "converged" and abs(model.intercept_ - line.intercept_) < 1.0
