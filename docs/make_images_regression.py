"""Draw the pictures of the pages on regression and print their numbers: python docs/make_images_regression.py."""

from pathlib import Path

import numpy as np

from relvec import RVR
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure, plot_fit

IMAGES = Path(__file__).parent / "images"
DASHES = (0, (4, 3))


def sinc(X):
    return np.sinc(X[:, 0] / np.pi)


def sinc_data():
    X = np.linspace(-10, 10, 100)[:, None]
    return X, sinc(X) + np.random.default_rng(0).normal(0, 0.1, 100)


def plain(ax, title="", **labels):
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(**labels)
    ax.set_title(title, fontsize="medium", loc="left")


def draw_fit():
    """The sinc of the five-line start, with the band of a new target and the narrower one of the function."""
    X, y = sinc_data()
    model = RVR(kernel="gaussian", width=3.0).fit(X, y)
    figure = new_figure(7.2, 3.8)
    ax = plot_fit(model, X, y, figure.subplots(), truth=sinc)
    grid = np.linspace(-10, 10, 500)[:, None]
    mean, std = model.predict(grid, return_std=True, noise=False)
    low, high = mean - 2 * std, mean + 2 * std
    ax.fill_between(grid[:, 0], low, high, color=LINE, alpha=0.35, lw=0, label="the same without noise")
    ax.legend(frameon=False, fontsize="small", loc="upper right")
    return figure, f"{len(model.relevance_)} vectors, noise {model.noise_variance_**0.5:.3f}"


def draw_width(draws=10):
    """Three fits of one draw; evidence, vectors and error against the width, means over several draws."""
    X, test = np.linspace(-10, 10, 100)[:, None], np.linspace(-10, 10, 1000)[:, None]
    widths, shown = np.geomspace(0.3, 6, 9).round(2), (0.3, 3.0, 6.0)
    found = np.empty((draws, len(widths), 3))
    for i in range(draws):
        y = sinc(X) + np.random.default_rng(i).normal(0, 0.1, 100)
        for j, width in enumerate(widths):
            model = RVR(width=width, tol=1e-2).fit(X, y)
            error = np.sqrt(np.mean((model.predict(test) - sinc(test)) ** 2))
            found[i, j] = model.log_marginal_likelihood_, len(model.relevance_), error
    figure = new_figure(9.2, 4.8)
    above, below = figure.subplots(2, 3)
    X, y = sinc_data()
    for ax, width in zip(above, shown, strict=True):
        model = RVR(width=width, tol=1e-2).fit(X, y)
        ax.plot(X[:, 0], y, ".", color=POINT, ms=3)
        ax.plot(test[:, 0], sinc(test), color=TRUTH, lw=1, ls=DASHES)
        ax.plot(test[:, 0], model.predict(test), color=LINE, lw=1.8)
        ax.plot(X[model.relevance_, 0], y[model.relevance_], "o", ms=7, mfc="none", mec=VECTOR, mew=1.2)
        plain(ax, f"width {width:g}: {len(model.relevance_)} vectors", ylim=(-0.6, 1.35))
    titles = ("log evidence", "relevance vectors", "RMS error of the mean")
    for ax, title, mean in zip(below, titles, found.mean(axis=0).T, strict=True):
        ax.plot(widths, mean, "o-", color=LINE, ms=4)
        plain(ax, title, xlabel="width", xscale="log")
        ax.set_xticks([0.3, 1, 3, 6], ["0.3", "1", "3", "6"])
        ax.minorticks_off()
    below[2].set_ylim(0, None)
    return figure, "\n  ".join(
        f"width {w:4g}: evidence {e:7.2f}, {m:4.1f} vectors, error {r:.4f} (means of {draws} draws)"
        for w, (e, m, r) in zip(widths, found.mean(axis=0), strict=True)
    )


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_fit, draw_width):
        figure, printed = draw()
        name = f"regression_{draw.__name__.removeprefix('draw_')}.png"
        figure.savefig(IMAGES / name, dpi=100)
        print(f"{name} ({(IMAGES / name).stat().st_size // 1000} kB)\n  {printed}")
