import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, softmax

import oracle
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson, logistic_log_odds, softmax_normal


def problem(name, seed=0, n=30, k=4, K=3):
    rng = np.random.default_rng(seed)
    Phi, weights = rng.normal(size=(n, k)), rng.uniform(0.5, 2.0, n)
    if name == "softmax":
        label = rng.integers(0, K, n)
        return Phi, label, np.eye(K)[label], weights, np.exp(rng.normal(size=(K, k))), Categorical(K)
    t = (rng.integers(0, 2, n) if name == "bernoulli" else rng.poisson(2.0, n)).astype(float)
    return Phi, t, t, weights, np.exp(rng.normal(size=k)), Bernoulli() if name == "bernoulli" else Poisson()


def fitted(name, seed=0):
    Phi, plain, t, weights, alpha, likelihood = problem(name, seed)
    K = likelihood.n_outputs
    wide, outputs = (np.tile(Phi, (1, K)), np.repeat(np.arange(K), Phi.shape[1])) if K > 1 else (Phi, None)
    p = laplace(wide, t, weights, alpha.ravel(), likelihood, outputs=outputs)
    return p, likelihood, (Phi, plain, alpha, name, weights)


NAMES = ["bernoulli", "poisson", "softmax"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_laplace_evidence_mode_and_hessian_match_the_dense_oracle(name, seed):
    p, _, args = fitted(name, seed)
    assert p.log_evidence == pytest.approx(oracle.laplace_evidence(*args), abs=1e-8)
    Sigma, w = oracle.laplace_posterior(*args)
    np.testing.assert_allclose(p.mean, w.ravel(), atol=1e-8)
    np.testing.assert_allclose(p.covariance, Sigma, atol=1e-8)
    np.testing.assert_allclose(np.linalg.inv(p.covariance), np.linalg.inv(Sigma), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_includes_the_motion_of_the_mode(name):
    p, likelihood, args = fitted(name)
    gradient = 0.5 * (p.gamma - p.alpha * p.mean**2) + p.implicit_gradient(p.slopes(likelihood, args[-1]))
    np.testing.assert_allclose(gradient, oracle.laplace_gradient_log_alpha(*args).ravel(), atol=1e-8)
    assert np.abs(p.implicit_gradient(p.slopes(likelihood, args[-1]))).max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_working_is_the_derivative_and_safe_far_out(name):
    _, _, t, weights, _, likelihood = problem(name)
    shape = t.shape
    f = np.random.default_rng(3).normal(size=shape)
    r, _ = likelihood.working(t, f, weights)
    direction = np.random.default_rng(4).normal(size=shape)
    up, down = (likelihood.log_prob(t, f + h * direction, weights) for h in (1e-5, -1e-5))
    assert (up - down) / 2e-5 == pytest.approx(float(np.sum(r * direction)), rel=1e-7)
    for far in (-1e3, 1e3):
        values = (
            *likelihood.working(t, np.full(shape, far), weights),
            likelihood.log_prob(t, np.full(shape, far), weights),
        )
        assert all(np.all(np.isfinite(v)) for v in values)


def test_weights_are_frequencies():
    Phi, _, t, _, alpha, likelihood = problem("bernoulli")
    once = laplace(Phi, t, np.full(len(t), 2.0), alpha, likelihood)
    twice = laplace(np.tile(Phi, (2, 1)), np.tile(t, 2), np.ones(2 * len(t)), alpha, likelihood)
    assert once.log_evidence == pytest.approx(twice.log_evidence, abs=1e-10)


def average(mean, deviation):
    def density(z):
        return expit(mean + deviation * z) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)

    kink = [-mean / deviation] if abs(mean / deviation) < 12 else None
    return quad(density, -12, 12, points=kink, limit=500)[0]


@pytest.mark.parametrize("mean", [-40.0, -3.0, 0.5, 7.0])
@pytest.mark.parametrize("deviation", [0.1, 1.0, 4.9, 5.1, 30.0])
def test_moderation_against_quadrature(mean, deviation):
    got = expit(logistic_log_odds(np.array([mean]), np.array([deviation**2])))[0]
    assert got == pytest.approx(average(mean, deviation), abs=1e-7)


def test_softmax_average_against_sampling():
    rng = np.random.default_rng(0)
    worst = 0.0
    for K in (3, 5, 10):
        mean, A = 2.0 * rng.normal(size=K), rng.normal(size=(K, K))
        drawn = mean + rng.standard_normal((400_000, K)) @ A.T
        exact = softmax(drawn, axis=1).mean(axis=0)
        worst = max(worst, np.abs(softmax_normal(mean[None], (A @ A.T)[None])[0] - exact).max())
    assert worst < 6e-3


@pytest.mark.parametrize("size", [1.0, 1e-20, 5e-324, 0.0])
def test_softmax_average_of_classes_that_move_together_is_the_softmax(size):
    """Only differences of the classes count: what rounding leaves of them may be below zero."""
    mean, together = np.array([[0.3, -0.2, 1.0]]), np.full((1, 3, 3), size)
    nearly = together * (1.0 + 1e-16 * np.random.default_rng(0).normal(size=(200, 3, 3)))
    for covariance in (together, nearly + np.swapaxes(nearly, 1, 2)):
        found = softmax_normal(np.tile(mean, (len(covariance), 1)), covariance)
        np.testing.assert_allclose(found, np.tile(softmax(mean, axis=1), (len(covariance), 1)), atol=1e-7)
