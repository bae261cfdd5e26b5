"""What predictions compute from the basis functions of a row: once, for every language that a model is written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relvec import kernels
from relvec.basis import Basis
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.expansion import Expansion, LinearExpansion
from relvec.inference.scale import Scale
from relvec.inference.tails import MAX_LOG_VARIANCE


class Arithmetic(ABC):
    """A language in which results of operations are written down."""

    @abstractmethod
    def apply(self, operation: str, *arguments: Number | float) -> Number:
        """Write down a function of one or two numbers, by its name in NumPy."""


class Writer(Arithmetic):
    """A language in which numbers of a row are written down."""

    @abstractmethod
    def dot(self, basis: Basis, weights: np.ndarray) -> Number:
        """Return Phi'w for weights (k,) of the functions of a basis."""

    @abstractmethod
    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        """Return |phi'root|^2 for root (k, j)."""

    @abstractmethod
    def noise_variance(self, noise: LogNoise, mean: Number) -> Number:
        """Return `LogNoise.variance` at the inputs and a predicted mean, but for its least value."""


@dataclass(frozen=True, eq=False)
class Number:
    """A number of a row under its name in a language; every operation on it is written down at once."""

    writer: Arithmetic
    name: str

    def __add__(self, other: Number | float) -> Number:
        return self.writer.apply("add", self, other)

    def __sub__(self, other: Number | float) -> Number:
        return self.writer.apply("subtract", self, other)

    def __mul__(self, other: Number | float) -> Number:
        return self.writer.apply("multiply", self, other)

    def __truediv__(self, other: Number | float) -> Number:
        return self.writer.apply("divide", self, other)

    def __getattr__(self, operation: str) -> Callable[..., Number]:
        """Return a function by its name in NumPy, as in ``number.sqrt()`` and ``number.maximum(0.0)``."""
        return lambda *others: self.writer.apply(operation, self, *others)


def kernel_profile(kernel: kernels.Kernel, squared: Number) -> Number:
    """Return the value of a stationary kernel at a squared distance in its widths."""
    if type(kernel) is kernels.Gaussian:
        return squared.negative().exp()
    if type(kernel) is kernels.Laplace:
        return squared.sqrt().negative().exp()
    if type(kernel) is kernels.Cauchy:
        return (squared + 1.0).reciprocal()
    if type(kernel) is kernels.LogDistance:
        return squared.log1p()
    assert isinstance(kernel, kernels.Matern)
    a = squared.sqrt() * np.sqrt(2.0 * kernel.nu)
    head = a + 1.0 if kernel.nu == 1.5 else a + 1.0 + a * a / 3.0
    return head * a.negative().exp()


PROFILED = (kernels.Gaussian, kernels.Laplace, kernels.Cauchy, kernels.LogDistance, kernels.Matern)


def target_moments(writer: Writer, expansion: Expansion, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of new targets."""
    scale, mixed = expansion.scale, len(expansion.parts) > 1 and expansion.noise is None
    if not mixed or scale.sign == 0:
        mean, variance = location_moments(writer, expansion, std or scale.sign != 0)
        return in_target_units(scale, mean, variance, std)
    found = [in_target_units(scale, *_part_moments(writer, part, True), std) for part in expansion.parts]
    return _mix(found, expansion.shares)


def location_moments(writer: Writer, expansion: Expansion, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of new targets on their scale; of counts in their own units."""
    variances = std or expansion.counts
    mean, variance = _mix([_part_moments(writer, part, variances) for part in expansion.parts], expansion.shares)
    if variance is None:
        return mean, None
    if expansion.counts:  # moments of a log-normal rate, and of the counts
        rate = (mean + variance * 0.5).exp()
        return rate, rate * rate * variance.expm1() + rate if std else None
    if expansion.noise is not None:
        variance = variance + writer.noise_variance(expansion.noise, mean)
    if expansion.reach is not None:  # the share of the prior's variance that functions kept do not reach
        reach = expansion.reach
        share = (writer.squares(reach.basis, reach.represented).negative() + 1.0).maximum(0.0)
        variance = variance + share * reach.variance
    return mean, variance


def _mix(parts: list[tuple[Number, Number | None]], shares: np.ndarray) -> tuple[Number, Number | None]:
    """Return the mean and, where they are known, variance of a mixture of distributions with these moments."""
    if len(parts) == 1:
        return parts[0]
    means = [m * float(share) for (m, _), share in zip(parts, shares, strict=True)]
    mean = sum(means[1:], means[0])
    apart = [(v, m - mean, float(share)) for (m, v), share in zip(parts, shares, strict=True) if v is not None]
    spreads = [(v + d * d) * share for v, d, share in apart]
    return mean, sum(spreads[1:], spreads[0]) if spreads else None


def _part_moments(writer: Writer, part: LinearExpansion, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of new targets under one part of a mixture, on their scale."""
    mean = writer.dot(part.basis, part.weights)
    if not std:
        return mean, None
    variance = _function_variance(writer, part)
    if part.prior or part.represented.size:
        variance = (variance + part.prior - writer.squares(part.basis, part.represented)).maximum(0.0)
    variance = variance + part.noise
    if part.varying is not None:
        variance = variance * writer.noise_variance(part.varying, mean).maximum(part.varying.least)
    return mean, variance


def _function_variance(writer: Writer, part: LinearExpansion) -> Number:
    """Return |root'phi|^2, or of a model with a logarithm of its variance that variance."""
    if part.log_variance is None:
        return writer.squares(part.basis, part.root)
    low, high = part.log_limits
    return writer.dot(part.basis, part.log_variance).maximum(low).minimum(high).exp()


def in_target_units(scale: Scale, mean: Number, variance: Number | None, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of targets that are normal with these on a scale: `Scale.moments`."""
    if scale.sign == 0 or variance is None:
        return mean, variance
    v = variance.minimum(MAX_LOG_VARIANCE)
    level = (mean * float(scale.sign) + v * 0.5).exp()
    spread = level * level * (v.expm1() * scale.scale**2) if std else None
    return _from_level(scale, level), spread


def _from_level(scale: Scale, level: Number) -> Number:
    """Return the target whose logarithm on a scale has this exponential."""
    return (level - scale.offset) * (scale.sign * scale.scale) + scale.end


def target_interval(writer: Writer, expansion: Expansion, threshold: float) -> tuple[Number, Number]:
    """Return the lower and upper end of the interval of a calibrated model, for a bound on the score of a new row."""
    centre, variance = location_moments(writer, expansion, True)
    assert variance is not None
    reach, scale = variance.sqrt() * float(threshold), expansion.scale
    lower, upper = centre - reach, centre + reach
    if scale.sign:  # `Scale.inverse`
        lower, upper = (_from_level(scale, (end * float(scale.sign)).exp()) for end in (lower, upper))
    return (lower.ceil().maximum(0.0), upper.floor()) if expansion.counts else (lower, upper)
