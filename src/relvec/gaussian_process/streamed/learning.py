"""The exact evidence and its gradient on a device, for the last stage of learning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relvec.gaussian_process.kernel import Evaluated, Structure
from relvec.gaussian_process.learn import Objective, log_posterior
from relvec.gaussian_process.priors import Prior
from relvec.gaussian_process.rows import Rows
from relvec.gaussian_process.streamed.algebra import factor_lower, invert, log_determinant
from relvec.runtime.arrays import Array, add_diagonal, like, namespace, to_host


def log_posterior_on(place: Array) -> Callable[[Structure, Prior, Rows], Objective]:
    """`relvec.gaussian_process.learn.log_posterior` with its matrices on the device of an array."""

    def objective(structure: Structure, prior: Prior, rows: Rows) -> Objective:
        X, y = like(place, rows.X), like(place, rows.y)
        return log_posterior(structure, prior, rows, lambda theta: evidence(structure, theta, rows, X, y))

    return objective


def evidence(structure: Structure, theta: np.ndarray, rows: Rows, X: Array, y: Array) -> tuple[float, np.ndarray]:
    """`relvec.gaussian_process.evidence.evidence` of rows whose inputs X (n, d) and targets y (n,) are on a device."""
    s, excess = structure.noise(theta), rows.total - len(rows)
    kernel = Evaluated(structure, theta, X)
    L = factor_lower(add_diagonal(kernel.K, s / rows.weight))
    inverse = invert(L)
    alpha = inverse @ y
    value = (
        -0.5 * float(y @ alpha) - 0.5 * log_determinant(L) - 0.5 * len(rows) * np.log(2.0 * np.pi)
        - 0.5 * excess * np.log(2.0 * np.pi * s) - 0.5 * np.log(rows.weight).sum() - 0.5 * rows.scatter.sum() / s
    )  # fmt: skip
    bar = 0.5 * (alpha[:, None] * alpha[None, :] - inverse)  # RW eq. (5.9)
    slope = kernel.vjp(bar)
    diagonal = to_host(namespace(bar).linalg.diagonal(bar))
    slope[-1] = s * (diagonal / rows.weight).sum() - 0.5 * excess + 0.5 * rows.scatter.sum() / s
    return float(value), slope
