"""Shapley values: they sum to the prediction less the baseline, and are those of the definition."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.base import clone

from relvec import RVC, RVR, SparseBayesianRegressor, kernels, shapley_values
from relvec.basis import Polynomial
from relvec.estimators.explain import shapley

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (70, 3))
Y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] + 0.05 * RNG.standard_normal(70)
NEW = RNG.uniform(-2.0, 2.0, (4, 3))
MODELS = {
    "gaussian": RVR(kernel="gaussian", width=[1.0, 2.0, 3.0]),
    "as it comes": RVR(),
    "with inputs": RVR(width=1.5, basis=["linear", Polynomial(3)]),
    "sum and product": RVR(kernel=kernels.Gaussian(1.0) * kernels.Gaussian(3.0) + kernels.Linear()),
    "matern": RVR(kernel="matern32", width=2.0),
    "process": RVR(width=1.5, predictive="process"),
}


def by_definition(f, x, background):
    """Mean over all orders of the inputs and all background rows."""
    values = np.zeros(len(x))
    orders = list(permutations(range(len(x))))
    for b in background:
        for order in orders:
            row = b.copy()
            for j in order:
                before = f(row[None, :])[0]
                row[j] = x[j]
                values[j] += f(row[None, :])[0] - before
    return values / len(orders) / len(background)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_definition_and_sum_to_the_prediction(name):
    model = MODELS[name].fit(X, Y)
    background = X[:5]
    found = shapley_values(model, NEW, background)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.baseline, model.predict(NEW), rtol=0, atol=1e-9)
    assert found.baseline == pytest.approx(model.predict(background).mean(), abs=1e-9)
    np.testing.assert_allclose(found.values[0], by_definition(model.predict, NEW[0], background), atol=1e-9)
    assert not found.std_error.any()


def test_relevance_vectors_are_the_background():
    model = RVR(width=1.5).fit(X, Y)
    found = shapley_values(model, NEW)
    np.testing.assert_allclose(found.values, shapley_values(model, NEW, model.relevance_vectors_).values)
    assert found.mean_absolute.shape == (3,)


def test_linear_models_need_a_background():
    model = SparseBayesianRegressor().fit(X, X[:, 0] - 2.0 * X[:, 2] + 0.1 * Y)
    with pytest.raises(ValueError, match="background"):
        shapley_values(model, NEW)
    found = shapley_values(model, NEW, X)
    np.testing.assert_allclose(found.values, (NEW - X.mean(axis=0)) * model.coef_, atol=1e-12)


def test_many_inputs_of_a_gaussian_kernel_are_exact():
    wide = RNG.standard_normal((60, 25))
    model = RVR(kernel="gaussian", width=6.0, noise_variance=0.1).fit(wide, np.sin(wide[:, 0]) + wide[:, 1])
    found = shapley_values(model, wide[:3])
    np.testing.assert_allclose(found.values.sum(axis=1) + found.baseline, model.predict(wide[:3]), rtol=0, atol=1e-9)


def test_sampled_values_are_within_their_errors(monkeypatch):
    model = RVR(kernel="matern32", width=2.0).fit(X, Y)
    exact = shapley_values(model, NEW, X[:5])
    monkeypatch.setattr(shapley, "MAX_ENUMERATED_INPUTS", 2)
    sampled = shapley_values(model, NEW, X[:5], n_permutations=2000)
    assert (sampled.std_error > 0.0).all() and sampled.std_error.max() < 0.2 * np.abs(exact.values).max()
    assert np.abs(sampled.values - exact.values).max() < 4.0 * sampled.std_error.max()
    np.testing.assert_allclose(sampled.values.sum(axis=1) + sampled.baseline, model.predict(NEW), rtol=0, atol=1e-9)


def test_values_of_shapiq_are_within_their_errors(monkeypatch):
    wide = np.column_stack([X, RNG.uniform(-2.0, 2.0, (70, 8))])
    model, new = RVR(kernel="matern32", width=5.0).fit(wide, Y), wide[:2]
    with pytest.raises(ValueError, match="approximation must be"):
        shapley_values(model, new, wide[:5], approximation="guess")
    pytest.importorskip("shapiq")
    found = shapley_values(model, new, wide[:5], n_permutations=1000, approximation="shapiq")
    np.testing.assert_allclose(found.values.sum(axis=1) + found.baseline, model.predict(new), rtol=0, atol=1e-6)
    monkeypatch.setattr(shapley, "MAX_ENUMERATED_INPUTS", 11)
    exact = shapley_values(model, new, wide[:5])
    assert 0.0 < np.abs(found.values - exact.values).max() < 4.0 * found.std_error.max()
    assert found.std_error.max() < 0.1 * np.abs(exact.values).max()


@pytest.mark.parametrize("model", [RVC(), RVC(width=2.0)], ids=["as it comes", "width"])
def test_classes(model):
    model.fit(X, np.digitize(Y, [-0.5, 0.5]))
    found = shapley_values(model, NEW, X[:5])
    assert found.values.shape == (4, 3, 3)
    latent = model.basis_(NEW) @ model.weights_.T
    np.testing.assert_allclose(found.values.sum(axis=2) + found.baseline, latent, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(latent.argmax(axis=1), model.predict(NEW))
    two = clone(model).fit(X, Y > 0.0)
    found = shapley_values(two, NEW)
    np.testing.assert_array_equal(found.values.sum(axis=1) + found.baseline > 0.0, two.predict(NEW))
    assert not found.std_error.any()


def test_outputs():
    both = RVR(width=1.5).fit(X, np.column_stack([Y, X[:, 0]]))
    found = shapley_values(both, NEW, X[:5])
    np.testing.assert_allclose(found.values.sum(axis=2) + found.baseline, both.predict(NEW), rtol=0, atol=1e-9)


def test_what_cannot_be_explained_is_refused():
    with pytest.raises(TypeError, match="relvec"):
        shapley_values("model", X)
    with pytest.raises(ValueError, match="augmented"):
        shapley_values(RVR(width=1.5, predictive="augmented").fit(X, Y), NEW)
