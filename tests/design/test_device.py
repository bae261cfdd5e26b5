"""Arrays of other libraries: PyTorch on the CPU, and array-api-strict, which has nothing that the standard lacks."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone

from places import find_place
from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.basis import Bias, Concat, Functions, KernelBasis, Linear, Polynomial, Precomputed
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson, logistic_log_odds, softmax_normal
from relvec.kernels import (
    Cauchy,
    FromCallable,
    Gaussian,
    Laplace,
    LinearSpline,
    LogDistance,
    Matern,
)
from relvec.kernels import Linear as LinearKernel
from relvec.kernels import (
    Polynomial as PolynomialKernel,
)
from relvec.runtime import arrays as _xp

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["torch:cpu", "torch:cuda", "array_api_strict", "array_api_strict:device1"])
def place(request):
    return find_place(request.param)


def sinc(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10, 10, (n, 2))
    return X, np.sinc(np.linalg.norm(X, axis=1) / np.pi) + 0.1 * rng.standard_normal(n)


def blobs(n, K, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return rng.normal(0.0, 2.0, (K, 2))[y] + rng.normal(size=(n, 2)), y


def is_at(values, place):
    return _xp.is_device_array(values) and _xp.device_of(values) == place


# ---------------------------------------------------------------- arrays


def test_there_and_back(place):
    values = np.random.default_rng(0).normal(size=(4, 3))
    away = place.to_device(values)
    assert is_at(away, place) and away.dtype == place.xp.float64
    np.testing.assert_array_equal(_xp.to_host(away), values)
    np.testing.assert_array_equal(_xp.to_host(_xp.take(away, [2, 0])), values[[2, 0]])
    np.testing.assert_array_equal(_xp.to_host(_xp.take(away, [1], axis=1)), values[:, [1]])
    np.testing.assert_allclose(_xp.to_host(_xp.dots(away, 2.0 * away, 0)), 2.0 * (values**2).sum(axis=0))
    frozen = values.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(_xp.to_host(_xp.like(away, frozen)), frozen)


KERNELS = [
    Gaussian(2.0), Gaussian((1.0, 2.0, 3.0)), Laplace(1.5), Cauchy(2.0), LogDistance(), Matern(1.5, 1.0),
    Matern(2.5, 2.0), PolynomialKernel(3, 1.0, 2.0), LinearKernel(), LinearSpline(), Gaussian(1.0) + LinearKernel(),
    Gaussian(1.0) * Cauchy(2.0), FromCallable(lambda X, Z: np.tanh(X @ Z.T)),
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_kernels(place, kernel):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(20, 3)), rng.normal(size=(7, 3))
    Z[:3] = X[:3]
    values = kernel(place.to_device(X), Z)
    assert is_at(values, place)
    np.testing.assert_allclose(_xp.to_host(values), kernel(X, Z), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(_xp.to_host(kernel.diag(place.to_device(X))), kernel.diag(X), rtol=1e-12)


@pytest.mark.parametrize("kernel", [Gaussian(4.0), Laplace(4.0), Matern(1.5, 4.0)], ids=repr)
def test_kernels_of_many_features(place, kernel):
    X = np.random.default_rng(0).normal(size=(30, 40)) + 5.0
    np.testing.assert_allclose(_xp.to_host(kernel(place.to_device(X), X)), kernel(X, X), rtol=1e-10, atol=1e-14)


def test_bases(place):
    X = np.random.default_rng(0).normal(size=(20, 3))
    parts = (KernelBasis(Gaussian(2.0)), Linear(), Polynomial(3), Functions(np.cos), Bias())
    basis = Concat(parts).bind(X)
    for one in (basis, basis.take([30, 2, 0, 22, 5]), basis.take([]), Precomputed().bind(np.eye(3) + 0.1)):
        np.testing.assert_allclose(_xp.to_host(one(place.to_device(X))), one(X), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)], ids=repr)
def test_means_of_likelihoods(place, likelihood):
    f = np.random.default_rng(0).normal(0.0, 3.0, (25, likelihood.n_outputs))
    f[:3, 0] = 40.0, -40.0, -0.0
    np.testing.assert_allclose(_xp.to_host(likelihood.mean(place.to_device(f))), likelihood.mean(f), rtol=1e-12)


def test_averages_over_the_latent_function(place):
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(0.0, 10.0, 50), 10.0 ** rng.uniform(-4, 4, 50)
    variance[:3] = 0.0
    found = logistic_log_odds(place.to_device(mean), place.to_device(variance))
    np.testing.assert_allclose(_xp.to_host(found), logistic_log_odds(mean, variance), rtol=1e-9)
    root = rng.normal(size=(9, 3, 3))
    mean, covariance = rng.normal(size=(9, 3)), root @ root.transpose(0, 2, 1)
    covariance[0] = 0.0
    found = softmax_normal(place.to_device(mean), place.to_device(covariance))
    np.testing.assert_allclose(_xp.to_host(found), softmax_normal(mean, covariance), rtol=1e-9)


# ---------------------------------------------------------------- estimators


@pytest.fixture(params=[False, True], ids=["no dispatch", "dispatch"])
def dispatch(request, monkeypatch):
    """Scikit-learn with and without its own support of the array API: data on a device stay there either way."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with ExitStack() as stack:
        try:
            stack.enter_context(sklearn.config_context(array_api_dispatch=request.param))
        except ImportError as error:  # of an older SciPy
            pytest.skip(str(error))
        yield


def test_regression_of_many_rows_finds_the_same_model(place, monkeypatch):
    """Sums over the rows are computed on the device, from which all else is learned."""
    monkeypatch.setattr("relvec.design.MAX_WHOLE_ROWS", 600)
    monkeypatch.setattr("relvec.design.sums.MAX_WHOLE_ROWS", 600)
    X, y = sinc(2000)
    host = RVR(width=4.0).fit(X, y)
    there = RVR(width=4.0).fit(place.to_device(X), place.to_device(y))
    np.testing.assert_array_equal(there.relevance_, host.relevance_)
    assert there.log_marginal_likelihood_ == pytest.approx(host.log_marginal_likelihood_, abs=1e-6)
    assert there.certificate_ <= 1e-4 and there.compression_.n_rows == 2000
    assert isinstance(there.weights_, np.ndarray)
    mean, std = there.predict(place.to_device(X), return_std=True)
    assert is_at(mean, place) and is_at(std, place)
    for got, expected in zip((mean, std), host.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(_xp.to_host(got), expected, atol=1e-9)


def test_every_prediction_comes_back_in_the_library_of_X(place, dispatch):
    X, y = sinc(80)
    model = RVR(width=2.5).fit(X, y)
    Z, t = X[:9], y[:9]
    there = place.to_device(Z)
    pairs = [
        (model.predict(there), model.predict(Z)),
        (model.predict(there, return_cov=True)[1], model.predict(Z, return_cov=True)[1]),
        (model.predict_interval(there), model.predict_interval(Z)),
        (model.predict_quantiles(there, [0.1, 0.9]), model.predict_quantiles(Z, [0.1, 0.9])),
        (model.sample_y(there, 3), model.sample_y(Z, 3)),
        (model.log_predictive_density(there, place.to_device(t)), model.log_predictive_density(Z, t)),
    ]
    for got, expected in pairs:
        assert is_at(got, place)
        np.testing.assert_allclose(_xp.to_host(got), expected, atol=1e-12)
    assert model.score(there, place.to_device(t)) == pytest.approx(model.score(Z, t))


@pytest.mark.parametrize("model", [RVR(width=2.5, predictive="augmented"), GPRegressor()], ids=repr)
def test_other_predictive_distributions(place, model):
    X, y = sinc(60)
    host = clone(model).fit(X, y)
    model = clone(model).fit(place.to_device(X), place.to_device(y))
    mean, std = model.predict(place.to_device(X[:5]), return_std=True)
    assert is_at(mean, place)
    np.testing.assert_allclose(_xp.to_host(std), host.predict(X[:5], return_std=True)[1], rtol=1e-6)


def test_several_outputs_and_weights(place):
    X, y = sinc(120)
    Y, w = np.column_stack([y, -2.0 * y + X[:, 0]]), np.arange(120) % 3
    host = RVR(width=3.0).fit(X, Y, sample_weight=w)
    there = RVR(width=3.0).fit(place.to_device(X), place.to_device(Y), sample_weight=place.to_device(w))
    np.testing.assert_array_equal(there.relevance_, host.relevance_)
    found = there.predict(place.to_device(X), return_std=True)[1]
    np.testing.assert_allclose(_xp.to_host(found), host.predict(X, return_std=True)[1], rtol=1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"multi_class": "ovr"}, {"solver": "mackay"}], ids=str)
@pytest.mark.parametrize("K", [2, 3])
def test_classification_finds_the_same_model(place, K, kwargs):
    if place.name.startswith("array_api_strict") and kwargs and K == 3:
        pytest.skip("the same code, and slower")
    X, y = blobs(50, K)
    host = RVC(width=2.0, **kwargs).fit(X, y)
    there = RVC(width=2.0, **kwargs).fit(place.to_device(X), place.to_device(y))
    if kwargs.get("solver") == "mackay":  # which prunes at a threshold: the last digits decide about functions near it
        np.testing.assert_allclose(there.predict_proba(X), host.predict_proba(X), atol=1e-3)
        return
    np.testing.assert_array_equal(there.relevance_, host.relevance_)
    np.testing.assert_allclose(there.log_marginal_likelihood_, host.log_marginal_likelihood_, atol=1e-6)
    Z = np.random.default_rng(5).normal(0.0, 4.0, (30, 2))
    for name in ("decision_function", "predict_proba", "predict_log_proba"):
        got = getattr(there, name)(place.to_device(Z))
        assert is_at(got, place)
        np.testing.assert_allclose(_xp.to_host(got), getattr(host, name)(Z), rtol=1e-5, atol=1e-7)
    labels = there.predict(place.to_device(Z))
    assert _xp.is_device_array(labels)
    np.testing.assert_array_equal(_xp.to_host(labels), host.predict(Z))
    assert there.score(place.to_device(X), y) == host.score(X, y)


def test_labels_that_are_words():
    torch = pytest.importorskip("torch")
    X, y = blobs(60, 2)
    model = RVC(width=2.0).fit(torch.asarray(X), np.array(["no", "yes"])[y])
    assert model.predict(torch.asarray(X[:5])).tolist() == model.predict(X[:5]).tolist()


def test_counts(place):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 4.0, (50, 1))
    y = rng.poisson(np.exp(np.sin(X[:, 0])))
    host, model = (RVR(width=1.0, likelihood="poisson") for _ in range(2))
    host.fit(X, y)
    model.fit(place.to_device(X), place.to_device(y))
    np.testing.assert_array_equal(model.relevance_, host.relevance_)
    found = model.predict(place.to_device(X))
    assert is_at(found, place)
    np.testing.assert_allclose(_xp.to_host(found), host.predict(X), rtol=1e-6)


def test_processes_of_classes_take_data_on_a_device(place):
    X, y = blobs(60, 3)
    host = GPClassifier(max_vectors=20).fit(X, y)
    model = GPClassifier(max_vectors=20).fit(place.to_device(X), place.to_device(y))
    found = model.predict_proba(place.to_device(X[:9]))
    assert is_at(found, place)
    np.testing.assert_allclose(_xp.to_host(found), host.predict_proba(X[:9]), atol=1e-6)


def test_numpy_comes_out_where_numpy_goes_in(place):
    X, y = sinc(100)
    model = RVR(width=2.5).fit(place.to_device(X), place.to_device(y))
    assert isinstance(model.predict(X), np.ndarray)
    assert is_at(model.predict(place.to_device(X)), place)


def test_single_precision_is_taken():
    torch = pytest.importorskip("torch")
    X, y = sinc(60)
    model = RVR(width=2.5).fit(torch.asarray(X, dtype=torch.float32), torch.asarray(y, dtype=torch.float32))
    assert model.predict(torch.asarray(X, dtype=torch.float32)).dtype == torch.float64


def test_bad_rows_are_refused_as_on_the_host():
    torch = pytest.importorskip("torch")
    X, y = sinc(60)
    model = RVR(width=2.5).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(torch.zeros(3, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(torch.full((3, 2), float("nan"), dtype=torch.float64))


@pytest.mark.slow
def test_the_benchmark_runs_on_the_host(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--device", "cpu", "--scale", "0.002"]
    subprocess.run([*command, "--parts", "sinc6,mixture"], check=True, env={**os.environ, "OUT": str(tmp_path)})
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["sinc6"]["status"] == "converged" and found["mixture"]["error"] < 0.2
