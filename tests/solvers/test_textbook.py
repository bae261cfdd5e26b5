"""TF03 to the letter: statistics kept by its appendix are those of the model made anew."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from problems import BETA, dictionary, problem_of
from relvec.solvers import Sequential, Start
from relvec.solvers.active_set import prepare
from relvec.solvers.gaussian import textbook as _textbook
from relvec.solvers.gaussian.model import model_of


def textbook_state(alpha=(0.3, 1.0, 2.0), beta=BETA, **options):
    design, t = dictionary(width=0.7)
    problem, active = problem_of(design, t, **options), np.array([3, 12, 25])
    start = Start(active, np.array(alpha), beta)
    return problem, prepare(Sequential(select="gain")).init(replace(problem, start=start))


@pytest.mark.parametrize("alpha", [(0.3, 1.0, 2.0), (30.0, 1e4, 1e-3)])
def test_sparsity_and_quality_by_the_textbook(alpha):
    problem, state = textbook_state(alpha)
    s, q = _textbook._sparsity_quality(state.notes.model, _textbook._recompute(problem, state.notes.model))
    columns = problem.design.columns(np.arange(40))
    expected = oracle.s_q(columns, state.active, problem.target, np.array(alpha), BETA)
    np.testing.assert_allclose(s, expected[0], rtol=1e-6)
    np.testing.assert_allclose(q, expected[1], rtol=1e-6)


def test_which_atom_the_textbook_chooses():
    problem, state = textbook_state()
    stats = _textbook._recompute(problem, state.notes.model)
    s, q = _textbook._sparsity_quality(state.notes.model, stats)
    target = oracle.optimal_alpha(s, q)
    gains = np.zeros(40)
    columns = problem.design.columns(np.arange(40))
    for j in range(40):
        inside = j in state.active
        if inside or np.isfinite(target[j]):
            gain = oracle.gain_reestimate if inside else oracle.gain_add
            gains[j] = gain(columns, state.active, problem.target, state.posterior.alpha, BETA, j)
    assert _textbook._choose(problem, state.notes.model, stats, s, q, "gain") == np.argmax(gains)
    useful = np.flatnonzero(np.isfinite(target) | np.isin(np.arange(40), state.active))
    for position in (0, 17, 39):
        ahead = useful[np.argmin((problem.order[useful] - position) % 40)]
        assert _textbook._choose(problem, state.notes.model, replace(stats, position=position), s, q, "order") == ahead
    assert _textbook._choose(problem, state.notes.model, stats, s, q, "random") in useful
    # changes of log alpha below 1e-6 are none
    for change, chosen in ((0.9e-6, None), (1.1e-6, 3)):
        s, q = np.ones(40), np.zeros(40)
        q[state.active] = np.sqrt(1.0 + 1.0 / state.posterior.alpha)  # whose optimum is alpha
        q[3] = np.sqrt(1.0 + np.exp(-change) / state.posterior.alpha[0])
        assert _textbook._choose(problem, state.notes.model, stats, s, q, "gain") == chosen
    # nor is what is left of a combination of the model's atoms
    s, q = np.full(40, 1.0), np.zeros(40)
    q[state.active] = np.sqrt(1.0 + 1.0 / state.posterior.alpha)
    q[9] = 2.0
    for rest, chosen in ((0.5e-14 * BETA, None), (2e-14 * BETA, 9)):
        left = replace(stats, S=np.where(np.arange(40) == 9, rest, stats.S))
        assert _textbook._choose(problem, state.notes.model, left, s, q, "gain") == chosen


def test_acting_on_an_atom_keeps_the_statistics():
    problem, state = textbook_state()
    stats = replace(_textbook._recompute(problem, state.notes.model), age=4)
    for atom, alpha, action, active in ((7, 0.5, "add", [3, 12, 25, 7]), (12, np.inf, "delete", [3, 25]),
                                        (12, 4.0, "reestimate", [3, 12, 25])):  # fmt: skip
        did, now, alphas, new = _textbook._act(problem, state.notes.model, stats, atom, alpha)
        assert did == action and now.tolist() == active and new.age == 5 and new.position == 40 - atom
        exact = _textbook._recompute(problem, model_of(problem, Start(now, alphas, BETA)))
        for name in ("Sigma", "mu", "S", "Q", "cross"):
            np.testing.assert_allclose(getattr(new, name), getattr(exact, name), atol=1e-9, err_msg=name)


def test_a_move_that_drifted_statistics_promised_in_vain_is_chosen_anew_from_fresh_ones(monkeypatch):
    """Those of fresh ones end the steps of TF03."""
    problem, state = textbook_state()
    old = replace(_textbook._recompute(problem, state.notes.model), age=5)
    monkeypatch.setattr(_textbook, "not_lower", lambda new, old: False)
    for statistics, ended in ((old, False), (None, True)):
        begun = state.stepped(notes=state.notes.but(statistics=statistics))
        after = _textbook.textbook_step(problem, begun, Sequential(select="gain"))
        assert after.notes.polishing is ended and after.action == "" and after.objective == state.objective
        assert (after.notes.statistics is None) is ended
        assert ended or after.notes.statistics.age == 0
