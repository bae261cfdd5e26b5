"""
Kernels, also those that are none
=================================

The functions in the dictionary need not come from a positive definite kernel. The same data with six of them; the
evidence of each model is comparable, since the targets are the same.
"""

import matplotlib.pyplot as plt
import numpy as np

from relvec import RVR, plot

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(0, 10, 80))[:, None]
y = np.abs(X[:, 0] - 4) + np.sin(2 * X[:, 0]) + rng.normal(0, 0.3, 80)


def tent(X, Z):
    """A kernel of our own: any function of two arrays."""
    return np.maximum(0.0, 1.0 - np.abs(X - Z.T) / 3.0)


choices = {
    "gaussian": RVR(width=2.0),
    "matern32": RVR(kernel="matern32", width=2.0),
    "laplace": RVR(kernel="laplace", width=3.0),
    "log_distance": RVR(kernel="log_distance", width=1.0),
    "cauchy": RVR(kernel="cauchy", width=2.0),
    "tent (our own)": RVR(kernel=tent),
}
figure, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained", sharex=True, sharey=True)
for ax, (name, model) in zip(axes.flat, choices.items(), strict=True):
    model.fit(X, y)
    plot.plot_fit(model, X, y, ax)
    ax.get_legend().remove()
    evidence = model.log_marginal_likelihood_
    ax.set_title(f"{name}: {len(model.relevance_)} vectors, log evidence {evidence:.1f}", fontsize=10)
