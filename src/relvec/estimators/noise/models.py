"""Noise learned from a fitted model's residuals: weights of rows, their term of the bound, and the model with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from relvec.basis import row_hash64
from relvec.estimators.noise.predictor import HeteroscedasticPredictor
from relvec.estimators.noise.record import NoiseFit
from relvec.inference.censored import first_targets, learn_noise, log_likelihood, working_targets
from relvec.inference.evidence import LOG_2PI
from relvec.inference.heteroscedastic import LogNoise, constant_noise, density_gains, held_out_logs, learn_log_noise
from relvec.inference.predictive.student import StudentPredictor
from relvec.inference.student import OUTLIER_WEIGHT, Tails, bound_of_scales, learn_tails
from relvec.runtime.arrays import unique_rows

if TYPE_CHECKING:
    from relvec.estimators.options import FitOptions
    from relvec.estimators.records import Fitted, FittedProcess
    from relvec.estimators.sources import MemorySource

FOLDS = 10  # in which residuals that took no part tell whether the noise varies at all
MIN_GAIN_OF_VARYING_NATS = 1.0  # at those: below, noise of one variance explains them as well
MAX_LEVERAGE = 0.95  # of a row on its own prediction, up to which the residual without it is trusted


@dataclass(frozen=True, eq=False)
class Noise(ABC):
    """Noise that fits the residuals of a model best."""

    weights: np.ndarray  # (n,) of the rows, of weighted mean one
    added: float  # to the evidence of the model of weighted rows, for the bound

    on_own_scale: ClassVar[bool] = False  # whether the target is taken as it is, on no other scale
    rises: ClassVar[bool] = True  # whether the objective can only rise from fit to fit

    @classmethod
    def begin(cls, source: MemorySource) -> MemorySource:
        """Return the rows of the first fit."""
        return source

    @classmethod
    def learn_first(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        """Return the noise to begin with, from a model with constant normal noise."""
        return cls.learn(model, source, fitted)

    @classmethod
    @abstractmethod
    def learn(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        """Return the noise of the residuals of a model, whose rows had the weights ``fitted`` (n,) in the fit."""

    def apply(self, options: FitOptions, source: MemorySource) -> tuple[FitOptions, MemorySource]:
        """Return the options and rows of the next fit."""
        return options, source.reweight(self.weights)

    def settle(self, model: Fitted) -> Fitted:
        """Return the model of the next fit with the noise of a row of weight one."""
        return model

    @property
    @abstractmethod
    def varies(self) -> bool:
        """Whether rows count differently."""

    @abstractmethod
    def assemble(self, model: Fitted, bounds: np.ndarray) -> Fitted:
        """Return the model with this noise, bounds (k,) found on the way to it."""


@dataclass(frozen=True, eq=False)
class StudentNoise(Noise):
    """Student-t noise."""

    on_own_scale = True  # the exponential of a Student-t variable has no mean

    tails: Tails
    outliers: np.ndarray  # training rows, the worst first

    @property
    def varies(self) -> bool:
        return True

    @classmethod
    def learn_first(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        """Return the noise of errors at rows left out: under normal noise a function may go through gross errors."""
        return cls._of_squares(predict_from_others(model, source, fitted)[1] ** 2, source)

    @classmethod
    def learn(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        return cls._of_squares(expected_squares(model, source), source)

    @classmethod
    def _of_squares(cls, squares: np.ndarray, source: MemorySource) -> Self:
        w = source.weights
        tails = learn_tails(squares, w)
        scales = tails.expected_scales(squares)
        mean = float(w @ scales / w.sum())  # one, but for rounding and bounds on the tails
        low = np.flatnonzero(scales < OUTLIER_WEIGHT)
        outliers = source.numbers[low[np.argsort(scales[low], kind="stable")]]
        return cls(scales / mean, bound_of_scales(tails, squares, w) - 0.5 * w.sum() * np.log(mean), tails, outliers)

    def assemble(self, model: Fitted, bounds: np.ndarray) -> Fitted:
        tails, predictor = self.tails, model.predictors[0]
        return replace(
            model,
            predictors=[StudentPredictor(predictor, tails.degrees, tails.variance)],
            noise_variance=np.array([tails.variance]),
            log_evidence=np.array([bounds.max()]),
            noise=NoiseFit("student-t", bounds, tails.degrees, self.outliers),
        )


@dataclass(frozen=True, eq=False)
class VaryingNoise(Noise):
    """Noise whose variance depends on the inputs and the predicted mean, or a constant where that is as good."""

    log_noise: LogNoise
    average: float  # variance of the noise over the rows

    @property
    def varies(self) -> bool:
        return len(self.log_noise.columns) > 0

    @classmethod
    def learn(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        """Return the noise of a model's residuals; constant, where functions do not gain enough at rows left out."""
        squares, w = expected_squares(model, source), source.weights
        Z = np.column_stack([source.X, model.predictors[0].location(source.X, False)[0]])
        found, added = learn_log_noise(Z, squares, w)
        scales = found.weights(Z)
        average = float(w @ scales / w.sum())
        added -= 0.5 * float(w.sum()) * np.log(average)
        fold = row_hash64(Z[:, :-1]) % np.uint64(FOLDS)  # by content: no order of the rows decides
        rest, errors = predict_from_others(model, source, fitted)
        logs = held_out_logs(np.column_stack([source.X, rest]), errors**2, w, fold)
        if not len(found.columns) or w @ density_gains(*logs, errors**2) < MIN_GAIN_OF_VARYING_NATS:
            found, scales, average, added = constant_noise(Z, squares, w), np.ones(len(w)), 1.0, 0.0
        scales = scales / average
        # the evidence counts the slope of the target's scale with the weights of its rows
        added += float((w - w * scales) @ model.predictors[0].log_slope(source.targets[:, 0]))
        return cls(scales, added, found, float(w @ found.variance(Z) / w.sum()))

    def assemble(self, model: Any, bounds: np.ndarray) -> Any:
        noise = NoiseFit("heteroscedastic", bounds, columns=np.unique(self.log_noise.columns))
        if not self.varies:
            return replace(model, noise=noise)
        return replace(
            model,
            predictors=[HeteroscedasticPredictor(model.processes[0], self.log_noise)],
            noise_variance=np.array([self.average]),
            log_evidence=np.array([bounds.max()]),
            noise=noise,
        )


@dataclass(frozen=True, eq=False)
class CensoredNoise(Noise):
    """Normal noise of one variance about targets of which some are known by intervals only."""

    on_own_scale = True
    rises = False  # Laplace's approximation is one at its fixed point: the last fit counts

    targets: np.ndarray  # (n, 1) working targets, observed with the weights
    variance: float  # of the noise
    mean_weight: float
    n_censored: int

    @property
    def varies(self) -> bool:
        return self.n_censored > 0

    @classmethod
    def begin(cls, source: MemorySource) -> MemorySource:
        return source.with_targets(first_targets(source.targets)[:, None])

    def apply(self, options: Any, source: MemorySource) -> tuple[Any, MemorySource]:
        rows = source.with_targets(self.targets).reweight(self.weights)
        return replace(options, noise_variance=self.variance / self.mean_weight), rows

    def settle(self, model: FittedProcess) -> FittedProcess:  # type: ignore[override]
        old = model.processes[0]
        own = (self.variance**0.5 / old.units.y_scale) ** 2
        new = replace(old, components=tuple(replace(part, noise=own) for part in old.components))
        return replace(model, predictors=[new], processes=[new], noise_variance=np.array([new.noise_variance]))

    @classmethod
    def learn(cls, model: Fitted, source: MemorySource, fitted: np.ndarray) -> Self:
        """Return the noise of a model's function, and the normal model that is Laplace's approximation there."""
        ends, w = source.targets, source.weights
        mean, deviation = model.predictors[0].location(source.X, False)
        variance = learn_noise(ends, mean, deviation**2, w)
        targets, scales = working_targets(ends, mean, variance)
        average = float(w @ scales / w.sum())
        scales = scales / average
        # the evidence of the weighted rows has their normal densities in place of the likelihood, both at the mode
        normal = -0.5 * (LOG_2PI + np.log(variance / average) + (targets - mean) ** 2 * average / variance)
        added = float(w @ (log_likelihood(ends, mean, variance) - scales * normal))
        n_censored = int(np.count_nonzero(ends[:, 0] < ends[:, 1]))
        return cls(scales, added, targets[:, None], variance, average, n_censored)

    def assemble(self, model: Fitted, bounds: np.ndarray) -> Fitted:
        noise = NoiseFit("censored", bounds, n_censored=self.n_censored)
        return replace(model, log_evidence=np.array([bounds[-1]]), noise=noise)


def expected_squares(model: Fitted, source: MemorySource) -> np.ndarray:
    """Return E (y - f)^2 (n,) under the posterior over the function, on the scale of the target."""
    mean, deviation = model.predictors[0].location(source.X, False)
    return (model.predictors[0].to_scale(source.targets[:, 0]) - mean) ** 2 + deviation**2


def predict_from_others(model: Fitted, source: MemorySource, fitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means (n,) predicted from the other rows, and their errors; rows had the weights ``fitted`` in the fit.

    Rows with equal inputs are left out together: a row of weight two is two rows.
    """
    predictor = model.predictors[0]
    mean, deviation = predictor.location(source.X, False)
    variance = deviation**2
    noise = predictor.location(source.X, True)[1] ** 2 - variance
    target, group = predictor.to_scale(source.targets[:, 0]), unique_rows(source.X)[2]
    weight = np.bincount(group, fitted)
    average = np.bincount(group, fitted / weight[group] * target)[group]
    most, share = MAX_LEVERAGE * noise, variance * weight[group]
    leverage = np.divide(share, noise, out=np.full(len(mean), MAX_LEVERAGE), where=share < most)
    errors = (average - mean) / (1.0 - leverage) + (target - average)
    return target - errors, errors


NOISES: dict[str, Any] = {"student-t": StudentNoise, "heteroscedastic": VaryingNoise, "censored": CensoredNoise}
