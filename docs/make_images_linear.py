"""Draw the pictures of the page on sparse linear models and print their numbers: python docs/make_images_linear.py."""

import numpy as np
from make_images_regression import IMAGES, plain
from sklearn.linear_model import LassoCV

from relvec import SparseBayesianRegressor, relevance_path
from relvec.plot import LINE, POINT, TRUTH, VECTOR, RelevancePathDisplay, new_figure


def genes(n=150, p=5000, seed=3):
    """A made expression study: p columns in correlated modules of ten, six of which act on the trait."""
    rng = np.random.default_rng(seed)
    modules = np.repeat(rng.standard_normal((n, p // 10)), 10, axis=1)
    X = np.exp(0.5 * (0.7 * modules + np.sqrt(1.0 - 0.7**2) * rng.standard_normal((n, p))))
    slopes = np.zeros(p)
    slopes[rng.choice(p // 10, 6, replace=False) * 10] = [3.0, -2.5, 2.0, -1.5, 1.2, 1.0]
    return X, X @ slopes + rng.standard_normal(n), slopes


def draw_slopes():
    """Slopes with error bars of 5,000 columns of 150 rows, beside those of the lasso and the true ones."""
    X, y, slopes = genes()
    model, lasso = SparseBayesianRegressor().fit(X, y), LassoCV(cv=5, random_state=0).fit(X, y)
    figure = new_figure(7.2, 3.4)
    ax = figure.subplots()
    kept = np.flatnonzero(lasso.coef_)
    ax.plot(kept, lasso.coef_[kept], ".", ms=4, color=POINT, label=f"LassoCV: {len(kept)} columns")
    chosen = np.flatnonzero(model.selected_)
    ax.errorbar(chosen, model.coef_[chosen], 1.96 * model.coef_std_[chosen], fmt="o", ms=5, color=LINE, capsize=3,
                label=f"SparseBayesianRegressor: {len(chosen)} columns")  # fmt: skip
    true = np.flatnonzero(slopes)
    ax.plot(true, slopes[true], "x", ms=8, color=VECTOR, mew=1.8, label=f"true: {len(true)} columns")
    ax.axhline(0.0, color=TRUTH, lw=0.6)
    plain(ax, xlabel="column", ylabel="slope")
    ax.legend(frameon=False, fontsize="small", loc="best")
    found = len(set(chosen) & set(true))
    return figure, f"{len(chosen)} columns selected, {found} of them true; the lasso keeps {len(kept)}"


def draw_path():
    """Evidence and density of the best model of every size on the same rows."""
    X, y, _ = genes()
    path = relevance_path(X, y, SparseBayesianRegressor(), max_functions=10)
    figure = new_figure(6.4, 3.4)
    RelevancePathDisplay.from_path(path, ax=figure.subplots())
    return figure, "\n  ".join(str(path).splitlines())


if __name__ == "__main__":
    for name, draw in (("linear_slopes", draw_slopes), ("linear_path", draw_path)):
        figure, numbers = draw()
        figure.savefig(IMAGES / f"{name}.png", dpi=90)
        print(f"{name}: {numbers}")
