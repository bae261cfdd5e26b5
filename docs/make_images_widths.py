"""Draw the pictures of the page on widths and print their numbers: python docs/make_images_widths.py."""

import warnings

import numpy as np
from make_images_regression import IMAGES, plain, sinc_data
from sklearn.datasets import make_friedman1

from relvec import RVR
from relvec.plot import LINE, POINT, TRUTH, VECTOR, FeatureRelevanceDisplay, new_figure


def draw_starts():
    """Evidence and score of the sinc against one width, and where the starts of `width="learn"` ended."""
    X, y = sinc_data()
    learned = RVR(width="learn").fit(X, y)
    widths = np.geomspace(0.5, 8.0, 25)
    evidence, cost = np.empty((2, len(widths)))
    for i, width in enumerate(widths):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = RVR(width=width).fit(X, y)
        evidence[i] = model.log_marginal_likelihood_
        cost[i] = 0.5 * np.log(len(X)) * model.gamma_.sum()
    figure = new_figure(7.2, 3.6)
    ax = figure.subplots()
    ax.plot(widths, evidence, color=TRUTH, lw=1.4, label="evidence")
    ax.plot(widths, evidence - cost, color=LINE, lw=2, label="score: evidence less ln(N)/2 a weight")
    best = max(learned.tuning_.trials, key=lambda trial: trial.score)
    unit = learned.log_marginal_likelihood_ - best.log_evidence  # trials are of scaled targets
    for i, trial in enumerate(learned.tuning_.trials):
        end = np.exp(trial.theta[0])
        ax.plot(
            end, trial.score + unit, "o", ms=8, mfc="none", mec=VECTOR, mew=1.6, label="" if i else "ends of starts"
        )
    ax.axvline(learned.width_, color=POINT, lw=0.8, ls=":")
    plain(ax, xlabel="width", ylabel="nats", xscale="log", ylim=(0, 95))
    ax.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize="small", loc="lower left")
    lines = [f"start {np.exp(t.start[0]):.2f} -> {np.exp(t.theta[0]):.2f}, evidence {t.log_evidence + unit:.2f}, score "
             f"{t.score + unit:.2f}, {t.size} functions" for t in learned.tuning_.trials]  # fmt: skip
    return figure, "\n  ".join([f"learned {learned.width_:.2f}, agreement {learned.tuning_.agreement:.0%}", *lines])


def draw_relevance():
    """Friedman #1: the relevance of the inputs, and the score of every start."""
    X, y = make_friedman1(240, noise=1.0, random_state=0)
    model = RVR().fit(X, y)
    figure = new_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    FeatureRelevanceDisplay.from_estimator(model, ax=left)
    plain(left, "relevance of the inputs of Friedman #1")
    trials = model.tuning_.trials
    scores = np.array([t.score for t in trials])
    right.plot(np.arange(1, len(trials) + 1), scores - scores.max(), "o", color=LINE, ms=7)
    plain(right, "score below the best (nats)", xlabel="start", xticks=np.arange(1, len(trials) + 1))
    lines = [f"start {i}: score {s - scores.max():.2f}, {t.size} functions"
             for i, (s, t) in enumerate(zip(scores, trials, strict=True), start=1)]  # fmt: skip
    shares = " ".join(f"{share:.4f}" for share in model.feature_relevance_)
    return figure, "\n  ".join([f"{len(model.relevance_)} vectors, relevance {shares}", *lines])


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (draw_starts, draw_relevance):
        figure, printed = draw()
        name = f"widths_{draw.__name__.removeprefix('draw_')}.png"
        figure.savefig(IMAGES / name, dpi=100)
        print(f"{name} ({(IMAGES / name).stat().st_size // 1000} kB)\n  {printed}", flush=True)
