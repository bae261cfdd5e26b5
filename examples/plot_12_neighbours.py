"""
Beside SVR, Gaussian processes and ARD
======================================

Four estimators on the same rows. The Gaussian process keeps all of them; the support vector machine has no error bars;
ARD regression is sparse in the inputs, not in the rows.
"""

import time

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import ARDRegression
from sklearn.svm import SVR

from relvec import RVR

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (300, 1))
X_new = np.linspace(-10, 10, 1000)[:, None]
y, truth = np.sinc(X[:, 0] / np.pi) + rng.normal(0, 0.1, 300), np.sinc(X_new[:, 0] / np.pi)
width = 3.0

gp_kernel = ConstantKernel() * RBF(width / np.sqrt(2)) + WhiteKernel(0.01)  # RBF writes exp(-d^2 / (2 l^2))
for name, model in (
    ("RVR", RVR(width=width)),
    ("SVR", SVR(gamma=1 / width**2, C=1.0, epsilon=0.1)),
    ("GaussianProcessRegressor", GaussianProcessRegressor(gp_kernel, normalize_y=True)),
    ("ARDRegression", ARDRegression()),
):
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    error = np.sqrt(np.mean((model.predict(X_new) - truth) ** 2))
    kept = {"RVR": "relevance_", "SVR": "support_"}.get(name)
    rows = len(getattr(model, kept)) if kept else 300 if "Gaussian" in name else 0
    print(f"{name:25s} error {error:.3f}, rows kept {rows:3d}, {seconds:.2f} s")
