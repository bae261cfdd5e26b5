from dataclasses import replace

import numpy as np
import pytest

import golden
import oracle
from relvec import RVC, RVR
from relvec.design import DenseDesign
from relvec.inference.laplace import NewtonSettings, laplace
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.runtime.clock import Clock
from relvec.solvers import EM, MacKay, Sequential, Status, Stepwise
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, empty_model
from relvec.solvers.laplace.scan import ScanSettings, scan, shared_optimum
from relvec.solvers.laplace.solve import solve_laplace

TARGETS = {"e": (Bernoulli(), -43.6930), "f": (Poisson(), -305.9660)}


def make(Phi, t, likelihood, **options):
    design = DenseDesign(np.array(Phi))
    return LaplaceProblem(design, t, np.ones(len(t)), likelihood, np.arange(design.n_atoms), **options)


def classes(n=60, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    label = rng.integers(0, K, n)
    X += 2.0 * np.column_stack([np.cos(2 * np.pi * label / K), np.sin(2 * np.pi * label / K)])
    Phi = np.column_stack([np.exp(-((X[:, None] - X) ** 2).sum(axis=-1) / 4.0), np.ones(n)])
    return Phi, np.eye(K)[label], label


@pytest.mark.parametrize("case", ["e", "f"])
def test_reaches_the_reference_with_a_certificate_and_a_monotone_history(case):
    g = golden.load(case)
    likelihood, least = TARGETS[case]
    result = solve_laplace(Sequential(), make(g.Phi, g.t.astype(float), likelihood, bias=g.bias_col), 1000)
    assert result.state.objective >= least
    assert result.status is Status.CONVERGED and result.state.largest_gain <= 1e-3
    assert np.all(np.diff([step.objective for step in result.history]) >= 0.0)
    p = result.state.posterior
    exact = oracle.laplace_evidence(p.Phi, g.t.astype(float), p.alpha, g.likelihood.lower())
    assert result.state.objective == pytest.approx(exact, abs=1e-8)
    gradient = oracle.laplace_gradient_log_alpha(p.Phi, g.t.astype(float), p.alpha, g.likelihood.lower())
    np.testing.assert_allclose(gradient, 0.0, atol=2e-4)


def test_scan_matches_the_dense_oracle():
    g = golden.load("e")
    problem = make(g.Phi[:, :50], g.t.astype(float), Bernoulli())
    model = LaplaceModel(problem, np.array([3, 20]), problem.posterior(np.array([3, 20]), np.array([0.5, 2.0])))
    found = scan(model).classes[0]
    Phi = problem.design.columns(np.arange(50))
    S, Q = oracle.laplace_S_Q(Phi, [3, 20], g.t.astype(float), np.array([0.5, 2.0]), "bernoulli")
    np.testing.assert_allclose(found.S, S, atol=1e-9)
    np.testing.assert_allclose(found.Q, Q, atol=1e-9)


def test_softmax_scan_matches_the_dense_oracle():
    Phi, t, label = classes()
    problem = make(Phi, t, Categorical(3))
    M = problem.design.n_atoms
    units = np.array([4, M + 4, 2 * M + 4])
    model = LaplaceModel(problem, units, problem.posterior(units, np.array([0.5, 1.0, 2.0])))
    found = scan(model)
    columns = problem.design.columns(np.arange(M))
    S, Q = oracle.laplace_S_Q(columns, [4], label, np.array([[0.5], [1.0], [2.0]]), "softmax")
    np.testing.assert_allclose(np.stack([s.S for s in found.classes]), S, atol=1e-9)
    np.testing.assert_allclose(np.stack([s.Q for s in found.classes]), Q, atol=1e-9)


@pytest.mark.parametrize("share", [False, True])
def test_softmax_search_is_monotone_and_stationary(share):
    Phi, t, _ = classes()
    result = solve_laplace(Sequential(restarts=1), make(Phi, t, Categorical(3), share=share), 500)
    assert result.status is Status.CONVERGED
    assert np.all(np.diff([step.objective for step in result.history]) >= 0.0)
    model = LaplaceModel(make(Phi, t, Categorical(3), share=share), result.state.active, result.state.posterior)
    np.testing.assert_allclose(model.system().gradient, 0.0, atol=1e-3)


def test_the_mode_by_gradients_is_the_mode_by_newton_steps(monkeypatch):
    """The dense Hessian is formed at the mode only; what is found there does not depend on the way."""
    Phi, t, label = classes(n=80)
    design = DenseDesign(np.array(Phi))
    atoms, outputs = np.tile(np.arange(0, 80, 4), 3), np.repeat(np.arange(3), 20)
    columns, alpha = design.columns(atoms), np.exp(np.random.default_rng(0).normal(-2.0, 2.0, 60))
    newton = laplace(columns, t, np.ones(80), alpha, Categorical(3), outputs=outputs)
    monkeypatch.setattr("relvec.inference.laplace._MANY", 1)
    monkeypatch.setattr("relvec.inference.laplace.NEWTON", NewtonSettings(max_steps=1))  # no Newton step follows
    for guess in (newton.root, np.diag(alpha**-0.5), 3.0 * newton.root[:, 5:]):
        found = laplace(columns, t, np.ones(80), alpha, Categorical(3), None, outputs, guess)
        if guess.shape[1] == 60:
            np.testing.assert_allclose(found.mean, newton.mean, atol=1e-8)
            np.testing.assert_allclose(found.covariance, newton.covariance, atol=1e-8)
            assert found.log_evidence == pytest.approx(newton.log_evidence, abs=1e-8)
            exact = oracle.laplace_evidence(design.columns(atoms[:20]), label, alpha.reshape(3, 20), "softmax")
            assert found.log_evidence == pytest.approx(exact, abs=1e-8)
        else:  # a curvature without some directions never reaches the mode by itself
            assert np.abs(found.mean - newton.mean).max() > 1e-3
    monkeypatch.setattr("relvec.inference.laplace.NEWTON", NewtonSettings())
    found = laplace(columns, t, np.ones(80), alpha, Categorical(3), None, outputs, 3.0 * newton.root[:, 5:])
    assert found.log_evidence == pytest.approx(newton.log_evidence, abs=1e-8)


def test_a_softmax_out_of_time_is_a_valid_model():
    Phi, t, _ = classes(n=120, K=4)
    result = solve_laplace(Sequential(), replace(make(Phi, t, Categorical(4)), clock=Clock(1e-9)), 500)
    assert result.status is Status.TIME_LIMIT and np.isinf(result.state.largest_gain)
    p = result.state.posterior
    assert result.state.objective == pytest.approx(p.log_evidence)
    whole = solve_laplace(Sequential(restarts=0), make(Phi, t, Categorical(4)), 500)
    part = solve_laplace(Sequential(restarts=0), make(Phi, t, Categorical(4)), 4)
    assert part.state.objective < whole.state.objective
    again = laplace(part.state.posterior.Phi, t, np.ones(120), part.state.posterior.alpha, Categorical(4),
                    outputs=part.state.posterior.outputs)  # fmt: skip
    assert part.state.objective == pytest.approx(again.log_evidence, abs=1e-8)


def test_block_diagonal_proposals_reach_the_same_evidence(monkeypatch):
    Phi, t, _ = classes()
    exact = solve_laplace(Sequential(), make(Phi, t, Categorical(3)), 500).state.objective
    monkeypatch.setattr("relvec.solvers.laplace.scan.SCANS", ScanSettings(max_exact_products=0.0))
    rough = solve_laplace(Sequential(), make(Phi, t, Categorical(3)), 500).state.objective
    assert rough == pytest.approx(exact, abs=0.5)


def test_shared_optimum_is_the_maximum_of_the_sum():
    S, Q = np.array([[1.0], [2.0]]), np.array([[3.0], [0.5]])
    gain, _ = shared_optimum(S, Q)
    grid = np.exp(np.linspace(-12, 12, 4001))
    values = 0.5 * np.sum(np.log(grid / (grid + S)) + Q**2 / (grid + S), axis=0)
    assert gain[0] == pytest.approx(values.max(), abs=0.05)


@pytest.mark.parametrize("solver", [MacKay(), EM()])
def test_fixed_point_is_where_t01_equation_16_holds(solver):
    g = golden.load("e")
    problem = make(g.Phi[:80, ::4][:, :20], g.t[:80].astype(float), Bernoulli())
    result = solve_laplace(solver, problem, 20000)
    p = result.state.posterior
    assert result.status is Status.FIXED_POINT
    np.testing.assert_allclose(p.gamma, p.alpha * p.mean**2, atol=2e-3 if isinstance(solver, MacKay) else 0.1)
    assert 0.0 <= result.state.largest_gain < 1.0


def test_restarts_stop_at_their_share_of_the_work():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    Phi = np.exp(-((X[:, None] - X) ** 2).sum(axis=-1))
    t = (np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=400) > 0).astype(float)
    spent = {}
    for restarts in (0, 3, 9):
        problem = make(Phi, t, Bernoulli())
        solve_laplace(Sequential(restarts=restarts), problem, 1000)
        spent[restarts] = problem.budget.spent
    assert spent[0] < spent[3] < spent[9]
    assert spent[3] < 1.3 * spent[0] + 2 * 3 * 2e7  # a restart that improves is settled beyond its share


def test_the_empty_model_is_a_model():
    problem = make(np.ones((4, 1)), np.array([0.0, 1.0, 0.0, 1.0]), Bernoulli())
    assert empty_model(problem).objective == pytest.approx(4 * np.log(0.5))
    result = solve_laplace(Sequential(), problem, 10)
    assert len(result.state.active) == 0 and result.status is Status.CONVERGED


def test_what_is_for_regression_is_refused():
    with pytest.raises(ValueError, match="is for regression"):
        RVC(width=1.0, solver=Stepwise()).fit(np.arange(4.0)[:, None], [0, 1, 0, 1])


def test_the_objective_of_repeated_counts_is_their_evidence():
    """Rows with equal inputs are merged; the constant of the likelihood is that of the rows as they were."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(10, 1)), 3, axis=0)
    y = rng.poisson(np.exp(1.0 + np.sin(2.0 * X[:, 0])))
    model = RVR(width=1.0, likelihood="poisson").fit(X, y)
    assert model.history_["objective"][-1] == pytest.approx(model.log_marginal_likelihood_, abs=1e-6)
