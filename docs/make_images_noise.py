"""Draw the pictures of "Noise as it is": python docs/make_images_noise.py."""

from pathlib import Path

import numpy as np

from relvec import GPRegressor
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure

IMAGES = Path(__file__).parent / "images"


def draw_model(ax, model, grid, colour, label):
    low, middle, high = model.predict_quantiles(grid, [0.05, 0.5, 0.95]).T
    ax.plot(grid[:, 0], middle, color=colour, label=label)
    ax.fill_between(grid[:, 0], low, high, color=colour, alpha=0.2, lw=0)


def main():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3.0, 3.0, (80, 1)), axis=0)
    grid = np.linspace(-3.0, 3.0, 200)[:, None]
    figure = new_figure(12.4, 3.6)
    left, right, last = figure.subplots(1, 3)
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    y[rng.choice(80, 8, replace=False)] += rng.uniform(2.0, 5.0, 8)
    draw_model(left, GPRegressor(noise="constant").fit(X, y), grid, TRUTH, "normal noise")
    model = GPRegressor(likelihood="student-t").fit(X, y)
    draw_model(left, model, grid, LINE, "Student-t noise")
    left.plot(X[:, 0], y, ".", color=POINT)
    left.plot(X[model.outliers_, 0], y[model.outliers_], "o", ms=10, mfc="none", mec=VECTOR, label="outliers_")
    left.set_title("gross errors", fontsize="medium", loc="left")
    left.legend(fontsize="small")
    X = np.sort(rng.uniform(-3.0, 3.0, (200, 1)), axis=0)
    y = np.sin(2.0 * X[:, 0]) + np.exp(-2.0 + 0.6 * X[:, 0]) * rng.standard_normal(200)
    draw_model(right, GPRegressor(noise="constant").fit(X, y), grid, TRUTH, "constant noise")
    draw_model(right, GPRegressor(noise="heteroscedastic").fit(X, y), grid, LINE, "heteroscedastic noise")
    right.plot(X[:, 0], y, ".", color=POINT, ms=4)
    right.set_title("noise that grows", fontsize="medium", loc="left")
    right.legend(fontsize="small")
    X = np.sort(rng.uniform(-3.0, 3.0, (80, 1)), axis=0)
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    seen = y < 0.5
    ends = np.column_stack([np.minimum(y, 0.5), np.where(seen, y, np.inf)])
    draw_model(last, GPRegressor().fit(X, ends[:, 0]), grid, TRUTH, "the limit taken for the target")
    draw_model(last, GPRegressor(likelihood="censored").fit(X, ends), grid, LINE, "censored")
    last.plot(X[seen, 0], y[seen], ".", color=POINT, ms=4)
    last.plot(X[~seen, 0], y[~seen], "x", color=POINT, ms=4, alpha=0.5, label="not seen: above the limit")
    last.axhline(0.5, color=VECTOR, lw=1, ls=":")
    last.set_title("a limit of 0.5", fontsize="medium", loc="left")
    last.set_ylim(-2.2, 1.6)
    last.legend(fontsize="small", loc="lower left")
    figure.savefig(IMAGES / "noise.png", dpi=90)


if __name__ == "__main__":
    main()
