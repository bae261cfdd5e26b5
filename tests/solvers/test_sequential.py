"""The order of moves of a sequential search, its restarts and its end, with a model that does what a script says."""

from types import SimpleNamespace

import numpy as np
import pytest

from problems import dictionary, problem_of
from relvec.inference.hyperpriors import GammaPrior
from relvec.runtime.clock import NO_LIMIT
from relvec.solvers import Sequential
from relvec.solvers import loop as _loop
from relvec.solvers.loop import Status, iterate
from relvec.solvers.sequential import Search

TOL = 1e-3


class Scripted:
    """A model whose moves gain, one after the other, what a script says; None is no move, and so is the end of it."""

    def __init__(self, script=None, objective=-10.0, size=0, atom=-1, log=None):
        self.script = {name: list(gains) for name, gains in (script or {}).items()} if log is None else script
        self.objective, self.size, self.atom, self.log = objective, size, atom, [] if log is None else log
        self.active = np.arange(size)
        self.posterior = SimpleNamespace(log_evidence=objective, alpha=np.ones(size), beta=4.0)
        self.full_posterior = self.posterior

    def _next(self, name, otherwise=None):
        return self.script[name].pop(0) if self.script.get(name) else otherwise

    def _move(self, name, *given, otherwise=None, more=0):
        self.log.append((name, *given))
        gain = self._next(name, otherwise)
        if gain is None:
            return None
        return Scripted(self.script, self.objective + gain, self.size + more, self.atom + 1, self.log)

    def grow(self, batch, tol, hold_noise=False):
        return self._move("grow", batch, hold_noise, more=1)

    def settle(self, tol):
        return self._move("settle", otherwise=0.0)

    def shrink(self, tol):
        return self._move("shrink", more=-1)

    def exchange(self, tol):
        return self._move("exchange")

    def release(self):
        return self._move("release")

    def restart(self, turn, batch, exchanging, deadline):
        return self._move("restart", turn, exchanging)

    def exchange_pairs(self, batch, deadline):
        return self._move("pairs", batch)

    def sharpen(self):
        return self._move("sharpen", otherwise=0.0)

    def largest_gain(self, exchanging):
        self.log.append(("largest_gain", exchanging))
        return self._next("largest_gain", 0.0)

    def may_restart(self, turn, failed, restarts):
        self.log.append(("may_restart", turn, failed))
        return turn < restarts

    def repeats(self, turn):
        return turn not in self.script.get("once", ())

    def admits(self, other):
        return self._next("admits", True)

    def ended(self):
        return Status.NOISE_FLOOR if self.script.get("floor") else None


def search(script=None, max_iter=100, one_at_a_time=None, **settings):
    """Run a search; return the result and the moves asked for, with what they were given."""
    model = Scripted(script)
    problem = SimpleNamespace(tol=TOL, tolerance=lambda size: TOL, clock=NO_LIMIT)
    solver = Search(Sequential(**settings), lambda problem, bias: model, one_at_a_time)
    return iterate(solver, problem, max_iter), model.log


def names(log, *some):
    return [call[0] for call in log if not some or call[0] in some]


END = ["grow", "shrink", "exchange", "release", "sharpen", "largest_gain"]


def test_nothing_to_gain():
    result, log = search(restarts=0)
    assert names(log, *END, "settle") == ["grow", "settle", *END]
    assert result.status is Status.CONVERGED and result.status.success and result.state.largest_gain == 0.0
    assert [step.action for step in result.history] == ["start", "reestimate", "reestimate"]
    assert result.n_iter == 3 and result.state.done and result.state.posterior is result.state.notes.model.posterior


def test_every_move_that_gains_is_followed_by_all_others():
    script = {"grow": [3.0, 2.0, None, 1.5], "shrink": [None, 0.5], "exchange": [0.25], "release": [0.0]}
    result, log = search(script, restarts=0, batch=7)
    assert names(log, *END, "settle") == [
        "grow", "grow", "grow", "settle", "grow", "grow", "settle", "grow", "shrink", "exchange",  # gains
        "grow", "settle", "grow", "shrink",  # gains
        "grow", "settle", "grow", "shrink", "exchange", "release",  # lets go of something
        "grow", "settle", *END,
    ]  # fmt: skip
    actions = [step.action for step in result.history]
    assert actions[:4] == ["start", "add", "add", "reestimate"]
    assert actions.count("add") == 3 and actions.count("exchange") == 1 and actions.count("delete") == 1
    assert "" not in actions  # what only lets go of a limit is no step
    assert result.state.objective == pytest.approx(-10.0 + 3.0 + 2.0 + 1.5 + 0.25 + 0.5)
    assert [step.size for step in result.history][-1] == 2
    np.testing.assert_allclose(
        [step.gain for step in result.history][1:], np.diff([step.objective for step in result.history])
    )
    assert all(step.noise_variance == 0.25 for step in result.history)
    assert all(call[1] == 7 for call in log if call[0] == "grow")


def test_the_noise_is_held_but_for_every_third_step():
    _, log = search({"grow": [1.0] * 7}, restarts=0, noise_every=3)
    assert [call[2] for call in log if call[0] == "grow"][:8] == [True, True, False, True, True, False, True, True]
    _, log = search({"grow": [1.0] * 3}, restarts=0)
    assert not any(call[2] for call in log if call[0] == "grow")


def test_without_exchanges_none_is_tried_nor_certified():
    _, log = search({"exchange": [1.0]}, restarts=1, exchange=False)
    assert "exchange" not in names(log)
    assert ("largest_gain", False) in log and ("restart", 0, False) in log
    _, log = search(restarts=1)
    assert ("largest_gain", True) in log and ("restart", 0, True) in log


@pytest.mark.parametrize(("offer", "status"), [(0.5 * TOL, Status.CONVERGED), (2.0 * TOL, Status.STOPPED)])
def test_the_rule_of_tf03_ends_a_search_without_further_moves(offer, status):
    result, log = search({"largest_gain": [offer], "shrink": [1.0]}, stop="tf03")
    assert names(log) == ["grow", "settle", "grow", "sharpen", "largest_gain"]
    assert result.status is status and result.state.largest_gain == offer


@pytest.mark.parametrize(
    ("offers", "status"),
    [((1.0, 0.0), Status.CONVERGED), ((1.0, 2.0, 0.0), Status.STALLED), ((TOL,), Status.CONVERGED)],
)
def test_moves_are_tried_once_more_where_the_certificate_names_one(offers, status):
    result, log = search({"largest_gain": offers}, restarts=0)
    count = min(len(offers), 2)
    assert names(log, "largest_gain", "sharpen", "shrink") == ["shrink", "sharpen", "largest_gain"] * count
    assert result.status is status and result.state.largest_gain == offers[count - 1]


def test_a_model_at_the_noise_floor_says_so():
    assert search({"floor": [True]})[0].status is Status.NOISE_FLOOR


@pytest.mark.parametrize(
    ("gain", "repeats", "turns", "failed"),
    [
        (1.0, True, [0, 0, 1], [0, 0, 1]),  # what gains a nat is tried again
        (0.999, True, [0, 1], [0, 0]),
        (0.125, True, [0, 1], [0, 0]),
        (0.0625, True, [0, 1], [0, 1]),  # what gains less than a tenth has failed
        (5.0, False, [0, 1], [0, 0]),
        (0.0, False, [0, 1], [0, 0]),
    ],
)
def test_restarts_are_judged_by_their_gain(gain, repeats, turns, failed):
    result, log = search({"restart": [gain, 0.0], "once": [] if repeats else [0]}, restarts=2)
    asked = [call[1:] for call in log if call[0] == "may_restart"]
    assert [turn for turn, _ in asked if turn < 2] == [*turns]
    assert [count for turn, count in asked if turn < 2] == [*failed]
    actions = [step.action for step in result.history]
    assert actions.count("restart") == (gain > TOL) and "" not in actions
    assert result.state.objective == pytest.approx(-10.0 + (gain if gain > TOL else 0.0))


def test_restarts_that_are_not_admitted_or_lead_nowhere():
    result, log = search({"restart": [9.0, None, 0.5], "admits": [False]}, restarts=3)
    assert [call[1] for call in log if call[0] == "restart"] == [0, 1, 2]
    assert [call[2] for call in log if call[0] == "may_restart" and call[1] in (1, 2)] == [1, 1]
    assert result.state.objective == pytest.approx(-9.5)
    # after one that is taken all moves are tried anew
    after = names(log)[len(names(log)) - names(log)[::-1].index("restart") :]
    assert after[:6] == ["grow", "settle", "grow", "shrink", "exchange", "release"]


@pytest.mark.parametrize(("gain", "count", "taken"), [(1.5, 2, True), (0.5, 1, True), (0.5 * TOL, 1, False)])
def test_pairs_are_exchanged_after_the_restarts_and_again_where_they_gain_a_nat(gain, count, taken):
    result, log = search({"pairs": [gain]}, restarts=1, batch=5)
    assert names(log, "pairs").count("pairs") == count and ("pairs", 5) in log
    assert names(log).index("pairs") > names(log).index("restart")
    assert [step.action for step in result.history].count("restart") == taken
    assert "pairs" not in names(search({"pairs": [gain]}, restarts=0)[1])
    assert "pairs" not in names(search({"pairs": [gain]}, exchange=False)[1])
    assert search({"pairs": [gain], "admits": [False]}, restarts=1)[0].state.objective == -10.0


@pytest.mark.parametrize(("fall", "lost"), [(0.5 * TOL, 0.0), (2.0 * TOL, 2.0 * TOL)])
def test_an_evidence_that_falls_when_evaluated_anew_hides_gains_as_large(fall, lost):
    result, _ = search({"sharpen": [-fall]}, restarts=0)
    assert result.state.largest_gain == pytest.approx(lost)
    assert result.status is (Status.STALLED if lost else Status.CONVERGED)


def test_evidences_of_a_billion_nats_may_fall_by_a_nat():
    model = Scripted({"sharpen": [-0.9]}, objective=-1e9)
    solver = Search(Sequential(restarts=0), lambda *_: model)
    problem = SimpleNamespace(tol=TOL, tolerance=lambda size: TOL, clock=NO_LIMIT)
    assert iterate(solver, problem, 100).status is Status.CONVERGED
    model = Scripted({"sharpen": [-1.1]}, objective=-1e9)
    solver = Search(Sequential(restarts=0), lambda *_: model)
    assert iterate(solver, problem, 100).status is Status.STALLED


def test_time_and_steps_are_limits(monkeypatch):
    now = [0.0]
    many = {"grow": [1.0] * 50}
    assert search(many, max_iter=4)[0].status is Status.MAX_ITER and search(many, max_iter=4)[0].n_iter == 4

    class Slow(list):
        def pop(self, *_):
            now[0] += 1.0
            return super().pop(0)

    model = Scripted()
    model.script = {"grow": Slow([1.0] * 50)}
    clock = SimpleNamespace(left=lambda: 5.5 - now[0], end=5.5)
    problem = SimpleNamespace(tol=TOL, tolerance=lambda size: TOL, clock=clock)
    solver = Search(Sequential(), lambda *_: model)
    result = iterate(solver, problem, 100)
    assert result.status is Status.TIME_LIMIT and result.n_iter == 6 and not result.status.success
    # a search whose precisions are settled begins no restart after its time, and ends with its certificate
    now[0], model = 0.0, Scripted()
    model.script = {"settle": Slow([0.0])}
    clock.left = lambda: 0.5 - now[0]
    result = iterate(Search(Sequential(), lambda *_: model), problem, 100)
    assert result.status is Status.CONVERGED and "restart" not in names(model.log)


def test_steps_of_tf03_come_first_where_they_are_asked_for():
    def once(problem, state, settings):
        notes = state.notes
        return state.stepped(action="noise", notes=notes.but(steps=notes.steps + 1, polishing=notes.steps == 2))

    result, log = search(one_at_a_time=once, select="gain", restarts=0)
    assert [step.action for step in result.history][:4] == ["start", "noise", "noise", "noise"]
    assert names(log, *END) == ["grow", *END]
    result, log = search(one_at_a_time=once, select="gain", stop="tf03")
    assert names(log) == ["largest_gain"] and result.state.done and result.n_iter == 3


@pytest.mark.parametrize("options", [
    {"batch": 0}, {"batch": 1.5}, {"noise_every": 0}, {"noise_every": None}, {"restarts": -1}, {"restarts": "3"},
    {"start": "middle"}, {"select": "best"}, {"stop": "never"}, {"max_iter": 0}, {"max_iter": "1"},
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Sequential(**options)


def test_settings_at_their_limits_are_taken():
    solver = Sequential(batch=1, noise_every=1, restarts=0)
    assert (solver.batch, solver.noise_every, solver.restarts) == (1, 1, 0) and Sequential().batch is None


def test_a_callback_ends_a_search(monkeypatch):
    told = []
    monkeypatch.setattr(_loop, "is_watched", lambda: True)
    monkeypatch.setattr(_loop, "report", lambda *what: told.append(what) or len(told) == 3)
    result, _ = search({"grow": [3.0, 2.0, 1.0]})
    assert result.status is Status.INTERRUPTED and result.n_iter == 2
    assert [size for size, *_ in told] == [0, 1, 2] and [value for _, value, _ in told] == [-10.0, -7.0, -5.0]


def test_how_far_a_search_is_told_by_its_gains():
    def fraction(gains, done=False):
        return _loop.progress_fraction(gains, 1e-2, done)

    assert np.isnan(fraction([100.0, 10.0, 1.0, 0.1])) and fraction([], True) == 1.0
    assert fraction([100.0, 10.0, -1.0, 1.0, 0.1, 0.1, 0.1, 0.1]) == pytest.approx(0.5)  # the largest of five: 1
    assert fraction([100.0] + [1e-3] * 5) == 0.95 and fraction([1.0] * 5) == 0.0
    assert fraction([1e-3] * 5) == 0.95


def test_a_step_in_words(caplog):
    with caplog.at_level("INFO", logger="relvec"):
        search({"grow": [1.0]}, restarts=0)
        assert not caplog.records
        problem = SimpleNamespace(tol=TOL, tolerance=lambda size: TOL, clock=NO_LIMIT)
        model = Scripted({"grow": [1.0]})
        solver = Search(Sequential(restarts=0), lambda *_: model)
        result = iterate(solver, problem, 100, verbose=1)
    lines = [record.getMessage().split() for record in caplog.records]
    assert [line[0] for line in lines[:2]] == ["0", "1"] and [line[1] for line in lines[:2]] == ["start", "add"]
    assert len(lines) == len(result.history)


def test_objectives_that_fall_by_rounding_alone_have_not_fallen():
    for old in (-1.0, 0.1, 1e6):
        slack = 1e-13 * max(1.0, abs(old))
        assert _loop.not_lower(old + 1.0, old) and _loop.not_lower(old, old)
        assert _loop.not_lower(old - 0.5 * slack, old) and not _loop.not_lower(old - 2.0 * slack, old)


def test_a_learned_noise_at_its_floor():
    problem = SimpleNamespace(fixed_noise=False, noise_floor=1e-4)
    assert _loop.at_noise_floor(problem, 1e4) and _loop.at_noise_floor(problem, 1e4 * (1.0 - 0.5e-6))
    assert not _loop.at_noise_floor(problem, 1e4 * (1.0 - 2e-6))
    assert not _loop.at_noise_floor(SimpleNamespace(fixed_noise=True, noise_floor=1e-4), 1e4)


def test_large_models_end_with_larger_gains_left():
    design, t = dictionary()
    one, other = problem_of(design, t, tol=1e-4), problem_of(design, t, tol=1e-4, tol_of_many=0.3)
    assert [one.tolerance(size) for size in (300, 301)] == [1e-4, 1e-4]
    assert [other.tolerance(size) for size in (300, 301)] == [1e-4, 0.3]
    assert problem_of(design, t, tol=0.5, tol_of_many=0.3).tolerance(301) == 0.5


def test_the_first_step_gains_nothing():
    result, _ = search({"grow": [3.0]}, restarts=0)
    assert result.history[0].gain == 0.0 and result.history[1].gain == 3.0


def test_gains_near_the_tolerance_tell_how_far_a_search_is():
    found = _loop.progress_fraction([2e-2] + [1.5e-2] * 5, 1e-2, False)
    assert found == pytest.approx(1.0 - np.log(1.5) / np.log(2.0))


@pytest.mark.parametrize("rates", [None, np.linspace(0.1, 0.4, 40)])
def test_the_objective_is_the_evidence_with_the_densities_of_the_priors(rates):
    """T01 eq. (36)."""
    prior = GammaPrior(a=0.2, b=0.1, c=0.3, d=0.4) if rates is not None else GammaPrior(c=0.3, d=0.4)
    problem = problem_of(*dictionary(), prior=prior, prior_b=rates, prior_d=0.4)
    active, alpha, beta = np.array([3, 12]), np.array([0.5, 2.0]), 5.0
    p = SimpleNamespace(log_evidence=-7.0, alpha=alpha, beta=beta)
    b = 0.0 if rates is None else rates[active]
    expected = -7.0 + np.sum(prior.a * np.log(alpha) - b * alpha) + 0.3 * np.log(beta) - 0.4 * beta
    assert problem.objective(active, p) == pytest.approx(expected)


def test_a_search_that_ends_late_ends_with_its_certificate_or_at_once():
    problem = SimpleNamespace(tol=TOL, tolerance=lambda size: TOL, clock=NO_LIMIT)
    for settled, status in ((True, None), (False, Status.TIME_LIMIT)):
        solver = SimpleNamespace(finishing=lambda state, settled=settled: settled)
        assert _loop._end(solver, problem, SimpleNamespace(done=False), False, False, True) is status


def test_moves_that_failed_are_not_tried_again_after_a_restart_that_failed():
    _, log = search({"restart": [-3.0, -3.0]}, restarts=2)
    tried = names(log, "grow", "settle", "shrink", "exchange", "release", "restart", "sharpen")
    once = ["shrink", "exchange", "release"]
    assert tried == ["grow", "settle", "grow", *once, "restart", "restart", "sharpen"]


def test_the_noise_moves_every_fourth_step_where_that_is_asked_for():
    _, log = search({"grow": [1.0] * 7}, restarts=0, noise_every=4)
    assert [call[2] for call in log if call[0] == "grow"][:8] == [True, True, True, False, True, True, True, False]
