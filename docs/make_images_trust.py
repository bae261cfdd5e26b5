"""Draw the pictures of "How much to trust the error bars": python docs/make_images_trust.py."""

from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm

from relvec import RVC
from relvec.plot import POINT, TRUTH, VECTOR, new_figure
from reproduction import Context
from reproduction.rq05 import bands_figure, families_figure

IMAGES = Path(__file__).parent / "images"
LEVELS = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0]


def draw_classes():
    """Probabilities of two classes far beyond their data, for the RVM and for RVM*."""
    rng = np.random.default_rng(0)
    y, angle = np.arange(120) % 2, rng.uniform(0.0, 2.0 * np.pi, 120)
    radius = np.where(y == 1, 2.0, 0.0) + 0.8 * rng.standard_normal(120)
    X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    a, b = np.meshgrid(np.linspace(-8.0, 8.0, 121), np.linspace(-8.0, 8.0, 121))
    figure = new_figure(9.2, 4.0)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, predictive in zip(axes, ("rvm", "augmented"), strict=True):
        model = RVC(width=2.0, predictive=predictive).fit(X, y)
        p = model.predict_proba(np.column_stack([a.ravel(), b.ravel()]))[:, 1].reshape(a.shape)
        surface = ax.contourf(a, b, p, levels=LEVELS, norm=BoundaryNorm(LEVELS, 256), cmap="PuOr")
        ax.plot(*X[y == 0].T, ".", color=POINT, ms=4)
        ax.plot(*X[y == 1].T, "x", color=TRUTH, ms=4, mew=0.8)
        ax.plot(*model.relevance_vectors_.T, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7)
        ax.set_title(f'predictive="{predictive}"', fontsize="medium", loc="left")
    figure.colorbar(surface, ax=axes, label="probability of the second class", ticks=LEVELS)
    return figure


def main():
    draw_classes().savefig(IMAGES / "trust_classes.png", dpi=90)
    for name, experiment, draw in (
        ("trust_families", "RQ05-figure-1", families_figure),
        ("trust_bands", "RQ05-figure-2", bands_figure),
    ):
        draw(Context(experiment, 1)).savefig(IMAGES / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
