"""Sums over rows: what is added up in parts stands for all rows at once."""

import numpy as np

from relvec import RVR
from relvec.basis import KernelBasis, Polynomial
from relvec.design import summarise
from relvec.kernels import Gaussian

RNG = np.random.default_rng(5)
X = RNG.uniform(-5.0, 5.0, size=(300, 2))
Y = np.sinc(X[:, 0] / np.pi) + 0.3 * X[:, 1] + 0.1 * RNG.standard_normal(300)
GRID = KernelBasis(Gaussian(2.0), centres=RNG.uniform(-5.0, 5.0, size=(40, 2)))


def test_digits_that_a_gram_matrix_would_lose():
    x = 1.0 + 1e-7 * RNG.uniform(-1.0, 1.0, size=(200, 1))  # the powers of x are nearly the same: condition 1e8
    y = 1e14 * (x - 1.0) ** 2
    powers = Polynomial(2).bind(x)
    Phi = np.column_stack([powers(x), y])
    parts = [summarise(powers, x[i::4], y[i::4], np.ones(50)) for i in range(4)]
    R = parts[0].merged(parts[1]).merged(parts[2].merged(parts[3])).R
    true, ours = np.linalg.svd(Phi, compute_uv=False), np.linalg.svd(R, compute_uv=False)
    gram = np.sqrt(np.abs(np.linalg.eigvalsh(Phi.T @ Phi)[::-1]))
    assert np.abs(ours / true - 1.0).max() < 1e-3 < np.abs(gram / true - 1.0).max()


def test_rows_without_weight_count_for_nothing():
    model, weights = RVR(kernel=None, basis=[GRID, "linear"]), np.where(np.arange(300) < 100, 0.0, 1.0)
    expected = model.fit(X[100:], Y[100:]).predict(X)
    np.testing.assert_allclose(model.fit(X, Y, weights).predict(X), expected, atol=1e-6)


def test_fewer_rows_than_functions_stand_for_themselves():
    few = summarise(GRID.bind(X), X[:10], Y[:10, None], np.ones(10))
    assert few.R.shape == (10, 41)
    more = few.merged(summarise(GRID.bind(X), X[10:41], Y[10:41, None], np.ones(31)))
    assert more.R.shape == (41, 41) and np.all(np.tril(more.R, -1) == 0.0)
    Phi = np.column_stack([GRID.bind(X)(X[:41]), Y[:41]])
    assert np.allclose(more.R.T @ more.R, Phi.T @ Phi)
