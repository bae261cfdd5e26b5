"""
Trend and season as basis functions
===================================

What is known of a function should not be left to a kernel. Here a trend and some periodic functions stand beside it in
the dictionary, each with its own precision: those that the data do not ask for leave the model, and the trend goes on
beyond the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from relvec import RVR, plot
from relvec.basis import Functions

rng = np.random.default_rng(1)
year = np.linspace(0, 8, 97)
sales = 20 + 3 * year + 4 * np.sin(2 * np.pi * year) + rng.normal(0, 1.0, len(year))


def wave(k, shift):
    def function(X):
        return np.sin(2 * np.pi * k * X[:, 0] + shift)

    function.__name__ = f"{'cos' if shift else 'sin'}{k}"
    return function


season = [wave(k, shift) for k in (1, 2, 3, 4) for shift in (0.0, np.pi / 2)]
train = year < 6
X = year[:, None]
model = RVR(kernel="gaussian", width=1.0, basis=["linear", Functions(*season)]).fit(X[train], sales[train])
for atom, weight in zip(model.atoms_, model.weights_, strict=True):
    print(f"{atom:20s} {weight:7.2f}")

# %%
# The last two years were not shown to the model.

mean, std = model.predict(X, return_std=True)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.axvspan(6, 8, color="#f0f2f5", lw=0)
ax.fill_between(year, mean - 2 * std, mean + 2 * std, color=plot.LINE, alpha=0.14, lw=0)
ax.plot(year, mean, color=plot.LINE, label="prediction")
ax.plot(year, sales, ".", color=plot.TRUTH, label="sales")
ax.set(xlabel="year", ylabel="sales")
ax.legend(frameon=False)
print(f"error in the last two years {np.sqrt(np.mean((mean - sales)[~train] ** 2)):.2f}, noise 1.0")
