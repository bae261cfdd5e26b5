"""Draw density and error against the number of vectors, and print the numbers: python docs/make_images_process.py."""

import warnings

import numpy as np
from make_images_regression import IMAGES
from sklearn.datasets import make_friedman1

from relvec import GPRegressor
from relvec.plot import LINE, POINT, new_figure

VECTORS = (8, 16, 32, 64, 128)


def measure(X, y, X_test, y_test, max_vectors):
    """Root mean square error, mean negative log density, gap of the bounds in nats a row, and the vectors kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor(max_vectors=max_vectors).fit(X, y)
    mean = model.predict(X_test)
    error = np.sqrt(np.mean((mean - y_test) ** 2))
    density = -np.mean(model.log_predictive_density(X_test, y_test))
    return error, density, np.diff(model.bounds_)[0] / len(y), len(model.vectors_)


def draw_vectors():
    """A table of 500 rows with next to no noise: Friedman's first function."""
    X, y = make_friedman1(1500, n_features=6, noise=0.02, random_state=0)
    found = [measure(X[:500], y[:500], X[500:], y[500:], m) for m in VECTORS]
    error, density, gap, vectors = np.array(found).T
    for row in zip(vectors, error, density, gap, strict=True):
        print("{:4.0f} vectors: error {:.3f}, negative log density {:.3f}, gap {:.2f} nats a row".format(*row))
    figure = new_figure(7.2, 3.2)
    for axes, values, label in zip(
        figure.subplots(1, 2), (error, density), ("root mean square error", "negative log density"), strict=True
    ):
        axes.plot(vectors, values, "o-", color=LINE, markerfacecolor=POINT)
        axes.set(
            xscale="log", xlabel="vectors", ylabel=label, xticks=vectors, xticklabels=[f"{m:.0f}" for m in vectors]
        )
        axes.minorticks_off()
    figure.savefig(IMAGES / "process_vectors.png", dpi=110)


if __name__ == "__main__":
    draw_vectors()
