"""Predictive distributions that know what they do not know: RVM*, and the priors they come from."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as t_distribution
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracle
from relvec import RVC, RVR, kernels
from relvec.export import model_file as persistence
from relvec.inference.predictive import Augmented
from relvec.solvers import Sequential
from reproduction import Context, select
from reproduction._priors import prior_covariance, sample_functions, weight_log_density
from reproduction.rq05 import MODELS, as_fitted, compare

QUICK = Sequential(restarts=0)


def wave(n=50, noise=0.1, seed=0, d=1):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-4.0, 4.0, (n, d)), axis=0)
    return X, np.sin(X[:, 0]) + 2.0 + noise * rng.standard_normal(n)


@parametrize_with_checks(
    [
        RVR(width=1.0, predictive="augmented", solver=QUICK),
        RVC(width=1.5, predictive="augmented", solver=QUICK),
    ],
)
def test_scikit_learn_accepts_them(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


# --- RVM* ----------------------------------------------------------------------------------------------------------


def dense_augmented(model, kernel, X, y, x, alpha_star, weights):
    """Mean and variance at one x of the model with one more function there, refitted from its design (RQ05 (5))."""
    Phi = np.column_stack([model.basis_(X), kernel(X, x[None])])
    row = np.append(model.basis_(x[None])[0], kernel(x[None], x[None])[0, 0])
    A = np.diag(np.append(model.alpha_, alpha_star))
    beta = 1.0 / model.noise_variance_
    Sigma = np.linalg.inv(A + beta * Phi.T @ (weights[:, None] * Phi))
    return row @ Sigma @ (beta * Phi.T @ (weights * y)), row @ Sigma @ row + 1.0 / beta


@pytest.mark.parametrize("kernel", [kernels.Gaussian(1.0), kernels.LogDistance(1.0), kernels.Matern(1.5, 2.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_rvm_star_is_a_refit_with_one_more_function(kernel, weighted):
    X, y = wave()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else np.ones(len(X))
    model = RVR(kernel=kernel, predictive="augmented", solver=QUICK).fit(X, y, sample_weight=weights)
    new = np.array([[-9.0], [-4.1], [0.3], [3.9], [7.0]])
    mean, std = model.predict(new, return_std=True)
    alpha = 1.0 / np.cov(y, aweights=weights, ddof=0)
    for x, m, s in zip(new, mean, std, strict=True):
        wanted, variance = dense_augmented(model, kernel, X, y, x, alpha, weights)
        np.testing.assert_allclose(m, wanted, rtol=1e-9)
        np.testing.assert_allclose(s**2, variance, rtol=1e-9)


def test_rvm_star_of_the_paper_with_every_function_in_the_model():
    """RQ05 figure 1: all alpha = 1, sigma^2 = 0.1, both families of kernels."""
    X = np.linspace(-5.0, 5.0, 10)[:, None]
    y = np.sin(X[:, 0])
    for kernel in (kernels.Gaussian(np.sqrt(2.0)), kernels.LogDistance()):
        Phi, new = kernel(X, X), np.linspace(-15.0, 15.0, 31)[:, None]
        C = 0.1 * np.eye(10) + Phi @ Phi.T
        for x in new:
            phi = kernel(X, x[None])[:, 0]
            at = kernel(x[None], X)[0]
            s = phi @ np.linalg.solve(C, phi)
            e = kernel(x[None], x[None])[0, 0] - at @ Phi.T @ np.linalg.solve(C, phi)
            plain = at @ at - at @ Phi.T @ np.linalg.solve(C, Phi @ at)
            star_C = C + np.outer(phi, phi)
            k = Phi @ at + phi * kernel(x[None], x[None])[0, 0]
            star = at @ at + kernel(x[None], x[None])[0, 0] ** 2 - k @ np.linalg.solve(star_C, k)
            np.testing.assert_allclose(plain + e**2 / (1.0 + s), star, atol=1e-8)  # (6) and (9) agree
    assert np.isfinite(y).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), width=st.floats(0.3, 5.0), alpha=st.sampled_from([None, 0.1, 30.0, "evidence"]))
def test_the_variance_of_rvm_star_is_never_smaller(seed, width, alpha):
    X, y = wave(30, seed=seed)
    new = np.random.default_rng(seed).uniform(-20.0, 20.0, (40, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rvm = RVR(width=width, solver=QUICK).fit(X, y)
        star = clone(rvm).set_params(predictive=Augmented(alpha)).fit(X, y)
    assert np.all(star.predict(new, return_std=True)[1] >= rvm.predict(new, return_std=True)[1])
    np.testing.assert_array_equal(star.weights_, rvm.weights_)


def test_a_prediction_of_rvm_star_does_not_depend_on_its_batch(monkeypatch):
    X, y = wave()
    model = RVR(width=1.0, predictive="augmented", solver=QUICK).fit(X, y)
    new = np.linspace(-8.0, 8.0, 50)[:, None]
    whole = model.predict(new, return_std=True)
    monkeypatch.setattr("relvec.inference.predictive.linear.BLOCK_NUMBERS", 200)
    np.testing.assert_allclose(model.predict(new, return_std=True), whole, rtol=1e-12)
    np.testing.assert_allclose(model.predict(new[7:8], return_std=True), [w[7:8] for w in whole], rtol=1e-12)


def test_alpha_star_is_the_prior_far_away_and_the_evidence_deletes_it():
    X, y = wave()
    far = [[60.0]]
    plain = RVR(width=1.0, solver=QUICK).fit(X, y)
    std = plain.predict(far, return_std=True)[1]
    given_alpha = clone(plain).set_params(predictive=Augmented(0.25)).fit(X, y).predict(far, return_std=True)[1]
    np.testing.assert_allclose(given_alpha**2, std**2 + 4.0, rtol=1e-8)
    rejected = clone(plain).set_params(predictive=Augmented("evidence")).fit(X, y).predict(far, return_std=True)[1]
    np.testing.assert_array_equal(rejected, std)


def test_rvm_star_of_every_output_and_of_large_units():
    X, y = wave()
    Y = np.column_stack([y, 1e150 * np.cos(X[:, 0])])
    both = RVR(width=1.5, predictive="augmented", noise_variance=None, solver=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        both = both.fit(X, Y)
        mean, std = both.predict([[0.5], [9.0]], return_std=True)
    assert mean.shape == std.shape == (2, 2) and np.isfinite(std).all()
    one = RVR(width=1.5, predictive="augmented", solver=QUICK).fit(X, y)
    np.testing.assert_allclose(std[:, 0], one.predict([[0.5], [9.0]], return_std=True)[1], rtol=1e-8)


def test_what_rvm_star_cannot_do_is_refused():
    X, y = wave()
    model = RVR(width=1.5, predictive="augmented", solver=QUICK).fit(X, y)
    with pytest.raises(ValueError, match="each point predicted has a model of its own"):
        model.predict(X, return_cov=True)
    with pytest.raises(ValueError, match="each point predicted has a model of its own"):
        model.sample_y(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "precomputed", "predictive": "augmented"}, "needs a kernel as a function"),
        ({"kernel": None, "basis": "linear", "predictive": "augmented"}, "needs a kernel as a function"),
        ({"predictive": "gp"}, "predictive must be .*'rvm'.*got 'gp'"),
        ({"likelihood": "poisson", "predictive": "augmented"}, "no augmented distribution"),
    ],
)
def test_refusals(options, message):
    X = np.arange(6.0)[:, None] * np.ones(6)
    with pytest.raises(ValueError, match=message):
        RVR(**options).fit(X, np.arange(6))


@pytest.mark.parametrize("make", [lambda: Augmented(-1.0), lambda: Augmented("variance")])
def test_options_are_checked(make):
    with pytest.raises(ValueError, match="must be"):
        make()


def test_files_hold_them():
    X, y = wave()
    model = RVR(predictive="augmented", width="learn", solver=QUICK).fit(X, np.column_stack([y, -y]))
    again = persistence.loads(persistence.dumps(model))
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))


def test_exports_refuse_rvm_star():
    from relvec.export.c99 import to_c

    model = RVR(width=1.5, solver=QUICK, predictive="augmented").fit(*wave())
    with pytest.raises(NotImplementedError, match="predictive distribution"):
        to_c(model)
    pytest.importorskip("onnx")
    from relvec.export.onnx import to_onnx

    with pytest.raises(NotImplementedError, match="predictive distribution"):
        to_onnx(model)


# --- priors over weights and functions -----------------------------------------------------------------------------


def test_covariance_functions_of_the_prior():
    """T01 (59), RQ05 (8) and (9), against functions drawn from the prior."""
    rng = np.random.default_rng(0)
    x, z, star = np.linspace(-2.0, 2.0, 4)[:, None], np.array([[-1.0], [0.5]]), np.array([[1.2]])
    kernel, alpha = kernels.Gaussian(1.0), np.array([0.5, 2.0])
    C = prior_covariance(kernel(x, z), kernel(x, z), alpha)
    drawn = sample_functions(kernel(x, z), alpha, 200_000, rng)
    np.testing.assert_allclose(np.cov(drawn), C, atol=0.02)
    phi = kernel(x, star)[:, 0]
    wanted = C + np.outer(phi, phi) / 3.0
    np.testing.assert_allclose(prior_covariance(kernel(x, z), kernel(x, z), alpha, (phi, phi, 3.0)), wanted)
    assert np.linalg.matrix_rank(C) == 2 and np.linalg.matrix_rank(wanted) == 3  # RQ05: degenerate, and less so


def test_a_weight_with_its_precision_integrated_out_is_student_t():
    w, a, b = np.linspace(-3.0, 3.0, 7), 1.5, 0.7
    np.testing.assert_allclose(weight_log_density(w, a, b), t_distribution(2.0 * a, scale=np.sqrt(b / a)).logpdf(w))
    with pytest.raises(ValueError, match="must be positive"):
        weight_log_density(w, 0.0, 0.0)


def test_the_entries_of_the_paper():
    """RQ05 figures 1 and 2: only the cures are less sure away from the data."""
    (one,), (two,) = select(["RQ05-figure-1"]), select(["RQ05-figure-2"])
    found = one.run(Context(one.name, 1)).values
    for family in ("Gaussian", "log(1 + distance^2)"):
        stem = "std at 15 over that at 0"
        assert found[f"{stem}, RVM*, {family}"] > 2.0 * found[f"{stem}, RVM, {family}"]
    assert found["std at 15 over that at 0, RVM, Gaussian"] < 1.0
    found = two.run(Context(two.name, 1)).values
    assert found["std at 30 over that in the data, RVM"] < 1.1
    others = {name: ratio for name, ratio in found.items() if "std at 30" in name and not name.endswith(" RVM")}
    assert len(others) == 2 and min(others.values()) > 1.5


def test_one_partition_of_a_table():
    """All models on a small problem: what is measured, and footnote 3 (too large variances)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (120, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    found = compare(X[:60], y[:60], X[60:], y[60:], 2.0)
    assert max(found[f"squared, {name}"] for name in MODELS) < 4.0 * 0.03
    small = compare(X[:60], y[:60], X[60:], y[60:], 1.0)
    assert found["-log density, GP"] == pytest.approx(small["-log density, GP"] + np.log(2.0))
    rvm = RVR(width=1.0).fit(X[:60], y[:60])
    star = as_fitted(rvm, Augmented(), X[:60], y[:60])
    few = RVR(width=1.0, predictive=Augmented(targets="vectors")).fit(X[:60], y[:60])
    wide, narrow = (model.predict(X[60:], return_std=True, noise=False)[1] for model in (few, star))
    assert np.mean(wide**2) > np.mean(narrow**2)
    # dense: the precisions and the noise of the machine, the targets of its vectors alone
    rows, beta = rvm.relevance_, 1.0 / rvm.noise_variance_
    Phi, Z, centres = rvm.basis_(X[rows]), rvm.basis_(X[60:62]), rvm.kernel_(X[rows], X[60:62])
    found = np.column_stack(few.predict(X[60:62], return_std=True))
    for i in range(2):
        star_alpha = 1.0 / y[:60].var()
        mean, variance = oracle.rvm_star(Phi, y[rows], rvm.alpha_, beta, Z[i], centres[:, i], 1.0, star_alpha)
        assert found[i] == pytest.approx([mean, np.sqrt(variance)], rel=1e-6)


def test_targets_of_vectors_are_those_of_each_output():
    """Two outputs, of repeated rows with weights: each as alone."""
    rng = np.random.default_rng(1)
    X = np.repeat(rng.uniform(-3.0, 3.0, (40, 1)), 2, axis=0)
    Y = np.column_stack([np.sin(X[:, 0]), np.cos(2.0 * X[:, 0])]) + 0.1 * rng.standard_normal((80, 2))
    model = RVR(width=1.0, predictive=Augmented(targets="vectors"))
    both = model.fit(X, Y).predict(X[:5] + 0.1, return_std=True)
    for i in range(2):
        one = clone(model).fit(X, Y[:, i]).predict(X[:5] + 0.1, return_std=True)
        np.testing.assert_allclose([both[0][:, i], both[1][:, i]], one, rtol=1e-5)
    with pytest.raises(ValueError, match="targets must be 'all' or 'vectors'"):
        Augmented(targets="some")
    with pytest.raises(ValueError, match="targets of Augmented must be 'all'"):
        RVC(width=1.0, predictive=Augmented(targets="vectors")).fit(X, X[:, 0] > 0.0)


# --- classes -------------------------------------------------------------------------------------------------------


def blobs(K, n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return rng.standard_normal((n, 2)) + 2.0 * np.column_stack([np.cos(y), np.sin(y)]), y


@pytest.mark.parametrize(("K", "multi_class"), [(2, "multinomial"), (3, "multinomial"), (3, "ovr")])
def test_rvm_star_of_classes_is_a_dense_refit_of_the_linearised_model(K, multi_class):
    """The latent functions given the working responses f + B^-1 r, whose noise has the precision B (T01 eq. (25))."""
    X, y = blobs(K)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    kernel = kernels.Gaussian(2.0)
    model = RVC(kernel=kernel, multi_class=multi_class, predictive=Augmented(0.5), solver=QUICK).fit(X, y, weights)
    plain = RVC(kernel=kernel, multi_class=multi_class, solver=QUICK).fit(X, y, weights)
    np.testing.assert_array_equal(model.weights_, plain.weights_)
    np.testing.assert_array_equal(model.covariance_, plain.covariance_)
    first = model.fitted_.classifier.latents[0]
    Q, alpha = first.n_outputs, np.atleast_2d(model.alpha_)[: first.n_outputs]
    if Q == K:
        target = oracle.with_prior_rows(y, "softmax", weights)
    else:
        target = oracle.with_prior_rows((y == (1 if K == 2 else 0)).astype(int), "bernoulli", weights)[:, None]
    for x in np.array([[0.0, 0.0], [1.0, -2.0], [6.0, 5.0]]):
        star = np.column_stack([model.basis_(X), kernel(X, x[None])])
        at = np.append(model.basis_(x[None])[0], 1.0)
        precision = np.column_stack([alpha, np.full(Q, 0.5)]).ravel()  # output by output
        kept = np.isfinite(precision)
        f = model.basis_(X) @ np.atleast_2d(model.weights_)[:Q].T
        if Q == 1:
            p = 1.0 / (1.0 + np.exp(-f))
            B = weights[:, None, None] * (p * (1.0 - p))[..., None]
        else:
            p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
            B = weights[:, None, None] * (p[:, :, None] * np.eye(Q) - p[:, :, None] * p[:, None, :])
        r = weights[:, None] * (target - p)
        design = np.einsum("nm,ab->nabm", star, np.eye(Q)).reshape(len(X), Q, -1)[..., kept]  # (n, Q, weights)
        H = np.einsum("nai,nab,nbj->ij", design, B, design) + np.diag(precision[kept])
        right = np.einsum("nai,na->i", design, r + np.einsum("nab,nb->na", B, f))
        row = np.einsum("m,ab->abm", at, np.eye(Q)).reshape(Q, -1)[:, kept]
        mean, covariance = first.moments(x[None])
        np.testing.assert_allclose(mean[0], row @ np.linalg.solve(H, right), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(covariance[0], row @ np.linalg.solve(H, row.T), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("K", "multi_class"), [(2, "multinomial"), (3, "multinomial"), (3, "ovr")])
def test_probabilities_are_moderate_away_from_the_data(K, multi_class):
    X, y = blobs(K)
    plain = RVC(width=1.5, fit_intercept=False, basis="linear", multi_class=multi_class, solver=QUICK).fit(X, y)
    star = clone(plain).set_params(predictive="augmented").fit(X, y)
    around = 6.0 * np.column_stack([np.cos(np.arange(12.0)), np.sin(np.arange(12.0))])
    sure, moderate = (m.predict_proba(around).max(axis=1).mean() for m in (plain, star))
    assert moderate < sure - 0.02
    assert star.score(X, y) > plain.score(X, y) - 0.05
    whole = star.predict_proba(around)
    np.testing.assert_allclose(star.predict_proba(around[3:4]), whole[3:4], rtol=1e-9)
    again = persistence.loads(persistence.dumps(star))
    np.testing.assert_array_equal(again.predict_proba(around), whole)


@pytest.mark.parametrize(
    ("predictive", "message"),
    [(Augmented("evidence"), "None or a positive number"), ("gp", "must be 'rvm'")],
)
def test_what_classes_cannot_have_is_refused(predictive, message):
    X, y = blobs(2)
    with pytest.raises(ValueError, match=message):
        RVC(predictive=predictive).fit(X, y)
    with pytest.raises(ValueError, match="needs a kernel as a function"):
        RVC(kernel=None, basis="linear", predictive="augmented").fit(X, y)


def test_exports_refuse_rvm_star_of_classes():
    from relvec.export.c99 import to_c

    model = RVC(width=1.5, predictive="augmented", solver=QUICK).fit(*blobs(2))
    with pytest.raises(NotImplementedError, match="predictive distribution"):
        to_c(model)


def test_quantiles_of_counts_beyond_every_whole_number_are_found():
    """Between two doubles above 2^53 there is no whole number: a search for a gap of one would not end."""
    x = np.linspace(0.0, 3.0, 30)[:, None]
    model = RVR(kernel=None, basis="linear", likelihood="poisson").fit(x, np.round(np.exp(x[:, 0])))
    mean, low, high = model.predict([[40.0], [100.0], [1e3]], return_interval=0.9).T
    assert np.isfinite(mean).all() and (low <= high).all() and (high > 2.0**53).all()


def test_counts_that_a_column_tells_apart_have_sane_rates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    model = RVR(likelihood="poisson", width=1.0).fit(X, (X[:, 0] > 0.0).astype(float))
    rate, std = model.predict(3.0 * rng.normal(size=(500, 2)), return_std=True)
    assert rate.max() < 100.0 and std.max() < 1000.0
