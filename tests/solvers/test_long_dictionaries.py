"""Long dictionaries, searched in parts: what each part offers is what the dense evidence gains."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import oracle
from problems import BETA, dictionary, fit, model_of, problem_of, sinc_problem, single_move_gains
from relvec import RVR
from relvec.basis import KernelBasis
from relvec.design import DenseDesign
from relvec.inference.evidence import near_copy_price
from relvec.kernels import Gaussian
from relvec.runtime.clock import Clock
from relvec.solvers import Sequential
from relvec.solvers import active_set as _columns
from relvec.solvers.gaussian import proposals as _proposals
from relvec.solvers.loop import Result, Start, State, Status, Step


def dense_gains(problem, active, alpha, closed, price=0.0):
    """The gain of every atom that may be named (M,), and of every exchange (k, M), by the dense evidence.

    Near-copies of what stays in the model are named only where their addition gains more than a price.
    """
    Phi, t = problem.design.columns(np.arange(problem.design.n_atoms)), problem.target
    opened = np.setdiff1d(np.arange(Phi.shape[1]), closed)

    def best(atoms, precisions):
        return oracle.optimal_alpha(*oracle.S_Q(Phi, Phi[:, atoms], t, precisions, BETA))

    adds, swapped = np.full(Phi.shape[1], -np.inf), np.full((len(active), Phi.shape[1]), -np.inf)
    own = best(active, alpha)
    near = np.abs(Phi[:, active].T @ Phi) > 0.999
    for j in opened:
        gain = oracle.gain_add(Phi, active, t, alpha, BETA, j, own[j])
        adds[j] = gain if gain > price or not near[:, j].any() else 0.0
    for row, i in enumerate(active):
        rest = oracle.delete(active, alpha, i)
        own, stays = best(*rest), np.delete(near, row, 0)
        for j in opened:
            if not stays[:, j].any() or oracle.gain_add(Phi, *rest[:1], t, rest[1], BETA, j, own[j]) > price:
                swapped[row, j] = oracle.gain_exchange(Phi, active, t, alpha, BETA, i, j, own[j])
    return adds, swapped


@pytest.mark.parametrize("start", [0, 7])
def test_what_a_piece_of_a_dictionary_offers(start):
    problem, active, model = model_of()
    closed = np.array([3, 8, 9, 12, 25, 30])
    look = _columns.ScanTask(model.full_posterior, active, closed, True, 4, 3, 1e-3, 0.0)
    atoms = np.arange(start, 38)
    found = look(atoms, problem.design.project(model.core.frame.directions)[:, atoms])
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


def test_a_clock_that_is_up_at_once_gives_a_model():
    rng, M = np.random.default_rng(0), _columns.MAX_WHOLE_ATOMS + 1
    problem = problem_of(DenseDesign(np.asfortranarray(rng.normal(size=(20, M)))), rng.normal(size=20))
    result = _columns.solve(Sequential(), replace(problem, clock=Clock(0.0)), 100)
    assert result.status is Status.TIME_LIMIT


def test_a_piece_of_nothing_but_the_model_offers_nothing():
    problem, active, model = model_of()
    look = _columns.ScanTask(model.full_posterior, active, active, True, 4, 3, 1e-3, 0.0)
    projected = problem.design.project(model.core.frame.directions)[:, [12]]
    found = look(np.arange(12, 13), projected)
    assert found.largest == 0.0 and not len(found.atoms) and not len(found.partners)
    alone = _columns.ScanTask(model.full_posterior, active, active, False, 4, 3, 1e-3, 0.0)
    assert not len(alone(np.arange(2), problem.design.project(model.core.frame.directions)[:, :2]).partners)


@pytest.mark.parametrize(("tol", "exchanging"), [(1e-3, True), (1e-3, False), (5.0, True)])
def test_the_atoms_that_enter_are_those_of_the_largest_dense_gains(tol, exchanging):
    problem, active, model = model_of(tol=tol)
    adds, swapped = dense_gains(problem, active, np.array([0.3, 1.0, 2.0]), active, near_copy_price(40))
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


def test_the_parts_of_a_long_dictionary_share_the_clock(monkeypatch):
    given = []

    def recorded(solver, problem, *rest):
        given.append(problem.clock)
        return search(solver, problem, *rest)

    search = _columns.search
    monkeypatch.setattr(_columns, "search", recorded)
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", 20)
    monkeypatch.setattr(_columns, "_FIRST_PART_ATOMS", 10)
    design, t = dictionary()
    design = DenseDesign(design.columns(np.arange(40)))  # of which some is searched, then what a scan of all names
    problem = replace(problem_of(design, t), clock=Clock(500.0))
    _columns.solve(Sequential(restarts=0), problem, 1000)
    assert len(given) > 2 and all(clock is problem.clock for clock in given)


# --- levels of a dictionary that is searched whole in the end ---------------------------------------------------------


def levels(monkeypatch, solver, max_iter=1000, first=12, width=1.0):
    """Search 200 functions in levels; return the result, the problem, and what each search was given."""
    asked = []

    def recorded(settings, among, *rest):
        begun = None if among.start is None else sorted(among.order[among.start.active])
        asked.append(SimpleNamespace(size=among.design.n_atoms, restarts=settings.restarts, start=begun))
        return search(settings, among, *rest)

    search = _columns.search
    monkeypatch.setattr(_columns, "search", recorded)
    monkeypatch.setattr(_columns, "FIRST_LEVEL_ATOMS", first)
    x, z = np.linspace(-5.0, 5.0, 80), np.linspace(-5.5, 5.5, 200)
    Phi = np.exp(-((x[:, None] - z) ** 2) / width**2)
    t = np.sinc(x) + 0.05 * np.random.default_rng(3).standard_normal(80)
    problem = problem_of(DenseDesign(Phi), t / np.sqrt(np.mean(t**2)), tol=1e-3, order=np.arange(200))
    return _columns.solve(solver, problem, max_iter), problem, asked


def test_a_level_is_searched_with_restarts_before_the_whole(monkeypatch):
    result, problem, asked = levels(monkeypatch, Sequential(restarts=2), first=60)
    assert [(one.size, one.restarts) for one in asked] == [(60, 0), (60, 2), (200, 0)]
    assert asked[0].start is None and len(asked[2].start) > 2
    alone = _columns.search(Sequential(restarts=0), problem, 1000)
    assert result.status is Status.CONVERGED and result.state.objective >= alone.state.objective - 0.5
    p = result.state.posterior
    Phi = problem.design.columns(np.arange(200))
    near = (np.abs(Phi.T @ Phi[:, result.state.active]) > 0.999).any(axis=1)  # they have a price
    kept = np.union1d(np.flatnonzero(~near), result.state.active)
    own = np.searchsorted(kept, result.state.active)
    assert max(single_move_gains(Phi[:, kept], problem.target, own, p.alpha, p.beta).values()) <= 1e-3 + 1e-6
    objectives = np.array([step.objective for step in result.history])
    assert result.history[0].action == "start" and np.all(np.diff(objectives) >= -1e-7)
    gains = [step.gain for step in result.history]
    np.testing.assert_allclose(gains, np.diff(objectives, prepend=objectives[0]), atol=1e-9)
    added = {step.atom for step in result.history if step.action == "add"}
    assert max(added) >= 60 and len(result.history) - 1 <= result.n_iter  # by their numbers in the whole dictionary


def test_a_model_of_many_functions_has_its_restarts_in_a_larger_level(monkeypatch):
    _, _, asked = levels(monkeypatch, Sequential(restarts=1), width=0.3)
    assert [one.restarts for one in asked] == [0, 0, 1]
    assert asked[0].size == 12 and 48 <= asked[1].size < 60 and asked[2].size == 200


def test_levels_that_are_cut_short_have_no_certificate(monkeypatch):
    result, _, asked = levels(monkeypatch, Sequential(), max_iter=2)
    assert len(asked) == 1 and result.status is Status.MAX_ITER
    assert result.state.largest_gain == np.inf and result.n_iter == 2
    assert set(result.state.active.tolist()) <= {step.atom for step in result.history}


# --- the rounds of a search in parts, with searches and scans that do what a script says ---------------------------


class Round:
    """A search of a part that keeps some atoms and leaves a gain, and the scan that follows it."""

    def __init__(self, keep, enters=(), promised=5.0, left=0.0, status=Status.CONVERGED, n_iter=3):
        self.keep, self.left, self.status, self.n_iter = keep, left, status, n_iter
        self.enters, self.promised = np.array(enters, dtype=int), promised


def rounds(monkeypatch, script, M=40, whole=20, first=10, max_refuted=8, restarts=0, design=None, **options):
    """Solve by a script; return the result and what each round was given."""
    script, asked, now = [*script], [], []
    columns, t = dictionary(M=M)
    long = DenseDesign(columns.columns(np.arange(M)))
    for name, value in (design or {}).items():
        setattr(long, name, value)
    given = {"order": np.arange(M), "draw": np.arange, "tol": 1e-3, **options}
    problem = problem_of(long, t, **given)

    def search(solver, among, max_iter, verbose):
        now[:] = [script.pop(0)]
        part = among.order  # of an atom of the whole is its number
        begun = None if among.start is None else part[among.start.active].tolist()
        asked.append(SimpleNamespace(part=part.tolist(), start=begun, tol=among.tol, max_iter=max_iter,
                                     restarts=solver.restarts, bias=among.bias))  # fmt: skip
        active = np.flatnonzero(np.isin(part, now[0].keep))
        posterior = SimpleNamespace(alpha=np.full(len(active), 2.0), beta=5.0)
        state = State(active, posterior, -50.0 + len(asked), largest_gain=now[0].left)
        steps = [Step("start", -1, 0.0, -51.0 + len(asked), 0, 0.2), Step("add", len(part) - 1, 1.0, -50.5, 1, 0.2)]
        return Result(state, now[0].status, steps, now[0].n_iter)

    def propose(problem, active, model, exchanging, seen):
        asked[-1].seen = seen.tolist()
        return now[0].enters, now[0].promised

    monkeypatch.setattr(_columns, "search", search)
    monkeypatch.setattr(_columns, "_propose", propose)
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", whole)
    monkeypatch.setattr(_columns, "_FIRST_PART_ATOMS", first)
    monkeypatch.setattr(_columns, "_MAX_REFUTED_ROUNDS", max_refuted)
    result = _columns.solve(Sequential(restarts=restarts), problem, 100)
    assert not script
    return result, asked


def test_a_search_goes_on_among_its_atoms_and_those_that_a_scan_names(monkeypatch):
    script = [
        Round([1, 2], [20, 21]),
        Round([2, 20], [22, 23], n_iter=4),
        Round([2, 22], [30], promised=0.11),  # still more than ten times the rough tolerance
        Round([2, 30], [31], promised=0.09),  # less: from here on to the end, with all atoms of the last part
        Round([2, 31], [32], promised=2e-3),
        Round([2, 32], [33], promised=0.9e-3),
    ]
    result, asked = rounds(monkeypatch, script, restarts=3, bias=20)
    parts = [[*range(10)], [1, 2, 20, 21], [2, 20, 22, 23], [2, 22, 30], [2, 22, 30, 31], [2, 31, 32]]
    assert [one.part for one in asked] == parts
    assert [one.start for one in asked] == [None, [1, 2], [2, 20], [2, 22], [2, 30], [2, 31]]
    assert [one.tol for one in asked] == [0.01] * 4 + [1e-3] * 2
    assert [one.max_iter for one in asked] == [100, 97, 93, 90, 87, 84]
    assert [one.restarts for one in asked] == [3, 0, 0, 0, 0, 0]
    assert [one.seen for one in asked] == parts  # atoms of the last search need no scan
    assert [one.bias for one in asked] == [-1, 2, 1, -1, -1, -1]
    assert result.status is Status.CONVERGED and result.n_iter == 19 and result.state.largest_gain == 0.9e-3
    assert [step.atom for step in result.history] == [-1, 9, 21, 23, 30, 31, 32]  # one start, and last atoms of parts
    assert result.state.active.tolist() == [2, 32]
    Phi, t = (dictionary()[0].columns([2, 32]), dictionary()[1])
    assert result.state.objective == pytest.approx(oracle.log_evidence(Phi, t, np.full(2, 2.0), 5.0), rel=1e-9)


def test_the_gain_left_by_the_search_of_a_part_counts(monkeypatch):
    script = [Round([1, 2], [20], promised=0.05), Round([1, 20], promised=0.0, left=0.5)]
    result, _ = rounds(monkeypatch, script)
    assert result.status is Status.STALLED and result.state.largest_gain == 0.5


@pytest.mark.parametrize("max_refuted", [2, 4])
def test_promises_refuted_so_many_times_end_the_rough_search_and_then_all(max_refuted, monkeypatch):
    again = [Round([1, 2], [20 + i]) for i in range(2 * max_refuted + 3)]
    result, asked = rounds(monkeypatch, again, max_refuted=max_refuted)
    assert [one.tol for one in asked] == [0.01] * (max_refuted + 2) + [1e-3] * (max_refuted + 1)
    assert result.status is Status.STALLED and result.state.largest_gain == 5.0
    assert asked[2].seen == [*range(10), 20, 21]  # all atoms since the model last changed
    start = Start(np.array([1, 2]), np.ones(2), 5.0)
    _, asked = rounds(monkeypatch, again[1:], max_refuted=max_refuted, start=start)  # refuted from the first round on
    assert [one.tol for one in asked] == [0.01] * (max_refuted + 1) + [1e-3] * (max_refuted + 1)
    changes = [Round([1, 2, i], [i + 1]) for i in range(20, 30)] + [Round([1], status=Status.MAX_ITER)]
    assert [one.tol for one in rounds(monkeypatch, changes, max_refuted=2)[1]] == [0.01] * 11


@pytest.mark.parametrize("status", [Status.MAX_ITER, Status.TIME_LIMIT, Status.INTERRUPTED])
def test_a_search_that_was_ended_has_no_other_round(status, monkeypatch):
    crowded = Round([1, 2, 3, 4], [20], status=status)
    result, _ = rounds(monkeypatch, [crowded], restarts=3)
    assert result.status is status and result.state.largest_gain == 5.0 and len(result.history) == 2


def test_a_model_of_more_than_a_quarter_of_its_part_asks_for_a_larger_one(monkeypatch):
    script = [Round([0, 1, 2]), Round([*range(11)]), Round([*range(30)], promised=0.0)]
    _, asked = rounds(monkeypatch, script, M=100, restarts=3)
    assert [len(one.part) for one in asked] == [10, 40, 100] and [one.restarts for one in asked] == [3, 3, 3]
    assert [one.start for one in asked[1:]] == [[0, 1, 2], [*range(11)]]
    for options, size in (
        ({"restarts": 0}, 4),  # the first model is the last word on its size
        ({"M": 21}, 21),
    ):
        script = [Round([0, 1, 2], [15]), Round([0, 1, 2], promised=0.0)]
        _, asked = rounds(monkeypatch, script, **{"M": 100, "restarts": 3} | options)
        assert len(asked[1].part) == size
    _, asked = rounds(monkeypatch, [Round([0, 1], [15]), Round([0], promised=0.0)], M=100, first=8, restarts=3)
    assert asked[1].part == [0, 1, 15]  # a quarter is not more


def test_scans_that_are_long_keep_what_they_named(monkeypatch):
    script = [
        Round([1, 2]),
        Round([1, 2], [20, 21]),
        Round([1, 20], [22]),
        Round([1, 20], [*range(23, 31)]),  # more than may be searched together: only the last are kept
        Round([1, 30], promised=0.0),
    ]
    result, asked = rounds(monkeypatch, script, design={"max_active_set": 12}, restarts=3)
    parts = [[*range(12)], [1, 2], [1, 2, 20, 21], [1, 2, 20, 21, 22], [1, 20, *range(23, 31)]]
    assert [one.part for one in asked] == parts and [one.restarts for one in asked] == [3, 0, 0, 0, 0]
    assert [one.max_iter for one in asked] == [100, 97, 94, 91, 88] and result.n_iter == 15
    assert [step.atom for step in result.history] == [-1, 11, 2, 21, 22, 30] and result.status is Status.CONVERGED
    assert asked[1].seen == [1, 2] and asked[1].start == [1, 2]
    short = [Round([1, 2], [20]), Round([1], promised=0.0)]
    assert rounds(monkeypatch, short, design={"max_active_set": 20})[1][1].part == [1, 2, 20]  # twice as long is not


def test_the_first_part_is_drawn_by_content_with_what_is_needed():
    design, t = dictionary()
    order = np.random.default_rng(5).permutation(40)
    start = Start(np.array([7, 33]), np.ones(2), 1.0)
    problem = problem_of(design, t, order=order, essential=np.array([11]), start=start)
    part = _columns._first_part(problem, 10)
    drawn = np.random.default_rng(0).choice(40, 10, replace=False)
    assert part.tolist() == sorted({*np.argsort(order)[drawn], 7, 11, 33}) and len(part) > 10
    alone = _columns._first_part(problem_of(design, t, order=order), 10)
    assert len(alone) == 10 and sorted(order[alone]) == sorted(drawn)  # the same whatever the atoms' numbers
    assert _columns._first_part(problem, 100).tolist() == [*range(40)]
    design.scale[7], design.scale[11] = 0.0, 0.5
    assert _columns._first_part(problem, 100).tolist() == [j for j in range(40) if j != 7]


def test_a_problem_of_some_atoms():
    problem = problem_of(*dictionary(), prior_d=0.3, essential=np.array([1]), draw=np.arange)
    part = np.array([0, 8, 20])
    for bias, place in ((-1, -1), (3, -1), (0, 0), (8, 1), (20, 2)):
        few = _columns._restrict(_columns.replace(problem, bias=bias), part, None, 0.5)
        assert few.bias == place
    start = Start(np.array([20, 0]), np.array([1.0, 2.0]), 7.0)
    few = _columns._restrict(problem, part, start, 0.5)
    assert few.start.active.tolist() == [2, 0] and few.start.alpha is start.alpha and few.start.beta == 7.0
    np.testing.assert_array_equal(few.design.columns([0, 1, 2]), problem.design.columns(part))
    assert few.tol == 0.5 and few.order.tolist() == problem.order[part].tolist() and few.draw is None
    assert len(few.essential) == 0 and few.prior_d == 0.3
    steps = [Step("x", atom, 0.0, 0.0, 1, 1.0) for atom in (-1, 0, 2)]
    assert [step.atom for step in _columns._renumber(steps, part)] == [-1, 0, 20]


@pytest.mark.parametrize(("most", "factor"), [(19, 32), (20, 1)])
@pytest.mark.parametrize(
    ("active", "exchanging", "swaps"), [((), True, False), ((3,), True, True), ((3,), False, False)]
)
def test_how_many_atoms_a_scan_names(most, factor, active, exchanging, swaps, monkeypatch):
    problem, active, model = model_of(active=np.array(active, int), alpha=(1.0,) * len(active))
    problem.design.max_active_set, given = most, []

    def task(*arguments):
        given.append(arguments)
        return _proposals.ScanTask(*arguments)

    monkeypatch.setattr(_columns, "ScanTask", task)
    atoms, largest = _columns._propose(problem, active, model, exchanging, np.array([5, 6]))
    (_, own, closed, swapping, additions, exchanges, tol, *_) = given[0]
    assert own.tolist() == [*active] and closed.tolist() == [*active, 5, 6] and swapping == swaps
    assert (additions, exchanges, tol) == (factor * 64, factor * 4, problem.tol)
    adds, swapped = dense_gains(problem, active, np.ones(len(active)), closed)
    best = max(adds.max(), swapped.max(initial=-np.inf) if swaps else -np.inf)
    assert largest == pytest.approx(best, rel=1e-6) and np.argmax(adds) in atoms


def test_nothing_is_logged_unless_it_is_asked_for(caplog):
    with caplog.at_level("INFO", logger="relvec"):
        _columns.solve(Sequential(restarts=0), problem_of(*dictionary()), 3)
        assert not caplog.records
        _columns.solve(Sequential(restarts=0), problem_of(*dictionary()), 3, 1)
        assert len(caplog.records) == 4


def test_a_long_dictionary_that_explains_nothing_leaves_an_empty_model(monkeypatch):
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", 20)
    monkeypatch.setattr(_columns, "_FIRST_PART_ATOMS", 10)
    x = np.arange(60.0)[:, None]
    model = RVR(width=20.0, fit_intercept=False).fit(x, np.tile([1.0, -1.0], 30))
    assert model.status_ == "converged" and model.weights_.shape == (0,)
    assert model.noise_variance_ == pytest.approx(1.0, rel=1e-6)
