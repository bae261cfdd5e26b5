"""Fits that are interrupted, run at once, or run in a forked process."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import relvec
from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.runtime import machine
from relvec.runtime.progress import watch
from relvec.solvers.laplace.problem import LaplaceModel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
F = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=40)
MODELS = {
    "regressor": (RVR(width="scale"), F),
    "outputs": (RVR(width="scale"), np.column_stack([F, -F])),
    "counts": (RVR(width="scale", likelihood="poisson"), np.round(np.exp(F))),
    "two classes": (RVC(width="scale"), F > 0.0),
    "three classes": (RVC(width="scale"), np.digitize(F, [-0.4, 0.4])),
    "learned width": (RVR(kernel="gaussian"), F),
    "as it comes": (RVR(), F),
    "process": (GPRegressor(), F),
    "process of classes": (GPClassifier(), F > 0.0),
}
QUICK = ("regressor", "outputs", "counts", "two classes")


def interrupt(after):
    """Return a watcher that does what Ctrl-C does, at step ``after``."""

    def function(progress):
        nonlocal after
        after -= 1
        if after < 0:
            raise KeyboardInterrupt

    return function


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_an_interrupted_fit_leaves_nothing(name, after):
    model, y = clone(MODELS[name][0]), MODELS[name][1].copy()
    rows, targets, parameters = X.copy(), y.copy(), dict(vars(model))
    with pytest.raises(KeyboardInterrupt), watch(interrupt(after)):
        model.fit(rows, targets)
    assert vars(model) == parameters
    assert np.array_equal(rows, X) and np.array_equal(targets, y)


@pytest.mark.parametrize("name", MODELS)
def test_an_interrupted_refit_leaves_the_earlier_fit(name):
    model, y = clone(MODELS[name][0]), MODELS[name][1]
    model.fit(X, y)
    before, state = model.predict(X), dict(vars(model))
    with pytest.raises(KeyboardInterrupt), watch(interrupt(1)):
        model.fit(X[::-1][:30], y[::-1][:30])
    assert list(vars(model)) == list(state) and all(vars(model)[key] is state[key] for key in state)
    assert np.array_equal(model.predict(X), before)


@pytest.mark.parametrize("name", ["regressor", "two classes"])
def test_a_time_limit_keeps_the_best_model_so_far(name):
    model, y = clone(MODELS[name][0]).set_params(time_limit=1e-9), MODELS[name][1]
    with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"):
        model.fit(X, y)
    assert model.status_ == "time_limit" and np.all(np.isfinite(model.predict(X)))
    assert len(model.predict(X)) == len(X)


def test_who_asks_to_stop_keeps_the_best_model_so_far():
    model = RVR(width="scale")
    with pytest.warns(ConvergenceWarning), watch(lambda progress: True):
        model.fit(X, F)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("call", ["write", "flush", "fsync"])
def test_a_full_disk_leaves_the_earlier_file(call, tmp_path, monkeypatch):
    path, earlier = tmp_path / "model.relvec", RVR(width="scale").fit(X, F)
    relvec.save(earlier, path)
    content = path.read_bytes()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        real = os.fdopen

        def opened(*arguments, **options):
            class Full:
                def __init__(self):
                    self.file = real(*arguments, **options)

                def __getattr__(self, name):
                    return full if name == call else getattr(self.file, name)

                def __enter__(self):
                    return self

                def __exit__(self, *error):
                    self.file.close()

            return Full()

        monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(OSError, match="No space left"):
        relvec.save(RVR(width=1.0).fit(X, F), path)
    monkeypatch.undo()
    assert path.read_bytes() == content and os.listdir(tmp_path) == ["model.relvec"]
    assert np.array_equal(relvec.load(path).predict(X), earlier.predict(X))


def fitted(name):
    """Return predictions and evidence of a model, as bytes."""
    model, y = clone(MODELS[name][0]), MODELS[name][1]
    model.fit(X, y)
    return pickle.dumps((model.predict(X), model.log_marginal_likelihood_))


@pytest.mark.parametrize("name", ["regressor", "outputs", "two classes", "three classes"])
def test_threads_give_the_same_models(name):
    alone = fitted(name)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fitted, [name] * 8)) == [alone] * 8


def test_processes_give_the_same_models():
    names = ["regressor", "outputs", "two classes"]
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(fitted)(name) for name in names)
    assert found == [fitted(name) for name in names]


def _child(name, connection):
    connection.send(fitted(name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="fork warns where threads run")
@pytest.mark.parametrize("name", ["regressor", "outputs", "two classes"])
@pytest.mark.parametrize("during", [False, True], ids=["after a fit", "during one"])
def test_a_forked_process_fits_too(name, during):
    """A fit of another thread may hold locks at that moment, and nobody releases them in the child."""
    before = fitted(name)
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(name, there))
    locks = [machine._lock, getattr(LaplaceModel.__dict__["posterior"], "lock", nullcontext())] if during else []
    taken, started = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            started.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    process.start()
    started.set()
    holder.join()
    try:
        assert here.poll(300), "the child does not answer"
        assert here.recv() == before
    finally:
        process.kill()
        process.join()


def resident():
    """Return the bytes this process has in memory, what C allocated among them; 0 where nobody says."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def used_after(count, names):
    """Fit so many models, and return the memory in use after that: of Python's objects, and of the process."""
    for i in range(count):
        fitted(names[i % len(names)])
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident()


@pytest.mark.parametrize(
    ("count", "names"),
    [(100, ("regressor", "two classes")), pytest.param(1000, QUICK, marks=pytest.mark.slow)],
)
def test_memory_does_not_grow_with_fits(count, names):
    """What leaks, leaks every time: the least of three rounds counts, as a cache may grow in one of them."""
    tracemalloc.start()
    try:
        used = [used_after(30, names)]
        for _ in range(3):
            used.append(used_after(count // 3, names))
    finally:
        tracemalloc.stop()
    objects, process = np.diff(used, axis=0).min(axis=0)
    assert objects < 30_000
    assert process < max(600_000, 2_000 * count)  # one dictionary has 13 kB
