"""Draw the picture of "Intervals with a guarantee": python docs/make_images_guarantees.py."""

from pathlib import Path

import numpy as np

from relvec import RVR
from relvec.plot import LINE, POINT, TRUTH, new_figure

IMAGES = Path(__file__).parent / "images"
DRAWS = 200


def draw_rows(rng, n):
    X = rng.uniform(-3.0, 3.0, (n, 1))
    return X, np.sin(X[:, 0]) + 0.25 * rng.standard_t(2, n)


def main():
    rng = np.random.default_rng(0)
    model = RVR(width=2.0).fit(*draw_rows(rng, 100))
    X, y = draw_rows(rng, 300)
    grid = np.linspace(-3.0, 3.0, 200)[:, None]
    figure = new_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    left.plot(X[:, 0], y, ".", color=POINT, ms=3)
    before = model.predict_interval(grid)
    after = model.calibrate(*draw_rows(rng, 200)).predict_interval(grid)
    left.plot(grid[:, 0], before, color=TRUTH, lw=1.2, ls="--", label=["before", None])
    left.plot(grid[:, 0], after, color=LINE, lw=1.6, label=["calibrated", None])
    left.set_ylim(-3.0, 3.0)
    left.legend(fontsize="small")
    left.set_title("90% intervals, noise with a heavy tail", fontsize="medium", loc="left")
    coverages = np.linspace(0.1, 0.95, 18)
    held = np.zeros((2, len(coverages), DRAWS))
    plain = RVR(width=2.0).fit(*draw_rows(np.random.default_rng(1), 100))
    for d in range(DRAWS):
        model.calibrate(*draw_rows(rng, 200))
        X, y = draw_rows(rng, 500)
        for i, each in enumerate((plain, model)):
            for j, coverage in enumerate(coverages):
                low, high = each.predict_interval(X, coverage).T
                held[i, j, d] = np.mean((low <= y) & (y <= high))
    right.plot([0, 1], [0, 1], color=POINT, lw=1.0)
    right.plot(coverages, held[0].mean(axis=1), color=TRUTH, ls="--", label="before")
    right.plot(coverages, held[1].mean(axis=1), color=LINE, label="calibrated, 200 draws of 200 rows")
    right.set_xlabel("coverage asked for")
    right.set_ylabel("share of new targets held")
    right.legend(fontsize="small")
    figure.savefig(IMAGES / "guarantees.png", dpi=90)


if __name__ == "__main__":
    main()
