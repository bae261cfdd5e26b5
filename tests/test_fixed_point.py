"""Fixed points (T01 sections 2.3 and 3): a step is that of the paper, and the point is where its equations hold."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from problems import classes_of, dictionary, problem_of, quiet_fit, sinc_problem
from relvec.inference.priors import GammaPrior
from relvec.solvers import EM, MacKay, Sequential
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint
from relvec.solvers.loop import Start


@pytest.mark.parametrize("noise", [None, 0.05])
def test_fixed_points_begin_with_every_atom(noise):
    design, t = dictionary()
    design.scale[5] = 0.0
    problem = problem_of(design, t, noise_variance=noise)
    state = MacKay().init(problem)
    assert state.active.tolist() == [j for j in range(40) if j != 5] and state.notes.steps == 0
    assert state.posterior.beta == pytest.approx(1.0 / (noise or 0.1))
    np.testing.assert_allclose(
        state.posterior.alpha, (1.0 + 1e-3 * problem.order[state.active] / 40) / 30.0, rtol=1e-15
    )
    rates = np.linspace(0.0, 200.0, 40)
    bounded = MacKay().init(replace(problem, prior=GammaPrior(a=0.3, b=1.0), prior_b=rates)).posterior.alpha
    with np.errstate(divide="ignore"):
        expected = np.minimum(state.posterior.alpha, 1.6 / (2.0 * rates[state.active]))
    np.testing.assert_allclose(bounded, expected, rtol=1e-15)
    assert 5 < np.sum(bounded < state.posterior.alpha) < 35


@pytest.mark.parametrize("noise", [None, 0.05])
@pytest.mark.parametrize(("solver", "update"), [(MacKay(), oracle.mackay_step), (EM(), oracle.em_step)])
def test_a_step_of_a_fixed_point_is_that_of_the_paper(solver, update, noise):
    design, t = dictionary(M=8)
    prior = GammaPrior(a=0.1, b=0.2, c=0.3, d=0.4)
    problem = problem_of(design, t, noise_variance=noise, prior=prior, prior_b=np.linspace(0.1, 0.5, 8), prior_d=0.4)
    state, Phi = solver.init(problem), design.columns(np.arange(8))
    for _ in range(3):
        p = state.posterior
        alpha, beta = update(Phi, t, p.alpha, p.beta, a=0.1, b=problem.prior_b, c=0.3, d=0.4)
        state = solver.step(problem, state)
        np.testing.assert_allclose(state.posterior.alpha, alpha, rtol=1e-7)
        assert state.posterior.beta == pytest.approx(p.beta if noise else beta, rel=1e-7)


@pytest.mark.parametrize("expectation", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_a_step_of_a_fixed_point_of_classes(expectation, share):
    """T01 eq. (16) or (48) with a prior, sums over the classes in place of single values where they share one."""
    prior = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(0.1, 0.4, 12)}
    model, _ = classes_of(share=share, **prior)
    problem, p = model.problem, model.posterior
    solver = LaplaceFixedPoint(expectation, 1e-16, 1e12)
    state = solver.resumed(problem, Start(model.active, model.alpha, np.nan), {})
    found = solver.step(problem, state)
    k = 3 if share else 1
    b = problem.prior_b[model.active % 12]
    total = (lambda v: v.reshape(-1, 3).sum(axis=1)) if share else (lambda v: v)
    squares, gamma, variance = total(p.mean**2), total(1.0 - p.alpha * p.variance), total(p.variance)
    new = (k + 0.6) / (squares + variance + 2 * b) if expectation else (gamma + 0.6) / (squares + 2 * b)
    np.testing.assert_allclose(found.notes.alpha, new, rtol=1e-9)
    assert found.action == "reestimate" and found.objective == pytest.approx(found.notes.objective)


@pytest.mark.parametrize("prior", [False, True])
def test_fixed_points_of_classes_begin_with_every_unit(prior):
    options = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(1.0, 80.0, 12)} if prior else {}
    problem = classes_of(**options)[0].problem
    problem.design.scale[5] = 0.0
    state = LaplaceFixedPoint(False, 1e-16, 1e12).init(problem)
    units = np.array([u for u in range(36) if u % 12 != 5])
    np.testing.assert_array_equal(state.active, units)
    alpha = np.full(33, 1.0 / problem.weights.sum())
    if prior:
        alpha = np.minimum(alpha, 1.6 / (2.0 * problem.prior_b[units % 12]))
        assert 0 < np.sum(alpha < alpha.max()) < 33
    np.testing.assert_allclose(state.notes.alpha, alpha, rtol=1e-14)


def test_what_a_fixed_point_of_classes_prunes():
    """Below gamma (of a unit, the mean over its classes) or above alpha."""
    for share in (False, True):
        model, _ = classes_of(share=share)
        problem = model.problem
        gamma = problem.gather(model.posterior.gamma) / problem.per_unit
        state = LaplaceFixedPoint(False, 0.0, 1e12).resumed(problem, Start(model.active, model.alpha, np.nan), {})
        least = np.sort(gamma)[0]
        fewer = LaplaceFixedPoint(False, 1.01 * least, 1e12).step(problem, state)
        np.testing.assert_array_equal(fewer.active, model.active[gamma > least])
        assert len(LaplaceFixedPoint(False, 0.99 * least, 1e12).step(problem, state).active) == len(gamma)
        new = LaplaceFixedPoint(False, 0.0, 1e12).step(problem, state).notes.alpha
        fewer = LaplaceFixedPoint(False, 0.0, 0.99 * new.max()).step(problem, state)
        np.testing.assert_array_equal(fewer.active, model.active[new < new.max()])
        np.testing.assert_allclose(fewer.notes.alpha, new[new < new.max()])


@pytest.mark.parametrize("solver", [MacKay(), EM(), Sequential(), Sequential(select="gain")], ids=repr)
@pytest.mark.parametrize("noise", [None, 0.02])
def test_every_solver_ends_where_t01_equations_16_and_18_hold(solver, noise):
    Phi, t = sinc_problem(30)
    model, active = quiet_fit(Phi, t, solver=solver, noise_variance=noise, tol=1e-6, max_iter=50000)
    beta = 1.0 / model.noise_variance_
    Sigma, mu = oracle.posterior(Phi[:, active], t, model.alpha_, beta)
    gamma = 1.0 - model.alpha_ * np.diag(Sigma)
    np.testing.assert_allclose(model.alpha_ * mu**2, gamma, atol=2e-2)  # eq. (16)
    np.testing.assert_allclose(model.gamma_, gamma, atol=1e-7)
    if noise is None:
        residual = np.sum((t - Phi[:, active] @ mu) ** 2)
        assert model.noise_variance_ == pytest.approx(residual / (30 - gamma.sum()), rel=1e-2)  # eq. (18)
