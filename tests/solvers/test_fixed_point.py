"""Fixed points (T01 sections 2.3 and 3): a step is that of the paper, and the point is where its equations hold."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from problems import classes_of, dictionary, problem_of, quiet_fit, sinc_problem
from relvec.design import DenseDesign
from relvec.inference.hyperpriors import GammaPrior
from relvec.inference.likelihoods import Categorical
from relvec.solvers import EM, MacKay, Sequential
from relvec.solvers import fixed_point as _fixed_point
from relvec.solvers.laplace import fixed_point as _laplace
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint
from relvec.solvers.laplace.problem import LaplaceModel
from relvec.solvers.loop import Problem, State, Status


@pytest.mark.parametrize("noise", [None, 0.05])
def test_fixed_points_begin_with_every_atom(noise):
    design, t = dictionary()
    design.scale[5], design.scale[6] = 0.0, 0.5
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


def state_of(problem, units, alpha):
    """The state of a fixed point of classes with that model."""
    model = LaplaceModel(problem, units, problem.fit(units, alpha))
    return State(model.active, model.posterior, model.objective, notes=model)


@pytest.mark.parametrize("expectation", [False, True])
@pytest.mark.parametrize(("share", "K"), [(False, 3), (True, 3), (True, 2)])
def test_a_step_of_a_fixed_point_of_classes(expectation, share, K):
    """T01 eq. (16) or (48) with a prior, sums over the classes in place of single values where they share one."""
    prior = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(0.1, 0.4, 12)}
    model, _ = classes_of(share=share, likelihood=Categorical(K), **prior)
    problem, p = model.problem, model.posterior
    solver = LaplaceFixedPoint(expectation, 1e-16, 1e12)
    state = state_of(problem, model.active, model.alpha)
    found = solver.step(problem, state)
    k = K if share else 1
    b = problem.prior_b[model.active % 12]
    total = (lambda v: v.reshape(-1, K).sum(axis=1)) if share else (lambda v: v)
    squares, gamma, variance = total(p.mean**2), total(1.0 - p.alpha * p.variance), total(p.variance)
    new = (k + 0.6) / (squares + variance + 2 * b) if expectation else (gamma + 0.6) / (squares + 2 * b)
    np.testing.assert_allclose(found.notes.alpha, new, rtol=1e-9)
    assert found.action == "reestimate" and found.objective == pytest.approx(found.notes.objective)


@pytest.mark.parametrize("prior", [False, True])
def test_fixed_points_of_classes_begin_with_every_unit(prior):
    options = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(1.0, 80.0, 12)} if prior else {}
    problem = classes_of(**options)[0].problem
    problem.design.scale[5], problem.design.scale[6] = 0.0, 0.5
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
        state = state_of(problem, model.active, model.alpha)
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


# --- a single step or check, at a model given by hand ---------------------------------------------------------------


def at(problem, active, alpha, beta, steps=0):
    """The state of a fixed point with that model."""
    active = np.array(active)
    columns = problem.design.columns(active)
    posterior = _fixed_point._posterior(problem, columns, np.array(alpha, float), beta)
    notes = _fixed_point._Notes(columns, steps)
    return State(active, posterior, problem.objective(active, posterior), notes=notes)


def answers(monkeypatch, *given):
    """Let the objective seem to have fallen, or not, whatever it has done; the last answer is repeated."""
    left = [*given]
    monkeypatch.setattr(_fixed_point, "not_lower", lambda new, old: left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize("noise", [None, 0.05])
@pytest.mark.parametrize(("refused", "fraction"), [(0, 1.0), (1, 0.5), (2, 0.1)])
def test_an_em_step_that_rounding_spoils_is_shortened_in_the_logarithms(refused, fraction, noise, monkeypatch):
    design, t = dictionary(M=8)
    problem, Phi = problem_of(design, t, noise_variance=noise), design.columns(np.arange(8))
    state = at(problem, np.arange(8), np.linspace(0.2, 3.0, 8), 7.0)
    alpha, beta = oracle.em_step(Phi, t, state.posterior.alpha, 7.0)
    answers(monkeypatch, *[False] * refused, True)
    found = EM()._em(problem, state.notes.columns, state, 0.0)
    np.testing.assert_allclose(found.alpha, alpha**fraction * state.posterior.alpha ** (1.0 - fraction), rtol=1e-9)
    assert found.beta == pytest.approx(7.0 if noise else beta**fraction * 7.0 ** (1.0 - fraction), rel=1e-9)
    answers(monkeypatch, False)
    assert EM()._em(problem, state.notes.columns, state, 0.0) is state.posterior


@pytest.mark.parametrize("solver", [MacKay(), EM()])
def test_the_noise_of_a_step_stays_above_its_floor(solver, monkeypatch):
    design, t = dictionary(M=8)
    problem = problem_of(design, t, noise_floor=0.9)
    state = at(problem, np.arange(8), np.ones(8), 1.0)
    answers(monkeypatch, True)
    assert solver._update(problem, state.notes.columns, state, 0.0).beta == 1.0 / 0.9


@pytest.mark.parametrize("prior", [False, True])
def test_precisions_of_a_mackay_step_end_at_ten_times_that_of_pruning_without_a_prior(prior, monkeypatch):
    design, t = dictionary(M=8)
    rates = {"prior": GammaPrior(a=0.1, b=1e-9), "prior_b": np.full(8, 1e-9)} if prior else {}
    problem, solver, b = problem_of(design, t, **rates), MacKay(prune_alpha=0.2), 1e-9 if prior else 0.0
    state = at(problem, np.arange(8), np.ones(8), 5.0)
    answers(monkeypatch, True)
    expected, _ = oracle.mackay_step(design.columns(np.arange(8)), t, np.ones(8), 5.0, a=0.1 if prior else 0.0, b=b)
    assert expected.min() < 2.0 < expected.max()
    found = solver._update(problem, state.notes.columns, state, b).alpha
    np.testing.assert_allclose(found, expected if prior else np.minimum(expected, 2.0), rtol=1e-9)


def test_a_function_without_any_value_keeps_its_precision(monkeypatch):
    """Its weight and its gamma are zero, and zero over zero says nothing."""
    design, t = dictionary(M=8)
    design.columns(np.arange(8))
    blind = DenseDesign(np.column_stack([design.columns(np.arange(7)), np.zeros(len(t))]))
    problem = problem_of(blind, t)
    state = at(problem, np.arange(8), np.linspace(0.5, 4.0, 8), 5.0)
    answers(monkeypatch, True)
    found = MacKay()._update(problem, state.notes.columns, state, 0.0).alpha
    assert found[7] == 4.0
    expected, _ = oracle.mackay_step(design.columns(np.arange(7)), t, np.linspace(0.5, 4.0, 8)[:7], 5.0)
    np.testing.assert_allclose(found[:7], expected, rtol=1e-9)


@pytest.mark.parametrize(("c", "moves"), [(0.0, False), (1.2, False), (1.8, True)])
def test_the_noise_moves_where_samples_and_prior_outnumber_the_well_determined_weights(c, moves, monkeypatch):
    """T01 eq. (46) divides by N - sum gamma + 2c, which may be negative with small sample weights."""
    design, t = dictionary(M=8, width=0.5)
    problem = problem_of(design, t, n_samples=2.0, prior=GammaPrior(c=c, d=0.1), prior_d=0.1)
    state = at(problem, np.arange(8), np.full(8, 1e-2), 20.0)
    p = state.posterior
    total = float(p.gamma.sum())
    scale = (total - 2.0) / 3.0  # sum gamma = 2 + 2 * 1.5, in these units of c
    problem = replace(problem, prior=GammaPrior(c=c * scale, d=0.1))
    answers(monkeypatch, True)
    beta = MacKay()._update(problem, state.notes.columns, state, 0.0).beta
    dense = (2.0 - total + 2.0 * c * scale) / (p.residual + 0.2)
    assert scale > 1.0 and beta == pytest.approx(dense if moves else 20.0, rel=1e-9)


def test_what_a_fixed_point_prunes(monkeypatch):
    """Below gamma or above alpha, unless the objective falls by it."""
    design, t = dictionary(M=8)
    problem, alpha = problem_of(design, t, noise_variance=0.05), np.linspace(0.5, 4.0, 8)
    answers(monkeypatch, True)
    whole = MacKay().step(problem, at(problem, np.arange(8), alpha, 20.0)).posterior
    for name, value, alive in (
        ("prune_gamma", 1.01 * whole.gamma.min(), whole.gamma > whole.gamma.min()),
        ("prune_alpha", 0.99 * whole.alpha.max(), whole.alpha < whole.alpha.max()),
    ):
        solver = MacKay(**{name: value})
        state = at(problem, np.arange(8), alpha, 20.0)
        fewer = solver.step(problem, state)
        np.testing.assert_array_equal(fewer.active, np.flatnonzero(alive))
        np.testing.assert_allclose(fewer.posterior.alpha, whole.alpha[alive])
        np.testing.assert_array_equal(fewer.notes.columns, design.columns(fewer.active))
        assert fewer.objective == fewer.posterior.log_evidence and fewer.action == "reestimate"
        answers(monkeypatch, True, False)
        np.testing.assert_array_equal(solver.step(problem, state).active, np.arange(8))
        answers(monkeypatch, True)
        close = MacKay(**{name: value * (0.98 if name == "prune_gamma" else 1.02)})
        np.testing.assert_array_equal(close.step(problem, state).active, np.arange(8))


@pytest.mark.parametrize(
    ("before", "rise", "steps", "expected"),
    [
        (5.0, 0.0, 0, (True, True)),
        (5.0, 4e-13, 0, (True, True)),  # of the objective, not of one
        (5.0, 6e-13, 0, (True, False)),
        (5.0, 9e-6, 0, (True, False)),  # a hundredth of tol
        (5.0, 1.1e-5, 0, None),
        (5.0, 1.0, 23, None),
        (5.0, 1.0, 24, (False, False)),  # every 25 steps
        (5.0, 1.0, 25, None),
        (5.0, 1.0, 49, (False, False)),
        (5.0, -1e-14, 24, (True, True)),
    ],
)
def test_the_whole_dictionary_is_checked_where_steps_gain_little_and_now_and_then(
    before, rise, steps, expected, monkeypatch
):
    design, t = dictionary(M=8)
    problem = problem_of(design, t)
    state = at(problem, np.arange(8), np.ones(8), 5.0, steps)
    state, asked = state.stepped(objective=before), []
    after = replace(state.posterior, log_evidence=before + rise)
    monkeypatch.setattr(EM, "_update", lambda *_: after)
    monkeypatch.setattr(EM, "_reconsider", lambda self, problem, state, *how: asked.append(how) or state)
    moved = EM().step(problem, state)
    assert asked == ([] if expected is None else [expected])
    assert moved.notes.steps == steps + 1 and moved.objective == before + rise and moved.action == "reestimate"
    if rise == 0.0:  # nothing is settled where something was pruned
        answers(monkeypatch, True)
        asked.clear()
        EM(prune_gamma=1.001 * after.gamma.min()).step(problem, state)
        assert asked == []


def test_how_a_fixed_point_ended():
    design, t = dictionary(M=8)
    problem = problem_of(design, t, noise_floor=0.01)
    for beta, gain, status in (
        (100.0, 0.0, Status.NOISE_FLOOR),
        (50.0, 1e-3, Status.CONVERGED),
        (50.0, 1.1e-3, Status.STALLED),
    ):
        state = at(problem, [1], [1.0], beta, 7).stepped(largest_gain=gain)
        assert MacKay().status(problem, state) is status
        assert not MacKay().finishing(state)


class Answered(Problem):
    """A problem whose objective of models with more atoms than a number is given."""

    def objective(self, active, posterior):
        most, value = self.prior_d
        return value if len(active) > most else posterior.log_evidence


def dense_gains_at(problem, active, alpha, beta):
    """What adding every atom, or moving every precision of the model, gains by the dense evidence."""
    Phi, t = problem.design.columns(np.arange(problem.design.n_atoms)), problem.target
    adds = np.array([
        0.0 if j in active else oracle.gain_add(Phi, active, t, alpha, beta, j) for j in range(Phi.shape[1])
    ])  # fmt: skip
    return adds, np.array([oracle.gain_reestimate(Phi, active, t, alpha, beta, i) for i in active])


NEAR = (0.3, 1.0, 2.0)


@pytest.mark.parametrize(
    ("active", "beta", "move"), [((2, 5, 6), 3.0, "own"), ((8, 11, 13), 3.0, "add"), ((3, 31, 38), 20.0, "add")]
)
def test_the_check_of_the_whole_dictionary_tells_the_largest_dense_gain(active, beta, move):
    problem, active, alpha = problem_of(*dictionary(), tol=1e3), np.array(active), np.array(NEAR)
    adds, own = dense_gains_at(problem, active, alpha, beta)
    assert (adds.max() > own.max()) == (move == "add")
    largest = max(adds.max(), own.max())
    state = at(problem, active, alpha, beta)
    for settled, stuck, tol, done in (
        (True, False, 1.01 * largest, True),
        (False, False, 1.01 * largest, False),
        (False, False, 0.99 * largest, False),
        (True, True, 1e3, True),
    ):
        found = MacKay()._reconsider(replace(problem, tol=tol), state, settled, stuck)
        assert found.largest_gain == pytest.approx(largest, rel=1e-7) and found.done == done
        assert found.active is state.active and found.objective == state.objective


def test_an_empty_model_is_offered_what_single_atoms_gain():
    problem, none = problem_of(*dictionary(), tol=1e3), np.zeros(0, int)
    adds, _ = dense_gains_at(problem, none, np.zeros(0), 2.0)
    found = MacKay()._reconsider(problem, at(problem, none, [], 2.0), True, False)
    assert found.done and 0.0 < adds.max() < 1.0 and found.largest_gain == pytest.approx(adds.max(), rel=1e-7)


def test_a_deleted_atom_of_the_largest_gain_comes_back_at_its_optimal_precision():
    problem, active, alpha = problem_of(*dictionary()), np.array([3, 31, 38]), np.array(NEAR)
    state, Phi = at(problem, active, alpha, 20.0), problem.design.columns(np.arange(40))
    adds, _ = dense_gains_at(problem, active, alpha, 20.0)
    j = int(np.argmax(adds))
    found = MacKay()._reconsider(problem, state, True, False)
    assert (found.action, found.atom, found.done) == ("add", j, False)
    np.testing.assert_array_equal(found.active, [3, 31, 38, j])
    S, Q = oracle.S_Q(Phi, Phi[:, active], problem.target, alpha, 20.0)
    np.testing.assert_allclose(found.posterior.alpha, [*alpha, oracle.optimal_alpha(S, Q)[j]], rtol=1e-7)
    np.testing.assert_array_equal(found.notes.columns, Phi[:, found.active])
    assert found.objective - state.objective == pytest.approx(adds[j], rel=1e-7)


def test_an_addition_that_gains_less_than_a_tenth_of_tol_in_truth_is_not_made():
    """What the scan promised was rounding; the certificate is then what the others offer."""
    problem, active, alpha = problem_of(*dictionary()), np.array([8, 11, 13]), np.array(NEAR)
    state = at(problem, active, alpha, 3.0)
    adds, own = dense_gains_at(problem, active, alpha, 3.0)
    for gain, added in ((0.05, False), (0.15, True)):
        told = Answered(**vars(problem) | {"prior_d": (3, state.objective + gain * problem.tol)})
        found = MacKay()._reconsider(told, state, True, False)
        assert (found.action == "add") == added
        if not added:
            assert found.largest_gain == pytest.approx(max(np.sort(adds)[-2], own.max()), rel=1e-7)


def test_atoms_whose_optimum_is_infinite_leave_together_or_the_worst_alone(monkeypatch):
    problem, alpha = problem_of(*dictionary()), np.full(12, 0.5)
    active, Phi = np.arange(2, 26, 2), problem.design.columns(np.arange(40))
    s, q = np.transpose([[v[i] for v in oracle.s_q(Phi, active, problem.target, alpha, 20.0)] for i in active])
    dead = q**2 <= s
    assert 1 < dead.sum() < 11
    state = at(problem, active, alpha, 20.0)
    together = MacKay()._reconsider(problem, state, False, False)
    assert (together.action, together.atom) == ("delete", active[dead][0])
    np.testing.assert_array_equal(together.active, active[~dead])
    np.testing.assert_array_equal(together.notes.columns, Phi[:, active[~dead]])
    np.testing.assert_array_equal(together.posterior.alpha, alpha[~dead])
    gains = [oracle.gain_delete(Phi, active, problem.target, alpha, 20.0, i) if out else -np.inf
             for i, out in zip(active, dead, strict=True)]  # fmt: skip
    worst = np.argmax(gains)
    answers(monkeypatch, False, True)
    alone = MacKay()._reconsider(problem, state, False, False)
    assert (alone.action, alone.atom) == ("delete", active[worst])
    np.testing.assert_array_equal(alone.active, np.delete(active, worst))
    answers(monkeypatch, False)
    assert MacKay()._reconsider(problem, state, False, False).active is state.active


def test_copies_are_one_atom_at_the_fixed_point(monkeypatch):
    design, t = dictionary(M=8)
    Phi = design.columns(np.arange(8))
    problem = problem_of(DenseDesign(np.column_stack([Phi, -Phi[:, 2]])), t)
    state = at(problem, np.arange(9), [1.0] * 8 + [3.0], 20.0)
    merged = MacKay()._reconsider(problem, state, False, False)
    np.testing.assert_array_equal(merged.active, [0, 1, 3, 4, 5, 6, 7, 8])  # the last is the first in order
    assert (merged.action, merged.atom) == ("delete", 2) and merged.posterior.alpha[-1] == pytest.approx(0.75)
    assert merged.objective == pytest.approx(state.objective, rel=1e-12)
    np.testing.assert_array_equal(merged.notes.columns, state.notes.columns[:, merged.active])
    answers(monkeypatch, False)
    assert 2 in MacKay()._reconsider(problem, state, False, False).active


def test_with_a_prior_the_certificate_is_the_squared_gradient_over_the_curvature_of_em():
    design, t = dictionary(M=8)
    rates, alpha = np.linspace(0.1, 0.5, 8), np.linspace(0.5, 2.5, 8)
    problem = problem_of(design, t, prior=GammaPrior(a=0.3, b=1.0), prior_b=rates)
    Phi, chosen = design.columns(np.arange(8)), np.array([1, 4, 6])
    state = at(problem, chosen, alpha[chosen], 20.0)
    g = oracle.gradient_log_alpha(Phi[:, chosen], t, alpha[chosen], 20.0, a=0.3, b=rates[chosen])
    Sigma, mu = oracle.posterior(Phi[:, chosen], t, alpha[chosen], 20.0)
    curvature = alpha[chosen] * (0.5 * (mu**2 + np.diag(Sigma)) + rates[chosen])
    largest = np.max(g**2 / curvature)
    for settled, stuck, tol, done in (
        (True, False, 1.01 * largest, True),
        (True, False, 0.99 * largest, False),
        (False, False, 1.01 * largest, False),
        (True, True, 0.99 * largest, True),
    ):
        found = MacKay()._reconsider(replace(problem, tol=tol), state, settled, stuck)
        assert found.largest_gain == pytest.approx(largest, rel=1e-6) and found.done == done


def test_the_scan_of_a_fixed_point_is_dense():
    design, t = dictionary()
    Phi = design.columns(np.arange(40))
    Phi[:, 7] = 0.0
    problem = problem_of(DenseDesign(Phi), t)
    S, Q = _fixed_point._scan(problem, at(problem, [3, 12, 25], NEAR, 20.0).posterior)
    dense = oracle.S_Q(Phi, Phi[:, [3, 12, 25]], t, np.array(NEAR), 20.0)
    np.testing.assert_allclose(S, dense[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(Q, dense[1], rtol=1e-9, atol=1e-12)


# --- the same for classes -------------------------------------------------------------------------------------------


def classes_at(units=(2, 7, 16, 33), alpha=(0.3, 1.5, 0.2, 0.7), **options):
    """A problem of three classes, and the state of a fixed point with that model."""
    problem = classes_of(**options)[0].problem
    solver = LaplaceFixedPoint(False, 0.0, 1e12)
    return problem, solver, state_of(problem, np.array(units), np.array(alpha))


def test_with_a_prior_precisions_of_classes_end_at_ten_times_that_of_pruning():
    prior = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.full(12, 1e-3)}
    problem, solver, state = classes_at(**prior)
    new = solver.step(problem, state).notes.alpha
    most = np.sqrt(new.min() * new.max())
    found = LaplaceFixedPoint(False, 0.0, 0.1 * most).step(problem, state)
    np.testing.assert_allclose(found.notes.alpha, np.minimum(new, most), rtol=1e-9)
    np.testing.assert_array_equal(found.active, state.active)  # nothing is pruned
    assert new.min() < most < new.max()
    np.testing.assert_array_equal(LaplaceFixedPoint(False, 2.0, 1e12).step(problem, state).active, state.active)


@pytest.mark.parametrize(
    ("moved", "change", "ends"),
    [
        (0.9e-5, 1.0, True),  # of log alpha
        (1.1e-5, 1.0, False),
        (0.1, 0.9e-6, True),  # a thousandth of tol
        (0.1, -0.9e-6, True),
        (0.1, 1.1e-6, False),
        (0.1, -1.1e-6, False),
    ],
)
def test_a_fixed_point_of_classes_ends_where_precisions_or_evidence_hardly_move(moved, change, ends, monkeypatch):
    problem, solver, state = classes_at(tol=1e-3)
    monkeypatch.setattr(_laplace, "update_precisions", lambda *_: state.notes.alpha * np.exp([0.0, moved, -moved, 0.0]))
    monkeypatch.setattr(_laplace, "prune", lambda model: model)
    monkeypatch.setattr(LaplaceFixedPoint, "_certificate", lambda self, model: 0.7)
    after = solver.step(problem, state).objective
    found = solver.step(problem, state.stepped(objective=after + change))
    assert found.done == ends and (found.largest_gain == 0.7) == ends
    np.testing.assert_array_equal(found.active, state.active)
    least = np.min(state.posterior.gamma)
    fewer = LaplaceFixedPoint(False, 1.01 * least, 1e12).step(problem, state.stepped(objective=after + change))
    assert not fewer.done and len(fewer.active) == 3


@pytest.mark.parametrize(("alpha", "ends"), [(1e5, True), (1e2, False)])
def test_precisions_of_units_that_the_data_hardly_determine_need_not_stand_still(alpha, ends, monkeypatch):
    problem, solver, state = classes_at(alpha=(0.3, alpha, 0.2, 0.7), tol=0.0)
    gamma = state.posterior.gamma[1]
    assert (gamma < 1e-3) == ends and 1e-8 < gamma < 0.1
    monkeypatch.setattr(_laplace, "update_precisions", lambda *_: state.notes.alpha * [1.0, 1.5, 1.0, 1.0])
    monkeypatch.setattr(_laplace, "prune", lambda model: model)
    assert solver.step(problem, state).done == ends


@pytest.mark.parametrize("prior", [False, True])
def test_units_with_an_infinite_optimum_leave_before_a_fixed_point_of_classes_ends(prior, monkeypatch):
    rates = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.full(12, 0.1)} if prior else {}
    problem, solver, state = classes_at(**rates)
    fewer = LaplaceModel(problem, state.active[1:], problem.posterior(state.active[1:], state.notes.alpha[1:]))
    monkeypatch.setattr(_laplace, "update_precisions", lambda *_: state.notes.alpha)
    monkeypatch.setattr(_laplace, "prune", lambda model: fewer)
    found = solver.step(problem, state)
    if prior:
        assert found.done and np.isnan(found.largest_gain) and len(found.active) == 4
    else:
        assert not found.done and found.action == "delete" and found.notes is fewer
        assert found.active is fewer.active and found.objective == fewer.objective


def test_the_certificate_of_a_fixed_point_of_classes_is_the_larger_of_two_gains(monkeypatch):
    """The maximum on the same support, or one more unit."""
    _, solver, state = classes_at(tol=0.01)
    best, _ = _laplace.relax(state.notes, 60)
    gain = best.objective - state.objective
    asked = []
    for offered, largest in ((0.5 * gain, gain), (2.0 * gain, 2.0 * gain)):
        monkeypatch.setattr(_laplace, "grow", lambda *given, most=offered: asked.append(given[2:]) or (None, most))
        assert gain > 0.0 and solver._certificate(state.notes) == pytest.approx(largest, rel=1e-6)
    assert asked == [(1, 0.01)] * 2


def test_how_a_fixed_point_of_classes_ends():
    problem, solver, state = classes_at()
    assert not solver.finishing(state) and solver.status(problem, state) is Status.FIXED_POINT
