"""
Equations from data: the Lorenz system
======================================

Sparse identification of dynamics (SINDy) writes the derivative of a state as a sparse sum of monomials. A sparse
Bayesian regression chooses them by evidence, without a threshold: all seven terms are found at 5 % noise, and none
else.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

from relvec import SparseBayesianRegressor
from relvec.basis import Polynomial


def lorenz(_, state):
    x, y, z = state
    return [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]


times = np.arange(0.0, 10.0, 0.002)
clean = solve_ivp(lorenz, (0.0, 10.0), [-8.0, 8.0, 27.0], t_eval=times, rtol=1e-8, atol=1e-8).y.T
states = clean + 0.05 * clean.std(axis=0) * np.random.default_rng(0).standard_normal(clean.shape)

# %%
# The weak form integrates both sides against bumps on windows of 0.2 time units: the derivative falls on the bump, and
# no derivative of noise is taken.
basis = Polynomial(2).bind(states)
library = np.column_stack([np.ones(len(states)), basis(states)])
u = np.linspace(-1.0, 1.0, 100)
bump, slope = (1.0 - u**2) ** 4, -8.0 * u * (1.0 - u**2) ** 3 / (0.5 * 99 * 0.002)
rows = [slice(start, start + 100) for start in np.linspace(0, len(states) - 100, 100).astype(int)]
A = np.stack([bump @ library[r] for r in rows])
B = -np.stack([slope @ states[r] for r in rows])

model = SparseBayesianRegressor(fit_intercept=False).fit(A, B)
names = ["1", *basis.labels()]
for state, coef, std in zip("xyz", model.coef_, model.coef_std_, strict=True):
    terms = [f"({coef[j]:.2f} ± {std[j]:.2f}) {names[j]}" for j in np.flatnonzero(coef)]
    print(f"d{state}/dt = {' + '.join(terms)}")

# %%
# The equations that were found, run from the same start.
found = solve_ivp(
    lambda _, s: model.coef_ @ np.append(1.0, basis(s[None, :])), (0.0, 4.0), clean[0], t_eval=times[times < 4.0]
)
plt.figure(figsize=(7, 3), layout="constrained")
plt.plot(times[times < 4.0], states[times < 4.0, 0], ".", ms=1, color="#8a8f98", label="measured")
plt.plot(found.t, found.y[0], color="#1f5fa8", label="equations found")
plt.plot(times[times < 4.0], clean[times < 4.0, 0], "--", lw=1, color="#d1495b", label="truth")
plt.xlabel("time")
plt.ylabel("x")
plt.legend(frameon=False, fontsize="small")

# %%
# In pysindy the regressor is an optimizer: ``WrappedOptimizer(SparseBayesianRegressor(fit_intercept=False))``.
try:
    import pysindy
except ImportError:
    print("pysindy is not installed: pip install pysindy")
else:
    sindy = pysindy.SINDy(
        optimizer=pysindy.WrappedOptimizer(SparseBayesianRegressor(fit_intercept=False)),
        feature_library=pysindy.PolynomialLibrary(degree=2),
        differentiation_method=pysindy.SmoothedFiniteDifference(),
    )
    sindy.fit(states, t=times)
    sindy.print()
