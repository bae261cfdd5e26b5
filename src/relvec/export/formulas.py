"""What predictions compute from the basis functions of a row: once, for every language that a model is written in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec import kernels
from relvec.basis import Basis
from relvec.export.exported import ExportedOutput
from relvec.gaussian_process.classes.expansion import ExpandedMember
from relvec.gaussian_process.target import AS_IT_IS, MAX_LOG_VARIANCE, Scale
from relvec.inference.expansion import LinearExpansion
from relvec.inference.heteroscedastic import LogNoise


class Arithmetic(ABC):
    """A language in which results of operations are written down."""

    @abstractmethod
    def apply(self, operation: str, *arguments: Number | float) -> Number:
        """A function of one or two numbers, by its name in NumPy."""


class Writer(Arithmetic):
    """A language in which numbers of a row are written down."""

    @abstractmethod
    def dot(self, basis: Basis, weights: np.ndarray) -> Number:
        """Phi'w for weights (k,) of the functions of a basis."""

    @abstractmethod
    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        """|phi'root|^2 for root (k, j)."""

    @abstractmethod
    def noise_variance(self, noise: LogNoise, mean: Number) -> Number:
        """`LogNoise.variance` at the inputs and a predicted mean."""


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
        """A function by its name in NumPy, as in ``number.sqrt()`` and ``number.maximum(0.0)``."""
        return lambda *others: self.writer.apply(operation, self, *others)


def profile(kernel: Any, squared: Number) -> Number:
    """The value of a stationary kernel at a squared distance in its widths."""
    if type(kernel) is kernels.Gaussian:
        return squared.negative().exp()
    if type(kernel) is kernels.Laplace:
        return squared.sqrt().negative().exp()
    if type(kernel) is kernels.Cauchy:
        return (squared + 1.0).reciprocal()
    if type(kernel) is kernels.LogDistance:
        return squared.log1p()
    a = squared.sqrt() * np.sqrt(2.0 * kernel.nu)  # Matern
    head = a + 1.0 if kernel.nu == 1.5 else a + 1.0 + a * a / 3.0
    return head * a.negative().exp()


PROFILED = (kernels.Gaussian, kernels.Laplace, kernels.Cauchy, kernels.LogDistance, kernels.Matern)


def moments(writer: Writer, output: ExportedOutput, std: bool) -> tuple[Number, Number | None]:
    """Mean and, if asked, variance of new targets of one output, a mixture of its parts."""
    if output.noise is not None:
        mean, variance = moments(writer, output.function, output.needs_variance(std))
        if variance is not None:
            variance = variance + writer.noise_variance(output.noise, mean)
        return _in_units(output.scale, mean, variance, std)
    parts = [_part_moments(writer, output, part, std) for part in output.parts]
    if len(parts) == 1:
        return parts[0]
    shares = [float(share) for share in output.shares]
    means = [m * share for (m, _), share in zip(parts, shares, strict=True)]
    mean = sum(means[1:], means[0])
    if not std:
        return mean, None
    apart = [(v, m - mean, share) for (m, v), share in zip(parts, shares, strict=True) if v is not None]
    spreads = [(v + d * d) * share for v, d, share in apart]
    return mean, sum(spreads[1:], spreads[0])


def _part_moments(
    writer: Writer, output: ExportedOutput, part: LinearExpansion, std: bool
) -> tuple[Number, Number | None]:
    """Mean and, if asked, variance of new targets under one part of a mixture."""
    mean = writer.dot(part.basis, part.weights)
    if not output.needs_variance(std):
        return mean, None
    variance = writer.squares(part.basis, part.root)
    if part.prior:
        variance = (variance + part.prior - writer.squares(part.basis, part.represented)).maximum(0.0)
    if output.counts:  # moments of a log-normal rate, and of the counts
        rate = (mean + variance * 0.5).exp()
        return rate, rate * rate * variance.expm1() + rate if std else None
    variance = variance + part.noise
    if part.varying is not None:
        variance = variance * writer.noise_variance(part.varying, mean).maximum(part.varying.least)
    return _in_units(output.scale, mean, variance, std)


def _in_units(scale: Scale, mean: Number, variance: Number | None, std: bool) -> tuple[Number, Number | None]:
    """Mean and, if asked, variance of targets that are normal with these on a scale: `Scale.moments`."""
    if scale.sign == 0 or variance is None:
        return mean, variance
    v = variance.minimum(MAX_LOG_VARIANCE)
    level = (mean * float(scale.sign) + v * 0.5).exp()
    spread = level * level * (v.expm1() * scale.scale**2) if std else None
    return _from_level(scale, level), spread


def _from_level(scale: Scale, level: Number) -> Number:
    """The target whose logarithm on a scale has this exponential."""
    return (level - scale.offset) * (scale.sign * scale.scale) + scale.end


def interval(writer: Writer, output: ExportedOutput, threshold: float) -> tuple[Number, Number]:
    """Lower and upper end of the interval of a calibrated model, for a bound on the score of a new row."""
    centre, variance = moments(writer, replace(output, scale=AS_IT_IS), True)
    assert variance is not None
    reach, scale = variance.sqrt() * float(threshold), output.scale
    lower, upper = centre - reach, centre + reach
    if scale.sign:  # `Scale.inverse`
        lower, upper = (_from_level(scale, (end * float(scale.sign)).exp()) for end in (lower, upper))
    elif output.counts:
        lower, upper = lower.ceil().maximum(0.0), upper.floor()
    return lower, upper


def process_scores(writer: Writer, members: list[ExpandedMember], log_odds: np.ndarray) -> list[Number]:
    """Log-odds of the second of two classes, or a score of every class, of a process for classes.

    Its members add to the log-odds, or scores, that the base rates have away from the data.
    """
    signals: list[list[Number]] = [[] for _ in log_odds]
    for member in members:
        first = member.functions[0]
        left = None
        if first.prior:
            left = (writer.squares(first.basis, first.represented).negative() + first.prior).maximum(0.0)
        for own, function in zip(signals, member.functions, strict=True):
            variance = writer.squares(function.basis, function.root)
            variance = variance if left is None else variance + left
            mean = writer.dot(function.basis, function.weights)
            own.append(mean / (variance * member.moderation + 1.0).sqrt() * member.slope)
    return [sum(own[1:], own[0]) + float(odds) for own, odds in zip(signals, log_odds, strict=True)]
