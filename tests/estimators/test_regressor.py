"""The regressor as its users meet it: scikit-learn's rules, predictions, fitted attributes, weights, bad input."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import kernels as gp_kernels
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracle
from relvec import RVR, GammaPrior, RelevanceVectorRegressor, basis, kernels
from relvec.solvers import EM, MacKay, Sequential

QUICK = Sequential(restarts=0)


def sinc(N=60, noise=0.1, seed=0, low=-10.0, high=10.0):
    x = np.linspace(low, high, N)[:, None]
    return x, np.sinc(x[:, 0] / np.pi) + noise * np.random.default_rng(seed).standard_normal(N)


def plane(N=40, d=3, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d))
    return X, 2.0 * X[:, 0] - 0.5 * X[:, 1] + 1.0 + noise * rng.standard_normal(N)


def quiet(model, *data, **options):
    """Fit where a warning may or may not come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data, **options)


def relative(actual, desired):
    """Largest difference, relative to the largest value."""
    return np.max(np.abs(actual - desired)) / np.max(np.abs(desired))


# --- scikit-learn --------------------------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        RelevanceVectorRegressor(width="scale"),
        RVR(solver="mackay", width="scale"),
        RVR(kernel=None, basis="linear", solver=QUICK, width="scale"),
        RVR(kernel="precomputed", solver=QUICK, width="scale"),
        RVR(kernel="linear", noise_variance=0.1, solver=EM(hyperprior=GammaPrior(c=1e-4, d=1e-4))),
        RVR(kernel="laplace", width=2.0, basis=["linear", "quadratic"], fit_intercept=False, solver=QUICK),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # for random and constant targets
def test_sklearn_compatible(estimator, check):
    check(estimator)


def test_alias():
    assert RVR is RelevanceVectorRegressor


def test_clone_and_params():
    model = RVR(
        kernel=kernels.Laplace(2.0), basis=["linear", np.tanh], solver=Sequential(restarts=5), tol=1e-2, width="scale"
    )
    twin = clone(model)
    assert twin is not model and not hasattr(twin, "weights_")
    assert twin.kernel == model.kernel and twin.solver == model.solver and twin.tol == 1e-2
    assert model.get_params()["width"] == "scale" and model.set_params(width=2.0).width == 2.0


@pytest.mark.parametrize("solver", ["sequential", MacKay(hyperprior=GammaPrior(c=1e-3, d=1e-3)), EM()])
def test_fit_returns_self_and_writes_no_parameter(solver):
    X, y = sinc(30)
    model = RVR(width=3.0, solver=solver, random_state=0)
    before = {name: repr(value) for name, value in model.get_params().items()}
    assert model.fit(X, y) is model
    assert {name: repr(value) for name, value in model.get_params().items()} == before


def test_fit_does_not_write_to_its_input(readonly):
    X, y = sinc(30)
    X, y, w = readonly(X, y, np.ones(30))
    model = RVR(width=3.0).fit(X, y, sample_weight=w)
    model.predict(X, return_std=True)
    model.log_predictive_density(X, y)


def test_pickle():
    X, y = sinc()
    model = RVR(width=3.0).fit(X, y)
    twin = pickle.loads(pickle.dumps(model))
    for a, b in zip(model.predict(X, return_std=True), twin.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.history_, twin.history_)
    np.testing.assert_array_equal(twin.fit(X, y).predict(X), model.predict(X))


def test_pipeline():
    X, y = plane()
    pipe = make_pipeline(StandardScaler(), RVR(kernel=None, basis="linear", width="scale")).fit(X * 1e3, y)
    mean, std = pipe.predict(X * 1e3, return_std=True)
    assert mean.shape == std.shape == (40,)
    assert pipe.score(X * 1e3, y) > 0.99


def test_grid_search():
    X, y = sinc()
    grid = {"width": [0.3, 3.0], "kernel": ["gaussian", "laplace"]}
    folds = KFold(3, shuffle=True, random_state=0)
    search = quiet(GridSearchCV(RVR(solver=QUICK, width="scale"), grid, cv=folds, error_score="raise"), X, y)
    assert search.best_params_["width"] == 3.0
    scores = cross_val_score(
        RVR(kernel="precomputed", solver=QUICK, width="scale"), np.exp(-((X - X.T) ** 2) / 9), y, cv=3
    )
    assert scores.shape == (3,) and np.isfinite(scores).all()


def test_grid_search_over_solver_options():
    X, y = sinc(30)
    grid = {"solver": [Sequential(restarts=0), "mackay", MacKay(hyperprior=GammaPrior(c=1.0, d=0.01))]}
    search = quiet(GridSearchCV(RVR(width=3.0), grid, cv=2, error_score="raise"), X, y)
    assert len(search.cv_results_["params"]) == 3


def test_pandas():
    X, y = plane()
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["height", "width", "age"])
    model = RVR(kernel=None, basis="linear", width="scale").fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["height", "width", "age"] and model.n_features_in_ == 3
    assert isinstance(model.predict(frame), np.ndarray)
    np.testing.assert_array_equal(
        model.predict(frame), RVR(kernel=None, basis="linear", width="scale").fit(X, y).predict(X)
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["age", "width", "height"]])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X)


def test_set_output_of_a_pipeline():
    X, y = plane()
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("abc"))
    pipe = make_pipeline(StandardScaler(), RVR(kernel=None, basis="linear", width="scale")).set_output(
        transform="pandas"
    )
    pipe.fit(frame, y)
    assert pipe[-1].feature_names_in_.tolist() == ["a", "b", "c"]


def test_html_repr():
    assert "RelevanceVectorRegressor" in estimator_html_repr(RVR(kernel="laplace", width="scale"))
    X, y = sinc(20)
    html = estimator_html_repr(RVR(width=3.0).fit(X, y))
    assert "fitted" in html and "width" in html


def test_other_containers_and_dtypes():
    X, y = sinc(30)
    reference = RVR(width=3.0).fit(X, y).predict(X)
    np.testing.assert_array_equal(RVR(width=3.0).fit(X.tolist(), y.tolist()).predict(X.tolist()), reference)
    np.testing.assert_array_equal(RVR(width=3).fit(np.asfortranarray(X), y).predict(X), reference)
    single = RVR(width=3.0).fit(X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), reference, atol=1e-4)
    whole = RVR(width=3.0).fit(np.arange(20)[:, None], np.arange(20) % 5)
    assert np.isfinite(whole.predict([[1], [2]])).all()


def test_multi_output_wrapper_agrees():
    X, y = sinc(30)
    Y = np.column_stack([y, np.cos(X[:, 0])])
    wrapped = quiet(MultiOutputRegressor(RVR(width=3.0)), X, Y)
    np.testing.assert_allclose(quiet(RVR(width=3.0), X, Y).predict(X), wrapped.predict(X), rtol=1e-6, atol=1e-8)


# --- predictions against the oracle --------------------------------------------------------------------------------

MODELS = {
    "gaussian": {"width": 3.0},
    "scale": {},
    "no intercept": {"kernel": "laplace", "fit_intercept": False},
    "basis": {"kernel": None, "basis": ["quadratic", np.sin, kernels.Gaussian(2.0)]},
    "both": {"kernel": "cauchy", "basis": "linear", "noise_variance": 0.02},
    "mackay": {"width": 3.0, "solver": "mackay"},
    "prior": {"width": 3.0, "solver": EM(hyperprior=GammaPrior(a=1e-2, b=1e-2, c=1.0, d=0.01))},
}
every_model = pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)


@every_model
class TestAgainstTheOracle:
    """Everything is reproduced from basis_ and the fitted precisions, in the user's units."""

    @pytest.fixture
    def fitted(self, options):
        X, y = sinc(30, seed=3)
        y = 3.0 * y + 1.0
        return quiet(RVR(**{"width": "scale"} | options, tol=1e-5), X, y), X, y

    def test_attributes(self, fitted):
        model, X, y = fitted
        Phi, beta = model.basis_(X), 1 / model.noise_variance_
        m = len(model.weights_)
        Sigma, mu = oracle.mp_posterior(Phi, y, model.alpha_, beta)
        assert relative(Phi @ model.weights_, Phi @ mu) < 1e-9
        np.testing.assert_allclose(model.weights_, mu, rtol=1e-5, atol=1e-9 * np.abs(mu).max())
        np.testing.assert_allclose(model.covariance_, Sigma, rtol=1e-5, atol=1e-9 * np.abs(Sigma).max())
        np.testing.assert_allclose(model.gamma_, 1 - model.alpha_ * np.diag(Sigma), atol=1e-8)
        exact = oracle.mp_log_evidence(Phi, y, model.alpha_, beta)
        assert model.log_marginal_likelihood_ == pytest.approx(float(exact), rel=1e-9)
        assert Phi.shape == (30, m) and len(model.atoms_) == m
        assert model.alpha_.shape == model.gamma_.shape == (m,) and model.covariance_.shape == (m, m)
        assert np.all((model.gamma_ >= 0) & (model.gamma_ <= 1)) and np.all(model.alpha_ > 0)

    def test_predictions(self, fitted):
        model, X, y = fitted
        Z = np.linspace(-12, 12, 7)[:, None]
        Phi, Phi_star, beta = model.basis_(X), model.basis_(Z), 1 / model.noise_variance_
        Sigma, mu = oracle.mp_posterior(Phi, y, model.alpha_, beta)
        mean, cov = Phi_star @ mu, Phi_star @ Sigma @ Phi_star.T
        np.testing.assert_allclose(model.predict(Z), mean, rtol=1e-6, atol=1e-8)
        got, std = model.predict(Z, return_std=True)
        np.testing.assert_allclose(std, np.sqrt(np.diag(cov) + 1 / beta), rtol=1e-6)
        np.testing.assert_array_equal(got, model.predict(Z))
        _, own = model.predict(Z, return_std=True, noise=False)
        np.testing.assert_allclose(own, np.sqrt(np.diag(cov)), rtol=1e-5, atol=1e-8)
        _, whole = model.predict(Z, return_cov=True)
        np.testing.assert_allclose(whole, cov + np.eye(7) / beta, rtol=1e-5, atol=1e-8)
        _, function = model.predict(Z, return_cov=True, noise=False)
        np.testing.assert_allclose(function, cov, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(np.diag(whole), std**2, rtol=1e-10)

    def test_score_and_density(self, fitted):
        model, X, y = fitted
        mean, std = model.predict(X, return_std=True)
        np.testing.assert_allclose(model.log_predictive_density(X, y), norm(mean, std).logpdf(y), rtol=1e-10)
        assert model.score(X, y) == pytest.approx(r2_score(y, mean), rel=1e-12)

    def test_quantiles_and_intervals(self, fitted):
        model, X, y = fitted
        for noise in (True, False):
            mean, std = model.predict(X, return_std=True, noise=noise)
            q = model.predict_quantiles(X, [0.05, 0.5, 0.95], noise=noise)
            np.testing.assert_allclose(q, norm(mean[:, None], std[:, None]).ppf([0.05, 0.5, 0.95]), rtol=1e-9)
            interval = model.predict_interval(X, coverage=0.9, noise=noise)
            np.testing.assert_allclose(interval, q[:, [0, 2]], rtol=1e-12)
        inside = np.mean((y > interval[:, 0]) & (y < interval[:, 1]))
        assert 0.0 <= inside <= 1.0

    def test_model_is_sparse_and_complete(self, fitted):
        model, X, _ = fitted
        np.testing.assert_array_equal(model.relevance_, np.sort(model.relevance_))
        np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])
        assert len(model.relevance_) <= len(model.weights_)
        assert model.status_ in ("converged", "noise_floor") and model.n_iter_ > 0
        if model.fit_intercept:
            assert model.intercept_ == (model.weights_[-1] if model.atoms_[-1] == "bias" else 0.0)
        else:
            assert model.intercept_ == 0.0


def test_intervals_cover():
    rng = np.random.default_rng(0)
    X, y = sinc(200, noise=0.2)
    model = RVR(width=3.0).fit(X, y)
    new = np.sinc(X[:, 0] / np.pi) + 0.2 * rng.standard_normal(200)
    low, high = model.predict_interval(X, coverage=0.8).T
    assert 0.7 < np.mean((new > low) & (new < high)) < 0.9
    narrow = model.predict_interval(X, coverage=0.5)
    assert np.all(np.diff(narrow) < (high - low)[:, None])


def test_std_in_batches_is_the_std_of_each():
    X, y = sinc()
    model = RVR(width=3.0).fit(X, y)
    Z = np.linspace(-15, 15, 300)[:, None]
    mean, std = model.predict(Z, return_std=True)
    one = [model.predict(z[None], return_std=True) for z in Z]
    np.testing.assert_allclose(mean, [m[0] for m, _ in one], atol=1e-12)
    np.testing.assert_allclose(std, [s[0] for _, s in one], rtol=1e-12)
    assert np.all(std >= np.sqrt(model.noise_variance_))


def test_blocks_of_rows_make_the_whole(monkeypatch):
    X, y = sinc()
    model = RVR(width=3.0).fit(X, y)
    whole = model.predict(X, return_std=True)
    monkeypatch.setattr("relvec.inference.predictive.linear.BLOCK_NUMBERS", 10)
    for a, b in zip(whole, model.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_samples_follow_the_posterior():
    X, y = sinc()
    model = RVR(width=3.0).fit(X, y)
    Z = np.array([[-3.0], [0.0], [2.0]])
    drawn = model.sample_y(Z, n_samples=20000, random_state=0)
    assert drawn.shape == (3, 20000)
    mean, cov = model.predict(Z, return_cov=True, noise=False)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=5 * np.sqrt(np.diag(cov).max() / 20000))
    np.testing.assert_allclose(np.cov(drawn), cov, atol=0.05 * np.diag(cov).max())
    noisy = model.sample_y(Z, n_samples=20000, random_state=0, noise=True)
    np.testing.assert_allclose(np.cov(noisy), model.predict(Z, return_cov=True)[1], atol=0.05 * model.noise_variance_)
    np.testing.assert_array_equal(drawn, model.sample_y(Z, n_samples=20000, random_state=0))
    assert not np.array_equal(drawn, model.sample_y(Z, n_samples=20000, random_state=1))


def test_samples_are_functions():
    """A draw is one function: it is smooth in x where the kernel is."""
    X, y = sinc()
    model = RVR(width=3.0).fit(X, y)
    Z = np.linspace(0, 1e-6, 5)[:, None]
    assert np.ptp(model.sample_y(Z, n_samples=3), axis=0).max() < 1e-5
    assert np.ptp(model.sample_y(Z, n_samples=3, noise=True), axis=0).min() > 1e-3


def test_requests_that_contradict():
    X, y = sinc(20)
    model = RVR(width=3.0).fit(X, y)
    with pytest.raises(ValueError, match="return_std or return_cov, not both"):
        model.predict(X, return_std=True, return_cov=True)
    for coverage in (0.0, 1.0, -0.5, 90, "0.9"):
        with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
            model.predict_interval(X, coverage=coverage)
    for q in ([0.0, 0.5], [1.5], [[0.1], [0.2]], [np.nan]):
        with pytest.raises(ValueError, match="q must hold probabilities"):
            model.predict_quantiles(X, q)
    with pytest.raises(ValueError, match=r"shape \(20,\) of the predictions, got \(20, 1\)"):
        model.log_predictive_density(X, y[:, None])


def test_a_scalar_quantile():
    X, y = sinc(20)
    model = RVR(width=3.0).fit(X, y)
    assert model.predict_quantiles(X, 0.5).shape == (20, 1)


# --- several outputs -----------------------------------------------------------------------------------------------


def test_shapes_for_two_dimensional_targets():
    X, y = sinc(40)
    Y = np.column_stack([y, 10.0 + np.cos(X[:, 0]) + 0.01 * y, np.zeros(40)])
    with pytest.warns(ConvergenceWarning, match="output 2: CONSTANT_TARGET"):
        model = RVR(width=3.0).fit(X, Y)
    m, r = len(model.atoms_), len(model.relevance_)
    assert model.weights_.shape == model.alpha_.shape == model.gamma_.shape == (3, m)
    assert model.covariance_.shape == (3, m, m)
    for name in ("intercept_", "noise_variance_", "log_marginal_likelihood_", "certificate_", "n_iter_"):
        assert getattr(model, name).shape == (3,), name
    assert len(model.history_) == len(model.status_) == 3
    assert model.status_[2] == "constant_target"
    assert model.relevance_vectors_.shape == (r, 1)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (40, 3)
    assert model.predict(X[:5], return_cov=True)[1].shape == (5, 5, 3)
    assert model.predict_quantiles(X, [0.1, 0.9]).shape == (40, 3, 2)
    assert model.predict_interval(X).shape == (40, 3, 2)
    assert model.sample_y(X, 7).shape == (40, 3, 7)
    assert model.log_predictive_density(X, Y).shape == (40, 3)
    assert model.score(X, Y[:, :3]) <= 1.0


def test_each_output_is_its_own_model():
    X, y = sinc(40)
    Y = np.column_stack([y, 10.0 + np.cos(X[:, 0]) + 0.1 * y[::-1]])
    model = RVR(width=3.0, random_state=0).fit(X, Y)
    for i in range(2):
        one = RVR(width=3.0, random_state=0).fit(X, Y[:, i])
        mean, std = one.predict(X, return_std=True)
        np.testing.assert_allclose(model.predict(X)[:, i], mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(model.predict(X, return_std=True)[1][:, i], std, rtol=1e-8)
        assert model.log_marginal_likelihood_[i] == pytest.approx(one.log_marginal_likelihood_)
        assert model.intercept_[i] == pytest.approx(one.intercept_)
        inside = np.isfinite(model.alpha_[i])
        assert np.all(model.weights_[i, ~inside] == 0) and np.all(model.gamma_[i, ~inside] == 0)
        np.testing.assert_allclose(model.alpha_[i, inside], one.alpha_, rtol=1e-6)
        np.testing.assert_allclose(model.covariance_[i][np.ix_(inside, inside)], one.covariance_, rtol=1e-6)
        assert np.all(model.covariance_[i][~inside] == 0)


def test_a_single_column_stays_two_dimensional():
    X, y = sinc(20)
    model = RVR(width=3.0).fit(X, y[:, None])
    assert model.predict(X).shape == (20, 1) and model.weights_.shape[0] == 1


# --- kernels and bases ---------------------------------------------------------------------------------------------

KERNELS = {
    **{
        name: name
        for name in (
            "gaussian",
            "rbf",
            "laplace",
            "cauchy",
            "log_distance",
            "matern32",
            "matern52",
            "polynomial",
            "poly",
            "linear",
            "linear_spline",
        )
    },
    "object": kernels.Gaussian((2.0, 5.0)),
    "sum": kernels.Gaussian(2.0) + kernels.Linear(),
    "product": kernels.Gaussian(4.0) * kernels.LinearSpline(),
    "callable": lambda X, Z: np.tanh(X @ Z.T + 1.0),
    "not Mercer": lambda X, Z: -np.abs(X[:, :1] - Z[:, 0]),
    "not symmetric": lambda X, Z: np.exp(-((X[:, :1] - 0.5 * Z[:, 0]) ** 2)),
    "gp rbf": gp_kernels.RBF(2.0),
    "gp sum": gp_kernels.ConstantKernel(2.0) * gp_kernels.Matern(1.5) + gp_kernels.DotProduct(),
    "gp quadratic": gp_kernels.RationalQuadratic(1.0, 2.0),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_kernel(kernel):
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 3, (30, 2))
    y = 0.5 * X[:, 0] + 0.05 * rng.standard_normal(30)
    model = quiet(RVR(kernel=kernel, width="scale"), X, y)
    Z = rng.uniform(0, 3, (9, 2))
    mean, std = model.predict(Z, return_std=True)
    assert mean.shape == std.shape == (9,) and np.isfinite(mean).all() and np.all(std > 0)
    assert model.score(X, y) > 0.7
    if model.relevance_.size:
        function = kernels.as_kernel(kernel).resolve(X)
        np.testing.assert_allclose(model.basis_(Z)[:, 0], function(Z, X[model.relevance_[:1]])[:, 0], rtol=1e-12)
    np.testing.assert_allclose(model.basis_(Z) @ model.weights_, mean, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ("linear", "x0"),
        ("quadratic", "x0"),
        (basis.Polynomial(3), "x0"),
        (basis.Linear(features=(1,)), "x1"),
        (np.sin, "sin"),
        (basis.Functions(np.cos, np.sin), "cos"),
        (kernels.Gaussian(1.0), "K("),
        (basis.KernelBasis("laplace", centres=[[0.0, 0.0], [1.0, 1.0]]), "K(., [0, 0])"),
        (basis.KernelBasis("gaussian", n_random=8), "K(., ["),
        (["linear", np.sin, kernels.Cauchy(2.0)], "x0"),
    ],
    ids=repr,
)
def test_every_kind_of_basis(spec, label):
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 3, (30, 2))
    y = np.sin(X).sum(axis=1) + X.sum(axis=1) + 0.05 * rng.standard_normal(30)
    model = quiet(RVR(kernel=None, basis=spec, random_state=0, width="scale"), X, y)
    assert any(label.split("(")[0] in atom for atom in model.atoms_)
    np.testing.assert_allclose(model.basis_(X) @ model.weights_, model.predict(X), rtol=1e-6, atol=1e-8)
    assert model.score(X, y) > 0.4
    both = quiet(RVR(kernel="gaussian", basis=spec, random_state=0, width="scale"), X, y)
    assert both.score(X, y) > 0.9


def test_random_centres_follow_the_seed():
    X, y = sinc(40)
    spec = basis.KernelBasis(kernels.Gaussian(3.0), n_random=25)
    first, again, other = (RVR(kernel=None, basis=spec, random_state=s, width="scale").fit(X, y) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    assert not np.array_equal(first.predict(X), other.predict(X))
    assert first.relevance_.size == 0 and first.relevance_vectors_.shape == (0, 1)


def test_precomputed_fit_and_predict():
    X, y = sinc(50)
    Z = np.linspace(-9, 9, 11)[:, None]
    direct = RVR(width=3.0).fit(X, y)
    k = kernels.Gaussian(3.0)
    model = RVR(kernel="precomputed", width="scale").fit(k(X, X), y)
    for a, b in zip(model.predict(k(Z, X), return_std=True), direct.predict(Z, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(model.relevance_, direct.relevance_)
    assert not hasattr(model, "relevance_vectors_") and not hasattr(model, "coef_")
    with pytest.raises(ValueError, match="must be square at fit"):
        RVR(kernel="precomputed", width="scale").fit(X, y)


def test_precomputed_with_zero_weights():
    X, y = sinc(50)
    w = np.ones(50)
    w[::3] = 0.0
    K = kernels.Gaussian(3.0)(X, X)
    model = RVR(kernel="precomputed", width="scale").fit(K, y, sample_weight=w)
    assert np.all(w[model.relevance_] > 0)
    direct = RVR(width=3.0).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.predict(K), direct.predict(X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [{"kernel": None, "basis": "linear"}, {"kernel": "linear"}, {"kernel": None, "basis": ["linear"]}],
    ids=repr,
)
def test_coef_of_a_linear_model(options):
    X, y = plane()
    model = RVR(**{"width": "scale"} | options).fit(X, y)
    assert model.coef_.shape == (3,)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X), rtol=1e-10)
    np.testing.assert_allclose(model.coef_, [2.0, -0.5, 0.0], atol=0.1)
    two = RVR(**{"width": "scale"} | options).fit(X, np.column_stack([y, -y]))
    np.testing.assert_allclose(X @ two.coef_.T + two.intercept_, two.predict(X), rtol=1e-10)


def test_coef_only_where_it_means_something():
    X, y = plane()
    for options in ({}, {"kernel": None, "basis": "quadratic"}, {"basis": "linear"}):
        assert not hasattr(quiet(RVR(solver=QUICK, **{"width": "scale"} | options), X, y), "coef_")
    model = RVR(kernel=None, basis="linear", width="scale").fit(X, y)
    assert hasattr(model, "coef_")
    quiet(model.set_params(kernel="gaussian", basis=None), X, y)
    assert not hasattr(model, "coef_")
    # a kernel dictionary of which nothing but the bias is kept is still no linear model
    with pytest.warns(ConvergenceWarning, match="CONSTANT_TARGET"):
        assert not hasattr(RVR(width="scale").fit(X, np.ones(40)), "coef_")
    with pytest.warns(ConvergenceWarning, match="CONSTANT_TARGET"):
        np.testing.assert_array_equal(RVR(kernel=None, basis="linear", width="scale").fit(X, np.ones(40)).coef_, 0.0)


def test_relevance_vectors_of_two_kernels():
    X, y = plane(30)
    model = quiet(RVR(basis=kernels.Laplace(1.0), solver=QUICK, width="scale"), X, y)
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])


def test_width_in_numbers_and_words():
    X, y = plane()
    r = np.sqrt(3 * X.var())
    reference = RVR(width=float(r), solver=QUICK).fit(X, y).predict(X)
    np.testing.assert_allclose(RVR(width="scale", solver=QUICK).fit(X, y).predict(X), reference, rtol=1e-9)
    np.testing.assert_allclose(RVR(width=[r, r, r], solver=QUICK).fit(X, y).predict(X), reference, rtol=1e-7)
    assert not np.allclose(RVR(width=[r, r, 9 * r], solver=QUICK).fit(X, y).predict(X), reference, rtol=1e-3)


def test_the_intercept_is_an_atom_of_its_own():
    X, y = sinc(40)
    model = RVR(width=3.0).fit(X, y + 5.0)
    assert model.atoms_[-1] == "bias" and model.intercept_ == model.weights_[-1] != 0.0
    without = quiet(RVR(width=3.0, fit_intercept=False), X, y + 5.0)
    assert "bias" not in without.atoms_ and without.intercept_ == 0.0


# --- sample weights ------------------------------------------------------------------------------------------------


def same_model(a, b, X, tolerance=1e-7):
    for one, two in zip(a.predict(X, return_std=True), b.predict(X, return_std=True), strict=True):
        assert relative(one, two) < tolerance
    assert a.noise_variance_ == pytest.approx(b.noise_variance_, rel=tolerance)
    assert a.log_marginal_likelihood_ == pytest.approx(b.log_marginal_likelihood_, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("N", [40, 600, 900])
@pytest.mark.parametrize("options", [{}, {"noise_variance": 0.01}, {"solver": "mackay"}], ids=repr)
def test_weights_are_copies(N, options):
    X, y = sinc(N)
    options = {"solver": QUICK, **options}
    w = np.random.default_rng(0).integers(0, 4, N)
    weighted = RVR(**{"width": "scale"} | options).fit(X, y, sample_weight=w)
    copies = RVR(**{"width": "scale"} | options).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    same_model(weighted, copies, X)
    absent = RVR(**{"width": "scale"} | options).fit(X[w > 0], y[w > 0], sample_weight=w[w > 0])
    same_model(weighted, absent, X)
    assert np.all(w[weighted.relevance_] > 0)
    np.testing.assert_array_equal(np.flatnonzero(w > 0)[absent.relevance_], weighted.relevance_)


def test_duplicated_and_halved_data_are_the_same_data():
    X, y = sinc(40)
    half = RVR(width="scale").fit(np.vstack([X, X]), np.append(y, y), sample_weight=np.full(80, 0.5))
    same_model(half, RVR(width="scale").fit(X, y), X)


def test_weights_of_one_change_nothing():
    X, y = sinc(40)
    np.testing.assert_array_equal(
        RVR(width="scale").fit(X, y, sample_weight=np.ones(40)).predict(X), RVR(width="scale").fit(X, y).predict(X)
    )


def test_scaled_weights_are_more_data():
    """Fifty copies of every sample: N is 50 times larger, the noise is the same, the posterior is narrower."""
    X, y = sinc(40)
    one, many = RVR(width=3.0).fit(X, y), RVR(width=3.0).fit(X, y, sample_weight=np.full(40, 50.0))
    copies = RVR(width=3.0).fit(np.repeat(X, 50, axis=0), np.repeat(y, 50))
    same_model(many, copies, X)
    assert many.log_marginal_likelihood_ > 10 * one.log_marginal_likelihood_
    assert (
        many.predict(X, return_std=True, noise=False)[1].mean() < one.predict(X, return_std=True, noise=False)[1].mean()
    )


def test_weighted_evidence_and_posterior():
    X, y = sinc(30)
    w = np.random.default_rng(0).uniform(0.1, 3.0, 30)
    model = RVR(width=3.0).fit(X, y, sample_weight=w)
    Phi, beta = model.basis_(X), 1 / model.noise_variance_
    exact = oracle.log_evidence(Phi, y, model.alpha_, beta, w)
    assert model.log_marginal_likelihood_ == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(model.weights_, oracle.posterior(Phi, y, model.alpha_, beta, w)[1], rtol=1e-7)
    np.testing.assert_allclose(oracle.gradient(Phi, y, model.alpha_, beta, w), 0.0, atol=1e-2)


@pytest.mark.filterwarnings("ignore:the sample weights of")  # so small that they look like shares
def test_extreme_weights_are_fitted():
    X, y = sinc(40)
    rng = np.random.default_rng(0)
    for w in (np.full(40, 1e-3), 10.0 ** rng.uniform(-12, 0, 40), np.full(40, 1e6)):
        model = quiet(RVR(width=3.0), X, y, sample_weight=w)
        assert np.isfinite(model.predict(X, return_std=True)).all()


# --- nothing of size N ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"width": 3.0}, {"kernel": "linear_spline", "noise_variance": 0.01}], ids=repr)
def test_a_fitted_model_does_not_grow_with_the_data(options):
    sizes = []
    for N in (100, 300, 1200):
        X, y = sinc(N)
        model = quiet(RVR(solver=QUICK, **{"width": "scale"} | options), X, y)
        model.history_, model.fitted_ = None, replace(model.fitted_, history=[])
        sizes.append(len(pickle.dumps(model)) - 200 * len(model.weights_))
    assert max(sizes) < sizes[0] + 2000


def test_no_array_of_size_n():
    X, y = sinc(300)
    model = RVR(width=3.0, solver=QUICK).fit(X, y)

    def arrays(value, seen):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            yield value
            if value.base is not None:
                yield from arrays(value.base, seen)
        elif isinstance(value, dict):
            for v in value.values():
                yield from arrays(v, seen)
        elif isinstance(value, list | tuple):
            for v in value:
                yield from arrays(v, seen)
        elif hasattr(value, "__dict__"):
            yield from arrays(vars(value), seen)

    assert max(a.size for a in arrays(vars(model), set())) < 300


# --- bad input -----------------------------------------------------------------------------------------------------

X0, Y0 = sinc(20)


def with_value(array, value, where=3):
    array = np.array(array, dtype=float)
    array.flat[where] = value
    return array


BAD_DATA = {
    "nan in X": ((with_value(X0, np.nan), Y0), "Input X contains NaN.*SimpleImputer.*relvec fit"),
    "inf in X": ((with_value(X0, np.inf), Y0), "Input X contains infinity"),
    "nan in y": ((X0, with_value(Y0, np.nan)), "Input y contains NaN"),
    "inf in y": ((X0, with_value(Y0, -np.inf)), "Input y contains infinity"),
    "strings in X": (([["a"], ["b"]], [1.0, 2.0]), "could not convert string to float"),
    "strings in y": (([[1.0], [2.0]], ["a", "b"]), "could not convert string to float|Unknown label type"),
    "one-dimensional X": ((X0[:, 0], Y0), "Expected 2D array, got 1D array"),
    "three-dimensional y": ((X0, np.zeros((20, 2, 2))), "dim 3|Found array with dim"),
    "lengths": ((X0, Y0[:-1]), "inconsistent numbers of samples"),
    "one sample": ((X0[:1], Y0[:1]), "minimum of 2 is required"),
    "no sample": ((X0[:0], Y0[:0]), r"0 sample\(s\)"),
    "no feature": ((X0[:, :0], Y0), r"0 feature\(s\)"),
    "complex": ((X0 + 1j, Y0), "Complex data not supported"),
}


@pytest.mark.parametrize(("data", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data(data, message):
    model = RVR(width="scale")
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    assert vars(model) == vars(RVR(width="scale"))
    with pytest.raises(NotFittedError):
        model.predict(X0)


BAD_WEIGHTS = {
    "all zero": (np.zeros(20), "Sample weights must contain at least one non-zero|2 samples need a positive weight"),
    "one positive": (np.eye(20)[0], "2 samples need a positive weight, got 1"),
    "negative": (with_value(np.ones(20), -1.0), "Negative values in data"),
    "nan": (with_value(np.ones(20), np.nan), "sample_weight contains NaN"),
    "shape": (np.ones(19), r"sample_weight.shape == \(19,\)"),
    "two-dimensional": (np.ones((20, 1)), "must be 1D"),
}


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_bad_weights(weights, message):
    model = RVR(width="scale")
    with pytest.raises(ValueError, match=message):
        model.fit(X0, Y0, sample_weight=weights)
    assert vars(model) == vars(RVR(width="scale"))


BAD_PARAMETERS = {
    "kernel name": (
        {"kernel": "gausian"},
        "unknown kernel 'gausian': choose one of gaussian, rbf, laplace.*linear_spline",
    ),
    "kernel class": ({"kernel": kernels.Gaussian}, r"write Gaussian\(\)"),
    "kernel number": ({"kernel": 3}, "kernel must be a Kernel, a function"),
    "kernel shape": (
        {"kernel": lambda X, Z: np.ones((len(X), 1))},
        r"must return a real, finite array of shape \(20, 20\)",
    ),
    "kernel nan": ({"kernel": lambda X, Z: np.full((len(X), len(Z)), np.nan)}, "NaN or infinite"),
    "kernel text": ({"kernel": lambda X, Z: "no"}, "must return a real, finite array"),
    "kernel complex": ({"kernel": lambda X, Z: 1j * X @ Z.T}, "dtype complex"),
    "negative width": ({"width": -1.0}, "width must be 'scale', .*a positive number.*got -1.0"),
    "zero width": ({"width": 0.0}, "width must be .*got 0.0"),
    "nan width": ({"width": np.nan}, "width must be .*got nan"),
    "width word": ({"width": "wide"}, "width must be .*got 'wide'"),
    "widths": ({"width": [1.0, 2.0]}, "feature"),
    "width of a kernel without": ({"kernel": "linear", "width": 2.0}, "the kernel 'linear' has no width"),
    "width beside an object": ({"kernel": kernels.Gaussian(2.0), "width": 2.0}, "goes with a kernel given by name"),
    "basis": ({"basis": "cubic"}, "a basis is one of 'bias', 'linear', 'quadratic'"),
    "basis shape": ({"basis": lambda X: np.ones(3)}, "the basis function 'f0' must return"),
    "basis nan": ({"basis": lambda X: np.full(len(X), np.nan)}, "NaN or infinite"),
    "empty": ({"kernel": None, "fit_intercept": False}, "the model is empty: give a kernel, a basis"),
    "fit_intercept": ({"fit_intercept": "yes"}, "fit_intercept must be True or False, got 'yes'"),
    "solver": ({"solver": "newton"}, "solver must be one of 'sequential', 'tf03', 'tf03-random', 'tf03-order'"),
    "noise": ({"noise_variance": 0.0}, "noise_variance must be None .* or a positive number, got 0.0"),
    "noise text": ({"noise_variance": "auto"}, "noise_variance must be None"),
    "noise below rounding": ({"noise_variance": 1e-200}, "below the rounding errors of targets"),
    "tol": ({"tol": 0.0}, r"tol must be a positive number \(nats\), or None, got 0.0"),
    "random_state": ({"random_state": "seed"}, "cannot be used to seed"),
}


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS.values(), ids=BAD_PARAMETERS)
def test_bad_parameters(parameters, message):
    model = RVR(**{"width": "scale"} | parameters)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X0, Y0)
    assert vars(model) == before
    with pytest.raises(NotFittedError):
        model.predict(X0)


@pytest.mark.parametrize("parameters", [{"kernel": "gausian"}, {"width": -1.0}, {"solver": "newton"}], ids=repr)
def test_a_failing_refit_leaves_the_old_fit(parameters):
    X, y = sinc(30)
    model = RVR(width=3.0).fit(X, y)
    before = model.predict(X)
    original = model.get_params()
    with pytest.raises(ValueError):
        model.set_params(**parameters).fit(np.hstack([X, X]), y)
    model.set_params(**original)
    assert model.n_features_in_ == 1
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError):
        model.fit(with_value(X, np.nan), y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_kernel_that_raises_leaves_nothing_behind():
    def broken(X, Z):
        raise RuntimeError("no kernel today")

    model = RVR(kernel=broken, width="scale")
    with pytest.raises(RuntimeError, match="no kernel today"):
        model.fit(X0, Y0)
    assert vars(model) == vars(RVR(kernel=broken, width="scale"))


def test_a_kernel_that_fails_at_predict():
    calls = []

    def fickle(X, Z):
        calls.append(len(X))
        return np.exp(-((X - Z.T) ** 2)) if len(X) == 20 else np.ones((len(X), len(Z) + 1))

    model = quiet(RVR(kernel=fickle, width="scale"), X0, Y0)
    with pytest.raises(ValueError, match="must return a real, finite array"):
        model.predict(X0[:3])


def test_warnings_point_at_the_call():
    with pytest.warns(ConvergenceWarning) as caught:
        RVR(width="scale").fit(X0, np.ones(20))
    assert caught[0].filename == __file__


def test_unfitted_and_wrong_shapes_at_predict():
    model = RVR(width="scale")
    for method in (model.predict, model.sample_y, model.predict_interval):
        with pytest.raises(NotFittedError):
            method(X0)
    with pytest.raises(NotFittedError):
        model.predict_quantiles(X0, [0.5])
    with pytest.raises(NotFittedError):
        model.log_predictive_density(X0, Y0)
    model.fit(X0, Y0)
    with pytest.raises(ValueError, match="X has 2 features, but RelevanceVectorRegressor is expecting 1"):
        model.predict(np.hstack([X0, X0]))
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan]])


# --- hard data -----------------------------------------------------------------------------------------------------

three_solvers = pytest.mark.parametrize("solver", ["sequential", "mackay", "em"])


@three_solvers
@pytest.mark.parametrize("intercept", [True, False])
def test_constant_and_zero_targets(solver, intercept):
    X, _ = sinc(20)
    model = RVR(width=3.0, solver=solver, fit_intercept=intercept)
    with pytest.warns(ConvergenceWarning, match="CONSTANT_TARGET"):
        model.fit(X, np.zeros(20))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, 0.0)
    assert np.isfinite(std).all() and np.isfinite(model.log_marginal_likelihood_)
    if intercept:
        with pytest.warns(ConvergenceWarning, match="CONSTANT_TARGET"):
            model.fit(X, np.full(20, -7.5))
        np.testing.assert_allclose(model.predict(X), -7.5, rtol=1e-12)
        assert model.atoms_ == ["bias"] and model.intercept_ == pytest.approx(-7.5)


def test_constant_folds_do_not_stop_a_search():
    X, y = sinc(30)
    y = np.where(np.arange(30) < 20, 0.0, y)
    scores = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores = cross_val_score(RVR(solver=QUICK, width="scale"), X, y, cv=3, error_score="raise")
    assert np.isfinite(scores).all()


@three_solvers
def test_hard_data_are_fitted(solver):
    rng = np.random.default_rng(0)
    X, y = sinc(30)
    A = rng.standard_normal((20, 4))
    t = A[:, 0] - 2.0 * A[:, 2] + 0.1 * rng.standard_normal(20)
    linear = {"kernel": None, "basis": "linear"}
    problems = {
        "duplicated rows": (np.repeat(X, 3, axis=0), np.repeat(y, 3), {"width": 3.0}),
        "contradicting rows": (np.repeat(X, 2, axis=0), np.append(y, -y), {"width": 3.0}),
        "all rows equal": (np.ones((15, 2)), rng.standard_normal(15), {}),
        "duplicated and negated columns": (np.hstack([A, A, -A]), t, linear),
        "more atoms than samples": (rng.standard_normal((12, 40)), rng.standard_normal(12), linear),
        "noise-free": (X, np.sinc(X[:, 0] / np.pi), {"width": 3.0}),
        "noise-free line": (X, 2.0 * X[:, 0] + 1.0, linear),
        "scales": (A * [1.0, 1e12, 1e-12, 1e6], t, linear),
        "extreme scales": (A * [1.0, 1e150, 1e-150, 1e300], t, linear),
        "zero column": (np.hstack([A, np.zeros((20, 1))]), t, linear),
        "two samples": ([[0.0], [1.0]], [0.0, 1.0], {}),
        "two equal rows": ([[1.0], [1.0]], [0.0, 1.0], {}),
        "narrow kernel": (X, y, {"width": 1e-6}),
        "wide kernel": (X, y, {"width": 1e6}),
        "polynomial": (X, y, {"kernel": kernels.Polynomial(degree=12)}),
        "offset": (X, y + 1e8, {"width": 3.0}),
        "tiny": (X, y * 1e-150, {"width": 3.0}),
        "huge": (X, y * 1e150, {"width": 3.0}),
        "small noise": (X, y, {"width": 3.0, "noise_variance": 1e-12}),
        "large noise": (X, y, {"width": 3.0, "noise_variance": 1e12}),
    }
    for name, (inputs, targets, options) in problems.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # overflow, division by zero
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = RVR(solver=solver, **{"width": "scale"} | options).fit(inputs, targets)
            mean, std = model.predict(inputs, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(std).all(), name
        assert np.isfinite(model.log_marginal_likelihood_), name
        assert len(model.status_) > 0, name


def test_noise_free_targets_are_followed_and_reported():
    X, _ = sinc(50)
    f = np.sinc(X[:, 0] / np.pi)
    with pytest.warns(ConvergenceWarning, match="NOISE_FLOOR"):
        model = RVR(width=3.0).fit(X, f)
    assert np.abs(model.predict(X) - f).max() < 1e-3


def test_column_scales_do_not_matter():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 5))
    y = A @ [1.0, 0.0, -2.0, 0.0, 0.5] + 0.1 * rng.standard_normal(30)
    model = RVR(kernel=None, basis="linear", width="scale").fit(A, y)
    scales = np.array([1e12, 1.0, 1e-12, 1e3, 1e-5])
    scaled = RVR(kernel=None, basis="linear", width="scale").fit(A * scales, y)
    np.testing.assert_allclose(scaled.coef_ * scales, model.coef_, rtol=1e-8)
    assert scaled.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_, rel=1e-10)


# --- what other programs got wrong ---------------------------------------------------------------------------------


def test_an_integer_width_is_a_width():
    X, y = sinc(30)
    np.testing.assert_array_equal(RVR(width=3).fit(X, y).predict(X), RVR(width=3.0).fit(X, y).predict(X))


@pytest.mark.parametrize("scale", [1e6, 1e-6])
@three_solvers
def test_units_of_the_target_do_not_matter(scale, solver):
    X, y = sinc(40)
    model, scaled = (RVR(width=3.0, solver=solver).fit(X, s * y) for s in (1.0, scale))
    np.testing.assert_array_equal(scaled.relevance_, model.relevance_)
    assert relative(scaled.predict(X) / scale, model.predict(X)) < 1e-10
    assert scaled.noise_variance_ == pytest.approx(scale**2 * model.noise_variance_, rel=1e-9)
    shift = -40 * np.log(scale)
    assert scaled.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_ + shift, rel=1e-9)


def test_an_offset_of_the_target():
    X, y = sinc(60)
    f = np.sinc(X[:, 0] / np.pi)
    model = RVR(width=3.0).fit(X, y + 1000.0)
    assert np.sqrt(np.mean((model.predict(X) - 1000.0 - f) ** 2)) < 0.06
    bare = quiet(RVR(width=3.0, fit_intercept=False), X, y + 1000.0)  # a rival: 0.36
    assert np.sqrt(np.mean((bare.predict(X) - 1000.0 - f) ** 2)) < 0.2


def test_error_bars_hold_the_uncertainty_of_the_intercept():
    X, y = plane(20, d=2)
    model = RVR(kernel=None, basis="linear", solver=Sequential(support_prior="flat")).fit(X, y)
    i = model.atoms_.index("bias")
    _, std = model.predict(np.zeros((1, 2)), return_std=True, noise=False)
    assert std[0] == pytest.approx(np.sqrt(model.covariance_[i, i]), rel=1e-6) and std[0] > 0


def test_batch_variances_are_never_below_the_noise():
    X, y = sinc(50)
    model = RVR(width=3.0).fit(X, y)
    _, std = model.predict(np.random.default_rng(0).uniform(-20, 20, (300, 1)), return_std=True)
    assert np.all(std**2 >= model.noise_variance_ * (1 - 1e-12))


def test_a_linear_kernel_on_centred_data():
    X, y = plane(30)
    model = RVR(kernel="linear", width="scale").fit(X - X.mean(axis=0), y - y.mean())
    assert np.isfinite(model.predict(X)).all() and model.score(X - X.mean(axis=0), y - y.mean()) > 0.99


def test_a_kernel_matrix_as_features_stays_sparse():
    """ARDRegression keeps 329 of 500 such columns."""
    X, y = sinc(150)
    K = np.exp(-((X - X.T) ** 2) / 9.0)
    model = RVR(kernel=None, basis="linear", solver=QUICK, width="scale").fit(K, y)
    assert len(model.weights_) < 15
    assert np.sqrt(np.mean((model.predict(K) - np.sinc(X[:, 0] / np.pi)) ** 2)) < 0.05


def test_a_failure_is_an_error_not_a_warning():
    model = RVR(kernel=lambda X, Z: np.full((len(X), len(Z)), np.inf), width="scale")
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.fit(X0, Y0)
    with pytest.raises(NotFittedError):
        model.predict(X0)


# --- properties ----------------------------------------------------------------------------------------------------


@st.composite
def regression_problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    N, d = draw(st.integers(5, 30)), draw(st.integers(1, 3))
    X = rng.uniform(-4, 4, (N, d))
    if draw(st.booleans()):
        X = np.round(X)  # ties and duplicates
    noise = draw(st.sampled_from([0.0, 0.1, 1.0]))
    y = np.sin(X[:, 0]) + 0.3 * X[:, -1] + noise * rng.standard_normal(N)
    kernel = draw(st.sampled_from(["gaussian", "laplace", "linear_spline", "linear"]))
    options = {"kernel": kernel, "random_state": 0, "noise_variance": draw(st.sampled_from([None, 0.05]))}
    return X, y, options, rng


@settings(max_examples=30)
@given(regression_problems())
def test_row_order_does_not_matter(problem):
    X, y, options, rng = problem
    order = rng.permutation(len(y))
    a, b = (
        quiet(RVR(**{"width": "scale"} | options), X, y),
        quiet(RVR(**{"width": "scale"} | options), X[order], y[order]),
    )
    assert sorted(map(tuple, a.relevance_vectors_)) == sorted(map(tuple, b.relevance_vectors_))
    assert relative(b.predict(X), a.predict(X)) < 1e-8
    assert b.log_marginal_likelihood_ == pytest.approx(a.log_marginal_likelihood_, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("solver", ["sequential", "mackay"])
@pytest.mark.parametrize("noise", [None, 1e-4, 1e-2])
@pytest.mark.parametrize("N", [40, 41, 48])
def test_row_order_does_not_matter_where_everything_ties(N, noise, solver):
    """A symmetric, noise-free function: x and -x are equally good, and rounding must not choose between them."""
    X, y = sinc(N, noise=0.0)
    options = {"width": 2.0, "noise_variance": noise, "solver": solver}
    model = quiet(RVR(**{"width": "scale"} | options), X, y)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(N)
        other = quiet(RVR(**{"width": "scale"} | options), X[order], y[order])
        np.testing.assert_array_equal(np.sort(order[other.relevance_]), model.relevance_)
        assert relative(other.predict(X), model.predict(X)) < 1e-8


@settings(max_examples=30)
@given(regression_problems(), st.floats(-6, 6), st.booleans())
def test_predictions_scale_with_the_target(problem, exponent, negative):
    X, y, options, _ = problem
    scale = 10.0**exponent * (-1 if negative else 1)
    noise = options.pop("noise_variance")
    a = quiet(RVR(**{"width": "scale"} | options, noise_variance=noise), X, y)
    b = quiet(RVR(**{"width": "scale"} | options, noise_variance=noise and noise * scale**2), X, scale * y)
    assert (
        relative(b.predict(X) / scale, a.predict(X)) < 1e-8
    )  # rounding of ill-conditioned sums differs with the scale


@settings(max_examples=25)
@given(regression_problems())
def test_copies_of_rows_are_weights(problem):
    X, y, options, rng = problem
    w = rng.integers(1, 4, len(y))
    a = quiet(RVR(**{"width": "scale"} | options), X, y, sample_weight=w)
    b = quiet(RVR(**{"width": "scale"} | options), np.repeat(X, w, axis=0), np.repeat(y, w))
    assert relative(b.predict(X), a.predict(X)) < 1e-7
    assert b.noise_variance_ == pytest.approx(a.noise_variance_, rel=1e-7)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(6, 20), st.integers(1, 8))
def test_scales_of_basis_functions_do_not_matter(seed, N, M):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, M))
    scales = 10.0 ** rng.uniform(-6, 6, M) * rng.choice([-1, 1], M)
    y = A[:, 0] + 0.3 * rng.standard_normal(N)
    a = quiet(RVR(kernel=None, basis=lambda X: X, fit_intercept=False, width="scale"), A, y)
    b = quiet(RVR(kernel=None, basis=lambda X: X * scales, fit_intercept=False, width="scale"), A, y)
    assert a.atoms_ == b.atoms_
    scale = max(np.abs(a.predict(A)).max(), 1e-12)
    np.testing.assert_allclose(b.predict(A), a.predict(A), atol=1e-8 * scale)
    assert b.log_marginal_likelihood_ == pytest.approx(a.log_marginal_likelihood_, rel=1e-9, abs=1e-8)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(6, 20), st.integers(1, 6))
def test_copies_of_basis_functions_add_nothing(seed, N, M):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, M))
    y = A[:, 0] + 0.3 * rng.standard_normal(N)
    flat = Sequential(support_prior="flat")  # a prior over sets counts copies
    model = RVR(kernel=None, basis="linear", tol=1e-6, solver=flat)
    a, b = quiet(model, A, y), quiet(clone(model), np.hstack([A, -A, 2.0 * A]), np.asarray(y))
    assert b.log_marginal_likelihood_ == pytest.approx(a.log_marginal_likelihood_, abs=1e-4)
    assert relative(b.predict(np.hstack([A, -A, 2.0 * A])), a.predict(A)) < 1e-2
    assert len(b.weights_) == len(a.weights_)
