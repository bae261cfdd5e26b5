"""
Do error bars and probabilities come true?
==========================================

A 90% interval should hold nine new targets in ten, and of the rows given a probability of 0.3 three in ten should be of
that class. Both can be checked on rows that were kept out of the fit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes, make_classification
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVC, RVR, plot

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")

X, X_new, y, y_new = train_test_split(*load_diabetes(return_X_y=True), random_state=0, test_size=0.5)
regressor = make_pipeline(StandardScaler(), RVR(width=8.0)).fit(X, y)
intervals = plot.CalibrationDisplay.from_estimator(regressor, X_new, y_new, ax=left)
left.set_title("Intervals, diabetes data")

data = make_classification(1500, 6, n_informative=4, flip_y=0.15, random_state=0)
X, X_new, y, y_new = train_test_split(*data, random_state=0, test_size=0.8)
classifier = make_pipeline(StandardScaler(), RVC(width=3.0)).fit(X, y)
classes = plot.CalibrationDisplay.from_estimator(classifier, X_new, y_new, ax=right)
right.set_title("Probabilities, made data")

gap = np.abs(intervals.observed - intervals.nominal).max()
print(f"intervals: largest gap {gap:.2f}, with a standard error of {intervals.error.max():.2f}")
gap = np.abs(classes.observed - classes.nominal).max()
print(f"probabilities: largest gap {gap:.2f}, with a standard error of {classes.error.max():.2f}")
