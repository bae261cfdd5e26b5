"""
Beside SVR, Gaussian processes and ARD
======================================

Four estimators on the same rows. The Gaussian process keeps all of them; the support vector machine has no error bars;
ARD regression is linear, and sparse in the inputs rather than in the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import ARDRegression
from sklearn.svm import SVR

from relvec import RVR, plot

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (150, 1))
grid = np.linspace(-10, 10, 500)[:, None]
y, truth = np.sinc(X[:, 0] / np.pi) + rng.normal(0, 0.1, 150), np.sinc(grid[:, 0] / np.pi)
width = 3.0

gp_kernel = ConstantKernel() * RBF(width / np.sqrt(2)) + WhiteKernel(0.01)  # RBF writes exp(-d^2 / (2 l^2))
models = {
    "RVR": RVR(width=width),
    "SVR": SVR(gamma=1 / width**2, C=1.0, epsilon=0.1),
    "GaussianProcessRegressor": GaussianProcessRegressor(gp_kernel, normalize_y=True),
    "ARDRegression": ARDRegression(),
}
figure, axes = plt.subplots(2, 2, figsize=(10, 6), layout="constrained", sharex=True, sharey=True)
for ax, (name, model) in zip(axes.flat, models.items(), strict=True):
    model.fit(X, y)
    mean = model.predict(grid)
    if name != "SVR":
        mean, std = model.predict(grid, return_std=True)
        ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=plot.LINE, alpha=0.14, lw=0)
    kept = {"RVR": "relevance_", "SVR": "support_"}.get(name)
    rows = getattr(model, kept) if kept else np.arange(150 if name.startswith("G") else 0)
    ax.plot(X, y, ".", color=plot.POINT, ms=4)
    ax.plot(X[rows], y[rows], "o", ms=8, mfc="none", mec=plot.VECTOR, mew=1.2)
    ax.plot(grid, mean, color=plot.LINE)
    ax.set_title(f"{name}: {len(rows)} rows kept, error {np.sqrt(np.mean((mean - truth) ** 2)):.3f}", fontsize=10)
