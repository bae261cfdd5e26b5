"""
The risk of tomorrow's return
=============================

Daily returns of a share are close to unpredictable, their *size* is not: calm days follow calm days. The prices here
are simulated, with a volatility that moves slowly and answers more strongly to losses than to gains, so that the truth
is known. From twenty returns a day comes the realised variance; the model predicts tomorrow's, and with it a value at
risk, the loss that is exceeded on one day in twenty.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVR, plot

rng = np.random.default_rng(7)
n, ticks = 1200, 20
returns, realised, log_variance = np.zeros(n), np.ones(n), np.zeros(n)
for day in range(1, n):
    shock = returns[day - 1] / np.exp(log_variance[day - 1] / 2)
    log_variance[day] = 0.96 * log_variance[day - 1] + 0.10 * (abs(shock) - 0.8) - 0.14 * shock
    within = rng.normal(0, np.exp(log_variance[day] / 2) / np.sqrt(ticks), ticks)
    returns[day], realised[day] = within.sum(), np.sum(within**2)

# %%
# Inputs: the mean realised variance over the last one, five and twenty-two days, in logarithms, and the last return
# with its sign. Target: the logarithm of tomorrow's realised variance.

days = np.arange(22, n - 1)
recent = [np.log([realised[day - k + 1 : day + 1].mean() for day in days]) for k in (1, 5, 22)]
X, y = np.column_stack([*recent, returns[days]]), np.log(realised[days + 1])
train, test = slice(0, 600), slice(600, None)

model = make_pipeline(StandardScaler(), RVR(width=5.0)).fit(X[train], y[train])
predicted, std = model.predict(X[test], return_std=True)
true = log_variance[days + 1][test]
print(f"{len(model[-1].relevance_)} of 600 days kept")
print(f"correlation with the true log-variance: model {np.corrcoef(predicted, true)[0, 1]:.2f}, "
      f"yesterday's realised variance {np.corrcoef(X[test, 0], true)[0, 1]:.2f}")  # fmt: skip
print(f"90% intervals hold {np.mean(np.abs(y[test] - predicted) < 1.645 * std):.0%} of the realised variances")

# %%
# The value at risk, beside a constant one from the training days. A good one is exceeded as often on calm days as on
# stormy ones.

risk = 1.645 * np.exp(predicted / 2)
constant = -np.quantile(returns[days + 1][train], 0.05)
tomorrow, stormy = returns[days + 1][test], true > np.median(true)
for name, limit in (("model", risk), ("constant", np.full(len(risk), constant))):
    beyond = tomorrow < -limit
    print(f"{name:9s} exceeded on {beyond.mean():.1%} of all days, {beyond[~stormy].mean():.1%} of the calm and "
          f"{beyond[stormy].mean():.1%} of the stormy ones")  # fmt: skip

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(tomorrow, color=plot.POINT, lw=0.8, label="return")
ax.plot(-risk, color=plot.LINE, lw=1.6, label="value at risk, model")
ax.plot(-1.645 * np.exp(true / 2), color=plot.TRUTH, lw=1.0, ls="--", label="with the true volatility")
ax.axhline(-constant, color=plot.VECTOR, lw=1.0, label="constant")
ax.set(xlabel="day", ylabel="return, percent")
ax.legend(frameon=False, fontsize="small", loc="lower left", ncols=2)
