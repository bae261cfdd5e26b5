"""
A noisy function of one input
=============================

The example that every paper on the relevance vector machine begins with: :math:`\\sin(x)/x` with Gaussian noise. A
hundred points go in; a few remain, circled, and carry the whole prediction. The noise and the width of the kernels are
learned with them.
"""

import numpy as np

from relvec import RVR, plot

rng = np.random.default_rng(0)
X = np.linspace(-10, 10, 100)[:, None]


def sinc(X):
    return np.sinc(X[:, 0] / np.pi)


y = sinc(X) + rng.normal(0, 0.1, 100)
model = RVR().fit(X, y)
print(f"{len(model.relevance_)} of {len(X)} points kept; noise {model.noise_variance_**0.5:.3f} (true: 0.1)")

# %%
# The band holds a new *target* with about 95% probability, noise included.

plot.FitDisplay.from_estimator(model, X, y, truth=sinc)

# %%
# ``noise=False`` describes the function itself.

grid = np.array([[-8.0], [0.0], [5.0]])
targets, functions = (model.predict_interval(grid, 0.95, noise=noise) for noise in (True, False))
for (x,), target, function in zip(grid, targets, functions, strict=True):
    print(f"x = {x:4.0f}: target {target.round(2)}, function {function.round(2)}")
