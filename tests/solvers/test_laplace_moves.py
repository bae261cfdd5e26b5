"""Moves of a search for classes or counts: which are tried, which are kept, and where a search begins anew."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from problems import classes_of
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.runtime.clock import Clock
from relvec.solvers._native.laplace import Mode
from relvec.solvers.laplace import moves, precisions, search
from relvec.solvers.laplace.moves import LaplaceSettings
from relvec.solvers.laplace.precisions import PrecisionSettings, relax
from relvec.solvers.laplace.problem import LaplaceModel, empty_model
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


def test_how_a_search_begins_anew(monkeypatch):
    here, problem = in_search()
    monkeypatch.setattr(search, "run_mackay", lambda model, work: ("MacKay", work))
    monkeypatch.setattr(search, "empty_model", lambda problem: "empty")
    monkeypatch.setattr(search, "anneal", lambda model, batch, work: ("anneal", batch, work))
    monkeypatch.setattr(search, "drop_units", lambda model: "drop")
    problem.budget.first, problem.budget.spent = 4.0, 5.0
    begun = [here._begin_anew(here.model, turn, 9.0) for turn in range(5)]
    assert begun == [("MacKay", 9.0), "empty", ("anneal", 1, 9.0), "drop", "drop"]
    assert here._begin_anew(here.model, 1, 8.9) is None  # less than the way from nothing took


def test_restarts_share_the_work_of_the_way_to_the_first_maximum(monkeypatch):
    limits, share = [], moves.SETTINGS.restart_share
    here, problem = in_search()
    monkeypatch.setattr(search.ModelInSearch, "_begin_anew", lambda self, model, turn, work: limits.append(work))
    problem.budget.spent = first = 1e9
    for turn in (0, 2, 4):
        problem.budget.spent = first
        assert here.restart(turn, None, True, np.inf) is None
    assert problem.budget.first == first
    assert limits == pytest.approx([first * (1.0 + own * share) for own in (3, 3, 5)])  # three shares at least
    problem.budget.spent = first * (1.0 + 3 * share)
    assert here.restart(0, None, True, np.inf) is None and len(limits) == 3
    other, problem = in_search()
    problem.budget.spent = 100.0  # less than a restart costs at least
    other.restart(1, None, True, np.inf)
    assert limits[-1] == pytest.approx(100.0 + 3 * moves.SETTINGS.min_restart_ns)
    late = replace(other, problem=replace(problem, clock=Clock(0.0)))
    assert late.restart(0, None, True, np.inf) is None and len(limits) == 4


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)])
def test_mackays_updates_begin_with_every_unit(likelihood, share):
    """T01 eq. (16), and units of little gamma leave; the way is that of the fixed point."""
    model, _ = classes_of(likelihood=likelihood, share=share and likelihood.n_outputs > 1)
    problem, most = model.problem, moves.SETTINGS.max_update
    found = moves.run_mackay(model, np.inf)
    alpha = np.full(problem.n_units, 1.0 / problem.weights.sum())
    expected = LaplaceModel(problem, np.arange(problem.n_units), problem.fit(np.arange(problem.n_units), alpha))
    for _ in range(12):
        p, k = expected.posterior, problem.per_unit
        gamma, squares = (v.reshape(-1, k).sum(axis=1) for v in (1.0 - p.alpha * p.variance, p.mean**2))
        stay = gamma / k > 0.02
        alpha = np.clip(gamma / squares, expected.alpha / most, most * expected.alpha)
        expected = LaplaceModel(problem, expected.active[stay], problem.fit(expected.active[stay], alpha[stay]))
    assert 0 < len(found.active) < problem.n_units and found.active.tolist() == expected.active.tolist()
    np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-5)


def test_mackays_updates_of_a_long_dictionary_begin_with_as_many_units_as_their_work_allows(monkeypatch):
    model, _ = classes_of(likelihood=Bernoulli(), M=64)
    problem, begun = model.problem, []
    monkeypatch.setattr(moves, "begin_with", lambda problem, units: begun.append(units) or model)
    budget = problem.budget
    for size in (64, 32, 16, 8):
        work = budget.spent + 1.01 * moves.SETTINGS.mackay_modes * problem.mode_ns(size) / moves.SETTINGS.mackay_share
        moves.run_mackay(model, work)
        assert set(model.active) <= set(begun[-1]) and size <= len(begun[-1]) <= size + 2 * (size < 64)
    moves.run_mackay(model, budget.spent)
    assert len(begun[-1]) <= 2 * len(model.active)
    assert np.all(np.diff(begun[1]) > 0) and not np.array_equal(begun[1], np.arange(32))


def test_limits_of_time_and_work():
    _, problem = in_search()
    problem.budget.spent = 5.0
    assert problem.open_to(np.inf) and problem.open_to(5.1) and not problem.open_to(5.0)
    assert not replace(problem, clock=Clock(0.0)).open_to(np.inf)


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
    assert not released.offers and not released.cut


def test_models_that_a_search_begins_with():
    for share in (False, True):
        _, problem = in_search(Categorical(3), share=share)
        units = [2] if share else [2, 14, 26]
        begun = search.begin_laplace(problem, True)
        assert set(begun.active) <= set(units) and len(begun.active)
        assert search._bias_units(problem).tolist() == units
        assert len(search.begin_laplace(problem, False).active) == 0
        assert begun.model.problem.trusted == 0.7 and begun.problem is problem
    start = np.array([4, 6]), np.array([0.5, 2.0])
    given = search.begin_laplace(replace(problem, share=False, start=start), True)
    assert given.active.tolist() == [4, 6] and given.model.alpha.tolist() == [0.5, 2.0]
    nothing = replace(problem, share=False, start=(start[0][:0], start[1][:0]))
    assert set(search.begin_laplace(nothing, True).active) <= {2, 14, 26}


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
        found = moves.temper(begin, loose)
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
        grid, of_first = np.multiply(settings.faint_precisions, S[order[0]]), [a for u, a in tried if u == order[0]]
        np.testing.assert_allclose(of_first[: len(grid)], grid)
        assert all(grid.min() < a < grid.max() for a in of_first[len(grid) :])  # tops between these
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


@pytest.mark.parametrize("top", [-1.1, -0.2, 0.0, 0.9])
def test_a_parabola_through_three_points_shows_its_top(top):
    x = np.array([-2.0, 0.0, 1.5])
    assert moves._top_of_parabola(x, 3.0 - (x - top) ** 2 / 7.0) == pytest.approx(top)
    assert -2.0 <= moves._top_of_parabola(x, np.zeros(3)) <= 1.5


def watch_additions(monkeypatch, value=None):
    """Note the units that are added; with a value, additions end there and nowhere else."""
    tried, add = [], LaplaceModel.add

    def watched(self, units, alpha, start):
        tried.append(units.tolist())
        found = add(self, units, alpha, start)
        if value is not None:
            object.__setattr__(found, "objective", value)
        return found

    monkeypatch.setattr(LaplaceModel, "add", watched)
    return tried


@pytest.mark.parametrize("price", [0.0, 0.3])
def test_units_alike_to_one_that_was_refuted_are_not_tried(price, monkeypatch):
    model, found = classes_of(likelihood=Bernoulli(), M=60, price=price)
    tried = watch_additions(monkeypatch, -1e9)
    grown, most = moves.grow(model, found, 1, 0.01)
    gains = found.gains - price
    alike, expected = found.correlations(model, np.arange(60)), []
    while len(expected) < 6 and gains.max() > 0.01:
        expected.append(int(np.argmax(gains)))
        gains[alike[expected[-1]] > 0.99] = 0.0
    assert grown is None and most == max(0.0, gains.max() if len(expected) < 6 else 0.0)
    assert tried == [[unit] for unit in expected] and len(expected) > 3


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_a_batch_is_of_units_that_hardly_overlap(likelihood, batch, monkeypatch):
    model, found = classes_of(likelihood=likelihood, M=60)
    tried = watch_additions(monkeypatch, -1e9)
    monkeypatch.setattr(moves, "SETTINGS", LaplaceSettings(max_refuted=1))
    moves.grow(model, found, batch, 0.01)
    near = [i for i in np.argsort(-found.gains) if found.gains[i] >= 0.3 * found.gains.max()][: 8 * batch]
    close, chosen = found.correlations(model, np.array(near)), []
    for place in range(len(near)):
        if len(chosen) < batch and all(close[place, other] <= 0.3 for other in chosen):
            chosen.append(place)
    units = [near[place] for place in chosen]
    halves = [units[: len(units) >> k] for k in range(4) if len(units) >> k]
    assert tried == halves


def test_a_refuted_addition_is_one_that_loses_half_of_its_promise():
    """Or that gains less than a tenth of tol with precisions at their best."""
    model, found = classes_of(likelihood=Bernoulli())
    grown, gain = moves.grow(model, found, 1, 1e-3)
    assert gain == pytest.approx(grown.objective - model.objective) and gain > 1e-4
    assert len(grown.active) >= 1 and grown.trust >= min(0.5, model.trust)
    none, most = moves.grow(model, found, 1, 1e3)
    assert none is None and most == pytest.approx(found.gains.max())


def test_deletions_that_gain():
    model, _ = classes_of(likelihood=Bernoulli())
    poor = model.add(np.array([5, 9]), np.array([30.0, 1e3]), np.zeros(2))
    fewer, gain = moves.shrink(poor, 1e-3)
    assert gain == pytest.approx(fewer.objective - poor.objective) and gain > 1e-3 and len(fewer.active) < 4
    none, most = moves.shrink(poor, 1e3)
    assert none is None and most >= gain
    priced = replace(poor, problem=replace(poor.problem, price=0.5))
    cheaper, saved = moves.shrink(priced, 1e-3)
    assert saved == pytest.approx(cheaper.objective - priced.objective) and saved >= 0.5
    assert moves.shrink(empty_model(model.problem), 1e-3) == (None, 0.0)
    assert moves.exchange(empty_model(model.problem), scan(empty_model(model.problem)), 1e-3) == (None, 0.0)


def test_exchanges_that_gain():
    model, _ = classes_of(likelihood=Bernoulli(), M=60)
    model = relax(model, 60)[0]
    found = scan(model)
    other, gain = moves.exchange(model, found, 1e-3)
    if other is not None:
        assert gain == pytest.approx(other.objective - model.objective) and gain > 1e-3
        assert other.trust >= min(0.5, model.trust)
    none, most = moves.exchange(model, found, 1e3)
    assert none is None and most >= gain


@pytest.mark.parametrize(("likelihood", "most"), [(Bernoulli(), 14), (Categorical(3), 38)])
def test_a_heated_model_grows_to_twice_its_size_and_ten_units_of_every_class(likelihood, most, monkeypatch):
    model, _ = classes_of(likelihood=likelihood)
    sizes, weights = [], []

    def grow(held, found, batch, tol):
        sizes.append(len(held.active))
        weights.append(held.problem.weights.sum() / model.problem.weights.sum())
        assert batch == 1 and tol == 0.05
        return held.add(np.array([5]), np.array([3.0]), np.zeros(1)), 1.0

    monkeypatch.setattr(moves, "grow", grow)
    monkeypatch.setattr(moves, "relax", lambda model, steps: (model, 0.0))
    cool = moves.anneal(model, 1, np.inf)
    assert sizes == list(range(len(model.active), most)) and np.allclose(weights, 4.0)
    assert len(cool.active) == most and cool.problem is model.problem
    assert moves.anneal(model, 1, 0.0).active.tolist() == model.active.tolist()


def test_a_restart_that_leads_to_its_rival_or_far_below_it_is_given_up():
    model, _ = classes_of(likelihood=Poisson(), M=60)
    found, offers = moves.climb_by_moves(model, True, np.inf, empty_model(model.problem))
    assert set(offers) == {"add", "delete", "exchange"} and max(offers.values()) <= model.problem.tol
    assert moves.climb_by_moves(found, True, np.inf, found) == (None, {})
    high = replace(found, active=found.active + 1)
    for shortfall, given_up in ((1.4, False), (1.6, True)):
        object.__setattr__(high, "objective", found.objective + shortfall)
        assert (moves.climb_by_moves(found, True, np.inf, high)[0] is None) is given_up
    assert moves.climb_by_moves(found, False, np.inf, high)[0] is not None  # exchanges alone are dear
    assert moves.climb_by_moves(model, True, 0.0, empty_model(model.problem)) == (model, {})


def test_units_left_out_at_random():
    model, _ = classes_of(likelihood=Categorical(3), rng=np.random.default_rng(0))
    model = model.add(np.array([0, 20, 30]), np.ones(3), np.zeros(3))
    columns = model.problem.design.columns(model.active % 12)
    gram, sizes = np.abs(columns.T @ columns), set()
    for _ in range(40):
        fewer = moves.drop_units(model)
        gone = np.flatnonzero(~np.isin(model.active, fewer.active))
        sizes.add(len(gone))
        assert any(set(np.argsort(-row)[: len(gone)]) == set(gone) for row in gram)
    assert sizes == {1, 2, 3}
    two, one = model.drop(np.arange(7) > 1), model.drop(np.arange(7) > 0)
    assert len(moves.drop_units(two).active) == 1 and moves.drop_units(one) is one


class TestPrecisions:
    """Steps on the precisions of a support."""

    def test_nothing_is_expected_of_an_empty_model(self):
        empty = empty_model(classes_of(likelihood=Bernoulli())[0].problem)
        assert relax(empty, 5) == (empty, 0.0)

    def test_a_step_that_would_leave_the_region_of_trust_is_the_last(self):
        model, _ = classes_of(likelihood=Bernoulli())
        model = replace(model, problem=replace(model.problem, trusted=0.999 * model.trust))
        moved, expected = relax(model, 60)
        assert moved.trust >= 0.999 * model.trust and expected == 0.0
        assert model.problem.budget.crossings > 0

    @pytest.mark.parametrize("likelihood", [Poisson(), Categorical(3)])
    def test_what_is_expected_of_a_short_step_is_what_it_gains(self, likelihood):
        model, _ = classes_of(likelihood=likelihood)
        best, expected = relax(model, 60)
        assert best.objective > model.objective and abs(expected) < 1e-3 * model.problem.tol
        near = best.at(best.alpha * 1.02, best.fit.mean)
        moved, expected = relax(near, 1)
        assert expected == pytest.approx(moved.objective - near.objective, rel=0.2)

    def test_long_steps_are_tried_in_every_precision_up_and_down(self, monkeypatch):
        model, _ = classes_of(likelihood=Poisson(), thorough=True)
        model = model.at(20.0 * model.alpha, model.fit.mean)
        tried, step_to = [], LaplaceModel.step_to

        def watched(self, step, predict):
            tried.append(np.exp(step).tolist())
            assert not predict
            return step_to(self, step, predict)

        monkeypatch.setattr(LaplaceModel, "step_to", watched)
        settings = PrecisionSettings(max_long_loss_nats=np.inf)
        monkeypatch.setattr(precisions, "PRECISIONS", settings)
        best = precisions.try_long_steps(model)
        ones = []
        for sign, i, factor in itertools.product((1.0, -1.0), range(2), settings.long_factors):
            ones.append([factor**sign if i == j else 1.0 for j in range(2)])
        s, q = model.posterior.sparsity_quality()  # and at the optimum of the linearised problem
        ones += [
            np.where(np.arange(2) == i, s[i] ** 2 / (q[i] ** 2 - s[i]) / model.alpha, 1.0).tolist() for i in (0, 1)
        ]
        np.testing.assert_allclose(tried, ones)
        trials = [step_to(model, np.log(step), False) for step in ones]
        allowed = [m.objective for m in trials if m.trust >= min(model.problem.trusted, model.trust)]
        assert best.objective == pytest.approx(max(model.objective, *allowed)) and best is not model
        # a step that loses much is the last in its direction
        monkeypatch.setattr(precisions, "PRECISIONS", PrecisionSettings(max_long_loss_nats=-1e9))
        tried.clear()
        precisions.try_long_steps(model)
        assert len(tried) == 6
        assert (
            precisions.try_long_steps(replace(model, problem=replace(model.problem, thorough=False))).fit is model.fit
        )
        monkeypatch.setattr(precisions, "PRECISIONS", PrecisionSettings(max_long_units=1))
        assert precisions.try_long_steps(model) is model

    def test_a_precision_so_large_that_the_evidence_is_flat_comes_back(self):
        model, _ = classes_of(likelihood=Poisson(), thorough=True)
        best = relax(model, 60)[0]
        far = best.at(best.alpha * [1e6, 1.0], best.fit.mean)
        assert relax(far, 1)[1] < best.objective - far.objective
        back = precisions.try_long_steps(far)
        assert best.objective - back.objective < 0.1 * (best.objective - far.objective)

    def test_steps_are_no_longer_than_three(self):
        model, _ = classes_of(likelihood=Poisson())
        for step in (np.array([1.0, -0.5]), np.array([2.0, 6.0]), np.array([-12.0, 3.0])):
            moved = precisions.step_to(model, step.copy())
            np.testing.assert_allclose(np.log(moved.alpha / model.alpha), step * min(1.0, 3.0 / np.abs(step).max()))

    def test_units_whose_deletion_was_refused_are_not_tried_again(self, monkeypatch):
        model, _ = classes_of(likelihood=Bernoulli())
        poor = model.add(np.array([5, 9]), np.array([30.0, 1e3]), np.zeros(2))
        _, dead = precisions.deletion_gains(poor)
        assert dead.any()
        assert not np.isin(poor.active[dead], precisions.prune(poor).active).all()
        monkeypatch.setattr(precisions, "not_lower", lambda new, old: False)
        kept = precisions.prune(poor)
        assert kept.refused == set(poor.active[dead].tolist()) and kept.active is poor.active
        monkeypatch.undo()
        assert precisions.prune(kept) is kept

    def test_a_step_along_the_edge_of_trust_ends_on_it(self):
        model, _ = classes_of(likelihood=Bernoulli())
        edge = precisions._Edge(model, 0.99 * model.trust)
        normal, room = edge.normal, -np.log(0.99)
        system = SimpleNamespace(step=lambda damping, direction: 0.5 * direction)
        inside = -0.9 * room / (normal @ normal) * normal
        assert edge.keep(system, inside, 0.0) is inside and edge.price == 0.0
        for margin in (0.0, 0.3 * room):
            edge.margin = margin
            found = edge.keep(system, 2.0 * inside, 0.0)
            assert normal @ found == pytest.approx(margin - room)
            np.testing.assert_allclose(found - 2.0 * inside, 0.5 * edge.price * normal)
        step = 2.0 * inside
        assert edge.keep(SimpleNamespace(step=lambda *_: None), step, 0.0) is step and edge.price == 0.0

    def test_what_crosses_the_edge_is_aimed_short_of_it(self):
        model, _ = classes_of(likelihood=Bernoulli())
        edge, budget = precisions._Edge(model, 0.5), model.problem.budget
        before = budget.crossings
        assert not edge.is_crossed_by(SimpleNamespace(trust=0.5)) and edge.margin == 0.0 and budget.crossings == before
        assert edge.is_crossed_by(SimpleNamespace(trust=0.4)) and edge.margin == pytest.approx(1.2 * np.log(0.5 / 0.4))
        assert edge.is_crossed_by(SimpleNamespace(trust=0.25)) and budget.crossings == before + 2
        assert edge.margin == pytest.approx(1.2 * np.log(2.5))
        patient = replace(model, problem=replace(model.problem, patient=True))
        for least, near in ((model.trust / 1.0005, True), (model.trust / 1.002, False)):
            assert precisions._Edge(patient, least).near is near and not precisions._Edge(model, least).near

    def test_how_far_steps_may_lead(self):
        """Twice what the quadratic model expects, or ten times that of a damped one where it has no maximum."""
        model, _ = classes_of(likelihood=Poisson())
        best = relax(model, 60)[0]
        far = best.at(1.1 * best.alpha, best.fit.mean)
        system = far.system()
        expected = 0.5 * float(system.gradient @ system.step(0.0))
        assert precisions.within_reach(far, far.objective + 1.99 * expected)
        assert not precisions.within_reach(far, far.objective + 2.01 * expected)
        assert precisions.within_reach(far, far.objective) and precisions.within_reach(far, far.objective - 1.0)
        empty = empty_model(model.problem)
        assert precisions.within_reach(empty, empty.objective) and not precisions.within_reach(empty, 0.0)

    @pytest.mark.parametrize("share", [False, True])
    def test_what_deletions_gain_in_the_linearised_problem(self, share):
        model, _ = classes_of(share=share)
        p, problem = model.posterior, model.problem
        gains, dead = precisions.deletion_gains(model)
        each = -0.5 * (np.log(p.alpha * p.variance) + p.mean**2 / p.variance)
        s, q = p.sparsity_quality()
        np.testing.assert_allclose(gains, problem.gather(each))
        if share:
            expected = (problem.gather(q**2 - s) <= 0.0) & (gains >= 0.0)
        else:
            expected = q**2 <= s
        np.testing.assert_array_equal(dead, expected)


def trials_at(objective, trust=lambda x: 1.0, gain=0.0, fit=None):
    """Logarithms of precisions over S at which a unit is added, where the evidence is a function of these."""
    S, tried = 0.4, []

    def add(units, alpha, start):
        x = float(np.log(alpha[0] / S))
        assert units.tolist() == [1] and start[0] == pytest.approx(0.3 / (alpha[0] + S))
        tried.append(x)
        return SimpleNamespace(objective=5.0 + objective(x), trust=trust(x))

    model = SimpleNamespace(objective=5.0, trust=0.8, problem=SimpleNamespace(trusted=0.6), add=add, fit=fit)
    classes = [SimpleNamespace(S=np.array([9.0, S]), Q=np.array([9.0, 0.3]))]
    found = SimpleNamespace(classes=classes, gains=np.array([9.0, gain]))
    assert len(moves._add_at_precisions(model, found, 1)) == len(tried)
    return np.array(tried)


GRID = np.log(moves.SETTINGS.faint_precisions)


@pytest.mark.parametrize("top", [-2.0, 0.7, 4.0])
def test_a_unit_is_added_at_the_top_between_two_precisions(top):
    tried = trials_at(lambda x: 0.01 - 0.05 * (x - top) ** 2)
    np.testing.assert_allclose(tried[: len(GRID)], GRID)
    assert len(tried) == len(GRID) + 1 and tried[-1] == pytest.approx(top)
    # tops where it loses much, and slopes without a top, are left alone
    for other in (lambda x: -0.3 - 0.05 * (x - top) ** 2, lambda x: -0.01 * x, lambda x: 0.01 * x):
        assert len(trials_at(other)) == len(GRID)


@pytest.mark.parametrize("rising", [1.0, -1.0])
def test_a_unit_is_added_up_to_the_edge_of_trust(rising):
    """The limit is that of the problem, or the model's own where that is less."""
    edge = 0.37
    tried = trials_at(lambda x: 0.2 + 0.05 * rising * x, lambda x: 0.7 if rising * x < rising * edge else 0.5)
    x, places = np.sort(GRID), []
    near, far = (x[x < edge].max(), x[x > edge].min())[:: int(rising)]
    for _ in range(moves.SETTINGS.edge_halvings):
        places.append(0.5 * (near + far))
        near, far = (places[-1], far) if rising * places[-1] < rising * edge else (near, places[-1])
    np.testing.assert_allclose(tried[len(GRID) :], places)
    # nothing lies at an edge where neither side gains
    assert len(trials_at(lambda x: -0.1 + 0.001 * x, lambda x: 0.7 if x < edge else 0.5)) == len(GRID)
    assert len(trials_at(lambda x: 0.2 + 0.05 * x, lambda x: 0.65 if x < edge else 0.61)) == len(GRID)


def test_a_unit_that_loses_much_at_first_is_tried_further_where_the_scan_may_err():
    lost, mode = lambda x: -1.0 - x**2, in_search()[0].model.fit
    assert isinstance(mode, Mode)
    assert len(trials_at(lost, fit=mode)) == 1
    assert len(trials_at(lost)) == len(trials_at(lost, gain=0.1, fit=mode)) == len(GRID)
    assert len(trials_at(lambda x: -0.19 - 0.0 * x, fit=mode)) > len(GRID)  # flat: each precision is a top
