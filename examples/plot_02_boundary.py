"""
A boundary between two classes
==============================

Two interleaved half moons. The classifier gives probabilities, and its relevance vectors lie *within* the classes
rather than along the boundary, where a support vector machine has its own.
"""

from sklearn.datasets import make_moons
from sklearn.svm import SVC

from relvec import RVC, plot

X, y = make_moons(200, noise=0.25, random_state=0)
model = RVC(width=1.0).fit(X, y)
plot.SurfaceDisplay.from_estimator(model, X, y)

# %%
# Solid: probability one half. Dotted: one tenth and nine tenths.

X_new, y_new = make_moons(2000, noise=0.25, random_state=1)
svc = SVC(gamma=1.0, C=1.0).fit(X, y)  # the same width: gamma = 1 / width**2
print(f"relevance vectors {len(model.relevance_):3d}, error {1 - model.score(X_new, y_new):.1%}")
print(f"support vectors   {len(svc.support_):3d}, error {1 - svc.score(X_new, y_new):.1%}")
