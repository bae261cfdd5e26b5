"""Proposals of a search for classes or counts: gains, starts and correlations against dense ones."""

from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp

from problems import classes_of
from relvec.design import DenseDesign
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.solvers._native.laplace import Mode
from relvec.solvers.laplace import scan as scan_module
from relvec.solvers.laplace.precisions import deletion_gains, relax, within_reach
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, empty_model
from relvec.solvers.laplace.scan import SCANS, ScanSettings, find_exchanges, scan, shared_optimum


def dense_B(model, apart=False):
    """Phi'B Phi over all pairs (class, atom), T01 eq. (28); ``apart``: each class for itself."""
    problem, W = model.problem, np.asarray(model.posterior.W)
    M, K = problem.design.n_atoms, problem.K
    Phi = problem.design.columns(np.arange(M))
    if K == 1:
        return Phi.T @ (W[:, None] * Phi)
    G = np.zeros((K * M, K * M))
    for c in range(K):
        for k in range(K):
            if c == k or not apart:
                b = problem.weights * W[:, c] * ((c == k) - W[:, k])
                G[c * M : (c + 1) * M, k * M : (k + 1) * M] = Phi.T @ (b[:, None] * Phi)
    return G


def dense_places(model):
    """Where the weights of the model stand among all pairs."""
    problem, p = model.problem, model.posterior
    atoms = np.repeat(model.active, problem.K) if problem.share else model.active % problem.design.n_atoms
    return p.outputs * problem.design.n_atoms + atoms


def dense_metric(model, apart=False):
    """Phi' C^-1 Phi of all pairs in the linearised problem, and Phi'r."""
    p, G, places = model.posterior, dense_B(model, apart), dense_places(model)
    inner = G - G[:, places] @ np.linalg.inv(G[np.ix_(places, places)] + np.diag(p.alpha)) @ G[places]
    Phi = model.problem.design.columns(np.arange(model.problem.design.n_atoms))
    return inner, (Phi.T @ p.r).T.ravel()


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)])
@pytest.mark.parametrize("exact", [True, False])
def test_correlations_of_candidates(likelihood, exact, monkeypatch):
    model, found = classes_of(likelihood=likelihood, exact=exact, monkeypatch=monkeypatch)
    assert found.exact is (exact or likelihood.n_outputs == 1)
    M = model.problem.design.n_atoms
    units = np.array([0, 5, 10]) if likelihood.n_outputs == 1 else np.array([0, 5, M, M + 6, 2 * M + 5, 2 * M + 10])
    G, Q = dense_metric(model, apart=not found.exact)
    np.testing.assert_allclose(np.concatenate([s.S for s in found.classes]), np.diag(G), atol=1e-8)
    np.testing.assert_allclose(np.concatenate([s.Q for s in found.classes]), Q, atol=1e-8)
    expected = G if found.exact else G + dense_B(model) - dense_B(model, apart=True)
    size = np.sqrt(np.diag(G))
    expected = np.abs(expected / np.outer(size, size))[np.ix_(units, units)]
    np.testing.assert_allclose(found.correlations(model, units), expected, atol=1e-7)
    np.testing.assert_allclose(found.correlations_with(model, units[0], units[1:]), expected[0, 1:], atol=1e-7)


def test_correlations_of_candidates_that_share_a_precision():
    model, found = classes_of(share=True)
    units = np.array([0, 5, 10])
    columns = model.problem.design.columns(units)
    np.testing.assert_allclose(found.correlations(model, units), np.abs(columns.T @ columns), rtol=1e-12)
    np.testing.assert_allclose(
        found.correlations_with(model, 0, units[1:]), np.abs(columns.T @ columns)[0, 1:], rtol=1e-12
    )


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_starts_of_additions_and_their_gains(likelihood):
    model, found = classes_of(likelihood=likelihood)
    G, Q = dense_metric(model)
    S = np.diag(G)
    ratio = np.maximum(Q**2 / S, 1.0)
    gains = 0.5 * (ratio - 1.0 - np.log(ratio))
    gains[model.active] = 0.0
    np.testing.assert_allclose(found.gains, gains, atol=1e-7)
    units = np.flatnonzero(gains > 1e-6)
    assert units.size
    alpha = S[units] ** 2 / (Q[units] ** 2 - S[units])
    np.testing.assert_allclose(found.alpha[units], alpha, rtol=1e-5)
    np.testing.assert_allclose(found.start(model, units), Q[units] / (alpha + S[units]), rtol=1e-5)


def test_shared_precisions_are_proposed_near_their_optimum():
    S, Q = (
        np.array([[1.0, 4.0, 0.0, 1.0], [2.0, 1.0, 0.0, 2.0]]),
        np.array([[3.0, 9.0, 0.0, 0.1], [0.5, 2.0, 0.0, 0.1]]),
    )
    gain, alpha = shared_optimum(S, Q)
    grid = S.mean(axis=0)[:2, None] * np.exp(np.linspace(-9.0, 9.0, 37))
    for m in (0, 1):
        a = grid[m]
        values = 0.5 * sum(np.log(a / (a + S[c, m])) + Q[c, m] ** 2 / (a + S[c, m]) for c in (0, 1))
        assert gain[m] == pytest.approx(values.max()) and alpha[m] == pytest.approx(a[values.argmax()])
    assert gain[2:].tolist() == [0.0, 0.0] and np.all(np.isinf(alpha[2:]))


def without(model, place):
    """S and Q of every pair after a unit has left, with B held."""
    p, G, places = model.posterior, dense_B(model), dense_places(model)
    b = G[:, places] @ p.mean + dense_metric(model)[1]  # Phi'B t_hat
    keep = np.delete(np.arange(len(p.alpha)), place)
    rest = places[keep]
    inner = np.linalg.inv(G[np.ix_(rest, rest)] + np.diag(p.alpha[keep]))
    S = np.diag(G) - np.einsum("ij,jk,ki->i", G[:, rest], inner, G[rest])
    M = model.problem.design.n_atoms
    return S.reshape(-1, M), (b - G[:, rest] @ (inner @ b[rest])).reshape(-1, M)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_the_best_exchange_of_every_unit(likelihood):
    model, found = classes_of(likelihood=likelihood)
    pairs = find_exchanges(model, found)
    M = model.problem.design.n_atoms
    assert sorted(pairs.leaving) == list(range(len(model.active)))
    lost, _ = deletion_gains(model)
    for row, place in enumerate(pairs.leaving):
        c = int(model.active[place]) // M
        S, Q = (x[c] for x in without(model, place))
        ratio = Q**2 / S
        ratio[model.active[model.active // M == c] % M] = 0.0
        m = int(np.argmax(ratio))
        assert pairs.entering[row] == c * M + m
        best = max(ratio[m], 1.0)
        assert pairs.gain[row] == pytest.approx(lost[place] + 0.5 * (best - 1.0 - np.log(best)), rel=1e-6)
        alpha = S[m] ** 2 / max(Q[m] ** 2 - S[m], 1e-3 * S[m])
        assert pairs.alpha[row] == pytest.approx(alpha, rel=1e-5)
        assert pairs.weight[row] == pytest.approx(Q[m] / (alpha + S[m]), rel=1e-5)


def test_the_best_exchange_of_every_unit_that_shares_its_precision():
    model, found = classes_of(share=True)
    pairs = find_exchanges(model, found)
    assert pairs.leaving.tolist() == [0, 1]
    lost, _ = deletion_gains(model)
    p, M = model.posterior, model.problem.design.n_atoms
    G, r = (np.diag(x).reshape(3, M) if x.ndim == 2 else x.reshape(3, M) for x in dense_metric(model))
    cross = p.covariance @ dense_B(model)[dense_places(model)]
    for place in (0, 1):
        # each class for itself: what leaves it adds to S and Q of its own class only
        own = [cross[place * 3 + c, c * M : (c + 1) * M] for c in range(3)]
        variance, mean = (x[place * 3 : place * 3 + 3, None] for x in (p.variance, p.mean))
        S, Q = G + np.square(own) / variance, r + own * mean / variance
        ratio = (Q**2 / S).sum(axis=0)
        ratio[[2, 7]] = 0.0
        m = int(np.argmax(ratio))
        assert pairs.entering[place] == m
        gain, alpha = shared_optimum(S[:, [m]], Q[:, [m]])
        assert pairs.gain[place] == pytest.approx(lost[place] + gain[0], abs=1e-6)
        a = alpha[0] if np.isfinite(alpha[0]) else 1e3 * S[:, m].mean()
        assert pairs.alpha[place] == pytest.approx(a, rel=1e-6)
        np.testing.assert_allclose(pairs.weight[place], Q[:, m] / (a + S[:, m]), rtol=1e-5)


@pytest.fixture(params=["one output", "classes", "classes together"])
def crowded(request):
    """A model of a dictionary in which atom j + 12 is nearly atom j, for all but the constant."""
    likelihood = Bernoulli() if request.param == "one output" else Categorical(3)
    plain = classes_of(likelihood=likelihood, share=request.param == "classes together")[0].problem
    Phi, rng = plain.design.columns(np.arange(12)), np.random.default_rng(0)
    Phi[:, 3] = 1.0
    Phi = np.hstack([Phi, Phi + 0.005 * rng.normal(size=Phi.shape)])
    problem = replace(plain, design=DenseDesign(Phi), order=np.arange(24), bias=3)
    units = np.array([2, 3, 7]) if problem.n_units == 24 else np.array([2, 3, 7, 26, 27, 57])
    return LaplaceModel(problem, units, problem.posterior(units, np.full(len(units), 0.5)))


def near_copies(model, unit):
    """Units that are near-copies of one, from the columns themselves."""
    M = model.problem.design.n_atoms
    Phi = model.problem.design.columns(np.arange(M))
    close = np.abs(Phi.T @ Phi[:, unit % M]) > 0.999
    close[unit % M] = False
    if model.problem.bias >= 0:
        close[model.problem.bias] = False
    return set() if unit % M == model.problem.bias else set((np.flatnonzero(close) + unit // M * M).tolist())


def test_near_copies_of_functions_in_the_model_are_not_added(crowded, monkeypatch):
    copies = set().union(*(near_copies(crowded, unit) for unit in crowded.active.tolist()))
    assert copies and not copies & set(crowded.active.tolist())
    monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units: 0.0)
    free = scan(crowded).gains
    assert crowded.problem.share or any(free[unit] > 0.0 for unit in copies)
    for price in (np.inf, float(np.median([free[unit] for unit in copies]))):
        monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units, price=price: price)
        expected = [0.0 if unit in copies and gain <= price else gain for unit, gain in enumerate(free)]
        np.testing.assert_array_equal(scan(crowded).gains, expected)
    asked = []
    monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units: asked.append(n_units) or 0.0)
    scan(crowded)
    assert asked == [crowded.problem.n_units]


def test_no_exchange_leaves_two_near_copies_in_the_model(crowded, monkeypatch):
    monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units: np.inf)
    pairs = find_exchanges(crowded, scan(crowded))
    for place, entering in zip(pairs.leaving, pairs.entering, strict=True):
        stay = np.delete(crowded.active, place).tolist()
        assert int(entering) not in set().union(*(near_copies(crowded, unit) for unit in stay))
    monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units: 0.0)
    free = find_exchanges(crowded, scan(crowded))
    assert np.all(free.gain >= pairs.gain - 1e-12)
    assert crowded.problem.K > 1 or np.any(free.gain > pairs.gain)


def test_a_function_may_be_exchanged_for_its_near_copy(monkeypatch):
    """The copy that fits the classes better takes the place of the other."""
    monkeypatch.setattr(scan_module, "near_copy_price", lambda n_units: np.inf)
    rng = np.random.default_rng(0)
    t = (rng.random(60) < 0.5).astype(float)
    good = t - 0.5 + 0.2 * rng.normal(size=60)
    Phi = np.column_stack([good + 0.003 * rng.normal(size=60), good + 0.003 * (t - 0.5), rng.normal(size=60)])
    problem = LaplaceProblem(DenseDesign(Phi), t, np.ones(60), Bernoulli(), np.arange(3))
    model = LaplaceModel(problem, np.array([0]), problem.fit(np.array([0]), np.array([0.1])))
    assert near_copies(model, 0) == {1} and scan(model).gains[1] == 0.0
    assert find_exchanges(model, scan(model)).entering.tolist() == [1]


def test_exchanging_a_unit_puts_the_other_in_its_place():
    for share in (False, True):
        model, found = classes_of(share=share)
        pairs = find_exchanges(model, found)
        for i in range(len(pairs.leaving)):
            swapped = model.swap(pairs.leaving[i], pairs.entering[i], pairs.alpha[i], pairs.weight[i])
            place = pairs.leaving[i]
            expected = model.active.copy()
            expected[place] = pairs.entering[i]
            np.testing.assert_array_equal(swapped.active, expected)
            alpha = model.alpha.copy()
            alpha[place] = pairs.alpha[i]
            np.testing.assert_allclose(swapped.alpha, alpha)
            again = model.problem.posterior(expected, alpha)
            assert swapped.objective == pytest.approx(again.log_evidence, abs=1e-7)
            np.testing.assert_allclose(swapped.posterior.Phi, again.Phi)
            assert swapped.atom == pairs.entering[i]


@pytest.mark.parametrize("K", [1, 3])
def test_units_are_ranked_by_content_and_then_by_class(K):
    model, _ = classes_of(likelihood=Categorical(3) if K > 1 else Bernoulli())
    M = model.problem.design.n_atoms
    units = np.arange(K * M)
    expected = np.lexsort((units // M, model.problem.order[units % M]))
    ranks = model.problem.rank(units)
    assert np.array_equal(np.argsort(ranks), expected) and ranks.dtype.kind == "i"


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("share", [False, True])
def test_the_work_of_a_mode_counts_rows_outputs_and_pairs_of_weights(K, share):
    """n (25 K + k / 2 + k^2 / 20) nanoseconds a pass, four passes a mode: restarts are cut short by it."""
    model, _ = classes_of(likelihood=Categorical(3) if K > 1 else Bernoulli(), share=share and K > 1)
    problem, k = model.problem, len(model.posterior.alpha)
    before = problem.budget.spent
    problem.fit(model.active, model.alpha)
    assert problem.budget.spent - before == pytest.approx(4.0 * 40 * (25.0 * K + 0.5 * k + 0.05 * k * k))


def test_what_steps_on_the_precisions_find_is_within_reach():
    model, _ = classes_of(likelihood=Bernoulli())
    best, _ = relax(model, 60)
    assert within_reach(model, model.objective) and within_reach(model, best.objective)
    assert not within_reach(empty_model(model.problem), 1e3)


def test_scans_of_classes_are_exact_up_to_a_limit_of_products(monkeypatch):
    model, found = classes_of()
    p, design = model.posterior, model.problem.design
    products = 3 * design.n_rows * design.n_atoms * len(p.alpha)
    for most, exact in ((products, True), (products - 1, False)):
        monkeypatch.setattr("relvec.solvers.laplace.scan.SCANS", ScanSettings(max_exact_products=most))
        assert scan(model).exact is exact
    assert found.exact


@pytest.mark.parametrize("share", [False, True])
def test_units_of_the_model_may_not_enter(share):
    model, found = classes_of(share=share)
    free = np.ones(model.problem.n_units, dtype=bool)
    free[model.active] = False
    assert np.array_equal(found.outside.ravel(), free) and not found.gains[~free].any()


def test_statistics_of_functions_that_nearly_depend_on_the_model_keep_their_digits():
    """S of counts with weights of 1e6 and precisions of 1e-12, against 60 digits: a difference of numbers 1e13 times as
    large."""
    rng, n = np.random.default_rng(4), 24
    x = np.sort(rng.uniform(-1.0, 1.0, n))
    Phi = np.exp(-((x[:, None] - x[::2]) ** 2) / 25.0)
    weights = np.full(n, 1e6)
    t = rng.poisson(np.exp(1.0 + x)).astype(float)
    problem = LaplaceProblem(DenseDesign(Phi), t, weights, Poisson(), np.arange(12), thorough=True)
    units, alpha = np.array([0, 4, 7, 11]), np.full(4, 1e-12)
    model = LaplaceModel(problem, units, problem.fit(units, alpha))
    found, p, design = scan(model), model.posterior, problem.design
    assert not isinstance(model.fit, Mode)
    with mp.workdps(60):
        root = [mp.sqrt(mp.mpf(w)) for w in p.W.tolist()]

        def column(j, scale=1):
            return [r * mp.mpf(v) * scale for r, v in zip(root, design.columns([j])[:, 0].tolist(), strict=True)]

        X = [column(j, 1 / mp.sqrt(mp.mpf(1e-12))) for j in units.tolist()]
        H = mp.matrix([[mp.fdot(a, b) + (i == j) for j, b in enumerate(X)] for i, a in enumerate(X)])
        shares = []
        for j in np.setdiff1d(np.arange(12), units).tolist():
            z = column(j)
            g = mp.matrix([mp.fdot(a, z) for a in X])
            S = mp.fdot(z, z) - mp.fdot(g, mp.lu_solve(H, g))
            assert found.classes[0].S[j] == pytest.approx(float(S), rel=1e-3)
            shares.append(float(S / mp.fdot(z, z)))
    assert min(shares) < 1e-13


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_an_S_that_is_rounding_is_none(likelihood, monkeypatch):
    model, found = classes_of(likelihood=likelihood)
    shares = np.array([s.S for s in found.classes]) / (np.array([s.S for s in found.classes]) + [
        np.einsum("ij,ij->j", s.T, s.T) for s in found.classes])  # fmt: skip
    error = float(np.median(shares))
    monkeypatch.setattr(type(model.problem.design), "scan_error", error)
    for own, share in zip(scan(model).classes, shares, strict=True):
        np.testing.assert_array_equal(own.S == 0.0, share < error)


@pytest.mark.parametrize("exact", [True, False])
def test_the_work_of_a_scan_counts_the_dictionary_and_the_weights(exact, monkeypatch):
    settings = ScanSettings(max_exact_products=np.inf if exact else 0.0, fixed_ns=3.0, weight_ns=5.0)
    monkeypatch.setattr("relvec.solvers.laplace.scan.SCANS", settings)
    for likelihood, in_memory in ((Bernoulli(), False), (Bernoulli(), True), (Categorical(3), False)):
        model, _ = classes_of(likelihood=likelihood)
        if in_memory:
            model = LaplaceModel(model.problem, model.active, model.problem.fit(model.active, model.alpha))
            assert isinstance(model.fit, Mode)
        K, k, budget = likelihood.n_outputs, len(model.posterior.alpha), model.problem.budget
        before = budget.spent
        scan(model)
        weights = 1.0 + k / (1 if exact or K == 1 else K)
        assert budget.spent - before == pytest.approx(K * model.problem.design.scan_size * (3.0 + 5.0 * weights))


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_a_smaller_model_starts_where_the_linearised_problem_has_its_mode(likelihood, monkeypatch):
    """w - Sigma_:g (Sigma_gg)^-1 w_g: the mode of a normal posterior whose weights g are held at zero."""
    model, _ = classes_of(likelihood=likelihood)
    p, starts, fit = model.posterior, [], LaplaceModel._with

    def watched(self, active, alpha, start, *others, **more):
        starts.append(start)
        return fit(self, active, alpha, start, *others, **more)

    monkeypatch.setattr(LaplaceModel, "_with", watched)
    gone = np.arange(len(model.active)) == 1
    smaller = model.drop(gone)
    Sigma = p.covariance
    pull = np.linalg.solve(Sigma[np.ix_(gone, gone)], p.mean[gone])
    np.testing.assert_allclose(starts[0], (p.mean - Sigma[:, gone] @ pull)[~gone])
    assert smaller.active.tolist() == model.active[~gone].tolist()


def test_what_enters_several_classes_is_guessed_to_vary_as_its_prior(monkeypatch):
    model, _ = classes_of(likelihood=Categorical(3))
    guesses, fit = [], LaplaceModel._with

    def watched(self, active, alpha, start, Phi, guess=None, *others, **more):
        guesses.append(guess)
        return fit(self, active, alpha, start, Phi, guess, *others, **more)

    monkeypatch.setattr(LaplaceModel, "_with", watched)
    model.add(np.array([5]), np.array([4.0]), np.zeros(1))
    k = len(model.posterior.mean)
    np.testing.assert_allclose(guesses[0][:k, :k], model.posterior.root)
    np.testing.assert_allclose(guesses[0][k:], [[0.0] * k + [0.5]])


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
@pytest.mark.parametrize("share", [False, True])
def test_no_addition_is_proposed_to_move_a_row_by_more_than_is_believed(likelihood, share):
    """A row far on the wrong side has a function of its own, which would move it by hundreds."""
    K = likelihood.n_outputs
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3.0, 3.0, 60))
    t = (x > 0.0).astype(int)
    t[5] = 1 - t[5]
    Phi = np.column_stack([np.exp(-((x[:, None] - x) ** 2) / 1e-4), x, np.ones(60)])
    target = t.astype(float) if K == 1 else np.eye(K)[t]
    share = share and K > 1
    problem = LaplaceProblem(DenseDesign(Phi), target, np.ones(60), likelihood, np.arange(62), share=share, bias=61)
    slope = np.array([60]) if K == 1 or share else np.array([60, 60 + 62])
    model = LaplaceModel(problem, slope, problem.fit(slope, np.full(len(slope), 1e-3)))
    found = scan(model)
    units = np.flatnonzero(np.isfinite(found.alpha) & found.outside.ravel() & (found.gains > 0.0))
    assert len(units) > 0
    starts = found.start(model, units).reshape(len(units), -1)
    peaks = np.abs(problem.design.columns(units % 62)).max(axis=0)
    np.testing.assert_allclose(problem.design.peaks[units % 62], peaks)
    assert np.all(np.abs(starts) * peaks[:, None] <= SCANS.max_motion * (1.0 + 1e-9))
    assert 5 in units % 62
