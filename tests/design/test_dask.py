"""Rows that Dask holds: the model and the predictions are those of one machine."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.basis import KernelBasis, Polynomial
from relvec.design import DaskSamples, draw_rows
from relvec.kernels import Gaussian, LogDistance
from relvec.runtime.progress import watch
from relvec.solvers import Sequential

da = pytest.importorskip("dask.array", reason="needs relvec[dask]")
dd = pytest.importorskip("dask.dataframe", reason="needs relvec[dask]")
distributed = pytest.importorskip("distributed", reason="needs relvec[dask]")

RNG = np.random.default_rng(3)
X = RNG.uniform(-5.0, 5.0, size=(4000, 2))
Y = np.sinc(np.hypot(X[:, 0], X[:, 1]) / np.pi) + 0.1 * RNG.standard_normal(4000)
W = RNG.uniform(0.5, 2.0, size=4000) * (RNG.random(4000) > 0.1)
CENTRES = RNG.uniform(-5.0, 5.0, size=(60, 2))
WAVE = np.where(X[:, 1] > 3.0 * np.sin(X[:, 0]) + RNG.standard_normal(4000), "above", "below")
SECTOR = np.digitize(X[:, 0] + 0.3 * X[:, 1] ** 2 + RNG.standard_normal(4000), [0.0, 3.0]) * 5 - 2
COUNTS = RNG.poisson(np.exp(0.5 + np.sin(0.7 * X[:, 0]) + 0.1 * X[:, 1]))


def chunked(*arrays, rows=900):
    return tuple(da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays)


def assert_same(model, other, rtol=1e-9):
    assert model.atoms_ == other.atoms_
    assert np.array_equal(model.relevance_, other.relevance_)
    assert np.array_equal(model.relevance_vectors_, other.relevance_vectors_)
    assert model.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=rtol)
    assert model.noise_variance_ == pytest.approx(other.noise_variance_, rel=1e-6)
    assert np.allclose(model.predict(X), other.predict(X), atol=1e-6)
    assert model.status_ == other.status_


@pytest.fixture(scope="class")
def cluster():
    """Two workers, each a process of its own, and a nanny that replaces one that is killed."""
    config = {"distributed.scheduler.worker-ttl": None, "distributed.worker.profile.enabled": False}
    import dask

    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def client(cluster):
    """The client of the cluster, once both workers answer: one that an earlier test killed may still be listed."""
    for _ in range(1000):  # until a busy machine has started another
        cluster.wait_for_workers(2)
        answers = cluster.run(os.getpid, on_error="return").values()
        if len(answers) == 2 and all(isinstance(answer, int) for answer in answers):
            return cluster
        time.sleep(0.2)
    raise RuntimeError(f"two workers do not answer: {answers}")


@pytest.fixture
def here():
    """No cluster: one thread of this process."""
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(autouse=True)
def small_draws(monkeypatch):
    """Rows stay with the workers, and all that is learned is learned from 700 of them."""
    monkeypatch.setattr("relvec.design.MAX_WHOLE_ROWS", 700)
    monkeypatch.setattr("relvec.design.sums.MAX_WHOLE_ROWS", 700)


MODEL = RVR(width=2.5)
QUICK = Sequential(restarts=0, exchange=False)
CLASSIFIER = RVC(width=3.0, solver=QUICK, tol=2.0)


@pytest.fixture
def alone():
    return clone(MODEL).fit(X, Y)


# ---------------------------------------------------------------- on workers


@pytest.fixture
def classified():
    return clone(CLASSIFIER).fit(X, WAVE)


class TestOnWorkers:
    def test_two_workers_give_the_model_of_one_process(self, client, alone):
        model = clone(MODEL).fit(*chunked(X, Y))
        assert_same(model, alone)
        assert 5 < len(alone.relevance_) < 60 and model.compression_.n_rows == 4000
        assert np.allclose(model.feature_relevance_, alone.feature_relevance_)
        mean, std = model.predict(da.from_array(X, chunks=(700, 1)), return_std=True)
        assert isinstance(mean, da.Array) and mean.shape == std.shape == (4000,)
        expected = alone.predict(X, return_std=True)
        assert np.allclose(mean.compute(), expected[0]) and np.allclose(std.compute(), expected[1])

    def test_a_lost_worker_costs_no_fit(self, client, alone):
        """A worker is killed when the search begins: what it held is computed anew."""
        killed = []

        def kill(progress):
            if progress.stage == "search" and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        with watch(kill):
            model = clone(MODEL).fit(*chunked(X, Y))
        assert killed
        assert_same(model, alone)

    def test_a_worker_lost_while_it_works(self, client, alone):
        """A worker is killed at some moment of the passes."""
        killer = threading.Timer(1.0, os.kill, (min(client.run(os.getpid).values()), signal.SIGKILL))
        killer.start()
        try:
            model = clone(MODEL).fit(*chunked(X, Y, rows=250))
        finally:
            killer.join()
        assert_same(model, alone)

    def test_rows_that_no_process_ever_holds(self, client):
        """Chunks are generated by the workers; nothing of their size comes back."""

        def chunk(block_info=None):
            n, i = block_info[None]["chunk-shape"][0], block_info[None]["chunk-location"][0]
            rng = np.random.default_rng(i)
            x = rng.uniform(-5.0, 5.0, size=(n, 1))
            return np.hstack([x, np.sinc(x / np.pi) + 0.1 * rng.standard_normal((n, 1))])

        rows = da.map_blocks(chunk, chunks=((5_000,) * 8, (2,)), dtype=float, meta=np.zeros((0, 0)))
        model = RVR(width=2.0, tol=0.1).fit(rows[:, :1], rows[:, 1])
        assert model.status_ == "converged" and model.n_iter_ > 0
        assert abs(model.noise_variance_ - 0.01) < 6e-4
        assert np.abs(model.predict(np.array([[0.0], [2.0]])) - np.sinc(np.array([0.0, 2.0]) / np.pi)).max() < 0.03

    @pytest.mark.slow
    def test_a_lost_worker_costs_no_process(self, client, monkeypatch):
        """A worker is killed while vectors grow, before the pass over all rows: the process is that of one machine."""
        monkeypatch.setattr("relvec.design.MAX_WHOLE_ROWS", 400)
        monkeypatch.setattr("relvec.estimators.sources.large.MAX_WHOLE_ROWS", 400)
        killed = []

        def kill(progress):
            if np.isfinite(progress.density) and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        alone = GPRegressor(max_vectors=64).fit(X, Y)
        with watch(kill):
            model = GPRegressor(max_vectors=64).fit(*chunked(X, Y))
        assert killed and len(alone.vectors_) == 64
        assert np.array_equal(model.vector_rows_, alone.vector_rows_)
        assert model.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-9)
        for there, here in zip(model.predict(X, return_std=True), alone.predict(X, return_std=True), strict=True):
            assert np.allclose(there, here, rtol=1e-6)

    def test_a_lost_worker_costs_no_fit_of_classes(self, client, classified):
        """A worker is killed while the draw is searched, before the passes over all rows."""
        killed = []

        def kill(progress):
            if progress.stage == "search" and progress.size == 2 and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        with watch(kill):
            model = clone(CLASSIFIER).fit(*chunked(X, WAVE, rows=2000))
        assert killed
        assert_same_classes(model, classified)
        assert len(classified.relevance_) > 3
        proba = model.predict_proba(chunked(X, rows=1500)[0])
        assert isinstance(proba, da.Array) and np.allclose(proba.compute(), classified.predict_proba(X))


# ---------------------------------------------------------------- classes and counts, without a cluster


def assert_same_classes(model, other, rtol=1e-9):
    assert model.atoms_ == other.atoms_ and model.status_ == other.status_
    assert np.array_equal(model.relevance_, other.relevance_)
    assert np.array_equal(model.relevance_vectors_, other.relevance_vectors_)
    assert model.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=rtol)
    assert np.allclose(model.weights_, other.weights_, rtol=1e-4, atol=1e-6)
    assert np.allclose(model.feature_relevance_, other.feature_relevance_)
    assert model.n_candidates_ == other.n_candidates_
    steps, expected = (h if isinstance(h, list) else [h] for h in (model.history_, other.history_))
    assert [h["row"].tolist() for h in steps] == [h["row"].tolist() for h in expected]
    if isinstance(other, RVC):
        assert np.array_equal(model.classes_, other.classes_) and model.classes_.dtype == other.classes_.dtype
        assert [rows.tolist() for rows in model.relevance_per_class_] == [
            rows.tolist() for rows in other.relevance_per_class_
        ]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (RVC(width=3.0, solver=Sequential(restarts=1), tol=5.0), WAVE),
        (RVC(width=3.0, solver=QUICK, tol=20.0), SECTOR),
        (RVC(width=3.0, solver=QUICK, tol=20.0, share_alpha=True), SECTOR),
        (RVC(width="scale", solver=QUICK, tol=40.0, multi_class="ovr", class_weight="balanced"), SECTOR),
        (RVR(width=3.0, solver=QUICK, tol=20.0, likelihood="poisson", basis="linear"), COUNTS),
        (RVR(width=4.0, solver=QUICK, tol=5.0, likelihood="poisson"), COUNTS[:, None]),
    ],
    ids=["two", "softmax", "shared", "one against the rest", "counts", "a column of counts"],
)
def test_classes_and_counts(model, y):
    alone, model = clone(model).fit(X, y, W), clone(model).fit(*chunked(X, y, W, rows=2000))
    assert_same_classes(model, alone)
    assert len(alone.relevance_) > 1
    new, few = X[:120], da.from_array(X[:120], chunks=(50, 1))
    predicted = model.predict(few)
    assert isinstance(predicted, da.Array) and predicted.shape == y[:120].shape
    if isinstance(alone, RVC):
        assert np.array_equal(predicted.compute(), alone.predict(new))
        for method in ("predict_proba", "predict_log_proba", "decision_function"):
            assert np.allclose(getattr(model, method)(few).compute(), getattr(alone, method)(new), atol=1e-6)
    else:
        assert np.allclose(predicted.compute(), alone.predict(new))
        assert np.allclose(model.predict_interval(few).compute(), alone.predict_interval(new))
        std = model.predict(few, return_std=True)[1]
        assert np.allclose(std.compute(), alone.predict(new, return_std=True)[1])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("solver", [QUICK, "mackay"], ids=["sequential", "mackay"])
@pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
def test_classes_over_given_centres(solver, multi_class):
    basis = [KernelBasis(Gaussian(3.0), centres=CENTRES[:4]), "linear"]
    weight = {-2: 1.0, 3: 2.0, 8: 0.5}
    model = RVC(kernel=None, basis=basis, solver=solver, multi_class=multi_class, class_weight=weight, tol=1.0)
    alone, model = clone(model).fit(X, SECTOR, W), clone(model).fit(*chunked(X, SECTOR, W, rows=4000))
    assert model.atoms_ == alone.atoms_ and model.status_ == alone.status_
    assert model.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-8)
    assert np.allclose(model.weights_, alone.weights_, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("here")
def test_tables_of_classes():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": WAVE, "w": W}, index=np.arange(4000) + 7)
    parts = dd.from_pandas(table, npartitions=2)
    model = clone(CLASSIFIER)
    alone = clone(model).fit(table[["a", "b"]], table["y"], table["w"])
    model.fit(parts[["a", "b"]], parts["y"], parts["w"])
    assert model.classes_.tolist() == alone.classes_.tolist() == ["above", "below"]
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert np.array_equal(model.relevance_, alone.relevance_)
    assert model.predict(parts[["a", "b"]]).compute().tolist() == alone.predict(table[["a", "b"]]).tolist()
    proba = model.predict_proba(parts[["a", "b"]]).compute()
    assert list(proba.columns) == ["above", "below"] and proba.index.equals(table.index)
    assert np.allclose(proba, alone.predict_proba(table[["a", "b"]]))
    odds = model.decision_function(parts[["a", "b"]]).compute()
    assert np.allclose(odds, alone.decision_function(table[["a", "b"]]))


@pytest.mark.usefixtures("here")
def test_few_rows_of_classes_are_brought_here():
    model = RVC(width=3.0, solver=QUICK)
    alone, model = clone(model).fit(X[:300], WAVE[:300]), model.fit(*chunked(X[:300], WAVE[:300]))
    assert np.array_equal(model.weights_, alone.weights_)
    with pytest.raises(ValueError, match="only one class"):
        RVC(width=3.0).fit(*chunked(X[:300], np.zeros(300)))


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_learned_widths_of_classes():
    model = RVC(width="learn", solver=QUICK, tol=0.1)
    alone, model = clone(model).fit(X, WAVE), clone(model).fit(*chunked(X, WAVE))
    assert model.width_ == pytest.approx(alone.width_, rel=1e-6)
    assert_same_classes(model, alone)


@pytest.mark.usefixtures("here")
def test_digits_that_the_gram_matrix_of_a_class_would_lose():
    X_far, y = 1e7 * X[:, :1], X[:, 0] + 0.1 * RNG.standard_normal(4000) > 0.0
    model = RVC(kernel=None, basis="linear", solver=QUICK, fit_intercept=False)
    alone, found = clone(model).fit(X_far, y), clone(model).fit(*chunked(X_far, y))
    assert found.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-9)


# ---------------------------------------------------------------- everything else needs no cluster


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("model", "tolerance"),
    [
        (RVR(width="scale"), 1e-9),
        (RVR(width=(2.0, 3.0), basis="linear"), 1e-9),
        pytest.param(RVR(kernel="polynomial", width="scale", fit_intercept=False), 1e-9, marks=pytest.mark.slow),
        (RVR(kernel=None, basis=[KernelBasis(Gaussian("scale"), centres=CENTRES), "linear"]), 1e-9),
        (RVR(kernel=None, basis=KernelBasis(LogDistance(), n_random=40), random_state=4), 1e-9),
        (RVR(kernel=None, basis=Polynomial(3), solver="mackay", tol=1e-3), 1e-7),
        (RVR(width=2.5, noise_variance=0.02), 1e-9),
    ],
    ids=["scale", "linear", "polynomial", "centres", "random", "mackay", "noise"],
)
def test_models(model, tolerance):
    # rows of weight zero count for nothing, but keep their numbers
    alone = clone(model).fit(X, Y, W)
    assert_same(clone(model).fit(*chunked(X, Y, W)), alone, tolerance)


@pytest.mark.usefixtures("here")
def test_learned_widths():
    one = X[:3200, :1], np.sinc(X[:3200, 0]) + 0.1 * RNG.standard_normal(3200)
    alone, model = (RVR(tol=1e-2).fit(*rows) for rows in (one, chunked(*one)))
    assert np.allclose(model.width_, alone.width_)
    assert_same_on(one[0], model, alone)
    assert model.tuning_.agreement == alone.tuning_.agreement


def assert_same_on(rows, model, other):
    assert np.array_equal(model.relevance_, other.relevance_)
    assert model.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-9)
    assert np.allclose(model.predict(rows), other.predict(rows), atol=1e-6)


@pytest.mark.usefixtures("here")
def test_several_outputs():
    many = np.column_stack([Y, X[:, 1] + 0.1 * RNG.standard_normal(4000)])
    alone, model = RVR(width=2.5).fit(X, many), RVR(width=2.5).fit(*chunked(X, many))
    assert_same(model, alone)
    assert [h["row"][-1] for h in model.history_] == [h["row"][-1] for h in alone.history_]
    mean, std = model.predict(chunked(X)[0], return_std=True)
    assert mean.shape == std.shape == (4000, 2)
    assert np.allclose(mean.compute(), alone.predict(X))
    assert model.predict_interval(chunked(X)[0]).compute().shape == (4000, 2, 2)


@pytest.mark.usefixtures("here")
def test_tables():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "w": W}, index=np.arange(4000) + 7)
    parts = dd.from_pandas(table, npartitions=5)
    alone = RVR(width=2.5).fit(table[["a", "b"]], table["y"], table["w"])
    model = RVR(width=2.5).fit(parts[["a", "b"]], parts["y"], parts["w"])
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert np.array_equal(model.relevance_, alone.relevance_)
    mean, std = model.predict(parts[["a", "b"]], return_std=True)
    assert isinstance(mean, dd.Series) and isinstance(std, dd.Series)
    found = mean.compute()
    assert np.allclose(found, alone.predict(table[["a", "b"]])) and found.index.equals(table.index)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(parts[["b", "a"]])
    many = RVR(kernel=None, basis="linear").fit(parts[["a", "b"]], parts[["y", "w"]])
    assert many.predict(parts[["a", "b"]]).compute().shape == (4000, 2)
    label = RVC(width=3.0, solver=Sequential(max_iter=5), tol=1.0)
    with pytest.warns(UserWarning):
        label.fit(table[["a", "b"]][:200], np.where(Y[:200] > 0.1, "up", "down"))
    proba = label.predict_proba(parts[["a", "b"]])
    assert list(proba.columns) == ["down", "up"] and np.allclose(proba.compute().sum(axis=1), 1.0)
    assert label.predict(parts[["a", "b"]]).compute().tolist() == label.predict(table[["a", "b"]]).tolist()


@pytest.mark.usefixtures("here")
def test_few_rows_are_brought_here():
    alone, model = RVR(width=2.5).fit(X[:300], Y[:300]), RVR(width=2.5).fit(*chunked(X[:300], Y[:300]))
    assert np.array_equal(model.weights_, alone.weights_)


@pytest.mark.usefixtures("here")
def test_chunks_of_any_kind():
    samples = DaskSamples(da.from_array(X, chunks=(1000, 1)), da.from_array(Y, chunks=333), W)
    assert samples.n_rows == np.count_nonzero(W)
    used = np.flatnonzero(W)
    chosen = np.array([3500, 2, 2, 1700])
    assert np.array_equal(samples.original_rows(chosen), used[chosen])
    total = samples.reduce(lambda b: b.weights @ b.targets, lambda a, b: a + b)
    assert total == pytest.approx([W @ Y])
    drawn = draw_rows(samples, 50)
    again = draw_rows(DaskSamples(*chunked(X[::-1].copy(), Y[::-1].copy(), W[::-1].copy(), rows=123)), 50)
    assert np.array_equal(drawn.hashed, again.hashed) and np.array_equal(drawn.X, again.X)


@pytest.mark.usefixtures("here")
def test_digits_that_a_gram_matrix_would_lose():
    far = X + 1e6  # columns of the trend are nearly the constant
    model = RVR(width=2.5, basis="linear")
    alone, found = clone(model).fit(far, Y), clone(model).fit(*chunked(far, Y))
    assert found.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-6)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (RVR(width=2.5), (np.where(X > 4.99, np.nan, X), Y), "Input X contains NaN"),
        (RVR(width=2.5), (X, np.where(Y > 1.0, np.inf, Y)), "Input y contains NaN or infinity"),
        (RVR(width=2.5), (X, Y, -W), "Negative values"),
        (RVR(width=2.5), (X, Y, 0.0 * W), "positive weight"),
        (RVR(width=2.5), (X, Y[:-1]), "inconsistent numbers of samples"),
        (RVR(kernel="precomputed"), (X, Y), "precomputed"),
        (RVR(width=2.5, predictive="augmented"), (X, Y), "predictive='rvm' alone"),
        (RVR(width=2.5, likelihood="student-t"), (X, Y), "likelihood='student-t' needs rows in memory"),
        (GPRegressor(noise="heteroscedastic"), (X, Y), "noise='heteroscedastic' needs"),
        (GPRegressor(likelihood="student-t"), (X, Y), "likelihood='student-t' needs"),
        (GPRegressor(likelihood="censored"), (X, Y), "likelihood='censored' needs"),
        (RVR(width=2.5, likelihood="poisson"), (X, Y), "whole numbers"),
        (RVR(width=2.5, likelihood="poisson", noise_variance=1.0), (X, COUNTS), "leave noise_variance"),
        (RVR(width=2.5, centres="move"), (X, Y), "centres that move"),
        (RVC(width=2.5), (X, Y), "Unknown label type: continuous"),
        (RVC(width=2.5), (X, np.where(Y > 1.0, np.nan, Y > 0.1)), "NaN"),
        (RVC(width=2.5), (X, np.zeros(4000)), "only one class"),
        (RVC(width=2.5), (X, np.column_stack([WAVE, WAVE])), "one label for every row"),
        (RVC(width=2.5), (X, WAVE, 1.0 * (WAVE == "above")), "at least 2 classes need samples"),
        (RVC(width=2.5, class_weight={"above": 0.0}, solver=QUICK), (X, WAVE), "at least 2 classes need samples"),
        (RVC(width=2.5, predictive="augmented"), (X, WAVE), "predictive='rvm' alone"),
        (RVC(width=2.5, multi_class="all"), (X, WAVE), "multi_class must be"),
        (RVC(kernel="precomputed"), (X, WAVE), "precomputed"),
    ],
)
def test_what_is_refused(model, data, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*chunked(*data))
    assert not hasattr(model, "fitted_")


@pytest.mark.usefixtures("here")
def test_covariances_and_other_columns_are_refused(alone):
    with pytest.raises(ValueError, match="ask for return_std"):
        alone.predict(chunked(X)[0], return_cov=True)
    with pytest.raises(ValueError, match="expects 2 features"):
        alone.predict(chunked(X[:, :1])[0])
    with pytest.raises(ValueError, match="unknown length"):
        RVR(width=2.5).fit(chunked(X)[0][chunked(Y)[0] > 0], Y)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("model", [RVR(kernel="log_distance", width=1.0), RVR(width=0.1, basis="linear")])
def test_a_kernel_without_low_rank_has_as_many_candidates_as_there_is_room_for(model):
    model = clone(model).set_params(memory_limit="10MB", solver=Sequential(max_iter=5))
    with pytest.warns(ConvergenceWarning, match="MAX_ITER"):
        model.fit(*chunked(X, Y, W))
    assert 0 < model.n_candidates_ < 700
    assert len(model.relevance_) and np.array_equal(model.relevance_vectors_, X[model.relevance_])
    assert model.log_marginal_likelihood_ > RVR(kernel=None).fit(X, Y, W).log_marginal_likelihood_


# ---------------------------------------------------------------- chunks, labels and predictions at their edges


def huge(X):
    return 1e200 * X[:, :1]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("model", "data", "message"), [
    (RVR(width=2.5), (X[:, :, None], Y), "X must have 2 dimensions"),
    (RVR(width=2.5), (X, Y[:, None, None]), "y must have one or two dimensions, got 3"),
    (RVR(kernel=None, basis=huge, likelihood="poisson"), (X, COUNTS), "beyond the range of floating-point numbers"),
])  # fmt: skip
def test_shapes_and_values_that_are_refused(model, data, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(*chunked(*data))


@pytest.mark.usefixtures("here")
def test_labels_in_a_column_and_chunks_without_rows_are_those_of_one_array():
    gaps = ((0, 1500, 0, 2500),)
    rows, labels = da.from_array(X, chunks=(*gaps, 2)), da.from_array(WAVE[:, None], chunks=(*gaps, 1))
    there, here = (RVC(kernel=None, basis="linear").fit(*data) for data in ((rows, labels), chunked(X, WAVE)))
    np.testing.assert_allclose(there.predict_proba(rows).compute(), here.predict_proba(X), rtol=1e-9)
    assert_same(RVR(width=2.5).fit(rows, da.from_array(Y, chunks=gaps)), RVR(width=2.5).fit(*chunked(X, Y)))


@pytest.mark.usefixtures("here")
def test_a_process_of_classes_within_the_memory_limit_is_fitted_here():
    alone, model = (GPClassifier(max_vectors=10).fit(*rows) for rows in ((X, WAVE), chunked(X, WAVE)))
    found = model.predict_proba(chunked(X[:50])[0])
    assert isinstance(found, da.Array) and np.array_equal(found.compute(), alone.predict_proba(X[:50]))
    drawn = GPClassifier(max_vectors=10, memory_limit="30MB").fit(*chunked(X, WAVE))  # more than 30 MB do not come here
    assert np.mean(drawn.predict(X) == WAVE) > 0.75 and set(map(tuple, drawn.vectors_)) <= set(map(tuple, X))


@pytest.mark.usefixtures("here")
def test_calibrated_intervals_and_sets_are_computed_where_the_rows_are():
    (rows,) = chunked(X)
    model = RVR(kernel=None, basis="linear").fit(X, Y).calibrate(X[:200], Y[:200])
    found = model.predict_interval(rows, 0.8)
    assert isinstance(found, da.Array)
    np.testing.assert_allclose(found.compute(), model.predict_interval(X, 0.8))
    with pytest.raises(ValueError, match="with Dask call predict and predict_interval"):
        model.predict(rows, return_interval=0.8)
    classes = RVC(kernel=None, basis="linear").fit(X, WAVE)
    np.testing.assert_array_equal(classes.predict_set(rows, 0.8).compute(), classes.predict_set(X, 0.8))


def test_chunks_of_different_lengths_are_refused():
    from relvec.design.dask import _chunk

    with pytest.raises(ValueError, match="a chunk of X has 3 rows, the same chunk of y 2 and of sample_weight 3"):
        _chunk(np.ones((3, 1)), np.ones(2), None)
