"""Long dictionaries, searched in parts: what each part offers is what the dense evidence gains."""

from types import SimpleNamespace

import numpy as np
import pytest

import oracle
from problems import BETA, dictionary, fit, model_of, problem_of, sinc_problem
from relvec import RVR
from relvec.basis import KernelBasis
from relvec.kernels import Gaussian
from relvec.runtime import arrays as _xp
from relvec.solvers import Sequential
from relvec.solvers import active_set as _columns
from relvec.solvers.gaussian import proposals as _proposals


def dense_gains(problem, active, alpha, closed):
    """The gain of every atom that may be named (M,), and of every exchange (k, M), by the dense evidence."""
    Phi, t = problem.design.columns(np.arange(problem.design.n_atoms)), problem.target
    opened = np.setdiff1d(np.arange(Phi.shape[1]), closed)

    def best(atoms, precisions):
        return oracle.optimal_alpha(*oracle.S_Q(Phi, Phi[:, atoms], t, precisions, BETA))

    adds, swapped = np.full(Phi.shape[1], -np.inf), np.full((len(active), Phi.shape[1]), -np.inf)
    own = best(active, alpha)
    for j in opened:
        adds[j] = oracle.gain_add(Phi, active, t, alpha, BETA, j, own[j])
    for row, i in enumerate(active):
        own = best(*oracle.delete(active, alpha, i))
        for j in opened:
            swapped[row, j] = oracle.gain_exchange(Phi, active, t, alpha, BETA, i, j, own[j])
    return adds, swapped


PLACES = [None, "torch:cpu", "array_api_strict"]


@pytest.fixture(params=PLACES)
def put(request):
    if request.param is None:
        return lambda x: x
    pytest.importorskip(request.param.partition(":")[0])
    return _xp.as_device(request.param).to_device


@pytest.mark.parametrize("start", [0, 7])
def test_what_a_piece_of_a_dictionary_offers(put, start):
    problem, active, model = model_of()
    closed = np.array([3, 8, 9, 12, 25, 30])
    look = _columns.ScanTask(model.full_posterior, active, closed, True, 4, 3, 1e-3, 0.0)
    atoms = np.arange(start, 38)
    found = look(atoms, put(problem.design.project(model.core.frame.directions)[:, atoms]))
    adds, swapped = dense_gains(problem, active, np.array([0.3, 1.0, 2.0]), closed)
    adds[:start], adds[38:], swapped[:, :start], swapped[:, 38:] = -np.inf, -np.inf, -np.inf, -np.inf
    assert set(found.atoms) == {j for j in np.argsort(-adds)[:4] if adds[j] > 1e-3} and len(found.atoms) > 1
    np.testing.assert_allclose(found.gains, adds[found.atoms], rtol=1e-6)
    for row in range(3):
        partners = found.partners[found.leaving == row]
        assert set(partners) == {j for j in np.argsort(-swapped[row])[:3] if swapped[row, j] > -1.0}
        np.testing.assert_allclose(
            found.partner_gains[found.leaving == row], swapped[row, partners], rtol=1e-6, atol=1e-9
        )
    assert len(found.partners) > 3
    assert found.largest == pytest.approx(max(adds.max(), swapped.max()), rel=1e-6)


def test_a_piece_of_nothing_but_the_model_offers_nothing(put):
    problem, active, model = model_of()
    look = _columns.ScanTask(model.full_posterior, active, active, True, 4, 3, 1e-3, 0.0)
    projected = put(problem.design.project(model.core.frame.directions)[:, [12]])
    found = look(np.arange(12, 13), projected)
    assert found.largest == 0.0 and not len(found.atoms) and not len(found.partners)
    alone = _columns.ScanTask(model.full_posterior, active, active, False, 4, 3, 1e-3, 0.0)
    assert not len(alone(np.arange(2), put(problem.design.project(model.core.frame.directions)[:, :2])).partners)


def test_a_blurred_sweep_promises_less():
    problem, active, model = model_of()
    projected = problem.design.project(model.core.frame.directions)
    gains = [
        _columns.ScanTask(model.full_posterior, active, active, True, 3, 2, 0.0, blur)(np.arange(40), projected).gains
        for blur in (0.0, 0.1)
    ]
    S, Q = oracle.S_Q(problem.design.columns(np.arange(40)), problem.design.columns(active), problem.target,
                      np.array([0.3, 1.0, 2.0]), BETA)  # fmt: skip
    ratio = np.maximum(Q**2 / (S + 0.1 * BETA), 1.0)
    ratio[active] = 1.0
    np.testing.assert_allclose(gains[1], np.sort(0.5 * (ratio - 1.0 - np.log(ratio)))[::-1][:3], rtol=1e-9)
    assert np.all(gains[1] < gains[0])


@pytest.mark.parametrize(("tol", "exchanging"), [(1e-3, True), (1e-3, False), (5.0, True)])
def test_the_atoms_that_enter_are_those_of_the_largest_dense_gains(tol, exchanging):
    problem, active, model = model_of(tol=tol)
    adds, swapped = dense_gains(problem, active, np.array([0.3, 1.0, 2.0]), active)
    entering, largest = _columns._propose(problem, active, model, exchanging, active[:0])
    expected = {j for j in np.argsort(-adds)[:64] if adds[j] > tol}
    if exchanging:
        expected |= {j for row in swapped for j in np.argsort(-row)[:4] if row[j] > -1.0}
    assert set(entering) == expected and list(entering) == sorted(expected)
    assert largest == pytest.approx(max(adds.max(), swapped.max() if exchanging else -np.inf))


def test_a_dictionary_in_pieces_offers_what_it_offers_whole():
    problem, active, model = model_of()
    projected = problem.design.project(model.core.frame.directions)
    for enter, partners in ((2, 1), (5, 3), (40, 40)):
        look = _columns.ScanTask(model.full_posterior, active, active, True, enter, partners, 1e-3, 0.0)
        whole, pieces = look.best(look(np.arange(40), projected)), None
        for piece in np.array_split(np.arange(40), 9):
            here = look(piece, projected[:, piece])
            pieces = here if pieces is None else look.combine(pieces, here)
        best = look.best(pieces)
        assert best.largest == pytest.approx(whole.largest)
        assert set(best.atoms) == set(whole.atoms) and len(best.atoms) == len(whole.atoms)
        pairs = [set(zip(found.leaving, found.partners, strict=True)) for found in (best, whole)]
        assert pairs[0] == pairs[1] and len(pairs[0]) == len(whole.partners)


def test_the_largest_ratios(put):
    S = np.array([[1.0, 4.0], [2.0, 1.0], [0.0, 1.0], [3.0, -1.0], [5.0, 2.0]])
    Q = np.array([[1.0, 4.0], [4.0, 1.0], [9.0, 3.0], [1.0, 9.0], [5.0, 1.0]])
    known = np.array([[1.0], [1.0], [1.0], [1.0], [0.0]])
    at, s, q = _proposals._best_ratios(put(S), put(Q), put(known), 2)
    assert [set(at[:, 0]), set(at[:, 1])] == [{0, 1}, {0, 2}]  # ratios 1, 8, -, 1/3, - and 4, 1, 9, -, -
    np.testing.assert_array_equal(s, np.take_along_axis(S, at, 0))
    np.testing.assert_array_equal(q, np.take_along_axis(Q, at, 0))
    at, s, _ = _proposals._best_ratios(put(S), put(Q), put(known), 5)
    assert np.all(s[at == 4] == 0.0) and np.all(s[(at == 2)[:, 0], 0] == 0.0)


def centres_of(model):
    return model.centres_[np.lexsort(model.centres_.T)]


def test_the_order_of_a_long_dictionary_does_not_matter():
    """Parts are drawn by what the atoms are, not by their places."""
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-5.0, 5.0, (60, 2)), rng.uniform(-5.0, 5.0, (3100, 2))
    y = np.sinc(X[:, 0]) + 0.5 * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(60)
    models = [
        RVR(kernel=None, basis=KernelBasis(Gaussian(2.0), centres=centres)).fit(X, y)
        for centres in (Z, Z[rng.permutation(len(Z))])
    ]
    np.testing.assert_array_equal(*map(centres_of, models))
    assert models[0].log_marginal_likelihood_ == pytest.approx(models[1].log_marginal_likelihood_, abs=1e-8)
    assert models[0].status_ == models[1].status_ == "converged"


@pytest.mark.filterwarnings("ignore:NOISE_FLOOR")  # so many functions can interpolate
def test_a_long_dictionary_reaches_the_evidence_of_a_short_one_with_the_same_functions():
    """Copies of sixty functions, more than are searched at once: nothing is gained or lost."""
    Phi, t = sinc_problem(60, width=1.0)
    whole, _ = fit(Phi, t, solver=Sequential(restarts=0))
    many = np.hstack([Phi] + [np.roll(Phi, k, axis=0) for k in range(1, 60)])
    longer, _ = fit(many[:, :3500], t, solver=Sequential(restarts=0))
    assert longer.log_marginal_likelihood_ >= whole.log_marginal_likelihood_ - 1e-3


@pytest.mark.parametrize("start", ["projection", "bias"])
def test_the_history_of_a_long_dictionary_names_its_atoms(start, monkeypatch):
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", 100)
    monkeypatch.setattr(_columns, "_FIRST_PART_ATOMS", 80)
    x = np.linspace(-3.0, 3.0, 240)[:, None]
    y = np.sin(3.0 * x[:, 0]) + 2.0 + 0.1 * np.random.default_rng(0).standard_normal(240)
    model = RVR(width=0.3, solver=Sequential(restarts=0, start=start)).fit(x, y)
    history = model.history_
    assert history["size"][0] == (start == "bias")
    added = history["atom"][np.isin(history["action"], ["add", "exchange"])]
    assert np.all((added >= 0) & (added <= 240)) and len(np.unique(added)) > 5
    assert np.array_equal(history["row"][history["atom"] == 240], np.full(np.sum(history["atom"] == 240), -1))
    assert model.status_ == "converged" and np.isclose(history["objective"][-1], model.log_marginal_likelihood_)
    np.testing.assert_allclose(history["gain"][1:], np.diff(history["objective"]), atol=1e-6)
    assert history["gain"][0] == 0.0


def test_the_parts_of_a_long_dictionary_share_the_time_limit(monkeypatch):
    now, given = [100.0], []

    def timed_iterate(solver, *rest):
        given.append((solver.time_limit, now[0]))
        now[0] += 3.0
        return iterate(solver, *rest)

    iterate = _columns.iterate
    monkeypatch.setattr(_columns, "iterate", timed_iterate)
    monkeypatch.setattr(_columns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", 20)
    monkeypatch.setattr(_columns, "_FIRST_PART_ATOMS", 10)
    design, t = dictionary()
    _columns.solve(Sequential(restarts=0, time_limit=5.0), problem_of(design, t), 1000)
    assert len(given) > 2
    assert [limit for limit, _ in given] == [max(5.0 - (at - 100.0), 1e-3) for _, at in given]
