"""
From probabilities to decisions
===============================

A probability is worth having when errors differ in cost. Tumours of scikit-learn's breast cancer data: to overlook a
malignant one costs twenty times a needless biopsy, and a doctor can be asked at a price in between.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVC, plot
from relvec.inference.decisions import bayes_decision, change_priors

data = load_breast_cancer()
X, X_new, y, y_new = train_test_split(data.data, data.target, random_state=0, test_size=0.5)
model = make_pipeline(StandardScaler(), RVC(width=12.0)).fit(X, y)
proba = model.predict_proba(X_new)  # columns: malignant, benign
print(f"{len(model[-1].relevance_)} of {len(X)} patients kept, accuracy {model.score(X_new, y_new):.1%}")

# %%
# Rows of the cost matrix are what is true, columns what is done: operate, send home, ask the doctor.

cost = np.array([[0.0, 20.0, 2.0], [1.0, 0.0, 0.5]])
for name, action in (
    ("most probable class", proba.argmax(axis=1)),
    ("two actions, by cost", bayes_decision(proba, cost[:, :2])),
    ("with the doctor", bayes_decision(proba, cost)),
):
    paid = cost[y_new, action].mean()
    missed = np.sum((y_new == 0) & (action == 1))
    print(f"{name:21s} mean cost {paid:.3f}, overlooked {missed}, asked {np.sum(action == 2)}")

# %%
# Where the frequency of a class differs from the training data, the probabilities are changed to match: in a screening
# one tumour in a hundred may be malignant.

share = np.bincount(y) / len(y)
screened = change_priors(proba, share, [0.01, 0.99])
print(f"{proba[:3, 0].round(3)} among referred patients, {screened[:3, 0].round(3)} in a screening")

# %%
# Decisions by cost need probabilities that come true.

plot.CalibrationDisplay.from_estimator(model, X_new, y_new)
