"""Every public solver and predictive distribution against dense code written from the papers (`tests/oracle.py`).

Thirty problems a run, one for each family of models and solver: ``RELVEC_LETTER=7`` draws thirty others, and `make
slow` thirty new ones.
"""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, softmax

import oracle
from relvec import RVC, RVR
from relvec.inference.predictive import Augmented
from relvec.solvers import EM

SEEDS = range(4)
DRAW = int(os.environ.get("RELVEC_LETTER", "1"))
KERNELS = {
    "gaussian": lambda sq, r: np.exp(-sq / r**2),
    "laplace": lambda sq, r: np.exp(-np.sqrt(sq) / r),
    "cauchy": lambda sq, r: 1.0 / (1.0 + sq / r**2),
}
TF03 = {"random": "tf03-random", "order": "tf03-order", "gain": "tf03"}
SOLVERS = {"sequential": "sequential", "mackay": "mackay", "em": EM(max_iter=500), **TF03}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def new_problems(family):
    """Parameters of a test: every solver, each with a problem of its own."""
    solvers = list(SOLVERS)
    numbers = [(6 * list(FAMILIES).index(family) + i, name) for i, name in enumerate(solvers)]
    return pytest.mark.parametrize(("seed", "name"), [([DRAW, i], name) for i, name in numbers],
                                   ids=[f"draw {DRAW} problem {i} {name}" for i, name in numbers])  # fmt: skip


def gross_errors(f, rng):
    """Noise of three degrees of freedom."""
    return f + 0.2 * rng.standard_t(3.0, len(f))


FAMILIES = {
    "regression": lambda f, rng: f + rng.normal(0.0, 0.2, len(f)),
    "classes": lambda f, rng: (f + rng.logistic(0.0, 0.4, len(f)) > 0.0).astype(float),
    "counts": lambda f, rng: rng.poisson(np.exp(0.5 + 0.7 * f)).astype(float),
    "three classes": lambda f, rng: np.digitize(f + rng.logistic(0.0, 0.2, len(f)), np.quantile(f, [1 / 3, 2 / 3])),
    "gross errors": gross_errors,
}
STUDENT_ACCURACY = 0.1  # of weights and scales that take turns until the bound rises no more


class Drawn:
    """A random problem: inputs, a kernel with a width, targets of a family, and its whole dictionary."""

    def __init__(self, seed, family="regression"):
        rng = np.random.default_rng([*np.atleast_1d(seed), list(FAMILIES).index(family)])
        n, d = int(rng.integers(20, 36)), int(rng.integers(1, 4))
        self.X, self.Z = rng.uniform(-3.0, 3.0, (n, d)), rng.uniform(-4.0, 4.0, (5, d))
        name = list(KERNELS)[int(np.sum(seed)) % 3]
        width = float(rng.uniform(1.0, 2.5)) * np.sqrt(d)
        self.kernel, self.options = lambda sq: KERNELS[name](sq, width), {"kernel": name, "width": width}
        f = np.sin(self.X[:, 0]) + 0.3 * self.X.sum(axis=1)
        self.y = FAMILIES[family](f, rng)
        self.Phi = self.functions(self.X, self.X)

    def functions(self, X, centres):
        """Kernels on centres, and the constant, at X."""
        return np.column_stack([self.values(X, centres), np.ones(len(X))])

    def values(self, X, centres):
        return self.kernel(((X[:, None] - centres) ** 2).sum(axis=2))

    def places(self, model):
        """The dictionary's atoms that a model keeps, in the order of its weights."""
        constant = [len(self.X)] if len(model.atoms_) > len(model.relevance_) else []
        return np.array([*model.relevance_, *constant], dtype=int)


@new_problems("regression")
def test_a_regression_by_every_solver_is_that_of_dense_formulas(seed, name):
    drawn = Drawn(seed)
    model = RVR(solver=SOLVERS[name], predictive="rvm", random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    active, t, alpha, beta = drawn.places(model), drawn.y, model.alpha_, 1.0 / model.noise_variance_
    Phi = drawn.Phi[:, active]
    Sigma, mu = oracle.posterior(Phi, t, alpha, beta)
    assert_allclose(model.weights_, mu, rtol=1e-6, atol=1e-9)
    assert_allclose(model.covariance_, Sigma, rtol=1e-6, atol=1e-9)
    assert_allclose(model.gamma_, oracle.gamma(Phi, t, alpha, beta), atol=1e-7)
    assert_allclose(model.log_marginal_likelihood_, oracle.log_evidence(Phi, t, alpha, beta), atol=1e-7)
    Z, centres = drawn.functions(drawn.Z, drawn.X)[:, active], drawn.values(drawn.X, drawn.Z)
    mean, std = model.predict(drawn.Z, return_std=True)
    expected, variance = oracle.predictive(Z, Phi, t, alpha, beta)
    assert_allclose(mean, expected, atol=1e-7)
    assert_allclose(std**2, variance, rtol=1e-6)
    # RVM*, RQ05 eq. (5): the model with one more function, at the point that is predicted
    star = RVR(solver=SOLVERS[name], predictive=Augmented(0.5), random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    found = np.column_stack(star.predict(drawn.Z, return_std=True))
    for i in range(len(drawn.Z)):
        expected, variance = oracle.rvm_star(Phi, t, alpha, beta, Z[i], centres[:, i], 1.0, 0.5)
        assert_allclose(found[i], [expected, np.sqrt(variance)], rtol=1e-6, atol=1e-7)
    # what each solver says where it ends
    if name in ("mackay", "em"):
        step = {"mackay": oracle.mackay_step, "em": oracle.em_step}[name]
        moved = oracle.log_evidence(Phi, t, *step(Phi, t, alpha, beta))
        assert moved < model.log_marginal_likelihood_ + 1e-4
    s, q = oracle.s_q(drawn.Phi, active, t, alpha, beta)
    best = oracle.optimal_alpha(s, q)
    outside = np.setdiff1d(np.arange(drawn.Phi.shape[1]), active)
    if name in TF03:  # TF03 4.4
        assert not np.isfinite(best[outside]).any()
        assert_allclose(np.log(best[active] / alpha), 0.0, atol=2e-6)
    ratio = q[outside] ** 2 / s[outside]
    gains = np.where(ratio > 1.0, 0.5 * (ratio - 1.0 - np.log(np.maximum(ratio, 1.0))), 0.0)  # TF03 A.2
    assert gains.max() < 1e-3


def shares(y, name, likelihood):
    """Return the targets that a solver sees: the default alone has rows of the base rates beside the papers' rows."""
    return oracle.with_prior_rows(y, likelihood, n_rows=1.0 if name == "sequential" else 0.0)


@new_problems("classes")
def test_classes_by_every_solver_are_those_of_dense_formulas(seed, name):
    drawn = Drawn(seed, "classes")
    model = RVC(solver=SOLVERS[name], random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    active, t, alpha = drawn.places(model), shares(drawn.y, name, "bernoulli"), model.alpha_
    Phi = drawn.Phi[:, active]
    Sigma, mode = oracle.laplace_posterior(Phi, t, alpha, "bernoulli")
    assert_allclose(model.weights_, mode, rtol=1e-5, atol=1e-7)
    assert_allclose(model.covariance_, Sigma, rtol=1e-5, atol=1e-7)
    assert_allclose(model.log_marginal_likelihood_, oracle.laplace_evidence(Phi, t, alpha, "bernoulli"), atol=1e-6)
    at_mode = RVC(solver=SOLVERS[name], averaging="mode", random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    Z = drawn.functions(drawn.Z, drawn.X)[:, active]
    assert_allclose(at_mode.predict_proba(drawn.Z)[:, 1], expit(Z @ mode), atol=1e-6)  # T01 eq. (23)
    S, Q = oracle.laplace_S_Q(drawn.Phi, active, t, alpha, "bernoulli")
    s, q = alpha * S[active] / (alpha - S[active]), alpha * Q[active] / (alpha - S[active])  # TF03 eq. (23)
    if name in TF03:
        assert_allclose(np.log(oracle.optimal_alpha(s, q) / alpha), 0.0, atol=1e-5)
        others = np.setdiff1d(np.arange(drawn.Phi.shape[1]), active)
        useful = others[Q[others] ** 2 > S[others] * (1.0 + 1e-9)]
        # what the linearised problem promises in vain has been tried
        added = model.history_[model.history_["action"] == "add"]
        assert np.isin(useful, functions(added, len(drawn.X))).all()
    if name == "mackay":  # T01 eq. (16)
        updated = (1.0 - alpha * np.diag(Sigma)) / mode**2
        moved = oracle.laplace_evidence(Phi, t, updated, "bernoulli")
        assert_allclose(moved, model.log_marginal_likelihood_, atol=1e-3)


@new_problems("counts")
def test_counts_by_every_solver_are_those_of_dense_formulas(seed, name):
    drawn = Drawn(seed, "counts")
    model = RVR(likelihood="poisson", solver=SOLVERS[name], random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    active, t, alpha = drawn.places(model), drawn.y, model.alpha_
    Phi, Z = drawn.Phi[:, active], drawn.functions(drawn.Z, drawn.X)[:, active]
    Sigma, mode = oracle.laplace_posterior(Phi, t, alpha, "poisson")
    assert_allclose(model.weights_, mode, rtol=1e-5, atol=1e-7)
    assert_allclose(model.covariance_, Sigma, rtol=1e-5, atol=1e-7)
    assert_allclose(model.log_marginal_likelihood_, oracle.laplace_evidence(Phi, t, alpha, "poisson"), atol=1e-6)
    f, spread = Z @ mode, np.einsum("ij,jk,ik->i", Z, Sigma, Z)
    rate = np.exp(f + 0.5 * spread)  # the mean of a log-normal variable, and the variance of a count about it
    mean, std = model.predict(drawn.Z, return_std=True)
    assert_allclose(mean, rate, rtol=1e-5)
    assert_allclose(std**2, rate + rate**2 * np.expm1(spread), rtol=1e-4)


@new_problems("three classes")
def test_a_softmax_by_every_solver_is_that_of_dense_formulas(seed, name):
    drawn = Drawn(seed, "three classes")
    model = RVC(solver=SOLVERS[name], averaging="mode", random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    active, alpha, t = drawn.places(model), model.alpha_, shares(drawn.y, name, "softmax")
    Phi, kept = drawn.Phi[:, active], np.isfinite(alpha).ravel()
    Sigma, mode = oracle.laplace_posterior(Phi, t, alpha, "softmax")
    assert_allclose(model.weights_, mode, rtol=1e-5, atol=1e-7)
    assert_allclose(model.covariance_.reshape(kept.size, kept.size)[np.ix_(kept, kept)], Sigma, rtol=1e-5, atol=1e-7)
    assert_allclose(model.log_marginal_likelihood_, oracle.laplace_evidence(Phi, t, alpha, "softmax"), atol=1e-6)
    f = drawn.functions(drawn.Z, drawn.X)[:, active] @ mode.T
    assert_allclose(model.predict_proba(drawn.Z), softmax(f, axis=1), atol=1e-6)  # T01 eq. (28)


@new_problems("gross errors")
def test_student_noise_by_every_solver_is_that_of_dense_formulas(seed, name):
    """The posterior of a regression whose rows weigh what the noise of each is expected to allow."""
    drawn = Drawn(seed, "gross errors")
    model = RVR(likelihood="student-t", solver=SOLVERS[name], random_state=0, **drawn.options).fit(drawn.X, drawn.y)
    active, t, alpha, nu = drawn.places(model), drawn.y, model.alpha_, model.degrees_of_freedom_
    Phi, Z = drawn.Phi[:, active], drawn.functions(drawn.Z, drawn.X)[:, active]
    scale2 = model.noise_variance_ * (nu - 2.0) / nu
    squares = (t - Phi @ model.weights_) ** 2 + np.einsum("ij,jk,ik->i", Phi, model.covariance_, Phi)
    weights = (nu + 1.0) / (nu + squares / scale2)
    Sigma, mu = oracle.posterior(Phi, t, alpha, 1.0 / scale2, weights)
    scale = np.abs(mu) + np.sqrt(np.diag(Sigma))
    assert_allclose(model.weights_ / scale, mu / scale, atol=STUDENT_ACCURACY)
    assert np.all(np.abs(np.log(np.diag(model.covariance_) / np.diag(Sigma))) < np.log(2.0))  # the scale lags
    mean, std = model.predict(drawn.Z, return_std=True)
    assert_allclose(mean, Z @ model.weights_, atol=1e-9)
    spread = np.einsum("ij,jk,ik->i", Z, model.covariance_, Z)
    assert_allclose(std**2, model.noise_variance_ + spread, rtol=1e-7)


def dense_tf03(Phi, t, steps):
    """Actions and functions of TF03's section 4, the largest gain each time, with every matrix made anew."""
    active, alpha, beta, found = np.zeros(0, dtype=int), np.zeros(0), 10.0 / np.var(t), []

    def value(alpha, s, q):  # TF03 eq. (18), 0 at an infinite alpha
        finite = np.where(np.isinf(alpha), 1.0, alpha)
        return np.where(np.isinf(alpha), 0.0, 0.5 * (np.log(finite / (finite + s)) + q**2 / (finite + s)))

    for _ in range(steps):
        s, q = oracle.s_q(Phi, active, t, alpha, beta)
        best, now = oracle.optimal_alpha(s, q), np.full(len(s), np.inf)  # TF03 eq. (20)-(21)
        now[active] = alpha
        i = int(np.argmax(value(best, s, q) - value(now, s, q)))
        inside = active == i
        found.append(("add" if not inside.any() else "delete" if np.isinf(best[i]) else "reestimate", i))
        active, alpha = (active, np.where(inside, best[i], alpha)) if inside.any() else (
            np.append(active, i), np.append(alpha, best[i]))  # fmt: skip
        active, alpha = active[np.isfinite(alpha)], alpha[np.isfinite(alpha)]
        g, (_, mu) = oracle.gamma(Phi[:, active], t, alpha, beta), oracle.posterior(Phi[:, active], t, alpha, beta)
        beta = (len(t) - g.sum()) / np.sum((t - Phi[:, active] @ mu) ** 2)  # TF03 step 9, T01 eq. (18)
    return found


def functions(history, n_rows):
    """The function of each step: the row that it is centred on, or the constant."""
    return np.where(history["row"] >= 0, history["row"], n_rows)


def test_the_steps_of_a_regression_are_those_of_tf03_one_by_one():
    drawn = Drawn(3)
    history = RVR(solver="tf03", predictive="rvm", **drawn.options).fit(drawn.X, drawn.y).history_
    steps = history[history["action"] != "noise"][1:16]
    assert list(zip(steps["action"], functions(steps, len(drawn.X)), strict=True)) == dense_tf03(drawn.Phi, drawn.y, 15)


@pytest.mark.parametrize("select", TF03)
def test_classes_follow_tf03_from_action_to_action(select):
    """Each added, re-estimated or deleted function is one that TF03 eq. (20)-(21) names at the mode before it."""
    drawn = Drawn(2, "classes")
    history = RVC(solver=TF03[select], random_state=1, **drawn.options).fit(drawn.X, drawn.y).history_
    active, alpha = np.zeros(0, dtype=int), np.zeros(0)
    assert len(history) > 10 and {"add", "reestimate"} <= set(history["action"])
    for step in history[1:20]:
        i = functions(step, len(drawn.X))
        if len(active):
            S, Q = oracle.laplace_S_Q(drawn.Phi, active, drawn.y, alpha, "bernoulli")
        else:
            S, Q = 0.25 * (drawn.Phi**2).sum(axis=0), drawn.Phi.T @ (drawn.y - 0.5)
        s, q = S.copy(), Q.copy()
        s[active], q[active] = alpha * S[active] / (alpha - S[active]), alpha * Q[active] / (alpha - S[active])
        best, inside = oracle.optimal_alpha(s, q), active == i
        action = "add" if not inside.any() else "delete" if np.isinf(best[i]) else "reestimate"
        assert step["action"] == action and (action != "add" or np.isfinite(best[i]))
        if action == "add":
            if select == "gain" and not len(active):
                ratio = Q**2 / S
                assert i == np.argmax(ratio)
            active, alpha = np.append(active, i), np.append(alpha, best[i])
        else:
            alpha = np.where(inside, best[i], alpha)
            active, alpha = active[np.isfinite(alpha)], alpha[np.isfinite(alpha)]
        evidence = oracle.laplace_evidence(drawn.Phi[:, active], drawn.y, alpha, "bernoulli")
        assert_allclose(step["objective"], evidence, atol=1e-5)


def test_shared_precisions_have_no_search_by_tf03():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match="leave share_alpha at False"):
        RVC(width=1.0, solver="tf03", share_alpha=True).fit(X, np.arange(30) % 3)


def test_the_rule_of_tf03_warns_only_where_a_move_is_left():
    warned = []
    for seed in SEEDS:
        drawn = Drawn(seed)
        model = RVR(solver="tf03", predictive="rvm", **drawn.options).fit(drawn.X, drawn.y)
        assert (model.status_ == "stopped") == (model.certificate_ > 1e-4)
        warned.append(model.status_ == "stopped")
    assert not all(warned)
