"""The moves of a search for a regression, one at a time: formulas against their definitions."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq

import oracle
from problems import BETA, dictionary, problem_of
from relvec import RVR
from relvec.design import DenseDesign
from relvec.inference import evidence as _equals
from relvec.inference.evidence import gain_reestimate
from relvec.solvers import Sequential
from relvec.solvers.gaussian import model as gaussian_model
from relvec.solvers.gaussian import proposals as _proposals
from relvec.solvers.gaussian import restarts
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.loop import Start


def test_a_batch_is_of_atoms_that_hardly_overlap():
    """While no precision moves the noise is held so high that a Newton step changes little: what entered is seen."""
    problem, active = problem_of(*dictionary(width=0.7)), np.array([3, 12, 25])
    alpha = np.array([0.3, 1.0, 2.0])
    model = model_of(problem, Start(active, alpha, BETA))
    _, _, gains = model.core.scan()
    columns = problem.design.columns(np.arange(40))
    inverse = np.linalg.inv(oracle.covariance(columns[:, active], alpha, BETA))
    G = columns.T @ inverse @ columns
    for batch in (1, 2, 3, 5):
        chosen = []
        for j in sorted(np.flatnonzero(gains >= 0.3 * gains.max()), key=lambda j: -gains[j])[: 4 * batch]:
            if len(chosen) < batch and all(abs(G[i, j]) <= 0.3 * np.sqrt(G[i, i] * G[j, j]) for i in chosen):
                chosen.append(int(j))
        grown = model.grow(batch, 1e-3, hold_noise=True)
        entered = np.setdiff1d(grown.active, active)
        assert set(entered) <= set(chosen) and chosen[0] in entered and grown.atom == chosen[0]
    assert len(chosen) > 2 and len(entered) > 1


def test_equal_gains_are_told_apart_by_order():
    order = np.array([4, 3, 2, 1, 0])
    assert _equals.best(np.array([1.0, 1.0 - 2e-9, 0.5, 0.0, 0.0]), order) == 0
    assert _equals.best(np.array([1.0, 1.0 - 5e-10, 0.5, 0.0, 0.0]), order) == 1
    assert _equals.best(np.array([1e3, 1e3 - 5e-7, 0.5, 0.0, 0.0]), order) == 1  # relative above one
    assert _equals.best(np.array([1e-3, 1e-3 - 5e-10, 0.0, 0.0, 0.0]), order) == 1  # absolute below
    ratio = np.array([[2.0, 2.0, 1.0], [3.0, 1.0, 1.0]])
    assert _equals.first_of_equals(ratio, np.array([2, 1, 0])).tolist() == [1, 0]
    assert _equals.first_of_equals(ratio * [1.0, 1.0 - 2e-9, 1.0], np.array([2, 1, 0])).tolist() == [0, 0]
    assert _equals.first_of_equals(ratio, np.array([[0, 1, 2], [2, 1, 0]])).tolist() == [0, 0]


@pytest.mark.parametrize("size", [2, 3])
def test_copies_and_what_is_almost_one(size):
    columns = np.zeros((4, size))
    columns[0] = 1.0
    for angle, kept in ((1e-7, 1), (1e-5, 2)):  # 1 - cos = 5e-15 and 5e-11
        columns[:2, 1] = -np.cos(angle), np.sin(angle)
        columns[:, 2:] = np.eye(4)[:, 2:][:, : size - 2]
        keep, alpha = _equals.merge_copies(columns.T @ columns, np.full(size, 2.0), np.arange(size)[::-1])
        assert len(keep) == kept + size - 2
        assert alpha[0] == (1.0 if kept == 1 else 2.0) and keep[0] == (1 if kept == 1 else 0)
    keep, alpha = _equals.merge_copies(np.ones((1, 1)), np.array([3.0]), np.arange(1))
    assert keep.tolist() == [0] and alpha.tolist() == [3.0]


@pytest.mark.parametrize(("apart", "size"), [(1e-15, 1), (1e-12, 2), (1e-6, 2), (1e-3, 2)])
def test_atoms_that_a_double_cannot_tell_apart(apart, size):
    rng = np.random.default_rng(0)
    a, b, t = rng.normal(size=(3, 40))
    a, b = a / np.linalg.norm(a), b - (b @ a) / (a @ a) * a
    b /= np.linalg.norm(b)
    design = DenseDesign(np.column_stack([a, a + apart * b]))
    for at_once in (True, False):
        model = model_of(problem_of(design, t), Start(np.zeros(0, np.intp), np.zeros(0), 1.0))
        for atoms in ([0, 1],) if at_once else ([0], [1]):
            model.at(np.array(atoms), np.ones(len(atoms)), 1.0)
        Q = model.core.frame.directions[:, :-1]
        assert Q.shape[1] == size
        np.testing.assert_allclose(Q.T @ Q, np.eye(size), atol=1e-14)


def test_more_nearly_dependent_atoms_than_rows_leave_the_frame_orthonormal():
    x = np.sort(np.random.default_rng(0).uniform(-5.0, 5.0, 40))
    Phi = np.column_stack([np.exp(-((x[:, None] - x) ** 2) / 1.5**2), np.ones(40)])
    model = model_of(problem_of(DenseDesign(Phi), np.sin(x)), Start(np.array([20, 3]), np.ones(2), 1.0))
    every = model.at(np.arange(41), np.full(41, 0.025), 1.0)
    Q = model.core.frame.directions[:, :-1]
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-12)
    exact = oracle.log_evidence(every.problem.design.matrix, np.sin(x), every.posterior.alpha, 1.0)
    assert every.objective == pytest.approx(exact, rel=1e-9)


def test_the_few_best_of_each_row():
    leaving, gains = np.array([1, 0, 0, 1, 0, 1]), np.array([9.0, 1.0, 5.0, 2.0, 3.0, 4.0])
    best = _proposals.best_of_each(leaving, np.arange(6), gains, 2)
    assert [column.tolist() for column in best] == [[0, 0, 1, 1], [2, 4, 0, 5], [5.0, 3.0, 9.0, 4.0]]


def test_restarts_raise_the_evidence():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (300, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * rng.standard_normal(300)
    path, more = (RVR(width=2.0, solver=Sequential(restarts=r)).fit(X, y) for r in (0, 3))
    assert more.log_marginal_likelihood_ > path.log_marginal_likelihood_ + 5.0


def test_a_search_restarts_while_that_gains():
    def may(turn, failed, wanted, size=10):
        return restarts.may_restart(SimpleNamespace(size=size), turn, failed, wanted)

    assert may(3, 1, 3) and not may(4, 1, 3) and not may(1, 2, 3)  # two in a row that gained little
    assert may(1, 0, 1) and not may(1, 1, 1) and not may(0, 0, 0)
    assert may(0, 0, 3, 600) and not may(0, 0, 3, 601) and may(0, 0, 4, 601)  # or many atoms, unless more are asked for
    assert may(4, 3, 4) and not may(4, 4, 4) and not may(5, 3, 4)


def take_near_copies(monkeypatch):
    monkeypatch.setattr(restarts, "without_near_copies", lambda model, active: np.arange(len(active)))


def test_of_near_copies_the_first_in_order_begins_a_search_from_every_atom():
    design, t = dictionary()
    Phi = design.columns(np.arange(40))
    model = model_of(problem_of(DenseDesign(Phi), t), Start(np.array([3]), np.ones(1), 2.0))
    kept = restarts.without_near_copies(model, np.arange(40))
    near = np.abs(Phi.T @ Phi) > 0.999
    assert 1 < len(kept) < 40 and near[np.ix_(kept, kept)].sum() == len(kept)
    for j in np.setdiff1d(np.arange(40), kept):
        assert any(near[j, i] and i > j for i in kept)  # the order is reversed


def test_a_restart_from_every_atom_begins_with_precisions_that_the_data_decide(monkeypatch):
    take_near_copies(monkeypatch)
    monkeypatch.setattr(restarts, "RESTART", restarts.RestartSettings(backward_updates=0))
    design, t = dictionary()
    Phi = 5.0 * design.columns(np.arange(40))
    Phi[:, 7], Phi[:, 8] = 0.0, 0.1 * Phi[:, 8]
    for noise in (None, 0.3):
        problem = problem_of(DenseDesign(Phi), t, noise_variance=noise)
        full = restarts.restart_from_full(model_of(problem, Start(np.array([3]), np.ones(1), 2.0)))
        assert full.active.tolist() == [j for j in range(40) if j != 7]
        assert full.core.beta == pytest.approx(1.0 / (noise or 0.1))
        np.testing.assert_allclose(full.posterior.alpha, (1.0 + 1e-3 * problem.order[full.active] / 40) / 30.0)


def test_a_step_of_a_restart_from_every_atom_is_that_of_t01(monkeypatch):
    """T01 eq. (16) and (18); what comes above the largest precision leaves."""
    settings = restarts.RestartSettings(backward_updates=1, backward_alphas=(0.05, 20.0))
    monkeypatch.setattr(restarts, "RESTART", settings)
    take_near_copies(monkeypatch)
    design, t = dictionary(M=12)
    for noise in (None, 0.3):
        problem = problem_of(design, t, noise_variance=noise)
        full = restarts.restart_from_full(model_of(problem, Start(np.array([3]), np.ones(1), 2.0)))
        begin = (1.0 + 1e-3 * problem.order / 12) / 30.0
        alpha, beta = oracle.mackay_step(design.columns(np.arange(12)), t, begin, 1.0 / (noise or 0.1))
        assert full.active.tolist() == np.flatnonzero(alpha < 20.0).tolist()
        assert full.core.beta == pytest.approx(1.0 / noise if noise else beta)
        np.testing.assert_allclose(full.posterior.alpha, np.maximum(alpha[alpha < 20.0], 0.05), rtol=1e-6)


@pytest.mark.parametrize(
    ("n_atoms", "size", "risen", "noise", "kind"),
    [
        (128, 4, 0.5, None, "full"), (129, 4, 0.5, None, None), (129, 4, 1.5, None, "full"),
        (256, 4, 1.5, None, "full"), (257, 4, 1.5, None, None), (128, 5, 0.5, None, None),
        (128, 5, 6.0, None, "capped"), (257, 4, 6.0, None, "capped"), (256, 25, 6.0, 0.1, "full"),
        (257, 4, 6.0, 0.1, None), (257, 16, 0.5, None, "path"), (512, 16, 0.5, None, "path"),
        (513, 16, 0.5, None, None), (257, 15, 0.5, None, None), (257, 16, 6.0, 0.1, "path"),
    ],
)  # fmt: skip
def test_how_a_search_begins_anew(n_atoms, size, risen, noise, kind, monkeypatch):
    """From every atom of a short dictionary, with a ceiling over a noise that rose, or by a path of several atoms."""
    begun = []

    def begin(name):
        return lambda model, *_: begun.append(name) or model

    monkeypatch.setattr(restarts, "restart_from_full", begin("full"))
    monkeypatch.setattr(restarts, "restart_capped_noise", begin("capped"))
    rng = np.random.default_rng(0)
    problem = problem_of(DenseDesign(rng.normal(size=(30, n_atoms))), rng.normal(size=30), noise_variance=noise)
    model = model_of(problem, Start(np.arange(size), np.ones(size), 1.0 / (risen * problem.noise_start)))
    other = restarts._restart_from_scratch(model, 4, -np.inf)
    if kind in ("full", "capped"):
        assert begun == [kind]
    elif kind == "path":
        assert other.size == 0 and other.core.beta == pytest.approx(1.0 / (noise or problem.noise_start))
    else:
        assert not begun and other is None


def test_atoms_enter_under_a_ceiling_over_the_noise_up_to_a_number(monkeypatch):
    monkeypatch.setattr(restarts, "RESTART", restarts.RestartSettings(capped_atoms=2, newton_steps=0))
    problem = problem_of(*dictionary(width=0.4), noise_start=1e-4)
    other = restarts.restart_capped_noise(model_of(problem, Start(np.array([3]), np.ones(1), 2.0)), 1, np.inf)
    assert other.size == 5  # and a tenth of 30 samples
    assert 1.0 / other.core.beta <= 1e-4 * (1.0 + 1e-9)


def test_atoms_left_out_at_random():
    problem = problem_of(*dictionary(), rng=np.random.default_rng(0))
    model = model_of(problem, Start(np.arange(0, 40, 4), np.linspace(0.5, 2.0, 10), BETA))
    fewer = restarts.drop_random_atoms(model)
    assert fewer.size == 8 and set(fewer.active) < set(model.active) and fewer.core.beta == BETA
    assert fewer.active.tolist() == sorted(fewer.active)
    gram, sizes = np.abs(model.core.gram()), set()
    for _ in range(30):
        fewer = restarts.drop_atoms(model)
        gone = np.flatnonzero(~np.isin(model.active, fewer.active))
        sizes.add(len(gone))
        assert any(set(np.argsort(-row)[: len(gone)]) == set(gone) for row in gram)  # an atom and its nearest
        np.testing.assert_array_equal(fewer.posterior.alpha, np.delete(model.posterior.alpha, gone))
    assert sizes == {1, 2, 3}
    two, one = model.keep(np.arange(2)), model.keep(np.arange(1))
    assert restarts.drop_atoms(two).size == 1 and restarts.drop_atoms(one) is one


def test_a_model_that_explains_the_noise_is_admitted_by_its_likes_alone():
    design, t = dictionary()
    problem = problem_of(design, t, noise_floor=1e-4)
    honest, noiseless = (model_of(problem, Start(np.array([3, 12]), np.ones(2), beta)) for beta in (10.0, 9e3))
    assert restarts.is_noiseless(noiseless) and not restarts.is_noiseless(honest)
    assert honest.admits(honest) and noiseless.admits(noiseless) and noiseless.admits(honest)
    assert not honest.admits(noiseless)
    given = model_of(problem_of(design, t, noise_floor=1e-4, noise_variance=1e-4), Start(np.arange(2), np.ones(2), 9e3))
    assert not restarts.is_noiseless(given) and honest.admits(given)
    few, many = (model_of(problem, Start(np.arange(k), np.ones(k), 10.0)) for k in (15, 16))
    assert few.admits(honest) and many.admits(many) and many.admits(few) and not few.admits(many)  # of 30 samples


def test_where_newton_steps_crawl_the_best_single_precision_moves(monkeypatch):
    """TF03 eq. (20), the largest gain first; what has no finite optimum leaves."""
    monkeypatch.setattr(gaussian_model.GaussianModel, "relax", lambda self, steps: self)
    problem = problem_of(*dictionary(), noise_variance=1.0 / BETA)
    columns = problem.design.columns(np.arange(40))
    model = model_of(problem, Start(np.array([3, 12, 25, 26]), np.array([0.3, 1e9, 2.0, 1e-3]), BETA))
    active, alpha = [3, 12, 25, 26], [0.3, 1e9, 2.0, 1e-3]
    for _ in range(14):
        s, q = oracle.s_q(columns, np.array(active), problem.target, np.array(alpha), BETA)
        others = []
        for j in range(len(active)):
            optimum = float(oracle.optimal_alpha(s[active[j]], q[active[j]]))
            others.append(([*active[:j], *active[j + 1 :]], [*alpha[:j], *alpha[j + 1 :]]) if np.isinf(optimum) else
                          (active, [*alpha[:j], optimum, *alpha[j + 1 :]]))  # fmt: skip
        values = [oracle.log_evidence(columns[:, a], problem.target, np.array(b), BETA) for a, b in others]
        if max(values) <= oracle.log_evidence(columns[:, active], problem.target, np.array(alpha), BETA) + 1e-4:
            break
        active, alpha = others[int(np.argmax(values))]
    sharp = model.sharpen()
    assert sharp.active.tolist() == active and sharp.objective > model.objective
    np.testing.assert_allclose(sharp.posterior.alpha, alpha, rtol=1e-5)


def test_sharper_precisions_leave_nothing_to_gain():
    problem = problem_of(*dictionary())
    model = model_of(problem, Start(np.array([3, 12, 25]), np.array([0.3, 1e9, 2.0]), BETA))
    sharp = model.sharpen()
    p = sharp.full_posterior
    assert sharp.objective > model.objective
    assert np.max(gain_reestimate(p.alpha, *p.sparsity_quality()), initial=0.0) <= 0.1 * problem.tol


def test_promises_above_tol_are_replaced_by_what_the_model_made_gains():
    problem = problem_of(*dictionary(), tol=1e-2)
    model = model_of(problem, Start(np.array([3, 12]), np.ones(2), BETA))
    for truth, largest, tried in (
        ({0: -1.0, 1: 0.35}, 0.35, [0, 1]),
        ({0: 0.5}, 0.5, [0]),
        ({0: 5e-3, 1: -1.0, 2: -1.0}, 9e-3, [0, 1, 2]),  # what is below tol is believed
    ):
        asked = []

        def objective(i, truth=truth, asked=asked):
            asked.append(i)
            return model.objective + truth[i]

        found = model._verify(np.array([0.6, 0.4, 0.3, 9e-3]), np.arange(4), objective)
        assert found == pytest.approx(largest, rel=1e-9) and asked == tried
    assert model.at(model.active, np.ones(2), BETA).atom == -1 and model.keep(np.arange(1)).atom == -1


class Other:
    """A model whose exchanges are given."""

    def __init__(self, active, objective, *exchanges, admits=True):
        self.active, self.size, self.objective, self.left = np.array(active), len(active), objective, [*exchanges]
        self.problem, self.admitting = SimpleNamespace(tolerance=lambda size: 0.01), admits

    def admits(self, other):
        return self.admitting

    def exchange(self, tol):
        assert tol == 0.01
        return self.left.pop(0) if self.left else None


def test_a_restart_that_may_be_better_is_settled_to_the_end(monkeypatch):
    settled = []
    monkeypatch.setattr(restarts, "_settle", lambda model, *_: settled.append((model, _[2:])) or model)
    base = Other([1, 2], -10.0)

    def finish(other, model=base):
        settled.clear()
        return restarts._finish(model, other, 4, np.inf)

    far, near = Other([1, 3], -15.1, Other([1, 4], 0.0)), Other([1, 3], -14.9)
    assert finish(far) is far and not settled  # more than five nats short
    assert finish(near) is near and settled == [(near, (0.0,))]
    refused = Other([1, 2], -10.0, admits=False)
    better = Other([1, 3], -5.0)
    assert finish(better, refused) is better and not settled
    same = Other([2, 1], -10.0, Other([1, 4], 0.0))
    assert finish(same) is same and not settled and same.left  # its exchanges were tried
    last = Other([1, 5], -9.98, Other([1, 7], 0.0))
    second = Other([1, 4], -9.995, last)
    other = Other([1, 3], -12.0, second)
    assert finish(other) is last and last.left  # better by more than tol: no other exchange
    assert [one for one, _ in settled] == [other, second, last] and all(given == (0.0,) for _, given in settled)


@pytest.mark.parametrize(("full", "low", "best"), [(1.0, 2.0, "low"), (1.0, 0.5, "full"), (-1.0, 2.0, "full")])
def test_what_was_begun_anew_and_is_better_is_tried_with_less_noise_too(full, low, best, monkeypatch):
    problem = problem_of(*dictionary(), noise_variance=0.05)
    model = model_of(problem, Start(np.array([3, 12]), np.ones(2), BETA))
    found = {name: SimpleNamespace(objective=model.objective + gain) for name, gain in (("full", full), ("low", low))}
    fractions = []
    monkeypatch.setattr(restarts, "restart_from_full", lambda _: found["full"])
    monkeypatch.setattr(restarts, "perturb_low_noise", lambda m, f, *_: fractions.append((m, f)) or found["low"])
    monkeypatch.setattr(restarts, "_settle", lambda model, *_: model)
    assert restarts._restart_from_scratch(model, 4, np.inf) is found[best]
    assert fractions == ([(found["full"], 0.2)] if full > 0.0 else [])


@pytest.mark.parametrize("free", [-0.5, 0.5, 2.0])
def test_the_noise_of_a_restart_from_every_atom_moves_where_samples_are_left(free, monkeypatch):
    """T01 eq. (18) divides by N - sum gamma, which may be negative with small sample weights."""
    monkeypatch.setattr(restarts, "RESTART", restarts.RestartSettings(backward_updates=1))
    take_near_copies(monkeypatch)
    design, t = dictionary(M=12)
    Phi, order = design.columns(np.arange(12)), np.arange(12)[::-1]

    def left(n):
        return n - oracle.gamma(Phi, t, (1.0 + 1e-3 * order / 12) / n, 10.0).sum()

    n = brentq(lambda n: left(n) - free, 0.5, 30.0)
    problem = problem_of(design, t, n_samples=n)
    full = restarts.restart_from_full(model_of(problem, Start(np.array([3]), np.ones(1), 2.0)))
    _, mu = oracle.posterior(Phi, t, (1.0 + 1e-3 * order / 12) / n, 10.0)
    assert full.core.beta == pytest.approx(10.0 if free < 0.0 else free / np.sum((t - Phi @ mu) ** 2), rel=1e-6)


@pytest.mark.parametrize("others", [0, 2])
def test_a_model_of_copies_is_one_of_a_single_atom(others, monkeypatch):
    design, t = dictionary(M=4)
    Phi = design.columns(np.arange(4))
    problem = problem_of(DenseDesign(np.column_stack([Phi, -Phi[:, 3]])), t)
    active = np.array([3, 4, *range(others)])
    model = model_of(problem, Start(active, np.array([1.0, 3.0] + [2.0] * others), BETA))
    merged = model.merge_copies()
    assert merged.active.tolist() == [4, *range(others)]  # the first in order
    np.testing.assert_allclose(merged.posterior.alpha, [0.75] + [2.0] * others)  # of the sum of the variances
    assert merged.objective == pytest.approx(model.objective, rel=1e-12) and merged.merge_copies() is merged
    monkeypatch.setattr(gaussian_model, "not_lower", lambda new, old: False)
    assert model.merge_copies() is model


@pytest.mark.parametrize("bias", [-1, 0, 5])
def test_a_search_may_begin_with_the_bias_alone(bias):
    design, t = dictionary()
    problem = problem_of(design, t + design.columns([max(bias, 0)])[:, 0] * 20.0, bias=bias)
    Phi = design.columns(np.arange(40))
    begun = gaussian_model.begin_gaussian(problem, True)
    assert begun.active.tolist() == [bias] * (bias >= 0) and begun.core.beta == pytest.approx(10.0)
    assert gaussian_model.begin_gaussian(problem, False).size == 0
    if bias >= 0:  # TF03 eq. (26)
        S, Q = oracle.S_Q(Phi, Phi[:, :0], problem.target, np.zeros(0), 10.0)
        np.testing.assert_allclose(begun.posterior.alpha, oracle.optimal_alpha(S, Q)[bias], rtol=1e-9)


@pytest.mark.parametrize(("floor", "low"), [(1e-8, 0.01), (0.02, 0.02)])
def test_the_noise_is_held_low_while_atoms_enter_and_is_then_released(floor, low, monkeypatch):
    problem = problem_of(*dictionary(width=0.4), noise_floor=floor)
    model = model_of(problem, Start(np.array([3, 12]), np.ones(2), BETA))
    noises, relax = [], gaussian_model.GaussianModel.relax

    def relaxed(self, steps, hold_noise=False, **rest):
        noises.append((1.0 / self.core.beta, hold_noise, self.size))
        return relax(self, steps, hold_noise, **rest)

    monkeypatch.setattr(gaussian_model.GaussianModel, "relax", relaxed)
    restarts.perturb_low_noise(model, 0.2, 1, np.inf)
    (held, first, size), (released, second, _) = noises
    assert held == pytest.approx(low) and first and 2 < size <= 12  # ten more at most
    assert released == pytest.approx(1.0 / BETA) and not second
