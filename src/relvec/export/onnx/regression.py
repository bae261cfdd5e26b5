"""Means, standard deviations and intervals of regression, and numbers of Gaussian processes, as ONNX graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.estimators.noise import HeteroscedasticPredictor
from relvec.export.exported import ExportedModel, expand_machine, scale_of
from relvec.export.formulas import Number, in_target_units, interval, machine_moments
from relvec.export.onnx.graph import Graph, RowsWriter
from relvec.gaussian_process import ProcessPredictor
from relvec.gaussian_process.expansion import ExpandedMember, expand
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive import Predictor, StudentPredictor
from relvec.inference.predictive.linear import LinearExpansion
from relvec.inference.scale import AS_IT_IS, Scale


@dataclass(frozen=True, eq=False)
class ExpandedProcess:
    """The predictive distribution of one output: a mixture of normal distributions on a scale of the target."""

    parts: list[LinearExpansion]
    shares: np.ndarray  # (k,) their shares
    scale: Scale = AS_IT_IS
    noise: LogNoise | None = None  # that depends on the inputs, beside that of the parts


def expand_process(predictor: Predictor, n_features: int) -> ExpandedProcess:
    """Expand the predictor of one output in weighted sums of functions."""
    if type(predictor) is ProcessPredictor:
        return ExpandedProcess(expand(predictor, n_features), predictor.shares, predictor.scale)
    if isinstance(predictor, StudentPredictor):  # its noise replaces that of the normal model
        found, own, varying = expand_process(predictor.function, n_features), predictor.noise, None
    elif isinstance(predictor, HeteroscedasticPredictor):
        found, own, varying = expand_process(predictor.function, n_features), 0.0, predictor.noise
    else:
        raise NotImplementedError(f"to_onnx cannot translate the predictive distribution {type(predictor).__name__}")
    return replace(found, parts=[replace(part, noise=own) for part in found.parts], noise=varying)


def process_moments(writer: RowsWriter, process: ExpandedProcess, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of new targets."""
    if process.noise is not None:
        function = replace(process, scale=AS_IT_IS, noise=None)
        mean, variance = process_moments(writer, function, std or process.scale.sign != 0)
        if variance is not None:
            variance = variance + writer.noise_variance(process.noise, mean)
        return in_target_units(process.scale, mean, variance, std)
    parts = [_part_moments(writer, process.scale, part, std) for part in process.parts]
    if len(parts) == 1:
        return parts[0]
    shares = [float(share) for share in process.shares]
    means = [m * share for (m, _), share in zip(parts, shares, strict=True)]
    mean = sum(means[1:], means[0])
    if not std:
        return mean, None
    apart = [(v, m - mean, share) for (m, v), share in zip(parts, shares, strict=True) if v is not None]
    spreads = [(v + d * d) * share for v, d, share in apart]
    return mean, sum(spreads[1:], spreads[0])


def process_interval(writer: RowsWriter, process: ExpandedProcess, threshold: float) -> tuple[Number, Number]:
    """Return the lower and upper end of the interval of a calibrated process, for a bound on the score of a new row."""
    centre, variance = process_moments(writer, replace(process, scale=AS_IT_IS), True)
    assert variance is not None
    return interval(centre, variance, threshold, False, process.scale)


def process_scores(writer: RowsWriter, members: list[ExpandedMember], log_odds: np.ndarray) -> list[Number]:
    """Return the log-odds of the second of two classes, or a score of every class, of a process for classes.

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


def _part_moments(writer: RowsWriter, scale: Scale, part: LinearExpansion, std: bool) -> tuple[Number, Number | None]:
    """Return the mean and, if asked, variance of new targets under one part of a mixture."""
    mean = writer.dot(part.basis, part.weights)
    if not (std or scale.sign):
        return mean, None
    variance = writer.squares(part.basis, part.root)
    if part.prior or part.represented.size:
        variance = (variance + part.prior - writer.squares(part.basis, part.represented)).maximum(0.0)
    variance = variance + part.noise
    if part.varying is not None:
        variance = variance * writer.noise_variance(part.varying, mean).maximum(part.varying.least)
    return in_target_units(scale, mean, variance, std)


def add_regression(graph: Graph, model: ExportedModel, x: str, std: bool = True) -> list[str]:
    """Add mean and, if asked, standard deviation (n, q) of new targets at x; and ends of calibrated intervals."""
    writer, add = RowsWriter(graph, x), _add_process if model.basis is None else _add_machine
    thresholds = [None] * len(model.predictors) if model.thresholds is None else model.thresholds.tolist()
    found = [add(writer, model, *each, std) for each in zip(model.predictors, thresholds, strict=True)]
    names = [[number.name for number in each] for each in zip(*found, strict=True)]
    return [each[0] if len(each) == 1 else graph.node("Concat", *each, axis=1) for each in names]


def _add_machine(
    writer: RowsWriter, model: ExportedModel, predictor: Predictor, threshold: float | None, std: bool
) -> list[Number]:
    part, counts, scale = expand_machine(model, predictor), predictor.is_count, scale_of(predictor)
    centre, spread = machine_moments(writer, part, counts, std or scale.sign != 0 or threshold is not None)
    mean, variance = in_target_units(scale, centre, spread, std)
    found = [mean, *([] if variance is None or not std else [variance.sqrt()])]
    if threshold is not None:
        assert spread is not None
        found += interval(centre, spread, threshold, counts, scale)
    return found


def _add_process(
    writer: RowsWriter, model: ExportedModel, predictor: Predictor, threshold: float | None, std: bool
) -> list[Number]:
    process = expand_process(predictor, model.n_features)
    mean, variance = process_moments(writer, process, std)
    found = [mean, *([] if variance is None else [variance.sqrt()])]
    return found if threshold is None else [*found, *process_interval(writer, process, threshold)]
