"""Draw the pictures of the page on classification: python docs/make_images_classification.py prints their numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.svm import SVC

from relvec import RVC
from relvec.inference.decisions import bayes_decision, reject
from relvec.plot import LINE, POINT, TRUTH, VECTOR, new_figure
from relvec.solvers import Sequential

IMAGES = Path(__file__).parent / "images"


def mixture(n, rng):
    """Ripley's four Gaussians: centres (-.7, .3), (.3, .3) against (-.3, .7), (.4, .7), variance 0.03."""
    y = np.arange(n) % 2
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
    return centres[y, rng.integers(0, 2, n)] + np.sqrt(0.03) * rng.normal(size=(n, 2)), y


def data():
    return mixture(250, np.random.default_rng(0)), mixture(5000, np.random.default_rng(1))


def grid(X, n=140):
    low, high = X.min(axis=0) - 0.15, X.max(axis=0) + 0.15
    a, b = np.meshgrid(np.linspace(low[0], high[0], n), np.linspace(low[1], high[1], n))
    return a, b, np.column_stack([a.ravel(), b.ravel()])


def points(ax, X, y):
    ax.plot(*X[y == 0].T, ".", color=POINT, ms=4)
    ax.plot(*X[y == 1].T, "x", color=TRUTH, ms=4, mew=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xticks=[], yticks=[])


def draw_boundary():
    """Decision boundary with the relevance vectors circled, and the probability surface."""
    (X, y), (Z, z) = data()
    model = RVC(width=0.5).fit(X, y)
    a, b, G = grid(X)
    p = model.predict_proba(G)[:, 1].reshape(a.shape)
    figure = new_figure(9.2, 3.8)
    left, right = figure.subplots(1, 2)
    left.contour(a, b, p, levels=[0.25, 0.5, 0.75], colors=[LINE], linestyles=["--", "-", "--"])
    points(left, X, y)
    left.plot(*model.relevance_vectors_.T, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7)
    left.set_title("boundary, p = 0.25 and 0.75, relevance vectors", fontsize="medium", loc="left")
    surface = right.contourf(a, b, p, levels=np.linspace(0, 1, 11), cmap="Blues")
    figure.colorbar(surface, ax=right)
    right.set(xticks=[], yticks=[])
    right.set_title("probability of the second class", fontsize="medium", loc="left")
    return figure, f"{len(model.relevance_)} vectors, test error {np.mean(model.predict(Z) != z):.3f}"


def draw_calibration():
    """Calibration curves on held-out data: averaged, at the mode, and SVC with sigmoid calibration."""
    (X, y), (Z, z) = mixture(60, np.random.default_rng(2)), data()[1]
    models = {
        "averaged over the posterior": RVC(width=0.5).fit(X, y),
        "at the mode": RVC(width=0.5, averaging="mode").fit(X, y),
        "SVC, sigmoid calibration": CalibratedClassifierCV(SVC(gamma=4.0), cv=5).fit(X, y),
    }
    figure = new_figure(5.4, 4.2)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color=TRUTH, lw=0.8)
    numbers = []
    for (name, model), colour in zip(models.items(), (LINE, VECTOR, POINT), strict=True):
        p = model.predict_proba(Z)[:, 1]
        share, mean = calibration_curve(z, p, n_bins=10)
        ax.plot(mean, share, "o-", color=colour, ms=4, lw=1.2, label=name)
        numbers.append(f"{name}: log loss {log_loss(z, p):.4f}, Brier {brier_score_loss(z, p):.4f}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="predicted probability", ylabel="share of the second class")
    ax.legend(frameon=False, fontsize="small")
    return figure, "; ".join(numbers)


def draw_costs():
    """Regions of decision under unequal costs, and the region that is rejected."""
    (X, y), (Z, z) = data()
    model = RVC(width=0.5).fit(X, y)
    a, b, G = grid(X)
    P = model.predict_proba(G)
    figure = new_figure(9.2, 3.8)
    left, right = figure.subplots(1, 2)
    for factor, style in ((1, "-"), (5, "--"), (25, ":")):
        action = bayes_decision(P, [[0, 1], [factor, 0]]).reshape(a.shape)
        left.contour(a, b, action, levels=[0.5], colors=[LINE], linestyles=[style])
    points(left, X, y)
    left.set_title("missing a cross costs 1, 5 and 25 times a false one", fontsize="medium", loc="left")
    chosen = reject(P, 0.9).reshape(a.shape)
    right.contourf(a, b, chosen, levels=[-1.5, -0.5, 0.5, 1.5], colors=["#f3d9dc", "#ffffff", "#dbe7f5"])
    points(right, X, y)
    right.set_title("rejected below p = 0.9", fontsize="medium", loc="left")
    kept = reject(model.predict_proba(Z), 0.9)
    taken = kept >= 0
    return figure, f"rejected {np.mean(~taken):.2f}, error of the rest {np.mean(kept[taken] != z[taken]):.3f}"


def draw_sizes():
    """Log loss of new rows against the number of functions: prices of the evidence's machine, and `RVC()`."""
    (X, y), (Z, z) = mixture(150, np.random.default_rng(3)), data()[1]
    figure = new_figure(5.4, 3.8)
    ax = figure.subplots()
    numbers = []
    for width, colour in ((0.15, POINT), (0.3, LINE), (0.6, TRUTH)):
        found = []
        for price in (0.0, 0.4, 1.0, 2.0, 4.0, 8.0):
            model = RVC(width=width, solver=Sequential(price=price)).fit(X, y)
            found.append((count(model), log_loss(z, model.predict_proba(Z)), price))
        sizes, losses, _ = zip(*found, strict=True)
        ax.plot(sizes, losses, "o-", color=colour, ms=4, lw=1.2, label=f"width {width}, prices 0 to 8 nats")
        numbers.append(f"width {width}: " + ", ".join(f"{k} functions {loss:.3f}" for k, loss, _ in found))
    model = RVC().fit(X, y)
    k, loss = count(model), log_loss(z, model.predict_proba(Z))
    ax.plot(k, loss, "*", color=VECTOR, ms=13, label="RVC()")
    numbers.append(f"RVC(): {k} functions {loss:.3f}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="functions", ylabel="log loss of new rows")
    ax.legend(frameon=False, fontsize="small")
    return figure, "; ".join(numbers)


def draw_slope():
    """Reliability of `RVC()` at new rows, before and after the slope that held-out rows ask for."""
    X, y = make_classification(4200, 20, n_informative=6, random_state=0)
    X, Z, y, z = X[:200], X[200:], y[:200], y[200:]
    model = RVC().fit(X, y)
    before = replace(model.fitted_.classifier, slope=1.0)
    figure = new_figure(5.4, 4.2)
    ax = figure.subplots()
    ax.plot([0, 1], [0, 1], color=TRUTH, lw=0.8)
    numbers = [f"slope {model.calibration_slope_:.2f}"]
    for name, P, colour in (
        ("before the slope", before.predict_proba(Z), POINT),
        ("after", model.predict_proba(Z), LINE),
    ):
        share, mean = calibration_curve(z, P[:, 1], n_bins=10)
        ax.plot(mean, share, "o-", color=colour, ms=4, lw=1.2, label=name)
        numbers.append(f"{name}: log loss {log_loss(z, P):.3f}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.set(xlabel="predicted probability", ylabel="share of the second class")
    ax.legend(frameon=False, fontsize="small")
    return figure, "; ".join(numbers)


def count(model):
    """Number of functions, the constant not counted."""
    return sum(name != "bias" for name in model.atoms_)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_boundary, draw_calibration, draw_costs, draw_sizes, draw_slope):
        figure, numbers = draw()
        name = draw.__name__.removeprefix("draw_")
        figure.savefig(IMAGES / f"classification_{name}.png", dpi=100)
        print(f"{name}: {numbers}")
