"""Hostile data and models: what a fit is given here, and what it may answer.

A fit either ends in a valid model (finite numbers, a certificate or a ConvergenceWarning, an objective that never
falls) or in a ValueError that says what to do. It leaves its input as it was. Anything else is a failure.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor
from relvec.estimators.records import FittedProcess
from relvec.inference.hyperpriors import GammaPrior
from relvec.solvers import EM, MacKay, Sequential, as_solver

SECONDS = 20.0  # of CPU time: more for one of these small cases is a hang
# A step that keeps the objective may show it lower by its rounding error.
ROUNDING = 1e-9
FINITE = ("weights_", "intercept_", "gamma_", "covariance_", "log_marginal_likelihood_", "width_", "feature_relevance_")


@dataclass(frozen=True, eq=False)
class Case:
    """A model and what it is fitted to; ``words`` of the error it has to end in, where it has to."""

    name: str
    model: Any
    X: Any
    y: Any
    weights: Any = None
    words: str | None = None
    errors: tuple = field(default=(ValueError,))

    def __repr__(self) -> str:
        return f"{self.name}: {self.model!r}, X {_told(self.X)}, y {_told(self.y)}, weights {_told(self.weights)}"


def _told(values: Any) -> str:
    if values is None:
        return "none"
    return f"{getattr(values, 'dtype', type(values).__name__)}{list(np.shape(values))}"


def _copy(values: Any) -> Any:
    return values.copy() if hasattr(values, "copy") else values


def _same(a: Any, b: Any) -> bool:
    if sparse.issparse(a):
        return (a != b).nnz == 0
    return a is b is None or np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")


def attempt(case: Case) -> str:
    """Fit one case: "fitted", "warned" or "refused"; an AssertionError for anything else."""
    given = (case.X, case.y, case.weights)
    before, begin = [_copy(values) for values in given], time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the sample weights of")  # so small that they look like shares
        warnings.simplefilter("always", ConvergenceWarning)
        try:
            model = case.model.fit(case.X, case.y, sample_weight=case.weights)
        except case.errors as error:
            # LinAlgError is a ValueError by descent, but tells nobody what to do.
            assert not isinstance(error, np.linalg.LinAlgError), f"LinAlgError: {error}"
            assert len(str(error)) > 20, f"an error that says nothing: {error!r}"
            assert case.words is None or case.words in str(error), f"not the error expected: {error}"
            assert not hasattr(case.model, "fitted_"), "half a fit was left behind"
            result = "refused"
        else:
            assert case.words is None, f"fitted, instead of an error with {case.words!r}"
            check_model(model, bool(caught), _told_apart(model, case))
            # a row without weight may be too far from the others for a prediction
            check_predictions(model, case.X if case.weights is None else case.X[np.asarray(case.weights) > 0.0])
            result = "warned" if caught else "fitted"
    seconds = time.process_time() - begin
    assert seconds < SECONDS, f"{seconds:.0f} s"
    assert all(map(_same, given, before)), "input changed"
    return result


def _told_apart(model: Any, case: Case) -> float:
    """Return the nats of an evidence that rounding of the targets leaves open: eps y'Wy over the noise."""
    noise = np.atleast_1d(getattr(model, "noise_variance_", np.nan))
    if not np.all(np.isfinite(noise)) or not np.all(noise > 0.0):
        return 0.0
    with np.errstate(over="ignore"):
        y = np.asarray(case.y, dtype=float)
        ratio = np.where(np.isfinite(y), y, 0.0) / np.sqrt(noise.min())  # no limit of a censored target is infinite
        share = (
            1.0 if case.weights is None else np.asarray(case.weights, dtype=float).reshape(-1, *[1] * (ratio.ndim - 1))
        )
        return float(1e-16 * np.sum(share * ratio**2))


def check_model(model: Any, warned: bool, told_apart: float = 0.0) -> None:
    """Whether a fitted model is valid; ``told_apart`` nats are rounding of its targets."""
    for name in FINITE:
        values = getattr(model, name, 0.0)
        assert np.all(np.isfinite(values)), f"{name} = {values}"
    if isinstance(model.fitted_, FittedProcess):
        bounds = np.asarray(getattr(model, "bounds_", np.zeros(2)))
        assert np.all(bounds[..., 0] <= bounds[..., 1] + ROUNDING * np.abs(bounds[..., 1])), f"bounds_ = {bounds}"
        return
    alpha, weights = np.asarray(model.alpha_), np.asarray(model.weights_)
    # Centred columns move a constant that is not in the model.
    absent = (weights == 0.0) | (np.asarray(model.atoms_) == "bias")
    assert np.all(alpha > 0.0) and np.all(np.isfinite(alpha) | absent), f"alpha_ = {alpha}"
    if hasattr(model, "noise_variance_"):
        noise = np.asarray(model.noise_variance_)
        assert np.all((noise >= 0.0) & np.isfinite(noise)), f"noise_variance_ = {noise}"
    # The fixed points of "mackay" and "em" for classes and counts are near the maximum, not at it, and a hyperprior
    # has no certificate: only the other fits are held to one.
    gaussian = getattr(model, "likelihood", "") == "gaussian"
    solver = as_solver(model.solver)
    certain = isinstance(solver, Sequential) or (gaussian and solver.hyperprior == GammaPrior())
    certificate = np.asarray(model.certificate_)
    met = np.all(certificate <= (1e-4 if model.tol is None else model.tol)) or "held_out" in model.status_
    assert warned or not certain or met, f"certificate_ = {certificate}, no warning"
    for history in model.fitted_.histories:
        # The last step evaluates the model anew, without what updates have added up. Under weights of 1e12 that can be
        # more than rounding, and the fit warns.
        objective = history["objective"][: -1 if warned else None]
        assert np.all(np.isfinite(objective)), "objective not finite"
        fall = objective[:-1] - objective[1:]
        slack = ROUNDING * (1.0 + np.abs(objective[:-1])) + told_apart
        # A search of columns raises evidence plus prior, and a function that leaves gives back what it cost.
        priced = getattr(model, "kernel", None) is None
        assert not certain or priced or not len(fall) or np.all(fall <= slack), (
            f"objective fell by {fall.max():.3g} at step {fall.argmax() + 1}"
        )


def check_predictions(model: Any, X: Any) -> None:
    """Whether predictions for the training rows are valid."""
    if hasattr(model, "classes_"):
        p = model.predict_proba(X)
        assert np.all(np.isfinite(p)) and np.all(p >= 0.0) and np.allclose(p.sum(axis=1), 1.0), "probabilities"
        assert np.all(np.isin(model.predict(X), model.classes_))
        return
    mean, std = model.predict(X, return_std=True)
    assert np.all(np.isfinite(mean)), "predictions not finite"
    assert np.all(np.isfinite(std)) and np.all(std >= 0.0), "standard deviations"


# --- what goes wrong with kernels ---


def nan_kernel(X, Z):
    return np.full((len(X), len(Z)), np.nan)


def one_nan_kernel(X, Z):
    K = np.ones((len(X), len(Z)))
    K[-1, -1] = np.nan
    return K


def infinite_kernel(X, Z):
    return np.full((len(X), len(Z)), np.inf)


def flat_kernel(X, Z):
    return np.ones(len(X))


def transposed_kernel(X, Z):
    return np.ones((len(Z) + 1, len(X)))


def complex_kernel(X, Z):
    return np.exp(1j * (X[:, :1] - Z[:, 0]))


def text_kernel(X, Z):
    return np.full((len(X), len(Z)), "one")


def no_kernel(X, Z):
    return None


def zero_kernel(X, Z):
    return np.zeros((len(X), len(Z)))


def half_zero_kernel(X, Z):
    K = np.exp(-((X[:, :1] - Z[:, 0]) ** 2))
    return K * (np.arange(K.shape[1]) % 2)


def tiny_kernel(X, Z):
    return 1e-100 * np.exp(-np.minimum((X[:, :1] / 2.0 - Z[:, 0] / 2.0) ** 2, 50.0))


BROKEN = [
    nan_kernel,
    one_nan_kernel,
    infinite_kernel,
    flat_kernel,
    transposed_kernel,
    complex_kernel,
    text_kernel,
    no_kernel,
]
ODD = [zero_kernel, half_zero_kernel]


# --- generated cases ---

TASKS = ("gaussian", "two", "three", "poisson")


def _inputs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows (n, d) as no one wants them."""
    X = rng.normal(size=(n, d))
    for kind in rng.choice(11, size=rng.integers(1, 3), replace=False):
        if kind == 0:
            X *= 10.0 ** rng.uniform(-150, 150)
        elif kind == 1:
            X *= 10.0 ** rng.uniform(-20, 20, size=d)
        elif kind == 2:
            X = X[rng.integers(n, size=n)]
        elif kind == 3:
            X = X[:, rng.integers(d, size=d)] * rng.choice([-1.0, 1.0], size=d)
        elif kind == 4:
            X[:, rng.integers(d)] = rng.choice([0.0, 1.0, -1e30])
        elif kind == 5:
            X[rng.integers(n), rng.integers(d)] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(3, 150)
        elif kind == 6:
            X = np.zeros((n, d)) + X[0]
        elif kind == 7:
            X = X + 10.0 ** rng.uniform(0, 16)
        elif kind == 8:  # singular values down to 1e-16
            u, _, v = np.linalg.svd(rng.normal(size=(n, d)), full_matrices=False)
            X = u * np.logspace(0, -16, min(n, d)) @ v
        elif kind == 9:
            X = np.round(X)
    return X


def _targets(rng: np.random.Generator, X: np.ndarray, task: str) -> np.ndarray:
    """Targets (n,) for rows X (n, d)."""
    n = len(X)
    first = X[:, 0] / max(np.abs(X[:, 0]).max(), 1e-300)
    kind = rng.integers(8)
    f = [np.sin(3.0 * first), rng.normal(size=n), np.full(n, rng.choice([0.0, 1.0, -3.0])), first**2][kind % 4]
    if kind >= 4:
        f = f + 10.0 ** rng.uniform(-3, 0) * rng.normal(size=n)
    if task == "two":
        return (f > rng.choice([0.0, np.median(f), f.min()])).astype(int)
    if task == "three":
        return np.digitize(f, np.quantile(f, [0.3, 0.6]))
    if task == "poisson":
        return rng.poisson(np.exp(np.clip(f, -3, 3) + rng.choice([-3.0, 0.0, 8.0]))).astype(float)
    if rng.random() < 0.2:
        f[rng.integers(n)] = 10.0 ** rng.uniform(2, 12)
    if rng.random() < 0.2:
        f = f + 10.0 ** rng.uniform(0, 8)
    return f * 10.0 ** (rng.uniform(-150, 150) if rng.random() < 0.4 else 0.0)


def _form(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """The same rows in another form."""
    kind = rng.integers(12)
    if kind == 0:
        X = np.asfortranarray(X)
    elif kind == 1:
        wide = np.zeros((2 * len(X), 3 * X.shape[1]))
        wide[::2, ::3] = X
        X = wide[::2, ::3]
    elif kind == 2:
        X = X[::-1].copy()[::-1]
    elif kind == 3:
        X = np.clip(X, -1e30, 1e30).astype(np.float32)
    elif kind == 4:
        X = np.clip(X, -6e4, 6e4).astype(np.float16)
    elif kind == 5:
        X = np.clip(X, -1e9, 1e9).astype(np.int64)
    elif kind == 6:
        X = X > np.median(X)
    elif kind == 7:
        X = X.astype(">f8")
    X.flags.writeable = bool(rng.integers(2))
    return X


def _weights(rng: np.random.Generator, n: int) -> np.ndarray | None:
    kind = rng.integers(10)
    if kind == 0:
        return rng.choice([0.0, 1.0], size=n)
    if kind == 1:
        return rng.choice([0.0, 1.0, 1e4], size=n)
    if kind == 2:
        return np.full(n, 10.0 ** rng.uniform(-12, 12))
    if kind == 3:
        return 10.0 ** rng.uniform(-2, 2, size=n)
    return None


def _options(rng: np.random.Generator, task: str) -> dict[str, Any]:
    """Parameters of a model."""
    options: dict[str, Any] = {"width": "scale", "random_state": 0}
    kernel = rng.choice(["gaussian", "linear", "laplace", "log_distance", "none", "odd", "broken"],
                        p=[0.6, 0.1, 0.1, 0.06, 0.06, 0.04, 0.04])  # fmt: skip
    if kernel == "none":
        options |= {"kernel": None, "basis": str(rng.choice(["linear", "polynomial"]))}
    elif kernel in ("odd", "broken"):
        options |= {"kernel": rng.choice(np.array(ODD if kernel == "odd" else BROKEN, dtype=object))}
    else:
        options["kernel"] = str(kernel)
        if kernel == "gaussian" and rng.random() < 0.25:
            options["width"] = 10.0 ** rng.uniform(-150, 150)
    options["fit_intercept"] = bool(rng.random() < 0.8)
    if rng.random() < 0.2:
        rule = str(rng.choice(["mackay", "em"]))
        prior = GammaPrior(a=1e-6, b=1e-6) if rng.random() < 0.3 else GammaPrior()
        options["solver"] = {"mackay": MacKay, "em": EM}[rule](max_iter=200, hyperprior=prior)
    if task == "gaussian" and rng.random() < 0.1:
        options["noise_variance"] = 10.0 ** rng.uniform(-12, 12)
    if task == "three":  # weights of 1e12 make differences of rounding look like gains, one after the other
        options |= {
            "solver": replace(options.get("solver", Sequential()), max_iter=60),
            "multi_class": str(rng.choice(["multinomial", "ovr"])),
            "share_alpha": bool(rng.integers(2)),
        }
    return options


def generated(seed: int, number: int) -> Case:
    """Case ``number`` of a seed."""
    rng = np.random.default_rng([seed, number])
    task = str(rng.choice(TASKS, p=[0.55, 0.2, 0.1, 0.15]))
    n, d = int(rng.integers(2, 24)), int(rng.choice([1, 2, 3, 7, 40], p=[0.3, 0.3, 0.2, 0.15, 0.05]))
    X = _inputs(rng, n, d)
    y = _targets(rng, X, task)
    X = _form(rng, X)
    if X.dtype == np.float64 and rng.random() < 0.03:
        X = X.copy()
        X[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    if y.dtype == np.float64 and rng.random() < 0.03:
        y[rng.integers(n)] = rng.choice([np.nan, np.inf, -np.inf])
    options = _options(rng, task)
    if task == "poisson":
        options["likelihood"] = "poisson"
    model = (RVC if task in ("two", "three") else RVR)(**options)
    weights = _weights(rng, n)
    return Case(f"case {number} of seed {seed} ({task})", model, X, y, weights)


# --- models as they come, on the same data ---

AS_THEY_COME: dict[str, list[Any]] = {
    "gaussian": [
        RVR(), RVR(), GPRegressor(), GPRegressor(), SparseBayesianRegressor(), RVR(kernel="gaussian"),
        RVR(predictive="augmented"), RVR(likelihood="student-t"), RVR(centres="move"), RVR(width="learn"),
        RVR(kernel="linear"), RVR(noise_variance=0.3), GPRegressor(likelihood="student-t"),
        GPRegressor(noise="heteroscedastic"), GPRegressor(noise="constant"), GPRegressor(likelihood="censored"),
        GPRegressor(max_vectors=5),
    ],
    "two": [
        RVC(), RVC(), GPClassifier(), GPClassifier(), SparseBayesianClassifier(), RVC(width="learn"),
        RVC(predictive="augmented"), RVC(kernel="linear"), GPClassifier(kernel="matern32"),
    ],
    "three": [RVC(), GPClassifier(), GPClassifier(), SparseBayesianClassifier(), RVC(multi_class="ovr")],
    "poisson": [RVR(likelihood="poisson"), RVR(likelihood="poisson", width="learn")],
}  # fmt: skip
FAR = (1e3, 1e12, 1e100, 1e154, 1e300)


def as_it_comes(seed: int, number: int) -> Case:
    """The data of a generated case, given to a model with at most one parameter named."""
    case, rng = generated(seed, number), np.random.default_rng([seed, number, 1])
    task = case.name.rpartition("(")[2].rstrip(")")
    model = clone(AS_THEY_COME[task][rng.integers(len(AS_THEY_COME[task]))])
    y = case.y
    if getattr(model, "likelihood", None) == "censored":
        hidden = rng.random(len(y)) < 0.3
        y = np.column_stack([y, np.where(hidden, np.inf, y)])
    elif task == "gaussian" and rng.random() < 0.1:
        y = np.column_stack([y, -2.0 * y[::-1]])
    return Case(f"{case.name}, as it comes", model, case.X, y, case.weights)


def attempt_as_it_comes(case: Case) -> str:
    """`attempt`, and the model's attributes and its predictions far from the data."""
    result = attempt(case)
    if result == "refused":
        return result
    check_attributes(case.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for far in FAR:
            rows = np.where(np.arange(case.X.shape[1]) % 2, -far, far) * np.array([[1.0], [-1.0]])
            try:
                check_predictions(case.model, rows)
            except ValueError as error:
                assert not isinstance(error, np.linalg.LinAlgError) and len(str(error)) > 20, f"at {far:g}: {error!r}"
            except Exception as error:
                raise AssertionError(f"at {far:g}: {type(error).__name__}: {error}") from error
    return result


def check_attributes(model: Any) -> None:
    """Whether no public attribute of a fitted model has a NaN, but the noise variance that counts do not have."""
    counts = getattr(model, "likelihood", None) == "poisson"
    for name, value in vars(model).items():
        if name.endswith("_") and not name.startswith("_") and not (counts and name == "noise_variance_"):
            array = np.asarray(value) if isinstance(value, (float, np.ndarray, np.floating)) else np.zeros(0)
            assert array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} = {value}"
