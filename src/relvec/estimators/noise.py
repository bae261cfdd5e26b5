"""Noise that is not normal with one variance: the fit of weighted rows again and again, with the weights learned."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning

from relvec.basis import Basis
from relvec.estimators.sources import MemorySource
from relvec.gaussian_process import ProcessPredictor
from relvec.inference.censored import first_targets, learn_noise, log_likelihood, working_targets
from relvec.inference.evidence import LOG_2PI
from relvec.inference.heteroscedastic import LogNoise, constant_noise, density_gains, held_out_logs, learn_log_noise
from relvec.inference.predictive import Predictor
from relvec.inference.predictive.expansion import Expansion
from relvec.inference.predictive.responses import StudentPredictor
from relvec.inference.student import OUTLIER_WEIGHT, Tails, bound_of_scales, learn_tails
from relvec.runtime.arrays import hash_rows, unique_rows

if TYPE_CHECKING:
    from relvec.estimators.options import FitOptions
    from relvec.estimators.records import Fitted, FittedProcess


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """The noise that was learned.

    Attributes
    ----------
    kind : "student-t", "heteroscedastic" or "censored".
    bounds : (k,) the variational bound after each fit, the last of the model that is kept; of censored targets the
        Laplace evidence.
    degrees : degrees of freedom of Student-t noise, else None.
    outliers : training rows that count less than a quarter of a usual row under Student-t noise, the worst first.
    columns : (c,) columns of the inputs that the variance of heteroscedastic noise depends on; d is the predicted mean.
    n_censored : training rows whose target is censored, else None.
    """

    kind: str
    bounds: np.ndarray
    degrees: float | None = None
    outliers: np.ndarray | None = None
    columns: np.ndarray | None = None
    n_censored: int | None = None


@dataclass(frozen=True, eq=False)
class HeteroscedasticPredictor(Predictor):
    """The posterior over a function, with normal noise of the expected variance at each row, on the target's scale."""

    is_normal: ClassVar[bool] = False

    function: ProcessPredictor
    noise: LogNoise

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation (n,) of a new target, or of the function, at X on the target's scale."""
        mean, deviation = self.function.location(X, False)
        return mean, np.sqrt(deviation**2 + self.noise_variance(X, mean)) if noise else deviation

    def to_scale(self, y: np.ndarray) -> np.ndarray:
        return self.function.to_scale(y)

    def from_scale(self, u: np.ndarray) -> np.ndarray:
        return self.function.from_scale(u)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        return self.function.log_slope(y)

    def noise_variance(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the variance (n,) of the noise at X, where the means on the scale of the target are (n,)."""
        return self.noise.variance(np.column_stack([X, mean]))

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the mean and, if asked, variance (n,) of the function, or of a new target if ``noise``."""
        mean, deviation = self.function.location(X, False)
        found = self.function.scale.moments(mean, deviation**2, self.noise_variance(X, mean), noise)
        return found[0], found[1] if variance else None

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        return self.function.expand(n_features, basis).with_noise(0.0, self.noise)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Return the covariance (n, n) of the function, or of new targets."""
        C = self.function.covariance(X, False)
        if not noise:
            return C
        with_noise, without = self.moments(X, True, True)[1], self.moments(X, True, False)[1]
        assert with_noise is not None and without is not None
        return C + np.diag(with_noise - without)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Return functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        drawn = self.function.samples(X, n_samples, rng, False)
        if not noise:
            return drawn
        deviation = np.sqrt(self.noise_variance(X, self.function.location(X, False)[0]))
        return self.from_scale(
            self.function.scale.forward(drawn) + deviation[:, None] * rng.standard_normal(drawn.shape)
        )

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Return quantiles (n, n_q) of a new target, or of the function, at X: normal on the scale of the target."""
        mean, deviation = self.location(X, noise)
        return self.from_scale(mean[:, None] + deviation[:, None] * ndtri(q))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X."""
        mean, deviation = self.location(X, True)
        z = (self.function.scale.forward(y) - mean) / deviation
        return -0.5 * (LOG_2PI + z**2) - np.log(deviation) + self.log_slope(y)


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
        fold = hash_rows(Z[:, :-1]) % np.uint64(FOLDS)  # by content: no order of the rows decides
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
    (`relvec.estimators.noise`).

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
