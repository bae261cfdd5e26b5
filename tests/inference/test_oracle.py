"""The oracle agrees with itself: definitions, identities of the papers, finite differences, many digits."""

import math

import numpy as np
import pytest
from mpmath import mp
from numpy.testing import assert_allclose

import oracle

N, M = 12, 6
ACTIVE = np.array([4, 0, 3])
HYPERPRIOR = {"a": 0.3, "b": 0.2, "c": 0.7, "d": 0.1}
LIKELIHOODS = ["bernoulli", "poisson", "softmax"]


class Problem:
    """A small regression problem: dictionary (N, M), a model of three functions, sample weights."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.Phi_all = rng.normal(size=(N, M))
        self.Phi = self.Phi_all[:, ACTIVE]
        self.t = self.Phi_all[:, :2] @ [1.5, -0.7] + 0.3 * rng.normal(size=N)
        self.alpha = np.array([2.0, 0.4, 9.0])
        self.beta = 5.0
        self.weights = rng.uniform(0.3, 2.5, size=N)
        self.fit = self.Phi, self.t, self.alpha, self.beta
        self.scan = self.Phi_all, ACTIVE, self.t, self.alpha, self.beta


@pytest.fixture(scope="module")
def problem():
    return Problem()


@pytest.fixture(params=[False, True], ids=["unweighted", "weighted"])
def weights(request, problem):
    return problem.weights if request.param else None


def laplace_case(likelihood):
    """Phi (20, 3), t (20,), alpha (3,) or (3 classes, 3)."""
    rng = np.random.default_rng(3)
    Phi = np.column_stack([np.ones(20), rng.normal(size=(20, 2))])
    eta = Phi @ [0.3, 1.0, -0.8]
    if likelihood == "bernoulli":
        return Phi, (rng.uniform(size=20) < 1 / (1 + np.exp(-eta))).astype(float), np.array([0.5, 2.0, 1.0])
    if likelihood == "poisson":
        return Phi, rng.poisson(np.exp(eta)).astype(float), np.array([0.5, 2.0, 1.0])
    return Phi, rng.integers(0, 3, size=20), np.array([[0.5, 2.0, 1.0], [1.0, 0.7, 3.0], [4.0, 1.0, 0.2]])


# --- Gaussian: evidence --------------------------------------------------------------------------------------------


def test_evidence_is_the_integral_over_the_weight(problem, weights):
    phi, t, beta, alpha = problem.Phi[:, 1], problem.t, problem.beta, 0.4
    w = np.linspace(-12, 12, 20001)
    power = np.ones(N) if weights is None else weights
    log_joint = -0.5 * beta * power @ (t[:, None] - phi[:, None] * w) ** 2 - 0.5 * alpha * w**2
    log_joint += 0.5 * np.sum(power) * np.log(beta / (2 * np.pi)) + 0.5 * np.log(alpha / (2 * np.pi))
    peak = np.max(log_joint)
    integral = peak + np.log(np.sum(np.exp(log_joint - peak)) * (w[1] - w[0]))
    assert_allclose(oracle.log_evidence(phi[:, None], t, [alpha], beta, weights), integral, rtol=1e-12)


def test_weights_are_frequencies(problem):
    counts = np.arange(N) % 4
    twice = np.repeat(np.arange(N), counts)
    Phi, t, alpha, beta = problem.fit
    repeated = Phi[twice], t[twice], alpha, beta
    for name in ("log_evidence", "objective", "gradient", "hessian", "gamma"):
        function = getattr(oracle, name)
        assert_allclose(function(*problem.fit, weights=counts), function(*repeated), rtol=1e-10, err_msg=name)
    for name in ("posterior", "mackay_step", "em_step"):
        function = getattr(oracle, name)
        for ours, theirs in zip(function(*problem.fit, weights=counts), function(*repeated), strict=True):
            assert_allclose(ours, theirs, rtol=1e-10, err_msg=name)
    S, Q = oracle.S_Q(problem.Phi_all, Phi, t, alpha, beta, counts)
    S_repeated, Q_repeated = oracle.S_Q(problem.Phi_all[twice], *repeated)
    assert_allclose(S, S_repeated, rtol=1e-10)
    assert_allclose(Q, Q_repeated, rtol=1e-10, atol=1e-12)
    D = oracle.dL_dPhi(*problem.fit, counts)
    total = np.array([oracle.dL_dPhi(*repeated)[twice == n].sum(axis=0) for n in range(N)])
    assert_allclose(D, total, rtol=1e-9, atol=1e-12)


def test_identities_of_tipping_appendix_a(problem):
    Phi, t, alpha, beta = problem.fit
    C = oracle.covariance(Phi, alpha, beta)
    Sigma, mu = oracle.posterior(Phi, t, alpha, beta)
    logdet = np.linalg.slogdet
    assert_allclose(logdet(C)[1], -logdet(Sigma)[1] - N * np.log(beta) - np.sum(np.log(alpha)), rtol=1e-12)  # (38)
    woodbury = beta * np.eye(N) - beta * Phi @ Sigma @ Phi.T * beta  # T01 eq. (39)
    assert_allclose(np.linalg.inv(C), woodbury, atol=1e-12)
    data = t @ np.linalg.solve(C, t)
    assert_allclose(data, beta * t @ (t - Phi @ mu), rtol=1e-12)  # T01 eq. (40)
    assert_allclose(data, beta * np.sum((t - Phi @ mu) ** 2) + mu @ (alpha * mu), rtol=1e-12)  # T01 eq. (41)
    assert_allclose(np.trace(Sigma @ Phi.T @ Phi), np.sum(oracle.gamma(*problem.fit)) / beta, rtol=1e-12)


def test_objective_drops_only_the_constant(problem, weights):
    total = N if weights is None else np.sum(weights)
    difference = oracle.objective(*problem.fit, weights) - oracle.log_evidence(*problem.fit, weights)
    assert_allclose(difference, 0.5 * total * np.log(2 * np.pi), rtol=1e-12)


def test_an_empty_model_is_noise(problem):
    empty = problem.Phi[:, :0], problem.t, np.array([]), problem.beta
    expected = 0.5 * N * np.log(problem.beta / (2 * np.pi)) - 0.5 * problem.beta * problem.t @ problem.t
    assert_allclose(oracle.log_evidence(*empty), expected, rtol=1e-13)
    assert_allclose(float(oracle.mp_log_evidence(*empty)), expected, rtol=1e-13)
    assert oracle.posterior(*empty)[0].shape == (0, 0)
    assert_allclose(oracle.S_Q(problem.Phi_all, *empty)[1], problem.beta * problem.Phi_all.T @ problem.t, rtol=1e-12)


def test_predictive_is_that_of_the_gaussian_process(problem, weights):
    Phi, t, alpha, beta = problem.fit
    Phi_star = np.random.default_rng(1).normal(size=(4, 3))
    K_star = Phi_star @ np.diag(1 / alpha) @ Phi.T
    C = oracle.covariance(Phi, alpha, beta, weights)
    mean, variance = oracle.predictive(Phi_star, *problem.fit, weights)
    assert_allclose(mean, K_star @ np.linalg.solve(C, t), rtol=1e-11)
    prior = np.diag(Phi_star @ np.diag(1 / alpha) @ Phi_star.T)
    assert_allclose(variance, 1 / beta + prior - np.diag(K_star @ np.linalg.solve(C, K_star.T)), rtol=1e-11)


# --- Gaussian: derivatives and updates -----------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [{}, HYPERPRIOR], ids=["flat", "gamma"])
def test_gradient_and_hessian_match_finite_differences(problem, weights, prior):
    Phi, t, alpha, beta = problem.fit
    theta = np.log([*alpha, beta])

    def at(function, x):
        return function(Phi, t, np.exp(x[:-1]), math.exp(x[-1]), weights, **prior)

    gradient = at(oracle.gradient, theta)
    assert_allclose(gradient, oracle.finite_difference(lambda x: at(oracle.objective, x), theta), rtol=1e-9, atol=1e-10)
    numeric = [oracle.finite_difference(lambda x, i=i: at(oracle.gradient, x)[i], theta) for i in range(4)]
    assert_allclose(at(oracle.hessian, theta), numeric, rtol=1e-9, atol=1e-10)


def test_gradient_is_that_of_the_paper(problem, weights):
    Phi, t, alpha, beta = problem.fit
    w = np.ones(N) if weights is None else weights
    Sigma, mu = oracle.posterior(*problem.fit, weights)
    a, b, c, d = HYPERPRIOR.values()
    expected = 0.5 * (1 - alpha * (mu**2 + np.diag(Sigma))) + a - b * alpha  # T01 eq. (42)
    assert_allclose(oracle.gradient_log_alpha(*problem.fit, weights, a=a, b=b), expected, rtol=1e-11)
    bracket = np.sum(w) / beta - w @ (t - Phi @ mu) ** 2 - np.trace(Sigma @ Phi.T @ np.diag(w) @ Phi)
    assert_allclose(oracle.gradient_log_beta(*problem.fit, weights, c=c, d=d), 0.5 * beta * bracket + c - d * beta)


def test_gradient_and_hessian_at_many_digits(problem):
    Phi, t, alpha, beta = problem.Phi[:, :2], problem.t, problem.alpha[:2], problem.beta
    assert_allclose(oracle.gradient(Phi, t, alpha, beta), oracle.mp_gradient(Phi, t, alpha, beta), rtol=1e-12)
    assert_allclose(oracle.hessian(Phi, t, alpha, beta), oracle.mp_hessian(Phi, t, alpha, beta), rtol=1e-11, atol=1e-12)


def test_hessian_in_the_weight_space(problem):
    Phi, t, alpha, beta = problem.fit
    Sigma, mu = oracle.posterior(*problem.fit)
    m, rss, square = alpha * mu, np.sum((t - Phi @ mu) ** 2), np.outer(alpha, alpha) * Sigma**2
    H = np.empty((4, 4))
    H[:3, :3] = np.outer(m, m) * Sigma + square / 2 - np.diag(alpha * (mu**2 + np.diag(Sigma))) / 2
    H[3, :3] = H[:3, 3] = -m * (Sigma @ m) + (alpha * np.diag(Sigma) - square.sum(axis=0)) / 2
    H[3, 3] = (-beta * rss - np.sum(alpha * np.diag(Sigma)) + square.sum()) / 2 + m @ Sigma @ m
    assert_allclose(oracle.hessian(*problem.fit), H, rtol=1e-10)


def test_design_gradient(problem, weights):
    Phi, t, alpha, beta = problem.fit
    D = oracle.dL_dPhi(*problem.fit, weights)
    numeric = oracle.finite_difference(lambda x: oracle.log_evidence(x, t, alpha, beta, weights), Phi)
    assert_allclose(D, numeric, rtol=1e-8, atol=1e-9)
    Sigma, mu = oracle.posterior(*problem.fit, weights)
    w = np.ones(N) if weights is None else weights
    expected = beta * w[:, None] * (np.outer(t - Phi @ mu, mu) - Phi @ Sigma)  # T01 eq. (55)
    assert_allclose(D, expected, rtol=1e-9, atol=1e-11)
    # scaling a column is scaling its alpha
    assert_allclose(np.sum(D * Phi, axis=0), -2 * oracle.gradient_log_alpha(*problem.fit, weights), rtol=1e-9)


def test_scale_gradient(problem, weights):
    X = np.random.default_rng(2).normal(size=(N, 2))
    Z, eta = X[:3], np.array([0.4, 1.3])
    t, alpha, beta = problem.t, problem.alpha, problem.beta

    def evidence(eta):
        return oracle.log_evidence(oracle.gaussian_design(X, Z, eta), t, alpha, beta, weights)

    numeric = oracle.finite_difference(evidence, eta)
    assert_allclose(oracle.dL_deta(X, Z, eta, t, alpha, beta, weights), numeric, rtol=1e-8)


@pytest.mark.parametrize("step", [oracle.mackay_step, oracle.em_step])
def test_fixed_points_are_stationary(problem, weights, step):
    Phi, t, alpha, beta = problem.Phi_all[:, :2], problem.t, np.ones(2), problem.beta
    for _ in range(400):
        alpha, beta = step(Phi, t, alpha, beta, weights, **HYPERPRIOR)
    assert_allclose(oracle.gradient(Phi, t, alpha, beta, weights, **HYPERPRIOR), 0, atol=1e-9)


def test_em_step_raises_the_objective(problem, weights):
    Phi, t, alpha, beta = problem.fit
    values = []
    for _ in range(5):
        values.append(oracle.objective(Phi, t, alpha, beta, weights, **HYPERPRIOR))
        alpha, beta = oracle.em_step(Phi, t, alpha, beta, weights, **HYPERPRIOR)
    assert np.all(np.diff(values) > 0)


# --- sequential algorithm ------------------------------------------------------------------------------------------


def test_S_Q_and_s_q_identities(problem, weights):
    Phi_all, _, t, alpha, beta = problem.scan
    w = np.ones(N) if weights is None else weights
    S, Q = oracle.S_Q(Phi_all, *problem.fit, weights)
    s, q = oracle.s_q(*problem.scan, weights)
    Sigma, mu = oracle.posterior(*problem.fit, weights)
    cross = beta * Phi_all.T @ np.diag(w) @ problem.Phi
    own = beta * np.sum(w[:, None] * Phi_all**2, axis=0)
    assert_allclose(S, own - np.diag(cross @ Sigma @ cross.T), rtol=1e-10)  # TF03 eq. (24)
    assert_allclose(Q, beta * Phi_all.T @ (w * (t - problem.Phi @ mu)), rtol=1e-10, atol=1e-11)  # TF03 eq. (25)
    out = np.setdiff1d(np.arange(M), ACTIVE)
    assert_allclose(s[out], S[out], rtol=1e-12)
    assert_allclose(q[out], Q[out], rtol=1e-10)
    assert_allclose(s[ACTIVE], alpha * S[ACTIVE] / (alpha - S[ACTIVE]), rtol=1e-9)  # TF03 eq. (23)
    assert_allclose(q[ACTIVE], alpha * Q[ACTIVE] / (alpha - S[ACTIVE]), rtol=1e-9)
    assert_allclose(s[ACTIVE], 1 / np.diag(Sigma) - alpha, rtol=1e-10)
    assert_allclose(q[ACTIVE], mu / np.diag(Sigma), rtol=1e-10)
    for ours, exact in zip((s, q), oracle.mp_s_q(*problem.scan, weights=weights), strict=True):
        assert_allclose(ours, exact, rtol=1e-10)


def test_optimal_alpha_is_the_maximum(problem):
    s, q = oracle.s_q(*problem.scan)
    best = oracle.optimal_alpha(s, q)
    grid = np.exp(np.linspace(-8, 14, 150))
    assert np.isinf(best).any() and np.isfinite(best).any()
    for i in range(M):
        rest = oracle.delete(ACTIVE, problem.alpha, i) if i in ACTIVE else (ACTIVE, problem.alpha)
        scan = problem.Phi_all, rest[0], problem.t, rest[1], problem.beta
        gains = [oracle.gain_add(*scan, i, g) for g in grid]
        top = oracle.gain_add(*scan, i)
        assert top >= max(gains) - 1e-12
        if np.isfinite(best[i]):
            assert_allclose(grid[np.argmax(gains)], best[i], rtol=0.08)
            assert_allclose(top, max(gains), atol=2e-3)
        else:
            assert top == 0 and np.all(np.diff(gains) > -1e-12)
    assert_allclose(oracle.optimal_alpha([1.0, 2.0], [2.0, 1.0]), [1 / 3, np.inf])


def test_gains_are_those_of_the_paper(problem, weights):
    Phi_all, alpha = problem.Phi_all, problem.alpha
    S, Q = oracle.S_Q(Phi_all, *problem.fit, weights)
    i = 1
    expected = ((Q[i] ** 2 - S[i]) / S[i] + np.log(S[i] / Q[i] ** 2)) / 2  # TF03 A.2
    assert expected > 1
    assert_allclose(oracle.gain_add(*problem.scan, i, weights=weights), expected, rtol=1e-10)
    for i, a in zip(ACTIVE, alpha, strict=True):
        change = 1 / 3.3 - 1 / a
        expected = (Q[i] ** 2 / (S[i] + 1 / change) - np.log(1 + S[i] * change)) / 2  # TF03 A.3
        assert_allclose(oracle.gain_reestimate(*problem.scan, i, 3.3, weights), expected, rtol=1e-9)
        assert oracle.gain_reestimate(*problem.scan, i, weights=weights) >= 0
        expected = (Q[i] ** 2 / (S[i] - a) - np.log(1 - S[i] / a)) / 2  # TF03 A.4
        assert_allclose(oracle.gain_delete(*problem.scan, i, weights), expected, rtol=1e-9)
        assert_allclose(oracle.gain_reestimate(*problem.scan, i, np.inf, weights), expected, rtol=1e-9)


def test_exchange_is_deletion_then_addition(problem, weights):
    Phi_all, alpha, beta = problem.Phi_all, problem.alpha, problem.beta
    w = np.ones(N) if weights is None else weights
    S, Q = oracle.S_Q(Phi_all, *problem.fit, weights)
    Sigma, mu = oracle.posterior(*problem.fit, weights)
    j = 1
    for place, i in enumerate(ACTIVE):
        c = beta * alpha[place] * Sigma[place] @ problem.Phi.T @ (w * Phi_all[:, j])
        s = S[j] + c**2 / (alpha[place] ** 2 * Sigma[place, place])
        q = Q[j] + c * mu[place] / (alpha[place] * Sigma[place, place])
        expected = oracle.gain_delete(*problem.scan, i, weights) + (q**2 / s - 1 - np.log(q**2 / s)) / 2
        assert_allclose(oracle.gain_exchange(*problem.scan, i, j, weights=weights), expected, rtol=1e-9)


def test_updates_of_the_appendix(problem):
    Phi_all, alpha, beta = problem.Phi_all, problem.alpha, problem.beta
    Phi = problem.Phi
    before = oracle.model(*problem.scan)
    i, alpha_i = 1, 0.7

    after = _after(problem, oracle.add(*problem.scan, i, alpha_i))  # TF03 A.2
    Sigma_ii = 1 / (alpha_i + before.S[i])
    mu_i = Sigma_ii * before.Q[i]
    column = before.Sigma @ Phi.T @ Phi_all[:, i]
    e = Phi_all[:, i] - beta * Phi @ column
    block = before.Sigma + beta**2 * Sigma_ii * np.outer(column, column)
    off = -beta * Sigma_ii * column[:, None]
    assert_allclose(after.Sigma, np.block([[block, off], [off.T, np.array([[Sigma_ii]])]]), rtol=1e-10)
    assert_allclose(after.mu, [*(before.mu - mu_i * beta * column), mu_i], rtol=1e-10)
    assert_allclose(after.S, before.S - Sigma_ii * (beta * Phi_all.T @ e) ** 2, rtol=1e-9)
    assert_allclose(after.Q, before.Q - mu_i * beta * Phi_all.T @ e, rtol=1e-9, atol=1e-11)

    for j, i in enumerate(ACTIVE):
        column, cross = before.Sigma[:, j], beta * Phi_all.T @ Phi @ before.Sigma[:, j]
        after = _after(problem, oracle.reestimate(*problem.scan, i, alpha_i))  # TF03 A.3
        kappa = 1 / (before.Sigma[j, j] + 1 / (alpha_i - alpha[j]))
        assert_allclose(after.Sigma, before.Sigma - kappa * np.outer(column, column), rtol=1e-9)
        assert_allclose(after.mu, before.mu - kappa * before.mu[j] * column, rtol=1e-9)
        assert_allclose(after.S, before.S + kappa * cross**2, rtol=1e-9)
        assert_allclose(after.Q, before.Q + kappa * before.mu[j] * cross, rtol=1e-9, atol=1e-11)
        after = _after(problem, oracle.delete(ACTIVE, alpha, i))  # TF03 A.4
        kappa, stay = 1 / before.Sigma[j, j], np.arange(3) != j
        expected = before.Sigma - kappa * np.outer(column, column)
        assert_allclose(after.Sigma, expected[np.ix_(stay, stay)], rtol=1e-9, atol=1e-12)
        assert_allclose(after.mu, (before.mu - kappa * before.mu[j] * column)[stay], rtol=1e-9)
        assert_allclose(after.S, before.S + kappa * cross**2, rtol=1e-9)
        assert_allclose(after.Q, before.Q + kappa * before.mu[j] * cross, rtol=1e-9, atol=1e-11)


def _after(problem, move):
    active, alpha = move
    return oracle.model(problem.Phi_all, active, problem.t, alpha, problem.beta)


def test_moves_refuse_what_makes_no_sense(problem):
    with pytest.raises(ValueError, match="already"):
        oracle.gain_add(*problem.scan, 4)
    with pytest.raises(ValueError, match="not in the model"):
        oracle.gain_delete(*problem.scan, 1)
    with pytest.raises(ValueError, match="not in the model"):
        oracle.gain_reestimate(*problem.scan, 1)


def test_rvm_star_is_the_augmented_model(problem, weights):
    phi_x, phi_new, phi_new_x, alpha_new = np.array([0.2, -1.0, 0.6]), problem.Phi_all[:, 1], 0.9, 3.0
    new = phi_x, phi_new, phi_new_x
    mean, variance = oracle.rvm_star(*problem.fit, *new, alpha_new, weights)
    old_mean, old_variance = oracle.predictive(phi_x[None, :], *problem.fit, weights)
    q, e, s = oracle.rvm_star_terms(*problem.fit, *new, weights)
    assert_allclose(mean, old_mean[0] + e * q / (alpha_new + s), rtol=1e-11)  # RQ05 eq. (6)
    assert_allclose(variance, old_variance[0] + e**2 / (alpha_new + s), rtol=1e-11)
    assert_allclose(oracle.rvm_star(*problem.fit, *new, 1e12, weights), [old_mean[0], old_variance[0]], rtol=1e-9)


# --- Laplace -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_working_is_the_derivative_of_the_likelihood(likelihood):
    _, t, alpha = laplace_case(likelihood)
    t = oracle._targets(t, likelihood, np.atleast_2d(alpha).shape[0])[:4]
    eta = np.random.default_rng(5).normal(size=t.shape)
    weights = np.array([1.0, 0.5, 2.0, 3.0])
    r, B = oracle.working(eta, t, likelihood, weights)
    numeric = oracle.finite_difference(lambda x: oracle.log_likelihood(x, t, likelihood, weights), eta)
    assert_allclose(r, numeric, rtol=1e-9, atol=1e-10)
    for n, k in np.ndindex(t.shape):
        row = oracle.finite_difference(lambda x, n=n, k=k: oracle.working(x, t, likelihood, weights)[0][n, k], eta)
        assert_allclose(B[n, k], -row[n], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_mode_is_stationary(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    w, alpha = np.atleast_2d(oracle.laplace_mode(Phi, t, alpha, likelihood)), np.atleast_2d(alpha)
    assert np.min(np.abs(w)) > 1e-3
    t = oracle._targets(t, likelihood, w.shape[0])
    r, _ = oracle.working(Phi @ w.T, t, likelihood)
    assert_allclose(r.T @ Phi - alpha * w, 0, atol=1e-12)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_evidence_is_the_integral_to_second_order(likelihood):
    rng = np.random.default_rng(7)
    phi, alpha = rng.normal(size=200), 2.0
    t = rng.poisson(np.exp(0.5 * phi)) if likelihood == "poisson" else rng.integers(0, 2, size=200)
    t = t.astype(float)
    w = np.linspace(-3, 3, 601)
    log_joint = [oracle.log_likelihood(phi[:, None] * x, t[:, None], likelihood) for x in w]
    log_joint = np.array(log_joint) - 0.5 * alpha * w**2 + 0.5 * np.log(alpha / (2 * np.pi))
    integral = np.max(log_joint) + np.log(np.sum(np.exp(log_joint - np.max(log_joint))) * (w[1] - w[0]))
    problem = phi[:, None], t, np.array([alpha]), likelihood
    B, _ = oracle.laplace_targets(*problem)
    y = 1 / (1 + np.exp(-phi * oracle.laplace_mode(*problem)))
    third, fourth = (B * (1 - 2 * y), B * (1 - 6 * B)) if likelihood == "bernoulli" else (B, B)
    h = alpha + B @ phi**2
    # next terms of Laplace's expansion: f4 / (8 h^2) + 5 f3^2 / (24 h^3), f3 and f4 derivatives, h = -f2
    correction = -(fourth @ phi**4) / (8 * h**2) + 5 * (third @ phi**3) ** 2 / (24 * h**3)
    assert abs(correction) > 1e-4
    assert_allclose(oracle.laplace_evidence(*problem) + correction, integral, rtol=0, atol=0.1 * abs(correction))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_laplace_weights_are_frequencies(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    counts = np.arange(20) % 3
    twice = np.repeat(np.arange(20), counts)
    ours = oracle.laplace_evidence(Phi, t, alpha, likelihood, counts)
    assert_allclose(ours, oracle.laplace_evidence(Phi[twice], t[twice], alpha, likelihood), rtol=1e-12)
    assert_allclose(float(oracle.mp_laplace_evidence(Phi, t, alpha, likelihood, 30, counts)), ours, rtol=1e-12)


def test_two_class_softmax_is_bernoulli():
    Phi, t, alpha = laplace_case("bernoulli")
    pair = np.array([[0.5, 2.0, 1.0], [1.0, 0.7, 3.0]])
    # only the difference of the two weights meets the data; its prior variance is the sum of the two
    alpha = 1 / np.sum(1 / pair, axis=0)
    two = oracle.laplace_evidence(Phi, t, pair, "softmax")
    assert_allclose(two, oracle.laplace_evidence(Phi, t, alpha, "bernoulli"), rtol=1e-12)
    w = oracle.laplace_mode(Phi, t, pair, "softmax")
    assert_allclose(w[1] - w[0], oracle.laplace_mode(Phi, t, alpha, "bernoulli"), rtol=1e-10)
    assert_allclose(oracle.laplace_evidence(Phi, np.eye(2)[t.astype(int)], pair, "softmax"), two, rtol=1e-13)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_an_infinite_alpha_takes_the_function_out(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    alpha[..., 1] = np.inf
    without = Phi[:, [0, 2]], t, alpha[..., [0, 2]], likelihood
    assert_allclose(oracle.laplace_evidence(Phi, t, alpha, likelihood), oracle.laplace_evidence(*without), rtol=1e-13)
    assert_allclose(float(oracle.mp_laplace_evidence(Phi, t, alpha, likelihood, 30)), oracle.laplace_evidence(*without))
    alpha[..., 1] = 1e13
    assert_allclose(oracle.laplace_evidence(Phi, t, alpha, likelihood), oracle.laplace_evidence(*without), rtol=1e-10)
    alpha[...] = np.inf
    eta = np.zeros((20, np.atleast_2d(alpha).shape[0]))
    flat = oracle.log_likelihood(eta, oracle._targets(t, likelihood, eta.shape[1]), likelihood)
    assert_allclose(oracle.laplace_evidence(Phi, t, alpha, likelihood), flat, rtol=1e-13)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_laplace_gradient_at_many_digits(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    Phi, alpha = Phi[:, :2], alpha[..., :2]
    value = oracle.laplace_evidence(Phi, t, alpha, likelihood)
    assert_allclose(float(oracle.mp_laplace_evidence(Phi, t, alpha, likelihood, 30)), value, rtol=1e-13)
    exact = oracle.mp_laplace_gradient_log_alpha(Phi, t, alpha, likelihood, 30)
    assert_allclose(oracle.laplace_gradient_log_alpha(Phi, t, alpha, likelihood), exact, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_gradient_has_a_term_for_the_moving_mode(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    Sigma, w = oracle.laplace_posterior(Phi, t, alpha, likelihood)
    B, _ = oracle.laplace_targets(Phi, t, alpha, likelihood)
    y = 1 / (1 + np.exp(-Phi @ w))
    dB = B * (1 - 2 * y) if likelihood == "bernoulli" else B
    fixed = 0.5 * (1 - alpha * (w**2 + np.diag(Sigma)))  # T01 eq. (42) at the mode
    # dw/dlog alpha_i = -alpha_i w_i Sigma_i, and log|H| changes by sum_n dB_n (phi_n' Sigma phi_n) phi_n' dw
    moving = 0.5 * (dB * np.diag(Phi @ Sigma @ Phi.T)) @ Phi @ Sigma * alpha * w
    assert np.max(np.abs(moving)) > 1e-3
    assert_allclose(oracle.laplace_gradient_log_alpha(Phi, t, alpha, likelihood), fixed + moving, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_design_gradient(likelihood):
    Phi, t, alpha = laplace_case(likelihood)
    Phi, t, alpha = Phi[:10, :2], t[:10], alpha[:2]
    D = oracle.laplace_dL_dPhi(Phi, t, alpha, likelihood)
    # scaling a column is scaling its alpha, here too
    expected = -2 * oracle.laplace_gradient_log_alpha(Phi, t, alpha, likelihood)
    assert_allclose(np.sum(D * Phi, axis=0), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_laplace_is_the_linearised_regression(likelihood):
    Phi_all, t, alpha = laplace_case(likelihood)
    active, weights = [0, 2], np.linspace(0.5, 2, 20)
    Phi, alpha = Phi_all[:, active], alpha[active]
    Sigma, w = oracle.laplace_posterior(Phi, t, alpha, likelihood, weights)
    B, t_hat = oracle.laplace_targets(Phi, t, alpha, likelihood, weights)
    Sigma_linear, mu = oracle.posterior(Phi, t_hat, alpha, 1.0, B)  # TF03 eqs. (12)-(14)
    assert_allclose(Sigma, Sigma_linear, rtol=1e-11)
    assert_allclose(w, mu, rtol=1e-11)
    S, Q = oracle.laplace_S_Q(Phi_all, active, t, alpha, likelihood, weights)
    S_linear, Q_linear = oracle.S_Q(Phi_all, Phi, t_hat, alpha, 1.0, B)
    assert_allclose(S, S_linear, rtol=1e-9)
    assert_allclose(Q, Q_linear, rtol=1e-9)


def test_softmax_S_Q_in_the_model():
    Phi, t, alpha = laplace_case("softmax")
    S, Q = oracle.laplace_S_Q(Phi, [0, 1, 2], t, alpha, "softmax")
    Sigma, w = oracle.laplace_posterior(Phi, t, alpha, "softmax")
    # for a pair in the model TF03 eq. (23) gives S = alpha - alpha^2 Sigma_ii and Q = alpha w
    assert_allclose(S, alpha - alpha**2 * np.diag(Sigma).reshape(3, 3), rtol=1e-10)
    assert_allclose(Q, alpha * w, rtol=1e-10)


def test_softmax_S_Q_with_different_functions_in_each_class():
    Phi_all, t, alpha = laplace_case("softmax")
    active, alpha = [2, 0], alpha[:, [2, 0]]
    alpha[0, 1] = alpha[2, 0] = np.inf
    w = oracle.laplace_mode(Phi_all[:, active], t, alpha, "softmax")
    assert w[0, 1] == w[2, 0] == 0
    r, B = oracle.working(Phi_all[:, active] @ w.T, np.eye(3)[t], "softmax")
    # one row for each (class, sample), one column for each (class, function)
    every, blocks = np.kron(np.eye(3), Phi_all), np.zeros((60, 60))
    for n in range(20):
        blocks[n::20, n::20] = B[n]
    model = every[:, [2, 5, 3, 6]]
    Sigma = np.linalg.inv(model.T @ blocks @ model + np.diag([alpha[0, 0], alpha[1, 0], alpha[1, 1], alpha[2, 1]]))
    S, Q = oracle.laplace_S_Q(Phi_all, active, t, alpha, "softmax")
    projected = blocks - blocks @ model @ Sigma @ model.T @ blocks  # TF03 eq. (24)
    assert_allclose(S.ravel(), np.diag(every.T @ projected @ every), rtol=1e-10)
    assert_allclose(Q.ravel(), every.T @ r.T.ravel(), rtol=1e-10, atol=1e-11)


def test_mode_of_hard_problems():
    x = np.linspace(-2, 2, 30)
    Phi = np.column_stack([np.ones(30), x, x**3])
    separable = (x > 0.05).astype(float)
    for t, likelihood in ((separable, "bernoulli"), (np.round(np.exp(3 + 2 * x)), "poisson")):
        alpha = np.array([1e-6, 1e-8, 1e-3])
        value = oracle.laplace_evidence(Phi, t, alpha, likelihood)
        assert_allclose(float(oracle.mp_laplace_evidence(Phi, t, alpha, likelihood)), value, rtol=1e-9)


def test_unknown_likelihood_is_refused():
    with pytest.raises(ValueError, match="'bernoulli', 'poisson' or 'softmax'"):
        oracle.laplace_mode(np.ones((3, 1)), np.ones(3), [1.0], "student")


# --- many digits ---------------------------------------------------------------------------------------------------


def test_double_and_many_digits_agree_on_easy_problems(problem, weights):
    expected = oracle.log_evidence(*problem.fit, weights)
    for space in ("samples", "weights", None):
        assert_allclose(float(oracle.mp_log_evidence(*problem.fit, weights=weights, space=space)), expected, rtol=1e-13)
    for ours, exact in zip(
        oracle.posterior(*problem.fit, weights), oracle.mp_posterior(*problem.fit, weights=weights), strict=True
    ):
        assert_allclose(ours, exact, rtol=1e-11)


def test_many_digits_on_a_hard_problem():
    x = np.linspace(0, 1, 15)
    Phi = x[:, None] ** np.arange(8)
    t, alpha, beta = np.sin(5 * x), np.full(8, 6e-8), 1e8
    samples = oracle.mp_log_evidence(Phi, t, alpha, beta, space="samples")
    wide = oracle.mp_log_evidence(Phi, t, alpha, beta, space="weights")
    with mp.workdps(60):
        assert abs(samples - wide) < mp.mpf(10) ** -30
    assert abs(oracle.log_evidence(Phi, t, alpha, beta) - float(wide)) > 1e-9  # why the many digits
    Sigma, mu = oracle.mp_posterior(Phi, t, alpha, beta)
    s, q = oracle.mp_s_q(Phi, np.arange(8), t, alpha, beta)
    assert_allclose(s, 1 / np.diag(Sigma) - alpha, rtol=1e-12)
    assert_allclose(q, mu / np.diag(Sigma), rtol=1e-12)
    S, _ = oracle.S_Q(Phi, Phi, t, alpha, beta)
    assert np.max(np.abs(alpha * S / (alpha - S) / s - 1)) > 1e-3  # TF03 eq. (23) in double precision
