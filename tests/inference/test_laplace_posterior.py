"""Posteriors of classes and counts: the mode, its curvature, and the way there."""

from types import SimpleNamespace

import numpy as np
import pytest

import oracle
from places import find_place
from relvec.inference.curvature import curvature_gram
from relvec.inference.laplace import (
    Weighting,
    _approach,
    _factor,
    _Here,
    _two_loops,
    laplace,
    newton,
)
from relvec.inference.laplace_posterior import apply_curvature
from relvec.inference.laplace_shared import SharedColumns
from relvec.inference.likelihoods import Bernoulli, Categorical
from relvec.solvers.laplace.precisions import correct_curvature
from relvec.solvers.laplace.problem import rows_for_loops

PLACES = [None, "torch:cpu", "torch:cuda", "array_api_strict"]


@pytest.fixture(params=PLACES)
def put(request):
    if request.param is None:
        return lambda x: x
    return find_place(request.param).to_device


def weights_of(K=3, n=40, per=4, seed=0):
    """Columns and outputs of a few weights of each class, targets, sample weights and precisions."""
    rng = np.random.default_rng(seed)
    outputs = np.repeat(np.arange(K), per)[rng.permutation(K * per)] if K > 1 else np.zeros(per, int)
    Phi = rng.normal(size=(n, len(outputs)))
    label = rng.integers(0, max(K, 2), n)
    t = np.eye(K)[label] if K > 1 else label.astype(float)
    return Phi, outputs, t, rng.uniform(0.5, 2.0, n), np.exp(rng.normal(size=len(outputs)))


def dense_hessian(X, W, weights, outputs):
    """I + X'B X, pair by pair (T01 eq. (28))."""
    k = X.shape[1]
    H = np.eye(k)
    for i in range(k):
        for j in range(k):
            b = W if W.ndim == 1 else weights * W[:, outputs[i]] * ((outputs[i] == outputs[j]) - W[:, outputs[j]])
            H[i, j] += X[:, i] @ (b * X[:, j])
    return H


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("size", [1.0, 1e5])
def test_factors_of_the_hessian(K, size):
    Phi, outputs, _, weights, _ = weights_of(K)
    order = np.argsort(outputs, kind="stable")
    outputs, X = outputs[order], size * Phi[:, order]
    rng = np.random.default_rng(1)
    W = rng.dirichlet(np.ones(3), 40) if K > 1 else rng.uniform(size=40)
    ends = np.searchsorted(outputs, np.arange(K + 1))
    own = [slice(i, j) for i, j in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    dense = dense_hessian(X, W, weights, outputs)
    U = _factor(X, W, weights, own)
    np.testing.assert_allclose(U.T @ U, dense, rtol=1e-9, atol=1e-9 * size**2)
    assert np.all(np.tril(U, -1) == 0.0) and U.dtype == float


def test_curvature_times_latent_functions():
    rng = np.random.default_rng(0)
    W, F, weights = rng.uniform(size=6), rng.normal(size=(6, 3)), rng.uniform(0.5, 2.0, 6)
    np.testing.assert_allclose(apply_curvature(W, weights, F), np.diag(W) @ F)
    np.testing.assert_allclose(apply_curvature(W, weights, F[:, 0]), np.diag(W) @ F[:, 0])
    P = rng.dirichlet(np.ones(3), 6)
    B = [weights[i] * (np.diag(P[i]) - np.outer(P[i], P[i])) for i in range(6)]  # T01 eq. (28)
    np.testing.assert_allclose(apply_curvature(P, weights, F), [B[i] @ F[i] for i in range(6)])


def test_the_step_of_bfgs_is_the_dense_one():
    rng = np.random.default_rng(0)
    root, g = rng.normal(size=(5, 5)), rng.normal(size=5)
    H, path = root @ root.T, []
    for _ in range(3):
        s = rng.normal(size=5)
        y = s + 0.3 * rng.normal(size=5)
        rho = 1.0 / float(s @ y)
        path.append((s, y, rho))
        turn = np.eye(5) - rho * np.outer(s, y)
        H = turn @ H @ turn.T + rho * np.outer(s, s)
    np.testing.assert_allclose(_two_loops(g, path, root), H @ g)
    np.testing.assert_allclose(_two_loops(g, [], root), root @ root.T @ g)


def corrected(H, x_old, g_old, x_new, g_new):
    new = H.copy()
    correct_curvature(new, x_new - x_old, g_old - g_new)
    return new


def test_secants_make_the_curvature_agree_with_the_gradients():
    rng = np.random.default_rng(1)
    H = np.diag(rng.uniform(1.0, 2.0, 4))
    x, g = rng.normal(size=(2, 4)), rng.normal(size=(2, 4))
    g[1] = g[0] - np.array([3.0, 1.0, 2.0, 0.5]) * (x[1] - x[0])
    new = corrected(H, x[0], g[0], x[1], g[1])
    np.testing.assert_allclose(new @ (x[1] - x[0]), g[0] - g[1])
    # one that is nearly flat or bends upwards is left out
    s = x[1] - x[0]
    for part, taken in ((0.009, False), (0.011, True), (-1.0, False)):
        y = part * float(s @ H @ s) / float(s @ s) * s
        found = corrected(H, x[0], g[0], x[1], g[0] - y)
        assert np.array_equal(found, H) is not taken
    assert np.array_equal(corrected(-H, x[0], g[0], x[1], g[1]), -H)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_the_mode_does_not_depend_on_where_the_search_for_it_starts(K):
    Phi, outputs, t, weights, alpha = weights_of(K)
    likelihood = Categorical(K) if K > 1 else Bernoulli()
    found = laplace(Phi, t, weights, alpha, likelihood, outputs=outputs)
    gradient = np.array([Phi[:, i] @ (found.r[:, c] if K > 1 else found.r) for i, c in enumerate(outputs)])
    np.testing.assert_allclose(gradient, alpha * found.mean, atol=1e-9)
    rng = np.random.default_rng(3)
    for start in (found.mean, 30.0 * rng.normal(size=len(alpha)), np.full(len(alpha), 1e200)):
        with np.errstate(over="ignore", invalid="ignore"):
            again = laplace(Phi, t, weights, alpha, likelihood, start, outputs)
        np.testing.assert_allclose(again.mean, found.mean, atol=1e-9)
        assert again.log_evidence == pytest.approx(found.log_evidence, abs=1e-9)
        np.testing.assert_allclose(again.covariance, found.covariance, atol=1e-9)


def test_the_way_to_the_mode_by_gradients():
    """Ends at the mode from a fair guess; with a poor one it gives back where it stood."""
    Phi, outputs, t, weights, _ = weights_of(3)
    order = np.argsort(outputs, kind="stable")
    X, likelihood, k = Phi[:, order], Categorical(3), len(outputs)
    own = [slice(0, 4), slice(4, 8), slice(8, 12)]
    mode = laplace(X, t, weights, np.ones(k), likelihood, outputs=outputs[order])
    rows = _Here(X, t, weights, likelihood, own)
    begin = rows.at(np.zeros(k))
    found = _approach(rows, begin, mode.root)
    np.testing.assert_allclose(found.v, mode.mean, atol=1e-7)
    np.testing.assert_allclose(found.f, mode.f, atol=1e-6)
    value, r, W = likelihood.evaluate(t, found.f, weights)
    assert found.value == pytest.approx(value - 0.5 * found.v @ found.v)
    np.testing.assert_allclose(found.r, r)
    np.testing.assert_allclose(found.W, W)
    far = _approach(rows, begin, 1e5 * np.eye(k))
    assert far.value >= begin.value
    np.testing.assert_allclose(far.r, likelihood.evaluate(t, far.f, weights)[1])
    none = _approach(rows, begin, np.zeros((k, k)))
    assert none.v is begin.v and none.value == begin.value == rows.value_at_zero()


def test_a_start_from_which_rounding_hides_the_way_is_left():
    """With weights of 1e12 a far start has a likelihood whose digits do not tell one step from another."""
    Phi, outputs, t, _, alpha = weights_of(3)
    weights, far = np.full(40, 1e12), 1e9 * np.random.default_rng(3).normal(size=12)
    found = laplace(Phi, t, weights, alpha, Categorical(3), outputs=outputs)
    again = laplace(Phi, t, weights, alpha, Categorical(3), far, outputs)
    assert again.log_evidence == pytest.approx(found.log_evidence, rel=1e-12)
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-5)


def test_statistics_of_a_models_own_atoms_are_those_of_the_linearised_problem():
    """s = phi'C^-1 phi and q = phi'C^-1 t-hat with the atom left out of C (TF03 eq. (19)), from dense matrices."""
    Phi, outputs, t, weights, alpha = weights_of(1)
    p = laplace(Phi, t, weights, alpha, Bernoulli(), outputs=outputs)
    B, seen = p.W, Phi @ p.mean + p.r / p.W  # the target of the linearised problem, T01 eq. (27)
    s, q = p.sparsity_quality()
    for i in range(len(alpha)):
        rest = np.arange(len(alpha)) != i
        C = np.diag(1.0 / B) + (Phi[:, rest] / alpha[rest]) @ Phi[:, rest].T
        half = np.linalg.solve(C, Phi[:, i])
        assert s[i] == pytest.approx(half @ Phi[:, i], rel=1e-6)
        assert q[i] == pytest.approx(half @ seen, rel=1e-6)
    t[Phi[:, 0] > 0.5] = 1.0  # so that the data ask for one of the functions
    alone = [laplace(Phi[:, [i]], t, weights, alpha[[i]], Bernoulli()) for i in range(len(alpha))]
    expected = [bool(q[0] ** 2 <= s[0]) for s, q in (p.sparsity_quality() for p in alone)]
    assert [p.any_infinite for p in alone] == expected and set(expected) == {True, False}


@pytest.mark.parametrize("weight,rounding", [(1.0, 1e-9), (1e5, 1e-6), (1e9, 200.0)])  # of values of 24 weights
def test_softmax_of_nearly_collinear_functions_and_large_weights_has_its_evidence(weight, rounding):
    """X'B X of 1e16 and more: rounding would hide the identity that is added to it, and every small eigenvalue."""
    rng = np.random.default_rng(3)
    x, label = np.sort(rng.uniform(-1.0, 1.0, 24)), rng.integers(0, 3, 24)
    Phi = np.exp(-((x[:, None] - x[::4]) ** 2) / 8.0)
    alpha, weights = np.exp(rng.normal(size=(3, 6)) - np.log(weight)), np.full(24, weight)
    outputs = np.repeat(np.arange(3), 6)
    found = laplace(np.tile(Phi, 3), np.eye(3)[label], weights, alpha.ravel(), Categorical(3), outputs=outputs)
    exact = oracle.mp_laplace_evidence(Phi, label, alpha, "softmax", 60, weights, found.mean.reshape(3, 6))
    assert found.log_evidence == pytest.approx(float(exact), rel=0.0, abs=rounding)


class Slope:
    """One weight, whose objective and squared gradient are given: by the place, and one after the other."""

    def __init__(self, decrements, value=lambda v: 0.0):
        self.decrements, self.value, self.visited, self.factored = [*decrements], value, [], 0

    def at(self, v):
        self.visited.append(float(v[0]))
        return SimpleNamespace(v=v, value=self.value(v[0]))

    def gradient(self, point):
        return np.array([np.sqrt(self.decrements.pop(0) if len(self.decrements) > 1 else self.decrements[0])])

    def factor(self, point):
        self.factored += 1
        return np.eye(1)


WAYS = [lambda rows, begin: newton(rows, begin)[0], lambda rows, begin: _approach(rows, begin, np.eye(1))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("values", "visited"),
    [
        ({1.0: 1.1e-4}, [1.0]),
        ({1.0: 0.9e-4, 0.5: 0.6e-4}, [1.0, 0.5]),  # a rise of so much for a step of that length
        ({1.0: 0.9e-4, 0.5: 0.4e-4, 0.25: 0.3e-4}, [1.0, 0.5, 0.25]),
        ({1.0: -1.0, 0.5: 0.0, 0.25: 0.1}, [1.0, 0.5, 0.25]),
    ],
)
def test_steps_are_halved_until_the_objective_rises_by_a_share_of_what_the_slope_promises(way, values, visited):
    rows = Slope([1.0, 0.0], values.get)
    found = way(rows, SimpleNamespace(v=np.zeros(1), value=0.0))
    assert rows.visited == visited and found.v[0] == visited[-1]


@pytest.mark.parametrize(
    ("decrements", "value", "steps"),
    [
        ([0.9e-18], 0.0, 0),
        ([1.1e-18, 0.5e-18], 0.0, 1),
        ([0.9e-16], 100.0, 0),  # relative to the objective
        ([1.1e-16, 0.5e-16], 100.0, 1),
        ([1e-10, 0.6e-10], 0.0, 1),  # near the mode: no longer halved by a step
        ([1e-10, 0.4e-10, 0.3e-10], 0.0, 2),
        ([0.9e-7, 0.8e-7], 100.0, 1),
        ([1e-10, 1e-11, 1e-12, 1e-19], 0.0, 3),
    ],
)
def test_newton_steps_end_where_the_slope_vanishes_or_no_longer_falls(decrements, value, steps):
    rows = Slope(decrements, lambda v: value - v)  # falls: near the mode values do not tell
    newton(rows, SimpleNamespace(v=np.zeros(1), value=value))
    assert len(rows.visited) == steps and rows.factored == steps + 1


def test_newton_steps_go_on_while_the_curvature_moves():
    rows = Slope([1e-10, 0.9e-10, 0.8e-10, 0.7e-10, 0.6e-10], lambda v: 0.0)
    curvatures = iter([4.0, 3.0, 2.0, 1.0, 1.0 + 1e-7])
    rows.factor = lambda point: np.array([[next(curvatures)]])
    newton(rows, SimpleNamespace(v=np.zeros(1), value=0.0))
    assert len(rows.visited) == 4


@pytest.mark.parametrize("seed", [12, 14, 50])
def test_the_mode_where_decrements_rise_on_the_way(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 1))
    t = (X[:, 0] + 0.1 * rng.normal(size=60) > 0.0).astype(float)
    Phi, alpha, ones = oracle.gaussian_design(X, X[:6], [1.0]), 10.0 ** rng.uniform(-14.0, -4.0, 6), np.ones(60)
    found = laplace(Phi, t, ones, alpha, Bernoulli())
    mode = rows_for_loops(t, ones, Bernoulli()).fit(np.asfortranarray(Phi), alpha)
    exact = float(oracle.mp_laplace_evidence(Phi, t, alpha, "bernoulli", 50, None, found.mean))
    np.testing.assert_allclose([found.log_evidence, mode.log_evidence], exact, atol=1e-4)


def test_newton_ends_where_no_length_helps():
    rows, begin = Slope([1.0], lambda v: -1.0 if v else 0.0), SimpleNamespace(v=np.zeros(1), value=0.0)
    assert newton(rows, begin)[0] is begin
    assert rows.factored == 1 and len(rows.visited) == 41  # down to a length of 1e-12


def test_the_way_by_gradients_ends_where_no_length_helps_or_the_slope_has_vanished():
    begin = SimpleNamespace(v=np.zeros(1), value=0.0)
    rows = Slope([1.0], lambda v: -1.0)
    assert _approach(rows, begin, np.eye(1)) is begin and len(rows.visited) == 20  # down to a length of 1e-6
    for decrement, value, steps in ((0.9e-19, 0.0, 0), (1.1e-19, 0.0, 1), (0.9e-17, 100.0, 0), (1.1e-17, 100.0, 1)):
        rows = Slope([decrement, 0.0], lambda v, value=value: value - v)
        _approach(rows, SimpleNamespace(v=np.zeros(1), value=value), np.eye(1))
        assert len(rows.visited) == steps


def test_a_search_for_the_mode_begins_at_the_weights_given_where_they_are_better_than_none():
    weighting = Weighting.of(np.array([1, 0, 1]), np.array([4.0, 9.0, 16.0]), 2)
    start = np.array([1.0, 2.0, 3.0])
    for better in (True, False):
        rows = SimpleNamespace(
            at=lambda v, better=better: SimpleNamespace(v=v, value=float(better and v.any())), value_at_zero=lambda: 0.0
        )
        expected = [6.0, 2.0, 12.0] if better else [0.0, 0.0, 0.0]  # alpha^1/2 w, by output
        np.testing.assert_allclose(weighting.begin(rows, start).v, expected)


def test_products_of_columns_under_the_curvature_of_one_output():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(9, 4)), rng.uniform(size=9)
    np.testing.assert_allclose(curvature_gram(X, W, np.ones(9), [slice(0, 4)]), X.T @ np.diag(W) @ X, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 4])
def test_functions_that_all_outputs_share_have_the_same_posterior(K):
    rng = np.random.default_rng(K)
    Phi, weights = rng.normal(size=(30, 3)), rng.uniform(0.5, 2.0, 30)
    t, alpha = np.eye(K)[rng.integers(0, K, 30)], rng.uniform(0.1, 2.0, 3)
    columns, each = np.repeat(Phi, K, axis=1), np.repeat(alpha, K)
    outputs = np.tile(np.arange(K), 3)
    apart = laplace(columns, t, weights, each, Categorical(K), None, outputs)
    together = laplace(columns, t, weights, each, Categorical(K), None, outputs, shared=True)
    for name in ("mean", "covariance", "log_evidence", "f", "r", "W"):
        np.testing.assert_allclose(getattr(together, name), getattr(apart, name), rtol=1e-9, atol=1e-10)
    rows, own = SharedColumns(Phi, t, weights, Categorical(K)), [slice(3 * a, 3 * a + 3) for a in range(K)]
    gram = curvature_gram(np.tile(Phi, K), apart.W, weights, own)
    np.testing.assert_allclose(rows.gram(apart.W), gram, rtol=1e-12, atol=1e-13)
    far = SharedColumns(1e9 * Phi, t, weights, Categorical(K))  # normal equations have too few digits
    U = far.factor(far.at(np.zeros(3 * K)))
    whole = curvature_gram(1e9 * np.tile(Phi, K), np.full((30, K), 1.0 / K), weights, own)
    np.testing.assert_allclose(U.T @ U, whole + np.eye(3 * K), rtol=1e-6, atol=1e-6 * whole.max())
