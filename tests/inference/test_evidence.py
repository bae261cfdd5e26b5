"""Every formula of the Gaussian model against the dense oracle, and against many digits where doubles run out."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp

import oracle
from problems import problem_of
from relvec.design import DenseDesign
from relvec.inference import evidence
from relvec.inference.curvature import factor_curvature
from relvec.inference.evidence import gaussian
from relvec.inference.likelihoods import Categorical, complement
from relvec.inference.linalg import SingularError, factor_ridge, inverse_triangular
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.loop import Start


class Case:
    """A dictionary (N, M) of unit-norm columns, a model of k of them, targets and sample weights."""

    def __init__(self, seed, N, M, k, width, weighted):
        rng = np.random.default_rng(seed)
        if width:
            X = rng.uniform(-3, 3, (N, 2))
            Z = rng.uniform(-3, 3, (M, 2))
            Phi = np.exp(-((X[:, None] - Z) ** 2).sum(axis=2) / width**2)
        else:
            Phi = rng.standard_normal((N, M))
        self.Phi_all = Phi / np.linalg.norm(Phi, axis=0)
        self.active = rng.permutation(M)[:k]
        self.alpha = 10 ** rng.uniform(-2, 2, k)
        self.beta = 10 ** rng.uniform(-1, 2)
        self.t = rng.standard_normal(N) + 2.0 * self.Phi_all @ rng.standard_normal(M)
        self.weights = rng.choice([0.25, 0.5, 1.0, 2.0, 3.0], N) if weighted else np.ones(N)
        root = np.sqrt(self.weights)
        self.rows, self.target = root[:, None] * self.Phi_all, root * self.t
        self.n_samples = float(self.weights.sum())

    @property
    def Phi(self):
        return self.Phi_all[:, self.active]

    @property
    def model(self):
        """The arguments that most functions of the oracle take."""
        return self.Phi, self.t, self.alpha, self.beta, self.weights

    def posterior(self):
        return gaussian(self.rows[:, self.active], self.target, 0.0, self.n_samples, self.alpha, self.beta)

    def s_q(self):
        return oracle.s_q(self.Phi_all, self.active, self.t, self.alpha, self.beta, self.weights)

    def S_Q(self):
        return oracle.S_Q(self.Phi_all, *self.model)

    def gain(self, move, *atoms):
        """Of one of the oracle's moves."""
        return move(self.Phi_all, self.active, self.t, self.alpha, self.beta, *atoms, weights=self.weights)


@st.composite
def cases(draw, least=0, most=6, dictionary=8, weighted=None):
    M = draw(st.integers(max(1, least), dictionary))
    return Case(
        seed=draw(st.integers(0, 2**32 - 1)),
        N=draw(st.integers(2, 14)),
        M=M,
        k=draw(st.integers(least, min(M, most))),
        width=draw(st.sampled_from([0.0, 1.0, 2.5])),
        weighted=draw(st.booleans()) if weighted is None else weighted,
    )


def close(actual, desired, rtol=1e-9, atol=None):
    """Compare arrays; the absolute part is relative to the largest entry."""
    desired = np.asarray(desired)
    scale = np.max(np.abs(desired), initial=0.0)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=rtol * scale if atol is None else atol)


# --- posterior and evidence ----------------------------------------------------------------------------------------


@given(cases())
def test_log_evidence(case):
    assert case.posterior().log_evidence == pytest.approx(oracle.log_evidence(*case.model), rel=1e-9, abs=1e-9)


@given(cases())
def test_posterior_moments(case):
    p = case.posterior()
    Sigma, mu = oracle.posterior(*case.model)
    close(p.covariance, Sigma)
    close(p.mean, mu)
    close(p.variance, np.diag(Sigma))
    close(p.gamma, oracle.gamma(*case.model), atol=1e-11)
    assert p.residual == pytest.approx(np.sum(case.weights * (case.t - case.Phi @ mu) ** 2), rel=1e-9)
    assert np.all(np.triu(p.root) == p.root)


@given(cases(weighted=False), st.integers(0, 5))
def test_posterior_in_other_coordinates(case, extra):
    rng = np.random.default_rng(extra)
    Q, _ = np.linalg.qr(np.column_stack([case.Phi, rng.standard_normal((len(case.t), extra))]))
    z = Q.T @ case.t
    p = gaussian(Q.T @ case.Phi, z, case.t @ case.t - z @ z, case.n_samples, case.alpha, case.beta)
    whole = case.posterior()
    assert p.log_evidence == pytest.approx(whole.log_evidence, rel=1e-9, abs=1e-9)
    assert p.residual == pytest.approx(whole.residual, rel=1e-8, abs=1e-12 * (case.t @ case.t))
    close(p.mean, whole.mean)
    close(p.covariance, whole.covariance)


@given(cases(), st.integers(0, 99))
def test_predictive_of_the_posterior(case, seed):
    p = case.posterior()
    Phi_star = np.random.default_rng(seed).standard_normal((5, len(case.active)))
    mean, variance = oracle.predictive(Phi_star, *case.model)
    close(Phi_star @ p.mean, mean)
    close(1 / p.beta + ((Phi_star @ p.root) ** 2).sum(axis=1), variance)


def test_weights_are_frequencies():
    case = Case(1, 6, 4, 3, 1.0, weighted=False)
    twice = np.repeat(np.arange(6), [1, 2, 1, 3, 1, 2])
    weights = np.bincount(twice).astype(float)
    p = gaussian(np.sqrt(weights)[:, None] * case.Phi, np.sqrt(weights) * case.t, 0.0, 10.0, case.alpha, case.beta)
    assert p.log_evidence == pytest.approx(
        oracle.log_evidence(case.Phi[twice], case.t[twice], case.alpha, case.beta), rel=1e-12
    )


def test_empty_model_is_white_noise():
    t = np.array([1.0, -2.0, 0.5])
    p = gaussian(np.zeros((3, 0)), t, 0.0, 3, np.zeros(0), 4.0)
    assert p.log_evidence == pytest.approx(-1.5 * np.log(2 * np.pi / 4.0) - 2.0 * (t @ t), rel=1e-14)
    assert p.mean.shape == (0,) and p.covariance.shape == (0, 0) and p.gamma.shape == (0,)


@pytest.mark.parametrize("apart", [1e-11, 1e-6])
@pytest.mark.parametrize("alpha", [1e-8, 1e4])
def test_gamma_of_an_atom_that_the_others_nearly_span(apart, alpha):
    rng = np.random.default_rng(0)
    a, b, t = rng.normal(size=(3, 10))
    Phi, precisions = np.column_stack([a, a + apart * b]), np.array([1e-20, alpha])
    design = DenseDesign(Phi)  # of unit norm
    s, _ = oracle.mp_s_q(design.matrix, [0, 1], t, precisions, 1.0)
    model = model_of(problem_of(design, t), Start(np.arange(2), precisions, 1.0))
    for p in (gaussian(design.matrix, t, 0.0, 10.0, precisions, 1.0), model.full_posterior):
        assert p.gamma[1] == pytest.approx(float(s[1] / (alpha + s[1])), rel=1e-3)


def test_evidence_of_tiny_and_huge_precisions():
    """alpha to 0 makes the prior improper, alpha to infinity removes the atom: both limits in closed form."""
    case = Case(5, 8, 3, 2, 0.0, weighted=False)
    far = np.array([case.alpha[0], 1e200])
    alone = gaussian(case.Phi[:, :1], case.t, 0.0, 8.0, case.alpha[:1], case.beta)
    p = gaussian(case.Phi, case.t, 0.0, 8.0, far, case.beta)
    assert p.log_evidence == pytest.approx(alone.log_evidence, rel=1e-13)
    assert p.gamma[1] == pytest.approx(0.0, abs=1e-190) and p.gamma[1] > 0.0
    flat = [gaussian(case.Phi, case.t, 0.0, 8.0, np.full(2, a), case.beta) for a in (1e-100, 1e-110)]
    # each of the two weights costs log(1e10) / 2
    assert flat[0].log_evidence - flat[1].log_evidence == pytest.approx(np.log(1e10), rel=1e-12)


# --- sparsity and quality, gains of the four moves -----------------------------------------------------------------


@given(cases(least=1))
def test_sparsity_and_quality_in_the_model(case):
    s, q = case.s_q()
    own_s, own_q = case.posterior().sparsity_quality()
    close(own_s, s[case.active], rtol=1e-7)
    close(own_q, q[case.active], rtol=1e-7)


@given(cases(least=1))
def test_the_textbook_form_where_it_is_safe(case):
    S, Q = (values[case.active] for values in case.S_Q())
    assume(np.all(S < 0.9 * case.alpha))
    s, q = evidence.without_self(case.alpha, S, Q)
    close(s, case.s_q()[0][case.active], rtol=1e-8)
    close(q, case.s_q()[1][case.active], rtol=1e-8)


@given(cases())
def test_optimal_alpha_and_single_atom(case):
    s, q = case.s_q()
    best = evidence.optimal_alpha(s, q)
    np.testing.assert_allclose(best, oracle.optimal_alpha(s, q), rtol=1e-13)
    finite = np.isfinite(best)
    for factor in (0.5, 0.9, 1.1, 2.0):  # a maximum
        at_best = evidence.single_atom(best[finite], s[finite], q[finite])
        assert np.all(at_best > evidence.single_atom(best[finite] * factor, s[finite], q[finite]))
    # TF03 eq. (16)-(18): the evidence is that of the others plus l(alpha)
    for place, i in enumerate(case.active):
        rest = np.delete(case.active, place), np.delete(case.alpha, place)
        without = oracle.log_evidence(case.Phi_all[:, rest[0]], case.t, rest[1], case.beta, case.weights)
        own = evidence.single_atom(case.alpha[place], s[i], q[i])
        assert without + own == pytest.approx(oracle.log_evidence(*case.model), rel=1e-9, abs=1e-9)


@given(cases())
def test_gain_of_adding(case):
    gains = evidence.gain_add(*case.S_Q())
    assert np.all(gains >= 0.0)
    for i in np.setdiff1d(np.arange(case.Phi_all.shape[1]), case.active):
        assert gains[i] == pytest.approx(case.gain(oracle.gain_add, i), rel=1e-7, abs=1e-9)


@given(cases(least=1))
def test_gain_of_deleting(case):
    p = case.posterior()
    gains = evidence.gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    dense = [case.gain(oracle.gain_delete, i) for i in case.active]
    np.testing.assert_allclose(gains, dense, rtol=1e-7, atol=1e-9)


@given(cases(least=1))
def test_gain_of_reestimating(case):
    p = case.posterior()
    gains = evidence.gain_reestimate(p.alpha, *p.sparsity_quality())
    dense = [case.gain(oracle.gain_reestimate, i) for i in case.active]
    np.testing.assert_allclose(gains, dense, rtol=1e-6, atol=1e-9)
    assert np.all(gains >= -1e-12)


def test_gain_of_adding_nothing_is_zero():
    np.testing.assert_array_equal(evidence.gain_add([0.0, 0.0, 2.0], [0.0, 1.0, 1.0]), 0.0)


def framed(case, grown_after=False):
    """The model of a case in a frame that also holds other atoms; optionally taken in after the posterior."""
    problem = problem_of(DenseDesign(case.rows), case.target, n_samples=case.n_samples)
    scale = problem.design.scale
    others = np.arange(0, len(scale), 2)
    empty = model_of(problem, Start(others[:0], np.zeros(0), case.beta))
    if not grown_after:
        empty.at(others, np.ones(len(others)), case.beta)
    model = empty.at(case.active, case.alpha / scale[case.active] ** 2, case.beta)
    if grown_after:
        empty.at(others, np.ones(len(others)), case.beta)
    return model, scale


@given(cases(), st.booleans())
def test_scan_of_a_model(case, grown_after):
    model, scale = framed(case, grown_after)
    assert model.full_posterior.log_evidence == pytest.approx(oracle.log_evidence(*case.model), rel=1e-9, abs=1e-9)
    S, Q, _ = model.core.scan()
    dense_S, dense_Q = case.S_Q()
    close(S * scale**2, dense_S, rtol=1e-9, atol=1e-11 * case.beta)
    close(Q * scale, dense_Q, rtol=1e-9, atol=1e-10 * case.beta * np.linalg.norm(case.target))


@given(cases(least=1), st.booleans())
def test_gain_of_exchanging(case, grown_after):
    model, scale = framed(case, grown_after)
    gains, make = model.core.exchanges()
    outside = np.setdiff1d(np.arange(len(scale)), case.active)
    for place, i in enumerate(case.active):
        dense = [case.gain(oracle.gain_exchange, i, j) for j in outside]
        assert gains[place] == pytest.approx(max(dense, default=-np.inf), rel=1e-6, abs=1e-8)
        if outside.size:
            assert dense[int(np.flatnonzero(outside == make(place).atoms[place])[0])] == pytest.approx(
                max(dense), rel=1e-6, abs=1e-8
            )


# --- derivatives and fixed-point updates ---------------------------------------------------------------------------


@given(cases())
def test_gradient(case):
    p = case.posterior()
    g_alpha, g_beta = evidence.gradient(p.alpha, p.mean, p.gamma, p.beta, p.residual, p.n_samples)
    close(np.append(g_alpha, g_beta), oracle.gradient(*case.model), rtol=1e-8)


@given(cases(most=4))
def test_hessian(case):
    p = case.posterior()
    H, border, corner = evidence.prior_unit_hessian(p.v, p.V @ p.V.T, p.beta, p.residual)
    k = len(case.active)
    dense = oracle.hessian(*case.model)
    close(H, dense[:k, :k], rtol=1e-8)
    close(border, dense[:k, k], rtol=1e-8, atol=1e-8 * np.abs(dense).max())
    assert corner == pytest.approx(dense[k, k], rel=1e-8, abs=1e-8 * np.abs(dense).max())


@given(cases(weighted=False))
def test_design_gradient(case):
    p = case.posterior()
    D = p.design_gradient()
    close(D, oracle.dL_dPhi(case.Phi, case.t, case.alpha, case.beta), rtol=1e-8)


@given(cases(), st.tuples(*[st.sampled_from([0.0, 1e-3, 0.5, 2.0])] * 4))
def test_fixed_point_updates(case, hyper):
    a, b, c, d = hyper
    p = case.posterior()
    alpha, beta = oracle.mackay_step(*case.model, a, b, c, d)
    gamma_sum = p.gamma.sum()
    close(evidence.mackay_alpha(p.gamma, p.mean, a, b), alpha, rtol=1e-8)
    assume(p.n_samples - gamma_sum + 2 * c > 1e-6)
    assert 1 / evidence.mackay_noise(p.residual, p.n_samples, gamma_sum, c, d) == pytest.approx(beta, rel=1e-8)
    alpha, beta = oracle.em_step(*case.model, a, b, c, d)
    close(evidence.em_alpha(p.mean, p.variance, a, b), alpha, rtol=1e-9)
    noise = evidence.em_noise(p.residual, p.n_samples, gamma_sum, 1 / p.beta, c, d)
    assert 1 / noise == pytest.approx(beta, rel=1e-9)


@given(cases(least=1))
def test_updates_vanish_with_the_gradient(case):
    """alpha_new = alpha where dL/dlog alpha = 0 (T01 eq. (16)), so both updates move along the gradient's sign."""
    p = case.posterior()
    g, g_beta = evidence.gradient(p.alpha, p.mean, p.gamma, p.beta, p.residual, p.n_samples)
    assume(np.all(np.abs(g) > 1e-9) and abs(g_beta) > 1e-9)
    np.testing.assert_array_equal(np.sign(evidence.mackay_alpha(p.gamma, p.mean) - p.alpha), np.sign(g))
    np.testing.assert_array_equal(np.sign(evidence.em_alpha(p.mean, p.variance) - p.alpha), np.sign(g))
    noise = evidence.em_noise(p.residual, p.n_samples, p.gamma.sum(), 1 / p.beta)
    assert np.sign(1 / noise - p.beta) == np.sign(g_beta)


# --- TF03's appendix -----------------------------------------------------------------------------------------------


def statistics(case, active=None, alpha=None):
    """Sigma, mu, S, Q and beta Phi_a' W Phi of a model, dense."""
    active, alpha = (case.active, case.alpha) if active is None else (active, alpha)
    m = oracle.model(case.Phi_all, active, case.t, alpha, case.beta, case.weights)
    return m.Sigma, m.mu, m.S, m.Q, case.beta * case.rows[:, active].T @ case.rows


def same_statistics(updated, exact):
    for new, dense in zip(updated, exact[:4], strict=True):
        close(new, dense, rtol=1e-8)


@given(cases(most=5, dictionary=8), st.sampled_from([0.01, 1.0, 30.0]))
def test_update_after_adding(case, alpha_i):
    outside = np.setdiff1d(np.arange(case.Phi_all.shape[1]), case.active)
    assume(outside.size)
    i = int(outside[0])
    own = case.beta * case.rows[:, i] @ case.rows
    updated = oracle.update_add(*statistics(case), own, i, alpha_i)
    same_statistics(updated, statistics(case, np.append(case.active, i), np.append(case.alpha, alpha_i)))


@given(cases(least=1), st.sampled_from([0.01, 1.0, 30.0]))
def test_update_after_reestimating(case, factor):
    alpha = case.alpha.copy()
    alpha[-1] *= factor
    j = len(alpha) - 1
    updated = oracle.update_reestimate(*statistics(case), j, case.alpha[j], alpha[j])
    same_statistics(updated, statistics(case, case.active, alpha))


@given(cases(least=1))
def test_update_after_deleting(case):
    updated = oracle.update_delete(*statistics(case), 0)
    same_statistics(updated, statistics(case, case.active[1:], case.alpha[1:]))


# --- many digits ---------------------------------------------------------------------------------------------------


def smooth_columns(width, k=8, N=20):
    """Gaussian bumps far wider than their distance: the condition number grows with the width."""
    x, z = np.linspace(-1, 1, N)[:, None], np.linspace(-1, 1, k)
    return np.exp(-(((x - z) / width) ** 2))


def graded_columns(condition, k=8, N=20):
    """Columns with singular values from 1 down to 1 / condition, in general position."""
    rng = np.random.default_rng(3)
    U, V = np.linalg.qr(rng.standard_normal((N, k)))[0], np.linalg.qr(rng.standard_normal((k, k)))[0]
    return (U * np.geomspace(1.0, 1.0 / condition, k)) @ V.T


def scaled_columns(spread, k=6, N=20):
    """Well-conditioned but for their lengths."""
    return np.random.default_rng(4).standard_normal((N, k)) * np.geomspace(spread**-0.5, spread**0.5, k)


def target(N=20):
    x = np.linspace(-1, 1, N)
    return np.sinc(2 * x) + 0.1 * np.random.default_rng(5).standard_normal(N)


ILL = {
    **{
        f"smooth {width} {alpha:g} {beta:g}": (smooth_columns(width), alpha * np.geomspace(1, 10, 8), beta)
        for width in (0.5, 1.5, 3.0, 4.0)
        for alpha, beta in ((1e-6, 1e2), (1e-2, 1e2), (1.0, 1e2), (1e4, 1e2), (1.0, 1e8))
    },
    **{
        f"graded {condition:g} {alpha:g}": (graded_columns(condition), np.full(8, alpha), 1e2)
        for condition in (1e6, 1e10, 1e14)
        for alpha in (1e-8, 1.0, 1e8)
    },
    **{
        f"scaled {spread:g} {alpha:g}": (scaled_columns(spread), np.full(6, alpha), 1e2)
        for spread in (1e6, 1e14)
        for alpha in (1e-3, 1.0)
    },
}


def in_a_frame(Phi, t, alpha, beta):
    """Posterior of the whole dictionary as solvers see it, and the scales to undo."""
    design = DenseDesign(Phi)
    start = Start(np.arange(Phi.shape[1]), alpha / design.scale**2, beta)
    return model_of(problem_of(design, t), start).full_posterior, design.scale


@pytest.mark.parametrize("how", ["direct", "frame"])
@pytest.mark.parametrize("name", ILL)
def test_ill_conditioned_columns(name, how):
    Phi, alpha, beta = ILL[name]
    t, atoms = target(), np.arange(Phi.shape[1])
    exact = float(oracle.mp_log_evidence(Phi, t, alpha, beta, dps=100))
    with mp.workdps(100):
        _, mu = oracle.mp_posterior(Phi, t, alpha, beta, dps=100)
    s, _ = oracle.mp_s_q(Phi, atoms, t, alpha, beta, dps=100)
    if how == "direct":
        p, scale = gaussian(Phi, t, 0.0, len(t), alpha, beta), np.ones(len(atoms))
    else:
        p, scale = in_a_frame(Phi, t, alpha, beta)
    assert p.log_evidence == pytest.approx(exact, rel=1e-8)
    close(Phi @ (p.mean / scale), Phi @ mu, rtol=1e-8)
    np.testing.assert_allclose(p.gamma, s / (alpha + s), rtol=1e-8)  # alpha Sigma_ii = alpha / (alpha + s)
    np.testing.assert_allclose(p.sparsity_quality()[0] * scale**2, s, rtol=1e-7)


def test_the_ill_conditioned_cases_are_so():
    conditions = [np.linalg.cond(Phi) for Phi, _, _ in ILL.values()]
    assert max(conditions) > 0.9e14 and sum(c > 1e10 for c in conditions) > 10


@pytest.mark.parametrize("width", [0.5, 1.5])
def test_derivatives_with_many_digits(width):
    Phi, t = smooth_columns(width, k=4, N=10), target(10)
    alpha, beta = np.array([1e-3, 1.0, 10.0, 1e4]), 50.0
    p = gaussian(Phi, t, 0.0, 10.0, alpha, beta)
    g_alpha, g_beta = evidence.gradient(p.alpha, p.mean, p.gamma, p.beta, p.residual, 10.0)
    exact = oracle.mp_gradient(Phi, t, alpha, beta)
    close(np.append(g_alpha, g_beta), exact, rtol=1e-9)
    H, border, corner = evidence.prior_unit_hessian(p.v, p.V @ p.V.T, p.beta, p.residual)
    close(np.block([[H, border[:, None]], [border[None, :], np.array([[corner]])]]),
          oracle.mp_hessian(Phi, t, alpha, beta), rtol=1e-9)  # fmt: skip


def test_sparsity_of_the_most_relevant_atom():
    """Eight atoms, one with alpha = 6e-8 and s = 4e5: TF03 eq. (23) would delete it."""
    Phi, t = smooth_columns(0.25), target()
    Phi = Phi / np.linalg.norm(Phi, axis=0)
    alpha, beta = np.append(6e-8, np.full(7, 3.0)), 6e5
    p = gaussian(Phi, t, 0.0, 20.0, alpha, beta)
    exact_s, exact_q = oracle.mp_s_q(Phi, np.arange(8), t, alpha, beta, dps=80)
    assert exact_s[0] > 1e5 and exact_q[0] ** 2 > exact_s[0]
    s, q = p.sparsity_quality()
    np.testing.assert_allclose(s, exact_s, rtol=1e-8)
    np.testing.assert_allclose(q, exact_q, rtol=1e-8)
    assert np.isfinite(evidence.optimal_alpha(s[0], q[0]))
    model = model_of(problem_of(DenseDesign(Phi), t), Start(np.arange(8), alpha, beta))
    inside, (S, Q, _) = model.full_posterior, model.core.scan()
    with np.errstate(divide="ignore", invalid="ignore"):
        textbook, _ = evidence.without_self(alpha[0], S[0], Q[0])
    assert not np.isclose(textbook, exact_s[0], rtol=0.1)  # what the library must not use here
    np.testing.assert_allclose(inside.sparsity_quality()[0], exact_s, rtol=1e-8)


def test_scan_of_a_model_with_large_weights_keeps_its_digits():
    """Nearly dependent columns whose weights cancel: X V would lose what is new in an atom outside the model."""
    x, k = np.linspace(-1.0, 1.0, 30), 5
    centres = np.concatenate([x[2::4][:k], x[::3]])
    Phi = np.exp(-(((x[:, None] - centres) / 2.0) ** 2))
    design = DenseDesign(Phi)
    t, alpha, beta = 300.0 * np.sin(3.0 * x), np.full(k, 1e-14), 200.0
    model = model_of(problem_of(design, t), Start(np.arange(k), alpha, beta))
    posterior, (S, Q, _) = model.full_posterior, model.core.scan()
    with mp.workdps(60):
        M, target = mp.matrix(design.columns(slice(None)).tolist()), mp.matrix(t.tolist())
        own = M[:, :k]
        precision = beta * (own.T * own) + mp.diag([mp.mpf(a) for a in alpha])
        whole = mp.matrix(np.column_stack([design.columns(slice(None)), t]).tolist())
        solved = precision**-1 * (beta * own.T * whole)
        left = [M[:, j] - own * solved[:, j] for j in range(M.cols)]
        exact_S = [float(beta * (M[:, j].T * left[j])[0]) for j in range(M.cols)]
        residual = target - own * solved[:, M.cols]
        exact_Q = [float(beta * (M[:, j].T * residual)[0]) for j in range(M.cols)]
        quadratic = beta * (target.T * residual)[0]
        log_det = mp.log(mp.det(precision)) - mp.log(mp.det(mp.diag([mp.mpf(a) for a in alpha]))) - 30 * mp.log(beta)
        exact = float(-(30 * mp.log(2 * mp.pi) + log_det + quadratic) / 2)
    outside = slice(k, None)
    np.testing.assert_allclose(S[outside], exact_S[k:], rtol=1e-6)
    np.testing.assert_allclose(Q[outside], exact_Q[k:], rtol=1e-6, atol=1e-9)
    assert posterior.log_evidence == pytest.approx(exact, rel=1e-8)


# --- factorisations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e3, 1e8])
def test_factor_of_the_ridge(size):
    X = size * np.random.default_rng(0).standard_normal((9, 4)) * np.geomspace(1.0, 1e-3, 4)
    U = factor_ridge(X)
    assert np.array_equal(U, np.triu(U)) and np.all(np.diagonal(U) > 0)
    with mp.workdps(50):
        M = mp.matrix(X.tolist())
        exact = mp.log(mp.det(mp.eye(4) + M.T * M))
    assert 2 * np.log(np.diagonal(U)).sum() == pytest.approx(float(exact), rel=1e-12, abs=1e-15)
    np.testing.assert_allclose(U.T @ U, np.eye(4) + X.T @ X, rtol=1e-9, atol=1e-12 * size**2)
    np.testing.assert_allclose(U @ inverse_triangular(U), np.eye(4), atol=1e-12)


def test_factor_leaves_its_argument_alone(readonly):
    X = readonly(1e8 * np.random.default_rng(0).standard_normal((5, 3)))
    before = X.copy()
    factor_ridge(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_factor_refuses_what_is_not_finite(bad):
    X = np.ones((3, 2))
    X[1, 1] = bad
    with pytest.raises(SingularError, match="NaN or infinite"):
        factor_ridge(X)


def test_inverse_refuses_a_zero_pivot():
    with pytest.raises(SingularError, match="zero on its diagonal"):
        inverse_triangular(np.array([[1.0, 2.0], [0.0, 0.0]]))


def test_rows_are_factored_where_rounding_of_their_products_hides_the_identity():
    rows = np.array([[1e9, 1e9]])  # I + rows'rows has the eigenvalue 1, of which rounding of 1e18 leaves nothing
    U = factor_curvature(rows.T @ rows, lambda: rows)
    assert np.prod(np.diagonal(U)) ** 2 == pytest.approx(1.0 + 2e18)
    assert factor_curvature(np.array([[3.0]]), lambda: pytest.fail("small products are enough")).tolist() == [[2.0]]
    assert factor_curvature(np.zeros((0, 0)), lambda: np.zeros((1, 0))).shape == (0, 0)
    with pytest.raises(SingularError, match="NaN or infinite"):
        factor_curvature(np.array([[np.inf]]), lambda: np.array([[np.inf]]))


def test_the_other_classes_keep_their_digits():
    f = np.array([[50.0, 0.0, -3.0], [0.0, 0.0, 0.0]])
    _, r, p = Categorical(3).evaluate(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), f, np.array([1e12, 1.0]))
    small = mp.exp(-50) + mp.exp(-53)
    exact = float(small / (1 + small))
    np.testing.assert_allclose([complement(p)[0, 0], r[0, 0] / 1e12], exact, rtol=1e-12)
    np.testing.assert_allclose(r[1], [1 / 6, 1 / 6, -1 / 3], rtol=1e-12)
    np.testing.assert_allclose(complement(p)[1], 2 / 3, rtol=1e-12)


def test_the_posterior_with_inner_products_given_is_the_one_without():
    rng = np.random.default_rng(0)
    Phi, z, alpha = rng.normal(size=(12, 4)), rng.normal(size=12), rng.uniform(0.4, 0.6, 4)
    found, expected = (evidence.gaussian(Phi, z, 0.3, 15, alpha, 7.0, gram) for gram in (Phi.T @ Phi, None))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    assert found.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
def test_copies_are_found_whatever_the_length_of_their_columns(length):
    rng = np.random.default_rng(1)
    a, b = length * rng.normal(size=(2, 9))
    Phi = np.column_stack([a, b, -a, 0.9 * a + 0.1 * b])
    keep, alpha = evidence.merge_copies(Phi.T @ Phi, np.array([1.0, 2.0, 4.0, 8.0]), np.arange(4))
    assert keep.tolist() == [0, 1, 3]
    np.testing.assert_allclose(alpha, [1.0 / (1.0 + 1.0 / 4.0), 2.0, 8.0])


def test_updates_without_a_hyperprior_are_those_of_a_flat_one():
    assert evidence.mackay_noise(3.0, 10, 2.0) == evidence.mackay_noise(3.0, 10, 2.0, 0.0, 0.0) == 3.0 / 8.0
    assert evidence.em_noise(3.0, 10, 2.0, 0.5) == evidence.em_noise(3.0, 10, 2.0, 0.5, 0.0, 0.0) == 0.4
    assert evidence.mackay_alpha(0.5, 2.0) == 0.125 and evidence.em_alpha(2.0, 1.0) == 0.2


def test_an_atom_that_the_data_say_nothing_about_gains_nothing():
    gains = evidence.gain_reestimate(np.array([2.0, 2.0]), np.array([0.0, 1.0]), np.array([0.0, 3.0]))
    assert gains[0] == 0.0
    best = 1.0 / 8.0  # s^2 / (q^2 - s), and l(alpha) of TF03 eq. (18)
    assert gains[1] == pytest.approx(0.5 * (np.log(best / (best + 1.0)) + 9.0 / (best + 1.0) - np.log(2.0 / 3.0) - 3.0))
