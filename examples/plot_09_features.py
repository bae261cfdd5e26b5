"""
Which inputs matter
===================

Friedman's first function has ten inputs, of which five are used. A relevance vector machine learns one width for each
input by maximising the evidence. An input that does not matter gets a kernel so wide that the model does not change
along it: its relevance, the squared inverse width times the variance of the input, is nearly zero.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from relvec import RVR, plot

X, y = make_friedman1(200, noise=1.0, random_state=0)
X_new, y_new = make_friedman1(500, noise=1.0, random_state=1)
model = RVR(kernel="gaussian").fit(X, y)
print(f"{len(model.relevance_)} of {len(X)} rows kept, R^2 on new rows {model.score(X_new, y_new):.2f}")
print("relevant:", [f"x{k + 1}" for k, share in enumerate(model.feature_relevance_) if share > 1e-3])

# %%
# Relevance measures how quickly the function bends along an input, not how much of the target it explains: the fourth
# and fifth inputs enter linearly, so that wide kernels are enough for them.
#
# A model with one width for all inputs has learned nothing about single ones. Shuffling one input at a time shows how
# much such a model needs it; this works for any model, and needs data that were not used in the fit.

simple = RVR(width=2.0).fit(X, y)
print(f"one width: {len(simple.relevance_)} rows kept, R^2 on new rows {simple.score(X_new, y_new):.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot.FeatureRelevanceDisplay.from_estimator(model, ax=left)
shuffled = plot.FeatureRelevanceDisplay.from_estimator(simple, X_new, y_new, ax=right)
print("needed:", [name for name, loss in zip(shuffled.names, shuffled.relevance, strict=True) if loss > 0.02])
