"""TF03 to the letter: the unit that a step chooses, and what it does to the model, against the formulas of TF03."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from problems import BETA, classes_of, dictionary, problem_of
from relvec.inference.likelihoods import Bernoulli, Categorical
from relvec.solvers import Sequential
from relvec.solvers.active_set import prepare
from relvec.solvers.gaussian import textbook
from relvec.solvers.gaussian.textbook import GaussianView, Memory, choose_move, take_step, textbook_step
from relvec.solvers.laplace.search import ModelInSearch
from relvec.solvers.laplace.solve import LaplaceView
from relvec.solvers.loop import Start, State
from relvec.solvers.sequential import Notes

ACTIVE = np.array([3, 12, 25])


def view_of(alpha=(0.3, 1.0, 2.0), beta=BETA, **options):
    """A Gaussian model as the steps of TF03 see it, with its columns (n, 40), targets and the state it begins in."""
    design, t = dictionary(width=0.7)
    problem = problem_of(design, t, **options)
    state = prepare(Sequential(select="gain")).init(replace(problem, start=Start(ACTIVE, np.array(alpha), beta)))
    return GaussianView(problem, state.notes.model), design.columns(np.arange(40)), t, state


@pytest.mark.parametrize("alpha", [(0.3, 1.0, 2.0), (30.0, 1e4, 1e-3)])
def test_sparsity_and_quality(alpha):
    view, columns, _, _ = view_of(alpha)
    s, q, _ = view.statistics()
    expected = oracle.s_q(columns, ACTIVE, view.problem.target, np.array(alpha), BETA)
    np.testing.assert_allclose(s, expected[0], rtol=1e-6)
    np.testing.assert_allclose(q, expected[1], rtol=1e-6)


def test_the_action_of_largest_gain_is_chosen():
    view, columns, _, state = view_of()
    s, q, _ = view.statistics()
    target, gains = oracle.optimal_alpha(s, q), np.zeros(40)
    for j in range(40):
        inside = j in ACTIVE
        if inside or np.isfinite(target[j]):
            gain = oracle.gain_reestimate if inside else oracle.gain_add
            gains[j] = gain(columns, ACTIVE, view.problem.target, view.search.posterior.alpha, BETA, j)
    best = int(np.argmax(gains))
    after = textbook_step(view.problem, state, Sequential(select="gain", noise_every=10**6))
    assert after.atom == best and after.objective - state.objective == pytest.approx(gains[best], abs=1e-8)
    position = int(view.rank()[best]) + 1
    assert after.notes.statistics.position == position


def test_other_ways_to_choose():
    useful, gains, ranks = np.arange(6) % 2 == 0, np.arange(6.0), np.array([5, 4, 3, 2, 1, 0])
    rng = np.random.default_rng(0)
    for position, chosen in ((0, 4), (1, 4), (2, 2), (4, 0), (6, 4)):
        assert choose_move(useful, gains, ranks, position, rng, "order") == chosen
    assert {choose_move(useful, gains, ranks, 0, rng, "random") for _ in range(50)} == {0, 2, 4}
    assert choose_move(useful, gains, ranks, 0, rng, "gain") == 4
    assert choose_move(useful & False, gains, ranks, 0, rng, "gain") is None


@pytest.mark.parametrize("atom", [7, 12])
def test_actions_are_those_of_the_appendix(atom):
    """S, Q and the posterior after an action are what TF03 A.2 to A.4 make of those before it."""
    view, columns, _, _ = view_of()
    rows, t = columns, view.problem.target

    def dense(active, alpha):
        m = oracle.model(rows, active, t, alpha, BETA)
        return m.Sigma, m.mu, m.S, m.Q

    cross, own, alpha = BETA * rows[:, ACTIVE].T @ rows, BETA * rows[:, atom] @ rows, view.search.posterior.alpha
    now = (*dense(ACTIVE, alpha), cross)
    moves = [("add", 0.5, [*ACTIVE, atom], lambda: oracle.update_add(*now, own, atom, 0.5))]
    if atom in ACTIVE:
        moves = [
            ("delete", np.inf, [3, 25], lambda: oracle.update_delete(*now, 1)),
            ("reestimate", 4.0, ACTIVE, lambda: oracle.update_reestimate(*now, 1, alpha[1], 4.0)),
        ]
    for action, precision, active, update in moves:
        moved = view.put(atom, precision)
        assert moved.search.active.tolist() == list(active) and moved.search.atom == atom, action
        Sigma, mu, S, Q = update()
        p = moved.search.full_posterior
        found = moved.search.core.scan()
        for name, value, exact in (("Sigma", p.covariance, Sigma), ("mu", p.mean, mu), ("S", found[0], S),
                                   ("Q", found[1], Q)):  # fmt: skip
            outside = np.setdiff1d(np.arange(40), active) if name in "SQ" else slice(None)
            np.testing.assert_allclose(value[outside], exact[outside], atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("change", "ended"), [(0.9e-6, True), (1.1e-6, False)])
def test_changes_below_a_millionth_are_none(change, ended, monkeypatch):
    view, _, _, state = view_of()
    s, q = np.ones(40), np.zeros(40)
    q[ACTIVE] = np.sqrt(1.0 + 1.0 / view.search.posterior.alpha)  # whose optimum is alpha
    q[3] = np.sqrt(1.0 + np.exp(-change) / view.search.posterior.alpha[0])
    monkeypatch.setattr(GaussianView, "statistics", lambda self: (s, q, np.ones(40, dtype=bool)))
    monkeypatch.setattr(GaussianView, "update_noise", lambda self: self)
    after = textbook_step(view.problem, state, Sequential(select="gain"))
    assert after.notes.polishing is ended and after.action == ("" if ended else "reestimate")


def test_what_is_left_of_a_combination_of_the_functions_of_the_model_does_not_enter():
    view, _, _, _ = view_of()
    search = view.search
    for rest, may in ((0.5e-14 * BETA, False), (2e-14 * BETA, True)):
        S, Q, gain = (values.copy() for values in search.core.scan())
        S[9] = rest

        class Core:
            precisions, beta = search.core.precisions, BETA

            def scan(self, S=S, Q=Q, gain=gain):
                return S, Q, gain

        class Found:
            active, full_posterior, core = search.active, search.full_posterior, Core()

        assert bool(GaussianView(view.problem, Found()).statistics()[2][9]) is may


def test_an_action_that_rounding_makes_lose_ends_the_steps(monkeypatch):
    view, _, _, state = view_of()
    monkeypatch.setattr(textbook, "not_lower", lambda new, old: False)
    after = textbook_step(view.problem, state, Sequential(select="gain"))
    assert after.notes.polishing and after.action == "" and after.objective == state.objective


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_units_that_left_enter_again_from_a_higher_evidence_only(likelihood):
    model, found = classes_of(likelihood=likelihood)
    here = ModelInSearch(model, model.problem)
    view = LaplaceView(model.problem, here)
    s, q, may = view.statistics()
    places = np.arange(model.problem.n_units)
    outside = np.setdiff1d(places, model.active)
    np.testing.assert_allclose(s[outside], np.concatenate([one.S for one in found.classes])[outside])
    np.testing.assert_allclose(q[model.active], model.posterior.sparsity_quality()[1])
    assert may.all()
    chosen, settings = [], Sequential(select="gain")
    for entered in (None, model.objective - 1e-6, model.objective):
        memory = None if entered is None else Memory(dict.fromkeys(outside.tolist(), entered))
        state = State(here.active, here.posterior, here.objective, notes=Notes(here, statistics=memory))
        after = take_step(LaplaceView, model.problem, state, settings)
        chosen.append(after.atom)
        assert len(after.active) == len(here.active) + (after.action == "add") - (after.action == "delete")
    best = int(np.argmax(np.where(np.isin(places, outside), found.gains, -1.0)))
    first = take_step(LaplaceView, model.problem, replace(state, notes=Notes(here)), settings)
    assert chosen[0] == chosen[1] == first.atom
    assert chosen[2] in model.active or chosen[2] == -1
    assert chosen[0] == best or chosen[0] in model.active
