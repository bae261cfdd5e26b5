"""Predictive distributions that know what they do not know: RVM*, and the process on the relevance vectors."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relvec.inference.process import Covariance, Process, TrainingRows, as_predictive, evidence, maximise_evidence
from scipy.stats import t as t_distribution
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from relvec import RVC, RVR, kernels
from relvec.export import model_file as persistence
from relvec.inference.predictive import Augmented
from relvec.solvers import Sequential
from reproduction import Context, select
from reproduction._priors import prior_covariance, sample_functions, weight_log_density
from reproduction.rq05 import MODELS, as_fitted, compare, refitted

QUICK = Sequential(restarts=0)


def wave(n=50, noise=0.1, seed=0, d=1):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-4.0, 4.0, (n, d)), axis=0)
    return X, np.sin(X[:, 0]) + 2.0 + noise * rng.standard_normal(n)


@parametrize_with_checks(
    [
        RVR(width=1.0, predictive="augmented", solver=QUICK),
        RVR(width=1.5, predictive="process", solver=QUICK),
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


# --- the process ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "covariance",
    [
        Covariance((kernels.Gaussian((1.0, 2.0)),), np.array([0.7])),
        Covariance((kernels.Matern(2.5, 1.5), kernels.Polynomial(2, 1.0, 1.5)), np.array([0.7, 0.3])),
    ],
)
def test_the_gradient_of_the_evidence_is_that_of_its_values(covariance):
    rng = np.random.default_rng(0)
    X, t = rng.standard_normal((40, 2)), rng.standard_normal(40)
    rows, Z = TrainingRows(X, t, rng.uniform(0.5, 2.0, 40), np.ones((40, 1))), X[:6]
    at = np.append(covariance.theta, np.log(0.3))

    def value(x):
        return evidence(covariance.with_theta(x[:-1]), np.exp(x[-1]), Z, rows)[0]

    steps = 1e-5 * np.eye(len(at))
    numeric = [(value(at + step) - value(at - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(evidence(covariance, 0.3, Z, rows)[2], numeric, rtol=1e-5, atol=1e-5)


def test_the_evidence_is_that_of_the_corrected_covariance():
    rng = np.random.default_rng(0)
    X, t = rng.standard_normal((30, 2)), rng.standard_normal(30)
    kernel, Z, H = kernels.Gaussian(1.3), X[:5], rng.standard_normal((30, 1))
    K, Kz = 0.8 * kernel(X, X), 0.8 * kernel(X, Z)
    Q = Kz @ np.linalg.solve(0.8 * (kernel(Z, Z) + 1e-8 * np.eye(5)), Kz.T)
    C = Q + np.diag(np.diag(K - Q)) + 0.2 * np.eye(30) + H @ H.T
    dense = -0.5 * (30 * np.log(2.0 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t))
    covariance = Covariance((kernel,), np.array([0.8]))
    np.testing.assert_allclose(evidence(covariance, 0.2, Z, TrainingRows(X, t, np.ones(30), H))[0], dense, rtol=1e-9)


def test_with_every_row_a_vector_it_is_an_exact_gaussian_process():
    X, y = wave(25)
    rows = TrainingRows(X, y - 2.0, np.ones(25), np.zeros((25, 0)))
    found = maximise_evidence(Covariance((kernels.Gaussian(1.5),), np.array([0.5])), 0.1, X, rows, 1e-8)
    amplitude, width = found.covariance.amplitudes[0], found.covariance.kernels[0].width
    kernel = ConstantKernel(amplitude) * RBF(width / np.sqrt(2.0)) + WhiteKernel(found.noise)
    exact = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y - 2.0)
    np.testing.assert_allclose(found.value, exact.log_marginal_likelihood_value_, rtol=1e-4)
    slope = exact.log_marginal_likelihood(exact.kernel_.theta, eval_gradient=True)[1]
    np.testing.assert_allclose(slope, 0.0, atol=0.02)


def test_the_variance_returns_to_the_prior_and_nothing_of_the_data_is_kept():
    X, y = wave(400)
    model = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y)
    near, far = model.predict([[0.0], [500.0]], return_std=True, noise=False)[1]
    process = model.process_
    constant = (process.root[-1] @ process.root[-1]) * (process.unit / process.scale[-1]) ** 2
    assert process.prior_variance.sum() >= 0.999 * y.var()
    np.testing.assert_allclose(far**2, process.prior_variance.sum() + constant, rtol=1e-10)
    assert far > 0.5 > 0.1 > near and len(process.Z) == len(model.relevance_)
    assert len(persistence.dumps(model)) < 60_000  # 400 rows of float64 are 3,200 bytes a column
    assert not any(400 in np.shape(value) for value in vars(process).values())


def test_it_is_as_good_as_the_rvm_where_there_are_data():
    errors = []
    for seed in range(6):
        X, y = wave(60, seed=seed)
        new, truth = wave(300, seed=seed + 100)
        models = [RVR(width=2.0, predictive=p, solver=QUICK).fit(X, y) for p in ("rvm", "process")]
        errors.append([-model.log_predictive_density(new, truth).mean() for model in models])
    rvm, process = np.mean(errors, axis=0)
    assert process < rvm + 0.02


def test_the_variances_pay_for_what_was_chosen(monkeypatch):
    X, y = wave(60)
    new = np.array([[0.3], [5.0], [40.0]])
    model = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    monkeypatch.setattr("relvec.inference.process.predictor.selection_factor", lambda n, chosen: 1.0)
    free = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y)
    free_mean, free_std = free.predict(new, return_std=True)
    np.testing.assert_allclose(mean, free_mean, rtol=1e-6)
    np.testing.assert_allclose(std**2 / free_std**2, 60.0 / (60.0 - len(model.relevance_) - 1.0), rtol=1e-6)


@pytest.mark.parametrize(("width", "noise", "share"), [(2.0, 0.1, 1.0), (0.7, 3.0, 0.3)])
def test_the_evidence_chooses_the_prior_of_the_weights_of_the_rvm(monkeypatch, width, noise, share):
    """All of their size where they explain much, less where they follow the noise."""
    X, y = wave(60, noise=noise)
    model = RVR(width=width, predictive="process", solver=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scale = clone(model).fit(X, y).process_.scale
        monkeypatch.setattr("relvec.inference.process.predictor._WEIGHT_DEVIATION_SHARES", (share, share))
        np.testing.assert_allclose(clone(model).fit(X, y).process_.scale, scale)


def test_covariance_samples_and_std_agree():
    X, y = wave()
    model = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y)
    new = np.linspace(-7.0, 7.0, 6)[:, None]
    mean, std = model.predict(new, return_std=True, noise=False)
    _, cov = model.predict(new, return_cov=True, noise=False)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-9)
    drawn = model.sample_y(new, 20_000)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(drawn), cov, atol=0.05 * cov.max())
    noisy = model.predict(new, return_std=True)[1]
    np.testing.assert_allclose(noisy**2 - std**2, model.noise_variance_, rtol=1e-8)


def test_units_and_fixed_noise():
    X, y = wave()
    model = RVR(width=1.5, predictive="process", noise_variance=0.02, solver=QUICK).fit(X, y)
    np.testing.assert_allclose(model.noise_variance_, 0.02)
    other = RVR(width=1.5e4, predictive="process", noise_variance=0.02e6, solver=QUICK).fit(X * 1e4, y * 1e3)
    new = np.array([[0.5], [6.0]])
    np.testing.assert_allclose(
        np.divide(other.predict(new * 1e4, return_std=True), 1e3), model.predict(new, return_std=True), rtol=1e-4
    )


def test_the_widths_start_at_root_two_and_may_stay_there():
    X, y = wave()
    held = RVR(width=1.5, predictive=Process(retune=False), solver=QUICK).fit(X, y)
    np.testing.assert_allclose(held.process_.prior.kernels[0].width, 1.5 * np.sqrt(2.0))
    tuned = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y)
    assert tuned.process_.log_evidence > held.process_.log_evidence


def test_trends_and_several_kernels_and_sample_weights():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    y = 3.0 * X[:, 1] + np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    model = RVR(width=1.5, basis=["linear", kernels.Gaussian(4.0)], predictive="process", solver=QUICK).fit(X, y)
    mean = model.predict([[0.0, 100.0], [0.0, -100.0]])
    np.testing.assert_allclose(mean[0] - mean[1], 600.0, rtol=0.25)
    weights = np.ones(60)
    weights[:10] = 2.0
    twice = RVR(width=1.5, predictive="process", solver=QUICK).fit(np.vstack([X, X[:10]]), np.append(y, y[:10]))
    once = RVR(width=1.5, predictive="process", solver=QUICK).fit(X, y, sample_weight=weights)
    new = X[:5] + 0.3
    np.testing.assert_allclose(once.predict(new, return_std=True), twice.predict(new, return_std=True), rtol=1e-3)


@pytest.mark.parametrize("kernel", ["laplace", "cauchy", "matern32", "polynomial", "linear"])
def test_other_positive_definite_kernels(kernel):
    X, y = wave()
    model = RVR(kernel=kernel, width="scale", predictive="process", solver=QUICK).fit(X, y)
    _, std = model.predict([[0.0], [30.0]], return_std=True)
    assert std[1] > 2.0 * std[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "log_distance", "predictive": "process"}, "needs a positive definite kernel"),
        ({"kernel": "precomputed", "predictive": "process"}, "needs a kernel as a function"),
        ({"kernel": "precomputed", "predictive": "augmented"}, "needs a kernel as a function"),
        ({"kernel": None, "basis": "linear", "predictive": "augmented"}, "needs a kernel as a function"),
        ({"predictive": "gp"}, "predictive must be 'rvm', 'augmented', 'process'"),
        ({"likelihood": "poisson", "predictive": "process"}, "'auto' and 'rvm' only"),
    ],
)
def test_refusals(options, message):
    X = np.arange(6.0)[:, None] * np.ones(6)
    with pytest.raises(ValueError, match=message):
        RVR(**options).fit(X, np.arange(6))


@pytest.mark.parametrize("make", [lambda: Augmented(-1.0), lambda: Augmented("variance"), lambda: Process(retune=2)])
def test_options_are_checked(make):
    with pytest.raises(ValueError, match="must be"):
        make()


def test_a_constant_target_and_a_model_without_vectors_are_predicted_as_before():
    X, _ = wave()
    with pytest.warns(ConvergenceWarning, match="CONSTANT"):
        model = RVR(width=1.5, predictive="process").fit(X, np.full(len(X), 3.0))
    assert model.process_ is None
    np.testing.assert_allclose(model.predict([[99.0]]), 3.0)
    assert as_predictive("rvm") is None


@pytest.mark.parametrize("predictive", ["augmented", "process"])
def test_files_hold_them(predictive):
    X, y = wave()
    model = RVR(predictive=predictive, width="learn", solver=QUICK).fit(X, np.column_stack([y, -y]))
    again = persistence.loads(persistence.dumps(model))
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predictive": "augmented"}, "predictive distribution"),
        ({"predictive": "process", "kernel": "polynomial"}, "Gaussian process|functions of the distance"),
    ],
)
def test_exports_refuse_what_they_cannot_write(options, message):
    from relvec.export.c99 import to_c

    X, y = wave()
    model = RVR(width=1.5, solver=QUICK, **options).fit(X, y)
    with pytest.raises(NotImplementedError, match=message):
        to_c(model)
    pytest.importorskip("onnx")
    from relvec.export.onnx import to_onnx

    with pytest.raises(NotImplementedError, match=message):
        to_onnx(model)


def test_a_process_is_a_sum_of_kernels_and_functions():
    """The moments that exports write down."""
    from relvec.export.exported import expand_output, read_model

    X, y = wave()
    new = np.linspace(-6.0, 6.0, 9)[:, None]
    Y = np.column_stack([y, np.cos(X[:, 0]) + 0.1 * np.sin(37.0 * X[:, 0])])
    model = RVR(width=1.5, basis=["linear", kernels.Cauchy(2.0)], predictive="process", solver=QUICK).fit(X, Y)
    exported = read_model(model)
    mean, std = model.predict(new, return_std=True)
    for i, predictor in enumerate(exported.predictors):
        (each,) = expand_output(exported, predictor, "to_c").parts
        Phi = each.basis(new)
        left = each.prior + np.sum((Phi @ each.root) ** 2, axis=1) - np.sum((Phi @ each.represented) ** 2, axis=1)
        variance = np.maximum(left, 0.0) + each.noise
        np.testing.assert_allclose(Phi @ each.weights, mean[:, i], rtol=1e-7)
        np.testing.assert_allclose(np.sqrt(variance), std[:, i], rtol=1e-7, atol=1e-9)


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
    assert found["std at 30 over that in the data, rvm"] < 1.1
    assert min(found[f"std at 30 over that in the data, {p}"] for p in ("augmented", "process")) > 1.5


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
    few = refitted(star, X[:60], y[:60]).moments(X[60:], True, False)[1]
    assert np.mean(few) > np.mean(star.predict(X[60:], return_std=True, noise=False)[1] ** 2)


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
    first = model.fitted_.predictors[0]
    Q, alpha = first.n_outputs, np.atleast_2d(model.alpha_)[: first.n_outputs]
    target = np.equal.outer(y, [1] if K == 2 else range(Q)).astype(float)
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
