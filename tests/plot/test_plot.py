"""Pictures: what is drawn, where, and what is refused."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.plot import (
    CalibrationDisplay,
    FeatureRelevanceDisplay,
    FitDisplay,
    HistoryDisplay,
    ResidualsDisplay,
    SurfaceDisplay,
    new_figure,
    plot_fit,
    plot_predictions,
)


@pytest.fixture(scope="module")
def data():
    X = np.linspace(-10, 10, 60)[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + np.random.default_rng(0).normal(0, 0.1, 60)


def test_fit_circles_the_relevance_vectors(data):
    X, y = data
    model, ax = RVR(width=3.0).fit(X, y), new_figure().subplots()
    assert plot_fit(model, X, y, ax, truth=lambda X: np.sinc(X[:, 0] / np.pi)) is ax
    circles = next(line for line in ax.lines if line.get_label().startswith("vectors"))
    np.testing.assert_array_equal(circles.get_xdata(), X[model.relevance_, 0])
    np.testing.assert_array_equal(circles.get_ydata(), y[model.relevance_])
    assert circles.get_label() == f"vectors ({len(model.relevance_)} of 60)"


def test_rows_that_a_process_keeps_are_circled(data, flat):
    X, y = data
    model = GPRegressor(max_vectors=12).fit(X, y)
    display = FitDisplay.from_estimator(model, X, y, ax=new_figure().subplots())
    assert f"vectors ({len(model.vectors_)} of 60)" in [line.get_label() for line in display.ax_.lines]
    with pytest.raises(ValueError, match="a process is not found by a search"):
        HistoryDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="held-out rows chose its size"):
        HistoryDisplay.from_estimator(RVR().fit(X, y))
    X, _, labels = flat
    model = GPClassifier(max_vectors=10).fit(X, labels)
    shown = FeatureRelevanceDisplay.from_estimator(model, ax=new_figure().subplots())
    np.testing.assert_array_equal(shown.relevance, model.feature_relevance_)
    surface = SurfaceDisplay.from_estimator(model, X, labels, n_grid=10, ax=new_figure().subplots())
    assert surface.centres is None


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


@pytest.fixture(scope="module")
def flat():
    """Return two inputs, a target and two classes."""
    X = np.random.default_rng(0).uniform(-2, 2, (80, 2))
    return X, np.sin(X[:, 0]) + 0.1 * X[:, 1], np.where(X[:, 0] + X[:, 1] > 0, "up", "down")


def displays(data, flat):
    """Return every display of fitted models, plain and in a pipeline, each in axes of its own."""
    (x, t), (X, y, c) = data, flat
    count = np.round(y + 2)
    line, surface, classes = RVR(width=3.0).fit(x, t), RVR(width=2.0).fit(X, y), RVC(width=2.0).fit(X, c)
    piped = make_pipeline(StandardScaler(), RVR(width=1.0)).fit(X, y)
    three = RVC(width=2.0, multi_class="ovr").fit(X, np.digitize(X[:, 0], [-0.7, 0.7]))
    new = [new_figure().subplots() for _ in range(15)]
    return new, [
        FitDisplay.from_estimator(line, x, t, ax=new[0]),
        FitDisplay.from_estimator(make_pipeline(StandardScaler(), RVR(width=1.0)).fit(x, t), x, t, ax=new[1]),
        SurfaceDisplay.from_estimator(surface, X, y, n_grid=15, ax=new[2]),
        SurfaceDisplay.from_estimator(piped, X, y, n_grid=15, ax=new[3]),
        SurfaceDisplay.from_estimator(classes, X, c, n_grid=15, ax=new[4]),
        SurfaceDisplay.from_estimator(three, X, np.digitize(X[:, 0], [-0.7, 0.7]), n_grid=15, ax=new[5]),
        HistoryDisplay.from_estimator(piped, ax=new[6]),
        HistoryDisplay.from_estimator(three, output=2, ax=new[7]),
        FeatureRelevanceDisplay.from_estimator(piped, X, y, n_repeats=2, ax=new[8]),
        FeatureRelevanceDisplay.from_estimator(classes, X, c, feature_names=["$a$", "b_{"], n_repeats=2, ax=new[9]),
        CalibrationDisplay.from_estimator(piped, X, y, ax=new[10]),
        CalibrationDisplay.from_estimator(classes, X, c, ax=new[11]),
        CalibrationDisplay.from_estimator(three, X, np.digitize(X[:, 0], [-0.7, 0.7]), ax=new[12]),
        ResidualsDisplay.from_estimator(piped, X, y, ax=new[13]),
        ResidualsDisplay.from_estimator(RVR(likelihood="poisson", width=2.0).fit(X, count), X, count, ax=new[14]),
    ]  # fmt: skip


def test_every_display_draws_where_it_is_told_and_once_more(data, flat, tmp_path):
    axes, made = displays(data, flat)
    for ax, display in zip(axes, made, strict=True):
        assert display.ax_ is ax and display.figure_ is ax.figure
        display.figure_.savefig(tmp_path / "picture", format="raw", dpi=20)  # without a screen, and nothing warns
        other = new_figure().subplots()
        assert display.plot(other) is display and display.ax_ is other


def test_the_surface_is_the_model(flat):
    X, _, c = flat
    model = RVC(width=2.0).fit(X, c)
    display = SurfaceDisplay.from_estimator(model, X, c, n_grid=9, ax=new_figure().subplots())
    point = [[display.x0[2], display.x1[5]]]
    assert display.surface[5, 2] == pytest.approx(model.predict_proba(point)[0, 1], rel=1e-12)
    assert model.classes_[display.region[5, 2]] == model.predict(point)[0]


def test_calibration_counts(flat):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (2000, 1))
    y = np.sin(X[:, 0]) + rng.normal(0, 0.3, 2000)
    model = RVR(width=2.0).fit(X[:200], y[:200])
    shown = CalibrationDisplay.from_estimator(model, X[200:], y[200:], ax=new_figure().subplots())
    inside = model.predict_interval(X[200:], coverage=0.9)
    expected = np.mean((inside[:, 0] <= y[200:]) & (y[200:] <= inside[:, 1]))
    assert shown.observed[-1] == pytest.approx(expected) and shown.nominal[-1] == pytest.approx(0.9)
    np.testing.assert_allclose(shown.observed, shown.nominal, atol=0.05)
    p = rng.uniform(size=4000)
    labels = (rng.uniform(size=4000) < p).astype(int)
    shown = CalibrationDisplay.from_probabilities(labels, np.column_stack([1 - p, p]), np.array([0, 1]),
                                                  ax=new_figure().subplots())  # fmt: skip
    assert shown.counts.tolist() == [400] * 10
    assert np.all(np.abs(shown.observed - shown.nominal) < 4 * shown.error)


def test_feature_relevance_is_what_the_model_learned_if_it_has(flat):
    X, y, _ = flat
    model = RVR(width=2.0).fit(X, y)
    with pytest.raises(ValueError, match="pass X and y"):  # one width says nothing about single inputs
        FeatureRelevanceDisplay.from_estimator(model)
    shuffled = FeatureRelevanceDisplay.from_estimator(model, X, y, n_repeats=3, ax=new_figure().subplots())
    assert shuffled.relevance[0] > 5 * shuffled.relevance[1] and shuffled.error is not None
    model = RVR(width=[2.0, 4.0]).fit(X, y)
    model.fitted_ = replace(model.fitted_, feature_relevance=np.array([0.75, 0.25]))
    learned = FeatureRelevanceDisplay.from_estimator(model, ax=new_figure().subplots())
    assert learned.relevance.tolist() == [0.75, 0.25] and learned.error is None
    bars = [bar.get_width() for bar in learned.ax_.patches]
    assert bars == [0.25, 0.75]  # from below


def test_displays_refuse_what_they_cannot_draw(data, flat):
    X, _, c = flat
    with pytest.raises(ValueError, match="two inputs"):
        SurfaceDisplay.from_estimator(RVR(width=3.0).fit(*data), *data)
    with pytest.raises(ValueError, match="no residuals"):
        ResidualsDisplay.from_estimator(RVC(width=2.0).fit(X, c), X, c)
    with pytest.raises(NotFittedError):
        HistoryDisplay.from_estimator(RVR(width="scale"))
    with pytest.raises(ValueError, match=r"shape \(3,\); got \(2,\)"):
        ResidualsDisplay.from_predictions(np.zeros(2), np.zeros(3), np.zeros(3))


def test_moved_centres_are_circled_where_they_are(data, flat):
    X, y = data
    model = RVR(width=2.0, centres="move").fit(X, y)
    display = FitDisplay.from_estimator(model, X, y, ax=new_figure().subplots())
    assert len(display.centres) == len(model.centres_) > 0 == len(model.relevance_)
    np.testing.assert_allclose(display.centres[:, 1], model.predict(model.centres_))
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert f"centres ({len(model.centres_)})" in labels
    scaled = make_pipeline(StandardScaler(), RVR(width=1.0, centres="move")).fit(X, y)
    display = FitDisplay.from_estimator(scaled, X, y, ax=new_figure().subplots())
    np.testing.assert_allclose(scaled[:-1].transform(display.centres[:, :1]), scaled[-1].centres_)
    X, _, labels = flat
    classes = RVC(width=1.0, centres="move").fit(X, labels)
    surface = SurfaceDisplay.from_estimator(classes, X, labels, n_grid=10, ax=new_figure().subplots())
    np.testing.assert_array_equal(surface.centres, classes.centres_)
