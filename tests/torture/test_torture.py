"""A fixed catalogue of hostile data, a few hundred generated sets, and what Hypothesis finds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from cases import BROKEN, ODD, Case, attempt, generated, tiny_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import guards
from relvec import RVC, RVR
from relvec.inference.hyperpriors import GammaPrior
from relvec.solvers import MacKay

GENERATED, BATCH = 200, 20
SCALES = [1e-150, 1e-75, 1e-8, 1e8, 1e75, 1e150]
TASKS = ["gaussian", "two", "three", "poisson"]


def model(task="gaussian", **options):
    """Return a small model for a task."""
    options = {"width": "scale", "random_state": 0} | options
    if task == "poisson":
        options["likelihood"] = "poisson"
    return RVC(**options) if task in ("two", "three") else RVR(**options)


def data(task="gaussian", n=20, d=2, seed=0):
    """Return rows (n, d) and targets (n,) that nobody would call hostile."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    f = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    y = {
        "gaussian": f,
        "two": (f > 0.0).astype(int),
        "three": np.digitize(f, [-0.4, 0.4]),
        "poisson": rng.poisson(np.exp(f)).astype(float),
    }[task]
    return X, y


def reshaped(kind, X, folder):
    """Return the rows X in another form."""
    if kind == "fortran":
        return np.asfortranarray(X)
    if kind == "strided":
        return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    if kind == "reversed":
        return X[::-1, ::-1]
    if kind == "read-only":
        X = X.copy()
        X.flags.writeable = False
        return X
    if kind == "memmap":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    if kind == "bool":
        return X > 0.0
    if kind == "list":
        return X.tolist()
    return X.astype(kind)


FORMS = ["fortran", "strided", "reversed", "read-only", "memmap", "bool", "list", "float16", "float32", "longdouble",
         "int8", "uint64", ">f8", "object"]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", FORMS)
def test_forms(kind, task, tmp_path):
    X, y = data(task)
    assert attempt(Case(kind, model(task), reshaped(kind, X, tmp_path), y)) == "fitted"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("scale", SCALES)
def test_scales_of_inputs(scale, task):
    X, y = data(task)
    assert attempt(Case("X", model(task), scale * X, y)) == "fitted"


@pytest.mark.parametrize("kernel", ["linear", "laplace", "cauchy", "log_distance", "polynomial", "linear_spline", None])
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scales_of_inputs_of_other_kernels(scale, kernel):
    X, y = data()
    basis = "linear" if kernel is None else None
    attempt(Case("X", model(kernel=kernel, basis=basis), scale * X, y))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("solver", ["sequential", "mackay", "em"])
def test_scales_of_targets(scale, solver):
    X, y = data()
    attempt(Case("y", model(solver=solver), X, scale * y))


def _broken_values():
    for task in TASKS:
        X, y = data(task)
        for value in (np.nan, np.inf, -np.inf):
            bad = X.copy()
            bad[3, 1] = value
            yield pytest.param(Case("X", model(task), bad, y, words="NaN" if np.isnan(value) else "infinity"))
            bad = y.astype(float)
            bad[3] = value
            yield pytest.param(Case("y", model(task), X, bad, words="NaN" if np.isnan(value) else "infinity"))
            bad = np.ones(len(y))
            bad[3] = value
            yield pytest.param(Case("weights", model(task), X, y, bad, words="sample_weight"))
        yield pytest.param(Case("negative weight", model(task), X, y, -np.ones(len(y)), words="sample_weight"))
        yield pytest.param(Case("no weight", model(task), X, y, np.zeros(len(y)), words="weight"))
        yield pytest.param(Case("too few weights", model(task), X, y, np.ones(3), words="sample_weight"))
        yield pytest.param(Case("complex X", model(task), X + 1j, y, words="omplex"))
        yield pytest.param(Case("words", model(task), np.full(X.shape, "word"), y, words="'word'"))
        yield pytest.param(Case("no rows", model(task), X[:0], y[:0], words="0 sample"))
        yield pytest.param(Case("no columns", model(task), X[:, :0], y, words="0 feature"))
        yield pytest.param(Case("one row", model(task), X[:1], y[:1], words="1"))
        yield pytest.param(Case("unequal lengths", model(task), X, y[:-1], words="inconsistent"))
        yield pytest.param(Case("flat X", model(task), X[:, 0], y, words="Reshape"))
    # scikit-learn's own error for these is a TypeError.
    X, y = data()
    for make in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        yield pytest.param(Case("sparse", model(), make(X), y, words="toarray", errors=(TypeError,)))
    yield pytest.param(Case("one class", model("two"), X, np.ones(len(X)), words="one class"))
    yield pytest.param(Case("one class weighs", model("two"), X, y > 0, (y > 0).astype(float), words="2 classes"))
    yield pytest.param(Case("negative counts", model("poisson"), X, -np.ones(len(X)), words="whole numbers from 0"))
    yield pytest.param(Case("continuous classes", model("two"), X, y, words="continuous"))


@pytest.mark.parametrize("case", list(_broken_values()), ids=lambda case: case.name)
def test_what_cannot_be_fitted_is_refused_in_words(case):
    assert attempt(case) == "refused"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kernel", BROKEN, ids=lambda kernel: kernel.__name__)
def test_broken_kernels_are_refused(kernel, task):
    X, y = data(task)
    assert attempt(Case("kernel", model(task, kernel=kernel), X, y, words="kernel")) == "refused"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kernel", [*ODD, tiny_kernel], ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("intercept", [False, True])
def test_odd_kernels_are_fitted(kernel, intercept, task):
    X, y = data(task)
    attempt(Case("kernel", model(task, kernel=kernel, fit_intercept=intercept), X, y))


def _hard():
    rng = np.random.default_rng(1)
    for task in TASKS:
        X, y = data(task)
        n = len(X)
        yield "duplicated rows", task, np.repeat(X[:5], 4, axis=0), y, None
        yield "duplicated columns", task, np.hstack([X, X, -X]), y, None
        yield "constant inputs", task, np.full((n, 3), 7.0), y, None
        yield "zero inputs", task, np.zeros((n, 1)), y, None
        yield "one constant column", task, np.hstack([X, np.full((n, 1), 1e9)]), y, None
        yield "fewer rows than columns", task, rng.normal(size=(n, 100)), y, None
        yield "5000 columns", task, rng.normal(size=(n, 5000)), y, None
        yield "condition 1e16", task, X @ np.array([[1.0, 1.0], [1.0, 1.0 + 1e-16]]), y, None
        yield "large offset", task, X + 1e15, y, None
        outlier = X.copy()
        outlier[0] = 1e100
        yield "outlier in X", task, outlier, y, None
        yield "pure noise", task, X, rng.permutation(y), None
        yield "half without weight", task, X, y, np.arange(n) % 2.0
        yield "light", task, X, y, np.full(n, 1e-12)
        if task == "gaussian":  # weights so unequal can take minutes for the others
            yield "heavy", task, X, y, np.full(n, 1e12)
            yield "unequal weights", task, X, y, np.where(np.arange(n) % 3, 1e12, 1.0)
            yield "some heavy, some without", task, X, y, np.resize([0.0, 1.0, 1e12], n)
    X, y = data()
    for name, target in {
        "constant": np.full(20, 3.0),
        "almost constant": 3.0 + 1e-15 * y,
        "zero": np.zeros(20),
        "denormal": np.full(20, 5e-324) * (y > 0),
        "noise-free": np.sin(X[:, 0]),
        "linear, noise-free": X[:, 0],
        "outlier": np.where(np.arange(20) == 3, 1e100, y),
        "offset": y + 1e6,
        "two outputs, one zero": np.column_stack([y, 0 * y]),
        "two outputs, far apart": np.column_stack([1e-100 * y, 1e100 * y]),
        "integers": np.round(10 * y).astype(int),
        "booleans": y > 0.0,
        "half": y.astype(np.float16),
    }.items():
        yield f"target {name}", "gaussian", X, target, None
    yield "two samples", "gaussian", X[:2], y[:2], None
    yield "two samples", "two", X[:2], np.array([0, 1]), None
    yield "three samples", "three", X[:3], np.array([0, 1, 2]), None
    yield "two samples", "poisson", X[:2], np.array([0.0, 3.0]), None
    yield "no counts", "poisson", X, np.zeros(20), None
    yield "huge counts", "poisson", X, np.full(20, 1e6), None
    yield "one huge count", "poisson", X, np.where(np.arange(20) == 3, 1e6, 0.0), None
    line = np.linspace(-1, 1, 20)[:, None]
    yield "separable", "two", line, (line[:, 0] > 0).astype(int), None
    yield "separable with a gap", "two", line + 1e6 * (line > 0), (line[:, 0] > 0).astype(int), None
    yield "separable", "three", line, np.digitize(line[:, 0], [-0.3, 0.3]), None
    yield "contradictions", "two", np.repeat(line[:10], 2, axis=0), np.arange(20) % 2, None


HARD = list(_hard())


@pytest.mark.parametrize("name, task, X, y, weights", HARD, ids=[f"{case[0]}-{case[1]}" for case in HARD])
def test_hard_data(name, task, X, y, weights):
    attempt(Case(name, model(task), X, y, weights))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_defaults(scale, task):
    X, y = data(task, n=12, d=1)
    attempt(Case("defaults", model(task, width="auto"), scale * X, scale * y if task == "gaussian" else y))


def test_one_in_ten_thousand():
    X = np.random.default_rng(0).integers(0, 12, size=(10_001, 1)).astype(float)
    y = np.arange(10_001) == 0
    attempt(Case("rare", model("two"), X, y))
    attempt(Case("rare, balanced", model("two", class_weight="balanced"), X, y))


@pytest.mark.parametrize("width", [1e-150, 1e-82, 1e150])
def test_widths_far_from_the_data(width):
    X, y = data()
    attempt(Case("width", model(width=width), X, y))


def test_the_empty_model_is_an_answer():
    X, _ = data()
    noise = np.random.default_rng(3).normal(size=20)
    noise -= X @ np.linalg.lstsq(X, noise)[0]
    case = Case("noise", model(fit_intercept=False, kernel=None, basis="linear"), X, noise)
    assert attempt(case) == "fitted"
    assert len(case.model.weights_) == 0 and np.all(case.model.predict(X) == 0.0)


@pytest.mark.parametrize("first", range(0, GENERATED, BATCH))
def test_generated(first):
    _, results, failures = guards.run("problems", 7, range(first, first + BATCH))
    assert not failures, "\n".join(failures)
    assert sum(results.values()) == BATCH


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_models_as_they_come(first):
    _, results, failures = guards.run("defaults", 7, range(first, first + 20))
    assert not failures, "\n".join(failures)
    assert sum(results.values()) == 20


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_seed(seed, number):
    attempt(generated(seed, number))


@pytest.mark.parametrize("number", [1932, 2622, 4708, 5413, 6408, 6818])
def test_generated_cases_that_overflowed_once(number):
    attempt(generated(0, number))


@pytest.mark.parametrize("number", [1874, 5059, 8730, 9651, 12637, 13482, 17330])
def test_generated_cases_that_warned_in_the_words_of_numpy(number):
    attempt(generated(28, number))


@pytest.mark.parametrize("number", [586, 1154, 2493, 2566])
def test_generated_weights_that_overflowed_once(number):
    attempt(generated(0, number))


def test_an_evidence_that_rounding_moves_by_many_nats_is_no_certificate():
    """Weights of 1e12 and a dozen functions that depend on each other: evaluated anew the evidence is another."""
    assert attempt(generated(0, 3169)) == "warned"


@pytest.mark.parametrize("kind", ["all", "some"])
@pytest.mark.parametrize("task", ["two", "three", "poisson"])
def test_weights_of_a_trillion_end_soon(task, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=16)
    y = {"two": f > 0.0, "three": np.digitize(f, [-0.4, 0.4]), "poisson": rng.poisson(np.exp(f))}[task]
    weights = np.full(16, 1e12) if kind == "all" else rng.choice([1.0, 1e12], 16)
    assert attempt(Case(kind, model(task, width="scale"), X, y, weights)) in ("fitted", "warned")


def test_most_generated_cases_are_fitted():
    _, results, _ = guards.run("problems", 11, range(60))
    assert results["fitted"] > 25 and results["refused"] > 2, results


def test_as_many_parameters_as_samples():
    """MacKay's noise is the residual over N - sum(gamma), which is 0 / 0 here."""
    X, y = data()
    attempt(Case("gamma", model(kernel="gaussian", width=1e-26, solver="mackay", fit_intercept=False), X, y))


def test_targets_whose_squares_overflow_are_refused():
    X, y = data()
    assert attempt(Case("y", model(), X, 1e160 * y, words="divide y")) == "refused"


def test_weights_that_have_no_double_are_refused():
    X, y = data()
    assert attempt(Case("X", model(kernel="linear"), 1e-150 * X, y, words="Standardise")) == "refused"


@pytest.mark.parametrize("task", ["gaussian", "two"])
def test_a_hyperprior_out_of_proportion_is_refused(task):
    X, y = data(task)
    options = {"solver": MacKay(hyperprior=GammaPrior(a=1e-6, b=1e-6)), "kernel": "linear"}
    scaled = (X, 1e-140 * y) if task == "gaussian" else (1e140 * X, y)
    attempt(Case("hyperprior", model(task, **options), *scaled, words="out of all proportion"))
    attempt(Case("hyperprior", model(task, **options), X, y))


@pytest.mark.parametrize(("kind", "seed", "number"), guards.CORPUS)
def test_what_a_guard_once_found_is_mended(kind, seed, number):
    assert guards.run(kind, seed, range(number, number + 1))[2] == []


def test_the_guards_are_a_command():
    done = subprocess.run([sys.executable, guards.__file__, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--seconds" in done.stdout, done.stderr
