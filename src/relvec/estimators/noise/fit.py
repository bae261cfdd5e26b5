"""Fits of rows whose weights depend on the noise that is learned with them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.estimators.noise.models import NOISES
from relvec.estimators.noise.predictor import scale_of
from relvec.estimators.sources.base import MAX_WHOLE_ROWS
from relvec.inference.process import Process

if TYPE_CHECKING:
    from relvec.estimators.fitted import FittedModel
    from relvec.estimators.options import FitOptions
    from relvec.estimators.sources import MemorySource

MAX_FITS = 25  # of one model: bounds settle in 4 to 12
MIN_GAIN_NATS = 0.02  # of the bound that another fit has to bring
KERNELS_CHOSEN_IN = 2  # fits in which kernels are compared: in the first all rows count alike
# Fits that begin with no function, where some row has a weight below this: the functions of the first fit bend to gross
# errors, and a search that has them keeps some. They have to be ahead of the first fit by so many nats.
BEGUN_WITH_NOTHING, SMALL_WEIGHT, MIN_GAIN_OVER_FIRST_NATS = 3, 0.25, 1.0
FIRST_SHARE = 0.5  # of the time limit, for the first fit

Fit = Callable[["FitOptions", "MemorySource"], "FittedModel"]


def fit_noise(options: FitOptions, source: Any, fit: Fit) -> FittedModel:
    """A model whose noise is learned with it, by fits of the same rows under other weights.

    A noise gives rows weights of mean one, and a term to add to the evidence of the model of weighted rows: together
    that is the variational bound, which rises from fit to fit, or of censored targets the Laplace evidence
    (`relvec.estimators.noise.models`).

    Parameters
    ----------
    options : the options of the estimator.
    source : the rows, with one target.
    fit : fits a model with constant normal noise.
    """
    check_rows(options, source)
    learn, began, limit = NOISES[options.noise], time.monotonic(), options.time_limit
    plain = replace(options, noise="constant", target_scale=learn.first_scale)
    rows = learn.begin(source)
    model = fit(_limit(plain, None if limit is None else FIRST_SHARE * limit), rows)
    plain = replace(plain, target_scale=scale_of(model.predictors[0]))
    first, bounds = model, [float(model.log_evidence[0])]
    best, n_bounds = (model, source, rows.weights), 1
    for i in range(1, MAX_FITS):
        noise = learn.learn(model, source, rows.weights)
        left = None if limit is None else limit - (time.monotonic() - began)
        if not noise.varies or (left is not None and left < 0.0):
            break
        start = None if i < KERNELS_CHOSEN_IN and plain.chooses_kernel else model.earlier
        if start is not None and i <= BEGUN_WITH_NOTHING and noise.weights.min() < SMALL_WEIGHT:
            start = start.without_functions()
        own, rows = noise.apply(replace(_limit(plain, left), earlier=start), source)
        model = noise.settle(_quietly(fit, own, rows))
        bounds.append(float(model.log_evidence[0]) + noise.added)
        if not learn.rises or bounds[-1] > max([bounds[0] + MIN_GAIN_OVER_FIRST_NATS, *bounds[1:-1]]):
            best, n_bounds = (model, source, rows.weights), i + 1
        gain = bounds[-1] - bounds[-2]
        if i >= BEGUN_WITH_NOTHING and (gain if learn.rises else abs(gain)) < MIN_GAIN_NATS:
            break
    noise = learn.learn(*best)
    model, n_bounds = (best[0], n_bounds) if noise.varies else (first, 1)
    return noise.assemble(model, np.array(bounds[:n_bounds]))


def _quietly(fit: Fit, options: FitOptions, source: MemorySource) -> FittedModel:
    """A fit that does not repeat the warnings of the first one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(options, source)


def _limit(options: FitOptions, seconds: float | None) -> FitOptions:
    """Options with a time limit of so many seconds, or as they are."""
    if seconds is None:
        return options
    solver: Any = options.solver
    return replace(options, time_limit=seconds, solver=replace(solver, time_limit=seconds))


def check_rows(options: FitOptions, source: Any) -> None:
    """Errors where the rows or parameters do not allow for noise that is learned by rows."""
    asked = "noise='heteroscedastic'" if options.noise == "heteroscedastic" else f"likelihood='{options.noise}'"
    if not hasattr(source, "reweight"):
        raise ValueError(f"{asked} needs all rows in memory: it cannot be fitted in parts, on disk or with Dask")
    if options.chooses_kernel and source.n_rows > MAX_WHOLE_ROWS:
        raise ValueError(
            f"{asked} fits a process to at most {MAX_WHOLE_ROWS} rows: for more ask for a relevance vector machine, "
            "predictive='rvm', or fit a sample of the rows"
        )
    if source.n_targets > 1 and options.noise != "censored":
        raise ValueError(f"{asked} works for one output: fit a model for each, for example with MultiOutputRegressor")
    if options.noise_variance is not None:
        raise ValueError(f"{asked} learns its noise: leave noise_variance at None")
    with_process = options.noise == "censored"
    if options.predictive is not None and not (with_process and isinstance(options.predictive, Process)):
        words = "'auto', 'process'" if with_process else "'auto'"
        raise ValueError(f"{asked} works with predictive={words} and 'rvm' only")
