"""Kernels at arbitrary points: derivatives against differences of dense formulas, moves, and what a user meets."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, log_softmax
from scipy.stats import norm, poisson
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import oracle
import reproduction as papers
from problems import options_of
from relvec import RVC, RVR, basis
from relvec.basis import Bias, Concat, KernelBasis
from relvec.design import DenseDesign
from relvec.export.model_file import dumps, loads
from relvec.hyperparameters import centres, grvm, grvm_widths
from relvec.hyperparameters.targets import GaussianTarget, LaplaceTarget
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.kernels import Cauchy, Gaussian, Laplace, LogDistance, Matern
from relvec.solvers import Sequential
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.loop import Start
from reproduction import grvm as table

KERNELS = {
    "gaussian": Gaussian(width=(1.3, 0.8)),
    "one width": Gaussian(width=1.1),
    "cauchy": Cauchy(width=(1.3, 0.8)),
    "matern52": Matern(nu=2.5, width=(1.3, 0.8)),
    "log_distance": LogDistance(width=1.2),
}
QUICK = Sequential(restarts=0)
LIKELIHOODS = ("gaussian", "bernoulli", "poisson", "softmax")


def targets_of(kind, rng, X):
    """A target of each kind that varies with X (n, 2)."""
    f = 2.0 * np.exp(-((X - [0.5, -0.3]) ** 2).sum(axis=1)) - 1.5 * np.exp(-((X + 0.8) ** 2).sum(axis=1))
    if kind == "gaussian":
        return f + 0.1 * rng.normal(size=len(X))
    if kind == "bernoulli":
        return (rng.uniform(size=len(X)) < expit(3.0 * f)).astype(float)
    if kind == "poisson":
        return rng.poisson(np.exp(f)).astype(float)
    return np.eye(3)[np.argmax(np.column_stack([f, -f, 0.3 * X[:, 0]]) + 0.3 * rng.normal(size=(len(X), 3)), axis=1)]


def space_of(kind, X, t, dictionary, weights=None):
    """The space of a dictionary for one target."""
    weights = np.ones(len(X)) if weights is None else weights
    if kind == "gaussian":
        from relvec.estimators.gaussian import gaussian_problem

        target = GaussianTarget(t, weights, gaussian_problem(options_of(RVR()), 1.0, t.var(), weights.sum(), 0))
    else:
        likelihood = {"bernoulli": Bernoulli(), "poisson": Poisson(), "softmax": Categorical(3)}[kind]
        problem = LaplaceProblem(DenseDesign(np.zeros((1, 0))), t, weights, likelihood, np.zeros(0, dtype=int))
        target = LaplaceTarget(problem, dictionary.n_atoms)
    return centres.Space.of(dictionary, X, [target])


def placed_of(kind, kernel=KERNELS["gaussian"], seed=0, n=60, weighted=False, settle=False):
    """Three kernels and the constant at precisions that leave every weight determined; X, t and weights too."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    t = targets_of(kind, rng, X)
    weights = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    Z = np.array([[0.4, -0.2], [-0.7, -0.9], [1.0, 1.1]])
    space = space_of(kind, X, t, Concat((KernelBasis(kernel, Z), Bias())).bind(X), weights)
    K = 3 if kind == "softmax" else 1
    alpha = rng.uniform(0.5, 2.0, 4 * K)
    model = Start(np.arange(4), alpha, 30.0) if kind == "gaussian" else (np.arange(4 * K), alpha)
    return centres.place(space, Z, np.zeros(3, dtype=int), [model], settle), X, t, weights


def log_joint(kind, kernel, X, t, weights, alpha, beta, w, Z):
    """log p(t | w, z) p(w | alpha), written from the densities; w (K, 4) on the functions as given."""
    f = np.column_stack([kernel(X, Z), np.ones(len(X))]) @ w.T
    if kind == "gaussian":
        each = norm.logpdf(t, f[:, 0], beta**-0.5)
    elif kind == "bernoulli":
        each = np.log(np.where(t == 1.0, expit(f[:, 0]), expit(-f[:, 0])))
    elif kind == "poisson":
        each = poisson.logpmf(t, np.exp(f[:, 0]))
    else:
        each = (t * log_softmax(f, axis=1)).sum(axis=1)
    return float(weights @ each + norm.logpdf(w, 0.0, alpha**-0.5).sum())


def numeric_hessian(function, x, step=2e-4):
    n, H = len(x), np.empty((len(x), len(x)))
    E = step * np.eye(n)
    for i in range(n):
        for j in range(i + 1):
            H[i, j] = H[j, i] = (
                function(x + E[i] + E[j]) - function(x + E[i] - E[j])
                - function(x - E[i] + E[j]) + function(x - E[i] - E[j])
            ) / (4.0 * step**2)  # fmt: skip
    return H


def dense(kind, placed, X, t, weights, kernel):
    """Mode of the weights, minus the Hessian over (w, z) and the joint log density there, by differences."""
    (own, _), model = grvm.posteriors(placed)[0], placed.models[0]
    K = own.r.shape[1]
    design = DenseDesign(placed.basis(X) * placed.targets[0].root[:, None])
    alpha, w = np.empty((K, 4)), np.empty((K, 4))
    outputs, atoms, precisions = placed.targets[0].entries(model)
    alpha[outputs, atoms] = precisions * design.scale[atoms] ** 2
    w[own.outputs, own.places] = own.mean
    beta = model.beta if kind == "gaussian" else np.nan
    parameters = np.concatenate([w.ravel(), placed.Z.ravel()])

    def function(values):
        return log_joint(kind, kernel, X, t, weights, alpha, beta, values[: 4 * K].reshape(K, 4),
                         values[4 * K :].reshape(3, 2))  # fmt: skip

    return -numeric_hessian(function, parameters), function(parameters), 4 * K


# Derivatives ---------------------------------------------------------------------------------------------------------


def gradient_over_centres(placed, settle=True):
    space, Z, group = placed.space, placed.Z, placed.group
    Phi_bar = centres.evaluate_centres(space, Z, group, placed.models, settle)[1]
    return centres.centre_gradient(space, Z, group, Phi_bar)


@pytest.mark.parametrize("kind", LIKELIHOODS)
@pytest.mark.parametrize("name", ["gaussian", "one width", "cauchy"])
def test_the_gradient_over_centres_agrees_with_differences(kind, name):
    placed, *_ = placed_of(kind, KERNELS[name], weighted=True)
    slope = gradient_over_centres(placed, settle=False)
    difference = np.empty_like(slope)
    # precisions belong to columns of unit length: they stay, as the gradient assumes
    for i, j in np.ndindex(slope.shape):
        values = []
        for sign in (1.0, -1.0):
            Z = placed.Z.copy()
            Z[i, j] += sign * 1e-5
            values.append(centres.place(placed.space, Z, placed.group, placed.models, settle=False).value)
        difference[i, j] = (values[0] - values[1]) / 2e-5
    assert np.abs(slope).max() > 0.05
    assert_allclose(slope, difference, atol=2e-6 * np.abs(slope).max(), rtol=1e-5)


@pytest.mark.parametrize("kind", LIKELIHOODS)
@pytest.mark.parametrize("name", list(KERNELS))
def test_the_hessian_agrees_with_differences_of_the_joint_density(kind, name):
    kernel = KERNELS[name]
    placed, X, t, weights = placed_of(kind, kernel, weighted=True)
    H, _, k = dense(kind, placed, X, t, weights, kernel)
    scale = np.abs(H[k:, k:]).max()
    schur = H[k:, k:] - H[k:, :k] @ np.linalg.solve(H[:k, :k], H[:k, k:])
    assert_allclose(grvm.exact_hessian(placed), schur, atol=1e-5 * scale)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_evidence_over_weights_and_centres_is_the_laplace_approximation(kind):
    kernel = KERNELS["gaussian"]
    start, X, t, weights = placed_of(kind, kernel, n=400)
    placed = start
    for _ in range(40):  # the mode over weights and centres at fixed precisions
        placed = centres.place(start.space, grvm.climb_likelihood(placed, 100), start.group, start.models, settle=False)
    H, joint, _ = dense(kind, placed, X, t, weights, kernel)
    found = grvm.grvm_evidence(placed)
    assert found.open == 0
    volume = np.prod(np.ptp(X, axis=0))
    expected = joint + 0.5 * len(H) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1] - 3 * np.log(volume)
    assert_allclose(found.total, expected, atol=1e-3)


def test_section_5_treats_each_centre_as_one_variable():
    # the paper's formulas with its slips mended: sigma^2 = width^2 / 2, targets -1 and 1
    kernel = Gaussian(width=1.1)
    placed, X, t, _ = placed_of("bernoulli", kernel)
    own, w = grvm.posteriors(placed)[0]
    sigma2, sign = kernel.width**2 / 2, 2 * t - 1
    h = np.column_stack([kernel(X, placed.Z), np.ones(len(X))]) @ own.mean
    expected = []
    for z, wk in zip(placed.Z, w[0], strict=True):
        distance = np.linalg.norm(X - z, axis=1)
        K = np.exp(-(distance**2) / (2 * sigma2))
        first = wk * distance / sigma2 * K
        second = wk * (distance**2 / sigma2**2 - 1 / sigma2) * K
        e = np.exp(sign * h)
        expected.append(-np.sum(-e / (1 + e) ** 2 * first**2 + sign / (1 + e) * second))
    found = grvm.diagonal_curvature(placed)
    assert_allclose(found / kernel.width**2, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_diagonal_is_a_second_difference_over_one_distance_a_centre(kind):
    """Every distance from a centre z grows by u widths: phi + u dphi + u^2 d2phi / 2, each row by itself."""
    kernel = KERNELS["cauchy"]
    placed, X, *_ = placed_of(kind, kernel, weighted=True)
    (own, w), target = grvm.posteriors(placed)[0], placed.targets[0]
    Phi, f = placed.basis(X), np.zeros((len(X), w.shape[0]))
    for m, (output, place) in enumerate(zip(own.outputs, own.places, strict=True)):
        f[:, output] += own.mean[m] * Phi[:, place]
    for k, found in enumerate(grvm.diagonal_curvature(placed)):
        D = np.sqrt((((X - placed.Z[k]) / np.array(kernel.width)) ** 2).sum(axis=1))

        def log_prob(u, k=k, D=D):
            moved = 1.0 / (1.0 + (D + u) ** 2) - 1.0 / (1.0 + D**2)
            return target.log_prob(f + moved[:, None] * w[:, k], placed.models[0])[0]

        h = 1e-3
        assert_allclose(found, -(log_prob(h) - 2.0 * log_prob(0.0) + log_prob(-h)) / h**2, rtol=1e-4, atol=1e-4)


def test_a_width_by_the_diagonal():
    """The option takes the width of most evidence by section 5, which the exact Hessian does not give it."""
    X, y = two_moons(60)
    model, exact = (RVC(width=word, solver=QUICK).fit(X, y) for word in ("grvm-diagonal", "grvm"))
    best = max(model.tuning_.trials, key=lambda trial: trial.log_evidence)
    assert model.width_ == pytest.approx(np.exp(best.theta[0])) and model.width_rule_ == "grvm-diagonal"
    same = {float(trial.theta[0]): trial for trial in exact.tuning_.trials}
    pairs = [(trial, same[float(trial.theta[0])]) for trial in model.tuning_.trials if float(trial.theta[0]) in same]
    assert len(pairs) > 3 and all(a.weights == b.weights for a, b in pairs)
    assert all(a.log_evidence != b.log_evidence for a, b in pairs if a.size)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
def test_the_evidence_does_not_depend_on_the_units_of_X(kind):
    factor, shift = np.array([250.0, 0.003]), np.array([3.0, -7.0])
    kernel = KERNELS["gaussian"]
    placed, X, t, _ = placed_of(kind, kernel)
    width = tuple(np.array(kernel.width) * factor)
    Z = placed.Z * factor + shift
    other = Concat((KernelBasis(Gaussian(width=width), Z), Bias())).bind(X * factor + shift)
    again = centres.place(space_of(kind, X * factor + shift, t, other), Z, placed.group, placed.models, settle=False)
    assert_allclose(grvm.grvm_evidence(again).total, grvm.grvm_evidence(placed).total, rtol=1e-9)
    if kind == "bernoulli":
        assert_allclose(grvm.diagonal_evidence(again).total, grvm.diagonal_evidence(placed).total, rtol=1e-9)


def test_a_centre_that_the_data_leave_open_costs_nothing_and_gains_nothing():
    placed, *_ = placed_of("bernoulli", Gaussian(width=500.0))  # flat over the data: nothing places a centre
    found = grvm.grvm_evidence(placed)
    assert found.centres <= 0.0
    assert found.open > 0
    assert grvm.diagonal_evidence(placed).total <= found.weights
    placed, *_ = placed_of("bernoulli")
    assert np.linalg.eigvalsh(grvm.exact_hessian(placed)).min() < 0.0  # away from the mode it is indefinite
    assert np.isfinite(grvm.grvm_evidence(placed).total)


def test_kernels_without_second_derivatives_are_named():
    placed, *_ = placed_of("gaussian", Laplace(width=1.0))
    with pytest.raises(ValueError, match=r"Cauchy, Gaussian, LogDistance, Matern have; got Laplace"):
        grvm.grvm_evidence(placed)


# Moves ---------------------------------------------------------------------------------------------------------------


def sinc(n=80, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = np.linspace(-10.0, 10.0, n)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.normal(size=n)


def one_dimension(Z, alpha=None, width=2.0):
    X, t = sinc()
    Z = np.array(Z, dtype=float)[:, None]
    space = space_of("gaussian", X, t, Concat((KernelBasis(Gaussian(width=width), Z), Bias())).bind(X))
    k = len(Z) + 1
    model = Start(np.arange(k), np.full(k, 1.0) if alpha is None else alpha, 50.0)
    return centres.place(space, Z, np.zeros(len(Z), dtype=int), [model], settle=alpha is None)


def test_a_shift_raises_the_evidence_and_ends_where_the_gradient_vanishes():
    placed = one_dimension([-6.0, -1.0, 4.0])
    moved = centres.shift(placed, 200)
    assert moved.value > placed.value + 1.0
    inside = (moved.Z > moved.space.low + 1e-6) & (moved.Z < moved.space.high - 1e-6)
    before = np.abs(gradient_over_centres(placed)).max()
    assert np.abs(gradient_over_centres(moved)[inside]).max() < 2e-3 * before
    assert np.all((moved.Z >= moved.space.low) & (moved.Z <= moved.space.high))


def test_merging_puts_one_function_at_the_midpoint():
    placed = one_dimension([-0.6, 0.8, 7.0])
    fewer = centres.merge_pair(placed, 0, 1)
    assert_allclose(fewer.Z[0], 0.1)
    direct = one_dimension([0.1, 7.0])
    assert_allclose(fewer.value, direct.value, atol=1e-3)
    found = centres.merge_centres(placed)
    assert found is not None and found.value > placed.value and len(found.Z) == 2


def test_a_split_that_does_not_raise_the_evidence_is_refused_and_one_that_does_is_made():
    X = np.linspace(-5.0, 5.0, 120)[:, None]
    t = np.exp(-((X[:, 0] - 1.2) ** 2)) + np.exp(-((X[:, 0] + 1.2) ** 2))
    t = t + 0.05 * np.random.default_rng(0).normal(size=120)
    Z = np.array([[0.0]])
    space = space_of("gaussian", X, t, Concat((KernelBasis(Gaussian(width=1.0), Z), Bias())).bind(X))
    placed = centres.place(space, Z, np.zeros(1, dtype=int), [Start(np.arange(2), np.ones(2), 5.0)])
    two = centres.split(placed)
    assert two is not None and two.value > placed.value + 10.0
    assert_allclose(np.sort(two.Z.ravel()), [-1.2, 1.2], atol=0.3)
    settled, _ = centres.move(two, searching=False)
    assert len(settled.Z) == 2 and centres.split(settled) is None
    assert_allclose(np.sort(settled.Z.ravel()), [-1.2, 1.2], atol=0.1)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_moves_never_lower_the_evidence(kind):
    placed, *_ = placed_of(kind, n=60, settle=True)
    moved, history = centres.move(placed, rounds=2)
    values = [step.value for step in history]
    assert history[0].action == "start" and len(values) > 1 and np.all(np.diff(values) > 0.0)
    assert_allclose(values[-1], moved.value)
    again = centres.place(moved.space, moved.Z, moved.group, moved.models, settle=False)
    assert_allclose(again.value, moved.value, rtol=1e-8)


def test_the_published_scheme_raises_the_likelihood_at_fixed_weights():
    placed, *_ = placed_of("bernoulli", n=200, settle=True)
    own, w = grvm.posteriors(placed)[0]

    def likelihood(Z):
        bias = own.mean[own.places == len(placed.Z)].sum()
        f = placed.space.kernels[0](placed.space.X, Z) @ w[0] + bias
        return placed.targets[0].log_prob(f[:, None], placed.models[0])[0]

    assert likelihood(grvm.climb_likelihood(placed)) > likelihood(placed.Z) + 0.1
    assert grvm.train(placed)[0].value > placed.value


def test_several_kernels_keep_their_own_centres():
    X, y = sinc()
    scales = [KernelBasis(Gaussian(width=w)) for w in (1.0, 3.0)]
    model = RVR(kernel=None, basis=scales, centres="move", solver=QUICK).fit(X, y)
    data = RVR(kernel=None, basis=scales, solver=QUICK).fit(X, y)
    assert model.log_marginal_likelihood_ >= data.log_marginal_likelihood_ - 0.1
    assert len(model.centres_) == len(model.weights_) - (model.intercept_ != 0.0)


# What a user meets ---------------------------------------------------------------------------------------------------


def two_moons(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    angle = rng.uniform(0.0, np.pi, n)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X[y == 1] = [1.0, 0.4] - X[y == 1]
    return X + 0.25 * rng.normal(size=X.shape), y


@pytest.fixture(scope="module")
def regressors():
    X, y = sinc()
    return {c: RVR(width=2.0, centres=c).fit(X, y) for c in ("data", "move")}


@pytest.fixture(scope="module")
def classifier():
    X, y = two_moons(80)
    return RVC(width=1.0, centres="move", solver=QUICK).fit(X, y)


def test_centres_of_a_fitted_model(regressors):
    X, _ = sinc()
    data, moved = regressors["data"], regressors["move"]
    assert np.array_equal(data.centres_, X[data.relevance_])
    assert not hasattr(data, "placement_")
    assert moved.log_marginal_likelihood_ > data.log_marginal_likelihood_
    assert len(moved.relevance_) == 0 and moved.relevance_vectors_.shape == (0, 1)
    assert (
        moved.centres_.shape
        == moved.placement_.deviation.shape
        == (len(moved.weights_) - 1 * (moved.intercept_ != 0), 1)
    )
    assert not np.isin(moved.centres_, X).all()
    assert np.all((moved.centres_ >= X.min()) & (moved.centres_ <= X.max()))
    Phi = Gaussian(width=2.0)(X, moved.centres_)
    assert_allclose(moved.predict(X), Phi @ moved.weights_[: len(moved.centres_)] + moved.intercept_, atol=1e-10)


def test_evidence_with_and_without_the_centres(regressors):
    placement = regressors["move"].placement_
    own = regressors["move"].log_marginal_likelihood_
    assert_allclose(placement.log_evidence, own + placement.log_share)
    assert placement.log_share < 0.0
    assert np.all(placement.deviation > 0.0) and np.all(placement.deviation <= 20.0 / np.sqrt(12.0) + 1e-12)
    values = [step.value for step in placement.moves]
    assert np.all(np.diff(values) > 0.0)


def test_the_evidence_over_centres_follows_the_units_of_y_as_that_of_the_weights_does():
    X, y = sinc(50)
    one, other = (RVR(width=2.0, centres="move", solver=QUICK).fit(X, c * y) for c in (1.0, 1000.0))
    assert_allclose(other.placement_.log_share, one.placement_.log_share, atol=1e-4)
    change = other.placement_.log_evidence - one.placement_.log_evidence
    assert_allclose(change, -50 * np.log(1000.0), atol=1e-3)


def test_the_placement_of_separable_classes_is_that_of_the_mode():
    rng = np.random.default_rng(51)
    middles = [-2.5, -1], [2, 1.5], [-0.5, 2], [1.5, -2]
    X, t = np.vstack([rng.normal(c, 0.92, (50, 2)) for c in middles]), np.repeat([0.0, 0.0, 1.0, 1.0], 50)
    model = RVC(width=2**0.5, centres="move", solver=Sequential(prior_rows=0.0)).fit(X, t)
    Phi, alpha, w, Z = model.basis_(X), model.alpha_, model.weights_, model.centres_
    exact = float(oracle.mp_laplace_evidence(Phi, t, alpha, "bernoulli", 50, None, w))
    assert_allclose(model.log_marginal_likelihood_, exact, atol=1e-5)
    assert_allclose(laplace(Phi, t, np.ones(200), alpha, Bernoulli()).log_evidence, exact, atol=1e-5)
    # minus the Hessian of log p(t | w, z) in (w, z), for exp(-|x - z|^2 / 2), the width being sqrt(2)
    f = Phi @ w
    p, k, n = expit(f), len(w), len(Z)
    e = X[:, None] - Z
    slopes = Phi[:, :n, None] * e
    J = np.hstack([Phi, (w[:n, None] * slopes).reshape(200, -1)])
    H = J.T @ ((p * (1 - p))[:, None] * J) + np.diag([*alpha, *np.zeros(2 * n)])
    for i in range(n):
        at, r = slice(k + 2 * i, k + 2 * i + 2), (t - p) * Phi[:, i]
        mixed, own = r @ e[:, i], (e[:, i] * r[:, None]).T @ e[:, i] - r.sum() * np.eye(2)
        H[i, at] -= mixed
        H[at, i] -= mixed
        H[at, at] -= w[i] * own
    side = np.tile(np.ptp(X, axis=0), n)
    schur = (H[k:, k:] - H[k:, :k] @ np.linalg.solve(H[:k, :k], H[:k, k:])) * np.outer(side, side)
    curvature = np.linalg.eigvalsh(schur)
    share = -0.5 * np.log(curvature[curvature > 2 * np.pi] / (2 * np.pi)).sum()
    assert_allclose(model.placement_.log_share, share, atol=1e-3)


def test_moved_classifiers_predict_save_and_load(classifier):
    X, y = two_moons()
    assert classifier.score(X, y) > 0.9 and len(classifier.centres_) > 0
    again = loads(dumps(classifier))
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert_allclose(again.placement_.deviation, classifier.placement_.deviation)
    assert again.placement_.moves == classifier.placement_.moves


def test_moved_models_export_to_onnx(regressors, classifier):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    from relvec import to_onnx

    X, _ = sinc()
    session = runtime.InferenceSession(to_onnx(regressors["move"]).SerializeToString())
    mean = session.run(None, {session.get_inputs()[0].name: X})[0]
    assert_allclose(np.ravel(mean), regressors["move"].predict(X), atol=1e-6)


def test_moved_models_export_to_c(regressors):
    from relvec import to_c

    source = to_c(regressors["move"])
    assert all(f"{z:.6g}"[:4] in source for z in np.abs(regressors["move"].centres_.ravel()))


def test_the_published_scheme_as_an_estimator():
    X, y = two_moons(80)
    model = RVC(width=1.0, centres="grvm", solver=QUICK).fit(X, y)
    data = RVC(width=1.0, solver=QUICK).fit(X, y)
    assert model.log_marginal_likelihood_ > data.log_marginal_likelihood_
    assert {step.action for step in model.placement_.moves} == {"start", "likelihood"}
    assert model.score(X, y) > 0.9 and len(model.relevance_) == 0


@pytest.mark.slow
@parametrize_with_checks([
    RVR(width="scale", centres="move", solver=QUICK), RVR(width="scale", centres="grvm", solver=QUICK),
    RVC(width="scale", centres="move", solver=Sequential(restarts=0), time_limit=1.0),
    RVC(width="scale", centres="grvm", solver=QUICK),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # for random and constant targets
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_clone_and_grid_search():
    X, y = sinc(40)
    model = RVR(width=2.0, centres="move", solver=QUICK)
    assert clone(model).centres == "move"
    search = GridSearchCV(model, {"centres": ["data", "move"]}, cv=2).fit(X, y)
    assert search.best_params_["centres"] in ("data", "move")


@pytest.mark.parametrize(
    "options", [{"sample_weight": True}, {"outputs": 2}, {"predictive": "augmented"}, {"fit_intercept": False}]
)
def test_variants_of_regression(options):
    X, y = sinc(50)
    weights = np.linspace(0.5, 2.0, 50) if options.pop("sample_weight", False) else None
    if options.pop("outputs", 1) == 2:
        y = np.column_stack([y, np.cos(X[:, 0] / 3.0)])
    model = RVR(width=2.0, centres="move", solver=QUICK, noise_variance=0.01, **options).fit(
        X, y, sample_weight=weights
    )
    assert model.predict(X).shape == y.shape
    assert np.isfinite(model.placement_.log_evidence)
    assert model.score(X, y) > 0.8


def test_counts_and_many_classes():
    X, y = sinc(60)
    counts = np.random.default_rng(0).poisson(np.exp(1.0 + 2.0 * y)).astype(float)
    model = RVR(width=3.0, likelihood="poisson", centres="move", solver=QUICK).fit(X, counts)
    assert model.score(X, counts) > 0.3 and np.isfinite(model.placement_.log_evidence)
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[::4], y[::4]
    for multi_class in ("multinomial", "ovr"):
        model = RVC(width=4.0, multi_class=multi_class, centres="move", solver=QUICK).fit(X, y)
        assert model.score(X, y) > 0.8
        assert np.isfinite(model.placement_.log_evidence)


def test_a_constant_target_and_an_empty_model_have_no_centres_to_move():
    X = np.linspace(0.0, 1.0, 20)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        constant = RVR(width=1.0, centres="move").fit(X, np.ones(20))
    assert constant.centres_.shape == (0, 1)
    noise = RVC(width=1.0, centres="move").fit(X, np.arange(20) % 2)
    assert len(noise.centres_) == len(noise.weights_) - 1 * (noise.intercept_ != 0.0)


def test_an_output_may_be_left_without_functions():
    X, y = sinc(40)
    model = RVR(width=2.0, centres="move", solver=QUICK, noise_variance=8.0).fit(
        X, np.column_stack([0.1 * y, 20.0 * y])
    )
    assert np.ptp(model.predict(X)[:, 0]) == 0.0
    assert np.isfinite(model.placement_.log_evidence)


def test_what_cannot_move_is_refused():
    X, y = sinc(20)
    with pytest.raises(ValueError, match="centres must be 'data', 'move' or 'grvm', got 'both'"):
        RVR(centres="both").fit(X, y)
    with pytest.raises(ValueError, match="not kernel='precomputed'"):
        RVR(kernel="precomputed", centres="move").fit(X @ X.T, y)
    with pytest.raises(ValueError, match="this model has none"):
        RVR(kernel=None, basis="linear", centres="move").fit(X, y)


# The width -----------------------------------------------------------------------------------------------------------


def test_the_width_of_the_generalised_machine_maximises_its_evidence():
    X, y = sinc()
    model = RVR(width="grvm", solver=QUICK).fit(X, y)
    trials = model.tuning_.trials
    best = max(trials, key=lambda trial: trial.log_evidence)
    assert_allclose(model.width_, np.exp(best.theta[0]))
    assert 1.0 < model.width_ < 5.0
    assert len(model.relevance_) > 0  # a plain machine: RVM ME
    assert np.all(np.diff([trial.theta[0] for trial in trials]) < 0.0)
    assert all(trial.log_evidence <= trial.weights for trial in trials)
    moved = RVR(width="grvm", centres="move", solver=QUICK).fit(X, y)
    assert_allclose(moved.width_, model.width_)
    assert np.isfinite(moved.placement_.log_evidence)


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "softmax"])
def test_the_gradient_over_widths_agrees_with_differences_of_the_evidence(kind):
    placed, *_ = placed_of(kind, n=200)
    found, slope = grvm_widths.evidence_and_gradient(placed)
    assert_allclose(found.total, grvm.grvm_evidence(placed).total)
    theta, difference = grvm_widths.kernel_theta(placed), np.empty(2)
    for i, step in enumerate(1e-5 * np.eye(2)):
        above, below = (grvm_widths.with_theta(placed, theta + s, settle=False) for s in (step, -step))
        difference[i] = (grvm.grvm_evidence(above).total - grvm.grvm_evidence(below).total) / 2e-5
    assert_allclose(slope, difference, rtol=1e-3, atol=1e-3)


def test_widths_per_feature_find_the_feature_that_matters():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (50, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=50)
    model = RVR(width="grvm-per-feature", solver=QUICK).fit(X, y)
    one = RVR(width="grvm", solver=QUICK).fit(X, y)
    assert model.feature_relevance_[0] > 0.8
    assert model.tuning_.trials[-1].log_evidence > max(t.log_evidence for t in one.tuning_.trials)


def test_the_width_of_classes_does_not_run_to_the_smallest():
    # the evidence of the weights alone does (T01's classifier at width="learn"): that is GRVM's point
    X, y = two_moons(80)
    model = RVC(width="grvm", solver=QUICK).fit(X, y)
    narrow, chosen = model.tuning_.trials[-1], max(model.tuning_.trials, key=lambda trial: trial.log_evidence)
    assert chosen.log_evidence > narrow.log_evidence + 1.0
    assert 0.3 < model.width_ < 5.0


def test_a_word_for_the_width_that_is_not_known_is_refused():
    X, y = sinc(20)
    with pytest.raises(ValueError, match="width must be"):
        RVR(width="grmv").fit(X, y)


def test_a_dictionary_of_several_scales_lets_every_atom_choose_its_own():
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 10.0, 150)[:, None]
    y = np.exp(-(((X[:, 0] - 2.0) / 0.3) ** 2)) + np.exp(-(((X[:, 0] - 7.0) / 2.0) ** 2)) + 0.03 * rng.normal(size=150)
    both = RVR(kernel=None, basis=basis.multi_scale("gaussian", [0.3, 2.0])).fit(X, y)
    single = [RVR(width=w).fit(X, y) for w in (0.3, 2.0)]
    assert both.log_marginal_likelihood_ > max(model.log_marginal_likelihood_ for model in single) + 5.0
    assert {part.kernel.width for part in basis.leaves(both.basis_) if isinstance(part, KernelBasis)} == {0.3, 2.0}
    scaled = basis.multi_scale("cauchy", [1.0, 3.0], X=X)
    assert_allclose([part.kernel.width for part in scaled.parts], [X.std(), 3.0 * X.std()])
    with pytest.raises(ValueError, match="one or more widths"):
        basis.multi_scale("gaussian", [])


# The paper -----------------------------------------------------------------------------------------------------------


def test_leaving_out_agrees_with_fits_of_the_other_rows():
    X, y = two_moons(40)
    left = table.groups(40, True, np.random.default_rng(0))
    odds, wrong, pairs = table.left_out(X, y, 1.5, left), table.svm_left_out(X, y, 1.0, 1.0, left), []
    for i in range(0, 40, 4):
        keep = np.arange(40) != i
        own = RVC(width=1.5, averaging="mode", tol=1e-2).fit(X[keep], y[keep])
        pairs.append((expit(odds[i]), expit(own.decision_function(X[[i]])[0])))
        assert wrong[i] == (SVC(C=1.0, gamma=1.0).fit(X[keep], y[keep]).predict(X[[i]])[0] != y[i])
    difference = np.abs(np.diff(pairs, axis=1))  # paths may end at other maxima now and then
    assert np.median(difference) < 0.05
    folds = table.groups(40, False, np.random.default_rng(0))
    assert len(folds) == 10 and np.array_equal(np.sort(np.concatenate(folds)), np.arange(40))


def test_the_entries_of_the_paper_have_its_sizes_and_numbers():
    entries = {e.name: e for e in papers.select(["GRVM"])}
    assert len(entries) == 8
    sizes = {"australian": 482, "bupa": 241, "credit": 482, "hepatitis": 108, "pima": 537}
    for name, size in sizes.items():
        entry = entries[f"GRVM-table-1-{name}"]
        assert entry.run.args[1] == size and len(entry.published) == 6 and entry.full == 10
        rows = papers.DATASETS[entry.data[0]].arrays["X"][0]
        assert abs(size / rows - 0.7) < 0.005
    assert entries["GRVM-table-1-bupa"].published["error, RVM ME"].value == "21.15"
    X = np.array([[1.0, np.nan], [3.0, 2.0], [5.0, 4.0], [7.0, 6.0]])
    a, _, b, _ = table.split(X, np.array([0, 1, 0, 1]), 3, np.random.default_rng(0))
    assert np.isfinite(a).all() and np.isfinite(b).all()
    assert_allclose(a.mean(axis=0), 0.0, atol=1e-12)


def test_figure_1_narrow_kernels_mind_a_shift_and_not_a_weight():
    values = table.figure_1(papers.Context("x", 1)).values
    assert values["log likelihood lost by a fifth of a weight, narrow"] < 0.1
    assert values["log likelihood lost by a shift of 0.6, narrow"] > 0.5
