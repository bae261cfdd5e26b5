"""
Counts
======

Calls that arrive at a help desk, by hour of the day. ``likelihood="poisson"`` makes the logarithm of the expected count
a sparse sum of kernels; the interval holds whole numbers and never goes below zero.
"""

import matplotlib.pyplot as plt
import numpy as np

from relvec import RVR, plot

rng = np.random.default_rng(3)
hour = np.sort(rng.uniform(0, 24, 250))


def expected(hour):
    return np.exp(0.2 + 2.2 * np.exp(-((hour - 10) ** 2) / 9) + 1.6 * np.exp(-((hour - 16) ** 2) / 6))


calls = rng.poisson(expected(hour))
X = hour[:, None]
model = RVR(width=4.0, likelihood="poisson").fit(X, calls)
print(f"{len(model.relevance_)} of {len(X)} hours kept; D2 {model.score(X, calls):.2f}")

grid = np.linspace(0, 24, 200)
low, high = model.predict_interval(grid[:, None], coverage=0.9).T
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.fill_between(grid, low, high, color=plot.LINE, alpha=0.14, lw=0, step="mid", label="90% interval of a count")
ax.plot(hour, calls, ".", color=plot.POINT, label="calls")
ax.plot(grid, expected(grid), color=plot.TRUTH, ls="--", lw=1.2, label="true mean")
ax.plot(grid, model.predict(grid[:, None]), color=plot.LINE, lw=2, label="fitted mean")
ax.plot(hour[model.relevance_], calls[model.relevance_], "o", ms=10, mfc="none", mec=plot.VECTOR, mew=1.7,
        label="relevance vectors")  # fmt: skip
ax.set(xlabel="hour", ylabel="calls in an hour")
ax.legend(frameon=False, fontsize="small")

# %%
# A Gaussian model of the same counts has the same bars everywhere, also below zero.

gaussian = RVR(width=4.0).fit(X, calls)
night = np.array([[2.0], [23.0]])
print("Poisson  ", model.predict_interval(night, 0.9).tolist())
print("Gaussian ", gaussian.predict_interval(night, 0.9).round(1).tolist())
fresh = rng.uniform(0, 24, 1000)
counts = rng.poisson(expected(fresh))
for name, fitted in (("Poisson", model), ("Gaussian", gaussian)):
    print(f"{name:9s}log density of new counts {fitted.log_predictive_density(fresh[:, None], counts).mean():.3f}")
