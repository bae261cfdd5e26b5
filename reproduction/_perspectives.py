"""T01's pictures of why the models are sparse (figures 6 to 9), and of the SVM's output as log-odds (figure 10)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import logit
from scipy.stats import multivariate_normal
from sklearn.svm import SVC

from relvec import RVC, RVR
from relvec.kernels import Gaussian
from relvec.plot import LINE, VECTOR, new_figure
from reproduction import _sinc, _svm
from reproduction._classes import PAPERS
from reproduction._experiment import Context, Experiment, Outcome, Published
from reproduction._priors import weight_log_density

# Figure 6: two priors ---------------------------------------------------------------------------------------------

SHAPE, RATE = 0.05, 0.001


def weights_grid(n: int) -> tuple[np.ndarray, np.ndarray]:
    """A grid over [-1, 1]^2."""
    line = np.linspace(-1.0, 1.0, n)
    return np.meshgrid(line, line)


def figure_6(context: Context) -> Outcome:
    """How much of the priors' mass in [-1, 1]^2 lies near the axes."""
    return Outcome(context.one("mass", mass_near_axes), {"priors": priors_figure})


def log_priors(w: np.ndarray) -> dict[str, np.ndarray]:
    """Log densities of one weight."""
    return {"Gaussian": -0.5 * (w / 0.5) ** 2 - np.log(0.5 * np.sqrt(2.0 * np.pi)),
            "Student t": weight_log_density(w, SHAPE, RATE)}  # fmt: skip


def mass_near_axes() -> dict[str, float]:
    """The share of the mass in [-1, 1]^2 where one of two weights is below 0.1."""
    line = np.linspace(-1.0, 1.0, 20_002)
    values = {}
    for name, log_density in log_priors(line).items():
        density = np.exp(log_density)
        far = density[np.abs(line) >= 0.1].sum() / density.sum()
        values[f"mass within 0.1 of an axis, {name}"] = float(1.0 - far**2)
    return values


def priors_figure() -> Any:
    """Contours of the log density of two weights (T01 figure 6)."""
    a, b = weights_grid(201)
    figure = new_figure(9.0, 4.2)
    for ax, name in zip(figure.subplots(1, 2, sharey=True), ("Gaussian", "Student t"), strict=True):
        log_density = log_priors(a)[name] + log_priors(b)[name]
        levels = np.quantile(log_density, np.linspace(0.05, 0.99, 14))
        ax.contourf(a, b, log_density, levels=[*levels, log_density.max()], cmap="Blues")
        ax.contour(a, b, log_density, levels=levels, colors="white", linewidths=0.5)
        ax.set(title=f"{name} prior, log density", xlabel="w1", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    return figure


# Figures 7 and 8: a process over the targets ----------------------------------------------------------------------

TARGET = np.array([1.4, 0.5])
VECTORS = np.array([[1.2, 0.15], [0.5, 0.7], [-0.3, 0.9]])
PRECISIONS = np.array([1.0, 4.0, 12.0])


def covariance(vectors: np.ndarray, alpha: np.ndarray, noise: float) -> np.ndarray:
    """T01 eq. (34) in two dimensions."""
    return noise * np.eye(2) + (vectors.T / alpha) @ vectors


def ellipse(ax: Any, C: np.ndarray, **style: Any) -> None:
    """Points of Mahalanobis distance one."""
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    ax.plot(*(np.linalg.cholesky(C) @ [np.cos(angle), np.sin(angle)]), **style)


def two_explanations() -> dict[str, np.ndarray]:
    """A misaligned basis vector with noise, and noise alone, of the same determinant (T01 figure 8)."""
    aside = np.array([[-0.5, 1.3]])
    C = covariance(aside, np.array([0.6]), 0.25)
    return {"basis vector and noise": C, "noise alone": np.sqrt(np.linalg.det(C)) * np.eye(2)}


def figures_7_8(context: Context) -> Outcome:
    """The log probability of the same target under two covariances of the same determinant."""
    return Outcome(context.one("density", explained), {"process": process_figure, "explanations": explanations_figure})


def explained() -> dict[str, float]:
    return {
        f"log probability, {name}": float(multivariate_normal(cov=C).logpdf(TARGET))
        for name, C in two_explanations().items()
    }


def process_figure() -> Any:
    """The data set, weighted basis vectors, the noise and the whole covariance (T01 figure 7)."""
    figure = new_figure(5.4, 4.4)
    ax = figure.subplots()
    for v, alpha in zip(VECTORS, PRECISIONS, strict=True):
        ax.annotate(
            "", xy=v / np.sqrt(alpha), xytext=(0, 0), arrowprops={"arrowstyle": "->", "color": "0.5", "lw": 1.6}
        )
    ellipse(ax, 0.2 * np.eye(2), color="0.5", ls="--", label="noise")
    ellipse(ax, covariance(VECTORS, PRECISIONS, 0.2), color=LINE, lw=2, label="covariance C, eq. (34)")
    ax.plot(*TARGET, "x", color=VECTOR, ms=10, mew=2.5, label="data set t")
    ax.legend(frameon=False, loc="lower right")
    ax.set(xlabel="t1", ylabel="t2", aspect="equal", xlim=(-2.0, 2.4), ylim=(-1.7, 1.7))
    return figure


def explanations_figure() -> Any:
    """The two covariances of equal determinant around one target (T01 figure 8)."""
    figure = new_figure(9.0, 4.2)
    values = explained()
    for ax, (name, C) in zip(figure.subplots(1, 2, sharey=True), two_explanations().items(), strict=True):
        ellipse(ax, C, color=LINE, lw=2)
        ax.plot(*TARGET, "x", color=VECTOR, ms=10, mew=2.5)
        ax.set(title=f"{name}: log p(t) = {values[f'log probability, {name}']:.2f}", xlabel="t1", aspect="equal",
               xlim=(-2.4, 2.4), ylim=(-2.2, 2.2))  # fmt: skip
    return figure


# Figure 9: the width ----------------------------------------------------------------------------------------------

WIDTHS = np.geomspace(0.15, 60.0, 25)


def evidence_of_widths(rng: np.random.Generator) -> dict[str, Any]:
    """The evidence of RVMs of many widths on one noisy sinc, the noise variance fixed."""
    t = _sinc.sinc(_sinc.X) + rng.normal(0.0, 0.1, len(_sinc.X))
    fits = [RVR(width=float(w), noise_variance=0.01, fit_intercept=False).fit(_sinc.X, t) for w in WIDTHS]
    best = int(np.argmax([m.log_marginal_likelihood_ for m in fits]))
    return {
        "evidence": [float(m.log_marginal_likelihood_) for m in fits],
        "width of the highest evidence": float(WIDTHS[best]),
        "nats above the narrowest width": fits[best].log_marginal_likelihood_ - fits[0].log_marginal_likelihood_,
        "nats above the widest width": fits[best].log_marginal_likelihood_ - fits[-1].log_marginal_likelihood_,
    }


def figure_9(context: Context) -> Outcome:
    """The evidence falls off on both sides of an intermediate width."""
    values = context.one("widths", partial(evidence_of_widths, context.rng()))
    evidence = np.array(values.pop("evidence"))
    return Outcome(values, {"widths": partial(widths_figure, evidence)})


def widths_figure(evidence: np.ndarray) -> Any:
    """Ellipses for a narrow, an intermediate and a wide kernel at two points (T01 figure 9), and the evidence."""
    figure = new_figure(13.0, 3.6)
    axes = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.5))
    X, t = np.array([[0.0], [1.0]]), np.array([1.1, 0.8])
    for ax, (name, width) in zip(axes[:3], (("narrow", 0.2), ("intermediate", 1.5), ("wide", 1e3)), strict=True):
        K = Gaussian(width)(X, X)
        # wide functions are all alike: the constant they make is left to the noise, as in the figure
        C = 0.15 * np.eye(2) + (K @ K / 2.0 if name != "wide" else 0.5 * np.eye(2))
        ellipse(ax, C, color=LINE, lw=2)
        ellipse(ax, 4.0 * C, color=LINE, lw=1, alpha=0.6)
        ax.plot(*t, "x", color=VECTOR, ms=9, mew=2.5)
        ax.set(title=f"{name}: log p(t) = {multivariate_normal(cov=C).logpdf(t):.2f}", xlabel="t1", aspect="equal",
               xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))  # fmt: skip
    axes[3].semilogx(WIDTHS, evidence, "o-", color=LINE, ms=4)
    axes[3].set(title="noisy sinc", xlabel="width", ylabel="log evidence")
    return figure


# Figure 10: log-odds ----------------------------------------------------------------------------------------------


def odds_models(rng: np.random.Generator) -> tuple[RVC, SVC]:
    """RVM and SVM of 1000 points, uniform in [0, 1] and in [0.5, 1.5]."""
    y = np.arange(1000) % 2
    X = (rng.uniform(0.0, 1.0, 1000) + 0.5 * (1 - y))[:, None]
    return RVC(width=0.1, solver=PAPERS).fit(X, y), SVC(C=1.0, gamma=_svm.gamma(0.1)).fit(X, y)


def odds_draw(rng: np.random.Generator) -> dict[str, float]:
    """Errors over both densities, and how far from 0 the log-odds are where they should be 0."""
    rvm, svm = odds_models(rng)
    x = np.linspace(0.0, 1.5, 3001)[:, None]
    values = {}
    for name, model in (("", rvm), (", SVM", svm)):
        positive = model.predict(x) == 1
        wrong = np.mean(~positive[x[:, 0] <= 1.0]) + np.mean(positive[x[:, 0] >= 0.5])
        values[f"error{name}"] = 50.0 * float(wrong)
    middle = np.linspace(0.55, 0.95, 200)[:, None]
    values["largest log-odds in [0.55, 0.95]"] = float(np.abs(logit(rvm.predict_proba(middle)[:, 1])).max())
    return values | {"vectors": len(rvm.relevance_), "vectors, SVM": len(svm.support_)}


def figure_10(context: Context) -> Outcome:
    """Every draw; the picture shows the first."""
    return Outcome(context.repeat(odds_draw), {"odds": partial(odds_figure, context)})


def odds_figure(context: Context) -> Any:
    """Both outputs with the true log-odds (T01 figure 10); the SVM's is scaled to the RVM's range."""
    rvm, svm = odds_models(context.rng())
    x = np.linspace(0.0, 1.5, 600)[:, None]
    y, output = logit(rvm.predict_proba(x)[:, 1]), svm.decision_function(x)
    figure = new_figure(7.0, 4.2)
    ax = figure.subplots()
    for low, high, value in ((0.0, 0.5, 8.0), (0.5, 1.0, 0.0), (1.0, 1.5, -8.0)):
        ax.plot(
            [low, high], [value, value], color="0.5", lw=3, alpha=0.5, label="true log-odds" if low == 0.5 else None
        )
    ax.plot(x, y, color=LINE, lw=2, label="RVM")
    ax.plot(x, output * np.abs(y).max() / np.abs(output).max(), color=VECTOR, ls="--", label="SVM, rescaled")
    ax.set(xlabel="x", ylabel="log-odds", ylim=(-9.0, 9.0), yticks=[-8, -4, 0, 4, 8],
           yticklabels=["-∞", "-4", "0", "4", "∞"])  # fmt: skip
    ax.legend(frameon=False)
    return figure


# The entries ------------------------------------------------------------------------------------------------------

EXPERIMENTS = (
    Experiment(
        name="T01-figure-6",
        title="A Gaussian prior over two weights, and the prior of the relevance vector machine",
        source="T01 section 5.1, figure 6, eq. (32)",
        published={},
        run=figure_6,
        seconds=0.1,
        assumptions=(f"the Gaussian has the standard deviation 0.5, the Gamma hyperprior a = {SHAPE:g}, b = {RATE:g}: "
                     "the paper prints neither",),
    ),
    Experiment(
        name="T01-figures-7-8",
        title="A Gaussian process over the targets, and two explanations of one data set",
        source="T01 section 5.2, figures 7 and 8, eq. (34)",
        published={},
        run=figures_7_8,
        seconds=0.1,
        assumptions=("the paper's figures are schematic: our vectors and precisions are our own",),
    ),
    Experiment(
        name="T01-figure-9",
        title="The evidence falls for kernels too narrow and too wide",
        source="T01 section 5.2, figure 9",
        published={},
        run=figure_9,
        seconds=3.0,
        assumptions=(
            "the paper's figure is schematic; ours are two points of one input, and the evidence of a noisy sinc "
            "(noise 0.1, known)",
        ),
    ),
    Experiment(
        name="T01-figure-10",
        title="Log-odds of two overlapping uniform classes, RVM and SVM",
        source="T01 appendix D.2, figure 10",
        published={
            "error": Published("25", "D.2, the Bayes error"),
            "error, SVM": Published("25", "D.2, the Bayes error"),
        },
        run=figure_10,
        quick=3,
        full=10,
        seconds=2.0,
        assumptions=("the SVM's C is not printed: 1", "the true log-odds are zero in [0.5, 1], not in [0.5, 1.5]"),
    ),
)  # fmt: skip
