"""Fits of rows whose weights depend on the noise that is learned with them (`relvec.inference.student`)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.estimators.noise.record import NoiseFit
from relvec.estimators.sources.base import MAX_WHOLE_ROWS
from relvec.inference.predictive.student import StudentPredictor
from relvec.inference.student import OUTLIER_WEIGHT, bound_of_scales, learn_tails

if TYPE_CHECKING:
    from relvec.estimators.fitted import FittedModel
    from relvec.estimators.options import FitOptions
    from relvec.estimators.sources import MemorySource

MAX_FITS = 25  # of one model: bounds settle in 4 to 12
MIN_GAIN_NATS = 0.02  # of the bound that another fit has to bring
KERNELS_CHOSEN_IN = 2  # fits in which kernels are compared: the first has outliers of full weight
FIRST_SHARE = 0.5  # of the time limit, for the first fit

Fit = Callable[["FitOptions", "MemorySource"], "FittedModel"]


def fit_noise(options: FitOptions, source: Any, fit: Fit) -> FittedModel:
    """A model whose noise is learned with it, by fits of the same rows under other weights.

    Parameters
    ----------
    options : what the estimator was told.
    source : the rows, with one target.
    fit : fits a model with constant normal noise.
    """
    check_rows(options, source)
    y, weights, began = source.targets[:, 0], source.weights, time.monotonic()
    plain = replace(options, noise="constant", scales_target=False)
    limit = options.time_limit
    model = fit(_limit(plain, None if limit is None else FIRST_SHARE * limit), source)
    best, tails, squares, bounds = model, None, np.zeros(0), [float(model.log_evidence[0])]
    for i in range(1, MAX_FITS):
        squares = _expected_squares(model, source.X, y)
        tails = learn_tails(squares, weights)
        scales = tails.expected_scales(squares)
        mean = float(weights @ scales / weights.sum())  # one, but for rounding and bounds on the tails
        start = None if i < KERNELS_CHOSEN_IN and plain.chooses_kernel else model.earlier
        left = _time_left(options, began)
        if left is not None and left < 0.0:
            break
        model = _quietly(fit, replace(_limit(plain, left), earlier=start), source.reweighted(scales / mean))
        added = bound_of_scales(tails, squares, weights) - 0.5 * float(weights.sum()) * np.log(mean)
        bounds.append(float(model.log_evidence[0]) + added)
        if i >= KERNELS_CHOSEN_IN and bounds[-1] - bounds[-2] < MIN_GAIN_NATS:
            best = model if bounds[-1] >= bounds[-2] else best
            break
        best = model
    return _assemble(best, source, weights, y, np.array(bounds))


def _assemble(
    model: FittedModel, source: MemorySource, weights: np.ndarray, y: np.ndarray, bounds: np.ndarray
) -> FittedModel:
    """The model with Student-t noise, the tails learned from its own residuals."""
    squares = _expected_squares(model, source.X, y)
    tails = learn_tails(squares, weights)
    scales = tails.expected_scales(squares)
    low = np.flatnonzero(scales < OUTLIER_WEIGHT)
    noise = NoiseFit("student-t", bounds, tails.degrees, source.numbers[low[np.argsort(scales[low], kind="stable")]])
    return replace(
        model,
        predictors=[StudentPredictor(model.predictors[0], tails.degrees, tails.variance)],
        noise_variance=np.array([tails.variance]),
        log_evidence=np.array([bounds.max()]),
        noise=noise,
    )


def _expected_squares(model: FittedModel, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """E (y - f)^2 (n,) under the posterior over the function."""
    mean, variance = model.predictors[0].moments(X, True, False)
    return (y - mean) ** 2 + variance


def _quietly(fit: Fit, options: FitOptions, source: MemorySource) -> FittedModel:
    """A fit that does not repeat the warnings of the first one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(options, source)


def _limit(options: FitOptions, seconds: float | None) -> FitOptions:
    """Options with a time limit of so many seconds, or as they are."""
    solver: Any = options.solver
    return (
        options if seconds is None else replace(options, time_limit=seconds, solver=replace(solver, time_limit=seconds))
    )


def _time_left(options: FitOptions, began: float) -> float | None:
    return None if options.time_limit is None else options.time_limit - (time.monotonic() - began)


def check_rows(options: FitOptions, source: Any) -> None:
    """Errors where the rows or parameters do not allow for noise that is learned by rows."""
    asked = "likelihood='student-t'" if options.noise == "student-t" else "noise='heteroscedastic'"
    if not hasattr(source, "reweighted"):
        raise ValueError(f"{asked} needs rows in memory, and a kernel or a basis that is not summed up")
    if options.chooses_kernel and source.n_rows > MAX_WHOLE_ROWS:
        raise ValueError(
            f"{asked} fits a process to at most {MAX_WHOLE_ROWS} rows: for more ask for a relevance vector machine, "
            "predictive='rvm', or fit a sample of the rows"
        )
    if source.n_targets > 1:
        raise ValueError(f"{asked} is for one output: fit one model each, for example by MultiOutputRegressor")
    if options.noise_variance is not None:
        raise ValueError(f"{asked} learns its noise: leave noise_variance at None")
    if options.predictive is not None:
        raise ValueError(f"{asked} has the predictive distributions 'auto' and 'rvm'")
    if options.keeps_checkpoint:
        raise ValueError(f"{asked} is fitted many times over, and keeps no checkpoint: leave checkpoint at None")
