"""Means, standard deviations and intervals of regression in C."""

from __future__ import annotations

from collections.abc import Callable

from relvec.export.c99.source import CSource
from relvec.export.c99.writer import RowWriter
from relvec.export.exported import ExportedModel, expand_machine
from relvec.export.formulas import interval, machine_moments
from relvec.inference.predictive import CountPredictor


def add_regression(source: CSource, model: ExportedModel, prepared: bool, std: bool) -> None:
    """Add NAME_predict(x, mean, std), or NAME_predict(x, mean) without ``std``; ``prepared`` if steps come before.

    A calibrated model has NAME_predict_interval(x, lower, upper) too.
    """
    outputs = [expand_machine(model, predictor) for predictor in model.predictors]
    counts = [type(predictor) is CountPredictor for predictor in model.predictors]
    assert model.basis is not None
    source.constant("OUTPUTS", len(outputs))
    writer = RowWriter(source, model.basis, prepared)

    def add(name: str, results: tuple[str, ...], assign: Callable[[int], list[str]]) -> None:
        """Add a function that sets results of every output by these statements."""
        head = f"void @{name}(const double *x, {', '.join(f'double *{result}' for result in results)})"
        source.add(f"{head};")
        writer.add_function(head, [line for i in range(len(outputs)) for line in assign(i)])

    def assign_moments(i: int) -> list[str]:
        mean, variance = machine_moments(writer, outputs[i], counts[i], std)
        return [f"mean[{i}] = {mean.name};", *([] if variance is None else [f"std[{i}] = sqrt({variance.name});"])]

    def assign_interval(i: int) -> list[str]:
        assert model.thresholds is not None
        centre, variance = machine_moments(writer, outputs[i], counts[i], True)
        assert variance is not None
        lower, upper = interval(centre, variance, model.thresholds[i], counts[i])
        return [f"lower[{i}] = {lower.name};", f"upper[{i}] = {upper.name};"]

    add("predict", ("mean", "std") if std else ("mean",), assign_moments)
    if model.thresholds is not None:
        add("predict_interval", ("lower", "upper"), assign_interval)
