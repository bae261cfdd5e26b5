"""Draw the pictures of the page on widths and print their numbers: python docs/make_images_widths.py."""

import warnings

import numpy as np
from make_images_regression import IMAGES, plain, sinc_data
from sklearn.datasets import make_friedman1

from relvec import RVR
from relvec.basis import Bias, Concat, KernelBasis
from relvec.estimators.gaussian import gaussian_problem
from relvec.estimators.options import machine_options
from relvec.estimators.sources.base import target_units
from relvec.hyperparameters import shared_precision as tied
from relvec.hyperparameters.shared_precision import Columns
from relvec.hyperparameters.targets import GaussianTarget
from relvec.hyperparameters.widths import WidthProblem
from relvec.kernels import Gaussian
from relvec.plot import LINE, POINT, TRUTH, VECTOR, FeatureRelevanceDisplay, new_figure


def tied_evidence(X, y, widths):
    """Evidence of all functions with one precision in common, at each width, up to a constant."""
    weights = np.ones(len(y))
    units, variances = target_units(y[:, None], weights)
    options = machine_options(RVR().get_params(), classes=False, earlier=None)
    problem = gaussian_problem(options, units[0], variances[0], weights.sum(), 0)
    basis = Concat((KernelBasis(Gaussian(width=1.0)), Bias())).bind(X)
    setting = WidthProblem.of(basis, X, [GaussianTarget(y / units[0], weights, problem)], np.zeros(1, dtype=bool))
    columns = Columns.of(basis, np.arange(basis.n_atoms))
    return np.array([tied.climb_evidence(columns, np.log([width]), setting).value for width in widths])


def draw_starts():
    """Evidence of the sinc against one width, sparse and tied, and where the starts of `width="learn"` ended."""
    X, y = sinc_data()
    learned = RVR(width="learn").fit(X, y)
    widths = np.geomspace(0.5, 8.0, 25)
    evidence = np.empty(len(widths))
    for i, width in enumerate(widths):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evidence[i] = RVR(width=width).fit(X, y).log_marginal_likelihood_
    together = tied_evidence(X, y, widths)
    figure = new_figure(7.2, 3.6)
    ax = figure.subplots()
    ax.plot(widths, evidence - evidence.max(), color=TRUTH, lw=1.4, label="a precision for each function")
    ax.plot(widths, together - together.max(), color=LINE, lw=2, label="one precision for all")
    trials = learned.tuning_.trials
    top = max(trial.log_evidence for trial in trials)
    for i, trial in enumerate(trials):
        place = np.exp(trial.theta[0]), trial.log_evidence - top
        ax.plot(*place, "o", ms=8, mfc="none", mec=VECTOR, mew=1.6, label="" if i else "ends of starts")
    ax.axvline(learned.width_, color=POINT, lw=0.8, ls=":")
    plain(ax, xlabel="width", ylabel="evidence below the best (nats)", xscale="log", ylim=(-60, 4))
    ax.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    lines = [f"start {np.exp(t.start[0]):.2f} -> {np.exp(t.theta[0]):.2f}, {t.log_evidence - top:.2f}, {t.size} weights"
             for t in trials]  # fmt: skip
    return figure, "\n  ".join([f"learned {learned.width_:.2f}, agreement {learned.tuning_.agreement:.0%}", *lines])


def draw_relevance():
    """Friedman #1: the relevance of the inputs, and where every start ended."""
    X, y = make_friedman1(240, noise=1.0, random_state=0)
    model = RVR().fit(X, y)
    figure = new_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    FeatureRelevanceDisplay.from_estimator(model, ax=left)
    plain(left, "relevance of the inputs of Friedman #1")
    trials = model.tuning_.trials
    ends = np.array([t.log_evidence for t in trials])
    right.plot(np.arange(1, len(trials) + 1), ends - ends.max(), "o", color=LINE, ms=7)
    plain(right, "evidence below the best (nats)", xlabel="start", xticks=np.arange(1, len(trials) + 1), ylim=(-5, 1))
    lines = [f"start {i}: {s - ends.max():.2f}, {t.size} weights"
             for i, (s, t) in enumerate(zip(ends, trials, strict=True), start=1)]  # fmt: skip
    shares = " ".join(f"{share:.4f}" for share in model.feature_relevance_)
    return figure, "\n  ".join([f"{len(model.relevance_)} vectors, relevance {shares}", *lines])


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_starts, draw_relevance):
        figure, printed = draw()
        name = f"widths_{draw.__name__.removeprefix('draw_')}.png"
        figure.savefig(IMAGES / name, dpi=100)
        print(f"{name} ({(IMAGES / name).stat().st_size // 1000} kB)\n  {printed}", flush=True)
