"""
Which inputs matter
===================

Friedman's first function has ten inputs, of which five are used. Shuffling one input at a time shows how much the
fitted model needs it.
"""

from sklearn.datasets import make_friedman1

from relvec import RVR, plot

X, y = make_friedman1(300, noise=1.0, random_state=0)
X_new, y_new = make_friedman1(500, noise=1.0, random_state=1)
model = RVR(width=2.0).fit(X, y)
print(f"{len(model.relevance_)} of {len(X)} rows kept, R^2 on new rows {model.score(X_new, y_new):.2f}")
display = plot.FeatureRelevanceDisplay.from_estimator(model, X_new, y_new)
print("needed:", [name for name, loss in zip(display.names, display.relevance, strict=True) if loss > 0.02])

# %%
# A width of its own for every input says the same to the model: a wide one switches an input off.

wide = RVR(width=[2.0] * 5 + [50.0] * 5).fit(X, y)
print(f"the last five switched off: {len(wide.relevance_)} rows kept, R^2 on new rows {wide.score(X_new, y_new):.2f}")
