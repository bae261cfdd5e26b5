"""What the two searches decide between their moves: restarts, removals, limits, and when a model may be trusted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from relvec.inference.likelihoods import Bernoulli, Categorical
from relvec.inference.priors import GammaPrior
from relvec.solvers import Sequential
from relvec.solvers import active_set as _columns
from relvec.solvers import sequential as _sequential
from relvec.solvers.fixed_point import _largest_gradient
from relvec.solvers.laplace import search as _laplace_search
from relvec.solvers.laplace.problem import LaplaceModel, empty_model, within_reach
from relvec.solvers.laplace.search import LaplaceSequential, Limit, first_of, tempered, trusted
from relvec.solvers.loop import Step
from relvec.solvers.sequential import _Notes
from test_compiled_classes import problem_of
from test_engine import pair
from test_laplace import classes, make
from test_solvers import sinc_problem


def regression(N=60, size=10, width=2.0):
    """A model in Python of every so many atoms of a dictionary of Gaussians."""
    Phi, t = sinc_problem(N, width=width)
    model = pair(Phi, t)[1]
    active = np.arange(0, N, N // size)[:size]
    return model.at(active, np.arange(1.0, size + 1.0), 20.0)


# Regression


def test_models_that_explain_the_noise_too():
    model = regression()
    problem, p = model.problem, model.posterior
    for beta, sign in ((0.9e-2 / problem.noise_floor, False), (1.1e-2 / problem.noise_floor, True)):
        assert _sequential._noiseless(model.at(model.active, p.alpha, beta)) is sign
    assert not _sequential._noiseless(replace(model.at(model.active, p.alpha, 1.0 / problem.noise_floor),
                                              problem=replace(problem, noise_variance=1e-8)))  # fmt: skip
    half = int(problem.n_samples) // 2  # 61 samples
    assert not _sequential._crowded(SimpleNamespace(active=np.arange(half), problem=problem))
    assert _sequential._crowded(SimpleNamespace(active=np.arange(half + 1), problem=problem))


def test_a_kick_removes_an_atom_with_its_nearest():
    model, sizes = regression(), set()
    columns = model.problem.design.columns(model.active)
    similar = np.abs(columns.T @ columns)
    for _ in range(30):
        other = _sequential.drop_atoms(model)
        kept = np.isin(model.active, other.active)
        gone = np.flatnonzero(~kept)
        sizes.add(len(gone))
        assert any(set(gone) == set(np.argsort(-similar[:, i])[: len(gone)]) for i in gone)
        np.testing.assert_array_equal(other.posterior.alpha, model.posterior.alpha[kept])
        assert other.posterior.beta == model.posterior.beta
    assert sizes == {1, 2, 3}
    two = model.at(model.active[:2], np.ones(2), 20.0)
    assert len(_sequential.drop_atoms(two).active) == 1
    assert len(_sequential.drop_atoms(two.at(two.active[:1], np.ones(1), 20.0)).active) == 1


def test_a_scattering_removes_a_fifth():
    model = regression()
    supports = []
    for _ in range(10):
        other = _sequential.drop_random_atoms(model)
        kept = np.isin(model.active, other.active)
        assert kept.sum() == 8 and np.all(np.diff(other.active) > 0)
        np.testing.assert_array_equal(other.posterior.alpha, model.posterior.alpha[kept])
        assert other.posterior.beta == model.posterior.beta
        supports.append(tuple(other.active))
    assert len(set(supports)) > 5


class Recorded:
    """A model that tells what is asked of it, and grows by ``batch`` atoms each time."""

    def __init__(self, active, beta=20.0, problem=None, told=None, grows=1000):
        self.active, self.problem, self.told, self.grows = (
            np.arange(active),
            problem,
            [] if told is None else told,
            grows,
        )
        self.posterior = SimpleNamespace(alpha=np.ones(active), beta=beta)
        self.objective = 0.0

    def _like(self, active, beta=None, grows=0):
        beta = self.posterior.beta if beta is None else beta
        return Recorded(active, beta, self.problem, self.told, self.grows - grows)

    def at(self, active, alpha, beta):
        self.told.append(("at", len(active), beta))
        return self._like(len(active), beta)

    def grown(self, batch, tol, hold_noise, ceiling=np.inf, apart=0.0):
        self.told.append(("grown", tol, hold_noise, ceiling, apart))
        return self._like(len(self.active) + batch, grows=1) if self.grows > 0 else None

    def relaxed(self, steps, hold_noise=False, enough=0.0):
        self.told.append(("relaxed", steps, hold_noise))
        return self._like(len(self.active))

    def trimmed(self):
        return self

    def merged(self):
        self.told.append(("merged",))
        return self


def stub_problem(**options):
    given = {"noise_floor": 1e-8, "noise_start": 0.1, "tol": 1e-3, "n_samples": 200.0, "fixed_noise": False,
             "design": SimpleNamespace(n_atoms=1000)}  # fmt: skip
    problem = SimpleNamespace(**(given | options))
    problem.tolerance = lambda size: problem.tol
    return problem


@pytest.mark.parametrize(("size", "most"), [(4, 24), (30, 60), (150, 250)])
def test_a_dip_holds_the_noise_and_lets_so_many_atoms_enter(size, most):
    model = Recorded(size, 20.0, stub_problem())
    found = _sequential.perturb_low_noise(model, 0.5, 2, np.inf)
    kinds = [told[0] for told in model.told]
    assert model.told[0] == ("at", size, 40.0)  # half of the noise
    entered = [told for told in model.told if told[0] == "grown"]
    assert len(entered) == (most - size) // 2 and all(told[1] == 0.05 and told[2] is True for told in entered)
    assert kinds[-3:] == ["relaxed", "at", "relaxed"]
    assert model.told[-3][1] == model.told[-1][1] == 5
    assert model.told[-3][2] is True and model.told[-2] == ("at", most, 20.0) and model.told[-1][2] is False
    assert len(found.active) == most


def test_a_dip_ends_where_nothing_enters_and_at_the_floor_of_the_noise():
    model = Recorded(4, 20.0, stub_problem(noise_floor=0.03, tol=0.1), grows=2)
    assert len(_sequential.perturb_low_noise(model, 0.5, 2, np.inf).active) == 8
    assert model.told[0] == ("at", 4, pytest.approx(1.0 / 0.03))
    assert model.told[1][1] == 0.1  # a tolerance above that of dips
    late = Recorded(4, 20.0, stub_problem())
    assert len(_sequential.perturb_low_noise(late, 0.5, 2, -np.inf).active) == 4


def test_under_a_ceiling_the_noise_may_not_rise():
    model = Recorded(4, 20.0, stub_problem())
    found = _sequential.restart_capped_noise(model, 5, np.inf)
    assert model.told[0] == ("at", 0, 10.0) and len(found.active) == 50  # thirty and a tenth of the samples
    entered = [told for told in model.told if told[0] == "grown"]
    assert all(told[1:4] == (0.05, False, 0.1) for told in entered) and len(entered) == 10
    assert len(_sequential.restart_capped_noise(model, 5, -np.inf).active) == 0
    few = Recorded(4, 20.0, stub_problem(), grows=2)
    assert len(_sequential.restart_capped_noise(few, 5, np.inf).active) == 10


def test_a_model_settles_when_neither_additions_nor_precisions_help():
    model = Recorded(4, 20.0, stub_problem(), grows=2)
    found = _sequential._settle(model, 3, np.inf)
    assert [told[0] for told in model.told] == ["grown", "grown", "grown", "merged", "relaxed", "grown"]
    assert model.told[4] == ("relaxed", 100, False)
    assert len(found.active) == 10 and all(told[1] == 0.05 for told in model.told if told[0] == "grown")
    assert _sequential._settle(model, 3, -np.inf) is model


@pytest.mark.parametrize(
    ("atoms", "fixed", "risen", "size", "chosen"),
    [
        (256, True, 0.5, 5, "backward"), (256, False, 1.1, 5, "backward"), (256, False, 0.9, 5, "same"),
        (257, True, 9.0, 5, "same"), (257, False, 4.9, 5, "same"), (257, False, 5.1, 5, "ceiling"),
        (257, False, 0.5, 11, "dip"), (257, False, 0.5, 10, "same"),
    ],
)  # fmt: skip
def test_a_fresh_start_is_from_the_other_end(atoms, fixed, risen, size, chosen, monkeypatch):
    told = []

    def as_told(name, objective):
        def made(model, *options):
            told.append((name, options[0] if options else None))
            return SimpleNamespace(objective=objective)

        return made

    monkeypatch.setattr(_sequential, "_backward", as_told("backward", 1.0))
    monkeypatch.setattr(_sequential, "restart_capped_noise", as_told("ceiling", 1.0))
    monkeypatch.setattr(_sequential, "perturb_low_noise", as_told("dip", 2.0))
    monkeypatch.setattr(_sequential, "_settle", lambda model, *options: model)
    problem = stub_problem(fixed_noise=fixed, design=SimpleNamespace(n_atoms=atoms))
    model = Recorded(size, 1.0 / (risen * problem.noise_start), problem)
    found = Sequential()._restart_from_scratch(model, np.inf)
    if chosen == "same":
        assert found is model and not told
    else:
        assert told[0][0] == chosen and told[1:] == [("dip", 0.3)] and found.objective == 2.0  # a dip after a gain
        assert chosen != "dip" or told[0] == ("dip", 0.1)


def test_restarts_follow_their_schedule(monkeypatch):
    told = []
    monkeypatch.setattr(_sequential, "_settle", lambda model, *options: model)
    monkeypatch.setattr(
        _sequential, "perturb_low_noise", lambda model, fraction, *options: told.append((fraction, model)) or model
    )
    monkeypatch.setattr(_sequential, "drop_atoms", lambda model: told.append("kick") or "kicked")
    monkeypatch.setattr(_sequential, "drop_random_atoms", lambda model: "scattered")
    monkeypatch.setattr(
        Sequential, "_restart_from_scratch", lambda self, model, deadline: told.append("afresh") or model
    )
    for turn in range(6):
        Sequential()._restart("model", turn, np.inf)
    assert told == [(0.5, "model"), (0.3, "model"), "afresh", (0.2, "model"), (0.5, "scattered"), "kick"]


@pytest.mark.parametrize(
    ("gain", "turn", "taken", "next_turn", "failed"),
    [
        (1.0, 0, True, 0, 0),
        (1.0, 2, True, 3, 0),
        (0.9, 0, True, 1, 2),
        (0.002, 0, True, 1, 2),
        (0.0005, 0, False, 1, 2),
    ],
)
def test_a_restart_that_pays_is_tried_again(gain, turn, taken, next_turn, failed, monkeypatch):
    model = regression(size=3)
    settled = []
    monkeypatch.setattr(_sequential, "_settle", lambda other, *options: settled.append(1) or other)
    other = SimpleNamespace(objective=model.objective + gain, active=model.active, posterior=model.posterior,
                            problem=model.problem, atom=-1)  # fmt: skip
    other.trimmed = lambda: other
    monkeypatch.setattr(Sequential, "_restart", lambda self, *options: other)
    state = _sequential._advance(model, "add", _Notes(np.inf, turn=turn, failed=1, settled=True, exact=True))
    found = Sequential()._restarted(model, state, state.notes)
    assert (found.action == "restart") is taken and (found.objective > state.objective) is taken
    assert (found.notes.turn, found.notes.failed) == (next_turn, failed) and settled
    assert found.notes.settled is (not taken) and found.notes.exact is (not taken)
    # one that leads to a model of the noise is not taken, nor one far below settled
    monkeypatch.setattr(_sequential, "_noiseless", lambda m: m is other)
    assert Sequential()._restarted(model, state, state.notes).action == ""
    settled.clear()
    other.objective = model.objective - 5.1
    assert Sequential()._restarted(model, state, state.notes).action == "" and not settled


# Classes and counts


def fitted(likelihood=None, units=(3, 20, 45), **options):
    problem = replace(problem_of(likelihood or Bernoulli()), **options)
    units = np.array(units)
    return LaplaceModel(problem, units, problem.posterior(units, np.full(len(units), 0.1)))


def test_what_further_steps_may_reach():
    model = fitted()
    best = model.relaxed(60)
    assert within_reach(model, best.objective) and within_reach(best, best.objective)
    assert not within_reach(model, best.objective + 2.0 * (best.objective - model.objective) + 20.0)
    assert not within_reach(best, best.objective + 1e-3)
    assert not within_reach(empty_model(model.problem), model.objective)
    assert within_reach(empty_model(model.problem), empty_model(model.problem).objective)


def test_trust_is_asked_for_or_nearer_than_before():
    models = {
        trust: SimpleNamespace(trust=trust, problem=SimpleNamespace(trusted=0.5)) for trust in (0.2, 0.4, 0.6, 0.9)
    }
    assert trusted(models[0.6], models[0.9]) and trusted(models[0.4], models[0.2])
    assert not trusted(models[0.4], models[0.6]) and not trusted(models[0.2], models[0.4])


def test_tempered_models_come_back_to_where_they_may_be_trusted():
    model = fitted().relaxed(60)
    # separable classes at small precisions: the latent function runs away
    X = np.linspace(-1.0, 1.0, 40)[:, None]
    Phi = np.column_stack([np.exp(-((X - X.T) ** 2)), np.ones(40)])
    problem = make(Phi, (X[:, 0] > 0.0).astype(float), Bernoulli())
    units = np.array([5, 30])
    far = LaplaceModel(problem, units, problem.posterior(units, np.full(2, 1e-9)))
    assert far.trust < 0.3
    near = tempered(far, model)
    assert near.trust > 0.5 and np.all(near.alpha > far.alpha) and np.all(near.alpha <= 1e12 * far.alpha)
    assert tempered(model, model) is model


def test_among_equal_gains_the_content_decides():
    problem = replace(fitted().problem, order=np.arange(81)[::-1].copy())
    gains = np.zeros(81)
    gains[[5, 9, 30]] = [1.0, 1.0 - 1e-13, 0.999]
    assert first_of(gains, problem) == 9
    gains[9] = 0.999
    assert first_of(gains, problem) == 5


def test_a_limit_is_of_time_and_of_work():
    problem = SimpleNamespace(budget=SimpleNamespace(spent=5.0))
    assert Limit().open(problem) and Limit(work=6.0).open(problem)
    assert not Limit(work=5.0).open(problem) and not Limit(deadline=0.0).open(problem)


def test_the_constant_has_a_unit_for_every_class():
    Phi, t, _ = classes(n=20)
    problem = make(Phi, t, Categorical(3), bias=20)
    assert _laplace_search._bias_units(problem).tolist() == [20, 41, 62]
    assert _laplace_search._bias_units(replace(problem, share=True)).tolist() == [20]


def test_a_kick_removes_a_unit_with_its_nearest():
    model, sizes = fitted(units=(3, 20, 21, 45, 60)), set()
    columns = model.problem.design.columns(model.active)
    similar = np.abs(columns.T @ columns)
    for _ in range(20):
        other = _laplace_search.drop_atoms(model)
        gone = np.flatnonzero(~np.isin(model.active, other.active))
        sizes.add(len(gone))
        assert any(set(gone) == set(np.argsort(-similar[:, i])[: len(gone)]) for i in gone)
    assert sizes == {1, 2, 3}
    one = fitted(units=(3,))
    assert _laplace_search.drop_atoms(one) is one


def test_restarts_of_classes_follow_their_schedule(monkeypatch):
    model, told = fitted(units=(3, 20, 80)), []
    other = replace(model, active=model.active[:2])
    monkeypatch.setattr(_laplace_search, "anneal", lambda m, heat, *options: told.append(heat) or other)
    monkeypatch.setattr(_laplace_search, "drop_atoms", lambda m: told.append("kick") or other)
    monkeypatch.setattr(_laplace_search, "empty_model", lambda p: told.append(p.closed) or other)
    monkeypatch.setattr(_laplace_search, "settle", lambda m, *options: m)
    notes = _laplace_search._Notes(model, Limit(work=30.0), first=5.0)
    model.problem.budget.spent = 20.0  # so that work of 10 is left

    def restart(turn, **changes):
        told.clear()
        found = LaplaceSequential()._restart(model, replace(notes, restarts=turn, **changes))
        return found, list(told)

    assert [restart(turn)[1] for turn in range(6)] == [[(80,)], [()], [4.0], [10.0], ["kick"], ["kick"]]
    assert restart(0, first=11.0) == (model, [])  # from nothing is dear
    without = fitted(units=(3, 20))
    assert LaplaceSequential()._restart(without, notes) is without  # there is no constant to do without
    # the same support again, and one that is behind
    other = model
    assert restart(4)[0] is model
    other = fitted(units=(3,))
    assert other.objective < model.objective - 1.5 and restart(4)[0] is model
    other = fitted(units=(3, 20, 45, 60)).relaxed(20)
    assert other.objective > model.objective - 1.5 and restart(4)[0].active.tolist() == other.active.tolist()


def test_deleting_a_useless_unit_gains_what_the_refitted_evidence_says():
    model = fitted(units=(3, 20, 45, 60)).relaxed(20)
    useless = model.joined(np.array([70]), np.array([1e-2]), np.zeros(1))
    assert useless.objective < model.objective - 0.1
    fewer, gain = _laplace_search.shrink(useless, 1e-3)
    assert 70 not in fewer.active and gain == pytest.approx(fewer.objective - useless.objective) and gain > 0.1
    kept, most = _laplace_search.shrink(model.relaxed(60), 1e-3)
    assert kept is None and 0.0 <= most <= 1e-3
    assert _laplace_search.shrink(empty_model(model.problem), 1e-3) == (None, 0.0)


def test_steps_in_a_part_are_steps_among_all():
    steps = [Step("add", 1, 2.0, 3.0, 1, 0.1), Step("restart", -1, 2.0, 3.0, 1, 0.1)]
    found = _columns._renumbered(steps, np.array([4, 9]))
    assert [step.atom for step in found] == [9, -1] and found[0].objective == 3.0


def test_what_a_precision_still_gains_under_a_prior():
    """The bound g^2 / curvature, where both are those of the objective in log alpha at a fixed posterior."""
    posterior = SimpleNamespace(
        gamma=np.array([0.9, 0.4]),
        alpha=np.array([2.0, 5.0]),
        mean=np.array([0.5, 0.3]),
        variance=np.array([0.05, 0.1]),
    )
    problem = SimpleNamespace(prior=GammaPrior(a=0.2, b=0.1), prior_b=np.array([0.1, 0.3, 0.7]))
    state = SimpleNamespace(posterior=posterior, active=np.array([0, 2]))
    g = [0.5 * (0.9 - 2.0 * 0.25) + 0.2 - 0.1 * 2.0, 0.5 * (0.4 - 5.0 * 0.09) + 0.2 - 0.7 * 5.0]
    curvature = [0.5 * 2.0 * (0.25 + 0.05) + 0.1 * 2.0, 0.5 * 5.0 * (0.09 + 0.1) + 0.7 * 5.0]
    assert _largest_gradient(problem, state) == pytest.approx(max(x * x / c for x, c in zip(g, curvature, strict=True)))
