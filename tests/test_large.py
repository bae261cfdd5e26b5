"""Fits within a memory limit, and rows that are not in memory: the same models as in one piece."""

import subprocess
import sys
import tracemalloc
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import relvec.estimators.laplace as laplace_search
from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.basis import Bias, Concat, KernelBasis, Linear, Polynomial
from relvec.design import DenseDesign, LocalSamples, gram_rows, readers, samples, tall_qr
from relvec.design import streamed as stream
from relvec.design.streamed import compress_in_passes
from relvec.estimators.sources import MemorySource
from relvec.inference.likelihoods import Bernoulli
from relvec.kernels import Gaussian
from relvec.runtime.machine import memory_bytes, memory_left
from relvec.solvers import Sequential
from relvec.solvers import active_set as _columns
from relvec.solvers.laplace.outlook import most_promising
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.scan import scan

N = 700


def sinc(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(np.linalg.norm(X, axis=1) / np.pi) + 0.1 * rng.standard_normal(n)


def callable_gaussian(A, B):
    return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 16.0)


def in_passes(basis, X, y, w):
    samples = LocalSamples(X, y[:, None], w)
    part = next(p for p in basis.parts if isinstance(p, KernelBasis))
    return compress_in_passes(basis, samples, LocalSamples(part.centres), 4e9)


def in_precision(stored, monkeypatch):
    """Designs made in passes hold their dictionary in this type."""
    for name, dtype in (("_DOUBLE_MEMORY_SHARE", "float64"), ("_SINGLE_MEMORY_SHARE", "float32")):
        if dtype != stored:
            monkeypatch.setattr(f"relvec.design.streamed.{name}", 0.0)


DESIGNS = {
    "double": (in_passes, "float64"),
    "single": (in_passes, "float32"),
    "computed anew": (in_passes, None),
    "gram": (lambda basis, X, y, w: gram_rows(basis, LocalSamples(X, y[:, None], w)), ""),
}


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize("others", [(), (Bias(),), (Linear(), Bias())], ids=["alone", "bias", "linear"])
@pytest.mark.parametrize("weighted", [False, True])
def test_contract(kind, others, weighted, monkeypatch):
    """The contract of tests/test_design.py for designs made in passes."""
    monkeypatch.setattr("relvec.design.streamed.max_rank", lambda n, memory: 600)
    make, stored = DESIGNS[kind]
    in_precision(stored, monkeypatch)
    X, y = sinc()
    basis = Concat((KernelBasis(Gaussian(5.0)), *others)).bind(X)
    w = np.random.default_rng(3).integers(1, 4, N).astype(float) if weighted else np.ones(N)
    rows = make(basis, X, y, w)
    design = rows.design
    assert stored == "" or design.stored == stored
    Phi, t = basis(X) * np.sqrt(w)[:, None], y * np.sqrt(w)
    np.testing.assert_allclose(design.scale, np.sqrt((Phi**2).sum(0)), rtol=1e-6)
    Phi /= design.scale
    some = np.random.default_rng(0).choice(basis.n_atoms, 40, replace=False)
    columns = design.columns(some)
    assert design.n_atoms == basis.n_atoms and columns.shape == (design.n_rows, 40)
    np.testing.assert_allclose(columns.T @ columns, Phi[:, some].T @ Phi[:, some], atol=1e-6)
    np.testing.assert_allclose(design.project(columns), Phi[:, some].T @ Phi, atol=2e-6)
    np.testing.assert_allclose(design.project(rows.targets)[0], Phi.T @ t, atol=1e-6 * np.linalg.norm(t))
    assert rows.targets[:, 0] @ rows.targets[:, 0] + rows.target_norm2_outside[0] == pytest.approx(t @ t, rel=1e-7)
    part = design.subset(some)
    np.testing.assert_array_equal(part.columns(np.arange(40)), columns)
    np.testing.assert_array_equal(part.scale, design.scale[some])
    if kind != "gram":
        design.max_dense_atoms = 10  # a longer part is computed anew in every scan
        lazy = design.subset(some)
        assert lazy.matrix is None
        np.testing.assert_allclose(lazy.columns(np.arange(40)), columns, atol=1e-12)
        np.testing.assert_allclose(lazy.scale, part.scale, rtol=1e-12)
        np.testing.assert_allclose(lazy.project(columns), part.project(columns), atol=1e-6)
        np.testing.assert_allclose(lazy.subset(np.arange(5)).matrix, columns[:, :5], atol=1e-12)
    swept = design.scan(columns, lambda atoms, YPhi: [(atoms, YPhi)], lambda a, b: a + b)
    found = np.empty((40, basis.n_atoms))
    for atoms, YPhi in swept:
        found[:, atoms] = YPhi
    np.testing.assert_allclose(found, design.project(columns), atol=1e-12)


def test_rows_that_the_sample_does_not_explain_become_pivots(monkeypatch):
    X, y = sinc(1500)
    X[-1] = [60.0, 60.0]
    monkeypatch.setattr("relvec.design.cholesky.MAX_WHOLE_ROWS", 800)
    monkeypatch.setattr("relvec.design.cholesky.RANDOM_DIRECTIONS", 0)
    monkeypatch.setattr("relvec.design.cholesky.np.eye", lambda d: np.zeros((d, 1)))
    basis = Concat((KernelBasis(Gaussian(6.0)), Bias())).bind(X)
    rows = in_passes(basis, X, y, np.ones(len(X)))
    Phi = basis(X) / rows.design.scale
    some = np.append(np.arange(0, 1500, 100), 1499)
    columns = rows.design.columns(some)
    np.testing.assert_allclose(columns.T @ columns, Phi[:, some].T @ Phi[:, some], atol=1e-6)


def test_tall_qr_and_blocks_do_not_depend_on_the_blocks():
    X, y = sinc(300)
    A = np.column_stack([X, y])
    triangles = [
        tall_qr(LocalSamples(X, y[:, None], block_rows=b), lambda block: np.column_stack([block.X, block.targets]))
        for b in (1, 7, 300)
    ]
    for R in triangles:
        np.testing.assert_allclose(R.T @ R, A.T @ A, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 49), min_size=1, max_size=60), st.integers(1, 60))
def test_chosen_rows_come_in_the_order_asked_for(rows, block_rows):
    X = np.arange(100.0).reshape(50, 2)

    class Sliced:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, part):
            return X[part]

    for source in (X, Sliced()):
        np.testing.assert_array_equal(LocalSamples(source, block_rows=block_rows).take(rows), X[rows])


@pytest.mark.parametrize("stored", ["float64", "float32", None], ids=["double", "single", "computed anew"])
def test_passes_find_the_same_model(stored, monkeypatch):
    """Also where the dictionary is thinned first, which both do alike."""
    X, y = sinc(1500)
    monkeypatch.setattr(_columns, "MAX_WHOLE_ATOMS", 600)
    monkeypatch.setattr("relvec.design.base.Design.max_active_set", 500)
    monkeypatch.setattr("relvec.design.streamed.max_rank", lambda n, memory: 600)
    in_precision(stored, monkeypatch)
    model = RVR(width=5.0, solver=Sequential(restarts=1))
    plain = model.fit(X, y)
    support, evidence, mean = plain.relevance_, plain.log_marginal_likelihood_, plain.predict(X[:50])
    monkeypatch.setattr("relvec.design.dispatch.MAX_WHOLE_ROWS", 0)
    passes = RVR(width=5.0, solver=Sequential(restarts=1)).fit(X, y)
    assert passes.compression_ is not None and passes.n_subsets_ == 1
    np.testing.assert_array_equal(passes.relevance_, support)
    assert passes.log_marginal_likelihood_ == pytest.approx(evidence, abs=1e-3)
    np.testing.assert_allclose(passes.predict(X[:50]), mean, atol=1e-5)


def test_wide_kernels_on_many_features_converge():
    """Features that matter by a slope alone get widths of many times their range, and weights that cancel."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 5))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    model = RVR(width=[1.9, 2.0, 3.4, 44.0, 54.0]).fit(X, f + 0.1 * rng.standard_normal(4000))
    assert model.status_ == "converged" and model.certificate_ <= 1e-4
    assert model.log_marginal_likelihood_ > 2800.0  # rounding decides between maxima from 2,870 to 2,920
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.06


def test_tails_do_not_hold_a_compression_up(monkeypatch):
    """Rows with a direction each: passes that would take too long give way to subsets."""
    X, y = sinc(1500)
    basis = Concat((KernelBasis(Gaussian(4.0)), Bias())).bind(X)
    samples = LocalSamples(X, y[:, None])
    monkeypatch.setattr(stream, "sample_centres", lambda centres, most, memory: (centres[:200], most))
    assert stream.compress_in_passes(basis, samples, samples, 4e9) is not None
    monkeypatch.setattr(stream, "_MAX_MULTIPLICATIONS", 2e8)
    monkeypatch.setattr(stream, "max_rank", lambda n, memory: 1400)
    assert stream.compress_in_passes(basis, samples, samples, 4e9) is not None  # a low rank may take its time
    monkeypatch.setattr(stream, "_LOW_RANK", 10)
    assert stream.compress_in_passes(basis, samples, samples, 4e9) is None


def test_ranks_that_passes_have_time_for():
    assert stream.max_rank(10_000_000, 4e9) > 700  # ten million rows of two features
    assert 1000 < stream.max_rank(400_000, 4e9) < 2000
    assert stream.max_rank(400_000, 5e7) < 1000


@pytest.mark.parametrize("make", [RVR, GPRegressor])
def test_a_table_as_they_come(make):
    """Whole numbers, flags, a constant, a copy, a heavy tail, wild outliers and much noise, in single precision."""
    pd = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 6000
    tail, flag, count = rng.lognormal(0.0, 1.5, n), rng.uniform(size=n) < 0.3, rng.poisson(3, n)
    wild = rng.standard_normal(n)
    wild[:3] = 1e6
    x = rng.standard_normal(n)
    f = np.log1p(tail) + flag * x + 0.2 * count
    y = f + 1.5 * f.std() * rng.standard_normal(n)  # R^2 of .3
    table = pd.DataFrame(
        {"tail": tail, "flag": flag, "count": count, "wild": wild, "x": x, "copy": x, "constant": 1.0}
    ).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make().fit(table, y)
    mean = model.predict(table)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.5 * f.std()
    assert f.min() - 2.0 * f.std() < mean.min() and mean.max() < f.max() + 2.0 * f.std()
    table.loc[7, "x"] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(table, y)


def test_few_atoms_on_many_rows_are_exact():
    X, y = sinc(4000)
    basis = [KernelBasis(Gaussian(4.0), n_random=150), Polynomial(3)]
    kwargs = {"kernel": None, "basis": basis, "random_state": 0}
    dense = RVR(**kwargs).fit(X, y)
    reduced = RVR(**kwargs, memory_limit="10MB").fit(X, y)
    assert "compression_" not in vars(dense) and reduced.compression_.rank <= 160
    assert reduced.atoms_ == dense.atoms_
    assert reduced.log_marginal_likelihood_ == pytest.approx(dense.log_marginal_likelihood_, abs=1e-3)


def test_candidates_in_subsets_until_all_have_converged(monkeypatch):
    """The certificate holds over the whole dictionary: a search of it from this model finds nothing more."""
    X, y = sinc(1200)
    model = RVR(kernel=callable_gaussian, memory_limit="10MB").fit(X, y)
    assert model.status_ == "converged" and model.n_subsets_ > 2 and model.n_candidates_ == 1201
    evidence = model.log_marginal_likelihood_
    model.set_params(memory_limit="4GB", warm_start=True, solver=Sequential(restarts=0)).fit(X, y)
    assert model.n_subsets_ == 1
    assert model.log_marginal_likelihood_ - evidence < 0.01
    monkeypatch.setattr("relvec.solvers.subsets.MAX_LONG_PASSES", 0)
    with pytest.warns(ConvergenceWarning, match="only some of the training rows as candidates"):
        some = RVR(kernel=callable_gaussian, memory_limit="10MB").fit(X, y)
    assert some.status_ == "candidates" and some.n_candidates_ < 1201
    np.testing.assert_array_equal(some.relevance_vectors_, X[some.relevance_])


def test_several_outputs_in_subsets():
    X, y = sinc(1000)
    Y = np.column_stack([y, 2.0 * y**2])
    model = RVR(kernel=callable_gaussian, memory_limit="10MB").fit(X, Y)
    assert model.n_subsets_ > 1 and model.weights_.shape[0] == 2
    assert model.score(X, Y) > 0.5


def ripley(n, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
    return centres[y, rng.integers(0, 2, n)] + np.sqrt(0.03) * rng.standard_normal((n, 2)), y


@pytest.mark.parametrize(("few", "times"), [(300, 5), (150, 3)])
def test_classes_start_from_a_few_rows(few, times, monkeypatch):
    X, y = ripley(1500)
    whole, sizes, solve = RVC(width=0.5).fit(X, y), [], laplace_search.solve_laplace
    monkeypatch.setattr(laplace_search, "MIN_ROWS_TO_SUBSAMPLE", 1000)
    monkeypatch.setattr(laplace_search, "SUBSAMPLE_ROWS", few)
    monkeypatch.setattr(laplace_search, "SUBSAMPLE_GROWTH", times)

    def told(solver, problem, max_iter, verbose=0):
        found = solve(solver, problem, max_iter, verbose)
        if len(problem.target) == len(X):  # the search of all rows
            return found
        begun = 0 if problem.start is None else len(problem.start[0])
        sizes.append((len(problem.target), begun, len(found.state.active)))
        return found

    monkeypatch.setattr(laplace_search, "solve_laplace", told)
    thinned = RVC(width=0.5).fit(X, y)
    assert [size for size, _, _ in sizes] == ([300] if few == 300 else [150, 450])
    assert [begun for _, begun, _ in sizes] == [0, *(found for _, _, found in sizes[:-1])]  # each goes on from the last
    assert thinned.history_["size"][0] >= sizes[-1][2] > 1
    assert thinned.status_ == "converged"
    assert thinned.log_marginal_likelihood_ > whole.log_marginal_likelihood_ - 1.0
    K3 = np.digitize(X[:, 0], [-0.3, 0.3])
    assert RVC(width=0.5).fit(X, K3).score(X, K3) > 0.9


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_in_subsets_end_when_no_candidate_gains(classes, monkeypatch):
    """All candidates are looked at between two searches: a search of them all from this model finds nothing more."""
    X, y = ripley(500)
    y = y if classes == 2 else np.digitize(X[:, 0], [-0.3, 0.3])

    def kernel(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 0.25)

    with monkeypatch.context() as patch:
        patch.setattr("relvec.design.approximate._SINGLE_BYTES", 70.0)
        model = RVC(kernel=kernel, memory_limit="10MB").fit(X, y)
    assert 1 < model.n_subsets_ < 5 and model.status_ == "converged" and model.n_candidates_ == 501
    evidence = model.log_marginal_likelihood_
    model.set_params(memory_limit="4GB", warm_start=True, solver=Sequential(restarts=0)).fit(X, y)
    assert model.n_subsets_ == 1 and abs(model.log_marginal_likelihood_ - evidence) < 1e-3
    assert model.score(X, y) > 0.88


def test_the_most_promising_atoms_are_those_of_the_dense_scan():
    X, y = ripley(300)
    basis = Concat((KernelBasis(Gaussian(0.5)), Bias())).bind(X)
    design, source = DenseDesign(basis(X)), MemorySource(X, y[:, None].astype(float), np.ones(300))
    some = np.array([3, 40, 200, 300])
    parts = DenseDesign(basis.take(some)(X))
    problem = LaplaceProblem(parts, y.astype(float), np.ones(300), Bernoulli(), np.arange(4))
    model = LaplaceModel(problem, np.arange(4), problem.fit(np.arange(4), np.full(4, 0.5)))
    alpha = 0.5 * (design.scale[some] / parts.scale) ** 2
    whole = replace(problem, design=design, order=np.arange(301))
    found = scan(LaplaceModel(whole, some, whole.fit(some, alpha)))
    chosen = most_promising(model, some, np.arange(301), 301, partial(source.products, basis), 20)
    assert len(chosen) == len(set(chosen)) == 20 and not set(chosen) & set(some)
    best = np.argsort(-found.gains)[:16]
    assert set(best) <= set(chosen), "four at most are there as partners in an exchange"


@pytest.mark.parametrize(
    ("text", "value"), [("4GB", 4e9), ("500 MiB", 500 * 2**20), ("1e9", 1e9), (25_000_000, 2.5e7), ("0.1gb", 1e8)]
)
def test_memory_limits(text, value):
    assert memory_bytes(text) == value


@pytest.mark.parametrize("bad", ["4 apples", "", "1.2.3GB", 0, -1, 1000, None, float("inf"), "1KB"])
def test_memory_limits_that_make_no_sense(bad):
    with pytest.raises(ValueError, match="memory_limit must be"):
        RVR(memory_limit=bad).fit(*sinc(20))


@pytest.fixture
def on_disk(monkeypatch):
    """Nothing is read into memory as a whole."""
    monkeypatch.setattr(readers, "MAX_MEMORY_SHARE", 0.0)


def check_same(model, plain, X, rows=None):
    np.testing.assert_array_equal(model.relevance_, plain.relevance_)
    np.testing.assert_allclose(model.relevance_vectors_, plain.relevance_vectors_)
    assert model.log_marginal_likelihood_ == pytest.approx(plain.log_marginal_likelihood_, abs=1e-3)
    np.testing.assert_allclose(model.feature_relevance_, plain.feature_relevance_, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X if rows is None else rows), plain.predict(X), atol=1e-6)


@pytest.fixture(scope="module")
def fitted():
    X, y = sinc(900)
    return X, y, RVR(width=4.0).fit(X, y)


@pytest.mark.parametrize("disk", [False, True])
def test_memory_map(disk, fitted, tmp_path, monkeypatch):
    if disk:
        monkeypatch.setattr(readers, "MAX_MEMORY_SHARE", 0.0)
    X, y, plain = fitted
    mapped = np.memmap(tmp_path / "X", "float64", "w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    model = RVR(width=4.0).fit(np.memmap(tmp_path / "X", "float64", "r", shape=X.shape), y)
    check_same(model, plain, X)
    np.testing.assert_allclose(model.predict(mapped), plain.predict(X), atol=1e-6)
    view = RVR(width=4.0).fit(mapped[:, ::1][:], y)  # a view of the mapping has its own way
    check_same(view, plain, X)


def test_hdf5(fitted, tmp_path, on_disk):
    h5py = pytest.importorskip("h5py")
    X, y, _ = fitted
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = X.astype(np.float32)
        single = RVR(width=4.0).fit(X.astype(np.float32), y)
        model = RVR(width=4.0).fit(file["X"], y)
        check_same(model, single, X)
        mean, std = model.predict(file["X"], return_std=True)
        assert mean.shape == std.shape == y.shape


def test_zarr(fitted, on_disk):
    zarr = pytest.importorskip("zarr")
    X, y, plain = fitted
    array = zarr.create_array(store={}, shape=X.shape, chunks=(100, 2), dtype="f8")
    array[:] = X
    check_same(RVR(width=4.0).fit(array, y), plain, X)


@pytest.mark.parametrize("share", [0.1, 0.0], ids=["memory", "disk"])
def test_parquet(share, fitted, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(readers, "MAX_MEMORY_SHARE", share)
    X, y, plain = fitted
    table = pd.DataFrame({"t": y, "a": X[:, 0], "b": X[:, 1], "w": np.ones(len(y))})
    path = tmp_path / "rows.parquet"
    table.to_parquet(path)
    model = RVR(width=4.0).fit(path, "t", sample_weight="w")
    check_same(model, plain, X, table[["a", "b"]])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_allclose(model.predict(str(path)), plain.predict(X), atol=1e-6)
    with pytest.raises(ValueError, match="y must name a column"):
        RVR().fit(path, y)
    with pytest.raises(ValueError, match="no column 'z'"):
        RVR().fit(path, "z")


def test_files_that_shrink_or_are_of_another_kind_are_refused(tmp_path):
    X = np.memmap(tmp_path / "X", "float64", "w+", shape=(2000, 2))
    X.flush()
    (tmp_path / "X").write_bytes(b"short")
    with pytest.raises(ValueError, match="rows 1000 to 2000 of X are no longer in the file"):
        samples.read(X, 1000, 2000)
    (tmp_path / "X").unlink()
    with pytest.raises(ValueError, match="leave it alone during a fit"):
        samples.read(X, 0, 1)
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.npy").write_bytes(b"no table")
    with pytest.raises(ValueError, match="is no Parquet file: read other files yourself"):
        RVR().fit(tmp_path / "rows.npy", "y")


def test_weights_names_and_errors_on_disk(fitted, tmp_path, on_disk):
    X, y, _ = fitted
    mapped = np.memmap(tmp_path / "X", "float64", "w+", shape=X.shape)
    mapped[:] = X
    w = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    for solver in ("sequential", Sequential(restarts=0)):
        plain = RVR(width=4.0, solver=solver).fit(X, y, sample_weight=w)
        model = RVR(width=4.0, solver=solver).fit(mapped, y, sample_weight=w)
        check_same(model, plain, X)
    with pytest.raises(ValueError, match="X has 900 rows and y has 899: give a target for every row"):
        RVR().fit(mapped, y[1:])
    with pytest.raises(ValueError, match="classes and counts need their rows in memory"):
        RVC().fit(mapped, y > 0.1)
    with pytest.raises(ValueError, match="predictive='rvm'"):
        RVR(width=4.0, predictive="augmented").fit(mapped, y)
    mapped[5, 1] = np.nan
    with pytest.raises(ValueError, match="not finite between rows"):
        RVR(width=4.0).fit(mapped, y)


def test_more_rows_on_disk_than_candidates(fitted, tmp_path, on_disk, monkeypatch):
    monkeypatch.setattr("relvec.estimators.sources.disk.DISK_CANDIDATES_SHARE", 0.0)
    X, y = sinc(2000)
    mapped = np.memmap(tmp_path / "X", "float64", "w+", shape=X.shape)
    mapped[:] = X
    with pytest.warns(ConvergenceWarning, match="only some of the training rows as candidates"):
        model = RVR(width=4.0).fit(mapped, y)
    assert model.status_ == "candidates" and model.n_candidates_ == 1001
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.relevance_])
    whole = RVR(width=4.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), atol=0.1)
    order = np.random.default_rng(0).permutation(len(X))
    mapped[:] = X[order]
    with pytest.warns(ConvergenceWarning):
        shuffled = RVR(width=4.0).fit(mapped, y[order])  # candidates are drawn by content
    np.testing.assert_array_equal(
        np.unique(shuffled.relevance_vectors_, axis=0), np.unique(model.relevance_vectors_, axis=0)
    )


def test_learned_widths_on_disk(tmp_path, on_disk):
    X, y = sinc(400)
    mapped = np.memmap(tmp_path / "X", "float64", "w+", shape=X.shape)
    mapped[:] = X
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = RVR().fit(mapped, y)
    assert model.width_.shape == (2,) and model.score(X, y) > 0.4


@pytest.mark.parametrize(
    ("kind", "n", "limit"), [("gaussian", 8000, 2e7), ("callable", 2000, 2e7), ("classes", 3000, 2.5e7)]
)
def test_arrays_stay_within_the_limit(kind, n, limit):
    """Memory that NumPy allocates; the compiled searches take little besides."""
    X, y = sinc(n)
    model = {
        "gaussian": RVR(width=6.0, memory_limit=limit),
        "callable": RVR(kernel=callable_gaussian, memory_limit=limit),
        "classes": RVC(width=6.0, memory_limit=limit),
    }[kind]
    y = y > 0.2 if kind == "classes" else y
    RVR(width=6.0).fit(X[:60], y[:60] + 0.0)  # what is imported at first use
    tracemalloc.start()
    try:
        model.fit(X, y)
        assert tracemalloc.get_traced_memory()[1] <= 1.2 * limit
    finally:
        tracemalloc.stop()
    assert model.status_ == "converged"


@pytest.mark.parametrize("kind", ["values", "classes"])
def test_a_process_stays_within_the_limit_and_says_that_it_was_reached(kind):
    """A rough function with little noise, for which every further vector gains."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (900, 2))
    y = np.sin(6.0 * X[:, 0]) * np.cos(7.0 * X[:, 1]) + 0.01 * rng.standard_normal(900)
    model, y = (
        (GPRegressor(memory_limit="20MB"), y) if kind == "values" else (GPClassifier(memory_limit="20MB"), y > 0.0)
    )
    type(model)().fit(X[:60], y[:60])
    tracemalloc.start()
    try:
        with pytest.warns(ConvergenceWarning, match="MEMORY_LIMIT: more than [0-9]+ vectors would still gain"):
            model.fit(X, y)
        assert tracemalloc.get_traced_memory()[1] <= 2e7
    finally:
        tracemalloc.stop()
    assert model.status_ == "memory_limit" and model.score(X, y) > 0.5


@pytest.mark.parametrize("make", [GPRegressor, GPClassifier])
def test_the_status_of_a_process_says_that_max_vectors_was_reached(make):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (120, 2))
    y = np.sin(3.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.1 * rng.standard_normal(120)
    y = y if make is GPRegressor else y > 0.0
    model = make(max_vectors=12).fit(X, y)
    assert model.status_ == "max_vectors" and len(model.vectors_) <= 12
    assert make(max_vectors=120).fit(X, y).status_ == "converged"


def test_rows_that_a_process_has_no_room_for_are_refused_with_the_least_that_would_do():
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (9000, 40))
    for make in (GPRegressor, GPClassifier):
        with pytest.raises(ValueError, match=r"set it to '\d+MB' or more"):
            make(memory_limit="20MB").fit(X, X[:, 0] > 0.0)


def test_a_limit_below_what_the_rows_take_says_so():
    assert memory_left("10MB", 2000, 100) == 1e7 - 8 * 2000 * 100
    for numbers, a_row in ((412, 0), (12, 3200)):
        with pytest.raises(ValueError, match=r"memory_limit='10MB' .* 2000 rows .* set it to '11MB' or more"):
            memory_left("10MB", 2000, numbers, a_row)


def test_classes_under_a_limit_are_fitted_or_refused_with_the_least_that_would_do():
    X, y = sinc(3000)
    with pytest.raises(ValueError, match=r"set it to '\d+MB' or more"):
        RVC(width=1.0, memory_limit="10MB").fit(X, y > 0.1)


PEAK = """
import resource, sys, numpy as np
from relvec import RVR, RVC
kind, n, limit, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
rng = np.random.default_rng(0)
X = np.memmap(folder + "/X", "float64", "r", shape=(n, 2))
y = np.sinc(np.linalg.norm(np.array(X), axis=1) / np.pi) + 0.1 * rng.standard_normal(n)
RVR(width=3.0).fit(X[:100], y[:100])
RVC(width=3.0).fit(np.array(X[:100]), y[:100] > 0.1)
gaussian = lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 9.0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if kind == "classes":
    RVC(width=3.0, memory_limit=limit).fit(np.array(X), y > 0.3)
else:
    kernel = {"width": 3.0} if kind == "gaussian" else {"kernel": gaussian}
    RVR(memory_limit=limit, **kernel).fit(X, y)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n", "limit"),
    [("gaussian", 60_000, 3e8), ("gaussian", 60_000, 1e8), ("callable", 6000, 1e8), ("classes", 30_000, 2e8)],
)
def test_peak_memory_stays_within_the_limit(kind, n, limit, tmp_path):
    X = np.memmap(tmp_path / "X", "float64", "w+", shape=(n, 2))
    X[:] = np.random.default_rng(1).uniform(-10, 10, (n, 2))
    X.flush()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PEAK, kind, str(n), str(limit), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) <= 1.2 * limit
