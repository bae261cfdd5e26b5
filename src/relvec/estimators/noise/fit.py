"""Fits of rows whose weights depend on the noise that is learned with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.estimators.noise.models import NOISES
from relvec.estimators.sources import MemorySource

if TYPE_CHECKING:
    from relvec.estimators.options import FitOptions
    from relvec.estimators.records import Fitted

MAX_FITS = 25  # of one model: bounds settle in 4 to 12
MIN_GAIN_NATS = 0.02  # of the bound that another fit has to bring
# Fits that begin with no function, where some row has a weight below this: the functions of the first fit bend to gross
# errors, and a search that has them keeps some. They have to be ahead of the first fit by so many nats.
BEGUN_WITH_NOTHING, SMALL_WEIGHT, MIN_GAIN_OVER_FIRST_NATS = 3, 0.25, 1.0
FIRST_SHARE = 0.5  # of the time limit, for the first fit

Model = TypeVar("Model", bound="Fitted")


def fit_noise(options: FitOptions, source: Any, fit: Callable[[Any, Any], Model]) -> Model:
    """Fit a model whose noise is learned with it, by fits of the same rows under other weights.

    A noise gives rows weights of mean one, and a term to add to the evidence of the model of weighted rows: together
    that is the variational bound, which rises from fit to fit, or of censored targets the Laplace evidence
    (`relvec.estimators.noise.models`).

    Parameters
    ----------
    options : the options of the estimator, whose noise is that to learn.
    source : the rows, with one target.
    fit : fits a model with constant normal noise.
    """
    check_rows(options, source)
    learn = NOISES[options.noise]
    plain = options.beginning(learn.on_own_scale)
    rows = learn.begin(source)
    model = fit(plain.within(FIRST_SHARE), rows)
    plain = plain.following(model)
    first, bounds = model, [float(model.log_evidence[0])]
    best, n_bounds = (model, source, rows.weights), 1
    for i in range(1, MAX_FITS):
        noise = (learn.learn_first if i == 1 else learn.learn)(model, source, rows.weights)
        if not noise.varies or options.clock.left() <= 0.0:
            break
        afresh = i <= BEGUN_WITH_NOTHING and noise.weights.min() < SMALL_WEIGHT
        start = plain.start_from(model, i, afresh)
        own, rows = noise.apply(replace(plain.within(1.0), earlier=start), source)
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


def _quietly(fit: Callable[[Any, Any], Model], options: FitOptions, source: MemorySource) -> Model:
    """Make a fit that does not repeat the warnings of the first one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(options, source)


def check_rows(options: Any, source: Any) -> None:
    """Refuse rows that do not allow for noise that is learned by rows."""
    asked = options.noise_asked
    if not isinstance(source, MemorySource):
        raise ValueError(f"{asked} needs all rows in memory, as a dense array")
    if source.groups is not None and options.noise == "heteroscedastic":
        raise ValueError(f"{asked} is learned from rows left out one by one: with groups leave noise at 'auto'")
    if source.n_targets > 1 and options.noise != "censored":
        raise ValueError(f"{asked} works for one output: fit a model for each, for example with MultiOutputRegressor")
    if options.noise_variance is not None:
        raise ValueError(f"{asked} learns its noise: leave noise_variance at None")
    if options.most_rows is not None and source.n_rows > options.most_rows:
        raise ValueError(
            f"{asked} fits a process to at most {options.most_rows} rows: for more fit a sample of the rows, or "
            "RelevanceVectorRegressor under Student-t noise"
        )
