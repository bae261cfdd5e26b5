"""Moves of a search for classes or counts: which are tried, which are kept, and where a search begins anew."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from problems import classes_of
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.solvers.laplace import moves, search
from relvec.solvers.laplace.moves import LaplaceSettings, Limit
from relvec.solvers.laplace.precisions import relax
from relvec.solvers.laplace.problem import LaplaceModel
from relvec.solvers.laplace.scan import scan

TOL = 1e-3


def in_search(likelihood=None, **options):
    """A model in a search, and its problem."""
    model, _ = classes_of(likelihood=likelihood or Bernoulli(), bias=2, **options)
    return search.keep(model, model.problem), model.problem


def test_a_move_is_looked_for_once():
    here, problem = in_search()
    grown, spent = here.grow(1, TOL), problem.budget.spent
    assert grown is not None and here.grow(1, TOL) is grown and problem.budget.spent == spent
    none = here.exchange(1e6)
    assert none is None and here.offers["exchange"] >= 0.0
    spent = problem.budget.spent
    assert here.exchange(1e6) is None and problem.budget.spent == spent


@pytest.mark.parametrize(
    ("turn", "active", "work", "begun"),
    [
        (0, True, 10.0, ("empty", (2,))), (0, True, 8.9, None), (0, True, 9.0, ("empty", (2,))), (0, False, 10.0, None),
        (1, True, 10.0, ("empty", ())), (1, False, 10.0, ("empty", ())), (1, True, 8.9, None),
        (2, True, 0.0, ("anneal", 4.0)), (3, False, 0.0, ("anneal", 10.0)), (4, True, 0.0, ("drop",)),
        (7, True, 0.0, ("drop",)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("K", [1, 3])
def test_how_a_search_begins_anew(K, turn, active, work, begun, monkeypatch):
    """Without the constant, by single additions, from heated likelihoods, after removals."""
    here, problem = in_search(Categorical(3) if K > 1 else Bernoulli())
    monkeypatch.setattr(search, "anneal", lambda model, heat, batch, limit: ("anneal", heat))
    monkeypatch.setattr(search, "drop_atoms", lambda model: ("drop",))
    monkeypatch.setattr(search, "empty_model", lambda problem: ("empty", problem.closed))
    problem.budget.first = 4.0
    model = here.model if active else here.model.drop(here.model.active == 2)
    problem.budget.spent = 5.0
    assert here._begin_anew(model, turn, Limit(work=work)) == begun


def test_restarts_share_the_work_of_the_way_to_the_first_maximum(monkeypatch):
    limits = []
    here, problem = in_search()
    monkeypatch.setattr(search.ModelInSearch, "_begin_anew", lambda self, model, turn, limit: limits.append(limit))
    problem.budget.spent = 1e9
    for turn in (0, 2, 4):
        assert here.restart(turn, None, True, np.inf) is None
    assert problem.budget.first == 1e9
    assert [limit.work / 1e9 for limit in limits] == pytest.approx([1.3, 1.3, 1.5])  # a tenth each, three at least
    problem.budget.spent = 1.2999e9
    here.restart(0, None, True, np.inf)
    problem.budget.spent = 1.3e9
    here.restart(0, None, True, np.inf)
    assert here.restart(0, None, True, -1.0) is None
    assert len(limits) == 4
    other, problem = in_search()
    problem.budget.spent = 100.0  # less than a restart costs at least
    other.restart(0, None, True, 7e9)
    assert limits[-1].work == pytest.approx(100.0 + 3 * 2.5e7) and limits[-1].deadline == 7e9


def test_limits_of_time_and_work():
    problem = SimpleNamespace(budget=SimpleNamespace(spent=5.0))
    assert Limit().open(problem) and Limit(work=5.1).open(problem) and not Limit(work=5.0).open(problem)
    assert not Limit(deadline=0.0).open(problem)


def test_classes_are_restarted_as_often_as_is_asked_for_and_never_at_the_edge():
    here, _ = in_search()
    assert [here.may_restart(turn, 9, 3) for turn in (0, 2, 3)] == [True, True, False]
    assert not any(here.repeats(turn) for turn in range(5))
    assert not search.keep(here._free(True), here.problem).may_restart(0, 0, 3)


def test_a_higher_limit_of_trust_is_let_go_where_it_cut_moves_short():
    here, problem = in_search()
    held = replace(here, model=replace(here.model, problem=replace(problem, trusted=0.7)))
    assert held.release() is None and replace(here, cut={"add"}).release() is None
    released = replace(held, cut={"add"}).release()
    assert released.model.problem.trusted == problem.trusted and released.objective == here.objective
    assert not released.offers and not released.cut and released.start is here.start


def test_models_that_a_search_begins_with():
    for share in (False, True):
        _, problem = in_search(Categorical(3), share=share)
        units = [2] if share else [2, 14, 26]
        begun = search.begin(problem, True)
        assert set(begun.active) <= set(units) and len(begun.active)
        assert search._bias_units(problem).tolist() == units
        assert len(search.begin(problem, False).active) == 0
        assert begun.model.problem.trusted == 0.7 and begun.problem is problem
    start = np.array([4, 6]), np.array([0.5, 2.0])
    given = search.begin(replace(problem, share=False, start=start), True)
    assert given.active.tolist() == [4, 6] and given.model.alpha.tolist() == [0.5, 2.0]
    nothing = replace(problem, share=False, start=(start[0][:0], start[1][:0]))
    assert set(search.begin(nothing, True).active) <= {2, 14, 26}


def test_sharper_precisions_are_kept_where_they_raise_the_objective():
    here, problem = in_search(Poisson())
    settled = here.settle(TOL)
    sharp = settled.sharpen()
    assert sharp.objective >= settled.objective - 1e-12 and "reestimate" in sharp.offers
    assert sharp.model.problem.patient and sharp.model.problem.thorough and "add" not in sharp.offers
    gradient = sharp.model.system().gradient
    free = problem.trusted * (1.0 + 1e-6) < sharp.model.trust
    assert not free or np.abs(gradient).max() < 1e-5
    # what moves would have gained is known still where the model is the same, but for additions
    known = replace(sharp, offers={"add": 0.5, "delete": 0.25, "exchange": 0.125}).sharpen()
    assert {name: known.offers[name] for name in ("delete", "exchange")} == {"delete": 0.25, "exchange": 0.125}
    assert "add" not in known.offers
    assert set(replace(here, offers={"delete": 0.25}).sharpen().offers) == {"reestimate"}  # another model
    cut = replace(sharp, offers={"delete": 0.25}, cut={"delete"}).sharpen()
    assert set(cut.offers) == {"reestimate"}


def test_a_settled_model_knows_what_moves_would_have_gained():
    here, _ = in_search()
    settled = here.settle(TOL)
    assert settled.objective > here.objective and set(settled.offers) == {"reestimate"}
    same = replace(settled, offers={"add": 0.5}, cut={"add"}).settle(TOL)
    assert same.offers["add"] == 0.5 and "add" in same.cut and same.offers["reestimate"] <= 0.1 * TOL
    other = replace(here, offers={"add": 0.5}).settle(TOL)
    assert "add" not in other.offers


def test_the_certificate_is_the_largest_of_what_moves_offer():
    here, _ = in_search()
    sharp = here.settle(TOL).sharpen()
    offers = {"add": 0.1, "delete": 0.2, "exchange": 0.4, "reestimate": 0.3}
    assert replace(sharp, offers=offers).largest_gain(True) == 0.4
    assert replace(sharp, offers={name: -1.0 for name in offers}).largest_gain(True) == 0.0
    unknown = replace(sharp, offers={"delete": 0.0, "reestimate": 0.0, "exchange": 0.0}, found={})
    gain = unknown.largest_gain(True)
    grown = unknown.grow(1, TOL)
    assert gain == pytest.approx(max(0.0, unknown.offers.get("add", 0.0)) if grown is None else
                                 grown.objective - unknown.objective)  # fmt: skip
    without = replace(sharp, offers={"add": 0.0, "delete": 0.0, "reestimate": 0.0}, found={})
    assert without.largest_gain(False) == 0.0 and "exchange" not in without.offers | without.found


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)])
def test_models_beyond_the_region_of_trust_are_tempered(likelihood):
    """By updates of T01 eq. (16), upwards and by at most a thousand times each."""
    model, _ = classes_of(likelihood=likelihood)
    loose = replace(model, problem=replace(model.problem, trusted=0.9))
    for alpha in (np.full(len(model.alpha), 1e-9), 0.02 * model.alpha, model.alpha):
        begin = loose.at(alpha, loose.fit.mean)
        steps, expected = 0, begin
        while steps < 4 and expected.trust < min(0.9, loose.trust):
            p = expected.posterior
            new = (1.0 - p.alpha * p.variance) / p.mean**2
            expected = expected.at(np.clip(new, expected.alpha, 1e3 * expected.alpha), p.mean)
            steps += 1
        crossings = model.problem.budget.crossings
        found = moves.tempered(begin, loose)
        np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-6)
        assert model.problem.budget.crossings - crossings == steps


def test_faint_units_are_tried_in_order_of_their_ratio(monkeypatch):
    model, _ = classes_of(likelihood=Poisson(), thorough=True)
    model = relax(model, 60)[0]
    tried = []
    add = LaplaceModel.add

    def watched(self, units, alpha, start):
        tried.append((int(units[0]), float(alpha[0])))
        return add(self, units, alpha, start)

    monkeypatch.setattr(LaplaceModel, "add", watched)
    found = scan(model)
    found.gains[:] = 0.0
    S, Q = found.classes[0].S, found.classes[0].Q
    ratio = np.where(found.outside[0], Q**2 / S, 0.0)
    order = [j for j in np.argsort(-ratio) if ratio[j] >= 0.1]
    for times, count in ((2500, 62), (80, 3), (40 * 4, 4)):
        tried.clear()
        settings = LaplaceSettings(faint_additions_times_rows=times, max_faint_loss_nats=np.inf)
        monkeypatch.setattr(moves, "SETTINGS", settings)
        moves._grow_faint(model, found, 1e9)
        assert list(dict.fromkeys(unit for unit, _ in tried)) == order[:count]
        np.testing.assert_allclose(
            [a for u, a in tried if u == order[0]], np.multiply(settings.faint_precisions, S[order[0]])
        )
    # one that loses much at the first precision is not tried at the others, unless the scan would add it
    monkeypatch.setattr(moves, "SETTINGS", LaplaceSettings(max_faint_loss_nats=-1e9))
    tried.clear()
    moves._grow_faint(model, found, 1e9)
    assert [unit for unit, _ in tried] == order
    found.gains[order[-1]] = 1e-3
    tried.clear()
    moves._grow_faint(model, found, 1e9)
    first = sorted(order, key=lambda unit: -ratio[unit] - (unit == order[-1]))
    expected = [unit for unit in first for _ in range(10 if unit == order[-1] else 1)]
    assert [unit for unit, _ in tried] == expected
