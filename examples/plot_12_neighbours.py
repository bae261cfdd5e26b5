"""
Three families, beside SVR, a Gaussian process and ARD
======================================================

Six estimators on the same rows. A relevance vector machine keeps a few rows, a process all or many of them; a support
vector machine has no error bars; linear models are sparse in the inputs rather than in the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import ARDRegression
from sklearn.svm import SVR

from relvec import RVR, GPRegressor, SparseBayesianRegressor, plot

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (150, 1))
grid = np.linspace(-10, 10, 500)[:, None]
y, truth = np.sinc(X[:, 0] / np.pi) + rng.normal(0, 0.1, 150), np.sinc(grid[:, 0] / np.pi)

kernel = ConstantKernel() * RBF(2.0) + WhiteKernel(0.01)
models = [
    RVR(),
    GPRegressor(),
    SparseBayesianRegressor(),
    SVR(gamma=1 / 9, C=1.0, epsilon=0.1),
    GaussianProcessRegressor(kernel, normalize_y=True),
    ARDRegression(),
]


def rows_kept(model):
    """Return the numbers of the training rows in a model."""
    for name in ("relevance_", "vector_rows_", "support_"):
        if hasattr(model, name):
            return getattr(model, name)
    return np.arange(len(X) if isinstance(model, GaussianProcessRegressor) else 0)


figure, axes = plt.subplots(2, 3, figsize=(13, 6), layout="constrained", sharex=True, sharey=True)
for ax, model in zip(axes.flat, models, strict=True):
    mean = model.fit(X, y).predict(grid)
    if not isinstance(model, SVR):
        mean, std = model.predict(grid, return_std=True)
        ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=plot.LINE, alpha=0.14, lw=0)
    rows = rows_kept(model)
    ax.plot(X, y, ".", color=plot.POINT, ms=4)
    ax.plot(X[rows], y[rows], "o", ms=8, mfc="none", mec=plot.VECTOR, mew=1.2)
    ax.plot(grid, mean, color=plot.LINE)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    ax.set_title(f"{type(model).__name__}: {len(rows)} rows kept, error {error:.3f}", fontsize=10)
