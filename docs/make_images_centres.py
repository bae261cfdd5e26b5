"""Draw the pictures of the page on centres and print their numbers: python docs/make_images_centres.py."""

import warnings

import numpy as np
from make_images_regression import IMAGES, plain, sinc_data

from relvec import RVC, RVR
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure
from reproduction.grvm import mixture


def draw_sinc():
    """The sinc with its kernels on training rows, and moved."""
    X, y = sinc_data()
    grid = np.linspace(-10.0, 10.0, 400)[:, None]
    figure = new_figure(10.0, 3.6)
    lines = []
    for ax, centres in zip(figure.subplots(1, 2, sharey=True), ("data", "move"), strict=True):
        model = RVR(width=2.0, centres=centres).fit(X, y)
        ax.plot(X[:, 0], y, ".", color=POINT, ms=4)
        ax.plot(grid, np.sinc(grid / np.pi), color=TRUTH, lw=1.0)
        ax.plot(grid, model.predict(grid), color=LINE, lw=2)
        for z, w in zip(model.centres_[:, 0], model.weights_, strict=False):
            ax.plot(grid, w * np.exp(-(((grid - z) / 2.0) ** 2)), color=VECTOR, lw=0.7, alpha=0.7)
        kernels = model.predict(model.centres_)
        if centres == "move":
            error = model.placement_.deviation[:, 0]
            ax.errorbar(model.centres_[:, 0], kernels, xerr=error, fmt="o", mfc="none", color=VECTOR, ms=8)
        else:
            ax.plot(model.centres_[:, 0], kernels, "o", mfc="none", mec=VECTOR, ms=8)
        plain(ax, f'centres="{centres}": {len(kernels)} kernels', xlabel="x")
        lines.append(f"{centres}: {len(kernels)} kernels, evidence {model.log_marginal_likelihood_:.2f}")
    lines.append(f"over weights and centres {model.placement_.log_evidence:.2f}")
    return figure, "\n  ".join(lines)


def draw_classes():
    """200 points of two mixtures: kernels on training rows, moved by GRVM's scheme, moved by evidence."""
    rng = np.random.default_rng(1)
    X, y = mixture(200, rng)
    X_test, y_test = mixture(5000, rng)
    a, b = np.meshgrid(np.linspace(-6, 6, 120), np.linspace(-5, 5, 120))
    grid = np.column_stack([a.ravel(), b.ravel()])
    figure = new_figure(12.0, 4.0)
    lines = []
    for ax, centres in zip(figure.subplots(1, 3, sharey=True), ("data", "grvm", "move"), strict=True):
        model = RVC(width=np.sqrt(2.0), centres=centres).fit(X, y)
        ax.contour(a, b, model.decision_function(grid).reshape(a.shape), levels=[0.0], colors="0.3")
        for label, colour in ((0, POINT), (1, LINE)):
            ax.plot(*X[y == label].T, ".", color=colour, ms=4)
        ax.plot(*model.centres_.T, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7)
        error = np.mean(model.predict(X_test) != y_test)
        plain(ax, f'centres="{centres}": {len(model.centres_)} kernels', xlim=(-6, 6), ylim=(-5, 5))
        lines.append(f"{centres}: {len(model.centres_)} kernels, evidence {model.log_marginal_likelihood_:.1f}, "
                     f"error {error:.1%}")  # fmt: skip
    return figure, "\n  ".join(lines)


def draw_width():
    """The two evidences of the same classes over the width, and the error on new points."""
    rng = np.random.default_rng(1)
    X, y = mixture(200, rng)
    X_test, y_test = mixture(5000, rng)
    chosen = RVC(width="grvm").fit(X, y)
    trials = [trial for trial in chosen.tuning_.trials if trial.size]  # beyond some width nothing is worth keeping
    widths = np.array([np.exp(trial.theta[0]) for trial in trials])
    errors = []
    for width in widths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors.append(np.mean(RVC(width=width).fit(X, y).predict(X_test) != y_test))
    figure = new_figure(7.2, 3.6)
    ax = figure.subplots()
    ax.plot(widths, [trial.weights for trial in trials], "o:", color=TRUTH, ms=4, label="evidence of the weights")
    ax.plot(widths, [t.log_evidence for t in trials], "o-", color=LINE, label="over weights and centres")
    ax.axvline(chosen.width_, color=POINT, lw=0.8, ls=":")
    plain(ax, xlabel="width", ylabel="nats", xscale="log")
    other = ax.twinx()
    other.plot(widths, 100 * np.array(errors), "s--", ms=4, color=VECTOR, label="error of the plain RVM")
    other.set_ylabel("error, %")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize="small")
    lines = [f"width {w:.2f}: weights {t.weights:.1f}, log E {t.log_evidence:.1f}, {t.size} kernels, error {e:.1%}"
             for w, t, e in zip(widths, trials, errors, strict=True)]  # fmt: skip
    return figure, "\n  ".join([f"chosen {chosen.width_:.2f}", *lines])


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_sinc, draw_classes, draw_width):
        figure, printed = draw()
        name = f"centres_{draw.__name__.removeprefix('draw_')}.png"
        figure.savefig(IMAGES / name, dpi=100)
        print(f"{name} ({(IMAGES / name).stat().st_size // 1000} kB)\n  {printed}", flush=True)
