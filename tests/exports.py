"""Models that every export must reproduce, and the comparison of exports with Python."""

import ctypes
import shutil
import subprocess
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import relvec
from relvec import RVC, RVR, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor, basis, kernels
from relvec.export.exported import read_model, split_pipeline

C_FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-fPIC", "-shared"]
OUTPUTS = {"predict": ["mean", "std"], "predict_interval": ["lower", "upper"]}
_rng = np.random.default_rng(0)
_X = _rng.uniform(0.0, 3.0, size=(50, 3))
DATA = _X, np.sin(2.0 * _X[:, 0]) + 0.5 * _X[:, 1] + 0.1 * _rng.normal(size=50)
NEW = _rng.uniform(-1.0, 4.0, size=(40, 3))
_KERNELS = {
    "gaussian": kernels.Gaussian("scale"),
    "widths": kernels.Gaussian((1.0, 2.0, 5.0)),
    "laplace": kernels.Laplace(2.0),
    "cauchy": kernels.Cauchy(1.5),
    "log distance": kernels.LogDistance(2.0),
    "matern 3/2": kernels.Matern(1.5, 2.0),
    "matern 5/2": kernels.Matern(2.5, (1.0, 2.0, 3.0)),
    "polynomial": kernels.Polynomial(3, 0.5, 2.0),
    "linear": kernels.Linear(),
    "linear spline": kernels.LinearSpline(),
    "sum and product": kernels.Gaussian(1.0) + kernels.Linear() * kernels.Cauchy(2.0),
}
REGRESSORS = {name: RVR(kernel=kernel, width="scale") for name, kernel in _KERNELS.items()} | {
    "no bias": RVR(fit_intercept=False, width="scale"),
    "bases": RVR(
        basis=["linear", basis.Polynomial(3), basis.KernelBasis("gaussian", centres=[[0.0] * 3, [1.0] * 3])],
        width="scale",
    ),
    "monomials": RVR(kernel=None, basis=basis.Polynomial(4, interactions=False), width="scale"),
    "columns": SparseBayesianRegressor(),
    "bias alone": RVR(kernel=None, basis=None, width="scale"),
}
PROCESSES = {
    "process": GPRegressor(),
    "process of few vectors": GPRegressor(max_vectors=12),
    "process, heteroscedastic": GPRegressor(noise="heteroscedastic"),
    "process, student-t": GPRegressor(likelihood="student-t"),
}
_three = np.array(["low", "middle", "high"])[np.digitize(DATA[1], [0.3, 1.2])]
CLASSIFIERS = {
    "binary": (RVC(width="scale"), np.where(DATA[1] > 0.7, "yes", "no")),
    "binary, mode": (RVC(kernel="laplace", averaging="mode", width="scale"), DATA[1] > 0.7),
    "linear": (RVC(kernel=None, basis="linear", width="scale"), (DATA[1] > 0.7).astype(int)),
    "columns": (SparseBayesianClassifier(), _three),
    "softmax": (RVC(kernel="cauchy", width="scale"), _three),
    "softmax, mode": (RVC(averaging="mode", width="scale"), _three),
    "softmax of two features": (
        RVC(kernel=None, basis="linear", width="scale"),
        np.digitize(DATA[1], [0.0, 0.5, 1.0, 1.5]),
    ),
    "one against the rest": (RVC(multi_class="ovr", width="scale"), np.digitize(DATA[1], [0.3, 1.2])),
}


def fitted(model, X, y):
    """Return a fitted copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(model).fit(X, y)


def mixed_table(pd):
    """Return a table of numbers, missing values and words, and a target."""
    rng = np.random.default_rng(3)
    words = rng.choice(["u", "v", "w"], 60)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": 100.0 * rng.normal(size=60), "c": words})
    y = frame["a"] + 2.0 * (frame["c"] == "u") + 0.1 * rng.normal(size=60)
    frame.loc[[1, 5], "b"] = np.nan
    return frame, y


def wide_latent(scale):
    """Return a classifier whose latent function has a standard deviation of up to `scale`."""
    model = fitted(RVC(kernel=None, basis="linear", width="scale"), DATA[0], DATA[1] > 0.7)
    latent = model.fitted_.classifier.latents[0]
    object.__setattr__(latent, "root", latent.root * scale / np.sqrt(latent.moments(NEW)[1].max()))
    return model


@cache
def with_varying_error_bars():
    """A pipeline whose last step has error bars that depend on two columns and the mean, and new rows."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, (180, 3))
    y = np.sin(X[:, 0]) + 10 ** (0.5 * X[:, 1] - 1.0) * rng.standard_normal(180)
    return make_pipeline(StandardScaler(), GPRegressor(max_vectors=60)).fit(X, y), rng.uniform(-5, 5, (40, 3))


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def compile_c(source, place):
    """Compile a C source next to `place`, without a warning, and return its functions."""
    place.with_suffix(".c").write_text(source)
    command = ["gcc", *C_FLAGS, "-o", place.with_suffix(".so"), place.with_suffix(".c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(place.with_suffix(".so")))


def run_onnx(graph, X):
    """Return the outputs of a graph by name; the test is skipped without ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {"X": X})))


def assert_exports(model, X, expected, folder, functions=("predict",), sample=None, **options):
    """C and ONNX must give the columns of `expected`, two for each of the `functions` of C; processes have no C."""
    if read_model(split_pipeline(model, "to_c")[1]).basis is None:
        with pytest.raises(NotImplementedError, match=r"Gaussian process.* fit a relevance vector machine .* as ONNX"):
            relvec.to_c(model, **options)
    elif shutil.which("gcc"):
        library, found = compile_c(relvec.to_c(model, **options), folder / "model"), np.zeros((len(X), len(expected.T)))
        for i, name in enumerate(functions):
            for row, own in zip(X, found):
                getattr(library, f"relvec_{name}")(pointer(row), pointer(own[2 * i :]), pointer(own[2 * i + 1 :]))
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    outputs = run_onnx(relvec.to_onnx(model, sample, **options), X)
    found = np.column_stack([np.ravel(outputs[name]) for function in functions for name in OUTPUTS[function]])
    np.testing.assert_allclose(found, expected, rtol=1e-7)
