"""Figures that several experiments share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from relvec.plot import LINE, POINT, VECTOR, new_figure, plot_fit
from relvec.plot.axes import tidy_axes
from reproduction._experiment import Published


def fits_figure(
    fits: Sequence[tuple[Any, np.ndarray, str]], X: np.ndarray, truth: Callable[[np.ndarray], np.ndarray]
) -> Any:
    """Fits of one input side by side: (model, targets (n,), title) each, over the same inputs X (n, 1)."""
    figure = new_figure(6.0 * len(fits), 4.0)
    axes = figure.subplots(1, len(fits), sharey=True, squeeze=False)[0]
    for ax, (model, t, title) in zip(axes, fits, strict=True):
        plot_fit(model, X, t, ax, truth=truth).set_title(title)
    return figure


def pair_figure(svm: Any, rvm: Any, X: np.ndarray, t: np.ndarray, truth: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Return the support (left) and relevance (right) vector functions of one input X (n, 1), vectors circled."""
    figure = new_figure(12.0, 4.0)
    left, right = figure.subplots(1, 2, sharey=True)
    x = np.linspace(X.min(), X.max(), 400)[:, None]
    left.plot(x, truth(x), color="0.7", lw=1.2, label="true function")
    left.plot(x, svm.predict(x), color=LINE, label="support vector machine")
    left.plot(X[:, 0], t, ".", color=POINT, ms=4)
    left.plot(X[svm.support_, 0], t[svm.support_], "o", ms=10, mfc="none", mec=VECTOR, mew=1.7,
              label=f"{len(svm.support_)} support vectors")  # fmt: skip
    tidy_axes(left, "upper right")
    plot_fit(rvm, X, t, right, truth=truth)
    return figure


def spread_figure(values: Mapping[str, np.ndarray], published: Mapping[str, Published]) -> Any:
    """Histograms of our draws (n,), one a published number, with our mean and the number."""
    columns = min(3, len(published))
    rows = -(-len(published) // columns)
    figure = new_figure(3.4 * columns, 2.3 * rows + 0.4)
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax in grid.flat[len(published) :]:
        ax.set_axis_off()
    for ax, (name, there) in zip(grid.flat, published.items(), strict=False):
        draws = values[name]
        whole = np.array_equal(draws, np.round(draws))
        bins = np.arange(draws.min() - 0.5, draws.max() + 1.0) if whole else min(20, max(5, len(draws) // 5))
        ax.hist(draws, bins, color=LINE, alpha=0.35, rwidth=0.9)
        ax.axvline(draws.mean(), color=LINE, lw=2.0, label=f"ours, mean of {len(draws)}")
        kind = "one draw" if there.draws == 1 else f"mean of {there.draws}"
        ax.axvline(there.number, color=VECTOR, lw=2.0, ls="--", label=f"published, {kind}")
        ax.set(title=name, yticks=[])
        ax.locator_params(axis="x", nbins=4)
        ax.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def ratio(row: Mapping[str, Any]) -> float:
    """Ours over the published number of a row; nan where there is none."""
    ours, published = row["mean"], float(row["published"])
    if "-log density" in row["quantity"]:
        return float(np.exp(ours - published))
    return ours / published if ours > 0.0 and published > 0.0 else float("nan")


VERDICTS = {"better": "#3f8f5b", "within two standard errors": LINE, "worse": VECTOR}


def overview_figure(experiments: Sequence[Mapping[str, Any]]) -> Any:
    """Every compared number of a record as a point: ours over the published one, coloured by verdict, by paper.

    Of negative log densities it is the published density over ours. The legend counts all numbers.
    """
    papers = list(dict.fromkeys(e["name"].split("-")[0] for e in experiments))[::-1]
    points: dict[str, list[tuple[float, float]]] = {group: [] for group in VERDICTS}
    rng = np.random.default_rng(0)
    for e in experiments:
        for row in e["rows"]:
            if row["group"]:
                height = papers.index(e["name"].split("-")[0]) + rng.uniform(-0.3, 0.3)
                points[row["group"]].append((ratio(row), height))
    figure = new_figure(9.0, 1.2 + 0.55 * len(papers))
    axes = figure.subplots()
    for group, found in points.items():
        x, y = np.array(found).reshape(-1, 2).T
        axes.plot(x, y, "o", color=VERDICTS[group], ms=6, alpha=0.75, mec="white", mew=0.5, label=f"{group} ({len(x)})")
    axes.axvline(1.0, color="0.4", lw=1, zorder=0)
    missing = sum(np.isnan(x) for found in points.values() for x, _ in found)
    axes.set(
        xscale="log",
        xlabel="ours over published" + (f" ({missing} without a ratio)" if missing else ""),
        yticks=range(len(papers)),
        yticklabels=papers,
    )
    axes.set_ylim(-0.5, len(papers) - 0.5)
    ticks = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure
