"""One contract for every kind of design, and compression against the dense matrix."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

import oracle
from places import find_place
from relvec import RVR
from relvec.basis import Bias, Concat, KernelBasis, Linear
from relvec.design import DenseDesign, DeviceSamples, LocalSamples, StandardisedDesign, cholesky, reduce_rows
from relvec.design.sums import by_pivots, dense_rows
from relvec.kernels import Gaussian, LogDistance, Matern
from relvec.runtime import machine
from relvec.solvers import Sequential
from relvec.solvers.gaussian.model import GaussianModel

N = 700


def sinc(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(np.linalg.norm(X, axis=1) / np.pi) + 0.1 * rng.standard_normal(n)


def dictionary(kernel, *others, n=N):
    X, y = sinc(n)
    return Concat((KernelBasis(kernel), *others)).bind(X), X, y


def weights_of(n):
    return np.random.default_rng(3).integers(1, 4, n).astype(float)


def samples_of(X, y, w):
    return LocalSamples(X, y[:, None], w)


def on_device(spec):
    """Sums that another array library computes."""
    return lambda basis, X, y, w: by_pivots(basis, DeviceSamples(find_place(spec).to_device(X), y[:, None], w))


DESIGNS = {
    "torch": on_device("torch:cpu"),
    "strict": on_device("array_api_strict:device1"),
    "dense": lambda basis, X, y, w: dense_rows(basis, samples_of(X, y, w)),
    "compressed": lambda basis, X, y, w: by_pivots(basis, samples_of(X, y, w)),
}


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize("others", [(), (Bias(),), (Linear(), Bias())], ids=["alone", "bias", "linear"])
@pytest.mark.parametrize("weighted", [False, True])
def test_contract(kind, others, weighted):
    basis, X, y = dictionary(Gaussian(4.0), *others)
    w = weights_of(N) if weighted else np.ones(N)
    rows = DESIGNS[kind](basis, X, y, w)
    design = rows.design
    Phi = basis(X) * np.sqrt(w)[:, None]
    t = y * np.sqrt(w)
    norms = np.sqrt((Phi**2).sum(0))
    assert design.n_atoms == basis.n_atoms
    np.testing.assert_allclose(design.scale, norms, rtol=1e-6)
    Phi /= design.scale
    some = np.random.default_rng(0).choice(basis.n_atoms, 40, replace=False)
    columns = design.columns(some)
    assert columns.shape == (design.n_rows, 40)
    np.testing.assert_allclose(columns.T @ columns, Phi[:, some].T @ Phi[:, some], atol=1e-6)
    np.testing.assert_allclose(design.project(columns), Phi[:, some].T @ Phi, atol=1e-6)
    np.testing.assert_allclose(design.project(rows.targets)[0], Phi.T @ t, atol=1e-6 * np.linalg.norm(t))
    assert rows.targets[:, 0] @ rows.targets[:, 0] + rows.target_norm2_outside[0] == pytest.approx(t @ t, rel=1e-7)
    part = design.subset(some)
    np.testing.assert_array_equal(part.columns(np.arange(40)), columns)
    np.testing.assert_array_equal(part.scale, design.scale[some])


def test_compression_reports_what_it_did():
    basis, X, y = dictionary(Gaussian(4.0), Bias())
    rows = by_pivots(basis, samples_of(X, y, np.ones(N)))
    report = rows.compression
    assert report.n_rows == N and report.rank == rows.design.n_rows < 0.4 * N
    Phi = basis(X) / rows.design.scale
    difference = rows.design.project(rows.design.columns(np.arange(N))) - Phi[:, :N].T @ Phi
    assert np.abs(difference).max() <= 3 * report.column_error
    assert 0 < report.column_error < 1e-5


def test_equal_rows_become_one():
    X, y = sinc(N)
    X, y = np.vstack([X, X[:300]]), np.append(y, y[:300] + 0.3)
    basis = Concat((KernelBasis(Gaussian(4.0)), Bias())).bind(X)
    rows = by_pivots(basis, samples_of(X, y, np.ones(len(X))))
    assert rows.targets[:, 0] @ rows.targets[:, 0] + rows.target_norm2_outside[0] == pytest.approx(y @ y, rel=1e-7)
    Phi = basis(X) / rows.design.scale
    np.testing.assert_allclose(rows.design.project(rows.targets)[0], Phi.T @ y, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [(Gaussian(0.3), "the rank is high"), (LogDistance(), "not positive definite"), (Matern(1.5, 0.5), "slow decay")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_dense_matrix_where_compression_does_not_pay(kernel, why):
    basis, X, y = dictionary(kernel, Bias())
    samples = samples_of(X, y, np.ones(N))
    assert by_pivots(basis, samples) is None
    atoms, rows = reduce_rows(basis, samples)
    assert atoms is None and rows.compression is None and rows.design.n_rows == N


@pytest.mark.parametrize("n", [900, pytest.param(4000, marks=pytest.mark.slow)])
def test_compressed_and_dense_fits_are_the_same(n, monkeypatch):
    """With the finest compression from the start: a rougher one may lead to another local maximum."""
    monkeypatch.setattr("relvec.estimators.gaussian.ROUGH_TOLERANCE", cholesky.TOLERANCE)
    X, y = sinc(n)
    model = RVR(kernel=Gaussian(4.0), solver=Sequential(restarts=1), width="scale")
    compressed = model.fit(X, y)
    support, evidence, mean = compressed.relevance_, compressed.log_marginal_likelihood_, compressed.predict(X[:50])
    assert compressed.compression_ is not None
    monkeypatch.setattr("relvec.design.sums.MIN_ROWS_TO_COMPRESS", 10**9)
    dense = RVR(kernel=Gaussian(4.0), solver=Sequential(restarts=1), width="scale").fit(X, y)
    assert "compression_" not in vars(dense)
    np.testing.assert_array_equal(dense.relevance_, support)
    assert dense.log_marginal_likelihood_ == pytest.approx(evidence, abs=1e-3)
    np.testing.assert_allclose(dense.predict(X[:50]), mean, atol=1e-6)


@pytest.mark.parametrize(("noise", "tolerance"), [(0.1, cholesky.ROUGH_TOLERANCE), (1e-4, cholesky.TOLERANCE)])
def test_rows_are_compressed_as_finely_as_the_noise_asks_for(noise, tolerance):
    """The evidence is that of the columns themselves, and among these no addition gains more than tol."""
    X = np.random.default_rng(0).uniform(-10.0, 10.0, (600, 1))
    y = np.sinc(X[:, 0] / np.pi) + noise * np.random.default_rng(1).standard_normal(600)
    model = RVR(width=3.0, solver=Sequential(restarts=0)).fit(X, y)
    assert model.compression_.tolerance == tolerance and model.status_ == "converged"
    Phi = np.column_stack([np.exp(-((X - X.T) ** 2) / 9.0), np.ones(600)])
    rows = model.basis_.rows
    active, beta = np.where(rows >= 0, rows, 600), 1.0 / model.noise_variance_
    assert oracle.log_evidence(Phi[:, active], y, model.alpha_, beta) == pytest.approx(
        model.log_marginal_likelihood_, abs=1e-3
    )
    norms = np.linalg.norm(Phi, axis=0)
    S, Q = oracle.S_Q(Phi / norms, Phi[:, active], y, model.alpha_, beta)
    near = (np.abs((Phi / norms).T @ (Phi / norms)[:, active[active < 600]]) > 0.999).any(axis=1)  # they have a price
    ratio = np.maximum((Q**2 / S)[~near], 1.0)
    assert np.max(0.5 * (ratio - 1.0 - np.log(ratio))) <= 1e-3


def test_a_basis_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite on the training rows"):
        DenseDesign(np.array([[1.0, np.inf], [1.0, 2.0]]))


def test_long_products_use_the_threads_that_were_allowed(monkeypatch):
    """Within a fit small algebra has one thread, a long product all, and what was set returns in the end."""
    seen = []

    def threads():
        return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    class Watched(np.ndarray):
        def __matmul__(self, other):
            seen.append(threads())
            return np.asarray(self) @ np.asarray(other)

    monkeypatch.setattr(machine, "_MIN_PARALLEL_MULTIPLICATIONS", 1000)
    with threadpool_limits(2, user_api="blas"):
        allowed = threads()
        with machine.one_thread():
            machine.product(np.ones((2, 2)).view(Watched), np.ones((2, 2)))
            machine.product(np.ones((20, 20)).view(Watched), np.ones((20, 20)))
            assert threads() == 1
            with machine.one_thread():  # another fit runs
                machine.product(np.ones((20, 20)).view(Watched), np.ones((20, 20)))
        assert threads() == allowed
    assert seen == [1, allowed, 1]


@pytest.mark.parametrize(("size", "allowed"), [(3, 1), (20, 2)])
def test_moves_of_large_models_use_the_threads_that_were_allowed(monkeypatch, size, allowed):
    seen = []

    class Core:
        def __getattr__(self, name):
            return lambda *arguments: seen.append(
                max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
            )

    Core.size = size

    problem = SimpleNamespace(design=SimpleNamespace(n_atoms=50))
    monkeypatch.setattr(machine, "_MIN_PARALLEL_MULTIPLICATIONS", 1000)
    with threadpool_limits(2, user_api="blas"), machine.one_thread():
        model = GaussianModel(problem, Core())
        model.grow(4, 0.1)
        model.exchange(0.1)
        model.relax(1)
    assert seen == [allowed] * 3


def test_kernels_without_a_factor():
    Z = np.linspace(0.0, 1.0, 30)[:, None]
    assert cholesky.partial_cholesky(Gaussian(1.0), Z, 1e-12, 3) is None  # more than three columns
    F, left, pivots = cholesky.partial_cholesky(Gaussian(1.0), Z, 1e-12, 30)
    np.testing.assert_allclose(F @ F.T, Gaussian(1.0)(Z, Z), atol=1e-9)
    assert left.max() <= 1e-12 and len(pivots) == F.shape[1] < 20

    class Zero(Gaussian):
        def diag(self, X):
            return np.zeros(len(X))

    assert cholesky.partial_cholesky(Zero(1.0), Z, 1e-12, 30) is None


def test_a_dictionary_is_drawn_where_there_is_no_time_for_all():
    X = np.random.default_rng(0).normal(size=(2000, 6))
    basis = KernelBasis(Gaussian(width=0.5)).bind(X)
    samples = samples_of(X, X[:, 0], np.ones(2000))
    atoms, rows = reduce_rows(basis, samples, seconds=0.5)
    assert len(atoms) == rows.design.n_atoms < 1000
    assert reduce_rows(basis, samples, seconds=60.0)[0] is None


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("given", [np.asarray, sparse.csc_array])
def test_peaks_are_the_largest_values_of_columns(given, constant):
    rng = np.random.default_rng(0)
    X = np.where(rng.uniform(size=(12, 4)) < 0.5, rng.normal(size=(12, 4)) - 1.0, 0.0)
    design = StandardisedDesign(given(X), rng.uniform(0.5, 2.0, 12), constant, weighs_rows=False)
    whole = np.abs(design.columns(np.arange(design.n_atoms)))
    np.testing.assert_allclose(design.peaks, whole.max(axis=0))
    np.testing.assert_allclose(DenseDesign(X).peaks, np.abs(X / np.linalg.norm(X, axis=0)).max(axis=0))
