"""
What the solver does
====================

The evidence never falls. Functions enter, are re-estimated, exchanged and deleted; then the search leaves the maximum
it found and tries again. ``history_`` has a row for each step, ``certificate_`` the largest gain that a single move
still offers.
"""

import numpy as np

from relvec import RVR, plot
from relvec.solvers import Sequential

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-10, 10, 200))[:, None]
y = np.sinc(X[:, 0] / np.pi) + 0.3 * np.sin(2 * X[:, 0]) + rng.normal(0, 0.1, 200)
model = RVR(width=1.5).fit(X, y)
plot.HistoryDisplay.from_estimator(model)
print(f"{model.status_} after {model.n_iter_} steps; no single move gains more than {model.certificate_:.1e} nats")

# %%
# More restarts never lower the evidence.

for restarts in (0, 1, 3, 10):
    fitted = RVR(width=1.5, solver=Sequential(restarts=restarts), random_state=0).fit(X, y)
    print(
        f"{restarts:2d} restarts: log evidence {fitted.log_marginal_likelihood_:.2f}, {len(fitted.relevance_)} vectors"
    )
