"""Draw the pictures of "How much to trust the error bars": python docs/make_images_trust.py."""

from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm

from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure

IMAGES = Path(__file__).parent / "images"
LEVELS = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0]


def draw_bands():
    """Standard deviations above, predictions below: a curve with a gap, and nothing beyond the data."""
    rng = np.random.default_rng(0)
    X = np.sort(np.concatenate([rng.uniform(-10.0, -2.0, 40), rng.uniform(2.0, 10.0, 40)]))[:, None]
    y = np.sinc(X[:, 0] / 4.0) + 0.1 * rng.standard_normal(80)
    grid = np.linspace(-20.0, 20.0, 401)[:, None]
    models = {
        "RVR()": RVR(),
        "RVR(width=2.0)": RVR(width=2.0),
        'RVR(width=2.0, predictive="augmented")': RVR(width=2.0, predictive="augmented"),
        "GPRegressor()": GPRegressor(),
    }
    figure = new_figure(14.0, 4.4)
    axes = figure.subplots(2, 4, sharex=True, sharey="row", height_ratios=(1, 2))
    for (above, below), (name, model) in zip(axes.T, models.items(), strict=True):
        mean, std = model.fit(X, y).predict(grid, return_std=True)
        above.plot(grid, std, color=LINE)
        above.set_title(name, fontsize="medium", loc="left")
        below.fill_between(grid[:, 0], mean - 2.0 * std, mean + 2.0 * std, color=LINE, alpha=0.25, lw=0)
        below.plot(grid, mean, color=LINE)
        below.plot(X[:, 0], y, ".", color=POINT, ms=4)
        if isinstance(model, RVR):
            rows = model.relevance_
            below.plot(X[rows, 0], y[rows], "o", mfc="none", mec=VECTOR)
    axes[0, 0].set_ylabel("standard deviation")
    return figure


def draw_classes():
    """Probabilities of two classes far beyond their data."""
    rng = np.random.default_rng(0)
    y, angle = np.arange(120) % 2, rng.uniform(0.0, 2.0 * np.pi, 120)
    radius = np.where(y == 1, 2.0, 0.0) + 0.8 * rng.standard_normal(120)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    a, b = np.meshgrid(np.linspace(-8.0, 8.0, 121), np.linspace(-8.0, 8.0, 121))
    models = {
        "RVC(width=2.0)": RVC(width=2.0),
        'RVC(width=2.0, predictive="augmented")': RVC(width=2.0, predictive="augmented"),
        "GPClassifier()": GPClassifier(),
    }
    figure = new_figure(12.6, 3.8)
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        p = model.fit(X, y).predict_proba(np.column_stack([a.ravel(), b.ravel()]))[:, 1].reshape(a.shape)
        surface = ax.contourf(a, b, p, levels=LEVELS, norm=BoundaryNorm(LEVELS, 256), cmap="PuOr")
        ax.plot(*X[y == 0].T, ".", color=POINT, ms=4)
        ax.plot(*X[y == 1].T, "x", color=TRUTH, ms=4, mew=0.8)
        if isinstance(model, RVC):
            ax.plot(*model.relevance_vectors_.T, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7)
        ax.set_title(name, fontsize="medium", loc="left")
    figure.colorbar(surface, ax=axes, label="probability of the second class", ticks=LEVELS)
    return figure


if __name__ == "__main__":
    for draw in (draw_bands, draw_classes):
        draw().savefig(IMAGES / f"trust_{draw.__name__.removeprefix('draw_')}.png", dpi=90)
