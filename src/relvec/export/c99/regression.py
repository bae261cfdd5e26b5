"""Means and standard deviations of regression in C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relvec import basis as bases
from relvec.export.c99.kernels import add_columns
from relvec.export.c99.source import Source, add_dot, add_squares, format_double, open_body, write_dot, write_squares
from relvec.export.exported import ExportedModel, expand_output
from relvec.inference.predictive import CountPredictor
from relvec.inference.process import LinearExpansion


def add_regression(source: Source, model: ExportedModel, prepared: bool, std: bool) -> None:
    """NAME_predict(x, mean, std), or NAME_predict(x, mean) without ``std``; ``prepared`` if steps come before."""
    basis, outputs = expand_outputs(model)
    add_columns(source, basis)
    source.constant("OUTPUTS", len(outputs))
    counts = [type(predictor) is CountPredictor for predictor in model.predictors]
    body = [line for o, each in enumerate(outputs) for line in _write_output(source, o, each, counts[o], std)]
    if any(each.root.size and (std or count) for each, count in zip(outputs, counts, strict=True)):
        add_squares(source)
    add_dot(source)
    names = [name for name in "fvl" if name == "f" or any(f" {name} " in line for line in body)]
    arguments = "const double *x, double *mean, double *std" if std else "const double *x, double *mean"
    source.add(f"void @predict({arguments});")
    head = open_body(prepared, f"    double {', '.join(names)};")
    source.add(f"void @predict({arguments})\n{{\n{head}" + "\n".join(body) + "\n}")


def _write_output(source: Source, index: int, output: LinearExpansion, counts: bool, std: bool) -> Iterator[str]:
    """Statements that compute the mean and, if asked, the standard deviation of one output."""
    yield f"    f = {write_dot(source, output.weights)};"
    if std or counts:
        value = write_squares(source, output.root)
        if output.prior:
            known = f"@squares(phi, {source.table(output.represented, 's')}, {output.represented.shape[1]})"
            yield f"    l = {format_double(output.prior)} - {known};"
            value += "\n    if (l > 0.0) v += l;"
        yield value + (f"\n    v += {format_double(output.noise)};" if output.noise else "")
    if counts:  # moments of a log-normal rate, and of the counts
        yield "    f = exp(f + 0.5 * v);" + ("\n    v = f * f * expm1(v) + f;" if std else "")
    yield f"    mean[{index}] = f;" + (f"\n    std[{index}] = sqrt(v);" if std else "")


def expand_outputs(model: ExportedModel) -> tuple[bases.Basis, list[LinearExpansion]]:
    """One basis for all outputs, and the weights of each output over it."""
    found = [expand_output(model, predictor, "to_c") for predictor in model.predictors]
    if all(each.basis is model.basis for each in found):
        return model.basis, found
    sizes = [each.basis.n_atoms for each in found]
    whole = bases.Concat(tuple(each.basis for each in found), n_features=model.n_features)

    def pad(part: np.ndarray, i: int) -> np.ndarray:
        rows = np.zeros((sum(sizes), *part.shape[1:]))
        rows[sum(sizes[:i]) : sum(sizes[: i + 1])] = part
        return rows

    return whole, [
        replace(e, basis=whole, weights=pad(e.weights, i), root=pad(e.root, i), represented=pad(e.represented, i))
        for i, e in enumerate(found)
    ]
