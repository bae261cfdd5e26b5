"""Forms and routes that a model must not depend on: `python tests/invariance.py 20` compares so many data sets.

Each way fits the same data in another form (rows permuted, targets scaled, ...) or by another route (in blocks,
in single precision, on more threads). The table has the share of data sets with the same relevance
vectors, and the largest difference of the log evidence after what the form itself adds is taken off.
"""

from __future__ import annotations

import argparse
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from unittest import mock

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from relvec import RVC, RVR

ROWS, MANY = 80, 640  # rows of a data set; and where kernels are reduced to their rank
UNIT = 1.7e3  # what targets are multiplied by


@dataclass(frozen=True)
class Found:
    """Relevance vectors as rows of the data as they were, and the evidence as of those."""

    support: tuple
    evidence: float


def data(seed: int, classes: bool, rows: int = ROWS):
    """Return X (rows, 2) and noisy targets or labels."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4.0, 4.0, (rows, 2))
    f = np.sinc(X[:, 0] / 2.0) + 0.3 * X[:, 1] * np.cos(X[:, 0])
    return (X, f + 0.4 * rng.normal(size=rows) > 0.3) if classes else (X, f + 0.1 * rng.normal(size=rows))


def fit(X, y, weights=None, rows=None, shift: float = 0.0, **options) -> Found:
    """Fit a model; row i of X is row ``rows[i]`` of the data."""
    model = (RVC if y.dtype == bool else RVR)(**{"width": 2.0} | options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sample_weight=weights)
    support = model.relevance_ if rows is None else rows[model.relevance_]
    return Found(tuple(sorted(support.tolist())), model.log_marginal_likelihood_ + shift)


def permute_rows(X, y) -> Found:
    rows = np.random.default_rng(len(X)).permutation(len(X))
    return fit(X[rows], y[rows], rows=rows)


def scale_targets(X, y) -> Found:
    return fit(X, UNIT * y, shift=len(y) * np.log(UNIT))


def duplicate_rows(X, y) -> Found:
    both = np.tile(np.arange(len(X)), 2)
    return fit(X[both], y[both], np.full(len(both), 0.5), rows=both)


def scale_columns(X, y) -> Found:
    """T01 section 2.1: the norm of a basis function is the business of its precision."""
    size = 10.0 ** np.random.default_rng(1).uniform(-3.0, 3.0, len(X))
    return fit(_kernel(X) * size, y, kernel="precomputed", width="auto")


def precompute_kernel(X, y) -> Found:
    return fit(_kernel(X), y, kernel="precomputed", width="auto")


def _kernel(X):
    return np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 4.0)


def with_settings(*patches, **options):
    """Return a way to fit with other constants of the code; the fit it is compared with has the same options."""

    def way(X, y) -> Found:
        with ExitStack() as stack:
            for name, value in patches:
                stack.enter_context(mock.patch(name, value))
            return fit(X, y, **options)

    way.options = options
    return way


def with_threads(count: int):
    def way(X, y) -> Found:
        with threadpool_limits(count):
            return fit(X, y)

    return way


def decline(*arguments, **options) -> None:
    """Stand in for a compression that does not pay."""


# Name, rows, whether for targets and for classes, the way to fit, and how near the evidence has to be (nats).
WAYS = [
    ("rows permuted", ROWS, (True, True), permute_rows, 1e-8),
    ("targets scaled", ROWS, (True, False), scale_targets, 1e-8),
    ("columns of Phi scaled by 1e-3 to 1e3", ROWS, (True, True), scale_columns, 1e-8),
    ("data set twice, weights halved", ROWS, (True, True), duplicate_rows, 1e-8),
    ("kernel precomputed", ROWS, (True, True), precompute_kernel, 1e-8),
    ("1 thread", ROWS, (True, True), with_threads(1), 1e-8),
    ("4 threads", ROWS, (True, True), with_threads(4), 1e-8),
    ("640 rows, permuted", MANY, (True, True), permute_rows, 1e-8),
    ("640 rows, 4 threads", MANY, (True, True), with_threads(4), 1e-8),
    ("640 rows, not reduced to the rank", MANY, (True, False),
     with_settings(("relvec.design.sums.by_pivots", decline)), 1e-8),
]  # fmt: skip


def compare(way, rows: int, classes: bool, seeds) -> tuple[int, float]:
    """Return how many data sets have the same relevance vectors either way, and the largest difference of evidence."""
    same, apart = 0, 0.0
    for seed in seeds:
        X, y = data(seed, classes, rows)
        plain, other = fit(X, y, **getattr(way, "options", {})), way(X, y)
        same += plain.support == other.support
        apart = max(apart, abs(plain.evidence - other.evidence))
    return same, apart


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=20, help="data sets")
    count = parser.parse_args().count
    print("| what changes | same vectors, targets | evidence (nats) | same vectors, classes | evidence (nats) |")
    print("|---|---|---|---|---|")
    for name, rows, kinds, way, _ in WAYS:
        cells = []
        for classes in (False, True):
            if kinds[classes]:
                same, apart = compare(way, rows, classes, range(count))
                cells += [f"{same} of {count}", f"{apart:.0e}"]
            else:
                cells += ["", ""]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
