"""Pictures: what is drawn, where, and what is refused."""

import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVR
from relvec.plot import new_figure, plot_fit, plot_predictions


@pytest.fixture(scope="module")
def data():
    X = np.linspace(-10, 10, 60)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + np.random.default_rng(0).normal(0, 0.1, 60)


def test_fit_circles_the_relevance_vectors(data):
    X, y = data
    model, ax = RVR(width=3.0).fit(X, y), new_figure().subplots()
    assert plot_fit(model, X, y, ax, truth=lambda X: np.sinc(X[:, 0] / np.pi)) is ax
    circles = next(line for line in ax.lines if line.get_label().startswith("relevance vectors"))
    np.testing.assert_array_equal(circles.get_xdata(), X[model.relevance_, 0])
    np.testing.assert_array_equal(circles.get_ydata(), y[model.relevance_])
    assert circles.get_label() == f"relevance vectors ({len(model.relevance_)} of 60)"


def test_predictions_count_the_bars_that_hold(data):
    X, y = data
    model = make_pipeline(StandardScaler(), RVR(width="scale")).fit(X, y)
    ax = plot_predictions(model, X, y, new_figure().subplots(), n_std=1.0)
    mean, std = model.predict(X, return_std=True)
    held = np.sum(np.abs(y - mean) <= std)
    assert f"bar holds the target ({held} of 60)" in [line.get_label() for line in ax.lines]


def test_new_axes_are_made_where_none_are_given(data):
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = data
    model = RVR(width=3.0).fit(X, y)
    axes = [plot_fit(model, X, y), plot_predictions(model, X, y)]
    assert axes[0].figure is not axes[1].figure
    plt.close("all")


def test_refusals(data):
    X, y = data
    with pytest.raises(NotFittedError):
        plot_fit(RVR(width="scale"), X, y)
    model = RVR(width=3.0).fit(X, y)
    with pytest.raises(ValueError, match=r"one input and one target.*got X \(60, 2\)"):
        plot_fit(model, np.hstack([X, X]), y)
    with pytest.raises(ValueError, match=r"shape \(60,\); got \(59,\)"):
        plot_predictions(model, X, y[1:])
    with pytest.raises(ValueError, match="several outputs"):
        plot_fit(RVR(width=3.0).fit(X, np.column_stack([y, -y])), X, y)


def test_the_missing_package_is_named(data, monkeypatch):
    X, y = data
    model = RVR(width=3.0).fit(X, y)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"relvec\[plot\]"):
        plot_fit(model, X, y)
